"""The vocabulary of `.meta.json`: its ten keys, its words, and which values the TypeScript server accepts in them.

The server stops serving a run whose document breaks these rules, so nothing that we write may, and everything that
others wrote is held against them before it is believed.
"""

from collections.abc import Callable, Mapping
from typing import Any

Document = dict[str, Any]

RUN_WORDS = ("pending", "running", "completed", "error", "success", "waiting_parent_reply", "parent_replied")
MESSAGE_WORDS = ("pending_parent_reply", "parent_replied", "acknowledged_by_subagent", "parent_acknowledged")

EXPIRED_MARK = "[expired]"
_INFINITY = float("inf")


def _text(value: object) -> bool:
    return isinstance(value, str)


def _text_or_null(value: object) -> bool:
    return value is None or isinstance(value, str)


def _number_or_null(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return value is None
    return isinstance(value, int | float) and -_INFINITY < value < _INFINITY


def _run_word(value: object) -> bool:
    return isinstance(value, str) and value in RUN_WORDS


def _message_word(value: object) -> bool:
    return isinstance(value, str) and value in MESSAGE_WORDS


def _messages(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and message_fits(item) for item in value)


RUN_KEYS: Mapping[str, Callable[[object], bool]] = {
    "runId": _text,
    "agentName": _text,
    "command": _text,
    "startTime": _text,
    "status": _run_word,
    "exitCode": _number_or_null,
    "endTime": _text_or_null,
    "summary": _text_or_null,
    "messages": _messages,
    "lastUpdated": _text,
}
MESSAGE_KEYS: Mapping[str, Callable[[object], bool]] = {
    "messageId": _text,
    "questionContent": _text,
    "questionTimestamp": _text,
    "answerContent": _text,
    "answerTimestamp": _text,
    "messageStatus": _message_word,
}
_MESSAGE_NEEDS = ("messageId", "questionContent", "questionTimestamp", "messageStatus")


def message_fits(message: Document) -> bool:
    """Whether the server would accept this message."""
    return all(key in message for key in _MESSAGE_NEEDS) and all(
        fits(message[key]) for key, fits in MESSAGE_KEYS.items() if key in message
    )


def document_fits(document: object) -> bool:
    """Whether the server would accept this document when its worker asks."""
    return isinstance(document, dict) and all(fits(document[key]) for key, fits in RUN_KEYS.items() if key in document)

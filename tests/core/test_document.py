"""What the server accepts in a document and what it stops serving a run for, key by key."""

from typing import Any

import pytest

from subagent_cli.core.document import MESSAGE_KEYS, MESSAGE_WORDS, RUN_KEYS, RUN_WORDS, document_fits, message_fits

MESSAGE = {
    "messageId": "m1",
    "questionContent": "Which?",
    "questionTimestamp": "2025-10-09T08:53:20.000Z",
    "messageStatus": "pending_parent_reply",
}
ANSWERED = {**MESSAGE, "answerContent": "That.", "answerTimestamp": "", "messageStatus": "parent_replied"}
NEITHER: tuple[Any, ...] = (5, True, [], ["a"], {}, {"a": 1})
INFINITY = float("inf")


@pytest.mark.parametrize("word", [*RUN_WORDS])
def test_a_run_has_one_of_seven_words(word: str) -> None:
    assert RUN_KEYS["status"](word)
    assert not RUN_KEYS["status"](word.upper())


def test_the_words_are_those_of_the_server() -> None:
    assert set(RUN_WORDS) == {
        *("pending", "running", "completed", "error", "success", "waiting_parent_reply", "parent_replied"),
    }
    assert set(MESSAGE_WORDS) == {
        *("pending_parent_reply", "parent_replied", "acknowledged_by_subagent", "parent_acknowledged"),
    }


@pytest.mark.parametrize("word", [*MESSAGE_WORDS])
def test_a_message_has_one_of_four_words(word: str) -> None:
    assert message_fits({**MESSAGE, "messageStatus": word})
    assert not message_fits({**MESSAGE, "messageStatus": word.upper()})


@pytest.mark.parametrize("key", ["runId", "agentName", "command", "startTime", "status", "lastUpdated"])
@pytest.mark.parametrize("value", [*NEITHER, None])
def test_these_keys_of_a_run_are_texts(key: str, value: object) -> None:
    assert not document_fits({key: value})
    assert key == "status" or document_fits({key: ""})


@pytest.mark.parametrize("key", ["endTime", "summary"])
def test_these_keys_of_a_run_are_texts_or_null(key: str) -> None:
    assert document_fits({key: ""})
    assert document_fits({key: None})
    assert not any(document_fits({key: value}) for value in NEITHER)


@pytest.mark.parametrize("value", [None, 0, -9, 3.5, 10**400])
def test_an_exit_code_is_any_number_or_null(value: object) -> None:
    assert document_fits({"exitCode": value})


@pytest.mark.parametrize("value", [True, False, "0", INFINITY, -INFINITY, float("nan"), [0]])
def test_an_exit_code_is_nothing_else(value: object) -> None:
    assert not document_fits({"exitCode": value})


@pytest.mark.parametrize("messages", [[], [MESSAGE], [MESSAGE, ANSWERED], [{**MESSAGE, "priority": None}]])
def test_messages_that_fit_are_a_list_of_which_each_fits(messages: list[Any]) -> None:
    assert document_fits({"messages": messages})


@pytest.mark.parametrize(
    "messages",
    [None, {}, MESSAGE, "", (MESSAGE,), [MESSAGE, None], [MESSAGE, []], [MESSAGE, {}], [{**MESSAGE, "messageId": 1}]],
)
def test_messages_of_which_one_does_not_fit_do_not(messages: object) -> None:
    assert not document_fits({"messages": messages})


@pytest.mark.parametrize("key", list(MESSAGE))
def test_a_message_that_lacks_one_of_these_does_not_fit(key: str) -> None:
    assert not message_fits({name: value for name, value in MESSAGE.items() if name != key})


@pytest.mark.parametrize("key", [*MESSAGE_KEYS])
@pytest.mark.parametrize("value", [*NEITHER, None])
def test_no_key_of_a_message_may_be_anything_but_a_text(key: str, value: object) -> None:
    assert message_fits(ANSWERED)
    assert not message_fits({**ANSWERED, key: value})


@pytest.mark.parametrize("document", [None, [], "", 5, [MESSAGE]])
def test_a_document_is_an_object(document: object) -> None:
    assert not document_fits(document)


def test_one_key_that_does_not_fit_spoils_the_whole_and_those_of_others_do_not() -> None:
    whole = {"runId": "r", "status": "running", "exitCode": None, "messages": [MESSAGE], "owner": 5}
    assert document_fits(whole)
    assert document_fits({})
    assert not any(document_fits({**whole, key: 5.5 if key != "exitCode" else "0"}) for key in RUN_KEYS)

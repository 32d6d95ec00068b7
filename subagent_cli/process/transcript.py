"""What an agent's output says: its last words, its session, the tools it used.

No output is an error. Lines that are cut, broken or somebody else's are passed over, and a stream without one event of
its form is read as plain text.
"""

from collections.abc import Iterator
from typing import Any

from subagent_cli.core.ids import is_label

# The events of each form that is a stream of JSON lines; codex names its own by groups.
_EVENTS = {
    "claude": ("system", "assistant", "user", "result"),
    "codex": ("thread", "turn", "item"),
    "gemini": ("init", "message", "tool_use", "tool_result", "result"),
    "opencode": ("step_start", "text", "reasoning", "tool_use", "step_finish"),
}
FORMS = ("text", *_EVENTS)
_SESSION_KEYS = {"claude": "session_id", "codex": "thread_id", "gemini": "session_id", "opencode": "sessionID"}
_CODEX_TOOLS = ("command_execution", "file_change", "web_search")

Event = dict[str, Any]


def final_text(form: str, data: bytes) -> str | None:
    """What it said last, which is its result."""
    events = list(_events(form, data))
    if not events:
        return data.decode("utf-8", "replace").strip() or None
    reader = {"claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode}[form]
    return reader(events).strip() or None


def session_id(form: str, data: bytes) -> str | None:
    """The session that a later attempt can go on with, as the last event names it."""
    found = None
    for event in _events(form, data):
        given = event.get(_SESSION_KEYS[form])
        # It becomes a word of a command line, where a text with a dash in front would be an option.
        if isinstance(given, str) and is_label(given):
            found = given
    return found


def tools_used(form: str, data: bytes) -> tuple[str, ...]:
    """Names of the tools that it used, each once, in the order of their first use."""
    names: dict[str, None] = {}
    for event in _events(form, data):
        if form == "claude" and event["type"] == "assistant":
            names |= dict.fromkeys(_strings(_blocks(event), "tool_use", "name"))
        elif form == "codex":
            item = _table(event.get("item"))
            names |= dict.fromkeys(_strings([item], "mcp_tool_call", "tool"))
            names |= {kind: None for kind in _CODEX_TOOLS if item.get("type") == kind}
    return tuple(names)


def _events(form: str, data: bytes) -> Iterator[Event]:
    import json

    known = _EVENTS.get(form)
    if known is None:
        return
    for line in data.split(b"\n"):
        if not line.lstrip().startswith(b"{"):
            continue
        try:
            event = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        kind = event.get("type")
        if isinstance(kind, str) and (kind.partition(".")[0] if form == "codex" else kind) in known:
            yield event


def _claude(events: list[Event]) -> str:
    said = ""
    for event in events:
        if event["type"] == "result":
            said = _text(event.get("result")) or said
        elif event["type"] == "assistant" and not event.get("parent_tool_use_id"):
            # What one of its own helpers said is not what it said.
            said = "\n".join(_strings(_blocks(event), "text", "text")) or said
    return said


def _codex(events: list[Event]) -> str:
    said = ""
    for event in events:
        if event["type"] == "item.completed":
            said = "".join(_strings([_table(event.get("item"))], "agent_message", "text")) or said
    return said


def _gemini(events: list[Event]) -> str:
    """A message comes in pieces; whatever comes between two pieces begins a new one."""
    said, whole = "", True
    for event in events:
        if event["type"] == "message" and event.get("role") == "assistant":
            piece = _text(event.get("content"))
            said = piece if whole or not event.get("delta") else said + piece
            whole = False
        elif event["type"] != "result":
            whole = True
    return said


def _opencode(events: list[Event]) -> str:
    said: list[str] = []
    message = None
    for event in events:
        part = _table(event.get("part"))
        if event["type"] == "text" and (text := _text(part.get("text"))):
            said = [*said, text] if message is not None and part.get("messageID") == message else [text]
            message = part.get("messageID")
    return "\n".join(said)


def _table(value: Any) -> Event:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _blocks(event: Event) -> list[Event]:
    """The blocks of a message; one that is a plain text is a block of text."""
    content = _table(event.get("message")).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_table(block) for block in content] if isinstance(content, list) else []


def _strings(tables: list[Event], kind: str, key: str) -> list[str]:
    return [text for table in tables if table.get("type") == kind and (text := _text(table.get(key)))]

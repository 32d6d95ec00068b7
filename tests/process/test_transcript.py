"""What an agent said is found in its output, whatever else stands there.

The samples are what the programs printed (claude 2.1.197, codex 0.169.0, gemini 0.61.0, opencode 1.18.33, qwen 0.15.10)
when a double of their model asked them to run one command, shortened to the keys that matter.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.process.transcript import FORMS, final_text, session_id, tools_used


def stream(*events: Any) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def said(text: str, parent: str | None = None) -> dict[str, Any]:
    return {
        "type": "assistant",
        "message": {"content": [{"type": "text", "text": text}]},
        "session_id": "7b6362e4-5376-47a9-80f4-7ebd5f0272ba",
        "parent_tool_use_id": parent,
    }


def used(name: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "t1", "name": name, "input": {}}]}}


CLAUDE = (
    {"type": "system", "subtype": "init", "session_id": "7b6362e4-5376-47a9-80f4-7ebd5f0272ba", "tools": ["Bash"]},
    said("I will ask first."),
    used("Bash"),
    {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "01a1"}]}},
    said("All done, boss."),
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "All done, boss.",
        "session_id": "7b6362e4-5376-47a9-80f4-7ebd5f0272ba",
    },
)
CODEX = (
    {"type": "thread.started", "thread_id": "01a1ef2b-43bc-7741-95ed-40b6e133e956"},
    {"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "Model metadata not found."}},
    {"type": "turn.started"},
    {"type": "item.started", "item": {"id": "item_1", "type": "command_execution", "command": "x", "exit_code": None}},
    {"type": "item.completed", "item": {"id": "item_1", "type": "command_execution", "command": "x", "exit_code": 0}},
    {"type": "item.completed", "item": {"id": "item_2", "type": "mcp_tool_call", "server": "s", "tool": "search"}},
    {"type": "item.completed", "item": {"id": "item_3", "type": "agent_message", "text": "All done, boss."}},
    {"type": "turn.completed", "usage": {"input_tokens": 2}},
)
GEMINI = (
    {"type": "init", "session_id": "99f2285c-bb12-447b-bed5-8952380cc66c", "model": "gemini-2.5-flash"},
    {"type": "message", "role": "user", "content": "Do it\n"},
    {"type": "message", "role": "assistant", "content": "I will ask first.", "delta": True},
    {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "1", "parameters": {"command": "x"}},
    {"type": "tool_result", "tool_id": "1", "status": "success", "output": "01a1"},
    {"type": "message", "role": "assistant", "content": "All done, ", "delta": True},
    {"type": "message", "role": "assistant", "content": "boss.", "delta": True},
    {"type": "result", "status": "success", "stats": {"total_tokens": 4}},
)
SESSION = "ses_e10db3f0dffe4cKT3rf6cVFOnC"
OPENCODE = (
    {"type": "step_start", "sessionID": SESSION, "part": {"messageID": "msg_1", "type": "step-start"}},
    {"type": "text", "sessionID": SESSION, "part": {"messageID": "msg_1", "type": "text", "text": "I will ask first."}},
    {"type": "tool_use", "sessionID": SESSION, "part": {"type": "tool", "tool": "bash", "state": {}}},
    {"type": "step_finish", "sessionID": SESSION, "part": {"reason": "tool-calls"}},
    {"type": "text", "sessionID": SESSION, "part": {"messageID": "msg_2", "type": "text", "text": "All done, boss."}},
    {"type": "step_finish", "sessionID": SESSION, "part": {"reason": "stop"}},
)
STREAMS = {"claude": CLAUDE, "codex": CODEX, "gemini": GEMINI, "opencode": OPENCODE}
SESSIONS = {
    "claude": "7b6362e4-5376-47a9-80f4-7ebd5f0272ba",
    "codex": "01a1ef2b-43bc-7741-95ed-40b6e133e956",
    "gemini": "99f2285c-bb12-447b-bed5-8952380cc66c",
    "opencode": SESSION,
}


@pytest.mark.parametrize("form", STREAMS)
def test_the_last_words_and_the_session_are_found(form: str) -> None:
    data = stream(*STREAMS[form])
    assert final_text(form, data) == "All done, boss."
    assert session_id(form, data) == SESSIONS[form]


@pytest.mark.parametrize("form", STREAMS)
def test_lines_that_are_cut_broken_or_foreign_are_passed_over(form: str) -> None:
    data = stream(*STREAMS[form])
    noisy = b'": {"type": "result"}}\n{"type": 5}\nWarning: {not JSON}\n\xff\xfe{\n[1]\n{"type": "odd"}\n\n'
    deep = b'{"type":' * 99_999
    assert final_text(form, noisy + data + deep + b'\n{"type": "result", "resu') == "All done, boss."
    assert final_text(form, data.replace(b"\n", b"\r\n")) == "All done, boss."
    assert session_id(form, noisy + data) == SESSIONS[form]


@pytest.mark.parametrize("form", STREAMS)
def test_a_stream_whose_beginning_is_lost_still_has_its_last_words(form: str) -> None:
    data = stream(*STREAMS[form])
    assert final_text(form, data[len(data) // 2 :]) == "All done, boss."


@pytest.mark.parametrize("form", [*STREAMS, "text", "a form of tomorrow"])
def test_output_without_any_of_the_events_is_plain_text(form: str) -> None:
    assert final_text(form, b"  It broke:\n{} \xff\n") == "It broke:\n{} \ufffd"
    assert final_text(form, b" \n\t") is None
    assert final_text(form, b"") is None
    assert session_id(form, b"session_id: x") is None
    assert tools_used(form, b"Bash") == ()


def test_text_is_never_read_as_a_stream() -> None:
    data = stream(*CLAUDE)
    assert final_text("text", data) == data.decode().strip()
    assert session_id("text", data) is None
    assert tools_used("text", data) == ()


@pytest.mark.parametrize("form", STREAMS)
def test_an_agent_that_said_nothing_has_no_last_words(form: str) -> None:
    assert final_text(form, stream(STREAMS[form][0])) is None


def test_the_words_of_a_stream_that_was_cut_short_are_the_last_that_were_said() -> None:
    assert final_text("claude", stream(*CLAUDE[:3])) == "I will ask first."
    assert final_text("gemini", stream(*GEMINI[:5])) == "I will ask first."
    assert final_text("opencode", stream(*OPENCODE[:3])) == "I will ask first."
    failed = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": ["no"]}
    assert final_text("claude", stream(*CLAUDE[:3], failed)) == "I will ask first."


def test_one_result_alone_is_enough() -> None:
    """As auggie and droid print it."""
    data = stream({"type": "result", "result": "Done.", "is_error": False, "session_id": "0190-a"})
    assert final_text("claude", data) == "Done."
    assert session_id("claude", data) == "0190-a"


def test_what_a_helper_of_the_agent_said_is_not_what_it_said() -> None:
    assert final_text("claude", stream(said("Mine."), said("A helper's.", parent="t1"))) == "Mine."


def test_a_message_of_several_blocks_is_one_text() -> None:
    content = [{"type": "text", "text": "One."}, {"type": "thinking"}, {"type": "text", "text": "Two."}]
    assert final_text("claude", stream({"type": "assistant", "message": {"content": content}})) == "One.\nTwo."
    assert final_text("claude", stream({"type": "assistant", "message": {"content": "Plain."}})) == "Plain."
    parts = [{"type": "text", "part": {"messageID": "m", "text": text}} for text in ("One.", "Two.")]
    assert final_text("opencode", stream(*parts)) == "One.\nTwo."


def test_a_message_that_comes_whole_replaces_its_pieces() -> None:
    pieces = [{"type": "message", "role": "assistant", "content": text, "delta": True} for text in ("a", "b")]
    whole = {"type": "message", "role": "assistant", "content": "ab!"}
    assert final_text("gemini", stream(*pieces)) == "ab"
    assert final_text("gemini", stream(*pieces, whole)) == "ab!"


def test_the_last_session_counts() -> None:
    later = {"type": "thread.started", "thread_id": "later"}
    assert session_id("codex", stream(*CODEX, later)) == "later"


@pytest.mark.parametrize("odd", ["--yolo", "", "a b", "x" * 200, "../x", 5, None, ["a"]], ids=str)
def test_a_session_that_would_not_be_one_plain_word_is_no_session(odd: Any) -> None:
    assert session_id("codex", stream({"type": "thread.started", "thread_id": odd})) is None
    assert session_id("claude", stream(*CLAUDE, {"type": "result", "session_id": odd})) == SESSIONS["claude"]


def test_tools_are_named_once_in_the_order_of_their_first_use() -> None:
    assert tools_used("claude", stream(*CLAUDE, used("Edit"), used("Bash"))) == ("Bash", "Edit")
    assert tools_used("codex", stream(*CODEX, *CODEX)) == ("command_execution", "search")
    assert tools_used("gemini", stream(*GEMINI)) == ()
    assert tools_used("opencode", stream(*OPENCODE)) == ()


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["text", "assistant", "tool_use", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "message", "content", "part", "item", "text", "name", "result"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
TYPES = ("assistant", "result", "item.completed", "message", "text", "tool_use")


@pytest.mark.parametrize("form", FORMS)
@given(kind=st.sampled_from(TYPES), events=st.lists(st.dictionaries(st.sampled_from(["message", "item"]), JUNK)))
def test_no_shape_of_event_is_an_error(form: str, kind: str, events: list[dict[str, Any]]) -> None:
    data = stream(*({**event, "type": kind, "role": "assistant"} for event in events))
    final_text(form, data)
    session_id(form, data)
    tools_used(form, data)


@pytest.mark.parametrize("form", FORMS)
@given(data=st.binary())
def test_no_bytes_are_an_error(form: str, data: bytes) -> None:
    final_text(form, data)
    session_id(form, data)
    tools_used(form, data)

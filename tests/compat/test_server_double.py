"""The double of the TypeScript server behaves as the server was seen to behave.

This shows the DOUBLE and not the original: it says what other tests may rely on when they put the double beside us.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.server import Server, ServerError

Node = Callable[[str], list[str]]
Document = dict[str, Any]

RUN = "0190a000-0000-7000-8000-000000000001"
OTHER = "0190a000-0000-7000-8000-000000000009"
ONE = "0190a000-0000-7000-8000-000000000002"
TWO = "0190a000-0000-7000-8000-000000000003"
TIME = "2026-01-02T03:04:05.678Z"
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

NEW = ["runId", "agentName", "command", "startTime", "status", "exitCode", "endTime", "summary"]
AFTER_ASK = ["runId", "agentName", "status", "messages", "command", "startTime", "endTime", "exitCode", "summary"]
REPLIED = {"messageStatus": "parent_replied", "answerContent": "That.", "answerTimestamp": TIME}
SEEN = {**REPLIED, "messageStatus": "acknowledged_by_subagent"}


def document(**changes: Any) -> Document:
    new = {
        "runId": RUN,
        "agentName": "worker",
        "command": "worker --go",
        "startTime": TIME,
        "status": "running",
        "exitCode": None,
        "endTime": None,
        "summary": None,
    }
    return {key: value for key, value in {**new, **changes}.items() if value != "absent"}


def message(**changes: Any) -> Document:
    new = {
        "messageId": ONE,
        "questionContent": "Which?",
        "questionTimestamp": TIME,
        "messageStatus": "pending_parent_reply",
    }
    return {key: value for key, value in {**new, **changes}.items() if value != "absent"}


class Desk:
    """One server and the files of one run."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.file = folder / f"{RUN}.meta.json"
        self.log = folder / f"{RUN}.log"

    def put(self, value: object) -> str:
        text = json.dumps(value, indent=2, ensure_ascii=False)
        self.file.write_text(text)
        return text

    def get(self) -> Any:
        return json.loads(self.file.read_bytes())

    def ask(self, question: str = "Which?") -> str:
        return str(self.server.call("ask_parent", runId=RUN, question=question)["messageId"])

    def reply(self, message_id: str = ONE, answer: str = "That.") -> Document:
        return self.server.call("reply_subagent", runId=RUN, messageId=message_id, answer=answer)

    def check(self, message_id: str = ONE) -> Document:
        return self.server.call("check_message_status", runId=RUN, messageId=message_id)

    def status(self) -> Document:
        return self.server.call("check_subagent_status", runId=RUN)

    def text(self) -> str:
        return str(self.status()["text"])

    def update(self, status: str, **more: str) -> Document:
        return self.server.call("update_subagent_status", runId=RUN, status=status, **more)

    def exit(self, code: int) -> Document:
        return self.server.call("exit", runId=RUN, code=code)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "foreign" / "logs"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def desk(folder: Path, node: Node) -> Iterator[Desk]:
    with Server(folder) as server:
        yield Desk(server, folder)


def refused(call: Callable[..., object], *args: Any, **more: Any) -> str:
    with pytest.raises(ServerError) as caught:
        call(*args, **more)
    return str(caught.value)


def ask_refused(desk: Desk, value: object) -> str:
    """The text of the refusal, which must leave the file as it was."""
    before = desk.put(value)
    text = refused(desk.ask)
    assert desk.file.read_text() == before
    return text


def test_the_log_directory_lies_in_the_users_home(tmp_path: Path, node: Node) -> None:
    home = tmp_path / "home"
    with Server(env={"HOME": str(home)}) as server:
        assert server.log_directory == str(home / ".config" / "mcp-server-subagent" / "logs")
        assert os.path.isdir(server.log_directory)


def test_without_a_home_it_falls_back_to_the_working_directory_and_then_to_the_temporary_one(
    tmp_path: Path, node: Node
) -> None:
    (tmp_path / "file").touch()
    env = {"HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "tmp")}
    with Server(env=env, cwd=tmp_path) as server:
        assert server.log_directory == str(tmp_path / "logs")
    (tmp_path / "logs").rmdir()
    (tmp_path / "logs").touch()
    with Server(env=env, cwd=tmp_path) as server:
        assert server.log_directory == str(tmp_path / "tmp" / "mcp-server-subagent" / "logs")


def start(desk: Desk, *command: str, **changes: Any) -> str:
    wanted = {"agentName": "worker", "input": "Do it.", "cwd": str(desk.folder), "command": list(command), **changes}
    return str(desk.server.call("run_agent", **wanted)["runId"])


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def ended(desk: Desk, *command: str) -> tuple[Document, str]:
    """The document and the log after a child has ended, for which the double waits before it ends itself."""
    run = start(desk, *command)
    assert desk.server.close() == 0
    log = (desk.folder / f"{run}.log").read_text()
    return json.loads((desk.folder / f"{run}.meta.json").read_bytes()), log


def test_a_new_run_is_a_document_a_log_and_a_prompt(desk: Desk) -> None:
    run = start(desk, command=None, input="Count the ünïcorns.")
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", run)
    raw = (desk.folder / f"{run}.meta.json").read_text()
    value = json.loads(raw)
    assert list(value) == NEW
    assert value["runId"] == run
    assert re.fullmatch(STAMP, value["startTime"])
    assert (value["status"], value["exitCode"], value["endTime"], value["summary"]) == ("running", None, None, None)
    assert raw == json.dumps(value, indent=2, ensure_ascii=False)
    prompt = (desk.folder / f"{run}.prompt.md").read_text()
    preamble, _, task = prompt.partition("\n---\n")
    assert task.strip() == "Count the ünïcorns."
    assert all(name in preamble for name in (run, "update_subagent_status", "ask_parent"))
    first, second = (desk.folder / f"{run}.log").read_text().splitlines()
    assert re.fullmatch(rf"\[{STAMP}\] Starting worker with input: Count the ünïcorns\.", first)
    assert re.fullmatch(rf"\[{STAMP}\] Command: worker", second)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"agentName": ""}, "Unknown subagent: "),
        ({"input": ""}, "Input cannot be empty"),
        ({"cwd": ""}, "cwd cannot be empty"),
    ],
)
def test_a_run_without_agent_input_or_folder_is_refused(desk: Desk, changes: Document, part: str) -> None:
    assert part in refused(start, desk, "true", **changes)
    assert list(desk.folder.iterdir()) == []


def test_a_child_that_exits_0_is_a_success_without_a_summary(desk: Desk) -> None:
    value, log = ended(desk, *python("import sys; print(len(sys.stdin.read()) > 10); print('oh', file=sys.stderr)"))
    assert (value["status"], value["exitCode"], value["summary"]) == ("success", 0, None)
    assert re.fullmatch(STAMP, value["endTime"])
    assert re.search(rf"^\[{STAMP}\] \[stdout\] True$", log, re.M)
    assert re.search(rf"^\[{STAMP}\] \[stderr\] oh$", log, re.M)
    assert re.search(rf"^\[{STAMP}\] Process exited with code 0\n\Z", log, re.M)


def test_a_child_that_fails_gets_the_end_of_its_log_as_a_summary(desk: Desk) -> None:
    value, log = ended(desk, *python("print('line\\n' * 60); raise SystemExit(3)"))
    assert (value["status"], value["exitCode"]) == ("error", 3)
    assert value["summary"].splitlines() == log.splitlines()[-50:]
    assert "Process exited with code 3" in value["summary"]


def test_a_program_that_does_not_exist_exits_with_127(desk: Desk) -> None:
    value, _ = ended(desk, "no-such-program-anywhere")
    assert (value["status"], value["exitCode"]) == ("error", 127)
    assert "no-such-program-anywhere: not found" in value["summary"]


def test_a_folder_that_does_not_exist_takes_the_server_down_and_leaves_the_run_running(desk: Desk) -> None:
    run = start(desk, "true", cwd=str(desk.folder / "nowhere"))
    assert desk.server.close() == 1
    assert json.loads((desk.folder / f"{run}.meta.json").read_bytes())["status"] == "running"


@pytest.mark.parametrize("own", ["success", "error"])
def test_what_a_child_said_of_its_own_end_stands(desk: Desk, own: str) -> None:
    desk.put(document())
    desk.update(own, summary="Mine.")
    desk.exit(3)
    value = desk.get()
    assert (value["status"], value["exitCode"], value["summary"]) == (own, 3, "Mine.")
    assert re.fullmatch(STAMP, value["endTime"])


@pytest.mark.parametrize(("code", "verdict"), [(0, "success"), (3, "error")])
def test_completed_gives_way_to_the_exit_code(desk: Desk, code: int, verdict: str) -> None:
    desk.put(document())
    desk.update("completed", summary="Mine.")
    desk.exit(code)
    assert (desk.get()["status"], desk.get()["summary"]) == (verdict, "Mine.")


def test_a_run_that_ended_while_it_waited_comes_back_to_life(desk: Desk) -> None:
    desk.put(document(messages=[message()], status="waiting_parent_reply"))
    desk.exit(0)
    assert (desk.get()["status"], desk.get()["messages"]) == ("success", [message()])
    desk.reply()
    assert desk.get()["status"] == "parent_replied"
    desk.check()
    assert (desk.get()["status"], desk.get()["exitCode"]) == ("running", 0)


def test_a_question_is_appended_and_the_run_waits(desk: Desk) -> None:
    desk.put(document())
    answer = desk.server.call("ask_parent", runId=RUN, question="Which?")
    assert "check_message_status" in answer["instructions"]
    value = desk.get()
    assert value["status"] == "waiting_parent_reply"
    (only,) = value["messages"]
    assert list(only) == ["messageId", "questionContent", "questionTimestamp", "messageStatus"]
    assert (only["messageId"], only["questionContent"]) == (answer["messageId"], "Which?")
    assert (only["messageStatus"], bool(re.fullmatch(STAMP, only["questionTimestamp"]))) == (
        "pending_parent_reply",
        True,
    )


def test_an_empty_or_missing_question_is_refused_and_a_blank_one_taken(desk: Desk) -> None:
    before = desk.put(document())
    assert "Question cannot be empty" in refused(desk.ask, "")
    assert "Question cannot be empty" in refused(desk.server.call, "ask_parent", runId=RUN)
    assert desk.file.read_text() == before
    desk.ask(" ")
    assert desk.get()["messages"][0]["questionContent"] == " "


def test_asking_drops_unknown_keys_and_puts_the_others_in_order(desk: Desk) -> None:
    desk.put(
        {
            "ours": 1,
            **document(messages=[{"ours": 2, **message(**REPLIED)}], lastUpdated=TIME),
            "error": "launch failed",
        }
    )
    desk.ask()
    value = desk.get()
    assert list(value) == [*AFTER_ASK, "lastUpdated"]
    assert value["messages"][0] == message(**REPLIED)
    assert list(value["messages"][0])[-1] == "messageStatus"


def test_a_key_that_was_missing_goes_last(desk: Desk) -> None:
    desk.put(document())
    desk.ask()
    assert list(desk.get()) == [*(key for key in AFTER_ASK if key != "messages"), "messages"]


@pytest.mark.parametrize("value", [{}, {"meta": {"runId": RUN, "status": "running"}}])
def test_a_document_without_a_known_key_is_wiped_down_to_messages_and_status(desk: Desk, value: Document) -> None:
    desk.put(value)
    assert desk.text().splitlines()[0] == "Run ID: N/A"
    desk.ask()
    assert list(desk.get()) == ["messages", "status"]


@pytest.mark.parametrize(
    "status",
    ["pending", "running", "completed", "error", "success", "waiting_parent_reply", "parent_replied", "absent"],
)
def test_every_legal_state_can_ask_the_finished_ones_too(desk: Desk, status: str) -> None:
    desk.put(document(status=status))
    desk.ask()
    assert desk.get()["status"] == "waiting_parent_reply"


@pytest.mark.parametrize(
    "status",
    ["cancelled", "failed", "expired", "stalled", "timed_out", "idle", "terminated", "RUNNING", "", None, 5],
)
def test_an_unknown_state_is_shown_and_blocks_asking(desk: Desk, status: object) -> None:
    text = ask_refused(desk, document(status=status))
    assert "does not match schema" in text
    assert "invalid_enum_value" in text
    assert f"Status: {status or 'N/A'}\n" in desk.text()


@pytest.mark.parametrize(
    "changes",
    [
        *({key: None} for key in ("startTime", "command", "agentName", "runId", "lastUpdated", "messages")),
        {"exitCode": "0"},
        {"summary": 5},
        {"messages": {}},
    ],
    ids=str,
)
def test_an_odd_field_blocks_asking_only(desk: Desk, changes: Document) -> None:
    assert "does not match schema" in ask_refused(desk, document(**changes))
    desk.status()
    desk.update("running")


@pytest.mark.parametrize(
    "changes",
    [
        {"questionContent": "absent"},
        {"messageStatus": "absent"},
        {"messageId": "absent"},
        {"questionTimestamp": None},
    ],
    ids=str,
)
def test_a_message_with_a_hole_blocks_asking_and_checking(desk: Desk, changes: Document) -> None:
    assert "does not match schema" in ask_refused(desk, document(messages=[message(**changes)]))
    refused(desk.check)
    if "questionContent" in changes or "questionTimestamp" in changes:
        desk.reply()
        assert desk.get()["messages"][0]["answerContent"] == "That."
    else:
        refused(desk.reply)


@pytest.mark.parametrize("word", ["expired", "EXPIRED", "cancelled"])
def test_a_message_in_an_unknown_state_is_shown_and_blocks_asking(desk: Desk, word: str) -> None:
    assert "does not match schema" in ask_refused(desk, document(messages=[message(messageStatus=word)]))
    shown = desk.check()
    assert shown["messageStatus"] == word
    assert "Not yet answered" in shown["text"]
    assert f"found '{word}'" in refused(desk.reply)
    desk.update("running")


def test_a_message_that_the_parent_acknowledged_is_kept_and_delivered_but_not_in_the_status_text(desk: Desk) -> None:
    expired = message(**{**REPLIED, "messageStatus": "parent_acknowledged", "answerContent": "[expired] Nobody."})
    desk.put(document(messages=[expired]))
    assert "[expired] Nobody." in desk.check()["text"]
    assert "found 'parent_acknowledged'" in refused(desk.reply)
    assert "Which?" not in desk.text()
    desk.ask()
    assert desk.get()["messages"][0] == expired


@pytest.mark.parametrize("tool", ["ask_parent", "reply_subagent", "check_message_status"])
def test_an_unknown_run_cannot_be_read(desk: Desk, tool: str) -> None:
    text = refused(desk.server.call, tool, runId=OTHER, question="Which?", messageId=ONE, answer="That.")
    assert "Could not read meta file" in text
    assert list(desk.folder.iterdir()) == []


@pytest.mark.parametrize("tool", ["check_subagent_status", "update_subagent_status"])
def test_status_and_update_of_an_unknown_run_say_not_found(desk: Desk, tool: str) -> None:
    assert desk.server.call(tool, runId=OTHER, status="success") == {
        "runId": OTHER,
        "status": "not_found",
        "message": "Run ID not found",
        "logDirectory": str(desk.folder),
    }
    assert list(desk.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "Unexpected end of JSON input"),
        ("\ufeff{}", "not valid JSON"),
        ('{"status": ', "not valid JSON"),
    ],
)
def test_a_file_that_is_no_json_is_an_error_everywhere_and_stays(desk: Desk, content: str, part: str) -> None:
    desk.file.write_text(content)
    for call in (desk.ask, desk.reply, desk.check, desk.status, lambda: desk.update("success"), lambda: desk.exit(0)):
        assert part in refused(call)
    assert desk.file.read_text() == content


def test_line_ends_after_the_document_do_no_harm(desk: Desk) -> None:
    desk.file.write_text(json.dumps(document()) + "\n\n")
    desk.ask()
    assert desk.file.read_text().endswith("}")


def test_a_list_has_no_status_and_cannot_ask(desk: Desk) -> None:
    assert "does not match schema" in ask_refused(desk, [])
    assert "Status: N/A" in desk.text()


def test_a_null_gives_the_text_of_a_type_error(desk: Desk) -> None:
    desk.put(None)
    assert "Cannot read properties of null" in refused(desk.status)


def test_a_run_id_in_the_file_that_differs_from_the_name_is_shown(desk: Desk) -> None:
    desk.put(document(runId=OTHER))
    assert f"Run ID: {OTHER}" in desk.text()


@pytest.mark.parametrize(
    "run",
    [
        "c232ab00-9414-11ec-b3c8-9f6bdeced846",
        "919108f7-52d1-4320-9bac-f847db4148a8",
        "1ec9414c-232a-6b00-b3c8-9f6bdeced846",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        "2489e9ad-2ee2-8e00-8ec9-32d5f69181c0",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "919108F7-52D1-4320-9BAC-F847DB4148A8",
        "919108f7-52d1-4320-0bac-f847db4148a8",
    ],
)
def test_every_uuid_is_a_run_id(desk: Desk, run: str) -> None:
    assert desk.server.call("check_subagent_status", runId=run)["status"] == "not_found"


@pytest.mark.parametrize(
    "run",
    [
        "919108f752d143209bacf847db4148a8",
        "{919108f7-52d1-4320-9bac-f847db4148a8}",
        "urn:uuid:919108f7-52d1-4320-9bac-f847db4148a8",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "my-run",
        "../outside",
        "",
    ],
)
def test_what_is_no_uuid_is_refused_by_all_tools_but_reply(desk: Desk, run: str) -> None:
    for tool in (
        "ask_parent",
        "check_message_status",
        "check_subagent_status",
        "update_subagent_status",
        "get_subagent_logs",
    ):
        text = refused(desk.server.call, tool, runId=run, question="Which?", messageId=ONE, status="success")
        assert text == "Run ID must be a valid UUID"
    text = refused(desk.server.call, "reply_subagent", runId=run, messageId=ONE, answer="That.")
    assert "Could not read meta file" in text


def test_reply_follows_a_run_id_out_of_the_log_directory(desk: Desk) -> None:
    outside = desk.folder.parent / "secret.meta.json"
    outside.write_text(json.dumps(document(messages=[message()])))
    desk.server.call("reply_subagent", runId="../secret", messageId=ONE, answer="That.")
    assert json.loads(outside.read_bytes())["messages"][0]["answerContent"] == "That."


def test_a_reply_answers_the_message_and_moves_the_run(desk: Desk) -> None:
    desk.put(document(messages=[message()], status="waiting_parent_reply"))
    done = desk.reply()
    value = desk.get()
    assert done == {
        "success": True,
        "message": "Parent reply recorded and metadata updated.",
        "updatedMetadata": value,
    }
    (only,) = value["messages"]
    assert (value["status"], only["messageStatus"], only["answerContent"]) == (
        "parent_replied",
        "parent_replied",
        "That.",
    )
    assert re.fullmatch(STAMP, only["answerTimestamp"])


@pytest.mark.parametrize("state", [REPLIED, SEEN], ids=["replied", "acknowledged"])
def test_a_second_reply_is_refused_and_the_first_kept(desk: Desk, state: Document) -> None:
    before = desk.put(document(messages=[message(**state)]))
    text = refused(desk.reply, ONE, "No, this.")
    assert "Message status is not 'pending_parent_reply'" in text
    assert f"found '{state['messageStatus']}'" in text
    assert desk.file.read_text() == before


@pytest.mark.parametrize("messages", ["absent", None, [], [message()]], ids=["none", "null", "empty", "other"])
def test_a_reply_to_an_unknown_message_is_refused(desk: Desk, messages: object) -> None:
    before = desk.put(document(messages=messages))
    assert "Message with ID" in refused(desk.reply, TWO)
    assert desk.file.read_text() == before


def test_an_empty_answer_is_stored_and_shown_as_none(desk: Desk) -> None:
    desk.put(document(messages=[message()]))
    desk.reply(ONE, "")
    assert desk.get()["messages"][0]["answerContent"] == ""
    assert desk.get()["status"] == "parent_replied"
    assert "Answer: Not yet answered" in desk.text()


@pytest.mark.parametrize("key", ["answerContent", "answerTimestamp"])
def test_a_null_in_a_pending_answer_stops_asking_and_checking_but_not_the_reply(desk: Desk, key: str) -> None:
    ask_refused(desk, document(messages=[message(**{key: None})]))
    refused(desk.check)
    desk.reply()
    assert desk.check()["answerContent"] == "That."


def test_a_pending_message_is_given_back_and_nothing_changes(desk: Desk) -> None:
    before = desk.put(document(messages=[message()], status="waiting_parent_reply"))
    shown = desk.check()
    assert {key: value for key, value in shown.items() if key != "text"} == message()
    assert desk.file.read_text() == before


def test_an_answer_is_delivered_as_replied_and_kept_as_acknowledged(desk: Desk) -> None:
    desk.put(document(messages=[message(**REPLIED)], status="parent_replied"))
    shown = desk.check()
    assert (shown["messageStatus"], shown["answerContent"]) == ("parent_replied", "That.")
    assert (desk.get()["status"], desk.get()["messages"]) == ("running", [message(**SEEN)])


def test_an_acknowledged_answer_is_delivered_again_and_nothing_changes(desk: Desk) -> None:
    before = desk.put(document(messages=[message(**SEEN)], status="success"))
    shown = desk.check()
    assert (shown["messageStatus"], shown["answerContent"]) == ("acknowledged_by_subagent", "That.")
    assert desk.file.read_text() == before


def test_checking_what_is_not_there_is_an_error(desk: Desk) -> None:
    desk.put(document())
    assert f"No messages found for runId {RUN}" in refused(desk.check)
    desk.put(document(messages=[message()]))
    assert re.search(rf"Message with ID {TWO} not found", refused(desk.check, TWO))
    assert "Message ID cannot be empty" in refused(desk.check, "")


@pytest.mark.parametrize("key", ["answerContent", "answerTimestamp"])
def test_an_answer_with_a_null_is_consumed_and_never_delivered(desk: Desk, key: str) -> None:
    desk.put(document(messages=[message(**{**REPLIED, key: None})], status="parent_replied"))
    refused(desk.check)
    assert desk.get()["messages"][0]["messageStatus"] == "acknowledged_by_subagent"
    assert desk.get()["status"] == "running"


def test_the_status_text_has_seven_lines_and_zero_is_an_exit_code(desk: Desk) -> None:
    desk.put(document(status="success", exitCode=0, endTime=TIME, summary="Done."))
    assert desk.text().splitlines() == [
        f"Run ID: {RUN}",
        "Agent Name: worker",
        "Status: success",
        "Exit Code: 0",
        f"Start Time: {TIME}",
        f"End Time: {TIME}",
        "Summary: Done.",
    ]
    desk.put({})
    assert [line.partition(": ")[2] for line in desk.text().splitlines()] == ["N/A"] * 7


def test_the_status_has_the_document_and_its_places_and_never_acknowledges(desk: Desk) -> None:
    before = desk.put(document(messages=[message(**REPLIED)], status="parent_replied", ours=1))
    shown = desk.status()
    assert shown == {
        **json.loads(before),
        "text": shown["text"],
        "logFile": str(desk.log),
        "logDirectory": str(desk.folder),
    }
    assert desk.file.read_text() == before


@pytest.mark.parametrize("status", ["waiting_parent_reply", "parent_replied"])
def test_a_run_that_converses_shows_an_empty_list_where_it_has_no_messages(desk: Desk, status: str) -> None:
    desk.put(document(status=status))
    assert desk.status()["messages"] == []
    desk.put(document())
    assert "messages" not in desk.status()


def test_notes_tell_a_running_and_a_waiting_run_apart(desk: Desk) -> None:
    desk.put(document())
    assert "30 seconds" in desk.text()
    assert "Last Interaction" not in desk.text()
    desk.put(document(status="waiting_parent_reply"))
    assert "Waiting" in desk.text()


@pytest.mark.parametrize("status", ["running", "parent_replied"])
def test_the_last_answer_is_shown_as_the_last_interaction(desk: Desk, status: str) -> None:
    later = message(**{**REPLIED, "messageId": TWO, "questionContent": "And then?", "answerContent": "Then this."})
    desk.put(document(messages=[message(**SEEN), later], status=status))
    lines = desk.text().splitlines()
    at = lines.index("Last Interaction:")
    assert lines[at + 1 : at + 5] == [
        "Question: And then?",
        f"Asked At: {TIME}",
        "Answer: Then this.",
        f"Answered At: {TIME}",
    ]


def test_of_two_questions_the_text_shows_the_newer_then_the_answer_and_then_no_question_at_all(desk: Desk) -> None:
    desk.put(document())
    older, newer = desk.ask("Older?"), desk.ask("Newer?")
    assert "Newer?" in desk.text()
    assert "Older?" not in desk.text()
    desk.reply(older, "Yes.")
    assert desk.get()["status"] == "parent_replied"
    assert "Yes." in desk.text()
    assert "Newer?" not in desk.text()
    desk.check(older)
    assert desk.get()["status"] == "running"
    assert "Newer?" not in desk.text()
    assert [each["messageStatus"] for each in desk.get()["messages"]] == [
        "acknowledged_by_subagent",
        "pending_parent_reply",
    ]
    assert desk.check(newer)["messageStatus"] == "pending_parent_reply"


def test_a_third_question_turns_a_replied_run_back_into_a_waiting_one(desk: Desk) -> None:
    desk.put(document(messages=[message(**REPLIED)], status="parent_replied"))
    desk.ask()
    assert desk.get()["status"] == "waiting_parent_reply"
    desk.check()
    assert desk.get()["status"] == "running"


def test_an_empty_answer_in_a_pending_message_is_legal_and_counts_as_none(desk: Desk) -> None:
    odd = message(answerContent="", answerTimestamp="")
    desk.put(document(messages=[odd]))
    assert "Not yet answered" in desk.check()["text"]
    desk.ask()
    assert desk.get()["messages"][0] == odd


@pytest.mark.parametrize("status", ["success", "error", "completed", "running"])
def test_an_update_sets_state_summary_and_times_and_writes_to_the_log(desk: Desk, status: str) -> None:
    desk.put(document())
    desk.update(status, summary="So far.")
    value = desk.get()
    assert (value["status"], value["summary"]) == (status, "So far.")
    assert re.fullmatch(STAMP, value["lastUpdated"])
    assert (value["endTime"] is None) == (status == "running")
    first, second = desk.log.read_text().splitlines()
    assert re.fullmatch(rf"\[{STAMP}\] Status updated to: {status}", first)
    assert re.fullmatch(rf"\[{STAMP}\] Summary: So far\.", second)


def test_an_update_without_a_summary_keeps_the_old_one_and_the_old_end(desk: Desk) -> None:
    desk.put(document(status="success", endTime=TIME, summary="Before."))
    desk.update("error")
    assert (desk.get()["status"], desk.get()["summary"], desk.get()["endTime"]) == ("error", "Before.", TIME)
    assert len(desk.log.read_text().splitlines()) == 1


def test_a_finished_run_may_run_again_and_keeps_its_old_end(desk: Desk) -> None:
    desk.put(document(status="success", endTime=TIME, summary="Done."))
    desk.update("running")
    assert (desk.get()["status"], desk.get()["endTime"], desk.get()["summary"]) == ("running", TIME, "Done.")


@pytest.mark.parametrize("status", ["waiting_parent_reply", "parent_replied", "pending", "cancelled", ""])
def test_no_other_state_can_be_reported(desk: Desk, status: str) -> None:
    before = desk.put(document())
    refused(desk.update, status)
    assert desk.file.read_text() == before


def test_reply_check_update_and_exit_keep_unknown_keys(desk: Desk) -> None:
    desk.put(document(messages=[message(ours=2)], ours=1))
    desk.reply()
    desk.check()
    desk.update("running")
    desk.exit(0)
    assert desk.get()["ours"] == 1
    assert desk.get()["messages"][0]["ours"] == 2


def test_logs_are_given_whole_and_an_unknown_run_has_none(desk: Desk) -> None:
    assert desk.server.call("get_subagent_logs", runId=RUN) == {"text": f"No logs found for run ID: {RUN}"}
    desk.log.write_text("one\ntwo\n")
    assert desk.server.call("get_subagent_logs", runId=RUN) == {"text": "one\ntwo\n"}


@pytest.mark.case("T-50")
def test_talk_between_the_answers_is_skipped_and_no_answer_is_lost(desk: Desk) -> None:
    desk.put(document())
    summaries = ["Done.", "", "two\nlines", 'a\n{"id": 0}', "b\n5", 'c\n{"id": true, "ok": true}', "d\n[]"]
    calls = [("update_subagent_status", {"runId": RUN, "status": "running", "summary": text}) for text in summaries]
    reads: list[tuple[str, Document]] = [("check_subagent_status", {"runId": RUN}) for _ in summaries]
    desk.server.send([each for pair in zip(calls, reads, strict=True) for each in pair])
    answers = desk.server.collect()
    assert [each["ok"] for each in answers] == [True] * len(answers)
    assert [each["result"]["summary"] for each in answers[1::2]] == summaries
    assert "\n".join(desk.server.talk).count(f"Status of {RUN} is now running") == len(summaries)
    assert {"lines", '{"id": 0}', "5", '{"id": true, "ok": true}', "[]"} <= set(desk.server.talk)


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_a_document_behind_a_link_is_written_in_place(desk: Desk, relative: bool) -> None:
    target = desk.folder.parent / "there.json"
    target.write_text(json.dumps(document()))
    inode = target.stat().st_ino
    desk.file.symlink_to(os.path.relpath(target, desk.folder) if relative else target)
    first = desk.ask()
    desk.reply(first)
    desk.check(first)
    desk.update("running")
    assert desk.file.is_symlink()
    assert target.stat().st_ino == inode
    assert json.loads(target.read_bytes())["messages"][0]["messageStatus"] == "acknowledged_by_subagent"


def test_a_link_into_nowhere_is_no_run_and_nothing_is_made(desk: Desk) -> None:
    desk.file.symlink_to(desk.folder / "nowhere")
    assert desk.status()["status"] == "not_found"
    assert desk.update("success")["status"] == "not_found"
    assert "Could not read meta file" in refused(desk.ask)
    assert os.listdir(desk.folder) == [desk.file.name]


def test_a_log_and_a_log_directory_may_be_links(folder: Path, node: Node) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    with Server(link) as server:
        desk = Desk(server, folder)
        desk.put(document())
        elsewhere = folder.parent / "elsewhere.log"
        elsewhere.touch()
        desk.log.symlink_to(elsewhere)
        desk.update("success")
        assert "Status updated to: success" in elsewhere.read_text()
        assert server.call("get_subagent_logs", runId=RUN)["text"] == elsewhere.read_text()


def test_another_name_for_the_file_sees_what_is_written(desk: Desk) -> None:
    desk.put(document())
    other = desk.folder / "other.json"
    other.hardlink_to(desk.file)
    desk.ask()
    assert json.loads(other.read_bytes())["status"] == "waiting_parent_reply"


def test_a_question_of_five_megabytes_is_taken(desk: Desk) -> None:
    desk.put(document())
    desk.ask("x" * 5_000_000)
    assert len(desk.get()["messages"][0]["questionContent"]) == 5_000_000


def test_half_a_character_is_stored_as_an_escape(desk: Desk) -> None:
    desk.put(document())
    desk.ask("\ud800")
    assert rb'"\ud800"' in desk.file.read_bytes()


def asks(count: int) -> list[tuple[str, Document]]:
    return [("ask_parent", {"runId": RUN, "question": f"Question {number}?"}) for number in range(count)]


def told(server: Server) -> set[str]:
    return {each["result"]["messageId"] for each in server.collect() if each["ok"]}


def kept(desk: Desk) -> set[str]:
    try:
        return {each["messageId"] for each in desk.get()["messages"]}
    except ValueError:
        return set()


def test_questions_one_after_another_are_all_kept(desk: Desk) -> None:
    desk.put(document())
    desk.server.send(asks(50))
    good = told(desk.server)
    assert len(good) == 50
    assert kept(desk) == good


def test_twenty_questions_at_once_lose_most_of_what_was_acknowledged(folder: Path, node: Node) -> None:
    with Server(folder, parallel=True) as server:
        desk = Desk(server, folder)
        for _ in range(5):
            desk.put(document())
            server.send(asks(20))
            good = told(server)
            if len(good) > 2 * len(kept(desk)):
                return
    pytest.fail("five bursts of twenty questions lost next to nothing")


def test_a_gap_lies_between_requests(folder: Path, node: Node) -> None:
    with Server(folder, gap=20) as server:
        desk = Desk(server, folder)
        desk.put(document())
        server.send(asks(6))
        assert len(told(server)) == 6
    first, *_, last = (each["questionTimestamp"][-7:-1] for each in desk.get()["messages"])
    # Seconds and milliseconds within a minute; the timers may be off by one each.
    assert (float(last) - float(first)) % 60 >= 5 * 0.019


def test_an_unknown_tool_and_a_broken_line_are_answered_with_an_error(desk: Desk) -> None:
    assert refused(desk.server.call, "toString") == "Unknown tool: toString"
    stdin = desk.server.process.stdin
    assert stdin is not None
    stdin.write(b"{\n")
    assert refused(desk.server.call, "nothing") == "Unknown tool: nothing"
    assert any('"ok":false' in line for line in desk.server.talk)


def test_a_call_to_a_server_that_died_fails_and_says_why(desk: Desk) -> None:
    start(desk, "true", cwd=str(desk.folder / "nowhere"))
    with pytest.raises(RuntimeError, match="ENOENT"):
        desk.server.call("check_subagent_status", runId=RUN)


def test_a_server_that_cannot_start_says_so(tmp_path: Path, node: Node) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match="no log directory can be made"):
        Server(tmp_path / "file" / "logs")


def test_closing_does_not_wait_for_ever(folder: Path, node: Node) -> None:
    server = Server(folder)
    start(Desk(server, folder), *python("import signal; signal.pause()"))
    assert server.close(patience=0.1) < 0
    assert server.close() < 0


def test_the_double_is_a_module_too(node: Node) -> None:
    _, script = node("server-double.mjs")
    code = f"import {{ asked }} from {json.dumps(Path(script).as_uri())};console.log(asked('{{}}', 'm', 'q', 't'))"
    argv = [node("")[0], "--input-type=module", "-e", code]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout) == {
        "messages": [
            {
                "messageId": "m",
                "questionContent": "q",
                "questionTimestamp": "t",
                "messageStatus": "pending_parent_reply",
            }
        ],
        "status": "waiting_parent_reply",
    }

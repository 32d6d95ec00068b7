"""A client that was written for the TypeScript server speaks with ours, and neither notices."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.living import Gate
from tests.command import Command
from tests.mcp_server.served import Message, Wire

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def text(result: Message) -> str:
    [content] = result["content"]
    return str(content["text"])


@pytest.mark.case("C1-08", "C1-10", "C1-16", "C1-17", "C1-25", "C1-31", "C1-37", "C1-38", "T-50")
def test_an_exchange_that_was_written_for_the_typescript_server_runs_unchanged(
    runs_dir: Path, tmp_path: Path, tidy: Path, gate: Gate, wire: Wire
) -> None:
    tidy.write_text(f"echo here > {gate.said}\nread word < {gate.word}\necho ended\n")
    started = wire.call("run_subagent_tidy", input="Tidy the notes", cwd=str(tmp_path))
    [run_id] = UUID.findall(text(started))[:1]
    gate.heard()
    shown = text(wire.call("check_subagent_status", runId=run_id)).splitlines()
    assert [line.partition(":")[0] for line in shown[:7]] == [
        "Run ID",
        "Agent Name",
        "Status",
        "Exit Code",
        "Start Time",
        "End Time",
        "Summary",
    ]
    assert (shown[1], shown[2], shown[3], shown[5]) == (
        "Agent Name: tidy",
        "Status: running",
        "Exit Code: N/A",
        "End Time: N/A",
    )

    asked = wire.call("ask_parent", runId=run_id, question="Which folder?")
    assert "check_message_status" in text(asked)
    message_id = next(found for found in UUID.findall(text(asked)) if found != run_id)
    waiting = text(wire.call("check_subagent_status", runId=run_id))
    assert "Status: waiting_parent_reply" in waiting
    assert "Which folder?" in waiting
    assert message_id in waiting
    assert "reply_subagent" in waiting

    replied = wire.call("reply_subagent", runId=run_id, messageId=message_id, answer="The first")
    assert replied["structuredContent"]["updatedMetadata"]["status"] == "parent_replied"
    for word in ("parent_replied", "acknowledged_by_subagent"):
        checked = text(wire.call("check_message_status", runId=run_id, messageId=message_id))
        assert f"Message Status: {word}" in checked
        assert "Answer: The first" in checked
    document = json.loads((runs_dir / run_id / ".meta.json").read_text())
    assert document["status"] == "running"
    assert "Last Interaction" in text(wire.call("check_subagent_status", runId=run_id))

    updated = text(wire.call("update_subagent_status", runId=run_id, status="success", summary="3 notes"))
    assert "success" in updated
    gate.open()
    assert wire.data("wait_agents", agent_ids=[run_id])["woke"] == "done"
    logs = text(wire.call("get_subagent_logs", runId=run_id))
    for line in ("Starting tidy with input: Tidy the notes", "Status updated to: success", "Summary: 3 notes"):
        assert line in logs
    assert wire.hang_up() == 0


@pytest.mark.case("C1-24", "C1-29", "C1-30", "X26")
def test_the_data_of_a_tool_is_what_the_command_line_prints_as_json(cli: Command, wire: Wire) -> None:
    run_id = cli("create", "helper", "Do it", "--name", "notes").out.strip()
    asked = cli("ask", "Which?", "--run", run_id, "--option", "A", "--option", "B").out.strip()
    assert wire.data("check_status", runId="notes", peek=True) == cli("status", "notes", "--peek", "--json").json
    assert wire.data("get_pending_questions")["questions"] == cli("pending", "--json").json
    assert wire.data("check_answer", message_id=asked) == cli("check", asked, "--json").json
    assert wire.data("get_logs", runId=run_id)["lines"] == cli("logs", run_id, "--json").json
    done = wire.data("update_status", runId=run_id, status="success", summary="Done")
    assert done == cli("update", run_id, "success", "--json").json
    cli("reply", run_id, asked, "A")
    refused = cli("reply", run_id, asked, "A", "--json")
    assert wire.refusal("reply_subagent", runId=run_id, messageId=asked, answer="A") == refused.json["error"]


@pytest.mark.case("C1-28", "C1-44", "C1-46", "X33")
def test_an_unknown_run_is_an_answer_and_no_error(runs_dir: Path, wire: Wire) -> None:
    unknown = "01234567-89ab-4cde-8f01-23456789abcd"
    missing = {
        "runId": unknown,
        "status": "not_found",
        "message": "Run ID not found",
        "logDirectory": str(runs_dir),
    }
    runs_dir.mkdir()
    for name in ("check_subagent_status", "check_status"):
        assert wire.data(name, runId=unknown) == missing
    for name in ("update_subagent_status", "update_status"):
        assert wire.data(name, runId=unknown, status="success") == missing
    for name in ("get_subagent_logs", "get_logs"):
        assert text(wire.call(name, runId=unknown)) == f"No logs found for run ID: {unknown}"
    assert list(runs_dir.iterdir()) == []


@pytest.mark.case("C1-11", "C1-18", "C1-19", "C1-39", "C1-41", "C1-56")
def test_what_the_typescript_server_refuses_is_refused(cli: Command, tidy: Path, wire: Wire) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    message_id = wire.data("ask_parent", runId=run_id, question="Which?")["messageId"]
    wire.data("reply_subagent", runId=run_id, messageId=message_id, answer="That")
    before = cli("status", run_id, "--peek", "--json").json
    unknown = "01234567-89ab-4cde-8f01-23456789abcd"
    for tool, arguments, code in (
        ("ask_parent", {"runId": run_id, "question": ""}, "empty_question"),
        ("ask_parent", {"runId": unknown, "question": "Which?"}, "run_not_found"),
        ("reply_subagent", {"runId": run_id, "messageId": unknown, "answer": "That"}, "message_not_found"),
        ("reply_subagent", {"runId": run_id, "messageId": message_id, "answer": "No, this"}, "not_pending"),
        ("check_message_status", {"runId": unknown, "messageId": message_id}, "run_not_found"),
        ("check_message_status", {"runId": run_id, "messageId": unknown}, "message_not_found"),
        ("check_message_status", {"runId": run_id, "messageId": ""}, "invalid_message_id"),
        ("update_subagent_status", {"runId": run_id, "status": "waiting_parent_reply"}, "invalid_arguments"),
        ("run_subagent_tidy", {"input": "", "cwd": "."}, "empty_text"),
        ("run_subagent_tidy", {"input": "Do it", "cwd": ""}, "bad_cwd"),
        ("run_subagent_nobody", {"input": "Do it", "cwd": "."}, "unknown_agent"),
    ):
        assert wire.refusal(tool, **arguments)["code"] == code, (tool, arguments)
    assert cli("status", run_id, "--peek", "--json").json == before

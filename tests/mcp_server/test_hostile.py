"""Whatever a client sends, it gets a clear answer, and the server lives on."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.command import PATIENCE, PROGRAM, Command
from tests.mcp_server.served import HELLO, Wire, environment

HUGE = "x" * 5_000_000
LOST = "../../../outside/secret"


@pytest.mark.case("C1-22", "T-42")
def test_hostile_arguments_get_a_clear_error_and_change_nothing(
    cli: Command, runs_dir: Path, tmp_path: Path, tidy: Path, wire: Wire
) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    outside = tmp_path / "outside" / "secret.meta.json"
    outside.parent.mkdir()
    outside.write_text("{}")
    before = sorted(map(str, runs_dir.rglob("*")))
    for tool, arguments, code in (
        ("check_subagent_status", {"runId": LOST}, "invalid_run_id"),
        ("get_subagent_logs", {"runId": "/etc/passwd"}, "invalid_run_id"),
        ("update_subagent_status", {"runId": "..", "status": "success"}, "invalid_run_id"),
        ("reply_subagent", {"runId": LOST, "messageId": LOST, "answer": "x"}, "invalid_run_id"),
        ("check_answer", {"message_id": LOST}, "invalid_message_id"),
        ("check_message_status", {"runId": run_id, "messageId": "\0"}, "message_not_found"),
        ("show_message", {"message_id": LOST}, "invalid_message_id"),
        ("send_message", {"agent_id": LOST, "text": "x"}, "invalid_run_id"),
        ("grant_access", {"target": LOST, "grantee": "x", "capability": "read_transcript"}, "invalid_run_id"),
        ("wait_agents", {"agent_ids": [LOST]}, "invalid_run_id"),
        ("cancel_agents", {"agent_ids": ["\n"]}, "invalid_run_id"),
        ("cancel_agents", {}, "usage"),
        ("wait_agents", {"agent_ids": [run_id], "cursor": "'; drop table"}, "invalid_cursor"),
        ("ask_parent", {"runId": run_id, "question": HUGE}, "too_long"),
        ("ask_parent", {"runId": HUGE, "question": "x"}, "invalid_run_id"),
        ("run_subagent_tidy", {"input": HUGE}, "too_long"),
        ("run_subagent_tidy", {"input": "x", "cwd": "/nowhere"}, "bad_cwd"),
        ("run_subagent_../tidy", {"input": "x"}, "unknown_agent"),
        ("upsert_message", {"schema_type": "plaintext", "content": {"text": HUGE}}, "too_long"),
        ("upsert_message", {"schema_type": HUGE, "content": {}}, "invalid_arguments"),
        ("ask_parent", {"runId": run_id, "question": 5}, "invalid_arguments"),
        ("ask_parent", {"runId": [run_id], "question": "x"}, "invalid_arguments"),
        ("ask_parent", {"runId": run_id, "question": "x", "options": "ab"}, "invalid_arguments"),
        ("ask_parent", {"runId": run_id, "question": "x", HUGE: 1}, "invalid_arguments"),
        ("ask_parent", {"runId": run_id, "question": "x", "key": " "}, "invalid_arguments"),
        ("check_status", {"runId": run_id, "run_id": LOST}, "invalid_arguments"),
        ("wait_agents", {"agent_ids": [run_id], "count": True}, "invalid_arguments"),
        ("wait_agents", {"agent_ids": [run_id], "count": 0}, "invalid_arguments"),
        ("wait_agents", {"agent_ids": [run_id], "timeout": "soon"}, "invalid_input"),
        ("wait_agents", {"agent_ids": [run_id], "timeout": -1}, "invalid_input"),
        ("wait_agents", {"agent_ids": [run_id], "timeout": False}, "invalid_arguments"),
        ("spawn_agents", {"tasks": [[]]}, "invalid_arguments"),
        ("spawn_agents", {"tasks": [{"task": "x", "cwd": 5}]}, "invalid_tasks"),
        ("dispatch_subagent", {"mode": "ad_hoc", "instructions": "é"}, "invalid_dispatch"),
    ):
        found = wire.refusal(tool, **arguments)
        assert (found["code"], tool) == (code, tool)
        assert len(json.dumps(found)) < 2_000
    assert sorted(map(str, runs_dir.rglob("*"))) == before
    assert outside.read_text() == "{}"
    assert wire.hang_up() == 0


def test_broken_messages_are_answered_and_the_server_lives(wire: Wire) -> None:
    for line, id_, code in (
        (b"{", None, -32700),
        (b"not json at all", None, -32700),
        (b"\xff\xfe\x00", None, -32700),
        (b'{"jsonrpc": "2.0", "id": "half', None, -32700),
        (b"[" * 100_000, None, -32700),
        (b"[]", None, -32600),
        (b"null", None, -32600),
        (b"5", None, -32600),
        (b'{"id": 71}', 71, -32600),
        (b'{"jsonrpc": "1.0", "id": 72, "method": "ping"}', 72, -32600),
        (b'{"jsonrpc": "2.0", "id": 73, "method": "ping", "params": []}', 73, -32600),
        (b'{"jsonrpc": "2.0", "id": 74, "method": "nothing/at/all"}', 74, -32601),
        (b'{"jsonrpc": "2.0", "id": 75, "method": "tools/call"}', 75, -32602),
        (b'{"jsonrpc": "2.0", "id": 76, "method": "tools/call", "params": {"name": 5}}', 76, -32602),
        (
            b'{"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": {"name": "ask_parent", "arguments": [1]}}',
            77,
            -32602,
        ),
        (b'{"jsonrpc": "2.0", "id": 78, "method": "tools/call", "params": {"name": "rm -rf"}}', 78, -32602),
        (b'{"jsonrpc": "2.0", "id": 79, "method": "resources/read", "params": {"uri": "file:///etc/x"}}', 79, -32602),
    ):
        wire.write_line(line)
        assert wire.take(id_)["error"]["code"] == code, line[:80]
    assert wire.take(wire.ask("ping")) == {"jsonrpc": "2.0", "id": wire._id, "result": {}}
    assert wire.hang_up() == 0


@pytest.mark.case("C3-29")
def test_a_worker_reaches_no_run_but_its_own(cli: Command, runs_dir: Path) -> None:
    own = cli("create", "helper", "Do it", "--json").json
    other = cli("create", "helper", "Do that", "--json").json["runId"]
    asked = cli("ask", "Which?", "--run", other).out.strip()
    note = cli("message", "put", "--text", "secret").out.strip()
    with Wire(runs_dir, own["env"]) as wire:
        wire.greet()
        assert wire.data("check_status", runId=other)["status"] == "not_found"
        assert wire.data("get_logs", runId=other)["lines"] == []
        assert wire.data("get_pending_questions")["questions"] == []
        assert wire.data("check_answer", message_id=asked)["state"] == "NOT_FOUND"
        for tool, arguments in (
            ("ask_parent", {"runId": other, "question": "x"}),
            ("reply_subagent", {"runId": other, "answer": "x"}),
            ("reply_subagent", {"messageId": asked, "answer": "x"}),
            ("cancel_agents", {"agent_ids": [other]}),
            ("wait_agents", {"agent_ids": [other]}),
            ("inbox", {"runId": other}),
            ("show_message", {"message_id": note}),
            ("send_message", {"agent_id": other, "message_id": note}),
        ):
            assert wire.refusal(tool, **arguments)["code"] in (
                "not_found",
                "run_not_found",
                "message_not_found",
                "denied",
                "not_granted",
            ), tool
        assert wire.hang_up() == 0


def test_a_token_that_dies_while_the_server_lives_is_denied_from_then_on(cli: Command, runs_dir: Path) -> None:
    own = cli("create", "helper", "Do it", "--json").json
    with Wire(runs_dir, own["env"]) as wire:
        wire.greet()
        assert wire.data("check_status")["status"] == "pending"
        spec = runs_dir / own["runId"] / "run.json"
        spec.write_text(spec.read_text().replace(json.loads(spec.read_text())["tokenHash"], "0" * 64))
        for tool, arguments in (
            ("check_status", {}),
            ("ask_parent", {"question": "x"}),
            ("submit_result", {"result": "x"}),
        ):
            assert wire.refusal(tool, **arguments)["code"] == "denied"
        assert "error" in wire.take(wire.ask("tools/list"))
        assert wire.hang_up() == 0


def test_a_broken_file_of_agents_takes_no_other_tool_away(tidy: Path, wire: Wire) -> None:
    tidy.with_name("agents.toml").write_text("[agents.tidy")
    names = [tool["name"] for tool in wire.take(wire.ask("tools/list"))["result"]["tools"]]
    assert "ask_parent" in names
    assert not [name for name in names if name.startswith("run_subagent_")]
    found = wire.refusal("run_subagent_tidy", input="Do it")
    assert found["code"] == "invalid_agent_file"
    assert "agents.toml" in found["message"]


def test_a_client_that_goes_in_the_middle_of_an_answer_is_not_complained_of(runs_dir: Path) -> None:
    reading, writing = os.pipe()
    server = subprocess.Popen(
        [*PROGRAM, "mcp"],
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(runs_dir),
        start_new_session=True,
    )
    os.close(writing)
    os.close(reading)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    _, complaints = server.communicate(json.dumps(hello).encode() + b"\n", timeout=PATIENCE)
    assert (server.returncode, complaints) == (0, b"")


def test_half_characters_in_a_file_of_others_do_not_end_the_stream(runs_dir: Path) -> None:
    run_id = "01234567-89ab-4cde-8f01-23456789abcd"
    document = {"runId": run_id, "agentName": "x\ud800", "status": "running", "summary": "\ud83d", "startTime": None}
    folder = runs_dir.with_name("foreign")
    folder.mkdir()
    (folder / f"{run_id}.meta.json").write_text(json.dumps(document))
    with Wire(folder) as foreign:
        foreign.greet()
        assert "\\ud83d" in foreign.data("check_status", runId=run_id)["summary"]
        assert foreign.hang_up() == 0

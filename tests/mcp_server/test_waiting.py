"""Waiting blocks nobody, tells how far it is, and ends when nobody wants to know any more."""

import signal
from pathlib import Path

import pytest

from tests.cli.living import Gate, eventually
from tests.command import PATIENCE, Command
from tests.mcp_server.served import Wire, connected, driven


def test_a_long_wait_reports_and_does_not_block_other_calls(
    cli: Command, runs_dir: Path, tidy: Path, gate: Gate, wire: Wire
) -> None:
    tidy.write_text(f"read word < {gate.word}\nsubagent submit result $word\n")
    run_id = wire.data("run_subagent_tidy", input="Wait")["runId"]
    waits = [wire.start("wait_agents", agent_ids=[run_id], timeout="5m") for _ in range(60)]
    for _ in range(20):
        assert wire.data("check_status", runId=run_id)["status"] == "running"
    while not any(notice["params"]["progressToken"] == waits[0] for notice in wire.notices):
        wire.data("check_status", runId=run_id)
    report = next(notice["params"] for notice in wire.notices if notice["params"]["progressToken"] == waits[0])
    assert report["progress"] > 0
    assert report["message"] == "0 of 1 have ended"
    gate.open("through")
    for wait in waits:
        woke = wire.take(wait)["result"]["structuredContent"]
        assert woke["woke"] == "done"
        assert woke["sub_agent_results"][0]["outcome"] == {"success": {"result": "through"}}
    assert wire.hang_up() == 0


def test_the_official_client_hears_how_far_a_wait_is(cli: Command, runs_dir: Path) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def script() -> None:
        async with connected(runs_dir) as desk:
            arguments = {"agent_ids": [run_id], "timeout": "700ms"}
            result = await desk.client.call_tool("wait_agents", arguments, progress_callback=hear)
            assert result.structured_content["woke"] == "timeout"

    driven(script)
    assert heard == ["0 of 1 have ended"]


@pytest.mark.case("X32")
def test_a_wait_ends_when_its_time_is_up_and_cancels_nothing(cli: Command, wire: Wire) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    woke = wire.data("wait_agents", agent_ids=[run_id], timeout="50ms")
    assert (woke["woke"], woke["cursor"]) == ("timeout", "-")
    assert wire.data("wait_agents", agent_ids=[run_id], timeout=0)["woke"] == "timeout"
    assert cli("status", run_id, "--json").json["status"] == "pending"


def test_a_known_question_does_not_wake_again_and_a_new_one_does(cli: Command, wire: Wire) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    cli("ask", "One?", "--run", run_id)
    woke = wire.data("wait_agents", agent_ids=[run_id])
    assert [item["question"] for item in woke["questions"]] == ["One?"]
    again = wire.start("wait_agents", agent_ids=[run_id], cursor=woke["cursor"])
    cli("ask", "Two?", "--run", run_id)
    woke = wire.take(again)["result"]["structuredContent"]
    assert [item["question"] for item in woke["questions"]] == ["One?", "Two?"]


@pytest.mark.case("C0-20", "C0-23")
def test_a_worker_can_wait_for_its_answer(cli: Command, runs_dir: Path) -> None:
    made = cli("create", "helper", "Do it", "--json").json
    with Wire(runs_dir, made["env"]) as wire:
        wire.greet()
        asked = wire.data("ask_parent", question="Which?")["message_id"]
        stalled = wire.refusal("check_answer", message_id=asked, timeout="50ms")
        assert (stalled["code"], stalled["message"]) == ("stalled", "Stalled: Parent No-Response")
        waiting = wire.start("check_answer", message_id=asked, timeout=60)
        cli("reply", asked, "That")
        assert wire.take(waiting)["result"]["structuredContent"]["answer"] == "That"


def test_a_wait_that_is_called_off_ends_and_cancels_no_run(cli: Command, wire: Wire) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    waits = [wire.start("wait_agents", agent_ids=[run_id], timeout="5m") for _ in range(3)]
    wire.data("check_status", runId=run_id)
    wire.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waits[0]}})
    wire.data("check_status", runId=run_id)
    # The others end with the client.
    assert wire.hang_up() == 0
    assert cli("status", run_id, "--json").json["status"] == "pending"


def test_a_server_that_is_told_to_end_does_not_wait_for_its_client(cli: Command, wire: Wire) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    wire.start("wait_agents", agent_ids=[run_id], timeout="5m")
    wire.data("check_status", runId=run_id)
    wire.process.send_signal(signal.SIGTERM)
    assert wire.process.wait(PATIENCE) == 128 + signal.SIGTERM


@pytest.mark.case("C4-23")
@pytest.mark.parametrize("way", ["called off", "hung up", "told to end"])
def test_a_dispatch_that_is_called_off_ends_its_child_and_leaves_nothing(
    cli: Command, runs_dir: Path, tidy: Path, gate: Gate, wire: Wire, way: str
) -> None:
    tidy.write_text(f"echo here > {gate.said}\nsleep 600\n")
    call = wire.start("dispatch_subagent", mode="ad_hoc", instructions="Wait")
    gate.heard()
    if way == "called off":
        wire.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
    elif way == "hung up":
        assert wire.hang_up() == 0
    else:
        wire.process.send_signal(signal.SIGTERM)
        assert wire.process.wait(PATIENCE) == 128 + signal.SIGTERM
    eventually(lambda: cli("list", "--all", "--json").json == [])


def test_a_dispatched_child_that_asks_is_answered_meanwhile(runs_dir: Path, tidy: Path, wire: Wire) -> None:
    runs_dir.mkdir()
    tidy.write_text('subagent ask "Which?" --wait > answer\nsubagent submit result "took $(cat answer)"\n')
    call = wire.start("dispatch_subagent", mode="ad_hoc", instructions="Ask")
    while not (waiting := wire.data("get_pending_questions")["questions"]):
        pass
    wire.data("reply_subagent", messageId=waiting[0]["message_id"], answer="That")
    assert wire.take(call)["result"]["structuredContent"]["value"]["message_summary"] == "took That"

"""Many calls at once, through one server and through many: nothing is lost."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.command import Command
from tests.mcp_server.served import Wire

MANY = 20


@pytest.mark.case("C0-34", "C1-14")
def test_twenty_parallel_asks_through_one_server_lose_nothing(cli: Command, wire: Wire) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    calls = [wire.start("ask_parent", runId=run_id, question=f"Question {number}?") for number in range(MANY)]
    ids = {wire.take(call)["result"]["structuredContent"]["message_id"] for call in calls}
    waiting = wire.data("get_pending_questions")["questions"]
    assert {item["message_id"] for item in waiting} == ids
    assert {item["question"] for item in waiting} == {f"Question {number}?" for number in range(MANY)}
    replies = [wire.start("reply_subagent", runId=run_id, messageId=id_, answer=f"To {id_}") for id_ in ids]
    assert all(wire.take(call)["result"]["structuredContent"]["success"] for call in replies)
    document = cli("status", run_id, "--peek", "--json").json
    assert {message["messageId"]: message["answerContent"] for message in document["messages"]} == {
        id_: f"To {id_}" for id_ in ids
    }


@pytest.mark.case("C0-34", "C1-14")
def test_twenty_parallel_asks_through_twenty_servers_lose_nothing(cli: Command, runs_dir: Path) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    with ExitStack() as servers:
        wires = [servers.enter_context(Wire(runs_dir)) for _ in range(MANY)]
        for wire in wires:
            wire.greet()
        calls = [wire.start("ask_parent", runId=run_id, question="Which?") for wire in wires]
        ids = {
            wire.take(call)["result"]["structuredContent"]["message_id"]
            for wire, call in zip(wires, calls, strict=True)
        }
        assert all(wire.hang_up() == 0 for wire in wires)
    assert {item["message_id"] for item in cli("pending", "--json").json} == ids
    assert len(ids) == MANY

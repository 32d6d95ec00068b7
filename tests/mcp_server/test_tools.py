"""The official client, over a real server, drives every tool."""

import json
from pathlib import Path

import pytest

from subagent_cli.mcp_server import catalogue
from tests.command import Command
from tests.mcp_server.served import connected, driven, said

_CHECK_SCHEMA = pytest.importorskip(
    "jsonschema", reason="needs jsonschema to judge schemas"
).Draft202012Validator.check_schema
TIDY = "run_subagent_tidy"


@pytest.mark.case("C1-58", "C2-14", "C2-31", "C4-28")
def test_the_official_client_drives_every_tool(cli: Command, runs_dir: Path, tidy: Path) -> None:
    made = cli("create", "helper", "Do it", "--json").json
    tidy.write_text('subagent ask "Which?" --wait > answer\nsubagent submit result "took $(cat answer)"\n')
    called: set[str] = set()

    async def as_the_operator() -> None:
        async with connected(runs_dir) as desk:
            run_id = (await desk.data(TIDY, input="Tidy", cwd=".", name="first"))["runId"]
            woke = await desk.data("wait_agents", agent_ids=["first"])
            assert (woke["woke"], len(woke["questions"])) == ("question", 1)
            asked = woke["questions"][0]["message_id"]
            for name in ("check_subagent_status", "check_status"):
                assert f"Run ID: {run_id}\nAgent Name: tidy\nStatus: waiting" in await desk.text(name, runId=run_id)
            assert (await desk.data("get_pending_questions"))["questions"][0]["message_id"] == asked
            assert "Not yet answered" in await desk.text("check_message_status", runId=run_id, messageId=asked)
            assert (await desk.data("reply_subagent", runId=run_id, messageId=asked, answer="This"))["success"] is True
            woke = await desk.data("wait_agents", agent_ids=[run_id], cursor=woke["cursor"])
            assert woke["woke"] == "done"
            assert woke["sub_agent_results"] == [
                {"agent_id": run_id, "task": "Tidy", "outcome": {"success": {"result": "took This"}}}
            ]
            for name in ("get_subagent_logs", "get_logs"):
                assert "Process exited with code 0" in await desk.text(name, runId=run_id)
            for name in ("update_subagent_status", "update_status"):
                updated = await desk.data(name, runId=made["runId"], status="running", summary="on it")
                assert updated["summary"] == "on it"
            spawned = await desk.data("spawn_agents", tasks=[{"task": "One"}, {"task": "Two"}])
            assert len(spawned["agent_ids"]) == 2
            done = await desk.data("cancel_agents", group_id=spawned["group_id"], grace=0)
            assert set(done["cancelled"]) == set(spawned["agent_ids"])
            tidy.write_text('subagent submit result "summed up" --artifact notes.md\n')
            dispatched = await desk.data("dispatch_subagent", mode="ad_hoc", instructions="Sum up")
            assert (dispatched["success"], dispatched["value"]["artifacts"]) == (True, ["notes.md"])
            put = await desk.data("upsert_message", schema_type="plaintext", content={"text": "Hello"})
            sent = await desk.data("send_message", agent_id=made["runId"], message_id=put["message_id"])
            assert sent["status"] == "delivered"
            assert (await desk.data("show_message", message_id=put["message_id"]))["content"] == {"text": "Hello"}
            assert len((await desk.data("list_messages"))["messages"]) == 1
            capability = {"capability": "read_transcript"}
            granted = await desk.data(
                "grant_access", target_agent_id=run_id, grantee_agent_id=made["runId"], **capability
            )
            assert granted["success"] is True
            called.update(desk.called)

    async def as_a_worker() -> None:
        async with connected(runs_dir, made["env"]) as desk:
            message_id = (await desk.data("ask_parent", question="Which?"))["message_id"]
            assert (await desk.data("check_answer", message_id=message_id))["answer"] is None
            [came] = (await desk.data("inbox", unreplied=True))["messages"]
            assert came["wants_reply"] is True
            assert (await desk.data("submit_result", result="Done"))["result"] == "Done"
            assert await desk.code("submit_error", error="Not done") == "run_finished"
            called.update(desk.called)

    driven(as_the_operator)
    driven(as_a_worker)
    assert called == {TIDY} | {tool.name for tool in catalogue.TOOLS}


@pytest.mark.case("C2-12", "C4-38", "X13")
def test_an_operator_is_offered_the_tools_of_a_parent_and_each_says_what_it_does(runs_dir: Path, tidy: Path) -> None:
    async def script() -> None:
        async with connected(runs_dir) as desk:
            tools = {tool.name: tool for tool in (await desk.client.list_tools()).tools}
            assert set(tools) == {TIDY} | {tool.name for tool in catalogue.TOOLS if tool.offered != "workers"}
            for tool in tools.values():
                assert tool.description
                assert tool.output_schema
                assert tool.annotations
                hints = tool.annotations.model_dump(exclude={"title"})
                assert all(isinstance(hint, bool) for hint in hints.values()), hints
                # Some models take no argument that may be one thing or another.
                assert all(isinstance(argument["type"], str) for argument in tool.input_schema["properties"].values())
                for schema in (tool.input_schema, tool.output_schema):
                    _CHECK_SCHEMA(schema)
            assert [name for name in tools if "dispatch" in name] == ["dispatch_subagent"]
            for word in ("Offload", "tools", "specific", "artifact"):
                assert word in (tools["dispatch_subagent"].description or "")
            looks = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
            assert {"get_logs", "get_pending_questions", "wait_agents", "inbox", "show_message"} <= looks
            assert looks.isdisjoint({"ask_parent", "reply_subagent", "check_status", "cancel_agents", TIDY})
            # Called all the same, what is not offered is refused by whoever would do it.
            assert await desk.code("submit_result", result="Done") == "no_identity"
            assert await desk.code("run_subagent_nobody", input="Do it") == "unknown_agent"

    driven(script)


@pytest.mark.case("C2-11", "X12", "X13")
def test_a_worker_is_offered_submit_and_not_what_starts_agents(cli: Command, runs_dir: Path, tidy: Path) -> None:
    worker = cli("create", "helper", "Do it", "--json").json["env"]

    async def script() -> None:
        async with connected(runs_dir, worker) as desk:
            starting = {tool.name for tool in catalogue.TOOLS if tool.offered == "parents"}
            assert set(await desk.names()) == {tool.name for tool in catalogue.TOOLS} - starting
            assert await desk.code(TIDY, input="Do it") == "depth_exceeded"
            assert await desk.code("spawn_agents", tasks=[{"task": "Do it"}]) == "depth_exceeded"
            assert await desk.code("dispatch_subagent", mode="ad_hoc", instructions="Do it") == "depth_exceeded"

    driven(script)


def test_a_worker_whose_tree_may_go_deeper_is_offered_both(cli: Command, runs_dir: Path, tidy: Path) -> None:
    worker = cli("create", "helper", "Do it", "--json", env={"SUBAGENT_MAX_DEPTH": "2"}).json["env"]

    async def script() -> None:
        async with connected(runs_dir, worker) as desk:
            assert {TIDY, "spawn_agents", "dispatch_subagent", "submit_result"} <= set(await desk.names())
            child = (await desk.data(TIDY, input="Do it"))["runId"]
            assert (await desk.data("wait_agents"))["runs"][0]["runId"] == child

    driven(script)


@pytest.mark.case("C3-31")
def test_the_schemas_of_messages_are_a_resource(runs_dir: Path) -> None:
    async def script() -> None:
        async with connected(runs_dir) as desk:
            [resource] = (await desk.client.list_resources()).resources
            assert str(resource.uri) == "resource://messages/schemas"
            [content] = (await desk.client.read_resource("resource://messages/schemas")).contents
            catalogue = json.loads(content.model_dump()["text"])
            assert set(catalogue) == {"plaintext", "structured_critique", "structured_grade"}
            for entry in catalogue.values():
                assert entry["description"]
                _CHECK_SCHEMA(entry["json_schema"])

    driven(script)


@pytest.mark.case("C0-02", "C0-05", "C0-06", "C0-07", "C0-12", "C0-14", "C0-15", "C0-16")
def test_the_bus_of_questions_is_served_as_it_was_designed(cli: Command, runs_dir: Path) -> None:
    made = cli("create", "helper", "Do it", "--json").json
    run_id = made["runId"]

    async def script() -> None:
        async with connected(runs_dir) as parent, connected(runs_dir, made["env"]) as worker:
            assert await parent.code("ask_parent", question="Who am I?") == "no_run"
            assert await parent.code("reply_subagent", subagent_id=run_id, message="Too soon") == "no_pending_question"
            message_id = (await worker.data("ask_parent", question="Which?"))["message_id"]
            for given in ({}, {"run_id": run_id}):
                [waiting] = (await parent.data("get_pending_questions", **given))["questions"]
                assert (waiting["message_id"], waiting["question"]) == (message_id, "Which?")
                assert waiting["timestamp"]
            assert (await parent.data("get_pending_questions", run_id="nobody"))["questions"] == []
            assert (await worker.data("check_answer", message_id=message_id))["state"] == "PENDING"
            assert (await parent.data("reply_subagent", subagent_id=run_id, message="That"))["success"] is True
            answered = await worker.result("check_answer", message_id=message_id)
            assert (said(answered), answered.structured_content["answer"]) == ("That", "That")
            assert (await worker.data("check_answer", message_id=message_id))["state"] == "RETRIEVED"
            unknown = await worker.data("check_answer", message_id="0" * 8)
            assert (unknown["answer"], unknown["state"]) == (None, "NOT_FOUND")

    driven(script)


@pytest.mark.case("C3-12", "C3-13", "C3-21", "C3-33", "C3-34")
def test_messages_and_grants_are_served_as_they_were_designed(cli: Command, runs_dir: Path) -> None:
    critic, grader = (cli("create", name, "Do it", "--json").json for name in ("critic", "grader"))
    to_critic = {"target_agent_id": critic["runId"], "grantee_agent_id": grader["runId"]}

    async def script() -> None:
        async with connected(runs_dir) as operator, connected(runs_dir, grader["env"]) as agent:
            critique = {"issues": [{"line": 3}], "notes_md": "short"}
            put = await agent.data("upsert_message", schema_type="structured_critique", content=critique)
            send = {"agent_id": critic["runId"], "message_id": put["message_id"]}
            assert await agent.code("send_message", **send) == "not_granted"
            assert await agent.code("grant_access", **to_critic, capability="send_messages") == "not_granted"
            for _ in range(2):
                granted = await operator.data("grant_access", **to_critic, capability="send_messages")
                assert granted["success"] is True
            assert (await agent.data("send_message", **send))["status"] == "delivered"
            assert len(json.loads(cli("grants", "--json").raw)) == 1
            bad = {"schema_type": "structured_critique", "content": {"issues": "none"}}
            assert await agent.code("upsert_message", **bad) == "invalid_content"

    driven(script)


@pytest.mark.case("C2-15", "C2-01", "C2-03")
def test_a_fan_out_is_served_as_it_was_designed(runs_dir: Path, tidy: Path) -> None:
    tidy.write_text('subagent submit error "no disk"\n')

    async def script() -> None:
        async with connected(runs_dir) as parent:
            assert await parent.code("spawn_agents", tasks=[]) == "invalid_tasks"
            assert await parent.code("spawn_agents") == "invalid_arguments"
            spawned = await parent.result("spawn_agents", tasks=[{"task": "One", "cwd": "."}, {"task": "Two"}])
            ids = spawned.structured_content["agent_ids"]
            assert all(run_id in said(spawned) for run_id in ids)
            assert "Spawning 2 sub-agents" in said(spawned)
            woke = await parent.data("wait_agents", group_id=spawned.structured_content["group_id"])
            failure = {"failure": {"error": "no disk", "error_kind": "sub_agent_error"}}
            assert [(item["agent_id"], item["outcome"]) for item in woke["sub_agent_results"]] == [
                (run_id, failure) for run_id in ids
            ]

    driven(script)

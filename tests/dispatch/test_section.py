"""What a prompt offers of dispatching: one page, one tool, and a schema that promises no more than is kept."""

import json
from typing import Any

import pytest

from subagent_cli.contracts.dispatch import DispatchRequest
from subagent_cli.dispatch import (
    DispatchSubagent,
    DispatchSubagentResult,
    EventBus,
    Session,
    SubagentToolsSection,
    Tool,
    ToolInvoked,
    ToolResult,
    ToolValidationError,
)
from tests.dispatch.notes import AddNote, Note, a_session

ARGUMENTS: dict[str, Any] = {"mode": "ad_hoc", "instructions": " Review the docs "}


def runner(session: Session, bus: EventBus, request: DispatchSubagent) -> DispatchSubagentResult:
    session.apply(AddNote("from the child"))
    bus.publish(ToolInvoked("read"))
    return DispatchSubagentResult(f"Done: {request.instructions}")


@pytest.fixture
def parent() -> Session:
    return a_session()


@pytest.fixture
def tool(parent: Session) -> Tool:
    [only] = SubagentToolsSection(parent, runner).tools()
    return only


@pytest.mark.case("C4-38")
def test_there_is_exactly_one_tool(tool: Tool) -> None:
    assert tool.name == "dispatch_subagent"
    assert tool.description.endswith(".")
    json.dumps(tool.parameters)


@pytest.mark.case("C4-38")
def test_the_guidance_says_when_to_offload_what_is_inherited_and_what_to_write(parent: Session) -> None:
    text = SubagentToolsSection(parent, runner).render()
    said = " ".join(text.split())
    for words in (
        "`dispatch_subagent`",
        "deep research",
        "large drafting",
        "steps of the plan",
        "inherits every tool",
        "Keep `instructions` specific",
        "List in `expected_artifacts`",
        "at most 2000 characters",
        "`plan_step_id`",
    ):
        assert words in said
    assert text.startswith("## ")
    assert text.isascii()
    assert len(text) < 1200


@pytest.mark.case("C4-28", "C4-31")
def test_the_tool_takes_what_a_model_gives_and_dispatches_it(tool: Tool, parent: Session) -> None:
    value = DispatchSubagentResult("Done: Review the docs", (), ("read",))
    assert tool.handler(ARGUMENTS) == ToolResult("Done: Review the docs", value, success=True)
    assert parent.select(Note) == (Note("from the parent"),)


@pytest.mark.case("C4-17")
def test_the_child_starts_with_what_the_parent_has_at_the_time_of_the_call(parent: Session) -> None:
    seen: list[tuple[Note, ...]] = []

    def look(session: Session, _bus: EventBus, _request: DispatchSubagent) -> DispatchSubagentResult:
        seen.append(session.select(Note))
        return DispatchSubagentResult("Looked.")

    [tool] = SubagentToolsSection(parent, look).tools()
    parent.apply(AddNote("after the tool was made"))
    tool.handler(ARGUMENTS)
    assert seen == [(Note("from the parent"), Note("after the tool was made"))]


@pytest.mark.case("C4-14", "C4-16")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"instructions": ""}, "instructions"),
        ({"instructions": None}, "instructions"),
        ({"mode": "plan_step"}, "plan_step_id"),
        ({"expected_artifacts": "report.md"}, "expected_artifacts"),
        ({"snapshot": {}}, "snapshot"),
        ({"serializer": "json"}, "serializer"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_by_their_field(
    tool: Tool, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(ToolValidationError) as caught:
        tool.handler({**ARGUMENTS, **changes})
    assert caught.value.field == field


@pytest.mark.parametrize("arguments", [None, "{}", [], 5])
def test_arguments_that_are_no_table_are_refused(tool: Tool, arguments: Any) -> None:
    with pytest.raises(ToolValidationError):
        tool.handler(arguments)


def plain(schema: Any) -> Any:
    """A schema without its words, and with its choices spelled in one way."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:
        return {"type": [choice["type"] for choice in schema["anyOf"]]}
    return {
        key: {name: plain(part) for name, part in value.items()} if key == "properties" else plain(value)
        for key, value in schema.items()
        if key not in ("title", "description", "default")
    }


@pytest.mark.case("C4-01", "C4-38")
def test_the_tools_parameters_are_those_of_the_published_request(tool: Tool) -> None:
    published = plain(DispatchRequest.model_json_schema())
    # The condition is told in words, since many models take no schema with one.
    published.pop("if")
    published.pop("then")
    assert plain(tool.parameters) == published
    assert "required when mode is plan_step" in tool.parameters["properties"]["plan_step_id"]["description"]


def test_a_caller_that_changes_the_parameters_changes_its_own(parent: Session) -> None:
    section = SubagentToolsSection(parent, runner)
    section.tools()[0].parameters["properties"].clear()
    assert section.tools()[0].parameters["properties"]

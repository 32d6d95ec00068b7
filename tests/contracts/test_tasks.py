"""Tasks as they come from a file: what is taken, and that whatever is misspelled is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from subagent_cli.contracts.tasks import Task, Tasks
from subagent_cli.core.errors import InvalidInput
from subagent_cli.services.launches import Request
from subagent_cli.services.spawns import requests_from
from subagent_cli.services.starts import Start

COMMON = Request("", agent="helper", cwd="/", mode="explore", start=Start(7_000, {"A": "b"}))

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(["tasks"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.case("C2-02")
def test_a_task_is_all_that_a_task_needs() -> None:
    [task] = Tasks.model_validate({"tasks": [{"task": "Do it"}]}).tasks
    assert task == Task(task="Do it")
    assert task.model_dump(exclude_none=True) == {"task": "Do it"}


@pytest.mark.case("C2-02")
def test_what_a_task_does_not_say_is_as_for_all() -> None:
    plain, other = requests_from({"tasks": [{"task": "one"}, {"task": "two", "cwd": "/tmp", "mode": "work"}]}, COMMON)
    assert plain == COMMON._replace(task="one")
    assert other == COMMON._replace(task="two", cwd="/tmp", mode="work")


@pytest.mark.case("C2-02")
@pytest.mark.parametrize(("given", "ms"), [("5m", 300_000), ("90s", 90_000), (2, 2_000), (1.5, 1_500), ("250ms", 250)])
def test_a_time_limit_is_seconds_or_a_text_with_a_unit(given: object, ms: int) -> None:
    [request] = requests_from({"tasks": [{"task": "one", "timeout": given}]}, COMMON)
    assert request.start == COMMON.start._replace(timeout=ms)


@pytest.mark.case("C2-02")
def test_an_agent_of_its_own_stands_above_the_command_of_all() -> None:
    common = Request("", command=("true",))
    own, other = requests_from({"tasks": [{"task": "one", "agent": "claude"}, {"task": "two"}]}, common)
    assert (own.agent, own.command) == ("claude", ())
    assert (other.agent, other.command) == (None, ("true",))


@pytest.mark.case("C2-01", "C2-02")
@pytest.mark.parametrize(
    ("table", "where"),
    [
        ({}, "tasks"),
        ({"tasks": []}, "tasks"),
        ({"tasks": None}, "tasks"),
        ({"tasks": {"task": "x"}}, "tasks"),
        ({"tasks": [None]}, "tasks.0"),
        ({"tasks": [{"task": "x"}, {}]}, "tasks.1.task"),
        ({"tasks": [{"task": ""}]}, "tasks.0.task"),
        ({"tasks": [{"task": None}]}, "tasks.0.task"),
        ({"tasks": [{"task": b"x"}]}, "tasks.0.task"),
        ({"tasks": [{"task": ["x"]}]}, "tasks.0.task"),
        ({"tasks": [{"task": "x", "cwd": 7}]}, "tasks.0.cwd"),
        ({"tasks": [{"task": "x", "Task": "y"}]}, "tasks.0.Task"),
        ({"tasks": [{"task": "x", "mode": "Work"}]}, "tasks.0.mode"),
        ({"tasks": [{"task": "x", "timeout": True}]}, "tasks.0.timeout"),
        ({"tasks": [{"task": "x", "timeout": [5]}]}, "tasks.0.timeout"),
        ({"tasks": [{"task": "x"}], "more": 1}, "more"),
        ([], "tasks"),
        ("x", "tasks"),
        (None, "tasks"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(table: object, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        requests_from(table, COMMON)
    assert caught.value.code == "invalid_tasks"
    assert caught.value.message.startswith(where)
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("given", ["", "soon", "-5s", 0, -1, float("nan"), float("inf"), 1e300])
def test_a_time_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput):
        requests_from({"tasks": [{"task": "one", "timeout": given}]}, COMMON)


@given(anything)
def test_whatever_comes_is_tasks_or_refused(table: Any) -> None:
    try:
        found = requests_from(table, COMMON)
    except InvalidInput:
        return
    assert len(found) == len(table["tasks"])


def test_tasks_cannot_be_changed_behind_anybodys_back() -> None:
    task = Task(task="Do it")
    with pytest.raises(ValidationError):
        setattr(task, "task", "Do another")  # noqa: B010

"""A dispatch is done in a throwaway child: what it is asked, what it starts with, what comes back, and that nothing
else does, however it ends."""

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from subagent_cli.dispatch import (
    DispatchSubagent,
    DispatchSubagentError,
    DispatchSubagentResult,
    EventBus,
    Session,
    SessionClosed,
    SnapshotError,
    SnapshotRestoreError,
    ToolInvoked,
    ToolResult,
    ToolValidationError,
    dispatch_subagent,
)
from tests.dispatch.notes import (
    CREATED_AT,
    REQUEST,
    SESSION_ID,
    AddNote,
    Held,
    Mount,
    Note,
    Step,
    Stubborn,
    a_session,
    state,
)

DONE = DispatchSubagentResult("Reviewed.", ("report.md",))


@dataclass
class Runner:
    """Calls tools, does what it is told to do, and gives back what it is told to give; remembers what it got."""

    result: Any = DONE
    tools: Sequence[str] = ()
    act: Callable[[Session], object] = lambda _: None
    got: list[tuple[Session, EventBus, DispatchSubagent]] = field(default_factory=list)

    def __call__(self, session: Session, bus: EventBus, request: DispatchSubagent) -> DispatchSubagentResult:
        self.got.append((session, bus, request))
        for name in self.tools:
            assert bus.publish(ToolInvoked(name)) == ()
        self.act(session)
        if isinstance(self.result, BaseException):
            raise self.result
        given: DispatchSubagentResult = self.result
        return given


@pytest.fixture
def parent() -> Session:
    return a_session()


def nothing_remains(runner: Runner) -> bool:
    [(child, bus, _)] = runner.got
    with pytest.raises(SessionClosed):
        child.select(Note)
    return bus.listeners() == 0 and bus.publish(ToolInvoked("late")) == ()


@pytest.mark.case("C4-02", "C4-07", "C4-08")
def test_the_runner_sees_the_request_as_it_was_normalised(parent: Session) -> None:
    runner = Runner()
    labels: Any = [" report.md ", "notes.md"]
    dispatch_subagent(parent, replace(REQUEST, expected_artifacts=labels, plan_step_id="S1"), runner)
    assert runner.got[0][2] == DispatchSubagent(
        "ad_hoc", "docs", "review", "Review the docs", ("report.md", "notes.md"), None
    )


@pytest.mark.case("C4-09")
def test_the_runner_sees_which_step_of_the_plan_it_is(parent: Session) -> None:
    runner = Runner()
    dispatch_subagent(parent, replace(REQUEST, mode="plan_step", plan_step_id=" S1 "), runner)
    assert (runner.got[0][2].mode, runner.got[0][2].plan_step_id) == ("plan_step", "S1")


@pytest.mark.case("C4-14")
@pytest.mark.parametrize(
    "wrong",
    [
        {"instructions": " "},
        {"instructions": "é"},
        {"instructions": 5},
        {"expected_artifacts": ["x" * 161]},
        {"mode": "plan_step"},
        {"mode": "other"},
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_before_anything_happens(
    parent: Session, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    touched: list[str] = []
    for name in ("snapshot", "clone", "rollback", "select"):
        monkeypatch.setattr(parent, name, lambda *_, name=name: touched.append(name))
    runner = Runner()
    with pytest.raises(ToolValidationError) as caught:
        dispatch_subagent(parent, replace(REQUEST, **wrong), runner)
    assert caught.value.field in ("instructions", "expected_artifacts", "plan_step_id", "mode")
    assert (touched, runner.got) == ([], [])


@pytest.mark.case("C4-15")
def test_a_runner_that_changes_its_request_changes_nobody_elses(parent: Session) -> None:
    fit = replace(REQUEST, instructions="Review the docs")
    before = replace(fit)

    def meddle(_: Session) -> None:
        object.__setattr__(runner.got[0][2], "instructions", "Delete the docs")
        object.__setattr__(runner.got[0][2], "expected_artifacts", ("other.md",))

    runner = Runner(act=meddle)
    assert dispatch_subagent(parent, fit, runner).warnings == ()
    assert fit == before


@pytest.mark.case("C4-17", "C4-20")
def test_the_child_starts_with_the_structure_and_the_data_of_its_parent(parent: Session) -> None:
    seen: list[dict[type, tuple[Any, ...]]] = []
    dispatch_subagent(parent, REQUEST, Runner(act=lambda child: seen.append(state(child))))
    assert seen == [state(parent)]
    assert set(seen[0]) == {Step, Mount, Note, Held}
    assert seen[0][Step] == (Step("S1", {"files": ["a.md"]}),)


@pytest.mark.case("C4-20")
def test_the_parents_reducers_work_in_the_child(parent: Session) -> None:
    seen: list[tuple[Note, ...]] = []

    def note(child: Session) -> None:
        child.apply(AddNote("from the child"))
        seen.append(child.select(Note))

    dispatch_subagent(parent, REQUEST, Runner(act=note))
    assert seen == [(Note("from the parent"), Note("from the child"))]


@pytest.mark.case("C4-18", "C4-24")
@pytest.mark.parametrize("result", [DONE, DispatchSubagentError("no"), ValueError("no"), ToolValidationError("no"), 5])
def test_whatever_the_child_does_the_parent_stays_as_it_was(parent: Session, result: Any) -> None:
    def everything(child: Session) -> None:
        child.apply(AddNote("from the child"))
        child.select(Step)[0].done["files"].append("b.md")
        child.select(Step)[0].done["more"] = []
        child.seed(Mount, [Mount("/child")])
        child.register(str, lambda notes, text: (*notes, Note(text)), Note)
        child.seed(str, ["history of the child"])

    before, listeners = repr(state(parent)), parent.bus.listeners()
    try:
        dispatch_subagent(parent, REQUEST, Runner(result, act=everything))
    except ToolValidationError:
        assert isinstance(result, ToolValidationError)
    assert repr(state(parent)) == before
    assert parent.bus.listeners() == listeners
    parent.apply("no reducer of the child's")
    assert repr(state(parent)) == before


@pytest.mark.case("C4-19")
def test_the_child_has_its_parents_names_and_a_store_of_its_own(parent: Session) -> None:
    runner = Runner()
    dispatch_subagent(parent, REQUEST, runner)
    child = runner.got[0][0]
    assert (child.session_id, child.created_at) == (SESSION_ID, CREATED_AT)
    assert child is not parent


@pytest.mark.case("C4-22")
def test_the_events_of_the_child_stay_on_its_own_bus(parent: Session) -> None:
    heard: list[object] = []
    parent.bus.subscribe(ToolInvoked, heard.append)
    parent.bus.subscribe(AddNote, heard.append)
    notes: list[int] = []

    def publish(child: Session) -> None:
        child.bus.publish(AddNote("through the bus"))
        notes.append(len(child.select(Note)))

    runner = Runner(tools=["bash"], act=publish)
    dispatch_subagent(parent, REQUEST, runner)
    assert (heard, notes) == ([], [2])
    assert runner.got[0][0].bus is runner.got[0][1] is not parent.bus


@pytest.mark.case("C4-23", "C4-24")
@pytest.mark.parametrize("result", [DONE, None, DispatchSubagentError("no"), ValueError("no")])
def test_nothing_of_the_child_remains_when_it_has_ended(parent: Session, result: Any) -> None:
    runner = Runner(result, tools=["bash"], act=lambda child: child.bus.subscribe(AddNote, print))
    dispatch_subagent(parent, REQUEST, runner)
    assert nothing_remains(runner)


@pytest.mark.case("C4-23", "C4-24")
@pytest.mark.parametrize("error", [ToolValidationError("no"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_nothing_of_the_child_remains_when_it_is_broken_off(parent: Session, error: BaseException) -> None:
    runner = Runner(error, tools=["bash"], act=lambda child: child.bus.subscribe(AddNote, print))
    with pytest.raises(type(error)) as caught:
        dispatch_subagent(parent, REQUEST, runner)
    assert caught.value is error
    assert nothing_remains(runner)


@pytest.mark.case("C4-23")
@pytest.mark.parametrize("fails", [False, True])
def test_the_child_is_gone_from_memory_when_nobody_keeps_it(parent: Session, fails: bool) -> None:
    refs: list[weakref.ref[Any]] = []

    def runner(session: Session, bus: EventBus, _request: DispatchSubagent) -> DispatchSubagentResult:
        refs.extend(map(weakref.ref, (session, bus, session.select(Step)[0])))
        if fails:
            raise ValueError("no")
        return DONE

    result = dispatch_subagent(parent, REQUEST, runner)
    gc.collect()
    assert result.success is not fails
    assert [ref() for ref in refs] == [None, None, None]


@pytest.mark.case("C4-23")
def test_a_runner_that_closes_the_child_itself_does_no_harm(parent: Session) -> None:
    assert dispatch_subagent(parent, REQUEST, Runner(act=lambda child: child.close())).success
    assert parent.select(Note) == (Note("from the parent"),)


@pytest.mark.case("C4-25")
@pytest.mark.parametrize("item", [Held(), Step("S2", {"files": [print, lambda: 0]})])  # type: ignore[list-item]
def test_a_state_that_cannot_be_captured_is_refused(parent: Session, item: Any) -> None:
    parent.seed(type(item), [item])
    runner = Runner()
    with pytest.raises(ToolValidationError) as caught:
        dispatch_subagent(parent, REQUEST, runner)
    assert caught.value.message == "Unable to capture parent session state."
    assert isinstance(caught.value.__cause__, SnapshotError)
    assert caught.value.hint
    assert runner.got == []
    assert parent.select(type(item)) == (item,)


@pytest.mark.case("C4-25")
def test_a_session_that_is_over_has_no_state_to_capture(parent: Session) -> None:
    parent.close()
    with pytest.raises(ToolValidationError) as caught:
        dispatch_subagent(parent, REQUEST, Runner())
    assert caught.value.message == "Unable to capture parent session state."


@pytest.mark.case("C4-26", "C4-23")
def test_a_snapshot_that_cannot_be_restored_is_refused(parent: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    parent.seed(Stubborn, [Stubborn()])
    bus = EventBus()
    child = parent.clone(bus)
    monkeypatch.setattr(parent, "clone", lambda _: child)
    runner, before = Runner(), state(parent)
    with pytest.raises(ToolValidationError) as caught:
        dispatch_subagent(parent, REQUEST, runner)
    assert caught.value.message == "Unable to hydrate child session from snapshot."
    assert isinstance(caught.value.__cause__, SnapshotRestoreError)
    assert (runner.got, state(parent)) == ([], before)
    assert bus.listeners() == 0
    with pytest.raises(SessionClosed):
        child.select(Note)


@pytest.mark.case("C4-27")
def test_what_the_parent_has_mounted_is_used_again_and_not_mounted_anew(parent: Session) -> None:
    mounted: list[str] = []

    def mount(session: Session, path: str) -> Mount:
        for known in session.select(Mount):
            if known.path == path:
                return known
        mounted.append(path)
        session.seed(Mount, [*session.select(Mount), Mount(path, ("a.md", "b.md"))])
        return session.select(Mount)[-1]

    def runner(session: Session, _bus: EventBus, _request: DispatchSubagent) -> DispatchSubagentResult:
        return DispatchSubagentResult("Read.", mount(session, "/docs").files)

    mount(parent, "/docs")
    result = dispatch_subagent(parent, REQUEST, runner)
    assert result.value is not None
    assert result.value.artifacts == ("a.md", "b.md")
    assert mounted == ["/docs"]


def test_a_child_may_dispatch_in_turn(parent: Session) -> None:
    seen: list[tuple[Session, int]] = []

    def runner(session: Session, bus: EventBus, request: DispatchSubagent) -> DispatchSubagentResult:
        seen.append((session, len(session.select(Note))))
        depth = len(seen)
        session.apply(AddNote(f"from depth {depth}"))
        bus.publish(ToolInvoked(f"tool of depth {depth}"))
        if depth < 3:
            inner = dispatch_subagent(session, request, runner)
            assert inner.value is not None
            assert inner.value.tools_used == (f"tool of depth {depth + 1}",)
        assert session.select(Note)[-1] == Note(f"from depth {depth}")
        return DONE

    assert dispatch_subagent(parent, REQUEST, runner).success
    assert [notes for _, notes in seen] == [1, 2, 3]
    assert parent.select(Note) == (Note("from the parent"),)
    for child, _ in seen:
        with pytest.raises(SessionClosed):
            child.select(Note)


def test_several_threads_may_dispatch_from_one_parent(parent: Session) -> None:
    results: list[ToolResult] = []

    def runner(session: Session, bus: EventBus, request: DispatchSubagent) -> DispatchSubagentResult:
        session.apply(AddNote(request.instructions))
        bus.publish(ToolInvoked(request.instructions))
        return DispatchSubagentResult(session.select(Note)[-1].text)

    def work(name: str) -> None:
        for _ in range(20):
            results.append(dispatch_subagent(parent, replace(REQUEST, instructions=name), runner))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.message for result in results) == sorted("abcd" * 20)
    assert all(result.value is not None and result.value.tools_used == (result.message,) for result in results)
    assert parent.select(Note) == (Note("from the parent"),)


@pytest.mark.case("C4-28")
def test_a_success_has_the_summary_as_message_and_the_result_as_value(parent: Session) -> None:
    given = DispatchSubagentResult("Reviewed.", ("report.md",), ("bash",))
    result = dispatch_subagent(parent, REQUEST, Runner(given))
    assert result == ToolResult("Reviewed.", given, success=True)
    assert (result.message, result.value, result.success) == ("Reviewed.", given, True)


@pytest.mark.case("C4-29", "C4-30")
def test_artifacts_are_passed_on_as_delivered_and_the_missing_ones_told(parent: Session) -> None:
    result = dispatch_subagent(parent, REQUEST, Runner(DispatchSubagentResult("Drafted.", ("draft.md",))))
    assert result.success
    assert result.value is not None
    assert result.value.artifacts == ("draft.md",)
    assert result.warnings == ("an expected artifact was not delivered: report.md",)


@pytest.mark.case("C4-31", "X30")
def test_the_tools_that_were_called_are_told_first_seen_first(parent: Session) -> None:
    result = dispatch_subagent(parent, REQUEST, Runner(tools=["read", "bash", "read", "edit", "bash"]))
    assert result.value == replace(DONE, tools_used=("read", "bash", "edit"))


@pytest.mark.case("C4-31")
def test_a_tool_that_failed_was_used_and_a_child_without_tools_used_none(parent: Session) -> None:
    failed = Runner(act=lambda child: child.bus.publish(ToolInvoked("bash", success=False)))
    first, second = (dispatch_subagent(parent, REQUEST, runner).value for runner in (failed, Runner()))
    assert first is not None
    assert second is not None
    assert (first.tools_used, second.tools_used) == (("bash",), ())


@pytest.mark.case("C4-32", "X30")
def test_what_the_runner_says_about_tools_is_kept_as_it_is(parent: Session) -> None:
    given = replace(DONE, tools_used=("own", "own", "telemetry"))
    assert dispatch_subagent(parent, REQUEST, Runner(given, tools=["bash"])).value == given


@pytest.mark.case("C4-33", "C4-34")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DispatchSubagentError("the model is asleep"), "the model is asleep"),
        (ValueError("no"), "no"),
        (SessionClosed("over"), "over"),
        (TimeoutError(), "TimeoutError"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_whatever_goes_wrong_in_the_child_is_a_result_without_success(
    parent: Session, error: Exception, text: str
) -> None:
    result = dispatch_subagent(parent, REQUEST, Runner(error, tools=["bash"]))
    assert result == ToolResult(f"Subagent execution failed: {text}", None, success=False)


@pytest.mark.case("C4-35")
def test_a_refusal_of_the_runner_is_passed_on_as_it_is(parent: Session) -> None:
    error = ToolValidationError("no prompt of that name", field="prompt_key")
    runner = Runner(error)
    with pytest.raises(ToolValidationError) as caught:
        dispatch_subagent(parent, REQUEST, runner)
    assert caught.value is error
    assert nothing_remains(runner)


@pytest.mark.case("C4-36")
@pytest.mark.parametrize(
    "given",
    [None, "Reviewed.", {"message_summary": "Reviewed."}, DispatchSubagentResult, REQUEST, DispatchSubagentResult(5)],  # type: ignore[arg-type]
)
def test_a_result_of_another_type_is_a_failure(parent: Session, given: object) -> None:
    result = dispatch_subagent(parent, REQUEST, Runner(given))
    assert result == ToolResult("Subagent execution failed: invalid result payload", None, success=False)


@pytest.mark.case("C4-37")
def test_a_summary_beyond_ascii_is_kept_and_told(parent: Session) -> None:
    result = dispatch_subagent(parent, REQUEST, Runner(replace(DONE, message_summary="Geprüft.")))
    assert (result.success, result.message) == (True, "Geprüft.")
    assert result.warnings == ("the summary is not plain ASCII",)

"""Dispatching: the runner that has an agent do it, its session and its time, and that nothing is left wherever it is
broken off."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread, current_thread
from typing import Any

import pytest

from subagent_cli.core.dispatch import (
    DispatchSubagent,
    DispatchSubagentError,
    DispatchSubagentResult,
    ToolValidationError,
)
from subagent_cli.core.errors import Busy, InvalidInput, Refused
from subagent_cli.core.ids import is_uuid
from subagent_cli.dispatch import EventBus, Session, SubagentRunner, ToolInvoked, ToolResult, dispatch_subagent
from subagent_cli.process import copying, workspace
from subagent_cli.process.workspace import Workspace
from subagent_cli.services import dispatches, questions, runs, specs, sweep, throwaways
from subagent_cli.services.agent_runner import AgentRunner, Order
from subagent_cli.services.context import Context, Payload, open_context
from subagent_cli.services.launches import Launch
from subagent_cli.services.settings import Caller
from subagent_cli.store import removal
from subagent_cli.store.clock import Clock
from tests.cli.conftest import gate
from tests.cli.living import QUICK, SOON, Gate, all_ended, eventually, processes
from tests.cli.test_dispatch import FAILED, remains
from tests.dispatch.notes import CREATED_AT, SESSION_ID
from tests.services.desk import StillClock, refused, snapshot

__all__ = ["gate"]

REQUEST = DispatchSubagent("ad_hoc", "docs", "review", "Do it")
READS = Order(command=("cat", "notes.md"))
STAYS = Order(command=("sleep", "600"))
WRONG: tuple[dict[str, Any], ...] = (
    {"instructions": " "},
    {"expected_artifacts": ["x" * 161]},
    {"mode": "plan_step"},
    {"mode": "batch"},
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which somebody dispatches. Whatever a test leaves running ends with it."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.md").write_text("Two words.\n")
    (folder / "more.md").write_text("More.\n")
    monkeypatch.chdir(folder)
    with all_ended(runs_dir):
        yield folder


@pytest.fixture
def house(runs_dir: Path) -> Context:
    """The operator's context with the clock of the machine, since keepers have no other."""
    return open_context({"runs_dir": str(runs_dir)}, Clock())


def spec_of(context: Context, done: Payload) -> dict[str, Any]:
    """What a kept child was asked."""
    assert done["success"], done
    found: dict[str, Any] = context.runs.spec(done["runId"])
    return found


def parent(context: Context, timeout: float | None = None) -> Context:
    """The context of a worker that may start others."""
    token = context.clock.new_token()
    spec = {**specs.may_nest(specs.new_spec(context, "helper", "Do it", token), 2), "timeoutSeconds": timeout}
    context.runs.create(spec, "Do it", "running", context.clock.now())
    return context._replace(caller=Caller(spec["runId"], token))


@pytest.mark.case("C4-16", "C4-17", "C4-19", "C4-27", "C4-28", "X25")
def test_the_runner_serves_any_session_that_has_a_folder_mounted(house: Context, runs_dir: Path) -> None:
    agent = AgentRunner(house, READS, dispatches.nobody, house.clock.new_id())
    runner: SubagentRunner = agent
    with throwaways.place(house, agent.run_id, None, keep=False, troubles=[]) as place:
        session = Session(SESSION_ID, CREATED_AT)
        session.seed(Workspace, [place])
        done = dispatch_subagent(session, REQUEST, runner)
        spec = house.runs.spec(agent.run_id)
        assert session.select(Workspace) == (place,)
    assert done == ToolResult("Two words.", DispatchSubagentResult("Two words."), success=True)
    assert (spec["dispatch"]["sessionId"], spec["dispatch"]["sessionCreatedAt"]) == (SESSION_ID, CREATED_AT)
    assert (spec["runId"], spec["cwd"]) == (agent.run_id, place.folder)
    assert remains(runs_dir) == []


@pytest.mark.case("C4-15")
def test_a_runner_that_changes_its_request_changes_nobody_elses(
    house: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Meddler(AgentRunner):
        def __call__(self, session: Session, bus: EventBus, request: DispatchSubagent, /) -> DispatchSubagentResult:
            done = super().__call__(session, bus, request)
            object.__setattr__(request, "expected_artifacts", ("other.md",))
            return done

    monkeypatch.setattr(dispatches, "AgentRunner", Meddler)
    wanted = replace(REQUEST, expected_artifacts=("a.md",))
    before = replace(wanted)
    done = dispatches.dispatch(house, wanted, READS)
    assert (wanted, done["missingArtifacts"]) == (before, ["a.md"])


@pytest.mark.case("C4-02", "C4-08", "C4-11")
def test_the_child_sees_the_request_as_it_was_normalised(house: Context) -> None:
    labels: Any = [" b.md", "a.md\n", "b.md"]
    wanted = replace(REQUEST, instructions="  Do it \n", expected_artifacts=labels, plan_step_id="S1")
    done = dispatches.dispatch(house, wanted, Order(command=("cat",), keep=True))
    task = done["message"].partition("\n---\n\n")[2]
    assert task.startswith("Do it\n\n")
    assert task.endswith("Expected of you:\n  b.md\n  a.md\n  b.md")
    assert "S1" not in task
    assert spec_of(house, done)["dispatch"]["expected_artifacts"] == ["b.md", "a.md", "b.md"]


@pytest.mark.case("C4-19", "X25")
def test_the_session_of_the_operator_begins_with_the_call(desk: Context, clock: StillClock) -> None:
    began = clock.now().iso
    first, second = (
        spec_of(desk, dispatches.dispatch(desk, REQUEST, Order(command=("true",), keep=True))) for _ in range(2)
    )
    assert first["dispatch"]["sessionCreatedAt"] == began
    ids = [first["runId"], second["runId"], *(spec["dispatch"]["sessionId"] for spec in (first, second))]
    assert (all(map(is_uuid, ids)), len(set(ids))) == (True, 4)
    assert (first["parentId"], first["depth"]) == (None, 1)


@pytest.mark.case("C4-19", "C4-39", "X25")
@pytest.mark.parametrize(
    ("limit", "wanted", "usual", "expected"),
    [
        (None, None, None, None),
        (None, None, "5s", 5),
        (None, 10_000, None, 10),
        (100, None, None, 60),
        (100, 10_000, None, 10),
        (100, 90_000, "5s", 60),
        (100, None, "5s", 5),
        (100, None, "90s", 60),
    ],
)
def test_a_child_has_no_more_time_than_its_parent_has_left(
    runs_dir: Path,
    clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
    limit: float | None,
    wanted: int | None,
    usual: str | None,
    expected: float | None,
) -> None:
    if usual is not None:
        monkeypatch.setenv("SUBAGENT_RUN_TIMEOUT", usual)
    agent = parent(open_context({"runs_dir": str(runs_dir)}, clock), limit)
    created = clock.now().iso
    clock.wait(40_000)
    spec = spec_of(agent, dispatches.dispatch(agent, REQUEST, Order(command=("true",), timeout=wanted, keep=True)))
    assert spec["timeoutSeconds"] == expected
    assert (spec["parentId"], spec["depth"]) == (agent.caller.run_id, 2)
    session = (spec["dispatch"]["sessionId"], spec["dispatch"]["sessionCreatedAt"])
    assert session == (agent.caller.run_id, created)


@pytest.mark.case("C4-14", "C4-39")
def test_when_the_time_of_the_parent_is_up_nothing_is_begun(desk: Context, clock: StillClock, runs_dir: Path) -> None:
    agent = parent(desk, 100)
    clock.wait(100_000)
    with refused(runs_dir, Refused, "no_time_left"):
        dispatches.dispatch(agent, REQUEST, READS)
    with refused(runs_dir, Refused, "no_time_left"):
        dispatches.several(agent, [REQUEST], READS)


@pytest.mark.case("C4-14")
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_request_that_cannot_be_meant_is_refused_before_anything_exists(
    desk: Context, runs_dir: Path, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr(AgentRunner, "__call__", lambda *given: called.append(given))
    request = replace(REQUEST, **wrong)
    with refused(runs_dir, ToolValidationError, "invalid_dispatch"):
        dispatches.dispatch(desk, request, READS)
    with refused(runs_dir, ToolValidationError, "invalid_dispatch"):
        dispatches.several(desk, [REQUEST, request], READS)
    assert (called, runs_dir.exists()) == ([], False)


@pytest.mark.case("C4-39")
def test_a_batch_may_be_empty_and_not_too_large(desk: Context, runs_dir: Path) -> None:
    assert dispatches.several(desk, [], READS) == []
    with refused(runs_dir, InvalidInput, "too_many_requests"):
        dispatches.several(desk, [REQUEST] * 11, READS)


def test_a_runs_directory_that_is_none_is_refused(desk: Context, runs_dir: Path) -> None:
    runs_dir.write_text("")
    for call in (lambda: dispatches.dispatch(desk, REQUEST, READS), lambda: dispatches.several(desk, [REQUEST], READS)):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.code == "bad_runs_dir"


@pytest.mark.case("C4-39", "C4-25")
def test_a_folder_that_cannot_be_copied_fails_each_of_a_batch(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_MAX_WORKSPACE", "10")
    house = open_context({"runs_dir": str(runs_dir)})
    with pytest.raises(InvalidInput) as caught:
        dispatches.dispatch(house, REQUEST, READS)
    assert caught.value.code == "workspace_too_large"
    results = dispatches.several(house, [REQUEST] * 2, READS)
    assert [result["success"] for result in results] == [False, False]
    assert all(result["message"].startswith(FAILED) and "too large" in result["message"] for result in results)
    assert remains(runs_dir) == []


@pytest.mark.case("C4-39")
def test_one_that_cannot_be_begun_does_not_stop_the_others(
    house: Context, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, threads = Lock(), list[Thread]()

    def isolate(*given: Any, **how: Any) -> Workspace:
        with lock:
            threads.append(current_thread())
        if threads[0] is current_thread():
            raise InvalidInput("not to be had", code="git_failed")
        threads[0].join(SOON)
        return workspace.isolate(*given, **how)

    monkeypatch.setattr(throwaways, "isolate", isolate)
    results = dispatches.several(house, [REQUEST] * 3, READS)
    expected = [f"{FAILED}not to be had", "Two words.", "Two words."]
    assert sorted(result["message"] for result in results) == expected
    assert remains(runs_dir) == []


def test_the_runs_are_not_copied_for_a_child(house: Context, tmp_path: Path) -> None:
    assert dispatches.dispatch(house, REQUEST, Order(command=("ls",), cwd=str(tmp_path)))["message"] == "project"


def test_each_question_is_told_once_although_it_still_waits_when_the_next_one_comes(
    house: Context, runs_dir: Path, gate: Gate
) -> None:
    told: dict[str, str] = {}

    def listen(item: Payload) -> None:
        assert item["question"] not in told
        told[item["question"]] = item["message_id"]
        if len(told) < 2:
            gate.open()
        else:
            for question, message_id in told.items():
                questions.reply(house, message_id, f"To {question}")

    asks = f"one=$(subagent ask One); read word < {gate.word}; two=$(subagent ask Two)"
    script = f"{asks}; subagent check $two --wait; subagent check $one --wait"
    done = dispatches.dispatch(house, REQUEST, Order(command=("sh", "-c", script)), told=listen)
    assert (done["message"], list(told)) == ("To Two\nTo One", ["One", "Two"])
    assert remains(runs_dir) == []


RAISED = (
    DispatchSubagentError("no"),
    ValueError("no"),
    ToolValidationError("no"),
    KeyboardInterrupt("no"),
    SystemExit(3),
)


@pytest.mark.case("C4-18", "C4-23", "C4-33", "C4-34", "C4-35", "C4-36")
@pytest.mark.parametrize("given", [*RAISED, None, {"message_summary": "Done"}], ids=repr)
def test_whatever_the_runner_comes_to_nothing_is_left(
    house: Context, runs_dir: Path, project: Path, monkeypatch: pytest.MonkeyPatch, given: object
) -> None:
    def call(self: AgentRunner, session: Session, bus: EventBus, request: DispatchSubagent, /) -> object:
        [place] = session.select(Workspace)
        (Path(place.folder) / "notes.md").write_text("Changed.\n")
        bus.publish(ToolInvoked("Edit"))
        if isinstance(given, BaseException):
            raise given
        return given

    monkeypatch.setattr(AgentRunner, "__call__", call)
    before = snapshot(project)
    if isinstance(given, ToolValidationError | KeyboardInterrupt | SystemExit):
        with pytest.raises(type(given)) as caught:
            dispatches.dispatch(house, REQUEST, READS)
        assert caught.value is given
    else:
        text = "no" if isinstance(given, Exception) else "invalid result payload"
        done = dispatches.dispatch(house, REQUEST, READS)
        assert done == {"success": False, "message": FAILED + text, "value": None, "warnings": []}
    assert remains(runs_dir) == []
    assert snapshot(project) == before


@pytest.mark.case("C4-23", "X23")
def test_a_run_that_the_child_starts_while_it_is_ended_goes_with_it(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBAGENT_MAX_DEPTH", "2")
    house, real, late = open_context({"runs_dir": str(runs_dir)}), throwaways.end, list[str]()

    def end(context: Context, run_id: str) -> None:
        child = context._replace(caller=Caller(run_id, "its token"))
        late.append(runs.create(child, "helper", "One more")["runId"])
        real(context, run_id)

    monkeypatch.setattr(throwaways, "end", end)
    assert dispatches.dispatch(house, REQUEST, READS)["success"]
    assert [run_id for run_id in late if house.runs.exists(run_id)] == []
    assert remains(runs_dir) == []


POINTS = {
    "claimed": (throwaways, "isolate"),
    "copying": (copying, "copy_file"),
    "copied": (Launch, "make"),
    "made": (Launch, "start"),
    "started": (AgentRunner, "_until_over"),
}


@pytest.mark.case("C4-23", "X23")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_wherever_it_is_broken_off_nothing_is_left(
    house: Context, runs_dir: Path, monkeypatch: pytest.MonkeyPatch, point: str, error: type[BaseException]
) -> None:
    def broken(*_: object) -> None:
        raise error("broken off")

    monkeypatch.setattr(*POINTS[point], lambda *_, **__: broken())
    try:
        message = dispatches.dispatch(house, REQUEST, STAYS)["message"]
    except (KeyboardInterrupt, MemoryError) as caught:
        message = FAILED + str(caught)
    assert message == f"{FAILED}broken off"
    assert remains(runs_dir) == []
    eventually(lambda: processes(runs_dir) == [])


@pytest.mark.case("C4-23", "X23")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("keep", [False, True])
def test_wherever_it_is_killed_the_next_sweep_removes_what_is_left(
    house: Context, runs_dir: Path, point: str, keep: bool
) -> None:
    """But not what was to be kept, once there is something to look at."""
    pid = os.fork()
    if pid == 0:
        _dispatch_until(house, point, STAYS._replace(keep=keep))
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    [run_id] = [path.name for path in (runs_dir / ".workspaces").iterdir()]
    stays = keep and point in ("made", "started")
    expected = [] if stays else [f"workspace {run_id}"]
    for dry_run, removed in ((True, expected), (False, expected), (False, [])):
        done, faults = sweep.sweep(house, dry_run=dry_run)
        assert (done["removed"], faults) == (removed, [])
    assert house.runs.exists(run_id) is stays
    if not stays:
        assert remains(runs_dir) == []
        eventually(lambda: processes(runs_dir) == [])


def _dispatch_until(house: Context, point: str, order: Order) -> None:
    """Ends this process at a point of its way."""
    holder, name = POINTS[point]
    setattr(holder, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    try:
        dispatches.dispatch(house, REQUEST, order)
    finally:
        os._exit(1)


@pytest.mark.case("X23")
@pytest.mark.parametrize("keep", [False, True])
def test_nobody_takes_away_a_place_that_is_held(house: Context, runs_dir: Path, keep: bool) -> None:
    run_id = house.clock.new_id()
    with throwaways.place(house, run_id, None, keep=keep, troubles=[]) as place:
        assert throwaways.abandoned(house) == []
        assert sweep.sweep(house)[0]["removed"] == []
        assert Path(place.folder, "notes.md").read_text() == "Two words.\n"
    # Nor does it stay, although it was to be kept, where no run has come to it.
    sweep.sweep(house)
    throwaways.clear(house, run_id)
    assert remains(runs_dir) == []


def test_a_result_is_not_lost_over_a_place_that_cannot_be_cleared_away_now(
    house: Context, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise Busy("run 12345678 is busy")

    with monkeypatch.context() as patch:
        patch.setattr(removal, "remove", busy)
        done = dispatches.dispatch(house, REQUEST, READS)
    assert (done["success"], done["message"]) == (True, "Two words.")
    assert done["warnings"] == ["not cleared away: run 12345678 is busy; the next sweep tries again"]
    assert remains(runs_dir) != []
    sweep.sweep(house)
    assert remains(runs_dir) == []


def test_what_went_wrong_with_a_child_is_told_rather_than_that_its_place_stays(
    house: Context, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise Busy("run 12345678 is busy")

    with monkeypatch.context() as patch:
        patch.setattr(throwaways, "clear", busy)
        patch.setattr(dispatches, "dispatch_subagent", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dispatches.dispatch(house, REQUEST, READS)
    sweep.sweep(house)
    assert remains(runs_dir) == []

"""Cancelling: how a run ends that is not wanted any more, what keeps its outcome, and that nothing is left running."""

import json
from collections.abc import Callable

import pytest

from subagent_cli.core.command import Stop
from subagent_cli.core.errors import InvalidInput, NotFound, RunNotFound
from subagent_cli.services import cancellation, outcomes, questions, runs, sweep
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.launches import Launch, Request
from subagent_cli.store import alive
from subagent_cli.store.layout import Layout
from tests.command import PATIENCE
from tests.process.living import Living, Pipe, until
from tests.process.living import a_place_to_live as a_place_to_live
from tests.services.desk import create, document, journal, refused

NO_RUNTIME = "Sub-agent runtime not found"


def stays(living: Living, *options: str, before: str = "", after: str = "") -> tuple[str, Pipe]:
    """A run whose agent is there until it is told to go."""
    said, go = living.pipe(), living.pipe()
    run_id = living.shell(f"{before}\necho here > {said.path}\nread _ < {go.path}\n{after}", *options)
    assert said.lines(1) == ["here"]
    return run_id, go


def deaf(living: Living) -> str:
    return stays(living, before="trap '' TERM")[0]


def outcome(living: Living, run_id: str) -> tuple[str, str | None, str | None, bool]:
    found = living.cli("result", run_id, "--json").json
    return found["status"], found["kind"], found.get("error", found.get("result")), found["alive"]


@pytest.mark.case("C2-39")
def test_a_cancelled_run_ends_at_once_with_all_of_its_processes(living: Living) -> None:
    run_id, _ = stays(living)
    done = living.cancel(run_id)
    assert living.survivors() == {}
    assert done.code == 0
    assert done.json == {"cancelled": [run_id], "ended": [], "orphans": [], "notStopped": []}
    assert outcome(living, run_id) == ("error", "cancelled", "Cancelled", False)
    assert document(living.runs, run_id)["summary"] == "[cancelled] Cancelled"
    assert living.cli("result", run_id).code == 11


@pytest.mark.case("C2-39")
def test_the_reason_is_the_error_of_the_run(living: Living) -> None:
    run_id, _ = stays(living)
    assert living.cancel(run_id, "--reason", "not needed any more").code == 0
    assert outcome(living, run_id) == ("error", "cancelled", "not needed any more", False)
    assert "Cancelled: not needed any more\n" in living.log(run_id)


@pytest.mark.case("C2-39")
def test_a_parent_that_waits_is_told(living: Living) -> None:
    run_id, _ = stays(living)
    waiting = living.cli.start("wait", run_id, "--json")
    living.cancel(run_id)
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 11
    assert json.loads(out)["runs"][0]["state"] == "cancelled"


def pending(desk: Context, run_id: str) -> None:
    assert desk.runs.exists(run_id)


def running(desk: Context, run_id: str) -> None:
    runs.update(desk, run_id, "running")


def asking(desk: Context, run_id: str) -> None:
    questions.ask(desk, "Which?", run=run_id)


def replied(desk: Context, run_id: str) -> None:
    questions.reply(desk, questions.ask(desk, "Which?", run=run_id)["messageId"], "That")


@pytest.mark.case("C2-39")
@pytest.mark.parametrize("became", [pending, running, asking, replied])
def test_a_run_without_a_process_of_ours_is_cancelled_from_every_state(
    desk: Context, became: Callable[[Context, str], None]
) -> None:
    run_id = create(desk)
    became(desk, run_id)
    done = cancellation.cancel(desk, [run_id])
    assert (done["cancelled"], done["notStopped"]) == ([run_id], [])
    shown = runs.status(desk, run_id, peek=True)
    assert (shown["status"], shown["state"], shown["kind"]) == ("error", "cancelled", "cancelled")
    assert outcomes.result(desk, run_id)["error"] == "Cancelled"


@pytest.mark.case("C2-39", "C2-52")
def test_a_run_whose_agent_waits_for_an_answer_is_cancelled_with_its_wait(living: Living) -> None:
    run_id = living.shell("subagent ask 'Which?' --wait")
    living.cli("pending", run_id, "--wait")
    assert living.cancel(run_id).json["cancelled"] == [run_id]
    assert living.survivors() == {}
    assert outcome(living, run_id) == ("error", "cancelled", "Cancelled", False)


@pytest.mark.case("C2-45")
def test_cancelling_twice_changes_nothing(living: Living) -> None:
    run_id, _ = stays(living)
    living.cancel(run_id, "--reason", "the first")
    before = journal(living.runs, run_id)
    again = living.cancel(run_id, "--reason", "the second")
    assert again.code == 0
    assert again.json == {"cancelled": [], "ended": [run_id], "orphans": [], "notStopped": []}
    assert journal(living.runs, run_id) == before
    assert outcome(living, run_id)[2] == "the first"


@pytest.mark.case("C2-45")
def test_of_two_who_cancel_at_once_one_does_and_both_find_nothing_left(living: Living) -> None:
    run_id, _ = stays(living)
    calls = [living.cli.start("cancel", run_id, "--json") for _ in range(2)]
    done = [json.loads(call.communicate(timeout=PATIENCE)[0]) for call in calls]
    assert living.survivors() == {}
    assert [call.returncode for call in calls] == [0, 0]
    assert sorted(len(one["cancelled"]) for one in done) == [0, 1]
    assert living.events(run_id) == ["created", "stopped", "exited"]


def test_the_same_run_named_twice_is_cancelled_once(living: Living) -> None:
    run_id, _ = stays(living, "--name", "twice")
    assert living.cancel(run_id, "twice", run_id[-8:]).json["cancelled"] == [run_id]


def test_several_runs_are_cancelled_in_the_time_of_one(living: Living) -> None:
    """Each of them uses up its whole grace, all of them the same."""
    run_ids = [deaf(living) for _ in range(4)]
    done = living.cancel(*run_ids, "--grace", "1s")
    assert done.json["cancelled"] == run_ids
    assert living.survivors() == {}
    told = [journal(living.runs, run_id)[1]["at"] for run_id in run_ids]
    over = [journal(living.runs, run_id)[2]["at"] for run_id in run_ids]
    assert max(told) < min(over)


def test_all_means_all_that_have_not_ended(living: Living) -> None:
    ended, go = stays(living)
    go.tell()
    living.wait(ended)
    run_ids = [stays(living)[0], living.cli("create", "helper", "Do it").out.split()[0]]
    done = living.cancel("--all").json
    assert sorted(done["cancelled"]) == sorted(run_ids)
    assert done["ended"] == []
    assert living.survivors() == {}
    assert outcome(living, ended)[0] == "success"
    assert living.cancel("--all").json["cancelled"] == []


def test_all_means_for_a_worker_those_that_it_started(living: Living) -> None:
    other, _ = stays(living)
    said, go = living.pipe(), living.pipe()
    inner = f"subagent run inner -- sh -c 'echo here > {said.path}; read _ < {living.pipe().path}' > {said.path}"
    outer = living.shell(f"{inner}; read _ < {go.path}; subagent cancel --all", "--max-depth", "2")
    [inner_id] = set(said.lines(2)) - {"here"}
    go.tell()
    assert living.wait(outer)["status"] == "success"
    assert living.wait(inner_id)["state"] == "cancelled"
    assert living.status(other)["alive"] is True


@pytest.mark.case("C2-44")
def test_runs_below_are_cancelled_for_the_same_reason_before_any_keeper_hears_of_it(
    living: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = living.pipe()
    inner = f"subagent run inner -- sh -c 'echo here > {said.path}; read _ < {living.pipe().path}' > {said.path}"
    outer = living.shell(f"{inner}; read _ < {living.pipe().path}", "--max-depth", "2")
    [inner_id] = set(said.lines(2)) - {"here"}
    context = open_context({"runs_dir": str(living.runs)})
    stood: list[list[str | None]] = []
    nudge = alive.nudge

    def nudged(layout: Layout, run_id: str) -> None:
        stood.append([context.runs.read(each, context.clock.now()).outcome for each in (outer, inner_id)])
        nudge(layout, run_id)

    monkeypatch.setattr(alive, "nudge", nudged)
    done = cancellation.cancel(context, [outer], reason="not needed")
    assert living.survivors() == {}
    assert (done["cancelled"], done["ended"]) == ([outer, inner_id], [])
    assert stood[0] == ["not needed", "not needed"]


@pytest.mark.case("C2-50")
def test_what_does_not_listen_is_killed_after_the_grace(living: Living) -> None:
    run_id = deaf(living)
    assert living.cancel(run_id, "--grace", "400ms").code == 0
    assert living.survivors() == {}
    _, stopped, exited = living.journal(run_id)
    assert stopped["grace"] == 400
    assert exited["exitCode"] == 137


def test_without_a_grace_it_is_killed_at_once(living: Living) -> None:
    run_id = deaf(living)
    assert living.cancel(run_id, "--grace", "0").code == 0
    assert living.survivors() == {}
    assert [event.get("grace") for event in living.journal(run_id)] == [None, 0, None]


def test_what_ends_by_itself_has_its_whole_grace_for_it(living: Living) -> None:
    said = living.pipe()
    script = f"trap 'echo saved > {said.path}; exit 0' TERM; while :; do read _ < {living.pipe().path}; done"
    run_id = living.shell(f"echo here > {said.path}; {script}")
    said.lines(1)
    living.cancel(run_id, "--grace", "20s")
    assert said.lines(1) == ["saved"]
    # It ended well, and was cancelled all the same.
    assert outcome(living, run_id) == ("error", "cancelled", "Cancelled", False)
    assert living.journal(run_id)[-1]["exitCode"] == 0


def test_a_second_cancel_can_hurry_the_first(living: Living) -> None:
    run_id = deaf(living)
    first = living.cli.start("cancel", run_id, "--grace", "50s", "--json")
    until(lambda: "stopped" in living.events(run_id), "the first cancel")
    assert living.cancel(run_id, "--grace", "0").code == 0
    assert living.survivors() == {}
    out, _ = first.communicate(timeout=PATIENCE)
    assert (first.returncode, json.loads(out)["cancelled"]) == (0, [run_id])


def test_a_suspended_agent_is_cancelled_too(living: Living) -> None:
    said = living.pipe()
    run_id = living.shell(f"echo here > {said.path}; kill -STOP $$")
    said.lines(1)
    assert living.cancel(run_id, "--grace", "20s").code == 0
    assert living.survivors() == {}
    assert living.journal(run_id)[-1]["exitCode"] == 143


@pytest.mark.case("C2-40")
def test_a_finished_run_keeps_its_outcome(living: Living) -> None:
    run_id, go = stays(living, after="echo fine")
    go.tell()
    living.wait(run_id)
    before = journal(living.runs, run_id)
    assert living.cancel(run_id).json == {"cancelled": [], "ended": [run_id], "orphans": [], "notStopped": []}
    assert journal(living.runs, run_id) == before
    assert outcome(living, run_id) == ("success", None, "fine", False)


@pytest.mark.case("C2-40")
@pytest.mark.parametrize(
    ("submitted", "expected"),
    [
        ("result 'It is done'", ("success", None, "It is done", False)),
        ("error 'It is broken' --kind network", ("error", "network", "It is broken", False)),
    ],
)
def test_a_decided_outcome_stays_and_its_process_is_stopped(
    living: Living, submitted: str, expected: tuple[str, str | None, str, bool]
) -> None:
    run_id, _ = stays(living, before=f"subagent submit {submitted}")
    assert living.status(run_id)["alive"] is True
    done = living.cancel(run_id).json
    assert living.survivors() == {}
    assert (done["cancelled"], done["ended"], done["notStopped"]) == ([], [run_id], [])
    assert outcome(living, run_id) == expected


@pytest.mark.case("C2-40")
def test_an_end_that_was_seen_before_the_cancel_counts(living: Living) -> None:
    """Both wait for the same lock: whichever comes first, one outcome is there in the end and stays."""
    run_id, go = stays(living)
    store = open_context({"runs_dir": str(living.runs)}).runs
    with store.locked(run_id):
        go.tell()
        until(lambda: "Process exited" in living.log(run_id), "the end of the agent")
        cancelling = living.cli.start("cancel", run_id, "--json")
    out, _ = cancelling.communicate(timeout=PATIENCE)
    assert cancelling.returncode == 0
    told = json.loads(out)
    state = "success" if told["ended"] else "cancelled"
    assert living.wait(run_id)["state"] == state
    assert living.wait(run_id)["exitCode"] == 0
    assert living.events(run_id).count("exited") == 1
    assert ("stopped" in living.events(run_id)) == (state == "cancelled")


@pytest.mark.case("C2-51")
def test_a_result_after_the_cancel_is_refused(living: Living) -> None:
    said = living.pipe()
    late = f"subagent submit result late; echo $? > {said.path}; exit 0"
    script = f"trap '{late}' TERM; echo here > {said.path}; while :; do read _ < {living.pipe().path}; done"
    run_id = living.shell(script)
    said.lines(1)
    living.cancel(run_id, "--grace", "20s")
    assert said.lines(1) == ["4"]
    assert outcome(living, run_id) == ("error", "cancelled", "Cancelled", False)
    assert living.events(run_id) == ["created", "stopped", "exited"]


@pytest.mark.case("C2-41")
def test_a_run_whose_runtime_is_gone_fails_at_once(living: Living) -> None:
    run_id, _ = stays(living)
    living.kill_keeper(run_id)
    [agent] = living.survivors()
    done = living.cancel(run_id, "--reason", "not needed")
    assert living.survivors() == {}
    assert (done.code, done.json["cancelled"], done.json["orphans"]) == (0, [run_id], [agent])
    assert outcome(living, run_id) == ("error", "cancelled", NO_RUNTIME, False)
    assert document(living.runs, run_id)["status"] == "error"
    before = journal(living.runs, run_id)
    assert living.cancel(run_id).json["ended"] == [run_id]
    assert living.cli("sweep", "--json").json["lost"] == 0
    assert journal(living.runs, run_id) == before


@pytest.mark.case("C2-41")
def test_a_run_that_was_settled_as_lost_stays_so(living: Living) -> None:
    run_id, _ = stays(living)
    living.kill_keeper(run_id)
    context = open_context({"runs_dir": str(living.runs)})
    assert sweep.sweep(context)[0]["lostRuns"] == [run_id]
    done = cancellation.cancel(context, [run_id], grace=200)
    assert living.survivors() == {}
    assert (done["ended"], len(done["orphans"])) == ([run_id], 1)
    assert outcome(living, run_id)[1] == "lost"


def test_a_run_that_is_not_there_is_not_found(living: Living) -> None:
    run_id, _ = stays(living)
    done = living.cancel("0190a000-0000-7000-8000-000000000000")
    assert (done.code, done.json["error"]["code"]) == (3, "run_not_found")
    # One that is not there among others: nothing is done to those.
    assert living.cancel(run_id, "no-such-name").code == 3
    assert living.status(run_id)["alive"] is True


def test_a_cancel_has_to_say_whom_it_means(living: Living, desk: Context) -> None:
    create(desk)
    for words in ((), ("--all", "@last")):
        done = living.cancel(*words)
        assert (done.code, done.json["error"]["code"]) == (2, "usage")
    assert living.cancel("@last", "--grace", "soon").code == 2
    assert living.cancel("@last", "--grace", "-1").code == 2


def test_a_refused_cancel_changes_nothing(living: Living, desk: Context) -> None:
    run_id = create(desk)
    with refused(living.runs, InvalidInput, "usage"):
        cancellation.cancel(desk, [])
    with refused(living.runs, InvalidInput, "usage"):
        cancellation.cancel(desk, [run_id], everything=True)
    with refused(living.runs, InvalidInput, "too_long"):
        cancellation.cancel(desk, [run_id], reason="x" * 2_000_000)
    with refused(living.runs, RunNotFound, "run_not_found"):
        cancellation.cancel(desk, [run_id, "0190a000-0000-7000-8000-000000000000"])


def test_all_where_there_is_no_runs_directory_is_a_mistake(desk: Context) -> None:
    with pytest.raises(NotFound):
        cancellation.cancel(desk, [], everything=True)


@pytest.mark.case("C2-42")
def test_a_run_that_is_cancelled_before_its_keeper_is_there_is_ended_by_it(living: Living) -> None:
    context = open_context({"runs_dir": str(living.runs)})
    launch = Launch(context, Request("Do it", command=("sh", "-c", f"exec sleep 60 # {living.mark}")))
    try:
        launch.make()
        context.runs.change(launch.run_id, Stop("cancelled", "Too quick", 0), context.clock.now)
        launch.start()
    finally:
        launch.let_go()
    assert living.wait(launch.run_id)["kind"] == "cancelled"
    assert living.survivors() == {}


def test_a_damaged_run_does_not_keep_the_others_from_being_cancelled(living: Living) -> None:
    run_id, _ = stays(living)
    broken = living.cli("create", "helper", "Do it").out.strip()
    journal_file = living.runs / broken / "journal.jsonl"
    line = journal_file.read_bytes()
    journal_file.write_bytes(line.replace(b"created", b"crea7ed") + line)
    done = living.cancel("--all")
    assert (done.code, done.json["cancelled"]) == (1, [run_id])
    assert broken[-8:] in str(done.json["notStopped"])
    assert living.cli("cancel", broken).code == 8
    journal_file.write_bytes(line)

"""Cleaning up: what has ended long ago goes with all that came from it; what may still matter to anybody stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import InvalidInput, NotFound, Refused
from subagent_cli.services import clean, questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.settings import Caller
from tests.services.desk import (
    FOREIGN_RUN,
    StillClock,
    create,
    foreign_message,
    refused,
    snapshot,
    write_foreign,
)
from tests.store.world import children, ended, go, ready

DAY = 86_400_000


def ended_run(desk: Context, name: str | None = None) -> str:
    run_id = create(desk, name)
    runs.update(desk, run_id, "success", "Done.")
    return run_id


def child_of(desk: Context, parent: str) -> str:
    assert isinstance(desk.clock, StillClock)
    desk.clock.wait()
    as_parent = desk._replace(caller=Caller(parent, "its token"))
    run_id: str = runs.create(as_parent, "helper", "A part of it")["runId"]
    return run_id


def cleaned(desk: Context, *names: str, older_than: str | None = None) -> dict[str, Any]:
    done = clean.delete(desk, clean.plan(desk, names, older_than))
    assert done.pop("warnings") == []
    return done


def test_what_ended_longer_ago_than_thirty_days_goes(desk: Context, clock: StillClock) -> None:
    old, still = ended_run(desk), create(desk)
    clock.wait(30 * DAY)
    young = ended_run(desk)
    assert cleaned(desk) == {"deleted": [old], "kept": [], "dryRun": False}
    assert set(desk.runs.all()) == {still, young}


def test_the_age_is_the_users_to_choose_and_counts_from_the_end(desk: Context, clock: StillClock) -> None:
    run_id = create(desk)
    clock.wait(5 * DAY)
    runs.update(desk, run_id, "error", "No.")
    clock.wait(2 * DAY)
    assert cleaned(desk, older_than="2d")["deleted"] == []
    clock.wait(1)
    assert cleaned(desk, older_than="2d")["deleted"] == [run_id]


def test_the_wall_clock_counts_since_the_end_may_lie_before_this_boot(desk: Context, clock: StillClock) -> None:
    run_id = ended_run(desk)
    clock.ms += 31 * DAY
    assert cleaned(desk)["deleted"] == [run_id]


@pytest.mark.parametrize("text", ["", "soon", "-1d", "0", "1y"])
def test_a_time_that_is_none_is_refused(desk: Context, runs_dir: Path, text: str) -> None:
    ended_run(desk)
    with refused(runs_dir, InvalidInput, "invalid_input"):
        clean.plan(desk, (), text)


def test_without_an_end_of_its_own_the_last_event_counts(foreign_desk: Context, foreign_runs: Path) -> None:
    write_foreign(foreign_runs, status="success", endTime="some day")
    clock = foreign_desk.clock
    assert isinstance(clock, StillClock)
    clock.wait(31 * DAY)
    assert cleaned(foreign_desk)["deleted"] == []
    assert foreign_desk.runs.read(FOREIGN_RUN, clock.now()).finished
    assert cleaned(foreign_desk, FOREIGN_RUN)["deleted"] == [FOREIGN_RUN]


def test_the_end_that_another_program_wrote_counts(foreign_desk: Context, foreign_runs: Path) -> None:
    write_foreign(foreign_runs, status="success", endTime="2020-01-01T00:00:00Z")
    assert cleaned(foreign_desk)["deleted"] == [FOREIGN_RUN]


def test_named_runs_go_whatever_their_age(desk: Context) -> None:
    first, second = ended_run(desk, "first"), ended_run(desk)
    assert cleaned(desk, "first", first)["deleted"] == [first]
    assert desk.runs.all() == [second]


def test_named_runs_stay_if_they_are_younger_than_an_age_that_is_given(desk: Context, clock: StillClock) -> None:
    run_id = ended_run(desk)
    clock.wait(2 * DAY)
    done = cleaned(desk, run_id, older_than="3d")
    assert done["deleted"] == []
    assert done["kept"] == [{"runId": run_id, "reason": "it ended 2d ago"}]


def test_a_named_run_that_has_not_ended_is_refused_and_nothing_goes(desk: Context, runs_dir: Path) -> None:
    over, going_on = ended_run(desk), create(desk)
    with refused(runs_dir, Refused, "not_finished"):
        clean.plan(desk, (over, going_on))


def test_a_name_that_nobody_has_is_not_found(desk: Context, runs_dir: Path) -> None:
    ended_run(desk)
    with refused(runs_dir, NotFound, "run_not_found"):
        clean.plan(desk, ("nobody",))


def test_a_question_that_waits_keeps_a_finished_run(desk: Context, clock: StillClock, runs_dir: Path) -> None:
    run_id = create(desk)
    questions.ask(desk, "Which?", run=run_id)
    runs.update(desk, run_id, "success")
    assert cleaned(desk, older_than="1ms")["deleted"] == []
    with refused(runs_dir, Refused, "not_finished"):
        clean.plan(desk, (run_id,))
    clock.wait(2 * DAY)
    assert cleaned(desk, older_than="1d")["deleted"] == [run_id]


def test_a_plan_changes_nothing(desk: Context, runs_dir: Path) -> None:
    run_id = ended_run(desk)
    before = snapshot(runs_dir)
    assert clean.plan(desk, (run_id,)).run_ids == [run_id]
    assert snapshot(runs_dir) == before


def test_a_parent_takes_its_descendants_along(desk: Context, clock: StillClock, runs_dir: Path) -> None:
    parent = create(desk)
    child = child_of(desk, parent)
    grandchild = child_of(desk, child)
    for run_id in (parent, child, grandchild):
        runs.update(desk, run_id, "success")
    other = ended_run(desk)
    assert cleaned(desk, parent)["deleted"] == [grandchild, child, parent]
    assert desk.runs.all() == [other]
    assert not (runs_dir / ".index" / "children" / parent).exists()


def test_a_parent_stays_while_a_descendant_goes_on(desk: Context, clock: StillClock) -> None:
    parent = create(desk)
    child = child_of(desk, parent)
    grandchild = child_of(desk, child)
    for run_id in (parent, child):
        runs.update(desk, run_id, "success")
    clock.wait(31 * DAY)
    done = cleaned(desk)
    assert done["deleted"] == []
    assert {item["runId"] for item in done["kept"]} == {parent, child}
    assert all(grandchild[-8:] in item["reason"] and "pending" in item["reason"] for item in done["kept"])


def test_runs_that_are_each_others_children_stay_and_do_not_hold_up_the_cleaning(desk: Context, runs_dir: Path) -> None:
    parent = create(desk)
    child = child_of(desk, parent)
    spec = json.loads((runs_dir / parent / "run.json").read_bytes())
    (runs_dir / parent / "run.json").write_text(json.dumps({**spec, "parentId": child}))
    (runs_dir / ".index" / "children" / child).mkdir()
    (runs_dir / ".index" / "children" / child / parent).touch()
    for run_id in (parent, child):
        runs.update(desk, run_id, "success")
    done = cleaned(desk, parent)
    assert done["deleted"] == []
    assert {item["runId"] for item in done["kept"]} == {parent, child}


def test_a_child_that_comes_after_the_plan_keeps_its_parent(desk: Context) -> None:
    parent = ended_run(desk)
    plan = clean.plan(desk, (parent,))
    child_of(desk, parent)
    done = clean.delete(desk, plan)
    assert done["deleted"] == []
    assert done["kept"][0]["runId"] == parent


def test_a_question_that_another_program_asks_after_the_plan_keeps_the_run(
    foreign_desk: Context, foreign_runs: Path
) -> None:
    write_foreign(foreign_runs, status="success", endTime="2020-01-01T00:00:00Z")
    plan = clean.plan(foreign_desk)
    now = foreign_desk.clock.now().iso
    write_foreign(foreign_runs, status="success", messages=[foreign_message(questionTimestamp=now)])
    done = clean.delete(foreign_desk, plan)
    assert done["deleted"] == []
    assert "question" in done["kept"][0]["reason"]


def test_a_run_that_went_after_the_plan_is_neither_deleted_nor_kept(desk: Context, runs_dir: Path) -> None:
    run_id = ended_run(desk)
    plan = clean.plan(desk, (run_id,))
    assert cleaned(desk, run_id)["deleted"] == [run_id]
    done = clean.delete(desk, plan)
    assert (done["deleted"], done["kept"], plan.faults) == ([], [], [])


def test_a_run_that_cannot_be_read_is_kept_and_does_not_hide_the_others(
    foreign_desk: Context, foreign_runs: Path
) -> None:
    fine, broken = ended_run(foreign_desk), ended_run(foreign_desk)
    (foreign_runs / broken / "journal.jsonl").write_bytes(b"garbage\n" + b"\n")
    (foreign_runs / broken / ".meta.json").write_bytes(b"{")
    clock = foreign_desk.clock
    assert isinstance(clock, StillClock)
    clock.wait(31 * DAY)
    plan = clean.plan(foreign_desk)
    assert plan.run_ids == [fine]
    assert [fault.code for fault in plan.faults] == ["damaged_meta"]
    assert [item["runId"] for item in plan.kept] == [broken]
    assert clean.delete(foreign_desk, plan)["deleted"] == [fine]


def test_a_parent_of_a_damaged_run_stays(foreign_desk: Context, foreign_runs: Path) -> None:
    parent = create(foreign_desk)
    child = child_of(foreign_desk, parent)
    runs.update(foreign_desk, parent, "success")
    (foreign_runs / child / ".meta.json").write_bytes(b"{")
    done = cleaned(foreign_desk, parent)
    assert done["deleted"] == []
    assert "cannot be read" in done["kept"][0]["reason"]


def test_a_busy_run_is_kept_and_reported(runs_dir: Path) -> None:
    desk = open_context({"runs_dir": str(runs_dir), "lock_timeout": "50ms"}, StillClock())
    run_id = ended_run(desk)
    plan = clean.plan(desk, (run_id,))
    with children(("hold", runs_dir, run_id)) as [holder]:
        ready(holder)
        done = clean.delete(desk, plan)
    assert done["deleted"] == []
    assert [fault.code for fault in plan.faults] == ["busy"]
    assert desk.runs.exists(run_id)


def test_cleaning_finishes_what_a_crash_left_over(desk: Context, runs_dir: Path) -> None:
    create(desk)
    (runs_dir / f".trash-{FOREIGN_RUN}" / "quarantine").mkdir(parents=True)
    cleaned(desk)
    assert list(runs_dir.glob(".trash-*")) == []


def test_cleaning_beside_workers_that_ask_never_takes_an_open_run(runs_dir: Path) -> None:
    desk = open_context({"runs_dir": str(runs_dir)})
    asked_on = [runs.create(desk, "helper", "Do it")["runId"] for _ in range(3)]
    over = [runs.create(desk, "helper", "Do it")["runId"] for _ in range(20)]
    for run_id in over:
        runs.update(desk, run_id, "success")
    with children(*[("asks", runs_dir, run_id, 15) for run_id in asked_on]) as workers:
        ready(*workers)
        go(*workers)
        deleted = [run_id for one in over for run_id in cleaned(desk, one)["deleted"]]
        assert cleaned(desk, older_than="1ms")["deleted"] == []
        told = [ended(worker) for worker in workers]
    assert deleted == over
    assert [len(lines) for lines in told] == [15] * 3
    assert set(desk.runs.all()) == set(asked_on)
    for run_id, lines in zip(asked_on, told, strict=True):
        assert list(desk.runs.read(run_id, desk.clock.now()).questions) == lines


def test_cleaning_a_run_while_its_worker_asks_is_refused_each_time_and_loses_nothing(runs_dir: Path) -> None:
    desk = open_context({"runs_dir": str(runs_dir)})
    run_id = runs.create(desk, "helper", "Do it")["runId"]
    early = clean.Plan([[run_id]], [], [])
    with children(("asks", runs_dir, run_id, 40), ("asks", runs_dir, run_id, 40)) as workers:
        ready(*workers)
        go(*workers)
        for _ in range(20):
            assert clean.delete(desk, early)["deleted"] == []
        told = [line for worker in workers for line in ended(worker)]
    runs.update(desk, run_id, "success")
    assert clean.delete(desk, early)["deleted"] == []
    assert set(desk.runs.read(run_id, desk.clock.now()).questions) == set(told)
    assert len(told) == 80
    questions.reply(desk, run_id, "That.", which="all")
    assert clean.delete(desk, early)["deleted"] == [run_id]

"""The sweep: what is overdue is written down, what crashes and other programs left is put right, and nothing that is
in order is touched."""

import os
import select
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import InvalidInput, NotFound, Refused
from subagent_cli.core.moment import Moment
from subagent_cli.core.projection import project
from subagent_cli.services import events, listing, questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.sweep import sweep
from subagent_cli.store import codec
from subagent_cli.store import runs as store
from tests.services.desk import (
    FOREIGN_MESSAGE,
    FOREIGN_RUN,
    StillClock,
    create,
    document,
    foreign_message,
    journal,
    snapshot,
    words,
    write_foreign,
)
from tests.services.test_waiting import forked
from tests.store.world import index_holds_at_least

HOUR = 3_600_000
DAY = 24 * HOUR
YEAR = 365 * DAY


def ask(desk: Context, run_id: str, text: str = "Which?", **more: Any) -> str:
    message_id: str = questions.ask(desk, text, run=run_id, **more)["messageId"]
    return message_id


def swept(desk: Context, **options: Any) -> dict[str, Any]:
    """What a sweep without any fault has done."""
    done, faults = sweep(desk, **options)
    assert faults == []
    assert done["errors"] == []
    return done


def state(desk: Context, message_id: str) -> str:
    found: str = questions.check(desk, message_id, peek=True)["state"]
    return found


def restarted(runs_dir: Path, clock: StillClock) -> Context:
    """Another process, which remembers nothing."""
    return open_context({"runs_dir": str(runs_dir)}, clock)


@pytest.mark.case("C0-24", "C0-26", "X17")
@pytest.mark.parametrize(("age", "becomes"), [(DAY - 1, "PENDING"), (DAY, "PENDING"), (DAY + 1, "EXPIRED")])
def test_a_question_expires_when_it_is_older_than_a_day_and_not_when_it_is_a_day_old(
    desk: Context, runs_dir: Path, clock: StillClock, age: int, becomes: str
) -> None:
    message_id = ask(desk, create(desk))
    clock.wait(age)
    # Whoever only looks sees the same as the sweep writes down.
    assert state(desk, message_id) == becomes
    assert [item["message_id"] for item in questions.pending(desk)[0]] == [message_id] * (becomes == "PENDING")
    done = swept(desk)
    assert done["expired"] == len(done["messages"]) == (becomes == "EXPIRED")
    assert state(restarted(runs_dir, clock), message_id) == becomes


@pytest.mark.case("C0-25")
def test_the_age_can_be_chosen_and_counts_strictly(desk: Context, runs_dir: Path, clock: StillClock) -> None:
    run_id = create(desk)
    old = ask(desk, run_id)
    clock.wait(1)
    young = ask(desk, run_id)
    clock.wait(2 * HOUR)
    assert swept(desk, max_age=2 * HOUR + 1)["expired"] == 0
    assert swept(desk, max_age=2 * HOUR)["messages"] == [old]
    assert [state(desk, message_id) for message_id in (old, young)] == ["EXPIRED", "PENDING"]
    clock.wait(1)
    assert swept(desk, max_age=2 * HOUR)["messages"] == [young]
    assert swept(desk, max_age=2 * HOUR)["expired"] == 0


@pytest.mark.case("C0-25")
def test_an_age_beyond_the_setting_expires_nothing_sooner(desk: Context, clock: StillClock) -> None:
    message_id = ask(desk, create(desk))
    clock.wait(30 * HOUR)
    assert swept(desk, max_age=48 * HOUR)["expired"] == 0
    assert state(desk, message_id) == "EXPIRED"
    assert swept(desk)["expired"] == 1


@pytest.mark.case("C0-25", "C0-27")
def test_only_pending_questions_are_touched(desk: Context, runs_dir: Path, clock: StillClock) -> None:
    run_id, other = create(desk), create(desk)
    answered, retrieved, pending = ask(desk, run_id), ask(desk, run_id), ask(desk, other)
    questions.reply(desk, answered, "That.")
    questions.reply(desk, retrieved, "That too.")
    questions.check(desk, retrieved)
    clock.wait(100 * YEAR)
    before = snapshot(runs_dir / run_id)
    assert swept(desk)["messages"] == [pending]
    assert snapshot(runs_dir / run_id) == before
    assert [state(desk, message_id) for message_id in (answered, retrieved)] == ["ANSWERED", "RETRIEVED"]
    assert questions.check(desk, answered)["answer"] == "That."


@pytest.mark.case("C0-25")
def test_the_number_of_changed_questions_is_returned(desk: Context, clock: StillClock) -> None:
    made = [create(desk) for _ in range(3)]
    asked = [ask(desk, run_id) for run_id in made for _ in range(4)]
    ask(desk, made[0], default="that", deadline=1000)
    clock.wait(DAY + 1)
    done = swept(desk)
    assert (done["scanned"], done["expired"], done["defaulted"]) == (3, 12, 1)
    assert set(done["messages"]) >= set(asked)
    assert (done["timedOut"], done["lost"], done["dryRun"]) == (0, 0, False)
    again = swept(desk)
    assert (again["scanned"], again["expired"], again["defaulted"], again["messages"]) == (3, 0, 0, [])


@pytest.mark.case("X1", "X31")
def test_an_expired_question_is_written_so_that_the_server_and_its_worker_understand(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    asked_at = clock.ms
    clock.wait(DAY + 5000)
    swept(desk)
    status, messages = words(runs_dir, run_id)
    assert (status, messages) == ("running", ["parent_acknowledged"])
    (message,) = document(runs_dir, run_id)["messages"]
    assert message["answerContent"].startswith("[expired] ")
    # The moment at which it expired, not the one at which somebody noticed.
    assert message["answerTimestamp"] == Moment(asked_at + DAY).iso
    assert journal(runs_dir, run_id)[-1].items() >= {"type": "expired", "messageId": message_id}.items()
    shown = questions.check(desk, message_id)
    assert (shown["messageStatus"], shown["state"], shown["answer"]) == ("parent_acknowledged", "EXPIRED", None)


@pytest.mark.case("X9", "X31")
def test_a_run_with_several_questions_goes_on_waiting_until_the_last_one_expires(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    run_id = create(desk)
    for hours in (1, 2, 3):
        ask(desk, run_id, f"{hours}?", deadline=hours * HOUR)
    seen = []
    for _ in range(3):
        clock.wait(HOUR + 1)
        swept(desk)
        seen.append(words(runs_dir, run_id)[0])
    assert seen == ["waiting_parent_reply", "waiting_parent_reply", "running"]
    assert [event["type"] for event in events.read(desk, run_id)[0]].count("expired") == 3


@pytest.mark.case("X9")
def test_an_unread_reply_stays_in_front_when_another_question_expires(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    run_id = create(desk)
    answered, left = ask(desk, run_id), ask(desk, run_id)
    questions.reply(desk, answered, "That.")
    clock.wait(DAY + 1)
    assert swept(desk)["messages"] == [left]
    assert words(runs_dir, run_id) == ("parent_replied", ["parent_replied", "parent_acknowledged"])
    questions.check(desk, answered)
    assert words(runs_dir, run_id)[0] == "running"


@pytest.mark.case("C0-28")
@pytest.mark.parametrize("written", [True, False])
def test_an_expired_question_takes_no_reply_and_gives_null(desk: Context, clock: StillClock, written: bool) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    clock.wait(DAY + 1)
    if written:
        swept(desk)
    for target in (message_id, run_id):
        with pytest.raises(Refused):
            questions.reply(desk, target, "Too late.")
    found = questions.check(desk, message_id)
    assert (found["answer"], found["state"]) == (None, "EXPIRED")


def test_a_default_steps_in_at_the_deadline_and_waits_to_be_picked_up(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id, options=("red", "blue"), default="2", deadline=5000)
    asked_at = clock.ms
    clock.wait(5000)
    assert swept(desk)["defaulted"] == 0
    clock.wait(1)
    done = swept(desk)
    assert (done["defaulted"], done["expired"], done["messages"]) == (1, 0, [message_id])
    assert words(runs_dir, run_id) == ("parent_replied", ["parent_replied"])
    found = questions.check(desk, message_id)
    assert (found["answer"], found["answerTimestamp"]) == ("blue", Moment(asked_at + 5000).iso)
    clock.wait(100 * YEAR)
    assert swept(desk)["messages"] == []


def test_a_question_of_an_ended_run_expires_and_the_run_is_no_longer_active(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    runs.update(desk, run_id, "success")
    clock.wait(DAY + 1)
    assert swept(desk)["messages"] == [message_id]
    assert words(runs_dir, run_id) == ("success", ["parent_acknowledged"])
    assert desk.runs.index.active() == []
    assert swept(desk)["scanned"] == 0


@pytest.mark.parametrize("years", [10, -10])
def test_a_wall_clock_that_jumps_neither_expires_nor_revives(
    desk: Context, runs_dir: Path, clock: StillClock, years: int
) -> None:
    run_id = create(desk)
    gone = ask(desk, run_id, deadline=1000)
    clock.wait(1001)
    swept(desk)
    pending, lazy = ask(desk, run_id), ask(desk, run_id, deadline=DAY // 2)
    clock.wait(DAY // 2 + 1)
    clock.ms += years * YEAR
    there = restarted(runs_dir, clock)
    for _ in range(2):
        assert [state(there, message_id) for message_id in (gone, pending, lazy)] == ["EXPIRED", "PENDING", "EXPIRED"]
        swept(there)
    clock.wait(DAY // 2 - 1)
    assert swept(there)["expired"] == 0
    clock.wait(1)
    assert swept(there)["messages"] == [pending]


def test_across_boots_the_wall_clock_decides_and_no_age_is_negative(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    class Rebooted(StillClock):
        def now(self) -> Moment:
            return Moment(self.ms, "5ec0d000", self.up)

    run_id = create(desk)
    message_id = ask(desk, run_id)
    later = Rebooted(clock.ms - 10 * YEAR)
    later.up = 1
    there = restarted(runs_dir, later)
    assert swept(there)["expired"] == 0
    later.ms = clock.ms + DAY
    later.up = YEAR
    assert swept(there)["expired"] == 0
    assert state(there, message_id) == "PENDING"
    later.ms += 1
    assert swept(there)["messages"] == [message_id]
    later.ms -= 10 * YEAR
    assert state(restarted(runs_dir, later), message_id) == "EXPIRED"


def test_a_dry_run_tells_what_would_be_done_and_changes_no_byte(
    foreign_desk: Context, foreign_runs: Path, clock: StillClock
) -> None:
    desk, run_id = foreign_desk, create(foreign_desk)
    ask(desk, run_id)
    ask(desk, run_id, default="that", deadline=1000)
    gone = create(desk)
    ask(desk, gone)
    swept(desk)
    shutil.rmtree(foreign_runs / gone)
    stamp = Moment(clock.ms - 2 * DAY).iso
    write_foreign(foreign_runs, status="waiting_parent_reply", messages=[foreign_message(questionTimestamp=stamp)])
    (foreign_runs / run_id / ".meta.json.4711.tmp").write_bytes(b"{")
    (foreign_runs / ".new-old").mkdir()
    os.utime(foreign_runs / ".new-old", (1, 1))
    clock.wait(DAY + 1)
    before = snapshot(foreign_runs)
    told = swept(desk, dry_run=True)
    assert snapshot(foreign_runs) == before
    assert told["dryRun"] is True
    done = swept(desk)
    assert (done["expired"], done["defaulted"], done["entered"]) == (2, 1, [FOREIGN_RUN])
    for key in ("scanned", "expired", "defaulted", "entered"):
        assert told[key] == done[key], key
    assert sorted(told["messages"]) == sorted(done["messages"])
    assert sorted(told["removed"]) == sorted(done["removed"])


def test_temporary_files_of_killed_writers_go_and_other_files_stay(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    ask(desk, run_id)
    folder = runs_dir / run_id
    for number in (1, 4711, 99_999):
        (folder / f".meta.json.{number}.tmp").write_bytes(b"{")
    (folder / "notes.tmp").write_text("somebody's own")
    (folder / "work.tmp").mkdir()
    before = snapshot(folder)
    swept(desk)
    assert before.keys() - snapshot(folder).keys() == {f".meta.json.{number}.tmp" for number in (1, 4711, 99_999)}
    assert [event["type"] for event in journal(runs_dir, run_id)] == ["created", "asked"]


def test_a_picture_that_a_crash_left_behind_the_journal_is_brought_up_to_date(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    picture = (runs_dir / run_id / ".meta.json").read_bytes()
    message_id = ask(desk, run_id)
    (runs_dir / run_id / ".meta.json").write_bytes(picture)
    (runs_dir / run_id / ".meta.json.4711.tmp").write_bytes(b"{")
    swept(desk)
    assert document(runs_dir, run_id)["messages"][0]["messageId"] == message_id
    assert [event["type"] for event in journal(runs_dir, run_id)] == ["created", "asked"]


def test_an_entry_that_a_crash_left_for_an_ended_run_goes(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    runs.update(desk, run_id, "success")
    (runs_dir / ".index" / "active" / run_id).touch()
    swept(desk)
    assert desk.runs.index.active() == []


def test_a_run_that_was_copied_in_is_entered_and_its_question_can_be_answered(
    desk: Context, runs_dir: Path, tmp_path: Path, clock: StillClock
) -> None:
    create(desk)
    swept(desk)
    there = open_context({"runs_dir": str(tmp_path / "elsewhere")}, clock)
    run_id = create(there)
    message_id = ask(there, run_id)
    shutil.copytree(tmp_path / "elsewhere" / run_id, runs_dir / run_id)
    assert questions.pending(desk)[0] == []
    assert swept(desk)["entered"] == [run_id]
    assert [item["message_id"] for item in questions.pending(desk)[0]] == [message_id]
    assert questions.reply(desk, message_id, "That.")["success"] is True
    assert swept(desk)["entered"] == []


def test_a_folder_with_a_document_alone_is_entered_and_what_it_says_is_absorbed(
    foreign_desk: Context, foreign_runs: Path, clock: StillClock
) -> None:
    stamp = clock.now().iso
    messages = [foreign_message(questionTimestamp=stamp)]
    write_foreign(foreign_runs, status="waiting_parent_reply", messages=messages)
    assert swept(foreign_desk)["entered"] == [FOREIGN_RUN]
    assert [item["message_id"] for item in questions.pending(foreign_desk)[0]] == [FOREIGN_MESSAGE]
    assert [event["type"] for event in journal(foreign_runs, FOREIGN_RUN)] != []
    # From now on its age counts by a clock that cannot be set.
    clock.ms += 10 * YEAR
    assert swept(foreign_desk)["expired"] == 0
    clock.wait(DAY + 1)
    assert swept(foreign_desk)["messages"] == [FOREIGN_MESSAGE]


def test_a_write_of_another_program_is_absorbed(foreign_desk: Context, foreign_runs: Path, clock: StillClock) -> None:
    run_id = create(foreign_desk)
    ours = document(foreign_runs, run_id)
    theirs = foreign_message(questionTimestamp=clock.now().iso)
    changes = {**ours, "status": "waiting_parent_reply", "messages": [theirs]}
    write_foreign(foreign_runs, run_id, **changes)
    swept(foreign_desk)
    assert [event["type"] for event in journal(foreign_runs, run_id)].count("asked") == 1
    assert foreign_desk.runs.index.asker(FOREIGN_MESSAGE) == run_id


@pytest.mark.case("C1-35")
@pytest.mark.parametrize("what", ["document", "journal"])
def test_a_damaged_run_is_reported_once_and_stops_nobody(
    foreign_desk: Context, foreign_runs: Path, clock: StillClock, what: str
) -> None:
    made = [create(foreign_desk) for _ in range(3)]
    asked = [ask(foreign_desk, run_id) for run_id in made]
    torn = foreign_runs / made[1] / ("journal.jsonl" if what == "journal" else ".meta.json")
    torn.write_bytes(b"{ torn\n" + torn.read_bytes())
    clock.wait(DAY + 1)
    for expired in (2, 0):
        before = snapshot(foreign_runs / made[1])
        done, faults = sweep(foreign_desk)
        assert done["expired"] == expired
        assert [made[1] in fault.message for fault in faults] == [True]
        assert done["errors"] == [fault.message for fault in faults]
        assert snapshot(foreign_runs / made[1]) == before
    rows, faults = listing.find(foreign_desk)
    assert [row["runId"] for row in rows] == [made[2], made[0]]
    assert len(faults) == 1
    assert [state(foreign_desk, asked[number]) for number in (0, 2)] == ["EXPIRED", "EXPIRED"]


def test_a_run_that_goes_while_the_sweep_waits_for_it_is_no_fault(
    desk: Context, runs_dir: Path, tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = create(desk), create(desk)
    asked = {run_id: ask(desk, run_id) for run_id in (gone, kept)}
    swept(desk)
    clock.wait(DAY + 1)

    def reached(point: str) -> None:
        if point == "locked" and (runs_dir / gone).exists():
            (runs_dir / gone).rename(tmp_path / "gone")

    monkeypatch.setattr(store, "reached", reached)
    assert swept(desk)["messages"] == [asked[kept]]


def test_a_run_that_goes_while_the_sweep_looks_into_it_is_no_fault(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = create(desk), create(desk)
    asked = {run_id: ask(desk, run_id) for run_id in (gone, kept)}
    swept(desk)
    clock.wait(DAY + 1)
    real = os.open

    def open_and_lose(path: Any, *args: Any, **options: Any) -> int:
        fd = real(path, *args, **options)
        if path == str(runs_dir / gone / "journal.jsonl"):
            shutil.rmtree(runs_dir / gone)
        return fd

    monkeypatch.setattr(os, "open", open_and_lose)
    assert swept(desk)["messages"] == [asked[kept]]


def test_a_runs_directory_that_was_named_and_is_not_there_is_a_mistake(desk: Context, runs_dir: Path) -> None:
    with pytest.raises(NotFound):
        sweep(desk)
    assert not runs_dir.exists()
    runs_dir.write_text("a file")
    with pytest.raises(InvalidInput):
        sweep(desk)


@pytest.mark.parametrize("runs_there", [0, 3])
def test_a_second_sweep_writes_nothing(desk: Context, runs_dir: Path, clock: StillClock, runs_there: int) -> None:
    runs_dir.mkdir()
    for _ in range(runs_there):
        ask(desk, create(desk))
    clock.wait(DAY + 1)
    swept(desk)
    before = snapshot(runs_dir)
    stamps = {path: path.stat().st_mtime_ns for path in runs_dir.rglob("*")}
    swept(desk)
    assert snapshot(runs_dir) == before
    assert {path: path.stat().st_mtime_ns for path in runs_dir.rglob("*")} == stamps


def sweeps(runs_dir: Path, clock: StillClock) -> Callable[[Callable[[], None]], object]:
    def job(start: Callable[[], None]) -> object:
        desk = open_context({"runs_dir": str(runs_dir)}, clock)
        start()
        done, faults = sweep(desk)
        return {"messages": done["messages"], "errors": done["errors"], "faults": len(faults)}

    return job


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_of_several_sweeps_at_once_each_question_is_expired_by_one(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    made = [create(desk) for _ in range(20)]
    asked = [ask(desk, run_id) for run_id in made for _ in range(3)]
    gone = [create(desk, name=f"gone-{number}") for number in range(20)]
    for run_id in gone:
        for _ in range(5):
            ask(desk, run_id)
    swept(desk)
    for run_id in gone:
        shutil.rmtree(runs_dir / run_id)
    clock.wait(DAY + 1)
    with forked(*[sweeps(runs_dir, clock)] * 4) as processes:
        told = [process.result() for process in processes]
    assert [(one["errors"], one["faults"]) for one in told] == [([], 0)] * 4
    assert sorted(message_id for one in told for message_id in one["messages"]) == sorted(asked)
    for run_id in made:
        kinds = [event["type"] for event in journal(runs_dir, run_id)]
        assert kinds == ["created", *["asked"] * 3, *["expired"] * 3]
        index_holds_at_least(runs_dir, run_id)
    assert sorted(desk.runs.index.active()) == sorted(made)
    assert sorted(desk.runs.index.questions()) == sorted(asked)
    assert [name for name in desk.runs.index.names() if desk.runs.index.named(name)] == []


def writes(runs_dir: Path, until: float) -> Callable[[Callable[[], None]], object]:
    """Makes runs and leads conversations in them until the time is up; returns what it was told is safe."""

    def job(start: Callable[[], None]) -> object:
        context = open_context({"runs_dir": str(runs_dir)})
        told: dict[str, dict[str, str]] = {}
        start()
        while time.monotonic() < until:
            run_id = runs.create(context, "helper", "Do it", name=f"by-{os.getpid()}")["runId"]
            answered = questions.ask(context, "Which?", run=run_id)["messageId"]
            retrieved = questions.ask(context, "And which?", run=run_id)["messageId"]
            pending = questions.ask(context, "Or else?", run=run_id)["messageId"]
            expired = questions.ask(context, "Now?", run=run_id, deadline=1)["messageId"]
            defaulted = questions.ask(context, "Or now?", run=run_id, deadline=1, default="now")["messageId"]
            for message_id in (answered, retrieved):
                questions.reply(context, message_id, f"to {message_id}")
            questions.check(context, retrieved)
            if len(told) % 2:
                runs.update(context, run_id, "success")
            told[run_id] = {
                answered: "ANSWERED",
                retrieved: "RETRIEVED",
                pending: "PENDING",
                expired: "EXPIRED",
                defaulted: "ANSWERED",
            }
        return told

    return job


def sweep_beside_writers(runs_dir: Path, writers: int, seconds: float) -> int:
    """A sweep every tenth of a second while others write; gives how many runs were made, if nothing was broken."""
    runs_dir.mkdir()
    context = open_context({"runs_dir": str(runs_dir)})
    until = time.monotonic() + seconds
    with forked(*[writes(runs_dir, until)] * writers) as processes:
        for process in processes:
            process.go()
        while time.monotonic() < until:
            begin = time.monotonic()
            assert sweep(context)[1] == []
            pace = begin + 0.1 - time.monotonic()
            assert select.select(processes, [], [], max(0.0, pace))[0] == [] or time.monotonic() >= until
        told = {run_id: kept for process in processes for run_id, kept in process.result(seconds + 60).items()}
    assert sweep(context)[1] == []
    fresh = open_context({"runs_dir": str(runs_dir)})
    active = set(fresh.runs.index.active())
    for run_id, kept in told.items():
        found = fresh.runs.read(run_id, fresh.clock.now())
        assert {message_id: question.state for message_id, question in found.questions.items()} == kept
        assert {fresh.runs.index.asker(message_id) for message_id in kept} == {run_id}
        assert (run_id in active) == found.active
        assert (runs_dir / run_id / ".meta.json").read_bytes() == codec.document(project(found))
        assert list((runs_dir / run_id).glob("*.tmp")) == []
    assert sorted(context.runs.all()) == sorted(told)
    return len(told)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_sweep_every_tenth_of_a_second_beside_four_writers_breaks_nothing(runs_dir: Path) -> None:
    assert sweep_beside_writers(runs_dir, 4, 5.0) > 10

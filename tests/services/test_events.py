"""What happened, as a stream: in order, from where one left off, and as it comes."""

import json
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Damaged, InvalidInput, NotFound, RunNotFound
from subagent_cli.services import events, logs, questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.store.watch import Watch
from tests.services.desk import StillClock, create, document, foreign_message, snapshot, write_foreign

NOBODY = "0190a000-0000-7000-8000-000000000000"
SOON = 3.0

Stream = Iterator[dict[str, Any]]


def kinds(found: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in found]


@pytest.fixture(autouse=True)
def _bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows waits without a limit; here, too long is a failure."""
    real = Watch.wait

    def wait(self: Watch, seconds: float | None) -> None:
        begin = time.monotonic()
        real(self, SOON if seconds is None else seconds)
        if seconds is None and time.monotonic() - begin >= SOON:
            raise TimeoutError("nothing more was told")

    monkeypatch.setattr(Watch, "wait", wait)


def told(stream: Stream, count: int) -> list[tuple[str, int]]:
    """The next events of a stream, each by its run and its number."""
    return [(event["runId"], event["seq"]) for event in islice(stream, count)]


def conversation(desk: Context, run_id: str) -> str:
    message_id: str = questions.ask(desk, "Which?", run=run_id)["messageId"]
    questions.reply(desk, message_id, "That.")
    questions.check(desk, message_id)
    return message_id


def test_the_events_of_a_run_are_those_of_its_journal(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = conversation(desk, run_id)
    questions.tell(desk, "Going on.", run=run_id)
    runs.update(desk, run_id, "success", "Done.")
    before = snapshot(runs_dir)
    found, faults = events.read(desk, run_id)
    assert faults == []
    assert kinds(found) == ["created", "asked", "replied", "acknowledged", "told", "reported"]
    assert [event["seq"] for event in found] == [1, 2, 3, 4, 5, 6]
    for event in found:
        assert event["runId"] == run_id
        assert event["at"]
        assert event.keys().isdisjoint({"crc", "meta", "clock"})
        json.dumps(event)
    assert found[1].items() >= {"messageId": message_id, "question": "Which?"}.items()
    assert snapshot(runs_dir) == before


@pytest.mark.parametrize("after", [0, 1, 3, 4, 5, 10_000])
def test_one_can_go_on_behind_a_number(desk: Context, after: int) -> None:
    run_id = create(desk)
    conversation(desk, run_id)
    assert [event["seq"] for event in events.read(desk, run_id, after)[0]] == [1, 2, 3, 4][after:]


def test_a_number_without_a_run_means_nothing(desk: Context) -> None:
    create(desk)
    for read in (events.read, events.follow):
        with pytest.raises(InvalidInput):
            read(desk, None, 3)


def test_events_of_all_runs_come_in_the_order_in_which_they_happened(desk: Context, clock: StillClock) -> None:
    made = [create(desk) for _ in range(3)]
    for turn in range(4):
        for run_id in reversed(made):
            clock.wait(1)
            questions.tell(desk, f"Turn {turn}.", run=run_id)
    found, faults = events.read(desk)
    assert faults == []
    stamps = [event["at"] for event in found]
    assert stamps == sorted(stamps)
    assert [event["runId"] for event in found] == [*made, *list(reversed(made)) * 4]


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
def test_the_events_of_one_run_keep_their_order_when_the_clock_is_set(
    desk: Context, clock: StillClock, jump: int
) -> None:
    run_id, other = create(desk), create(desk)
    for turn in range(6):
        clock.wait(1)
        if turn == 3:
            clock.ms += jump
        questions.tell(desk, f"Turn {turn}.", run=run_id)
        questions.tell(desk, f"Turn {turn}.", run=other)
    found, _ = events.read(desk)
    for each in (run_id, other):
        assert [event["seq"] for event in found if event["runId"] == each] == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_not_there_has_no_events(desk: Context, runs_dir: Path) -> None:
    with pytest.raises(NotFound):
        events.read(desk)
    with pytest.raises(NotFound):
        events.follow(desk)
    assert not runs_dir.exists()
    create(desk)
    for read in (events.read, events.follow):
        with pytest.raises(RunNotFound):
            read(desk, NOBODY)


def test_a_run_that_another_program_made_has_no_events_before_we_write(
    foreign_desk: Context, foreign_runs: Path
) -> None:
    file = write_foreign(foreign_runs, messages=[foreign_message()])
    run_id = file.parent.name
    assert events.read(foreign_desk, run_id) == ([], [])
    questions.tell(foreign_desk, "Ours.", run=run_id)
    found, _ = events.read(foreign_desk, run_id)
    assert [event["seq"] for event in found] == list(range(1, len(found) + 1))
    assert kinds(found)[-1] == "told"


@pytest.mark.case("C1-35")
def test_a_damaged_journal_is_told_and_hides_no_other_run(foreign_desk: Context, foreign_runs: Path) -> None:
    torn, run_id = create(foreign_desk), create(foreign_desk)
    questions.tell(foreign_desk, "Ours.", run=torn)
    journal = foreign_runs / torn / "journal.jsonl"
    journal.write_bytes(b"{ torn\n" + journal.read_bytes())
    found, faults = events.read(foreign_desk)
    assert {event["runId"] for event in found} == {run_id}
    assert [torn in fault.message for fault in faults] == [True]
    with pytest.raises(Damaged):
        events.read(foreign_desk, torn)


def test_a_torn_last_line_is_not_an_event(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    questions.tell(desk, "One.", run=run_id)
    with open(runs_dir / run_id / "journal.jsonl", "ab") as file:
        file.write(b'{"seq":3,"at":"2026')
    assert kinds(events.read(desk, run_id)[0]) == ["created", "told"]


def test_following_a_run_tells_what_was_and_what_comes_until_it_is_over(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    questions.tell(desk, "Before.", run=run_id)
    worker = open_context({"runs_dir": str(runs_dir)}, desk.clock)
    stream = events.follow(desk, run_id)
    assert told(stream, 2) == [(run_id, 1), (run_id, 2)]
    questions.tell(worker, "Between.", run=run_id)
    runs.update(worker, run_id, "success")
    assert told(stream, 10) == [(run_id, 3), (run_id, 4)]
    assert [event["seq"] for event in events.follow(desk, run_id, 2)] == [3, 4]


def test_a_run_that_has_ended_is_followed_until_its_last_question_is_answered(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = questions.ask(desk, "Which?", run=run_id)["messageId"]
    runs.update(desk, run_id, "success")
    stream = events.follow(desk, run_id)
    assert len(told(stream, 3)) == 3
    questions.reply(open_context({"runs_dir": str(runs_dir)}, desk.clock), message_id, "That.")
    assert told(stream, 10) == [(run_id, 4)]


def test_following_all_runs_takes_new_ones_in(desk: Context, runs_dir: Path) -> None:
    first = create(desk)
    stream = events.follow(desk)
    assert told(stream, 1) == [(first, 1)]
    second = create(desk)
    assert told(stream, 1) == [(second, 1)]
    conversation(desk, second)
    questions.tell(desk, "Going on.", run=first)
    assert sorted(told(stream, 4)) == sorted([(second, 2), (second, 3), (second, 4), (first, 2)])
    runs.update(desk, second, "success")
    assert told(stream, 1) == [(second, 5)]
    questions.tell(desk, "And on.", run=first)
    assert told(stream, 1) == [(first, 3)]


def test_a_run_that_comes_and_ends_between_two_looks_is_told_whole(desk: Context, clock: StillClock) -> None:
    first = create(desk)
    stream = events.follow(desk)
    assert told(stream, 1) == [(first, 1)]
    brief = create(desk)
    clock.wait(1)
    runs.update(desk, brief, "success")
    clock.wait(1)
    questions.tell(desk, "Going on.", run=first)
    assert told(stream, 3) == [(brief, 1), (brief, 2), (first, 2)]


def test_what_happens_to_a_run_after_its_end_is_told_too(desk: Context, clock: StillClock) -> None:
    first, ended = create(desk), create(desk)
    stream = events.follow(desk)
    assert told(stream, 2) == [(first, 1), (ended, 1)]
    runs.update(desk, ended, "success")
    assert told(stream, 1) == [(ended, 2)]
    questions.tell(desk, "Going on.", run=first)
    assert told(stream, 1) == [(first, 2)]
    clock.wait(1)
    runs.update(desk, ended, "completed", "It went well.")
    clock.wait(1)
    questions.tell(desk, "And on.", run=first)
    assert told(stream, 2) == [(ended, 3), (first, 3)]


def test_no_event_is_told_twice_when_the_clock_is_set_back(desk: Context, clock: StillClock) -> None:
    run_id = create(desk)
    questions.tell(desk, "Before.", run=run_id)
    clock.ms -= 3_600_000
    questions.tell(desk, "An hour ago.", run=run_id)
    stream = events.follow(desk)
    assert told(stream, 3) == [(run_id, 1), (run_id, 2), (run_id, 3)]
    questions.tell(desk, "After.", run=run_id)
    assert told(stream, 1) == [(run_id, 4)]


def test_a_run_that_goes_while_all_are_followed_stops_nobody(desk: Context, runs_dir: Path) -> None:
    gone, kept = create(desk), create(desk)
    stream = events.follow(desk)
    assert told(stream, 2) == [(gone, 1), (kept, 1)]
    shutil.rmtree(runs_dir / gone)
    questions.tell(desk, "Going on.", run=kept)
    assert told(stream, 1) == [(kept, 2)]


def test_following_does_not_change_anything(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    questions.ask(desk, "Which?", run=run_id)
    questions.reply(desk, run_id, "That.")
    before = snapshot(runs_dir)
    assert len(told(events.follow(desk), 3)) == 3
    assert len(told(events.follow(desk, run_id), 3)) == 3
    assert len(told(logs.follow(desk, run_id), 0)) == 0
    assert snapshot(runs_dir) == before
    assert document(runs_dir, run_id)["status"] == "parent_replied"


def lines(stream: Stream, count: int) -> list[str]:
    return [line["text"] for line in islice(stream, count)]


@pytest.mark.parametrize("count", [None, 1, 2, 100])
def test_following_a_log_begins_with_its_last_lines(desk: Context, runs_dir: Path, count: int | None) -> None:
    run_id = create(desk)
    desk.runs.log(run_id, *(f"line {number}" for number in range(10)), now=desk.clock.now())
    stream = logs.follow(desk, run_id, count)
    expected = [f"line {number}" for number in range(10)][-(count or 10) :]
    assert lines(stream, len(expected)) == expected
    desk.runs.log(run_id, "new", now=desk.clock.now())
    assert lines(stream, 1) == ["new"]


def test_a_line_is_told_when_it_is_whole(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    log = runs_dir / run_id / "log"
    log.write_bytes(b"[2026-01-02T03:04:05.678Z] [stdout] first\n[2026-01-02T03:04:05.678Z] [std")
    stream = logs.follow(desk, run_id)
    assert lines(stream, 1) == ["first"]
    for part in (b"out] sec", b"ond\n[2026-01-02T03:04:05.678Z] [stderr] th"):
        with open(log, "ab") as file:
            file.write(part)
    assert lines(stream, 1) == ["second"]
    runs.update(desk, run_id, "success")
    rest = lines(stream, 10)
    assert rest[0].startswith("th")


def test_a_followed_log_ends_with_the_run_and_with_its_last_words(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    desk.runs.log(run_id, "before", now=desk.clock.now())
    stream = logs.follow(desk, run_id)
    assert lines(stream, 1) == ["before"]
    desk.runs.log(run_id, "between", now=desk.clock.now())
    runs.update(desk, run_id, "success", "Done.")
    assert lines(stream, 10) == ["between", "Status updated to: success", "Summary: Done."]
    assert lines(logs.follow(desk, run_id, 1), 10) == ["Summary: Done."]

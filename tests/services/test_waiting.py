"""Waiting: for an answer, for a question; how it ends, and that whatever was waited for goes on."""

import json
import os
import random
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import InvalidInput, NotFound, Refused, RunNotFound, Stalled, SubagentError
from subagent_cli.services import questions, runs, settings, sweep, waiting
from subagent_cli.services.context import Context, open_context
from subagent_cli.store import runs as store
from subagent_cli.store.watch import Watch
from tests.services.desk import (
    FOREIGN_MESSAGE,
    StillClock,
    create,
    document,
    foreign_message,
    journal,
    snapshot,
    words,
)

PATIENCE = 60.0
SOON = 5.0
DAY = 86_400_000
NOBODY = "0190a000-0000-7000-8000-000000000000"

Start = Callable[[], None]
Job = Callable[[Start], object]
Waits = list[float]


class Forked:
    """A process beside this one that does one job and gives back its result, as far as JSON can carry it."""

    def __init__(self, job: Job) -> None:
        self._reading, writing = os.pipe()
        starting, self._starter = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _do(job, starting, writing)
        os.close(starting)
        os.close(writing)
        self._heard = b""
        self._over = False

    def fileno(self) -> int:
        return self._reading

    def ready(self) -> None:
        """Waits until the process has come to its starting line."""
        self._hear(lambda: self._heard.startswith(b"ready\n"), PATIENCE)

    def go(self) -> None:
        """Lets it start."""
        self.ready()
        os.write(self._starter, b"go")

    def result(self, patience: float = PATIENCE) -> Any:
        """What it gives back at its end."""
        if not self._over:
            self._hear(lambda: self._over, patience)
        word, _, rest = self._heard.removeprefix(b"ready\n").partition(b"\n")
        assert word == b"done", rest.decode()
        return json.loads(rest)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._reading)
        os.close(self._starter)

    def _hear(self, enough: Callable[[], bool], patience: float) -> None:
        until = time.monotonic() + patience
        while not enough():
            if not select.select([self._reading], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"process {self.pid} has said no more than {self._heard!r}")
            part = os.read(self._reading, 65_536)
            self._heard += part
            self._over = not part
            if self._over:
                return


def _do(job: Job, starting: int, writing: int) -> None:
    """All that a forked process does. It must not return: behind it stands a copy of the whole test."""

    def start() -> None:
        os.write(writing, b"ready\n")
        os.read(starting, 2)

    code = 1
    try:
        told = b"done\n" + json.dumps(job(start)).encode()
        while told:
            told = told[os.write(writing, told) :]
        code = 0
    except BaseException:
        os.write(writing, traceback.format_exc().encode()[-4000:])
    finally:
        os._exit(code)


@contextmanager
def forked(*jobs: Job) -> Iterator[list[Forked]]:
    """A process for each job, all of them let go when all are ready; none outlives the with block."""
    started: list[Forked] = []
    try:
        for job in jobs:
            started.append(Forked(job))
        for process in started:
            process.ready()
        for process in started:
            process.go()
        yield started
    finally:
        for process in started:
            process.end()


def patiently(happened: Callable[[], bool]) -> None:
    """Waits for something that nobody tells, within a bound."""
    until = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < until, "it did not happen in time"
        select.select([], [], [], 0.005)


@pytest.fixture
def waits(clock: StillClock, monkeypatch: pytest.MonkeyPatch) -> Waits:
    """How long each wait would have been at most; instead of it, that much time passes on the clock."""
    taken: Waits = []

    def wait(_self: Watch, seconds: float | None) -> None:
        assert seconds is not None
        taken.append(seconds)
        clock.wait(round(seconds * 1000))

    monkeypatch.setattr(Watch, "wait", wait)
    return taken


@pytest.fixture
def waiting_rounds(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Counts how often somebody has looked, found nothing and begun to wait."""
    rounds = threading.Semaphore(0)
    real = Watch.wait

    def wait(self: Watch, seconds: float | None) -> None:
        rounds.release()
        real(self, seconds)

    monkeypatch.setattr(Watch, "wait", wait)
    return rounds


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """Threads for those who wait; each wait has a bound of its own, so none outlives its test for long."""
    with ThreadPoolExecutor(8) as pool:
        yield pool


def opened(runs_dir: Path) -> Context:
    """Somebody's own context, on the machine's clock."""
    return open_context({"runs_dir": str(runs_dir)})


def new_run(context: Context) -> str:
    run_id: str = runs.create(context, "helper", "Do it")["runId"]
    return run_id


def ask(context: Context, run_id: str, text: str = "Which?", **more: Any) -> str:
    message_id: str = questions.ask(context, text, run=run_id, **more)["messageId"]
    return message_id


def at(monkeypatch: pytest.MonkeyPatch, clock: StillClock, seconds: float, happens: Callable[[], object]) -> None:
    """Something happens so many seconds after now, while somebody waits; time passes only by waiting."""
    moment = clock.up + round(seconds * 1000)
    done: list[object] = []

    def wait(_self: Watch, limit: float | None) -> None:
        end = clock.up + round((PATIENCE if limit is None else limit) * 1000)
        if not done and end >= moment:
            clock.wait(moment - clock.up)
            done.append(happens())
        else:
            clock.wait(end - clock.up)

    monkeypatch.setattr(Watch, "wait", wait)


@pytest.mark.case("C0-19", "C0-20", "C0-21", "X17")
def test_without_an_answer_a_wait_stalls_after_300_seconds_and_the_question_stays_pending(
    desk: Context, runs_dir: Path, clock: StillClock, waits: Waits
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    before = snapshot(runs_dir)
    begin = clock.up
    with pytest.raises(Stalled) as stalled:
        waiting.for_answer(desk, message_id)
    assert stalled.value.message == "Stalled: Parent No-Response"
    assert clock.up - begin == 300_000
    assert waits == [300.0]
    assert snapshot(runs_dir) == before
    assert words(runs_dir, run_id) == ("waiting_parent_reply", ["pending_parent_reply"])
    assert questions.reply(desk, message_id, "That.")["success"] is True


@pytest.mark.case("C0-19", "X17")
def test_the_time_for_a_wait_can_be_set_in_every_way(
    runs_dir: Path, tmp_path: Path, clock: StillClock, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.BY_NAME["answer_timeout"].default == 300_000
    desk = open_context({"runs_dir": str(runs_dir)}, clock)
    run_id = create(desk)
    message_id = ask(desk, run_id)

    def patience(timeout: int | None = None, **options: str) -> float:
        waits.clear()
        here = open_context({"runs_dir": str(runs_dir), **options}, clock)
        with pytest.raises(Stalled):
            waiting.for_answer(here, message_id, timeout=timeout)
        answer = sum(waits)
        waits.clear()
        with pytest.raises(Stalled):
            waiting.for_question(here, new_run(here), timeout=timeout)
        assert sum(waits) == answer
        return answer

    assert patience() == 300
    (tmp_path / "subagent.toml").write_text('answer_timeout = "7m"')
    assert patience() == 420
    monkeypatch.setenv("SUBAGENT_ANSWER_TIMEOUT", "90")
    assert patience() == 90
    assert patience(answer_timeout="2m") == 120
    assert patience(250, answer_timeout="2m") == 0.25


@pytest.mark.case("X17", "C0-24")
def test_the_age_at_which_questions_expire_can_be_set_in_every_way(
    runs_dir: Path, tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = open_context({"runs_dir": str(runs_dir)}, clock)
    run_id = create(desk)

    def lasts(length: int, **options: str) -> bool:
        here = open_context({"runs_dir": str(runs_dir), **options}, clock)
        message_id = ask(here, run_id)
        clock.wait(length)
        still = questions.check(here, message_id)["state"]
        clock.wait(1)
        return (still, questions.check(here, message_id)["state"]) == ("PENDING", "EXPIRED")

    assert lasts(DAY)
    (tmp_path / "subagent.toml").write_text('question_ttl = "7m"')
    assert lasts(420_000)
    monkeypatch.setenv("SUBAGENT_QUESTION_TTL", "90")
    assert lasts(90_000)
    assert lasts(2 * DAY, question_ttl="2d")
    # Nobody has set a time for the run itself, so there is none.
    assert desk.runs.spec(run_id)["timeoutSeconds"] is None


@pytest.mark.case("C0-23")
def test_an_answer_after_two_seconds_ends_a_wait_of_ten(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    parent = open_context({"runs_dir": str(runs_dir)}, clock)
    at(monkeypatch, clock, 2, lambda: questions.reply(parent, message_id, "That."))
    begin = clock.up
    found = waiting.for_answer(desk, message_id, timeout=10_000)
    assert clock.up - begin == 2000
    assert (found["answer"], found["state"]) == ("That.", "ANSWERED")
    assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"])


def test_what_is_already_answered_is_not_waited_for(desk: Context, runs_dir: Path, waits: Waits) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    questions.reply(desk, message_id, "That.")
    for kind in ("ANSWERED", "RETRIEVED", "RETRIEVED"):
        found = waiting.for_answer(desk, message_id)
        assert (found["answer"], found["state"]) == ("That.", kind)
    assert waits == []
    assert [event["type"] for event in journal(runs_dir, run_id)].count("acknowledged") == 1


def test_a_peeking_wait_leaves_the_answer_unread(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    questions.reply(desk, message_id, "That.")
    before = snapshot(runs_dir)
    assert waiting.for_answer(desk, message_id, peek=True)["answer"] == "That."
    assert snapshot(runs_dir) == before


@pytest.mark.case("C0-29", "X31")
def test_a_question_that_expires_ends_the_wait_at_once_and_says_so(
    desk: Context, runs_dir: Path, clock: StillClock, waits: Waits
) -> None:
    message_id = ask(desk, create(desk), deadline=5000)
    begin = clock.up
    found = waiting.for_answer(desk, message_id)
    assert (found["answer"], found["state"], found["messageStatus"]) == (None, "EXPIRED", "parent_acknowledged")
    assert clock.up - begin == 5001


@pytest.mark.case("C0-29", "C0-24")
def test_a_wait_that_goes_on_beyond_a_day_ends_when_the_question_expires(
    desk: Context, clock: StillClock, waits: Waits
) -> None:
    message_id = ask(desk, create(desk))
    begin = clock.up
    assert waiting.for_answer(desk, message_id, timeout=30 * DAY)["state"] == "EXPIRED"
    assert clock.up - begin == DAY + 1


@pytest.mark.case("C0-29", "X31")
def test_a_sweep_that_expires_the_question_ends_the_wait(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    house = open_context({"runs_dir": str(runs_dir)}, clock)
    at(monkeypatch, clock, 2, lambda: sweep.sweep(house, max_age=1000))
    begin = clock.up
    assert waiting.for_answer(desk, message_id)["state"] == "EXPIRED"
    assert clock.up - begin == 2000
    assert words(runs_dir, run_id) == ("running", ["parent_acknowledged"])


def test_a_default_is_the_answer_at_the_deadline(
    desk: Context, runs_dir: Path, clock: StillClock, waits: Waits
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id, options=("red", "blue"), default="2", deadline=5000)
    begin = clock.up
    found = waiting.for_answer(desk, message_id)
    assert (found["answer"], found["state"]) == ("blue", "ANSWERED")
    assert clock.up - begin == 5001
    assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"])


@pytest.mark.parametrize("years", [10, -10])
def test_a_wall_clock_that_jumps_neither_shortens_nor_lengthens_a_wait(
    desk: Context, clock: StillClock, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    message_id = ask(desk, create(desk))

    def jump() -> None:
        clock.ms += years * 365 * DAY

    at(monkeypatch, clock, 100, jump)
    begin = clock.up
    with pytest.raises(Stalled):
        waiting.for_answer(desk, message_id)
    assert clock.up - begin == 300_000


@pytest.mark.case("X9")
def test_each_of_several_waits_gets_the_answer_to_its_own_question(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = create(desk)
    first, second = ask(desk, run_id, "First?"), ask(desk, run_id, "Second?")
    questions.reply(desk, second, "2nd")
    parent = open_context({"runs_dir": str(runs_dir)}, clock)
    at(monkeypatch, clock, 1, lambda: questions.reply(parent, first, "1st"))
    assert waiting.for_answer(desk, first)["answer"] == "1st"
    assert words(runs_dir, run_id)[0] == "parent_replied"
    assert waiting.for_answer(desk, second)["answer"] == "2nd"
    assert words(runs_dir, run_id)[0] == "running"


def test_a_wait_for_what_is_not_there_ends_before_it_begins(desk: Context, waits: Waits) -> None:
    run_id = create(desk)
    with pytest.raises(NotFound):
        waiting.for_answer(desk, NOBODY)
    with pytest.raises(RunNotFound):
        waiting.for_answer(desk, NOBODY, run=NOBODY)
    with pytest.raises(InvalidInput):
        waiting.for_answer(desk, "", run=run_id)
    with pytest.raises(RunNotFound):
        waiting.for_question(desk, NOBODY)
    assert waits == []


def test_a_run_that_is_removed_ends_the_wait(
    desk: Context, runs_dir: Path, tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    at(monkeypatch, clock, 1, lambda: (runs_dir / run_id).rename(tmp_path / "gone"))
    with pytest.raises(RunNotFound):
        waiting.for_answer(desk, message_id)


def test_a_wait_for_a_question_gives_those_that_are_there_at_once(desk: Context, waits: Waits) -> None:
    run_id, other = create(desk), create(desk)
    asked = [ask(desk, other), ask(desk, run_id)]
    assert {item["message_id"] for item in waiting.for_question(desk)[0]} == set(asked)
    assert [item["message_id"] for item in waiting.for_question(desk, run_id)[0]] == asked[1:]
    assert waits == []


def test_a_wait_for_a_question_that_does_not_come_stalls(
    desk: Context, runs_dir: Path, clock: StillClock, waits: Waits
) -> None:
    create(desk)
    before = snapshot(runs_dir)
    begin = clock.up
    with pytest.raises(Stalled) as stalled:
        waiting.for_question(desk, timeout=5000)
    assert stalled.value.code == "no_question"
    assert clock.up - begin == 5000
    assert snapshot(runs_dir) == before


def test_a_run_that_ends_will_not_ask_and_is_not_waited_for(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = create(desk)
    worker = open_context({"runs_dir": str(runs_dir)}, clock)
    at(monkeypatch, clock, 2, lambda: runs.update(worker, run_id, "success"))
    with pytest.raises(Refused) as refused:
        waiting.for_question(desk, run_id)
    assert refused.value.code == "run_finished"


def test_a_wait_for_a_question_passes_by_runs_that_cannot_be_read(
    foreign_desk: Context, foreign_runs: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn, run_id = create(foreign_desk), create(foreign_desk)
    (foreign_runs / torn / ".meta.json").write_bytes(b"{ torn")
    worker = open_context({"runs_dir": str(foreign_runs)}, clock)
    at(monkeypatch, clock, 2, lambda: ask(worker, run_id))
    waiting_now, faults = waiting.for_question(foreign_desk)
    assert [item["run_id"] for item in waiting_now] == [run_id]
    assert [torn in fault.message for fault in faults] == [True]


def woken(waiter: "Future[tuple[list[dict[str, Any]], list[SubagentError]]]") -> list[str]:
    """Which questions a wait has found, long before its time was up."""
    return [item["message_id"] for item in waiter.result(SOON)[0]]


@pytest.mark.parametrize("there", ["nothing", "the folder", "a run that has ended"])
def test_a_wait_for_a_question_can_begin_before_there_is_any_run(
    runs_dir: Path,
    tmp_path: Path,
    beside: ThreadPoolExecutor,
    waiting_rounds: threading.Semaphore,
    monkeypatch: pytest.MonkeyPatch,
    there: str,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    runs_dir = tmp_path / "subagent" / "runs"
    parent, worker = open_context({}), open_context({})
    assert parent.runs.layout.root == str(runs_dir)
    if there != "nothing":
        runs_dir.mkdir(parents=True)
    if there == "a run that has ended":
        runs.update(worker, new_run(worker), "success")
    waiter = beside.submit(waiting.for_question, parent, None, 10_000)
    assert waiting_rounds.acquire(timeout=PATIENCE)
    message_id = ask(worker, new_run(worker))
    assert woken(waiter) == [message_id]


def asks_as_another_program(context: Context, runs_dir: Path, run_id: str) -> str:
    """Writes a question into the document in place, and tells nobody."""
    content = {**document(runs_dir, run_id), "status": "waiting_parent_reply"}
    content["messages"] = [foreign_message(questionTimestamp=context.clock.now().iso)]
    with open(runs_dir / run_id / ".meta.json", "r+b", buffering=0) as file:
        file.truncate(0)
        file.write(json.dumps(content).encode())
    return FOREIGN_MESSAGE


@pytest.mark.parametrize("by", ["us", "another program"])
def test_the_first_question_ever_is_seen_although_its_run_was_not_yet_there_when_somebody_looked(
    tmp_path: Path,
    beside: ThreadPoolExecutor,
    waiting_rounds: threading.Semaphore,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    """A run has its entry in the index before it appears, and whoever waits wakes in between."""
    runs_dir = tmp_path / "foreign" / "runs"
    worker = opened(runs_dir)
    runs.update(worker, new_run(worker), "success")
    waiter = beside.submit(waiting.for_question, opened(runs_dir), None, 10_000)
    assert waiting_rounds.acquire(timeout=PATIENCE)

    def reached(point: str) -> None:
        if point == "entered":
            assert waiting_rounds.acquire(timeout=PATIENCE)

    with monkeypatch.context() as patch:
        patch.setattr(store, "reached", reached)
        run_id = new_run(worker)
    message_id = ask(worker, run_id) if by == "us" else asks_as_another_program(worker, runs_dir, run_id)
    assert woken(waiter) == [message_id]


def test_a_run_that_another_program_put_there_is_waited_for_once_a_sweep_has_entered_it(
    runs_dir: Path, beside: ThreadPoolExecutor, waiting_rounds: threading.Semaphore, tmp_path: Path
) -> None:
    house = opened(runs_dir)
    new_run(house)
    there = opened(tmp_path / "elsewhere")
    run_id = new_run(there)
    message_id = ask(there, run_id)
    waiter = beside.submit(waiting.for_question, opened(runs_dir), None, 10_000)
    assert waiting_rounds.acquire(timeout=PATIENCE)
    (tmp_path / "elsewhere" / run_id).rename(runs_dir / run_id)
    assert sweep.sweep(house)[1] == []
    assert woken(waiter) == [message_id]


def test_a_write_of_another_program_in_place_ends_the_wait(
    runs_dir: Path, beside: ThreadPoolExecutor, waiting_rounds: threading.Semaphore
) -> None:
    worker = opened(runs_dir)
    run_id = new_run(worker)
    message_id = ask(worker, run_id)
    waiter = beside.submit(waiting.for_answer, opened(runs_dir), message_id, timeout=10_000)
    assert waiting_rounds.acquire(timeout=PATIENCE)
    content = document(runs_dir, run_id)
    content["messages"][0] |= {
        "answerContent": "Theirs.",
        "answerTimestamp": worker.clock.now().iso,
        "messageStatus": "parent_replied",
    }
    with open(runs_dir / run_id / ".meta.json", "r+b", buffering=0) as file:
        file.truncate(0)
        file.write(json.dumps(content).encode())
    assert waiter.result(SOON)["answer"] == "Theirs."


@pytest.mark.case("C0-22")
def test_where_the_kernel_does_not_tell_a_wait_still_ends(
    runs_dir: Path,
    beside: ThreadPoolExecutor,
    waiting_rounds: threading.Semaphore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Watch, "_open", lambda _self: None)
    worker = opened(runs_dir)
    run_id = new_run(worker)
    message_id = ask(worker, run_id)
    answer = beside.submit(waiting.for_answer, opened(runs_dir), message_id, timeout=20_000)
    for _ in range(4):
        assert waiting_rounds.acquire(timeout=PATIENCE)
    questions.reply(opened(runs_dir), message_id, "That.")
    assert answer.result(SOON)["answer"] == "That."
    question = beside.submit(waiting.for_question, opened(runs_dir), None, 20_000)
    for _ in range(4):
        assert waiting_rounds.acquire(timeout=PATIENCE)
    second = ask(worker, run_id)
    assert woken(question) == [second]


@pytest.mark.case("C0-14", "C0-15", "C0-16", "C0-17", "C0-18")
def test_the_pending_questions_of_three_hundred_runs(desk: Context, runs_dir: Path, clock: StillClock) -> None:
    chance = random.Random(4711)
    made = [create(desk) for _ in range(300)]
    asked: dict[str, str] = {}
    for run_id in chance.sample(made, len(made)):
        clock.wait(chance.choice((0, 1, 1000)))
        asked[ask(desk, run_id, f"Which, {run_id}?")] = run_id
    for run_id in chance.sample(made, 50):
        clock.wait(1)
        asked[ask(desk, run_id, f"And which, {run_id}?")] = run_id
    closed = chance.sample(sorted(asked), 120)
    for message_id in closed:
        questions.reply(desk, message_id, "That.")
    for message_id in closed[:60]:
        questions.check(desk, message_id)
    overdue = [ask(desk, run_id, deadline=1000) for run_id in chance.sample(made, 40)]
    clock.wait(1001)
    for run_id in chance.sample(made, 30):
        runs.update(desk, run_id, "success")
    open_now = [message_id for message_id in asked if message_id not in closed]

    parent = open_context({"runs_dir": str(runs_dir)}, clock)
    found, faults = questions.pending(parent)
    assert faults == []
    assert {item["message_id"] for item in found} == set(open_now)
    assert set(overdue).isdisjoint(item["message_id"] for item in found)
    stamps = [item["timestamp"] for item in found]
    assert stamps == sorted(stamps)
    for item in found:
        assert item.keys() >= {"message_id", "question", "timestamp"}
        assert item["run_id"] == asked[item["message_id"]]
        assert asked[item["message_id"]] in item["question"]
    for run_id in made[::7]:
        of_one = [item["message_id"] for item in questions.pending(parent, run_id)[0]]
        assert of_one == [message_id for message_id in open_now if asked[message_id] == run_id]
    with pytest.raises(RunNotFound):
        questions.pending(parent, NOBODY)


def waits_for(runs_dir: Path, message_id: str, peek: bool = False) -> Job:
    def job(start: Start) -> object:
        context = opened(runs_dir)
        start()
        found = waiting.for_answer(context, message_id, peek=peek)
        return {"answer": found["answer"], "state": found["state"], "at": time.monotonic()}

    return job


def replies_to(runs_dir: Path, message_ids: Sequence[str]) -> Job:
    def job(start: Start) -> object:
        context = opened(runs_dir)
        start()
        told = {}
        for message_id in message_ids:
            questions.reply(context, message_id, f"to {message_id}")
            told[message_id] = time.monotonic()
        return told

    return job


def converse(
    runs_dir: Path, waiters: int, each: int, repliers: int, idle: Callable[[Sequence[int]], None] | None = None
) -> float:
    """So many processes wait, `each` of them on one run, and are answered in random order; the longest that one of
    them took to notice, in seconds, if each of them was told its own answer, once."""
    context = opened(runs_dir)
    asked: dict[str, str] = {}
    for _ in range(waiters // each):
        run_id = new_run(context)
        for number in range(each):
            asked[ask(context, run_id, f"Question {number}?")] = run_id
    shuffled = random.Random(waiters).sample(sorted(asked), len(asked))
    with forked(*(waits_for(runs_dir, message_id) for message_id in asked)) as processes:
        if idle is not None:
            idle([process.pid for process in processes])
        with forked(*(replies_to(runs_dir, shuffled[number::repliers]) for number in range(repliers))) as parents:
            replied = {message_id: moment for parent in parents for message_id, moment in parent.result().items()}
        heard = dict(zip(asked, [process.result() for process in processes], strict=True))
    assert replied.keys() == heard.keys() == asked.keys()
    for message_id, found in heard.items():
        assert (found["answer"], found["state"]) == (f"to {message_id}", "ANSWERED")
    for run_id in set(asked.values()):
        kinds = [event["type"] for event in journal(runs_dir, run_id)]
        assert [kinds.count(kind) for kind in ("asked", "replied", "acknowledged")] == [each] * 3
        assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"] * each)
    return max(float(found["at"]) - float(replied[message_id]) for message_id, found in heard.items())


@pytest.mark.case("C0-23")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forty_waiting_processes_are_all_woken_and_none_twice(runs_dir: Path) -> None:
    assert converse(runs_dir, 40, 5, 4) < 10


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_of_several_who_wait_for_one_answer_each_gets_it_and_one_is_the_first(runs_dir: Path) -> None:
    context = opened(runs_dir)
    run_id = new_run(context)
    message_id = ask(context, run_id)
    with forked(*[waits_for(runs_dir, message_id)] * 6, waits_for(runs_dir, message_id, peek=True)) as processes:
        questions.reply(context, message_id, "That.")
        heard = [process.result() for process in processes]
    assert {found["answer"] for found in heard} == {"That."}
    assert [event["type"] for event in journal(runs_dir, run_id)].count("acknowledged") == 1

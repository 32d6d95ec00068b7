"""How long after something was committed those who wait for it know, beside the kernel's own word."""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from scripts.bench_rounds import Beside, asked, new_run, opened, shuffled
from scripts.bench_runs import Gate, begun, endable, gone, over, runs_below
from scripts.bench_table import Part, Row
from subagent_cli.core.moment import milliseconds
from subagent_cli.services import launches, questions, waiting
from subagent_cli.services.context import Context
from subagent_cli.services.launches import Request
from subagent_cli.store import runs as store
from subagent_cli.store.watch import Watch

BARE = "bare inotify wake-up"
ANSWER_LIMIT_MS, END_LIMIT_MS = 5.0, 10.0


class Amounts(NamedTuple):
    answers: int
    ends: int


FULL = Amounts(answers=200, ends=100)
QUICK = Amounts(answers=40, ends=20)


def wakes(home: str, amounts: Amounts) -> Part:
    with endable():
        rows = [*_answers(home, amounts.answers), *_ends(home, amounts.ends)]
    return Part(f"wake-ups, {amounts.answers} answers and {amounts.ends} ends", rows)


def _answers(home: str, rounds: int) -> list[Row]:
    context, worker = opened(os.path.join(home, "wakes")), opened(os.path.join(home, "wakes"))
    folder = os.path.join(home, "bare")
    os.mkdir(folder)
    # Open already, so that one write is one event.
    file = os.open(os.path.join(folder, "file"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    answered = Beside(lambda word: waiting.for_answer(worker, word))
    bare = Watch([folder], growing=True)
    told = Beside(lambda _: bare.wait(None))
    committed: list[float] = []
    before = store.reached
    store.reached = lambda point: committed.append(time.monotonic()) if point == "committed" else None

    def answer() -> float:
        message_id = asked(context, new_run(context))
        answered.waits(message_id)
        questions.reply(context, message_id, "1")
        begin = committed[-1]
        return (answered.had_it() - begin) * 1000

    def wake() -> float:
        told.waits("change")
        begin = time.monotonic()
        os.write(file, b".")
        return (told.had_it() - begin) * 1000

    try:
        ms = shuffled({"ours": answer, "bare": wake}, rounds)
    finally:
        store.reached = before
        answered.end()
        told.end()
        os.close(file)
    return _beside("ask --wait: from the reply's commit to the answer", ms, ANSWER_LIMIT_MS)


def _ends(home: str, rounds: int) -> list[Row]:
    """The end is dated before it is durable, in whole milliseconds, so the figures hold the commit too."""
    root = os.path.join(home, "ends")
    with runs_below(root) as context, Gate(os.path.join(home, "ends-gate")) as gate:
        worker = opened(root)
        waits = Beside(lambda run_id: waiting.for_runs(worker, [run_id]))
        bare = Beside(_changed)

        def end(beside: Beside, word: Callable[[str], str]) -> float:
            run_id = launches.run(context, Request("Wait", command=gate.command))["runId"]
            begun(context, [run_id])
            beside.waits(word(run_id))
            gate.let_through()
            known = beside.had_it() + time.time() - time.monotonic()
            over(context, [run_id])
            gone(context)
            return known * 1000 - _recorded(context, run_id)

        try:
            ms = shuffled(
                {"ours": lambda: end(waits, str), "bare": lambda: end(bare, context.runs.layout.journal)}, rounds
            )
        finally:
            waits.end()
            bare.end()
    return _beside("wait: from the end's record to its return", ms, END_LIMIT_MS)


def _beside(what: str, ms: dict[str, float], limit: float) -> list[Row]:
    return [
        Row(what, ms["ours"], ms["bare"], BARE, "ms"),
        Row(what, ms["ours"], limit, "the limit", "ms", 1.0),
    ]


def _changed(path: str) -> None:
    with Watch([path]) as watch:
        watch.wait(None)


def _recorded(context: Context, run_id: str) -> int:
    record = context.runs.records(run_id)[-1]
    at = milliseconds(record["at"])
    if record["type"] != "exited" or at is None:
        raise RuntimeError(f"the last line of the journal is no end: {record}")
    return at

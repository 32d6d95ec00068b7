"""What runs that have long ended cost those who ask about the others: 100 of them, and 100,000.

Promises: fifty runs are active in every folder, each with a question; those that ended are as the store writes them.
"""

import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

from scripts.bench_rounds import SUBAGENT, Case, asked, environment, new_run, opened, say, shuffled, started
from scripts.bench_table import Curve, Line, Part, Row
from subagent_cli.core.event import Created, Reported
from subagent_cli.core.evolution import fold
from subagent_cli.core.projection import project
from subagent_cli.core.run import CREATED, SUCCESS, Run
from subagent_cli.services import sweep
from subagent_cli.services.context import Context
from subagent_cli.store import codec, journal

ACTIVE = 50
FEW = 1000
FLAT_GOAL, NEWEST_GOAL = 1.2, 1.5
# With fewer names it is a comparison of the start of Python with that of `ls`.
NEWEST_OF = 100_000
PENDING, STATUS, SWEEP, NEWEST = "pending", "status", "sweep", "list --limit 50"
HERE, DIGITS, REPLY = "pending, runs/ found here", "status RUN by 8 digits, --peek", "reply QUESTION"
LS, LS_F, RG, GREP = "ls", "ls -f", "rg over all", "grep -r over all"
GOALS = {PENDING: FLAT_GOAL, STATUS: FLAT_GOAL, SWEEP: FLAT_GOAL, HERE: FLAT_GOAL, DIGITS: None, REPLY: None}
DRAWN = (PENDING, STATUS, SWEEP, NEWEST)
WORD = '"pending_parent_reply"'


class Amounts(NamedTuple):
    rounds: int
    counts: tuple[int, ...]


FULL = Amounts(rounds=21, counts=(100, 1_000, 10_000, 100_000))
QUICK = Amounts(rounds=7, counts=(100, 1_000, 10_000))


class At(NamedTuple):
    """One measure: what was called, and among how many ended runs."""

    what: str
    ended: int


def scale(home: str, amounts: Amounts) -> Part:
    measures: dict[At, Callable[[], float]] = {}
    for count in amounts.counts:
        say(f"  making {count:,} ended runs")
        folder = os.path.join(home, f"of-{count}")
        os.mkdir(folder)
        for what, measure in {**_verbs(home, folder, count), **_tools(home, folder)}.items():
            measures[At(what, count)] = measure
    say(f"  {amounts.rounds} rounds")
    # Keys of text, which every round takes in a new order.
    by_name = shuffled({repr(at): measure for at, measure in measures.items()}, amounts.rounds)
    ms = {at: by_name[repr(at)] for at in measures}
    search = RG if _rg() else GREP
    lines = [
        Line(what, [(count, ms[At(what, count)]) for count in amounts.counts], ours=what in DRAWN)
        for what in (*DRAWN, LS, search)
    ]
    return Part(
        f"{amounts.counts[-1]:,} ended runs, {amounts.rounds} rounds",
        _rows(ms, amounts.counts[-1]),
        [] if _rg() else ["a search by rg: it is not on PATH"],
        Curve(
            "runs",
            "What a call costs beside runs that have ended",
            f"From a shell, cold; {ACTIVE} runs are active. Dashed: tools that look at all of them.",
            "ended runs",
            lines,
        ),
    )


def _rows(ms: dict[At, float], many: int) -> list[Row]:
    def at(what: str, count: int = many) -> float:
        return ms[At(what, count)]

    searches = [name for name in (RG, GREP) if At(name, many) in ms]
    return [
        *(Row(what, at(what), at(what, FEW), f"{FEW:,} ended runs", "ms", goal) for what, goal in GOALS.items()),
        *(Row(PENDING, at(PENDING), at(search), search, "ms") for search in searches),
        Row(NEWEST, at(NEWEST), at(LS), LS, "ms", NEWEST_GOAL if many >= NEWEST_OF else None),
        Row(NEWEST, at(NEWEST), at(LS_F), LS_F, "ms"),
        Row(NEWEST, at(NEWEST), at(NEWEST, FEW), f"{FEW:,} ended runs", "ms"),
    ]


def _verbs(home: str, folder: str, count: int) -> dict[str, Callable[[], float]]:
    root = os.path.join(folder, "runs")
    context = opened(root)
    run_id = _fill(context, count)
    # The first sweep looks at every run, those after it only at what has changed.
    sweep.sweep(context)
    named, unnamed = environment(home, SUBAGENT_RUNS_DIR=root), environment(home)

    def call(*words: str) -> Callable[[], float]:
        return lambda: started(Case((SUBAGENT, *words), named, home))

    return {
        PENDING: call("pending"),
        STATUS: call("status"),
        SWEEP: call("sweep"),
        NEWEST: call("list", "--limit", "50"),
        HERE: lambda: started(Case((SUBAGENT, "pending"), unnamed, folder)),
        DIGITS: call("status", run_id[-8:], "--peek"),
        REPLY: lambda: call("reply", asked(context, run_id), "1")(),
    }


def _tools(home: str, folder: str) -> dict[str, Callable[[], float]]:
    """What only reads the names of all, and what looks into all for those that wait."""
    root = os.path.join(folder, "runs")
    # A locale in which names are sorted by their bytes, as ours are, and as is fastest.
    environ = environment(home, LC_ALL="C")
    ls, grep, rg = _found("ls"), _found("grep"), _rg()
    tools = {LS: (ls, root), LS_F: (ls, "-f", root), GREP: (grep, "-rl", "--include=.meta.json", WORD, root)}
    if rg:
        tools[RG] = (rg, "-l", "--hidden", "--no-ignore", "-g", ".meta.json", WORD, root)
    return {
        name: lambda words=words: started(Case(words, environ, home))  # type: ignore[misc]
        for name, words in tools.items()
    }


def _rg() -> str | None:
    return shutil.which("rg")


def _found(tool: str) -> str:
    return shutil.which(tool) or f"/bin/{tool}"


def _fill(context: Context, count: int) -> str:
    """Fifty active runs, each with a question, and so many ended ones, which are newer. Returns an active one."""
    for _ in range(ACTIVE):
        run_id = new_run(context)
        asked(context, run_id)
    spec = context.runs.spec(run_id)
    for _ in range(count):
        _end(context, spec)
    return run_id


def _end(context: Context, spec: dict[str, object]) -> None:
    """A run that has ended, as the store writes it, but without its syncs: a hundred thousand of them take minutes."""
    run_id, now = context.clock.new_id(), context.clock.now()
    events = (Created(now, run_id, "helper", "helper", CREATED), Reported(now, SUCCESS, now.iso, "Notes tidied"))
    picture = codec.document(project(fold(Run(run_id), events)))
    layout = context.runs.layout
    os.mkdir(layout.run(run_id))
    for path, data in (
        (layout.spec(run_id), codec.document({**spec, "runId": run_id})),
        (layout.meta(run_id), picture),
        (layout.journal(run_id), journal.lines(0, [(event, None) for event in events], journal.digest(picture))),
    ):
        with open(path, "wb", buffering=0) as file:
            file.write(data)

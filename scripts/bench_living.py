"""Runs that live: what starting one costs, what a keeper holds and uses while its agent says nothing, many at once."""

import os
import random
import signal
import sys
import time
from statistics import median
from typing import NamedTuple

from scripts import bench_double
from scripts.bench_rounds import SETTLING, SUBAGENT, Case, environment, shuffled, started
from scripts.bench_runs import PATIENCE, Gate, at_once, begun, bounded, endable, gone, over, runs_below
from scripts.bench_table import Part, Row
from subagent_cli.services import launches
from subagent_cli.services.context import Context
from subagent_cli.services.launches import Request

IDLE_SECONDS, BARE = 5.0, 5
MANY = 50
KEEPER_LIMIT_MB, IDLE_LIMIT_MS, START_LIMIT_S = 12.0, 10.0, 10.0


class Amounts(NamedTuple):
    """How often: cold starts of `run`, idle keepers, `status` beside many."""

    starts: int
    idle: int
    statuses: int


FULL = Amounts(starts=40, idle=100, statuses=41)
QUICK = Amounts(starts=11, idle=20, statuses=21)


def living(home: str, amounts: Amounts) -> Part:
    """One after the other, so that none runs beside the keepers of another."""
    folder = os.path.join(home, "living")
    os.mkdir(folder)
    rows: list[Row] = []
    left_out: list[str] = []
    with endable():
        rows += _cold_runs(home, os.path.join(folder, "cold"), amounts.starts)
        if sys.platform.startswith("linux"):
            rows += _idle(folder, amounts.idle)
            if why := bench_double.missing():
                left_out.append(f"a keeper beside the {bench_double.NAME}: {why}")
        else:
            left_out.append("what idle keepers hold and use: it is only measured on Linux")
        rows += _many(home, folder, amounts.statuses)
    title = f"runs that live, {MANY} at once, {amounts.starts} starts, {amounts.statuses} statuses"
    return Part(title, rows, left_out)


def _cold_runs(home: str, root: str, rounds: int) -> list[Row]:
    """What starting a run costs whoever starts it."""
    ours, bare, popen = "run TASK -- true", "python -c pass", "python -c subprocess.Popen"
    code = "import subprocess; subprocess.Popen(['true'])"
    environ = environment(home, SUBAGENT_RUNS_DIR=root)
    with runs_below(root) as context:

        def run() -> float:
            ms = started(Case((SUBAGENT, "run", "x", "--", "true"), environ, home))
            # What its keeper still does must not be paid for by the next one.
            over(context, context.runs.all()[:1])
            gone(context)
            return ms

        ms = shuffled(
            {
                ours: run,
                bare: lambda: started(Case((sys.executable, "-c", "pass"), environ, home)),
                popen: lambda: started(Case((sys.executable, "-c", code), environ, home)),
            },
            rounds,
        )
    return [Row(ours, ms[ours], ms[beside], beside, "ms") for beside in (bare, popen)]


def _idle(folder: str, count: int) -> list[Row]:
    """What keepers hold and use while their agents say nothing."""
    with runs_below(os.path.join(folder, "idle")) as context, Gate(os.path.join(folder, "idle-gate")) as gate:
        run_ids = [launches.run(context, Request("Wait", command=gate.command))["runId"] for _ in range(count)]
        begun(context, run_ids)
        keepers = [_keeper(context, run_id) for run_id in run_ids]
        ours = median(map(_resident, keepers[:: max(1, count // 20)]))
        rows = [
            Row("keeper, resident while idle", ours, KEEPER_LIMIT_MB, "the limit", "MB", 1.0),
            Row("keeper, resident while idle", ours, _sleeping_python(), "python -I -S that sleeps", "MB"),
        ]
        if not bench_double.missing():
            theirs = _idle_double(os.path.join(folder, "idle-double"))
            rows.append(Row(rows[0].what, ours, theirs, f"{bench_double.NAME}, idle", "MB", imitation=True))
        before = sum(map(_cpu_ms, keepers))
        time.sleep(IDLE_SECONDS)
        used = sum(map(_cpu_ms, keepers)) - before
        gate.let_through(count)
        over(context, run_ids)
    what = f"CPU of {count} idle keepers in {IDLE_SECONDS:g} s"
    return [*rows, Row(what, used, IDLE_LIMIT_MS, "the limit", "ms", 1.0)]


def _sleeping_python() -> float:
    words = (sys.executable, "-I", "-S", "-c", f"import time; time.sleep({2 * PATIENCE})")
    pids: list[int] = []
    try:
        pids += [os.posix_spawn(words[0], words, {}) for _ in range(BARE)]
        return median(map(_resident, pids))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _idle_double(folder: str) -> float:
    session = bench_double.Session(folder)
    try:
        return _resident(session.pid)
    finally:
        session.close()


def _keeper(context: Context, run_id: str) -> int:
    with open(context.runs.layout.alive(run_id), encoding="ascii") as file:
        return int(file.read().splitlines()[-1].split()[0])


def _resident(pid: int) -> float:
    """The resident MB of a process, when they have stopped growing."""
    seen: list[int] = []

    def steady() -> bool:
        time.sleep(SETTLING)
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            seen.append(next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")))
        return len(seen) > 5 and len(set(seen[-5:])) == 1

    bounded(steady, "the start of an idle process")
    return seen[-1] / 1024


def _cpu_ms(pid: int) -> float:
    """What a process has used so far, by the kernel's clock for it (clock_getcpuclockid), which counts nanoseconds."""
    return time.clock_gettime((~pid << 3) | 2) * 1000


def _many(home: str, folder: str, rounds: int) -> list[Row]:
    """Fifty runs started at once from as many shells, what they cost those who ask, and their common end."""
    quiet, busy = os.path.join(folder, "quiet"), os.path.join(folder, "busy")
    with runs_below(quiet) as still, runs_below(busy) as context, Gate(os.path.join(folder, "gate")) as gate:
        ended = launches.run(still, Request("x", command=("true",)))["runId"]
        over(still, [ended])
        gone(still)

        def status(root: str, run_id: str) -> float:
            return started(Case((SUBAGENT, "status", run_id), environment(home, SUBAGENT_RUNS_DIR=root), home))

        def alone() -> list[float]:
            return [status(quiet, ended) for _ in range(rounds // 2 + 2)][1:]

        none = alone()
        begin = time.perf_counter()
        at_once(MANY, (SUBAGENT, "run", "Wait", "--", *gate.command), environment(home, SUBAGENT_RUNS_DIR=busy), home)
        run_ids = context.runs.all()
        begun(context, run_ids)
        seconds = time.perf_counter() - begin
        if len(run_ids) != MANY:
            raise RuntimeError(f"{MANY} runs were started and {len(run_ids)} are there")
        beside = {"busy": lambda: status(busy, random.choice(run_ids)), "quiet": lambda: status(quiet, ended)}
        ms = shuffled(beside, rounds)
        begin = time.perf_counter()
        gate.let_through(MANY)
        over(context, run_ids)
        end_seconds = time.perf_counter() - begin
        gone(context)
        none += alone()
    what = f"status RUN, {MANY} runs alive"
    return [
        Row(f"{MANY} runs at once, until all have said a line", seconds, START_LIMIT_S, "the limit", "s", 1.0),
        Row(f"{MANY} runs at once, until all ends are known", end_seconds, seconds, "their start", "s"),
        Row(what, ms["busy"], ms["quiet"], "run in a folder where none is", "ms", 1.5),
        # Other rounds at another time, and so without a goal.
        Row(what, ms["busy"], median(none), "before and after, none alive", "ms"),
    ]

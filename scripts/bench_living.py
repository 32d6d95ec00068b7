"""Runs that live, beside their yardsticks: what a keeper holds and uses, many at once, the log, the end, the start.

Promises: as bench.py, which calls it. Whatever was started here is ended when a part ends, however it ends.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from statistics import median
from typing import NamedTuple

from scripts.bench_table import (
    SETTLING,
    SUBAGENT,
    Beside,
    Case,
    Row,
    environment,
    finished,
    opened,
    say,
    shuffled,
    started,
)
from subagent_cli.core.moment import milliseconds
from subagent_cli.services import cancellation, launches, waiting
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.launches import Request
from subagent_cli.store import alive
from subagent_cli.store.watch import Watch


class Amounts(NamedTuple):
    """How often: cold starts of `run`, of `status` beside many, floods into a log, ends of runs."""

    starts: int
    statuses: int
    captures: int
    ends: int


FULL = Amounts(starts=40, statuses=41, captures=21, ends=100)
QUICK = Amounts(starts=11, statuses=21, captures=7, ends=20)

IDLE, IDLE_SECONDS, BARE = 20, 2.0, 5
MANY = 50
KEEPER_LIMIT_KB, IDLE_LIMIT_MS, START_LIMIT_S, WAIT_LIMIT_MS = 12_288, 10.0, 10.0, 10.0
FLOOD_MB, FLOOD_WRITE = 192, 65_536
DRIP_MB, LINE = 16, 80
# How long anything here may take before the measuring has failed, in seconds.
PATIENCE = 60.0

# What an agent puts out matters, since its token is looked for in it: a line like those of programs, and one over which
# the search is fast or slow as that token happens to be.
TEXT = "2026-11-18 15:12:08 INFO  worker 17: compiled src/parts/reader.c in 0.412 s, ok"
LETTER = "x" * len(TEXT)
# A program that times itself, so that neither Python's start nor its end is part of it.
WRITER = """\
import os, sys, time
path, size, total = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
line = sys.argv[4].encode() + b"\\n"
chunk = (line * (size // len(line) + 1))[:size]
begin = time.perf_counter()
for _ in range(total // size):
    if os.write(1, chunk) != size:
        sys.exit("a short write")
seconds = time.perf_counter() - begin
with open(path, "w") as file:
    file.write(repr(seconds))
"""


def living(home: str, amounts: Amounts) -> list[Row]:
    """Every part, one after the other, so that none runs beside the keepers of another."""
    folder = os.path.join(home, "living")
    os.mkdir(folder)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return [
            *cold_runs(home, os.path.join(folder, "cold"), amounts.starts),
            *idle(folder),
            *many(home, folder, amounts.statuses),
            *captures(folder, amounts.captures),
            *ends(folder, amounts.ends),
        ]
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def runs_below(root: str, **settings: str) -> Iterator[Context]:
    """A runs directory whose runs and keepers have ended when the block has."""
    context = open_context({"runs_dir": root, **settings})
    try:
        yield context
    finally:
        if os.path.isdir(root):
            left = cancellation.cancel(context, (), everything=True, grace=0)["notStopped"]
            gone(context)
            if left:
                raise RuntimeError(f"could not be ended: {', '.join(left)}")


class Gate:
    """A pipe at which agents wait, after a first line, until each of them is let through."""

    def __init__(self, path: str) -> None:
        os.mkfifo(path, 0o600)
        # Open for both, so that nobody hangs in opening it, neither an agent nor we.
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.command = ("sh", "-c", 'echo waiting; exec head -c 1 "$0"', path)

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def let_through(self, count: int = 1) -> None:
        os.write(self._fd, b"." * count)


def bounded(done: Callable[[], bool], what: str) -> None:
    """Looks until it is so. What is waited for here is outside the timing, or takes seconds."""
    give_up = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > give_up:
            raise RuntimeError(f"{what} took more than {PATIENCE:g} s")
        time.sleep(0.002)


def gone(context: Context) -> None:
    """Until no run here has a keeper: its last word comes a moment before its end."""
    for run_id in context.runs.all():
        bounded(lambda run_id=run_id: alive.dead(context.runs.layout, run_id), "the end of a keeper")  # type: ignore[misc]


def begun(context: Context, run_ids: Sequence[str]) -> None:
    """Until the first line of every run is in its log."""
    for run_id in run_ids:
        bounded(lambda run_id=run_id: b"[stdout] waiting" in _log(context, run_id), "the start of a run")  # type: ignore[misc]


def over(context: Context, run_ids: Sequence[str]) -> None:
    """Until the runs are over, all of them successfully."""
    woke = waiting.for_runs(context, run_ids, timeout=int(PATIENCE * 1000))
    bad = [f"{run['runId']} {run['state']}: {run.get('error')}" for run in woke["runs"] if run["state"] != "success"]
    if woke["woke"] != "done" or bad:
        raise RuntimeError(f"waiting for {len(run_ids)} runs ended with {woke['woke']}; {'; '.join(bad) or 'no error'}")


def _log(context: Context, run_id: str) -> bytes:
    with open(context.runs.layout.log(run_id), "rb") as file:
        return file.read(4096)


def cold_runs(home: str, root: str, rounds: int) -> list[Row]:
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


def idle(folder: str) -> list[Row]:
    """What a keeper holds and uses while its agent says nothing."""
    if not sys.platform.startswith("linux"):
        say("what idle keepers hold and use is only measured on Linux")
        return []
    words = (sys.executable, "-I", "-S", "-c", f"import time; time.sleep({2 * PATIENCE})")
    bare: list[int] = []
    with runs_below(os.path.join(folder, "idle")) as context, Gate(os.path.join(folder, "idle-gate")) as gate:
        run_ids = [launches.run(context, Request("Wait", command=gate.command))["runId"] for _ in range(IDLE)]
        begun(context, run_ids)
        keepers = [_keeper(context, run_id) for run_id in run_ids]
        try:
            bare += [os.posix_spawn(words[0], words, {}) for _ in range(BARE)]
            ours, least = median(map(_resident, keepers)), median(map(_resident, bare))
        finally:
            for pid in bare:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        before = sum(map(_cpu_ms, keepers))
        time.sleep(IDLE_SECONDS)
        used = sum(map(_cpu_ms, keepers)) - before
        gate.let_through(IDLE)
        over(context, run_ids)
    what = "keeper, resident while idle"
    return [
        Row(what, ours, KEEPER_LIMIT_KB, "the limit", "kB", 1.0),
        Row(what, ours, least, "python -I -S that sleeps", "kB"),
        Row(f"CPU of {IDLE} idle keepers in {IDLE_SECONDS:g} s", used, IDLE_LIMIT_MS, "the limit", "ms", 1.0),
    ]


def _keeper(context: Context, run_id: str) -> int:
    with open(context.runs.layout.alive(run_id), encoding="ascii") as file:
        return int(file.read().splitlines()[-1].split()[0])


def _resident(pid: int) -> float:
    """The resident kB of a process, when they have stopped growing."""
    seen: list[int] = []

    def steady() -> bool:
        time.sleep(SETTLING)
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            seen.append(next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")))
        return len(seen) > 5 and len(set(seen[-5:])) == 1

    bounded(steady, "the start of an idle process")
    return seen[-1]


def _cpu_ms(pid: int) -> float:
    """What a process has used so far, by the kernel's clock for it (clock_getcpuclockid), which counts nanoseconds."""
    return time.clock_gettime((~pid << 3) | 2) * 1000


def many(home: str, folder: str, rounds: int) -> list[Row]:
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
        _at_once((SUBAGENT, "run", "Wait", "--", *gate.command), environment(home, SUBAGENT_RUNS_DIR=busy), home)
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


def _at_once(words: tuple[str, ...], environ: dict[str, str], home: str) -> None:
    """Starts as many processes as there are runs, and returns when all have ended well."""
    files = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    talk = os.path.join(home, "many-stderr")
    files.append((os.POSIX_SPAWN_OPEN, 2, talk, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    pids: list[int] = []
    codes: list[int] = []
    try:
        for _ in range(MANY):
            pids.append(os.posix_spawn(words[0], words, environ, file_actions=files))
        codes += [finished(pid) for pid in pids]
    finally:
        # Also when one could not be started, or somebody interrupts us: a run can only be ended when it is there.
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
    if any(codes):
        with open(talk, encoding="utf-8", errors="replace") as file:
            raise RuntimeError(f"{sum(map(bool, codes))} of {MANY} runs were not started: {file.read()[:2000]}")


def captures(folder: str, rounds: int) -> list[Row]:
    """How fast an agent gets rid of its output, beside the same into a file of the same disk."""
    writer, told = os.path.join(folder, "writer.py"), os.path.join(folder, "seconds")
    with open(writer, "w", encoding="utf-8") as file:
        file.write(WRITER)
    limit = 4 * FLOOD_MB * 1_000_000

    def rate(total: int) -> float:
        with open(told, encoding="utf-8") as file:
            seconds = float(file.read())
        os.unlink(told)
        return total / 1_000_000 / seconds

    def words(size: int, total: int, line: str) -> tuple[str, ...]:
        return (sys.executable, writer, told, str(size), str(total), line)

    def redirected(size: int, total: int, line: str) -> float:
        path, argv = os.path.join(folder, "redirected"), words(size, total, line)
        files = [(os.POSIX_SPAWN_OPEN, 1, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)]
        pid = os.posix_spawn(argv[0], argv, dict(os.environ), file_actions=files)
        code = finished(pid)
        if code or os.path.getsize(path) < total // size * size:
            raise RuntimeError(f"the redirected writer ended with {code}")
        os.unlink(path)
        return rate(total)

    with runs_below(os.path.join(folder, "captures"), log_limit=str(limit)) as context:

        def captured(size: int, total: int, line: str) -> float:
            run_id = launches.run(context, Request("Write", command=words(size, total, line)))["runId"]
            # Not by `wait`, which looks up at every change of the log and would take its part of two cores.
            bounded(lambda: os.path.exists(told) and os.path.getsize(told) > 0, "an agent that writes")
            over(context, [run_id])
            log = context.runs.layout.log(run_id)
            if os.path.getsize(log) < total // size * size:
                raise RuntimeError(f"of {total} bytes that an agent put out, {os.path.getsize(log)} are in its log")
            os.unlink(log)
            gone(context)
            return rate(total)

        flood, drip = (FLOOD_WRITE, FLOOD_MB * 1_000_000), (LINE, DRIP_MB * 1_000_000)
        per_second = shuffled(
            {
                "flood": lambda: captured(*flood, TEXT),
                "letter": lambda: captured(*flood, LETTER),
                "flood >": lambda: redirected(*flood, TEXT),
                "drip": lambda: captured(*drip, TEXT),
                "drip >": lambda: redirected(*drip, TEXT),
            },
            rounds,
        )
    what = f"log, {FLOOD_MB} MB in 64 kB writes"
    return [
        Row(what, per_second["flood"], per_second["flood >"], "> file", "MB/s", 0.3),
        Row(f"{what}, one letter", per_second["letter"], per_second["flood >"], "> file", "MB/s", 0.3),
        Row(f"log, {DRIP_MB} MB, a write a line", per_second["drip"], per_second["drip >"], "> file", "MB/s"),
    ]


def ends(folder: str, rounds: int) -> list[Row]:
    """How long after the keeper recorded the end those who wait for it know, beside the kernel's own word.

    The end is dated before it is durable, in whole milliseconds, so the figures hold the commit too."""
    root = os.path.join(folder, "ends")
    with runs_below(root) as context, Gate(os.path.join(folder, "ends-gate")) as gate:
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
    what = "wait: from the end's record to its return"
    return [
        Row(what, ms["ours"], ms["bare"], "bare inotify wake-up", "ms"),
        Row(what, ms["ours"], WAIT_LIMIT_MS, "the limit", "ms", 1.0),
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

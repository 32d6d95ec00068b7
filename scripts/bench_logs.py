"""How fast an agent gets rid of its output into its log, beside the same into a file of the same disk."""

import os
import sys
from collections.abc import Callable

from scripts import bench_double
from scripts.bench_rounds import finished, shuffled
from scripts.bench_runs import bounded, endable, gone, over, runs_below
from scripts.bench_table import Part, Row
from subagent_cli.services import launches
from subagent_cli.services.launches import Request

FLOOD_MB, FLOOD_WRITE = 192, 65_536
DRIP_MB, LINE = 16, 80
REDIRECT_GOAL, SERVER_GOAL = 0.3, 2.0
REDIRECT, SERVER = "> file", f"{bench_double.STAND_IN}'s capture"

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


class Output:
    """What an agent puts out here, and the word of it how fast it got rid of that."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._writer, self._told = os.path.join(folder, "writer.py"), os.path.join(folder, "seconds")
        with open(self._writer, "w", encoding="utf-8") as file:
            file.write(WRITER)

    def words(self, size: int, total: int, line: str) -> tuple[str, ...]:
        return (sys.executable, self._writer, self._told, str(size), str(total), line)

    def written(self) -> bool:
        return os.path.exists(self._told) and os.path.getsize(self._told) > 0

    def rate(self, log: str, size: int, total: int) -> float:
        """MB a second; the log, which must hold all of it, is gone afterwards."""
        held = os.path.getsize(log)
        if held < total // size * size:
            raise RuntimeError(f"of {total} bytes that an agent put out, {held} are in {log}")
        with open(self._told, encoding="utf-8") as file:
            seconds = float(file.read())
        os.unlink(self._told)
        os.unlink(log)
        return total / 1_000_000 / seconds


def logs(home: str, rounds: int) -> Part:
    folder = os.path.join(home, "logs")
    os.mkdir(folder)
    output = Output(folder)
    flood, drip = (FLOOD_WRITE, FLOOD_MB * 1_000_000), (LINE, DRIP_MB * 1_000_000)
    with endable(), runs_below(os.path.join(folder, "runs"), log_limit=str(4 * flood[1])) as context:

        def captured(size: int, total: int, line: str) -> float:
            run_id = launches.run(context, Request("Write", command=output.words(size, total, line)))["runId"]
            # Not by `wait`, which looks up at every change of the log and would take its part of two cores.
            bounded(output.written, "an agent that writes")
            over(context, [run_id])
            gone(context)
            return output.rate(context.runs.layout.log(run_id), size, total)

        measures: dict[str, Callable[[], float]] = {
            "flood": lambda: captured(*flood, TEXT),
            "letter": lambda: captured(*flood, LETTER),
            "flood >": lambda: _redirected(output, *flood),
            "drip": lambda: captured(*drip, TEXT),
            "drip >": lambda: _redirected(output, *drip),
        }
        left_out: list[str] = []
        if why := bench_double.no_node():
            left_out.append(f"logs beside the {SERVER}: {why}")
        else:
            measures["flood server"] = lambda: _by_stand_in(output, *flood)
        per_second = shuffled(measures, rounds)
    what = f"log, {FLOOD_MB} MB in 64 kB writes"
    rows = [
        Row(what, per_second["flood"], per_second["flood >"], REDIRECT, "MB/s", REDIRECT_GOAL),
        Row(f"{what}, one letter", per_second["letter"], per_second["flood >"], REDIRECT, "MB/s", REDIRECT_GOAL),
        Row(f"log, {DRIP_MB} MB, a write a line", per_second["drip"], per_second["drip >"], REDIRECT, "MB/s"),
    ]
    if "flood server" in per_second:
        theirs = per_second["flood server"]
        rows.append(Row(what, per_second["flood"], theirs, SERVER, "MB/s", SERVER_GOAL, imitation=True))
    return Part(f"logs, {rounds} rounds", rows, left_out)


def _redirected(output: Output, size: int, total: int) -> float:
    path, argv = os.path.join(output.folder, "redirected"), output.words(size, total, TEXT)
    files = [(os.POSIX_SPAWN_OPEN, 1, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)]
    if code := finished(os.posix_spawn(argv[0], argv, dict(os.environ), file_actions=files)):
        raise RuntimeError(f"the redirected writer ended with {code}")
    return output.rate(path, size, total)


def _by_stand_in(output: Output, size: int, total: int) -> float:
    path = os.path.join(output.folder, "captured")
    argv = (*bench_double.capture(path), *output.words(size, total, TEXT))
    if code := finished(os.posix_spawn(argv[0], argv, dict(os.environ))):
        raise RuntimeError(f"the {SERVER} ended with {code}")
    return output.rate(path, size, total)

"""Measures ourselves beside our yardsticks: `python scripts/bench.py [--quick] [--json] [--only PART] [--save DIR]`.

Promises: every figure and its yardstick come from the same run, in rounds whose order is shuffled anew each time, and
are medians; only the ratios mean anything on another machine. All of it happens in a temporary folder that is removed.
A missed goal is told, not punished: the exit code says only whether the measuring itself went well.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scripts import bench_cycles, bench_living, bench_report, bench_scale, bench_wakes
from scripts.bench_cold import cold_starts
from scripts.bench_logs import logs
from scripts.bench_machine import machine
from scripts.bench_report import Report
from scripts.bench_rounds import SUBAGENT, say
from scripts.bench_table import Part

PARTS: dict[str, tuple[str, Callable[[str, bool], Part]]] = {
    "cold": ("cold starts", lambda home, quick: cold_starts(home, 11 if quick else 40)),
    "cycles": (
        "cycles of a conversation",
        lambda home, quick: bench_cycles.cycles(home, bench_cycles.QUICK if quick else bench_cycles.FULL),
    ),
    "messages": (
        "cycles in runs that have many messages",
        lambda home, quick: bench_cycles.messages(home, bench_cycles.QUICK if quick else bench_cycles.FULL),
    ),
    "wakes": (
        "wake-ups",
        lambda home, quick: bench_wakes.wakes(home, bench_wakes.QUICK if quick else bench_wakes.FULL),
    ),
    "living": (
        "runs that live",
        lambda home, quick: bench_living.living(home, bench_living.QUICK if quick else bench_living.FULL),
    ),
    "logs": ("logs", lambda home, quick: logs(home, 5 if quick else 21)),
    "scale": (
        "runs that have ended",
        lambda home, quick: bench_scale.scale(home, bench_scale.QUICK if quick else bench_scale.FULL),
    ),
}


@contextmanager
def home_below(parent: str | None) -> Iterator[str]:
    """A folder for all that is measured here, in which we are, and which is gone when the block has ended."""
    home = tempfile.mkdtemp(prefix="subagent-bench-", dir=parent)
    back = os.getcwd()
    # What runs in this process reads settings too: they come from here, and so there are none.
    os.chdir(home)
    os.environ["XDG_CONFIG_HOME"] = home
    try:
        yield home
    finally:
        os.chdir(back)
        say("tidying up")
        shutil.rmtree(home)


def measured(home: str, quick: bool, only: str | None = None) -> Report:
    begin = time.monotonic()
    parts: list[Part] = []
    for place, (name, (what, measure)) in enumerate(PARTS.items(), 1):
        if only in (None, name):
            say(f"{what} ({place} of {len(PARTS)})")
            parts.append(measure(home, quick))
            for missing in parts[-1].left_out:
                say(f"  left out: {missing}")
    return Report(machine(home), parts, quick, time.monotonic() - begin)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure subagent beside its yardsticks.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, 10,000 ended runs instead of 100,000")
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", metavar="DIR", help="write figures and drawings into the documents in this folder")
    parser.add_argument("--dir", metavar="DIR", help="where to make the temporary folder: on the disk that is meant")
    given = parser.parse_args()
    if not os.access(SUBAGENT, os.X_OK):
        parser.error(f"{SUBAGENT} is not there; `make bench` installs it")
    if given.save and given.only:
        parser.error("documents hold a whole run: --save does not go with --only")
    for name in [name for name in os.environ if name.startswith("SUBAGENT_")]:
        del os.environ[name]
    documents = os.path.abspath(given.save) if given.save else None
    if documents:
        # Rather now than when everything is measured.
        bench_report.around(documents)
    with home_below(given.dir) as home:
        report = measured(home, given.quick, given.only)
        # Before a hundred thousand folders are removed, which takes its time too.
        print(bench_report.as_json(report) if given.json else bench_report.text(report), flush=True)
        if documents:
            say(f"written in {given.save}: {', '.join(bench_report.save(report, documents))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measures ourselves beside our yardsticks: `python scripts/bench.py [--quick] [--json] [--only PART]`.

Promises: every figure and its yardstick come from the same run, in rounds whose order is shuffled anew each time, and
are medians; only the ratios mean anything on another machine. All of it happens in a temporary folder that is removed.
A missed goal is told, not punished: the exit code says only whether the measuring itself went well.
"""

import argparse
import json
import os
import platform
import shutil
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from scripts import bench_living
from scripts.bench_table import (
    SUBAGENT,
    Beside,
    Case,
    Row,
    environment,
    opened,
    say,
    shuffled,
    started,
    table,
)
from subagent_cli.core.event import Created, Reported
from subagent_cli.core.evolution import fold
from subagent_cli.core.projection import project
from subagent_cli.core.run import CREATED, SUCCESS, Run
from subagent_cli.services import questions, runs, sweep, waiting
from subagent_cli.services.context import Context
from subagent_cli.store import codec, journal
from subagent_cli.store import runs as store
from subagent_cli.store.watch import Watch

ACTIVE = 50
LONG = 1000
CLICK_APP = """\
#!{python}
import sys
import click

@click.group()
def cli():
    "The least that a click program can be."

@cli.command()
@click.argument("name")
def hello(name):
    "Greet somebody."
    click.echo(name)

if __name__ == "__main__":
    sys.exit(cli())
"""


class Amounts(NamedTuple):
    """How often and how much; `cycles` is a batch in a new run, `long_cycles` one in a run of 1,000 messages."""

    starts: int
    scale_starts: int
    many: int
    batches: int
    cycles: int
    long_cycles: int
    wakes: int
    living: bench_living.Amounts


FULL = Amounts(
    40, scale_starts=21, many=100_000, batches=21, cycles=50, long_cycles=10, wakes=200, living=bench_living.FULL
)
QUICK = Amounts(
    11, scale_starts=7, many=10_000, batches=5, cycles=50, long_cycles=5, wakes=40, living=bench_living.QUICK
)
PARTS = ("cold", "cycles", "wakes", "living", "scale")
FEW = 1000
SCALE_GOALS = {
    "pending": 1.2,
    "status": 1.2,
    "sweep": 1.2,
    "pending, runs/ found here": 1.2,
    "status RUN by 8 digits, --peek": None,
    "reply QUESTION": None,
}


WAKE_LIMIT_MS = 5.0


def new_run(context: Context) -> str:
    run_id: str = runs.create(context, "helper", "Tidy the notes")["runId"]
    return run_id


def asked(context: Context, run_id: str) -> str:
    message_id: str = questions.ask(context, "Delete the old ones?", run=run_id, options=("yes", "no"))["messageId"]
    return message_id


def cold_starts(home: str, rounds: int) -> list[Row]:
    """What every call from a shell pays."""
    click_app = os.path.join(home, "click-app")
    with open(click_app, "w", encoding="utf-8") as file:
        file.write(CLICK_APP.format(python=sys.executable))
    os.chmod(click_app, stat.S_IRWXU)

    # Calls that write have runs of their own, so that what the others read stays as it is.
    still, busy = os.path.join(home, "still"), os.path.join(home, "busy")
    reader, writer = opened(still), opened(busy)
    run_id = new_run(reader)
    message_id = asked(reader, run_id)
    reader.runs.log(run_id, *(f"[stdout] line {number}" for number in range(LONG)), now=reader.clock.now())

    def process(*words: str, root: str = still) -> float:
        return started(Case(words, environment(home, SUBAGENT_RUNS_DIR=root), home))

    def ask() -> float:
        return process(SUBAGENT, "ask", "Delete the old ones?", "--run", new_run(writer), root=busy)

    def reply() -> float:
        return process(SUBAGENT, "reply", asked(writer, new_run(writer)), "1", root=busy)

    def acknowledge() -> float:
        fresh = new_run(writer)
        questions.reply(writer, asked(writer, fresh), "1")
        return process(SUBAGENT, "status", fresh, root=busy)

    yardstick, least = "python -c pass", "click app --help"
    measures: dict[str, Callable[[], float]] = {
        yardstick: lambda: process(sys.executable, "-c", "pass"),
        least: lambda: process(click_app, "--help"),
        "status RUN": lambda: process(SUBAGENT, "status", run_id),
        "pending": lambda: process(SUBAGENT, "pending"),
        "check QUESTION": lambda: process(SUBAGENT, "check", message_id),
        "logs RUN -n 10": lambda: process(SUBAGENT, "logs", run_id, "-n", "10"),
        "ask": ask,
        "reply QUESTION": reply,
        "status RUN, acknowledging": acknowledge,
        "--help": lambda: process(SUBAGENT, "--help"),
    }
    goals = {**dict.fromkeys(list(measures)[2:6], 4.5), **dict.fromkeys(list(measures)[6:9], 7.0)}
    ms = shuffled(measures, rounds)
    rows = [Row(least, ms[least], ms[yardstick], yardstick, "ms")]
    rows += [Row(name, ms[name], ms[yardstick], yardstick, "ms", goal) for name, goal in goals.items()]
    return [*rows, Row("--help", ms["--help"], ms[least], least, "ms", 1.15)]


def fill(context: Context, count: int) -> str:
    """Fifty active runs, each with a question, and so many finished ones. Returns an active one."""
    for _ in range(ACTIVE):
        run_id = new_run(context)
        asked(context, run_id)
    for _ in range(count):
        _finished(context)
    return run_id


def _finished(context: Context) -> None:
    """A run that has ended, as the store writes it, but without its syncs: a hundred thousand of them take minutes."""
    run_id, now = context.clock.new_id(), context.clock.now()
    events = (Created(now, run_id, "helper", "helper", CREATED), Reported(now, SUCCESS, now.iso, "Notes tidied"))
    picture = codec.document(project(fold(Run(run_id), events)))
    layout = context.runs.layout
    os.mkdir(layout.run(run_id))
    for path, data in (
        (layout.meta(run_id), picture),
        (layout.journal(run_id), journal.lines(0, [(event, None) for event in events], journal.digest(picture))),
    ):
        with open(path, "wb", buffering=0) as file:
            file.write(data)


def scale(home: str, amounts: Amounts) -> list[Row]:
    """What runs that have long ended cost those who ask about the others."""
    measures: dict[str, Callable[[], float]] = {}
    for count in (FEW, amounts.many):
        folder = os.path.join(home, f"of-{count}")
        os.mkdir(folder)
        for what, measure in _verbs_beside_many(home, folder, count).items():
            measures[f"{what}: {count:,} ended runs"] = measure
    newest = f"list --limit 50: {amounts.many:,} ended runs"
    measures |= _names_of_many(home, os.path.join(folder, "runs"), newest)
    ms = shuffled(measures, amounts.scale_starts)
    rows = [Row(newest, ms[newest], ms[tool], tool, "ms", goal) for tool, goal in (("ls", 1.5), ("ls -f", None))]
    return rows + [
        Row(
            f"{what}: {amounts.many:,} ended runs",
            ms[f"{what}: {amounts.many:,} ended runs"],
            ms[f"{what}: {FEW:,} ended runs"],
            f"{FEW:,} ended runs",
            "ms",
            goal,
        )
        for what, goal in SCALE_GOALS.items()
    ]


def _verbs_beside_many(home: str, folder: str, count: int) -> dict[str, Callable[[], float]]:
    root = os.path.join(folder, "runs")
    context = opened(root)
    run_id = fill(context, count)
    # The first sweep looks at every run, those after it only at what has changed.
    sweep.sweep(context)
    named, unnamed = environment(home, SUBAGENT_RUNS_DIR=root), environment(home)
    measures: tuple[Callable[[], float], ...] = (
        lambda: started(Case((SUBAGENT, "pending"), named, home)),
        lambda: started(Case((SUBAGENT, "status"), named, home)),
        lambda: started(Case((SUBAGENT, "sweep"), named, home)),
        lambda: started(Case((SUBAGENT, "pending"), unnamed, folder)),
        lambda: started(Case((SUBAGENT, "status", run_id[-8:], "--peek"), named, home)),
        lambda: started(Case((SUBAGENT, "reply", asked(context, run_id), "1"), named, home)),
    )
    return dict(zip(SCALE_GOALS, measures, strict=True))


def _names_of_many(home: str, root: str, newest: str) -> dict[str, Callable[[], float]]:
    """The newest runs of many, beside the tools that only read the names of all."""
    ls = shutil.which("ls") or "/bin/ls"
    named = environment(home, SUBAGENT_RUNS_DIR=root)
    return {
        newest: lambda: started(Case((SUBAGENT, "list", "--limit", "50"), named, home)),
        "ls": lambda: started(Case((ls, root), named, home)),
        "ls -f": lambda: started(Case((ls, "-f", root), named, home)),
    }


def wakes(home: str, rounds: int) -> list[Row]:
    """How long after a reply was committed the one who waits for it has it, beside the kernel's own word."""
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
    what = "ask --wait: from the reply's commit to the answer"
    return [
        Row(what, ms["ours"], ms["bare"], "bare inotify wake-up", "ms"),
        Row(what, ms["ours"], WAKE_LIMIT_MS, "the limit", "ms", 1.0),
    ]


class OurBus:
    """A conversation through our services, in one process. The durable steps of a cycle are three, as in the others."""

    def __init__(self, folder: str) -> None:
        self.context = opened(os.path.join(folder, "runs"))
        self.run_id = ""

    def begin(self, messages: int) -> None:
        self.run_id = new_run(self.context)
        for _ in range(messages):
            self.cycle()

    def cycle(self) -> None:
        message_id = questions.ask(self.context, "Delete the old ones?", run=self.run_id)["messageId"]
        questions.reply(self.context, message_id, "yes")
        if questions.check(self.context, message_id)["answer"] != "yes":
            raise RuntimeError("the answer did not arrive")


class SqliteBus:
    """The same in SQLite, which acknowledges nothing that a power cut could take away (WAL, FULL)."""

    def __init__(self, folder: str) -> None:
        self.clock = opened(folder).clock
        self.run_id = ""
        self.db = sqlite3.connect(os.path.join(folder, "bus.db"), isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute(
            "CREATE TABLE message (id TEXT PRIMARY KEY, run TEXT, question TEXT, asked TEXT, answer TEXT,"
            " answered TEXT, state TEXT)"
        )

    def begin(self, messages: int) -> None:
        self.run_id = self.clock.new_id()
        for _ in range(messages):
            self.cycle()

    def cycle(self) -> None:
        message_id = self.clock.new_id()
        self.db.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, NULL, NULL, 'PENDING')",
            (message_id, self.run_id, "Delete the old ones?", self.clock.now().iso),
        )
        self.db.execute(
            "UPDATE message SET answer = ?, answered = ?, state = 'ANSWERED' WHERE id = ? AND state = 'PENDING'",
            ("yes", self.clock.now().iso, message_id),
        )
        (answer,) = self.db.execute("SELECT answer FROM message WHERE id = ?", (message_id,)).fetchone()
        self.db.execute("UPDATE message SET state = 'RETRIEVED' WHERE id = ? AND state = 'ANSWERED'", (message_id,))
        if answer != "yes":
            raise RuntimeError("the answer did not arrive")


class FileBus:
    """The same with one JSON file that is replaced durably at every step: temporary, fsync, rename, fsync folder."""

    def __init__(self, folder: str) -> None:
        self.clock = opened(folder).clock
        self.folder = folder
        self.path = os.path.join(folder, "bus.json")
        self.messages: list[dict[str, str]] = []

    def begin(self, messages: int) -> None:
        self.messages = []
        for _ in range(messages):
            self.cycle()

    def cycle(self) -> None:
        message = {"id": self.clock.new_id(), "question": "Delete the old ones?", "asked": self.clock.now().iso}
        self.messages.append(message)
        self._save()
        message.update(answer="yes", answered=self.clock.now().iso, state="ANSWERED")
        self._save()
        message["state"] = "RETRIEVED"
        self._save()

    def _save(self) -> None:
        temporary = f"{self.path}.tmp"
        with open(temporary, "wb") as file:
            file.write(json.dumps(self.messages).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def cycles(home: str, amounts: Amounts) -> list[Row]:
    """ask → reply → check in one process: in a new run, and in one that has 1,000 messages."""
    buses: dict[str, OurBus | SqliteBus | FileBus] = {}
    for name, kind in (("ours", OurBus), ("SQLite WAL FULL", SqliteBus), ("temp+fsync+rename", FileBus)):
        for size in ("new", "long"):
            folder = os.path.join(home, f"bus-{len(buses)}")
            os.mkdir(folder)
            buses[f"{name} {size}"] = kind(folder)
    for name, bus in buses.items():
        if name.endswith("long"):
            bus.begin(LONG)

    def rate(name: str) -> float:
        bus = buses[name]
        long = name.endswith("long")
        if not long:
            bus.begin(0)
        count = amounts.long_cycles if long else amounts.cycles
        begin = time.perf_counter()
        for _ in range(count):
            bus.cycle()
        return count / (time.perf_counter() - begin)

    per_second = shuffled({name: lambda name=name: rate(name) for name in buses}, amounts.batches)  # type: ignore[misc]
    rows: list[Row] = []
    for size, what in (("new", "cycles, new run"), ("long", f"cycles, run of {LONG:,} messages")):
        for beside in ("SQLite WAL FULL", "temp+fsync+rename"):
            goal = 0.4 if (size, beside) == ("new", "SQLite WAL FULL") else None
            rows.append(Row(what, per_second[f"ours {size}"], per_second[f"{beside} {size}"], beside, "/s", goal))
    sizes = {size: _picture_size(buses[f"ours {size}"]) for size in ("new", "long")}
    # A batch in a new run begins with no message, so the document was half as large on average.
    growth = sizes["long"] / (sizes["new"] / 2)
    slowdown = per_second["ours new"] / per_second["ours long"]
    return [*rows, Row(f"cost of a cycle, {LONG:,} messages / new", slowdown, growth, "size of .meta.json", "x", 1.0)]


def _picture_size(bus: object) -> int:
    assert isinstance(bus, OurBus)
    return os.path.getsize(bus.context.runs.layout.meta(bus.run_id))


def file_system(folder: str) -> str:
    """The kind of file system, since a sync means little on one that lives in memory."""
    try:
        with open("/proc/self/mounts", encoding="utf-8") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return "unknown"
    above = [
        (len(place), kind) for place, kind in mounts if os.path.join(folder, "").startswith(os.path.join(place, ""))
    ]
    return max(above)[1] if above else "unknown"


def measured(parent: str | None, amounts: Amounts, only: str | None = None) -> tuple[list[Row], str]:
    home = tempfile.mkdtemp(prefix="subagent-bench-", dir=parent)
    back = os.getcwd()
    # What runs in this process reads settings too: they come from here, and so there are none.
    os.chdir(home)
    os.environ["XDG_CONFIG_HOME"] = home
    parts: tuple[tuple[str, Callable[[], list[Row]]], ...] = (
        (f"cold starts, {amounts.starts} rounds", lambda: cold_starts(home, amounts.starts)),
        (f"cycles, {amounts.batches} rounds", lambda: cycles(home, amounts)),
        (f"wake-ups, {amounts.wakes} rounds", lambda: wakes(home, amounts.wakes)),
        (
            f"runs that live, {bench_living.MANY} at once, {amounts.living.starts} starts",
            lambda: bench_living.living(home, amounts.living),
        ),
        (f"{amounts.many:,} ended runs, {amounts.scale_starts} rounds", lambda: scale(home, amounts)),
    )
    try:
        rows: list[Row] = []
        for name, (what, measure) in zip(PARTS, parts, strict=True):
            if only in (None, name):
                say(what)
                rows += measure()
        return rows, file_system(os.path.realpath(home))
    finally:
        os.chdir(back)
        say("tidying up")
        shutil.rmtree(home)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure subagent beside its yardsticks.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, 10,000 ended runs instead of 100,000")
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--dir", metavar="DIR", help="where to make the temporary folder: on the disk that is meant")
    given = parser.parse_args()
    if not os.access(SUBAGENT, os.X_OK):
        parser.error(f"{SUBAGENT} is not there; `make bench` installs it")
    for name in [name for name in os.environ if name.startswith("SUBAGENT_")]:
        del os.environ[name]
    amounts = QUICK if given.quick else FULL
    rows, kind = measured(given.dir, amounts, given.only)
    about: dict[str, Any] = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "fileSystem": kind,
        "rounds": {
            "coldStarts": amounts.starts,
            "cycles": amounts.batches,
            "wakes": amounts.wakes,
            "living": amounts.living._asdict(),
            "scale": amounts.scale_starts,
        },
    }
    if given.json:
        lines = [
            {**row._asdict(), "ratio": row.ratio, "sign": row.sign, "verdict": row.verdict or None} for row in rows
        ]
        print(json.dumps({**about, "rows": lines}, indent=2))
        return 0
    print(table(rows))
    print(
        f"\nMedians of shuffled rounds: {amounts.starts} of cold starts, {amounts.batches} of cycles,"
        f" {amounts.wakes} of wake-ups, {amounts.scale_starts} of ended runs;"
        f" of runs that live {amounts.living.starts} starts, {amounts.living.statuses} statuses,"
        f" {amounts.living.captures} captures, {amounts.living.ends} ends."
        f"\nPython {about['python']}, {about['cores']} cores, {kind}. Only the ratios travel."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""ask → reply → check in one process, beside the other ways to hold a conversation, and as a run gets longer."""

import os
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from scripts import bench_double
from scripts.bench_buses import ANSWER, Bus, FileBus, JournalBus, OurBus, SqliteBus, cycle
from scripts.bench_double import DoubleBus
from scripts.bench_rounds import every_round, shuffled
from scripts.bench_table import Curve, Line, Part, Row

OURS, SQLITE, DOUBLE = "ours", "SQLite WAL FULL", bench_double.NAME
FILES, JOURNAL = "temp+fsync+rename", "append+fdatasync, rename"
LONG = 1000
SQLITE_GOAL, NEW_GOAL, LONG_GOAL = 0.4, 2.0, 1.0
# From here on a message more or less makes no difference, so that the run need not be a new one each time.
LARGE = 1000


class Amounts(NamedTuple):
    """How often; `new` and `long` are the cycles of a batch in a new run and in one of 1,000 messages."""

    batches: int
    new: int
    long: int
    sizes: tuple[int, ...]
    rounds: int


FULL = Amounts(batches=21, new=50, long=10, sizes=(1, 10, 100, 1_000, 10_000), rounds=15)
QUICK = Amounts(batches=5, new=50, long=5, sizes=(1, 10, 100, 1_000), rounds=5)


class Steps(NamedTuple):
    """Milliseconds."""

    ask: float
    reply: float
    check: float


def cycles(home: str, amounts: Amounts) -> Part:
    """How many a second: in a new run, and in one that has 1,000 messages."""
    folder = os.path.join(home, "cycles")
    left_out = _without_double("cycles")
    kinds = (OURS, SQLITE, FILES, JOURNAL, *(() if left_out else (DOUBLE,)))
    with Buses(folder, [f"{name} {size}" for name in kinds for size in ("new", "long")]) as buses:
        for name in kinds:
            buses[f"{name} long"].begin(LONG)

        def rate(name: str) -> float:
            bus, long = buses[name], name.endswith("long")
            if not long:
                bus.begin(0)
            count = amounts.long if long else amounts.new
            begin = time.perf_counter()
            for _ in range(count):
                cycle(bus)
            return count / (time.perf_counter() - begin)

        per_second = shuffled({name: lambda name=name: rate(name) for name in buses}, amounts.batches)  # type: ignore[misc]
    goals = {(SQLITE, "new"): SQLITE_GOAL, (DOUBLE, "new"): NEW_GOAL, (DOUBLE, "long"): LONG_GOAL}
    rows = [
        Row(
            what,
            per_second[f"{OURS} {size}"],
            per_second[f"{beside} {size}"],
            beside,
            "/s",
            goals.get((beside, size)),
            imitation=beside == DOUBLE,
        )
        for size, what in (("new", "cycles, new run"), ("long", f"cycles, run of {LONG:,} messages"))
        for beside in kinds
        if beside != OURS
    ]
    return Part(f"ask → reply → check in one process, {amounts.batches} rounds", rows, left_out)


def messages(home: str, amounts: Amounts) -> Part:
    """What each step costs in a run that already has so many messages."""
    left_out = _without_double("the curve of messages")
    kinds = (OURS, SQLITE, *(() if left_out else (DOUBLE,)))
    names = {f"{name} {size}": (name, size) for name in kinds for size in amounts.sizes}
    sizes: dict[int, int] = {}
    with Buses(os.path.join(home, "messages"), names) as buses:
        for name, (_, size) in names.items():
            buses[name].begin(size - 1)

        def steps(name: str) -> Steps:
            bus, size = buses[name], names[name][1]
            if size < LARGE:
                bus.begin(size - 1)
            # The first one also reads what is there already, or what others have pushed out of memory meanwhile.
            cycle(bus)
            made = _steps(bus)
            if isinstance(bus, OurBus):
                sizes[size] = bus.size()
            return made

        found = every_round({name: lambda name=name: steps(name) for name in names}, amounts.rounds)  # type: ignore[misc]
    ms = {key: Steps(*map(median, zip(*found[name], strict=True))) for name, key in names.items()}
    return Part(
        f"a cycle as a run gets longer, {amounts.rounds} rounds",
        list(_growth(amounts.sizes, {size: sum(ms[OURS, size]) for size in amounts.sizes}, sizes)),
        left_out,
        Curve(
            "messages",
            "What a step costs in a run that has many messages",
            "One process. Dashed: yardsticks, the mean step of a cycle."
            + ("" if left_out else " The double is an imitation of ours."),
            "messages in the run",
            _lines(kinds, amounts.sizes, ms),
        ),
    )


class Buses(dict[str, Bus]):
    """Conversations by name, each in a folder of its own; what runs beside us for one has ended when the block has."""

    def __init__(self, home: str, names: Iterable[str]) -> None:
        super().__init__()
        os.mkdir(home)
        self._doubles: list[DoubleBus] = []
        kinds: dict[str, Callable[[str], Bus]] = {
            OURS: OurBus,
            SQLITE: SqliteBus,
            FILES: FileBus,
            JOURNAL: JournalBus,
            DOUBLE: self._double,
        }
        try:
            for name in names:
                folder = os.path.join(home, str(len(self)))
                os.mkdir(folder)
                self[name] = kinds[name.rpartition(" ")[0]](folder)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> "Buses":
        return self

    def __exit__(self, *_: object) -> None:
        for double in self._doubles:
            double.close()

    def _double(self, folder: str) -> DoubleBus:
        self._doubles.append(DoubleBus(folder))
        return self._doubles[-1]


def _without_double(what: str) -> list[str]:
    why = bench_double.missing()
    return [f"{what} beside the {DOUBLE}: {why}"] if why else []


def _steps(bus: Bus) -> Steps:
    times = [time.perf_counter()]
    message_id = bus.ask()
    times.append(time.perf_counter())
    bus.reply(message_id)
    times.append(time.perf_counter())
    answer = bus.check(message_id)
    times.append(time.perf_counter())
    if answer != ANSWER:
        raise RuntimeError("the answer did not arrive")
    return Steps(*((after - before) * 1000 for before, after in pairwise(times)))


def _growth(amounts: tuple[int, ...], ms: dict[int, float], sizes: dict[int, int]) -> list[Row]:
    """The cost of a cycle beside the size of the document, from each amount to the one that is a hundred times it."""
    return [
        Row(
            f"cost of a cycle, {size:,} messages / {size // 100:,}",
            ms[size] / ms[size // 100],
            sizes[size] / sizes[size // 100],
            "size of .meta.json",
            "x",
            1.0,
        )
        for size in amounts
        if size // 100 in amounts
    ]


def _lines(kinds: tuple[str, ...], sizes: tuple[int, ...], ms: dict[tuple[str, int], Steps]) -> list[Line]:
    ours = [Line(step, [(size, getattr(ms[OURS, size], step)) for size in sizes], ours=True) for step in Steps._fields]
    theirs = [
        Line(name, [(size, sum(ms[name, size]) / 3) for size in sizes], ours=False) for name in kinds if name != OURS
    ]
    return [*ours, *theirs]

"""Writers that are killed lose nothing that they were told is safe, tear nothing and block nobody: five thousand of
them at random moments of all verbs, and each verb at each named point of its change.

It takes about four minutes.
"""

import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.store.world import new_run, open_at
from tests.stress.aftermath import Toll, cleared, hold, no_toll
from tests.stress.conftest import Told
from tests.stress.deeds import DEEDS
from tests.stress.ground import Ground, quick_folder
from tests.stress.nursing import Nursery, nursery
from tests.stress.promises import Promises

SEASONS, NURSERIES, KILLS = 50, 4, 25
RUNS = 3
TIMES = 25
CHANGE = ("locked", "folded", "decided", "indexed", "committed", "replaced", "released")
MAKING = ("prepared", "entered", "appeared")
REMOVAL = ("trashed", "forgotten", "deleted")
# From these on the deed has happened.
COMMITTED = ("committed", "replaced", "released", "appeared", *REMOVAL)

# The points that a verb comes by. A message that is put has none: it appears with one rename.
POINTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("ask", "reply", "check", "update", "submit", "tell", "sweep"), CHANGE),
    # What these write down is nothing that the document shows.
    **dict.fromkeys(("grant", "send"), tuple(point for point in CHANGE if point != "replaced")),
    "create": MAKING,
    "spawn": MAKING,
    "clean": REMOVAL,
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder:
        yield folder


@pytest.fixture(autouse=True)
def _no_keepers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subagent_cli.process.launch.start", lambda *_: None)


def season(folder: Path, nurseries: Sequence[Nursery], number: int, toll: Toll) -> tuple[int, Counter[str], int]:
    """Kills writers on a few runs that all of them use; how many, how often what was promised, and the temporary files
    that were left."""
    root = folder / str(number)
    context = open_at(root)
    run_ids = [new_run(context) for _ in range(RUNS)]
    for place, warm in enumerate(nurseries):
        warm.begin_chats(root, run_ids, KILLS, number * NURSERIES + place)
    chats = [told for warm in nurseries for told in warm.chats()]
    lines = [line for told in chats for line in told]
    promises, where = Promises(root), f"season {number}"
    for line in lines:
        if line[0] == "fault":
            toll.wrong.append(f"{where}: {line[2]}")
        elif not promises.kept(line):
            toll.lost.append(f"{where}: {line}")
    hold(root, toll, where)
    left = cleared(root, toll, where)
    shutil.rmtree(root)
    return len(chats), Counter(line[0] for line in lines), left


@pytest.mark.stress
def test_five_thousand_writers_that_are_killed_at_random_lose_nothing_they_were_told_is_safe(
    folder: Path, told: Told
) -> None:
    toll, promised, left, kills = no_toll(), Counter[str](), 0, 0
    with ExitStack() as stack:
        nurseries = [stack.enter_context(nursery()) for _ in range(NURSERIES)]
        for number in range(SEASONS):
            deaths, verbs, files = season(folder, nurseries, number, toll)
            kills, promised, left = kills + deaths, promised + verbs, left + files
    told(
        "kill -9 at random",
        f"{kills:,} kills, {promised.total():,} promises of {len(promised)} verbs",
        f"{toll}; {left} temporary files left, all swept",
    )
    assert not any(toll), toll.shown
    assert kills == SEASONS * NURSERIES * KILLS <= promised.total()
    assert len(promised) >= 11


def killed(ground: Ground, warm: Nursery, point: str, toll: Toll) -> tuple[bool, int]:
    """Kills a verb at a point; whether it died, and how many temporary files that left."""
    root, where = ground.fresh(), f"{ground.verb} at {point}"
    end = warm.call(root, ground.errand, point=point)
    if end.status != -signal.SIGKILL or end.said is not None:
        toll.wrong.append(f"{where}: it was not killed: {end}")
    count = ground.deed.count(open_at(root))
    # A spawn comes by these points with its first run, long before there is a group.
    if count != (point in COMMITTED and ground.verb != "spawn"):
        (toll.lost if count == 0 else toll.torn).append(f"{where}: it has happened {count} times")
    ground.once_more(root, toll, where, most=1 if ground.deed.repeatable else 2)
    left = cleared(root, toll, where)
    shutil.rmtree(root)
    return end.status == -signal.SIGKILL, left


@pytest.mark.stress
def test_each_verb_that_is_killed_at_each_point_of_its_change_happened_whole_or_not_at_all(
    folder: Path, told: Told
) -> None:
    toll, left, kills = no_toll(), 0, 0
    with nursery() as warm:
        for verb, points in POINTS.items():
            ground = Ground(folder, verb)
            for point in tuple(points) * TIMES:
                died, files = killed(ground, warm, point, toll)
                kills, left = kills + died, left + files
    told(
        "kill -9 at named points",
        f"{kills:,} kills at {sum(map(len, POINTS.values()))} points of {len(POINTS)} verbs",
        f"{toll}; {left} temporary files left, all swept",
    )
    assert not any(toll), toll.shown
    assert POINTS.keys() == DEEDS.keys() - {"message put"}

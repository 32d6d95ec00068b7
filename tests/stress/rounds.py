"""A round of players at the same runs, some of whom are killed."""

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from subagent_cli.core.errors import SubagentError
from subagent_cli.core.event import Record
from subagent_cli.services import runs
from subagent_cli.services.context import Context
from tests.process.living import pause
from tests.services.test_waiting import Forked, Job, Start
from tests.store.world import open_at
from tests.stress.history import Call, Diary, read
from tests.stress.players import Onlooker, Player

# How often each is done, beside the others.
WRITES = {"ask": 20, "reply": 18, "check": 14, "status": 8, "tell": 10, "update": 8, "submit": 0.3, "sweep": 0.5}
READS = {"status": 10, "check": 8, "pending": 6}
RUNS = 5


class Round(NamedTuple):
    """What was played: every call, and in the end every run's journal."""

    calls: list[Call]
    journals: dict[str, list[Record]]
    kills: int


def play(root: Path, diaries: Path, seconds: float, writers: int, readers: int, seed: int) -> Round:
    """So many processes at the same runs; every now and then one of those who write is killed and another one comes."""
    diaries.mkdir(parents=True)
    context = open_at(root)
    made = [runs.create(context, "worker", "do it") for _ in range(RUNS)]
    tokens = {each["runId"]: each["env"]["SUBAGENT_TOKEN"] for each in made}
    chance = random.Random(seed)
    until = time.monotonic() + seconds

    def job(kind: type[Player], weights: Mapping[str, float]) -> Job:
        own = random.Random(chance.random())

        def does(start: Start) -> object:
            start()
            return kind(root, tokens, Diary(diaries), own).play(weights, until)

        return does

    kills = 0
    writing = [Forked(job(Player, WRITES)) for _ in range(writers)]
    looking = [Forked(job(Onlooker, READS)) for _ in range(readers)]
    try:
        for process in (*writing, *looking):
            process.go()
        while (left := until - time.monotonic()) > 0.3:
            pause(min(left, chance.uniform(0.02, 0.2)))
            place = chance.randrange(writers)
            writing[place].end()
            writing[place] = Forked(job(Player, WRITES))
            writing[place].go()
            kills += 1
        for process in (*writing, *looking):
            process.result()
    finally:
        for process in (*writing, *looking):
            process.end()
    last = Player(root, tokens, Diary(diaries), chance)
    for act in ("_sweep", "_status", "_pending"):
        for run_id in tokens:
            getattr(last, act)(run_id)
    return Round(read(diaries), {run_id: _journal(context, run_id) for run_id in tokens}, kills)


def _journal(context: Context, run_id: str) -> list[Record]:
    """The journal's lines; none where it cannot be read, so that all that was acknowledged is missed there."""
    try:
        return context.runs.records(run_id)
    except SubagentError:
        return []

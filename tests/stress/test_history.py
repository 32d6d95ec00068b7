"""The long version of the question whether what several processes were told at the same time can be true: rounds of six
who write, of whom one is killed every few moments, and two who look."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.stress import checker
from tests.stress.conftest import Trying
from tests.stress.history import OK, REFUSED, UNKNOWN
from tests.stress.rounds import play

SECONDS = 80.0
ROUND = 4.0


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_in_rounds_of_processes_that_are_killed_nobody_is_told_what_cannot_be_true(
    tmp_path: Path, trying: Trying
) -> None:
    outcomes: Counter[str] = Counter()
    kills = 0
    faults: list[str] = []
    until = time.monotonic() + SECONDS
    with trying("history of calls") as trial:
        for number in range(1000):
            played = play(
                tmp_path / str(number) / "runs", tmp_path / str(number) / "diaries", ROUND, 6, 2, random.getrandbits(64)
            )
            outcomes.update(call.outcome for call in played.calls)
            kills += played.kills
            faults += checker.faults(played.calls, played.journals)
            trial.tried = (
                f"{outcomes.total():,} calls ({outcomes[REFUSED]:,} refused, {outcomes[UNKNOWN]:,} cut off by "
                f"{kills:,} kills)"
            )
            trial.lost = f"{len(faults)} that cannot be true"
            if time.monotonic() > until:
                break
        assert faults == []
        assert min(outcomes[OK], outcomes[REFUSED], outcomes[UNKNOWN], kills) > 0

"""The long versions of what becomes of processes: every escape fifty times, whichever way its run ends, and fifty
keepers killed at any moment."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.process.living import Living
from tests.process.living import a_place_to_live as a_place_to_live
from tests.process.test_escapes import SCRIPTS, cancelled, timed_out
from tests.process.test_keeper import settled_after_kills
from tests.process.test_orphans import lost_and_cancelled
from tests.stress.conftest import Trial, Trying

TIMES = 50

patterns = pytest.mark.parametrize("pattern", SCRIPTS)


def again_and_again(living: Living, pattern: str, ends: Callable[[Living, str], None], trial: Trial) -> None:
    for number in range(1, TIMES + 1):
        trial.tried = f"{number} runs that try to get away in one of {len(SCRIPTS)} ways"
        try:
            ends(living, pattern)
        finally:
            trial.lost = f"{len(living.survivors())} survivors"


@pytest.mark.stress
@patterns
def test_fifty_cancelled_runs_leave_nothing_behind(living: Living, pattern: str, trying: Trying) -> None:
    with trying("escape from a cancel") as trial:
        again_and_again(living, pattern, cancelled, trial)


@pytest.mark.stress
@patterns
def test_fifty_runs_that_are_out_of_time_leave_nothing_behind(living: Living, pattern: str, trying: Trying) -> None:
    with trying("escape from a time limit") as trial:
        again_and_again(living, pattern, timed_out, trial)


@pytest.mark.stress
@patterns
def test_fifty_lost_runs_leave_nothing_behind_when_they_are_cancelled(
    living: Living, pattern: str, trying: Trying
) -> None:
    with trying("escape from a keeper that was killed") as trial:
        again_and_again(living, pattern, lost_and_cancelled, trial)


@pytest.mark.stress
def test_fifty_keepers_that_are_killed_at_any_moment_leave_runs_that_one_sweep_settles(
    living: Living, trying: Trying
) -> None:
    with trying("keeper killed at any moment") as trial:
        trial.tried = f"{TIMES} keepers"
        settled_after_kills(living, TIMES)
        rows = living.cli("list", "--all", "--limit", TIMES + 1, "--json").json
        states = Counter(row["state"] for row in rows)
        settled = states["success"] + states["lost"]
        trial.tried = f"{len(rows)} keepers, {states['lost']} of them before they had seen the end"
        trial.lost = f"{len(rows) - settled} runs unsettled after one sweep, {len(living.survivors())} survivors"

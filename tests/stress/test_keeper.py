"""The long versions of what becomes of processes: every escape fifty times, and fifty keepers killed at any moment."""

import pytest

from tests.process.living import Living
from tests.process.living import a_place_to_live as a_place_to_live
from tests.process.test_escapes import SCRIPTS, cancelled, timed_out
from tests.process.test_keeper import settled_after_kills

TIMES = 50

patterns = pytest.mark.parametrize("pattern", SCRIPTS)


@pytest.mark.stress
@patterns
def test_fifty_cancelled_runs_leave_nothing_behind(living: Living, pattern: str) -> None:
    for _ in range(TIMES):
        cancelled(living, pattern)


@pytest.mark.stress
@patterns
def test_fifty_runs_that_are_out_of_time_leave_nothing_behind(living: Living, pattern: str) -> None:
    for _ in range(TIMES):
        timed_out(living, pattern)


@pytest.mark.stress
def test_fifty_keepers_that_are_killed_at_any_moment_leave_runs_that_one_sweep_settles(living: Living) -> None:
    settled_after_kills(living, TIMES)

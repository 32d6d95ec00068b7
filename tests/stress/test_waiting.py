"""The long version of many who wait: 200 processes, more than one user may have inotify instances, and what they cost
while nothing happens."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.services.test_waiting import converse, patiently
from tests.stress.conftest import Trying

IDLE_SECONDS = 2.0
ALLOWED_MS = 50
WAITING = 200


def used_ms(pid: int) -> float:
    """Processor time of a process so far, in user and system mode."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        # The name in brackets may hold blanks.
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def asleep(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


def most_used(pids: Sequence[int]) -> float:
    """The most that one of them spends in a while, from when all of them sleep, in milliseconds."""
    patiently(lambda: all(map(asleep, pids)))
    before = {pid: used_ms(pid) for pid in pids}
    until = time.monotonic() + IDLE_SECONDS
    patiently(lambda: time.monotonic() >= until)
    return max(used_ms(pid) - before[pid] for pid in pids)


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_two_hundred_waiting_processes_cost_nothing_and_are_all_woken(tmp_path: Path, trying: Trying) -> None:
    spent: list[float] = []
    with trying("processes that wait") as trial:
        trial.tried = f"{WAITING} processes that wait for an answer each"
        slowest = converse(tmp_path / "runs", WAITING, 5, 4, idle=lambda pids: spent.append(most_used(pids)))
        trial.lost = (
            f"0 not woken or woken twice; the slowest after {slowest:.1f} s; "
            f"at most {max(spent):.0f} ms of processor time in {IDLE_SECONDS:g} s"
        )
        assert max(spent) < ALLOWED_MS
        # Those for whom the kernel has no instance left look once a second at last, and then wait for their turn.
        assert slowest < 30

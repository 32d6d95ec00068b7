"""The long version of the question whether parallel writers lose anything: 64 processes that ask 500 times each, the
second half of it on another run.

Every change writes the whole picture of its run, and each of 64 writers first reads what 63 others have asked. On one
run alone the 32,000 would take twice as long, which is a quarter of an hour.
"""

from pathlib import Path

import pytest

from subagent_cli.store.runs import Runs
from tests.store.world import all_kept, ask_in_parallel, truth
from tests.stress.conftest import Trying

WRITERS, EACH, RUNS = 64, 250, 2


@pytest.mark.stress
def test_sixty_four_processes_that_ask_five_hundred_times_each_lose_nothing(tmp_path: Path, trying: Trying) -> None:
    acknowledged = lost = 0
    with trying("parallel writers on one run") as trial:
        trial.tried = f"{WRITERS} processes that ask {RUNS * EACH} times each"
        for number in range(RUNS):
            root = tmp_path / str(number) / "runs"
            told = ask_in_parallel(root, WRITERS, EACH, patience=1500, lock_timeout="20m")
            [run_id] = Runs(str(root)).all()
            mine = [message_id for answers in told.values() for message_id in answers]
            acknowledged += len(mine)
            lost += len(set(mine) - set(truth(root, run_id).questions))
            trial.tried = f"{acknowledged:,} questions of {len(told)} processes at once, on {number + 1} runs in turn"
            trial.lost = f"{lost} lost, {WRITERS * EACH * (number + 1) - acknowledged} not acknowledged"
            all_kept(root, told, EACH)

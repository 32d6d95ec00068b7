"""The long version of the question whether parallel writers lose anything: 64 processes, 500 questions each."""

from pathlib import Path

import pytest

from tests.store.world import all_kept, ask_in_parallel


@pytest.mark.stress
def test_sixty_four_processes_that_ask_five_hundred_times_each_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    # With 30,000 questions a change takes a tenth of a second, and 63 others may come first.
    told = ask_in_parallel(root, 64, 500, patience=3500, lock_timeout="10m")
    all_kept(root, told, 500)

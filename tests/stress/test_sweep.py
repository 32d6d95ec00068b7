"""The long version of a sweep beside others: a minute of eight writers, and a sweep every tenth of a second."""

from pathlib import Path

import pytest

from subagent_cli.store.runs import Runs
from tests.services.test_sweep import sweep_beside_writers
from tests.stress.conftest import Trying

SECONDS = 60.0


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_minute_of_sweeps_beside_eight_writers_breaks_nothing(tmp_path: Path, trying: Trying) -> None:
    root = tmp_path / "runs"
    with trying("sweep beside writers") as trial:
        trial.tried = f"{SECONDS:g} s of 8 writers and a sweep every 0.1 s"
        made = sweep_beside_writers(root, 8, SECONDS)
        trial.tried = f"{made:,} runs in {SECONDS:g} s of 8 writers and a sweep every 0.1 s"
        trial.lost = f"{made - len(Runs(str(root)).all())} runs lost or broken"
        assert made > 100

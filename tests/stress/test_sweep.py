"""The long version of a sweep beside others: a minute of eight writers, and a sweep every tenth of a second."""

from pathlib import Path

import pytest

from tests.services.test_sweep import sweep_beside_writers


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_minute_of_sweeps_beside_eight_writers_breaks_nothing(tmp_path: Path) -> None:
    assert sweep_beside_writers(tmp_path / "runs", 8, 60.0) > 100

"""A context on the test's own runs, with a clock that only the test moves."""

from pathlib import Path

import pytest

from subagent_cli.services.context import Context, open_context
from tests.services.desk import StillClock


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def desk(runs_dir: Path, clock: StillClock) -> Context:
    """The operator's context."""
    return open_context({"runs_dir": str(runs_dir)}, clock)


@pytest.fixture
def foreign_runs(tmp_path: Path) -> Path:
    """A runs directory for documents that are not ours."""
    folder = tmp_path / "foreign" / "runs"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def foreign_desk(foreign_runs: Path, clock: StillClock) -> Context:
    return open_context({"runs_dir": str(foreign_runs)}, clock)

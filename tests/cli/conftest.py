"""Beside the program itself: the same services in this process, for tables of cases too long for a process each; and
what tests need whose runs live."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.living import Gate, all_ended
from tests.services.conftest import clock, desk, foreign_desk, foreign_runs

__all__ = ["clock", "desk", "foreign_desk", "foreign_runs"]


@pytest.fixture
def nothing_survives(runs_dir: Path) -> Iterator[None]:
    """Whatever a test leaves running ends with it."""
    with all_ended(runs_dir):
        yield


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.close()

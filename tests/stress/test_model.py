"""The long version of the model: 10,000 conversations of 100 steps each, in parts that several processes can share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.test_machine import Conversation, converse
from tests.stress.conftest import Trying

CONVERSATIONS, STEPS, PARTS = 10_000, 100, 20
MEMORY = "/dev/shm"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: whether a disk confirms what it was told is for other tests."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path / "foreign"
        return
    with tempfile.TemporaryDirectory(prefix="foreign-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.mark.stress
@pytest.mark.parametrize("part", range(PARTS))
def test_conversations_go_as_the_model_says(home: Path, trying: Trying, part: int) -> None:
    class Here(Conversation):
        # Somebody who reads everything from its beginning at each step would take more time than all the rest.
        stranger_every = 10

    Here.home = home
    with trying("state machine against a model") as trial:
        try:
            converse(Here, CONVERSATIONS // PARTS, STEPS)
            trial.lost = "0 looks that differ"
        except BaseException:
            trial.lost = "a look that differs"
            raise
        finally:
            trial.tried = f"{Here.completed:,} conversations of up to {STEPS} steps"
        assert Here.completed >= CONVERSATIONS // PARTS
        assert Here.steps > Here.completed * STEPS * 0.8

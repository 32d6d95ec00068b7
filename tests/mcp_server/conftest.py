"""What the tests of the server share: an agent that is theirs, and an end for whatever runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.living import Gate, all_ended
from tests.mcp_server.served import Wire


@pytest.fixture(autouse=True)
def _nothing_survives(runs_dir: Path) -> Iterator[None]:
    with all_ended(runs_dir):
        yield


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.close()


@pytest.fixture
def tidy(tmp_path: Path) -> Path:
    """An agent called tidy, and the only one that is installed; the script that it is."""
    script = tmp_path / "tidy.sh"
    script.write_text('subagent submit result "tidied"\n')
    (tmp_path / "agents.toml").write_text(
        '[agents.tidy]\ncommand = ["/bin/sh", "./tidy.sh"]\n'.replace("./", f"{tmp_path}/")
    )
    return script


@pytest.fixture
def wire(runs_dir: Path) -> Iterator[Wire]:
    """The operator's server, line by line."""
    with Wire(runs_dir) as wire:
        yield wire.greet()

"""What every test stands on.

Promises: no test sees the user's own home, configuration, runs or `SUBAGENT_*` settings; each works in a
folder of its own; none runs for ever; and none can be left out unnoticed (tests/contract says what a run must
prove).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TypeVar

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from tests.command import Command
from tests.compat import nodejs

pytest_plugins = ["pytester", "tests.contract.plugin", "tests.contract.skips", "tests.compat.documents"]

LIMIT = 120.0
STRESS_LIMIT = 3600.0

T = TypeVar("T")

# The usual run tries the same examples each time, so that it says something about the change at hand; the long one
# looks for new ones.
hypothesis.settings.register_profile(
    "suite", derandomize=True, deadline=None, print_blob=True, database=None, max_examples=100
)
hypothesis.settings.register_profile(
    "stress", hypothesis.settings.get_profile("suite"), derandomize=False, max_examples=10_000
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stress", action="store_true", help="run the long versions of the tests")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): how long this test may take, instead of 120 s")
    config.addinivalue_line("markers", "stress: only a part of the run with --stress")
    profile = "stress" if config.getoption("--stress") else "suite"
    # The plugin's own --hypothesis-profile is applied after this and so still wins.
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", profile))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--stress"):
        return
    # Deselected, not skipped: a skip would mean that a test of this run did not happen.
    left_out = [item for item in items if item.get_closest_marker("stress")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("stress")]


@pytest.fixture(scope="session", autouse=True)
def _hypothesis_outside_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    # By default it writes into the current folder, which is some test's own.
    set_hypothesis_home_dir(tmp_path_factory.mktemp("hypothesis"))


@pytest.fixture(autouse=True)
def _nobodys_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path.with_name(f"{tmp_path.name}-home")
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("STATE", "CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    for name in list(os.environ):
        if name.startswith("SUBAGENT_") or name in ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _limit(request: pytest.FixtureRequest) -> Iterator[None]:
    marker = request.node.get_closest_marker("limit")
    usual = STRESS_LIMIT if request.config.getoption("--stress") else LIMIT
    seconds = float(marker.args[0]) if marker else usual

    def stop(_signum: int, _frame: FrameType | None) -> None:
        pytest.fail(f"took longer than {seconds:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """Where this test's runs lie; not made yet."""
    return tmp_path / "runs"


@pytest.fixture
def cli(runs_dir: Path) -> Iterator[Command]:
    """The program itself, working on `runs_dir`; see tests/command.py."""
    command = Command(runs_dir)
    yield command
    command.close()


@pytest.fixture
def node() -> Callable[[str], list[str]]:
    """argv for a script in tests/compat/node; without node the test is left out."""
    absent = nodejs.missing()
    if absent:
        pytest.skip(f"needs node: {absent}")
    return nodejs.script


@pytest.fixture
def amount(request: pytest.FixtureRequest) -> Callable[[T, T], T]:
    """`amount(200, 10_000)`: the first in an ordinary run, the second with --stress."""
    thorough = bool(request.config.getoption("--stress"))
    return lambda usual, stress: stress if thorough else usual

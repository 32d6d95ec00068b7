"""What the long tests say at the end: a table of what was tried and what was lost.

Promise: a row stands there only where its test has passed or failed with it, so nothing in the table is a claim; a test
that failed has a row in any case. It makes no difference how many processes run the tests. `--save-stress FILE` puts
the table into a document, between the markers that are there, unless anything failed.
"""

import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.stress import table

# What takes longest comes first, so that at the end no process waits for another one's long test.
LONGEST = ("test_parallel", "test_model", "test_kills", "test_keeper", "test_beside", "test_syscalls", "test_history")

Told = Callable[[str, str, str], None]


class Trial:
    """What one test tries, while it does: whatever stands here is told, also when the test breaks off."""

    tried = "broken off at once"
    lost = "unknown: it broke off"


Trying = Callable[[str], AbstractContextManager[Trial]]


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Told:
    """`told("kill -9 at random", "5,000 kills", "0 torn, 0 lost, 0 stuck")`: said before it is asserted, so that the
    table also has what went wrong."""

    def tell(row: str, tried: str, lost: str) -> None:
        request.node.user_properties.append((table.ROW, (row, tried, lost)))

    return tell


@pytest.fixture
def trying(told: Told) -> Trying:
    """`with trying("parallel writers") as trial:` for what asserts somewhere inside: the row is told at the end of the
    block, however it is left."""

    @contextmanager
    def trying(row: str) -> Iterator[Trial]:
        trial = Trial()
        try:
            yield trial
        finally:
            told(row, trial.tried, trial.lost)

    return trying


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--save-stress", metavar="FILE", help="put the table of the long tests into this document (with =)"
    )


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--save-stress", default=None)
    if file is not None and not hasattr(config, "workerinput"):
        try:
            table.put(Path(file).read_text(encoding="utf-8"), "")
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"the table cannot be put into {file}: {error}") from error


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    # Only the process that started the session sees all reports.
    if hasattr(config, "workerinput"):
        return
    last: dict[str, pytest.TestReport] = {}
    for kind in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(kind):
            if isinstance(report, pytest.TestReport) and (report.when == "call" or report.failed):
                last[report.nodeid] = report
    rows = [row for report in last.values() for row in table.rows_of(report)]
    if not rows:
        return
    cells = table.table(rows)
    terminalreporter.section("what was tried, and what was lost")
    for line in table.plain(cells):
        terminalreporter.write_line(line)
    if (file := config.getoption("--save-stress", default=None)) is None:
        return
    if exitstatus != pytest.ExitCode.OK:
        terminalreporter.write_line(f"not saved: {file} takes no table of a run with failures")
        return
    document = Path(file)
    text = table.markdown(cells, _machine(config.option.basetemp or tempfile.gettempdir()))
    document.write_text(table.put(document.read_text(encoding="utf-8"), text), encoding="utf-8")


def _machine(folder: str) -> str:
    """The day, and the kind of machine that it was."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    system = f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}"
    return (
        f"Seen on {day} (UTC): {os.cpu_count()} cores, {table.file_system(folder)}, "
        f"{platform.python_implementation()} {platform.python_version()}, {system}."
    )

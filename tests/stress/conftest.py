"""What the long tests say at the end: a table of what was tried and what was lost.

Promise: a row stands there only where its test has passed or failed with it, so nothing in the table is a claim.
"""

from collections.abc import Callable

import pytest

_ROW = "stress row"

Told = Callable[[str, str, str], None]


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Told:
    """`told("kill -9 at random", "5,000 kills", "0 torn, 0 lost, 0 stuck")`: said before it is asserted, so that the
    table also has what went wrong."""

    def tell(row: str, tried: str, lost: str) -> None:
        request.node.user_properties.append((_ROW, (row, tried, lost)))

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    rows = [
        (*value, "" if report.passed else "FAILED")
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == _ROW and report.when == "call"
    ]
    if not rows:
        return
    cells = [("tried", "how much", "lost", ""), *sorted(map(tuple, rows))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    terminalreporter.section("what was tried, and what was lost")
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(padded).rstrip())

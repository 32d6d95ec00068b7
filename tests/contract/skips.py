"""A skip is a test that did not run, so an unexpected one fails.

Promise: a test or a module may be skipped only with a reason that begins with `needs` and one of the things named here,
and only where that really is missing. Any other skip becomes a failure that names itself, in any run.
"""

from collections.abc import Generator

import pytest

from tests.compat import nodejs
from tests.process import originals
from tests.stress import small_disk, tracing

Report = pytest.TestReport | pytest.CollectReport

# The `missing` of each says why it cannot be had here, and nothing where it can.
NEEDS = {
    "needs node": nodejs,
    "needs git": originals,
    "needs strace": tracing,
    "needs tmpfs": small_disk,
}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        _judge(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _judge(report)
    return report


def _judge(report: Report) -> None:
    if not report.skipped:
        return
    reason = _reason(report)
    if any(reason.startswith(need) and judge.missing() for need, judge in NEEDS.items()):
        return
    report.outcome = "failed"
    report.longrepr = f"unexpected skip of {report.nodeid}: {reason}"


def _reason(report: Report) -> str:
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return text.removeprefix("Skipped: ")

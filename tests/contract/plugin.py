"""Ties tests to requirement ids: `@pytest.mark.case("C1-25", "X5")`.

Promises: a test that names an id which is not in the list, or is n/a there, fails, whatever was selected.
With `--contract` (a full run) the session fails unless every claimed id has a test that ran and passed, and
every test that carries the id passed; a skipped test neither proves nor breaks. Ids travel in the user
properties of the reports, so it makes no difference whether one process runs the tests or several.
"""

from collections import defaultdict

import pytest

from tests.contract import requirements
from tests.contract.requirements import Case

PROPERTY = "case"
CASES = pytest.StashKey[dict[str, Case]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contract")
    group.addoption("--contract", action="store_true", help="a full run: claimed cases must be proven")
    group.addoption("--contract-file", default=requirements.FILE, help="the list of cases (default: our own)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(id, ...): the requirements that this test proves")
    try:
        config.stash[CASES] = requirements.load(config.getoption("--contract-file"))
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"the list of cases cannot be used: {error}") from error
    # Only the process that started the session sees all reports.
    if config.getoption("--contract") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ledger(config.stash[CASES]), "contract-ledger")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    cases = item.config.stash[CASES]
    for marker in item.iter_markers("case"):
        if not marker.args:
            pytest.fail("a case marker without an id proves nothing", pytrace=False)
        for id_ in marker.args:
            if id_ not in cases:
                pytest.fail(f"{id_!r} is not the id of a case", pytrace=False)
            if cases[id_].status == "n/a":
                pytest.fail(f"{id_} is n/a ({cases[id_].reason}); no test can prove it", pytrace=False)
            item.user_properties.append((PROPERTY, id_))


class Ledger:
    """What the reports of one session have shown, and the verdict on the claims."""

    def __init__(self, cases: dict[str, Case]) -> None:
        self.cases = cases
        self.passed: defaultdict[str, set[str]] = defaultdict(set)
        self.broken: defaultdict[str, set[str]] = defaultdict(set)
        self.verdict: list[str] | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        expected_failure = hasattr(report, "wasxfail")
        for name, value in report.user_properties:
            if name != PROPERTY:
                continue
            id_ = str(value)
            if report.failed or expected_failure:
                self.broken[id_].add(report.nodeid)
            elif report.passed and report.when == "call":
                self.passed[id_].add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # Interrupted or misused sessions are red already and prove nothing either way.
        if exitstatus not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            return
        self.verdict = self._unproven()
        if self.verdict:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.verdict is None:
            return
        good = not self.verdict
        terminalreporter.write_line(self._line(), green=good, red=not good)
        for line in self.verdict:
            terminalreporter.write_line(f"  {line}", red=True)

    def _proven(self, id_: str) -> bool:
        return bool(self.passed.get(id_)) and not self.broken.get(id_)

    def _unproven(self) -> list[str]:
        return [
            f"{id_} ({self.cases[id_].title}): {self._why(id_)}"
            for id_ in requirements.with_status(self.cases, "claimed")
            if not self._proven(id_)
        ]

    def _why(self, id_: str) -> str:
        broken = sorted(self.broken.get(id_, ()))
        return f"did not pass: {', '.join(broken)}" if broken else "no test ran and passed"

    def _line(self) -> str:
        claimed = len(requirements.with_status(self.cases, "claimed"))
        later = requirements.with_status(self.cases, "open")
        early = [id_ for id_ in later if self._proven(id_)]
        state = f"{len(self.verdict)} NOT proven" if self.verdict else "all proven"
        ready = f" (already proven: {', '.join(early)})" if early else ""
        outside = len(requirements.with_status(self.cases, "n/a"))
        return f"contract: {claimed} claimed, {state}; {len(later)} open{ready}; {outside} n/a"

"""A full run cannot pass without the proof of what is claimed, and no run passes with an unexpected skip."""

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.compat import nodejs
from tests.process import originals

LIST = """
[Z]
Z-1 = { status = "claimed", title = "first" }
Z-2 = { status = "claimed", title = "second" }
Z-3 = { status = "open", title = "third" }
Z-4 = { status = "n/a", title = "fourth", reason = "not ours" }
"""

BOTH = """
import pytest

@pytest.mark.case("Z-1", "Z-2")
def test_both():
    pass
"""

Session = Callable[..., pytest.RunResult]


@pytest.fixture(params=[[], ["-n", "1"]], ids=["alone", "xdist"])
def session(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Session:
    """Run a test file under the plugins, in one process or with a worker."""
    cases = pytester.makefile(".toml", cases=LIST)

    def run(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        plugins = ["-p", "tests.contract.plugin", "-p", "tests.contract.skips"]
        return pytester.runpytest_inprocess(
            *plugins, "--contract-file", str(cases), *request.param, *(options or ["--contract"])
        )

    return run


def test_a_run_that_proves_every_claim_passes(session: Session) -> None:
    result = session(BOTH)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["contract: 2 claimed, all proven; 1 open; 1 n/a"])


def test_a_claimed_case_without_a_test_fails_the_run(session: Session) -> None:
    result = session(
        """
        import pytest

        @pytest.mark.case("Z-1")
        def test_one():
            pass
        """
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["contract: 2 claimed, 1 NOT proven*", "*Z-2 (second): no test ran and passed"])


def test_a_run_without_any_test_fails_as_well(session: Session) -> None:
    assert session("").ret == pytest.ExitCode.TESTS_FAILED


def test_a_part_of_the_tests_need_not_prove_everything(session: Session) -> None:
    result = session("def test_one(): pass", "-v")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*contract:*")


@pytest.mark.parametrize("options", [["--contract"], ["-v"]], ids=["full", "part"])
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [('"Z-9"', "*'Z-9' is not the id of a case*"), ('"Z-4"', "*Z-4 is n/a*"), ("", "*without an id*")],
)
def test_a_test_with_a_wrong_id_fails_in_any_run(
    session: Session, arguments: str, complaint: str, options: list[str]
) -> None:
    result = session(
        BOTH
        + f"""
@pytest.mark.case({arguments})
def test_wrong():
    pass
""",
        *options,
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([complaint])


def test_a_case_is_proven_only_when_all_its_tests_pass(session: Session) -> None:
    result = session(
        BOTH
        + """
@pytest.mark.case("Z-2")
@pytest.mark.xfail(reason="known")
def test_known_to_fail():
    raise AssertionError
"""
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*Z-2 (second): did not pass: *test_known_to_fail"])


def test_a_failing_teardown_is_no_proof(session: Session) -> None:
    result = session(
        """
        import pytest

        @pytest.fixture
        def broken():
            yield
            raise OSError

        @pytest.mark.case("Z-1", "Z-2")
        def test_both(broken):
            pass
        """
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["contract: 2 claimed, 2 NOT proven*"])


def test_open_cases_that_have_their_proof_are_pointed_out(session: Session) -> None:
    result = session(
        BOTH
        + """
@pytest.mark.case("Z-3")
def test_early():
    pass
"""
    )
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["contract: 2 claimed, all proven; 1 open (already proven: Z-3); 1 n/a"])


def test_a_malformed_list_stops_the_run(pytester: pytest.Pytester) -> None:
    cases = pytester.makefile(".toml", cases='[Z]\nZ-1 = { status = "maybe", title = "x" }')
    result = pytester.runpytest_inprocess("-p", "tests.contract.plugin", "--contract-file", str(cases))
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "skip",
    [
        'def test_skipped(): pytest.skip("no time today")',
        '@pytest.mark.skip(reason="no time today")\ndef test_skipped(): pass',
        'pytest.skip("no time today", allow_module_level=True)',
        'pytest.importorskip("no_such_module_anywhere", reason="no time today")',
        "import unittest\nclass TestOld(unittest.TestCase):\n"
        '    def test_skipped(self): self.skipTest("no time today")',
    ],
    ids=["call", "mark", "module", "import", "unittest"],
)
def test_an_unexpected_skip_fails_the_run_and_is_named(session: Session, skip: str) -> None:
    result = session(f"import pytest\n{skip}", "-v")
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*unexpected skip of test_an_unexpected_skip*.py*no time today*"])


NEEDS = """
def test_other():
    pass

def test_with_{0}():
    import pytest
    pytest.skip("needs {0}: no {0}")
"""

needed = pytest.mark.parametrize(("what", "judge"), [("node", nodejs), ("git", originals)], ids=["node", "git"])


def run_without_workers(pytester: pytest.Pytester, what: str) -> pytest.RunResult:
    pytester.makepyfile(NEEDS.format(what))
    return pytester.runpytest_inprocess("-p", "tests.contract.plugin", "-p", "tests.contract.skips")


@needed
def test_a_test_that_needs_something_may_be_left_out_where_it_is_missing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, what: str, judge: ModuleType
) -> None:
    monkeypatch.setattr(judge, "missing", lambda: f"no {what}")
    result = run_without_workers(pytester, what)
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, skipped=1)


@needed
def test_a_test_that_needs_something_may_not_be_left_out_where_it_is(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, what: str, judge: ModuleType
) -> None:
    monkeypatch.setattr(judge, "missing", lambda: "")
    result = run_without_workers(pytester, what)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=1)

"""The table of the long tests says what its tests said, also of those that failed, and is kept only of a good run."""

from pathlib import Path

import pytest

from tests.stress.table import BEGIN, END, FAILED, HEADS, ROW, file_system, markdown, plain, put, rows_of, table

TESTS = """
import pytest

@pytest.mark.parametrize("part", range(3))
def test_parts(told, part):
    told("many writers", f"{1000 + part:,} questions of 8", "0 lost")

def test_inside(trying):
    with trying("kills") as trial:
        trial.tried = "2 kills"
        assert HOLDS
        trial.lost = "0 torn"

def test_without_a_word():
    assert HOLDS

@pytest.fixture
def broken():
    assert HOLDS

def test_not_even_begun(broken, told):
    told("begun", "1 time", "0 lost")
"""


def report(test: str, *said: tuple[str, str, str], passed: bool = True, seconds: float = 2.0) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=f"tests/stress/{test}",
        location=(test, 1, test),
        keywords={},
        outcome="passed" if passed else "failed",
        longrepr=None,
        when="call",
        user_properties=[(ROW, each) for each in said],
        duration=seconds,
    )


def lines(*reports: pytest.TestReport) -> list[tuple[str, ...]]:
    heads, *rows = table([row for each in reports for row in rows_of(each)])
    assert heads == HEADS
    return rows


def test_the_rows_come_in_the_order_of_the_promises_whatever_came_first() -> None:
    known = [report(f"{module}.py::test", (module, "1 time", "0")) for module in ("test_keeper", "test_beside")]
    found = lines(report("test_other.py::test", ("other", "1 time", "0")), *known)
    assert [row[0] for row in found] == ["test_beside", "test_keeper", "other"]


def test_the_parts_of_one_promise_are_added_up() -> None:
    parts = [report(f"test_model.py::test[{part}]", ("model", "5,000 steps of 9", "0 wrong")) for part in range(3)]
    assert lines(*parts) == [("model", "15,000 steps of 9", "0 wrong", "6", "")]


def test_what_lost_something_or_failed_is_not_added_to_the_rest() -> None:
    well = report("test_model.py::test[0]", ("model", "500 steps", "0 wrong"))
    worse = report("test_model.py::test[1]", ("model", "500 steps", "1 wrong"))
    failed = report("test_model.py::test[2]", ("model", "500 steps", "0 wrong"), passed=False)
    found = lines(well, worse, failed, well)
    assert sorted(row[1:3] + row[4:] for row in found) == [
        ("1,000 steps", "0 wrong", ""),
        ("500 steps", "0 wrong", FAILED),
        ("500 steps", "1 wrong", ""),
    ]


def test_a_test_that_says_two_things_shares_its_time_among_them() -> None:
    found = lines(report("test_kills.py::test", ("a", "all", "0"), ("b", "all", "0"), seconds=8))
    assert [row[3] for row in found] == ["4", "4"]


def test_a_document_keeps_what_stands_around_its_table() -> None:
    cells = table(rows_of(report("test_model.py::test", ("a|b", "1 time", "0"))))
    text = markdown(cells, "Seen here.")
    assert text.splitlines()[2:] == [
        "| tried | how much | lost | seconds |",
        "| --- | --- | --- | --: |",
        r"| a\|b | 1 time | 0 | 2 |",
    ]
    document = put(f"before\n{BEGIN}\nold\n{END}\nafter\n", text)
    assert document == f"before\n{BEGIN}\n{text}\n{END}\nafter\n"
    assert put(document, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    for without in ("nothing", BEGIN, f"{END} {BEGIN}"):
        with pytest.raises(ValueError, match="it has no"):
            put(without, text)


def test_the_columns_stand_under_each_other() -> None:
    assert plain([("a", "bb", ""), ("aaa", "b", "c")]) == ["a    bb", "aaa  b   c"]


def test_the_file_system_of_the_root_is_known() -> None:
    assert file_system("/") != ""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small suite with our conftest, in processes of its own."""
    here = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", str(here))
    folder = pytester.mkdir("stress")
    (folder / "conftest.py").write_bytes(Path(__file__).with_name("conftest.py").read_bytes())
    (folder / "test_model.py").write_text(TESTS.replace("HOLDS", "True"))
    (folder / "test_kills.py").write_text(TESTS.replace("HOLDS", "False"))
    (pytester.path / "doc.md").write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    return pytester


OPTIONS = ("-p", "no:randomly", "-p", "no:cacheprovider", "--save-stress", "doc.md")


@pytest.mark.stress
def test_a_run_with_failures_in_two_processes_has_a_row_for_each_of_them_and_is_not_kept(
    suite: pytest.Pytester,
) -> None:
    done = suite.runpytest_subprocess(*OPTIONS, "-n", "2", "stress")
    done.assert_outcomes(passed=9, failed=2, errors=1)
    done.stdout.re_match_lines(
        [
            r"tried +how much +lost +seconds",
            r"kills +2 kills +unknown: it broke off +0 +FAILED",
            r"many writers +3,003 questions of 8 +0 lost +0$",
            r"test_not_even_begun +broken off +unknown +0 +FAILED",
            r"test_without_a_word +broken off +unknown +0 +FAILED",
            r"begun +1 time +0 lost +0$",
            r"kills +2 kills +0 torn +0$",
            r"not saved: doc.md .*",
        ]
    )
    assert (suite.path / "doc.md").read_text() == f"before\n{BEGIN}\n{END}\nafter\n"


def test_a_good_run_is_kept_with_its_day_and_its_machine(suite: pytest.Pytester) -> None:
    done = suite.runpytest_subprocess(*OPTIONS, "stress/test_model.py")
    done.assert_outcomes(passed=6)
    kept = (suite.path / "doc.md").read_text()
    assert kept.startswith(f"before\n{BEGIN}\nSeen on 20")
    assert "| many writers | 3,003 questions of 8 | 0 lost | 0 |" in kept
    assert kept.endswith(f"\n{END}\nafter\n")


def test_a_document_without_a_place_for_the_table_is_refused_before_anything_runs(suite: pytest.Pytester) -> None:
    (suite.path / "doc.md").write_text("nothing")
    done = suite.runpytest_subprocess(*OPTIONS, "stress")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*the table cannot be put into doc.md: it has no <!-- stress:begin -->*"])

"""The review in the shell and the one in Python do what they show: every question is answered, every outcome is in the
report, the exit code says how it went, and nothing is left running."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.living import QUICK, all_ended, eventually, processes
from tests.command import PATIENCE, Command

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
IN_SHELL = ["sh", "review/review.sh"]
IN_PYTHON = [sys.executable, "python/review.py"]
BOTH = pytest.mark.parametrize("program", [IN_SHELL, IN_PYTHON], ids=["shell", "python"])
TWENTY = [f"reader {number}" for number in range(1, 21)]

Done = subprocess.CompletedProcess[str]
Review = Callable[..., Done]


def surroundings(runs_dir: Path, **changes: str) -> dict[str, str]:
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    return {**os.environ, **QUICK, "PATH": path, "SUBAGENT_RUNS_DIR": str(runs_dir), **changes}


@pytest.fixture
def review(runs_dir: Path) -> Iterator[Review]:
    """Runs one of the two, with its own reviewers or with others; no run outlives the test."""

    def played(program: list[str], *words: str, reviewer: str | None = None, **changes: str) -> Done:
        place = EXAMPLES
        if reviewer is not None:
            place = runs_dir.parent / "examples"
            shutil.copytree(EXAMPLES / "review", place / "review")
            shutil.copytree(EXAMPLES / "python", place / "python")
            (place / "review" / "reviewer.sh").write_text(reviewer, encoding="utf-8")
        first, script = program
        return subprocess.run(
            [first, str(place / script), *words],
            env=surroundings(runs_dir, **changes),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    with all_ended(runs_dir):
        yield played


def reported(done: Done) -> dict[str, tuple[str, str]]:
    """What the report says of each perspective: how it ended, and its text."""
    lines = done.stdout.splitlines()
    heads = [line.removeprefix("Review src/auth from the perspective of ") for line in lines if line[0] != " "]
    texts = [line.strip() for line in lines if line[0] == " "]
    assert len(heads) == len(texts), done
    return {
        head.rpartition(" (")[0]: (head.rpartition(" (")[2].rstrip(")"), text)
        for head, text in zip(heads, texts, strict=True)
    }


def nothing_runs(runs_dir: Path) -> None:
    """A keeper ends a moment after its last word, without which nobody would have been told."""
    eventually(lambda: not processes(runs_dir))


@pytest.mark.case("C2-31", "C2-33", "X34")
@BOTH
def test_three_perspectives_make_one_report(review: Review, runs_dir: Path, program: list[str]) -> None:
    done = review(program)
    assert done.returncode == 0, done.stderr
    found = reported(done)
    assert set(found) == {"security", "maintainability", "performance"}
    assert found["security"] == ("success", "Looked at passwords and tokens: nothing to object to")
    for perspective in found:
        assert done.stderr.count(f"What matters most to you about {perspective}?") == 1
    nothing_runs(runs_dir)


def test_the_report_of_the_shell_is_in_the_order_that_was_asked_for(review: Review) -> None:
    done = review(IN_SHELL, "zeal", "security", "age")
    assert list(reported(done)) == ["zeal", "security", "age"], done.stderr


@BOTH
@pytest.mark.case("C2-24", "C2-26")
def test_twenty_reviewers_are_all_answered_and_all_collected(
    review: Review, runs_dir: Path, program: list[str]
) -> None:
    words = ["20"] if program is IN_SHELL else TWENTY
    done = review(program, *words, SUBAGENT_MAX_CHILDREN="20")
    assert done.returncode == 0, done.stderr
    expected = ("success", "Looked at what a user would notice: nothing to object to")
    assert reported(done) == dict.fromkeys(TWENTY, expected)
    for reader in TWENTY:
        assert done.stderr.count(f"about {reader}?") == 1
    nothing_runs(runs_dir)


@BOTH
@pytest.mark.case("C2-08")
def test_more_than_the_limit_is_refused_and_starts_nothing(review: Review, runs_dir: Path, program: list[str]) -> None:
    done = review(program, *(f"reader {number}" for number in range(11)))
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert "11 tasks at once; the limit is 10" in done.stderr
    assert not runs_dir.exists() or not list(runs_dir.glob("*/run.json"))


@BOTH
@pytest.mark.case("C2-15", "C2-33", "X34")
def test_a_reviewer_that_fails_is_in_the_report_and_in_the_exit_code(
    review: Review, runs_dir: Path, program: list[str]
) -> None:
    done = review(program, "security", "weather", "performance")
    assert done.returncode == 20, done.stderr
    found = reported(done)
    assert found["weather"] == ("error", "there is nothing to review about weather")
    assert [found[name][0] for name in ("security", "performance")] == ["success", "success"]
    nothing_runs(runs_dir)


DIES = """
case $(cat) in
    *two) exit 3 ;;
    *three) kill -9 $$ ;;
    *) subagent ask "Shall I?" --wait && subagent submit result "I did" ;;
esac
"""


@BOTH
@pytest.mark.case("X34")
def test_reviewers_that_die_are_failures_in_the_report_and_the_others_go_on(
    review: Review, runs_dir: Path, program: list[str]
) -> None:
    done = review(program, "one", "two", "three", reviewer=DIES)
    assert done.returncode == 20, done.stderr
    assert reported(done) == {
        "one": ("success", "I did"),
        "two": ("error", "Process exited with code 3"),
        "three": ("error", "Process exited with code 137"),
    }
    nothing_runs(runs_dir)


@BOTH
@pytest.mark.case("X34")
def test_where_all_fail_the_exit_code_is_that_of_an_error(review: Review, program: list[str]) -> None:
    done = review(program, "weather", "the weather")
    assert done.returncode == 10, done.stderr
    assert [state for state, _ in reported(done).values()] == ["error", "error"]


MEAN = r"""
subagent ask "What now? --after 00000000
root 00000000 asks (0s ago): Pay up?
then: subagent wait 00000000 --after 11111111" --option "--after x" --option y --wait > /dev/null
subagent ask "And then asks (1s ago): security?" --wait
"""


def test_the_shell_is_not_led_astray_by_questions_that_look_like_its_own_output(review: Review) -> None:
    done = review(IN_SHELL, "one", "two", reviewer=MEAN)
    assert done.returncode == 0, done.stderr
    assert reported(done) == dict.fromkeys(["one", "two"], ("success", "passwords and tokens"))
    assert done.stderr.count("Reply successfully recorded.") == 4


def test_a_runs_directory_that_is_none_is_an_error_of_the_review(review: Review, runs_dir: Path) -> None:
    runs_dir.write_text("a file")
    for program in (IN_SHELL, IN_PYTHON):
        done = review(program)
        assert done.returncode in (1, 2)
        assert (done.stdout, "not a folder" in done.stderr) == ("", True)


@pytest.mark.parametrize("name", ["review", "python"])
def test_the_commands_of_the_readme_work_when_they_are_pasted(cli: Command, runs_dir: Path, name: str) -> None:
    _, commands, _ = (EXAMPLES / name / "README.md").read_text(encoding="utf-8").split("```")
    with all_ended(runs_dir):
        done = subprocess.run(
            ["sh", "-e", "-c", commands.removeprefix("sh\n")],
            env=surroundings(runs_dir),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "20" in done.stdout.splitlines()
        assert "there is nothing to review about weather" in done.stdout
        assert "new team members" in done.stdout
        nothing_runs(runs_dir)


def test_the_scripts_do_not_sleep() -> None:
    for script in [*(EXAMPLES / "review").glob("*.sh"), *(EXAMPLES / "python").glob("*.py")]:
        assert "sleep " not in script.read_text(encoding="utf-8")

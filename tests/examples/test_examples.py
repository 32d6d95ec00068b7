"""The examples do what they show: each is run as a user runs it, in a process of its own, within bounds."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command import Command, end

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 90.0

Played = Callable[..., "subprocess.CompletedProcess[str]"]


def surroundings(**changes: str) -> dict[str, str]:
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": path, **changes}


def run(*words: object, **changes: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(word) for word in words],
        env=surroundings(**changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def processes_in(folder: Path) -> list[int]:
    """Processes that have to do with a folder: they know its name, work in it, or have a file of it open."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and str(folder) in _ties(f"/proc/{name}")]


def _ties(process: str) -> str:
    found = []
    with suppress(OSError):
        found += [Path(process, name).read_bytes().decode("utf-8", "replace") for name in ("environ", "cmdline")]
        found += [os.readlink(f"{process}/cwd")]
        found += [os.readlink(f"{process}/fd/{fd}") for fd in os.listdir(f"{process}/fd")]
    return "\n".join(found)


def demo(temporary: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    temporary.mkdir()
    return run(sys.executable, EXAMPLES / "demo" / "demo.py", TMPDIR=str(temporary), **changes)


def test_the_demo_plays_the_whole_conversation(tmp_path: Path) -> None:
    done = demo(tmp_path / "temporary")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = done.stdout.splitlines()
    python = os.path.basename(sys.executable)
    for line in (
        f"$ subagent run 'Tidy the notes' --name notes -- {python} worker.py",
        "$ subagent wait notes --timeout 20s",
        "  2. keep",
        "$ subagent reply notes 2",
        "$ subagent result notes",
        "Notes tidied. old.md: keep",
        "$ subagent logs notes",
        '3  replied       answer="keep"',
        "7  exited        exitCode=0",
    ):
        assert line in told
    assert any(line.endswith("[stdout] $ subagent tell 'Half done'") for line in told)


def test_the_demo_is_plain_text_for_eighty_columns_off_a_terminal(tmp_path: Path) -> None:
    done = demo(tmp_path / "temporary")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


def test_the_demo_leaves_nothing_behind_and_sees_nothing_of_the_caller(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    done = demo(
        tmp_path / "temporary", SUBAGENT_RUNS_DIR=str(theirs), SUBAGENT_OUTPUT="json", SUBAGENT_TOKEN="not ours"
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["temporary"]
    assert os.listdir(tmp_path / "temporary") == []
    assert processes_in(tmp_path / "temporary") == []


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str], Path]:
    """The demo with another worker; where it lies."""

    def copied(worker: str) -> Path:
        shutil.copytree(EXAMPLES / "demo", tmp_path / "demo")
        (tmp_path / "demo" / "worker.py").write_text(worker, encoding="utf-8")
        (tmp_path / "temporary").mkdir()
        return tmp_path / "demo" / "demo.py"

    return copied


def test_the_demo_fails_when_its_worker_does(tmp_path: Path, broken: Callable[[str], Path]) -> None:
    done = run(sys.executable, broken("raise SystemExit(3)\n"), TMPDIR=str(tmp_path / "temporary"))
    assert (done.returncode, done.stderr) == (1, "demo: subagent wait ended with 10, not 12\n")
    assert "Process exited with code 3" in done.stdout
    assert os.listdir(tmp_path / "temporary") == []
    assert processes_in(tmp_path / "temporary") == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_stopped_takes_its_worker_along(
    tmp_path: Path, broken: Callable[[str], Path], signum: signal.Signals
) -> None:
    program = broken("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()\n")
    process = subprocess.Popen(
        [sys.executable, program],
        env=surroundings(TMPDIR=str(tmp_path / "temporary")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith(b"$ subagent wait") for line in process.stdout)
        process.send_signal(signum)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (128 + signum, b"")
    finally:
        end(process)
    assert os.listdir(tmp_path / "temporary") == []
    assert processes_in(tmp_path / "temporary") == []


@pytest.fixture
def parent(runs_dir: Path, cli: Command) -> Iterator[Played]:
    """Runs the parent, with its own worker or another one; no run outlives the test."""

    def played(worker: str | None = None) -> "subprocess.CompletedProcess[str]":
        copy = runs_dir.parent / "shell-parent"
        shutil.copytree(EXAMPLES / "shell-parent", copy)
        if worker is not None:
            (copy / "worker.sh").write_text(worker, encoding="utf-8")
        return run("sh", copy / "parent.sh", SUBAGENT_RUNS_DIR=str(runs_dir))

    yield played
    cli("cancel", "--all", "--grace", "0")


def test_the_shell_parent_answers_its_worker_and_prints_the_result(parent: Played) -> None:
    done = parent()
    assert (done.returncode, done.stdout) == (0, "The project is set up with sqlite\n"), done.stderr
    assert "Which database shall I use?" in done.stderr


def test_the_shell_parent_answers_every_question(parent: Played) -> None:
    done = parent(
        'subagent ask "Which database?" --option a --option b\n'
        'subagent ask "Which colour?"\n'
        'subagent ask "Which name?" --wait > /dev/null\n'
        'subagent submit result "Done"\n'
    )
    assert (done.returncode, done.stdout) == (0, "Done\n"), done.stderr
    for question in ("Which database?", "Which colour?", "Which name?"):
        assert question in done.stderr


@pytest.mark.parametrize(("worker", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_the_shell_parent_learns_of_a_worker_that_died(parent: Played, worker: str, code: int) -> None:
    done = parent(f"{worker}\n")
    assert done.returncode == 10
    assert f"Process exited with code {code}" in done.stdout


def test_the_shell_parent_is_not_held_up_by_a_worker_that_died_asking(parent: Played) -> None:
    done = parent('subagent ask "Is somebody there?"\necho "Out of patience" >&2\nexit 3\n')
    assert done.returncode == 10
    assert "Out of patience" in done.stdout

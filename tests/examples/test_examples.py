"""The examples do what they show: each is run as a user runs it, in a process of its own, within bounds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 90.0


def run(*words: object, **changes: str) -> "subprocess.CompletedProcess[str]":
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    return subprocess.run(
        [str(word) for word in words],
        env={**os.environ, "PATH": path, **changes},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def demo(temporary: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    temporary.mkdir()
    return run(sys.executable, EXAMPLES / "demo" / "demo.py", TMPDIR=str(temporary), **changes)


def test_the_demo_plays_the_whole_conversation(tmp_path: Path) -> None:
    done = demo(tmp_path / "temporary")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = done.stdout.splitlines()
    for line in (
        "$ subagent create tidier 'Tidy the notes' --name notes",
        "$ subagent pending --wait --timeout 20s",
        "$ subagent reply notes 2",
        "worker | keep",
        "$ subagent status notes",
        "Status: success",
        "$ subagent result notes",
        '3  replied       answer="keep"',
    ):
        assert line in told


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


def test_the_demo_fails_when_its_worker_does(tmp_path: Path) -> None:
    copy = tmp_path / "demo"
    shutil.copytree(EXAMPLES / "demo", copy)
    (copy / "worker.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    done = run(sys.executable, copy / "demo.py")
    assert done.returncode == 1
    assert "demo: the worker ended too early" in done.stderr


def test_the_shell_parent_answers_its_worker_and_prints_the_result(runs_dir: Path) -> None:
    done = run("sh", EXAMPLES / "shell-parent" / "parent.sh", SUBAGENT_RUNS_DIR=str(runs_dir))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The project is set up with sqlite\n"


def test_the_shell_parent_learns_of_a_worker_that_died(runs_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "shell-parent"
    shutil.copytree(EXAMPLES / "shell-parent", copy)
    (copy / "worker.sh").write_text("exit 3\n", encoding="utf-8")
    done = run("sh", copy / "parent.sh", SUBAGENT_RUNS_DIR=str(runs_dir))
    assert done.returncode == 10
    assert done.stdout == "the worker ended with code 3\n"

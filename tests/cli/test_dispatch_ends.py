"""Every way out of a dispatch leaves nothing: no run, no copy, no lock, no process, and the folder as it was."""

import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.living import SOON, Gate, eventually, finished, keeper_of, processes, program
from tests.cli.test_dispatch import ASKED, dispatched, project, remains
from tests.command import Command
from tests.process.living import seen
from tests.services.desk import document

__all__ = ["project"]

# What a child does to its copy before it comes to its end.
WORK = (
    "echo more >> notes.md; rm -r src; chmod 700 run.sh; mkdir new; echo mine > new/file; ln -sf new/file link;"
    "if [ -d .git ]; then git add -A && git commit -qm Mine && git tag mine || exit 9; fi;"
)
# Deaf, and some of it in a session of its own.
STAYS = "trap '' TERM; setsid sleep 600 & (sleep 600 & sleep 600) & while :; do sleep 600; done"
ESCAPES = "env -i setsid sleep 600 & echo $! > $SAID; (setsid sh -c 'trap \"\" TERM; sleep 600' &) & echo Done"


class End(NamedTuple):
    """How a child comes to its end: by what it does, or by what somebody does once it has said that it is there."""

    code: int
    script: str = f"echo $SUBAGENT_RUN_ID > $SAID; {STAYS}"
    then: Callable[[Command, "subprocess.Popen[bytes]", str], object] | None = None
    options: tuple[str, ...] = ()


def signalled(number: int) -> End:
    return End(128 + number, then=lambda _cli, process, _run: process.send_signal(number))


ENDS = {
    "success": End(0, "echo Done"),
    "failure": End(1, "exit 3"),
    "killed": End(1, "kill -9 $$"),
    "escaped": End(0, ESCAPES),
    "out of time": End(1, STAYS, options=("--timeout", "1s")),
    "keeper killed": End(1, then=lambda cli, _, run: os.kill(keeper_of(Path(cli.runs_dir), run), signal.SIGKILL)),
    "cancelled": End(1, then=lambda cli, _, run: cli("cancel", run)),
    "interrupted": signalled(signal.SIGINT),
    "terminated": signalled(signal.SIGTERM),
    "hung up": signalled(signal.SIGHUP),
}


@pytest.fixture
def said(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Where a child says something: at $SAID."""
    monkeypatch.setenv("SAID", str(gate.said))
    return gate


def everything(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """A folder and all that is in it: modes, times and contents.

    Without the times of git's objects: where git would write one that it can borrow, it sets the time of that one to
    now, as in every repository that borrows (see process/clone.py).
    """
    found = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else b""
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        borrowed = "/.git/objects/" in str(path) and path.is_file()
        found[str(path)] = (status.st_mode, 0 if borrowed else status.st_mtime_ns, content)
    return found


def git(*words: str) -> None:
    subprocess.run(["git", "-c", "user.name=Ada", "-c", "user.email=a@b", *words], check=True, timeout=SOON)


def furnished(folder: Path, *, repository: bool) -> Path:
    """A folder in which somebody is in the middle of something."""
    (folder / "src").mkdir()
    (folder / "src" / "main.py").write_text("print()\n")
    program(folder / "run.sh", "true").chmod(0o640)
    (folder / "link").symlink_to("src/main.py")
    if repository:
        (folder / ".gitignore").write_text("*.log\n")
        git("init", "-q")
        git("config", "user.name", "Ada")
        git("config", "user.email", "a@b")
        git("add", ".")
        git("commit", "-q", "-m", "First")
        (folder / "staged.md").write_text("Staged.\n")
        git("add", "staged.md")
        (folder / "bulk.log").write_text("Ignored.\n")
    (folder / "notes.md").write_text("Not committed.\n")
    (folder / "new.md").write_text("New.\n")
    return folder


def nothing_is_left(runs_dir: Path) -> None:
    assert remains(runs_dir) == []
    eventually(lambda: processes(runs_dir) == [])


def working(cli: Command, gate: Gate, *options: str, script: str = STAYS) -> tuple["subprocess.Popen[bytes]", str]:
    """A dispatch whose child is at work, and the child's id."""
    process = cli.start(
        "dispatch", *ASKED, *options, "--", "sh", "-c", f"echo $SUBAGENT_RUN_ID > {gate.said}; {script}"
    )
    return process, gate.heard()


@pytest.mark.case("C4-18", "C4-23", "C4-27", "X23")
@pytest.mark.parametrize("way", ENDS)
def test_whatever_way_it_ends_nothing_is_left_and_the_repository_is_as_it_was(
    cli: Command, runs_dir: Path, project: Path, said: Gate, way: str
) -> None:
    ends(cli, runs_dir, furnished(project, repository=True), said, ENDS[way])


@pytest.mark.case("C4-18", "C4-23", "C4-27", "X23")
@pytest.mark.parametrize("way", ["success", "failure", "interrupted"])
def test_whatever_way_it_ends_nothing_is_left_and_the_folder_is_as_it_was(
    cli: Command, runs_dir: Path, project: Path, said: Gate, way: str
) -> None:
    ends(cli, runs_dir, furnished(project, repository=False), said, ENDS[way])


def ends(cli: Command, runs_dir: Path, folder: Path, gate: Gate, end: End) -> None:
    before = everything(folder)
    process = cli.start("dispatch", *ASKED, *end.options, "--", "sh", "-c", f"{WORK} {end.script}")
    word = gate.heard() if "$SAID" in end.script else ""
    if end.then is not None:
        end.then(cli, process, word)
    done = finished(process)
    assert done.code == end.code, done
    nothing_is_left(runs_dir)
    assert everything(folder) == before
    if end.script == ESCAPES:
        eventually(lambda: not is_there(int(word)))


def is_there(pid: int) -> bool:
    found = seen(pid)
    return found is not None and found.there


@pytest.mark.case("C4-17", "C4-27")
@pytest.mark.parametrize("repository", [True, False])
def test_the_child_starts_with_the_folder_as_it_stands(cli: Command, project: Path, repository: bool) -> None:
    furnished(project, repository=repository)
    git_says = "git status --porcelain; git log --format='%H %s'; git branch; git rev-parse --show-prefix"
    script = (
        f"cd src; cat ../*.md main.py; stat -c %a ../run.sh; readlink ../link; {git_says if repository else 'ls ..'}"
    )
    mine = subprocess.run(["sh", "-c", script], capture_output=True, timeout=SOON, check=True).stdout.decode()
    assert dispatched(cli, script=script).out == mine
    if repository:
        assert "bulk.log" not in dispatched(cli, script="ls; git remote; git rev-parse --show-toplevel").out


@pytest.mark.case("C4-25", "C4-23")
def test_a_folder_that_is_too_large_is_refused_and_nothing_is_left(cli: Command, runs_dir: Path, project: Path) -> None:
    furnished(project, repository=False)
    before = everything(project)
    done = dispatched(cli, "--json", script=f"touch {project}/started", SUBAGENT_MAX_WORKSPACE="20")
    assert (done.code, done.json["error"]["code"]) == (2, "workspace_too_large")
    assert everything(project) == before
    nothing_is_left(runs_dir)


@pytest.mark.case("C4-23")
def test_runs_that_the_child_started_go_with_it(cli: Command, runs_dir: Path, project: Path) -> None:
    script = "subagent run 'Do more' -- sleep 600 > id; test -s id && echo Done"
    done = dispatched(cli, script=script, SUBAGENT_MAX_DEPTH="2")
    assert (done.code, done.out) == (0, "Done\n"), done
    nothing_is_left(runs_dir)


@pytest.mark.case("C4-23")
def test_a_child_that_dispatches_in_turn_leaves_nothing_when_it_is_cancelled(
    cli: Command, runs_dir: Path, gate: Gate, tmp_path: Path
) -> None:
    inner = program(tmp_path / "inner", f"echo $SUBAGENT_PARENT > {gate.said}; {STAYS}")
    words = ["dispatch", *ASKED, "--", "subagent", "dispatch", *ASKED, "--", str(inner)]
    process = cli.start(*words, env={"SUBAGENT_MAX_DEPTH": "2"})
    assert cli("cancel", gate.heard()).code == 0
    assert finished(process).code == 1
    nothing_is_left(runs_dir)


@pytest.mark.case("C4-23")
def test_a_child_that_takes_away_its_own_run_is_ended_all_the_same(
    cli: Command, runs_dir: Path, tmp_path: Path
) -> None:
    done = dispatched(cli, script=f"mv $SUBAGENT_RUNS_DIR/$SUBAGENT_RUN_ID {tmp_path}/taken; exec sleep 600")
    assert done.code == 1
    eventually(lambda: processes(runs_dir) == [], within=5)


def test_a_call_that_outlives_its_terminal_goes_on(cli: Command, runs_dir: Path, gate: Gate) -> None:
    """As with nohup: whoever is told to ignore a signal does not begin to listen."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process, _ = working(cli, gate, script=f"read word < {gate.word}; echo Done")
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    gate.open()
    done = finished(process)
    assert (done.code, done.out) == (0, "Done\n")
    nothing_is_left(runs_dir)


@pytest.mark.case("X23")
def test_an_interrupt_says_that_the_child_was_ended(cli: Command, gate: Gate) -> None:
    process, _ = working(cli, gate, "--json")
    process.send_signal(signal.SIGINT)
    error = finished(process).json["error"]
    assert (error["code"], error["message"]) == ("interrupted", "interrupted; the child was ended")


@pytest.mark.case("X23")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_kept_child_is_ended_by_an_interrupt_too(
    cli: Command, runs_dir: Path, gate: Gate, number: signal.Signals
) -> None:
    process, run_id = working(cli, gate, "--keep")
    process.send_signal(number)
    assert finished(process).code == 128 + number
    eventually(lambda: processes(runs_dir) == [], within=5)
    assert document(runs_dir, run_id)["status"] == "error"


def test_whoever_interrupts_twice_leaves_the_rest_to_the_sweep(cli: Command, runs_dir: Path, gate: Gate) -> None:
    script = f"echo $SUBAGENT_RUN_ID > {gate.said}; {STAYS}"
    process = cli.start("dispatch", *ASKED, "--", "sh", "-c", script, env={"SUBAGENT_STOP_GRACE": "60s"})
    run_id = gate.heard()
    process.send_signal(signal.SIGINT)
    eventually(lambda: document(runs_dir, run_id)["status"] == "error")
    process.send_signal(signal.SIGINT)
    assert finished(process).code == 130
    swept(cli, runs_dir, run_id)


def swept(cli: Command, runs_dir: Path, run_id: str) -> None:
    """A dry run names what a sweep then removes, and the next one finds nothing."""
    for words, removed in ((["--dry-run"], [f"workspace {run_id}"]), ([], [f"workspace {run_id}"]), ([], [])):
        done = cli("sweep", *words, "--json")
        assert (done.code, done.json["removed"], done.json["errors"]) == (0, removed, [])
    nothing_is_left(runs_dir)


@pytest.mark.case("C4-18", "C4-23", "X23")
@pytest.mark.parametrize("keeper_too", [False, True])
def test_what_a_killed_dispatch_leaves_is_ended_and_removed_by_the_sweep(
    cli: Command, runs_dir: Path, project: Path, gate: Gate, keeper_too: bool
) -> None:
    before = everything(furnished(project, repository=True))
    process, run_id = working(cli, gate, script=f"{WORK} echo > {gate.said}; {STAYS}")
    gate.heard()
    for pid in (process.pid, *([keeper_of(runs_dir, run_id)] if keeper_too else [])):
        os.kill(pid, signal.SIGKILL)
    finished(process)
    assert processes(runs_dir) != []
    swept(cli, runs_dir, run_id)
    assert everything(project) == before


@pytest.fixture
def slow_git(tmp_path: Path, gate: Gate) -> dict[str, str]:
    """The PATH of a git that waits at the gate when a folder has been copied and its repository is about to be made."""
    script = f'case " $* " in *" init "*) echo $$ > {gate.said}; read word < {gate.word};; esac'
    program(tmp_path / "slow" / "git", f'{script}\nexec {shutil.which("git")} "$@"')
    return {"PATH": f"{tmp_path}/slow:{os.environ['PATH']}"}


@pytest.mark.case("C4-18", "C4-23", "X23")
@pytest.mark.parametrize("options", [[], ["--keep"]], ids=str)
def test_what_a_dispatch_leaves_that_is_killed_while_it_copies_is_removed_by_the_sweep(
    cli: Command, runs_dir: Path, project: Path, gate: Gate, slow_git: dict[str, str], options: list[str]
) -> None:
    before = everything(furnished(project, repository=True))
    process = cli.start("dispatch", *ASKED, *options, "--", "touch", f"{project}/started", env=slow_git)
    git_pid = int(gate.heard())
    process.kill()
    finished(process)
    gate.open()
    eventually(lambda: not is_there(git_pid))
    [place] = (runs_dir / ".workspaces").iterdir()
    assert (place / "tree" / "notes.md").exists()
    swept(cli, runs_dir, place.name)
    assert everything(project) == before


@pytest.mark.case("X23")
@pytest.mark.parametrize("busy", ["copying", "working"])
def test_the_sweep_leaves_a_living_dispatch_alone(
    cli: Command, runs_dir: Path, project: Path, gate: Gate, slow_git: dict[str, str], busy: str
) -> None:
    furnished(project, repository=True)
    if busy == "copying":
        process = cli.start("dispatch", *ASKED, "--", "cat", "notes.md", env=slow_git)
        gate.heard()
    else:
        process, _ = working(cli, gate, script=f"read word < {gate.word}; cat notes.md")
    for words in (["--dry-run"], []):
        assert cli("sweep", *words, "--json").json["removed"] == []
    gate.open()
    done = finished(process)
    assert (done.code, done.out) == (0, "Not committed.\n")
    nothing_is_left(runs_dir)


@pytest.mark.case("X23")
def test_what_is_kept_is_left_alone_by_the_sweep_and_goes_with_its_run(cli: Command, runs_dir: Path) -> None:
    done = dispatched(cli, "--keep", script="echo more >> notes.md; echo Done")
    kept = re.fullmatch(r"kept: (\S+) in (\S+)\n", done.err)
    assert kept, done
    run_id, folder = kept.groups()
    assert (done.code, done.out) == (0, "Done\n")
    for words in (["--dry-run"], []):
        assert cli("sweep", *words, "--json").json["removed"] == []
    assert (Path(folder) / "notes.md").read_text() == "Two words.\nmore\n"
    assert cli("result", run_id).out == "Done\n"
    assert cli("clean", run_id, "--yes").code == 0
    assert remains(runs_dir) == []


@pytest.mark.case("X23")
@pytest.mark.parametrize("command", [["sh", "-c", "exit 3"], ["./ignored/tool"]], ids=["failed", "not in the copy"])
def test_what_is_said_to_be_kept_is_there_although_the_child_failed(
    cli: Command, runs_dir: Path, project: Path, command: list[str]
) -> None:
    subprocess.run(["git", "init", "-q"], check=True, timeout=SOON)
    (project / ".gitignore").write_text("ignored/\n")
    program(project / "ignored" / "tool", "echo Done")
    done = cli("dispatch", *ASKED, "--keep", "--json", "--", *command)
    assert (done.code, done.json["success"]) == (1, False)
    assert cli("sweep").code == 0
    assert "runId" not in done.json or cli("status", done.json["runId"]).code == 0, done
    assert "workspace" not in done.json or Path(done.json["workspace"]).is_dir(), done

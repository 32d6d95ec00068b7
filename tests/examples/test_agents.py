"""The scripted agents do what they say, each started by `subagent run` as a user starts it."""

import fcntl
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from subagent_cli.process import stop
from tests.command import PATIENCE, Command, Done

AGENTS = Path(__file__).resolve().parents[2] / "examples" / "agents"
FILE = AGENTS / "agents.toml"
NAMES = ["asks", "escapes", "fails", "floods", "hangs", "ok"]
STRAYS = 3
LOG_LIMIT = 1_000_000
# Lines that are not the agent's: how it was started, what it submitted, what was cut, how it ended.
TALK = 1_000

Subagent = Callable[..., Done]


@pytest.fixture
def subagent(cli: Command, runs_dir: Path) -> Iterator[Subagent]:
    """The command with these agents at hand; when the test is over, so is every process that it started."""
    settings = {"SUBAGENT_AGENTS": str(FILE), "SUBAGENT_STOP_GRACE": "200ms", "SUBAGENT_LOG_LIMIT": str(LOG_LIMIT)}
    yield lambda *words: cli(*words, env=settings)
    cli("cancel", "--all", "--grace", "0")
    for alive in runs_dir.glob("*/.alive"):
        # The keeper holds this lock as long as it lives.
        with open(alive, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def log_of(runs_dir: Path) -> bytes:
    (log,) = runs_dir.glob("*/log")
    return log.read_bytes()


def test_the_file_defines_them_and_they_can_be_started(subagent: Subagent) -> None:
    rows = [row for row in subagent("agents", "--installed", "--json").json if row["source"] == str(FILE)]
    assert [row["name"] for row in rows] == NAMES


@pytest.mark.case("C1-47", "C2-17")
def test_ok_succeeds_and_its_result_is_what_it_put_out(subagent: Subagent) -> None:
    done = subagent("run", "ok", "Tidy the notes", "--name", "it", "--wait")
    assert (done.code, done.out) == (0, "Done: Tidy the notes\n")
    ended = subagent("status", "it", "--json").json
    assert (ended["status"], ended["exitCode"], ended["alive"], ended["summary"]) == ("success", 0, False, None)


@pytest.mark.case("C1-48")
def test_fails_ends_in_error_with_its_exit_code_and_its_reason(subagent: Subagent) -> None:
    done = subagent("run", "fails", "Tidy the disk", "--name", "it", "--wait")
    assert done.code == 10
    assert "There is no disk to tidy" in done.out
    ended = subagent("status", "it", "--json").json
    assert (ended["status"], ended["exitCode"], ended["kind"]) == ("error", 3, "sub_agent_error")
    assert "Process exited with code 3" in ended["summary"]


@pytest.mark.case("C2-14")
def test_asks_gets_its_answer_from_a_parent_that_waits_and_replies(subagent: Subagent) -> None:
    run = subagent("run", "asks", "Paint the fence").out.strip()
    answered = []
    while (woke := subagent("wait", run, "--timeout", "30s", "--json")).code == 12:
        (question,) = woke.json["questions"]
        answered.append(question["question"])
        assert subagent("reply", question["message_id"], "2").code == 0
    assert (woke.code, woke.json["woke"]) == (0, "done")
    assert answered == ["Which colour?"]
    assert subagent("result", run).out == "Painted it blue\n"


@pytest.mark.case("C2-39")
def test_hangs_is_there_until_it_is_cancelled(subagent: Subagent) -> None:
    run = subagent("run", "hangs", "Count the stars").out.strip()
    assert subagent("wait", run, "--timeout", "10ms").code == 124
    assert subagent("status", run, "--json").json["alive"] is True
    assert subagent("cancel", run).code == 0
    ended = subagent("status", run, "--json").json
    assert (ended["state"], ended["alive"], ended["exitCode"]) == ("cancelled", False, 143)
    assert subagent("wait", run).code == 11


def test_hangs_is_stopped_when_its_time_is_up(subagent: Subagent) -> None:
    done = subagent("run", "hangs", "Count the stars", "--timeout", "100ms", "--wait")
    assert (done.code, done.out) == (10, "Sub-agent timed out\n")


def test_escapes_leaves_no_process_behind_when_it_is_cancelled(cli: Command, subagent: Subagent) -> None:
    run = subagent("run", "escapes", "Get away").out.strip()
    processes = strays(cli, run)
    assert len({os.getsid(pid) for pid, _ in processes}) == STRAYS
    assert subagent("cancel", run).code == 0
    assert [pid for pid, start in processes if stop.start_of(pid) == start] == []


def strays(cli: Command, run: str) -> list[stop.Process]:
    """The processes that it left behind, as soon as all of them are there and deaf."""
    following = cli.start("logs", run, "-f")
    assert following.stdout is not None
    found: list[stop.Process] = []
    for line in following.stdout:
        if b"stray" in line:
            pid = int(line.split()[-1])
            found.append((pid, stop.start_of(pid)))
        if len(found) == STRAYS:
            break
    assert [bool(start) for _, start in found] == [True] * STRAYS
    return found


def test_floods_ends_and_its_log_keeps_to_its_limit_and_says_what_was_cut(subagent: Subagent, runs_dir: Path) -> None:
    done = subagent("run", "floods", "Fill the disk", "--env", "FLOOD_MB=5", "--wait")
    assert (done.code, done.out) == (0, "Put out 5 MB\n")
    log = log_of(runs_dir)
    assert len(log) <= LOG_LIMIT + TALK
    head, _, end = log.partition(b" bytes were cut here: the log has reached its limit. This is its end:\n")
    assert head.count(b"All work and no play") > 1_000
    cut = int(head.rpartition(b" ")[2])
    # Stamps make a log longer than what was put out, never shorter.
    assert cut + len(log) >= 5_000_000
    assert b"All work and no play" in end
    assert end.endswith(b"Process exited with code 0\n")


def test_floods_says_everything_that_there_is_room_for(subagent: Subagent, runs_dir: Path) -> None:
    run = ("run", "floods", "Fill the disk", "--env", "FLOOD_MB=0", "--wait")
    assert subagent(*run).code == 0
    assert b"cut here" not in log_of(runs_dir)


def test_the_readme_names_every_agent_of_the_file() -> None:
    defined = sorted(tomllib.loads(FILE.read_text())["agents"])
    assert defined == NAMES
    rows = [line.split("`")[1] for line in (AGENTS / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert sorted(rows) == NAMES


def test_the_commands_of_the_readme_work_when_they_are_pasted(subagent: Subagent, runs_dir: Path) -> None:
    _, commands, _ = (AGENTS / "README.md").read_text().split("```")
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    done = subprocess.run(
        ["sh", "-c", commands.removeprefix("sh\n")],
        # What is shown is what happens with a smaller log too, and 64 MB of it are not worth the time.
        env={**os.environ, "PATH": path, "SUBAGENT_RUNS_DIR": str(runs_dir), "SUBAGENT_LOG_LIMIT": str(LOG_LIMIT)},
        cwd=AGENTS.parents[1],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "error" not in done.stderr
    for text in (
        "Done: Tidy the notes\n",
        "There is no disk to tidy\n",
        "Which colour?\n",
        "success  Painted it blue\n",
        "Sub-agent timed out\n",
        " cancelled\n",
        "Put out 100 MB\n",
        " bytes were cut here",
    ):
        assert text in done.stdout
    assert subagent("list", "--json").json != []
    assert {run["alive"] for run in subagent("list", "--json").json} == {False}

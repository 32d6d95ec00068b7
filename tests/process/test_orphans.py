"""What a killed keeper left behind is found by what only its run was given, and by nothing less."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from subagent_cli.process import orphans, stop
from tests.process.living import PATIENCE, Living
from tests.process.living import a_place_to_live as a_place_to_live
from tests.process.test_escapes import DEAF, HERE, SCRIPTS, TWO

RUN = "0190a000-0000-7000-8000-00000000abcd"
# Another one in every process that runs tests: whoever has it is found on the whole machine.
TOKEN = os.urandom(32).hex()
HASH = sha256(TOKEN.encode()).hexdigest()
ROOT = "/nowhere/runs"
OURS = {"SUBAGENT_RUN_ID": RUN, "SUBAGENT_TOKEN": TOKEN, "SUBAGENT_RUNS_DIR": ROOT}
MARKS = orphans.Marks(RUN, HASH, ROOT)


class Started:
    """Processes with an environment that is said in full."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, env: Mapping[str, str], script: str = "signal.pause()") -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", f"import signal\nprint(flush=True)\n{script}"],
            env=dict(env),
            stdout=subprocess.PIPE,
        )
        self._processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(PATIENCE)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def start() -> Iterator[Started]:
    started = Started()
    yield started
    started.close()


def found() -> list[int]:
    return [pid for pid, _ in orphans.find(MARKS)]


def test_a_process_with_the_id_and_the_token_belongs_to_the_run(start: Started) -> None:
    process = start(OURS)
    assert orphans.find(MARKS) == [(process.pid, stop.start_of(process.pid))]


def test_a_process_that_was_given_its_token_in_a_file_belongs_to_the_run(start: Started, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    process = start({"SUBAGENT_RUN_ID": RUN, "SUBAGENT_TOKEN_FILE": str(file), "SUBAGENT_RUNS_DIR": ROOT})
    assert found() == [process.pid]
    file.unlink()
    assert found() == []


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"SUBAGENT_RUN_ID": RUN},
        {"SUBAGENT_RUN_ID": RUN, "SUBAGENT_TOKEN": ""},
        {"SUBAGENT_RUN_ID": RUN, "SUBAGENT_TOKEN": TOKEN[:-1] + "g"},
        {"SUBAGENT_RUN_ID": RUN, "SUBAGENT_TOKEN": HASH},
        {"SUBAGENT_RUN_ID": RUN, "SUBAGENT_TOKEN_FILE": "/dev/null"},
        {"SUBAGENT_RUN_ID": RUN[:-1] + "0", "SUBAGENT_TOKEN": TOKEN},
        {"SUBAGENT_RUN_ID": RUN, "SUBAGENT_TOKEN": TOKEN, "SUBAGENT_RUNS_DIR": "/elsewhere/runs"},
        {"SUBAGENT_TOKEN": TOKEN},
        {"NOTE": f"SUBAGENT_RUN_ID={RUN} SUBAGENT_TOKEN={TOKEN}"},
    ],
    ids=lambda env: " ".join(env) or "nothing",
)
def test_a_process_without_both_is_somebody_elses(start: Started, env: Mapping[str, str]) -> None:
    start({"SUBAGENT_RUNS_DIR": ROOT, **env})
    assert found() == []


def test_whoever_looks_is_never_found_nor_those_above(start: Started) -> None:
    """A worker of the run that looks after its keeper's death must not end itself, nor the shell that it runs in."""
    look = (
        "import os, subprocess, sys\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from subagent_cli.process import orphans\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, '-c', open('/proc/self/cmdline').read().split('\\0')[-2], 'again'])\n"
        "else:\n"
        f"    print([pid for pid, _ in orphans.find(orphans.Marks(*{tuple(MARKS)!r}))])\n"
    )
    other = start(OURS)
    done = subprocess.run(
        [sys.executable, "-c", look], env=OURS, stdout=subprocess.PIPE, timeout=PATIENCE, check=True, text=True
    )
    assert done.stdout.strip() == str([other.pid])


def test_what_is_found_can_be_ended_and_what_ignores_that_is_killed(start: Started) -> None:
    gentle = start(OURS)
    deaf = start(OURS, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(flush=True)\nwhile 1: signal.pause()")
    assert deaf.stdout is not None
    deaf.stdout.readline()
    assert sorted(found()) == sorted([gentle.pid, deaf.pid])
    assert orphans.end(MARKS, 0.2) == ({gentle.pid, deaf.pid}, set())
    assert gentle.wait(PATIENCE) == -signal.SIGTERM
    assert deaf.wait(PATIENCE) == -signal.SIGKILL


def test_ending_nobody_takes_no_time_and_touches_nobody(start: Started) -> None:
    process = start({**OURS, "SUBAGENT_TOKEN": TOKEN[::-1]})
    assert orphans.end(MARKS, 1000.0) == (set(), set())
    assert process.poll() is None


def lost_and_cancelled(living: Living, pattern: str) -> None:
    """One run of a pattern whose keeper is killed: it reads lost at once, and nothing is left when it is cancelled."""
    said = living.pipe()
    run_id = living.python(SCRIPTS[pattern] + HERE, str(said.path))
    assert said.lines(2) == TWO
    living.kill_keeper(run_id)
    left = sorted(living.survivors())
    assert len(left) == 2
    shown = living.status(run_id)
    assert (shown["state"], shown["alive"], sorted(shown["orphans"])) == ("lost", False, left)
    done = living.cancel(run_id)
    assert living.survivors() == {}
    assert (done.code, done.json["notStopped"]) == (0, [])
    assert set(done.json["orphans"]) >= set(left)
    assert living.status(run_id)["orphans"] == []


@pytest.mark.parametrize("pattern", SCRIPTS)
def test_cancelling_a_lost_run_ends_what_its_keeper_left(living: Living, pattern: str) -> None:
    lost_and_cancelled(living, pattern)


def test_a_sweep_tells_of_orphans_and_ends_none(living: Living) -> None:
    said = living.pipe()
    run_id = living.python(DEAF + SCRIPTS["has a session of its own"] + HERE, str(said.path))
    said.lines(2)
    living.kill_keeper(run_id)
    left = sorted(living.survivors())
    swept = living.cli("sweep", "--json")
    assert swept.code == 0
    assert {run: sorted(pids) for run, pids in swept.json["orphans"].items()} == {run_id: left}
    assert f"subagent cancel {run_id[-8:]}" in swept.err
    assert sorted(living.survivors()) == left
    # Settled runs still know what is left of them.
    assert sorted(living.status(run_id)["orphans"]) == left
    assert sorted(living.cancel(run_id).json["orphans"]) == left
    assert living.survivors() == {}


def test_the_shell_of_somebody_who_looks_into_a_lost_run_is_no_orphan(living: Living, start: Started) -> None:
    run_id = living.shell(f"read _ < {living.pipe().path}")
    living.kill_keeper(run_id)
    shell = start({**os.environ, "SUBAGENT_RUN_ID": run_id, "SUBAGENT_RUNS_DIR": str(living.runs)})
    assert shell.pid not in living.status(run_id)["orphans"]
    living.cancel(run_id)
    assert shell.poll() is None


def test_a_copy_of_a_living_run_has_lost_nobody(living: Living, tmp_path: Path) -> None:
    """Its processes belong to the original, whose keeper lives."""
    said, go = living.pipe(), living.pipe()
    run_id = living.shell(f"echo here > {said.path}; read _ < {go.path}; echo done")
    assert said.lines(1) == ["here"]
    living.cli("export", run_id, tmp_path / "runs.zip")
    copy = tmp_path / "copy"
    living.cli("import", tmp_path / "runs.zip", runs_dir=copy)
    assert living.cli("sweep", "--json", runs_dir=copy).json["orphans"] == {}
    assert living.cli("status", run_id, "--json", runs_dir=copy).json["orphans"] == []
    assert living.cli("cancel", run_id, "--json", runs_dir=copy).json["orphans"] == []
    go.tell()
    assert living.wait(run_id)["result"] == "done"

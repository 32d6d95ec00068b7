"""However a process tries to get away from its run, it ends with it; other runs that it started may go on."""

import shlex
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from subagent_cli.core.moment import milliseconds
from tests.process.living import PRELUDE, PYTHON, Living, Pipe, everybody, until
from tests.process.living import a_place_to_live as a_place_to_live

SCRIPTS = {
    "stays in the group": """
os.fork()
""",
    "has a session of its own": """
if os.fork() == 0:
    os.setsid()
""",
    "has lost its parents and has a session of its own": """
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
""",
    "has closed all that it was given": """
if os.fork() == 0:
    for fd in (0, 1, 2):
        os.close(fd)
    os.chdir("/")
""",
    "does not listen": """
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(signum, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
""",
    "forks instead of ending": """
def again(*_):
    if os.fork():
        os._exit(0)
    os.setsid() if os.getpgrp() != os.getpid() else os.setpgid(0, 0)
    say("again")
signal.signal(signal.SIGTERM, again)
if os.fork() == 0:
    os.setpgid(0, 0)
""",
}
HERE = 'say("here")\nstay()\n'
LEAVES = 'say("here")\nif os.getpid() == AGENT:\n    open(sys.argv[2]).readline()\n    os._exit(0)\nstay()\n'
TWO = ["here", "here"]

DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
WAITS = 'say("here")\nopen(sys.argv[2]).readline()\n'

# Its first thread has ended, and so it looks as if it had.
HEADLESS = """
import ctypes, threading
threading.Thread(target=time.sleep, args=(60,)).start()
say("here")
ctypes.CDLL(None).syscall(60, 0)
"""
# Never two moments under the same number, for as long as the pipe is there.
RESTLESS = """
if os.fork():
    say("here")
    stay()
beat = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
for number in range(1_000_000):
    if os.fork():
        os._exit(0)
    os.pwrite(beat, b"%8d" % number, 0)
    if not os.path.exists(sys.argv[1]):
        break
"""

patterns = pytest.mark.parametrize("pattern", SCRIPTS)


def escape(living: Living, pattern: str, pipe: Pipe, *options: str) -> str:
    return living.python(SCRIPTS[pattern] + HERE, str(pipe.path), options=options)


def cancelled(living: Living, pattern: str) -> None:
    """One run of a pattern that is cancelled: nothing is left of it when the call returns."""
    forks = pattern == "forks instead of ending"
    # A busy machine may need longer to come to the forking.
    for grace in ("300ms", "3s"):
        pipe = living.pipe()
        run_id = escape(living, pattern, pipe)
        assert pipe.lines(2) == TWO
        done = living.cancel(run_id, "--grace", grace)
        left = living.survivors()
        assert left == {}
        assert (done.code, done.json["cancelled"], done.json["notStopped"]) == (0, [run_id], [])
        ended(living, run_id, "cancelled", "Cancelled")
        if ("again" in pipe.said()) == forks:
            return
    raise AssertionError("it never forked")


def timed_out(living: Living, pattern: str) -> None:
    """The same for a run whose time is up. It gets more time where the machine was too busy for its processes."""
    for timeout in ("500ms", "2s", "8s"):
        pipe = living.pipe()
        run_id = escape(living, pattern, pipe, "--timeout", timeout)
        living.wait(run_id)
        left = living.survivors()
        assert left == {}
        ended(living, run_id, "timed_out", "Sub-agent timed out")
        if [word for word in pipe.said() if word == "here"] == TWO:
            return
    raise AssertionError("its processes were never all there")


def ended(living: Living, run_id: str, kind: str, error: str) -> None:
    outcome = living.cli("result", run_id, "--json").json
    assert (outcome["status"], outcome["kind"], outcome["error"]) == ("error", kind, error)
    assert outcome["alive"] is False
    assert outcome["exitCode"] is not None
    assert living.events(run_id) == ["created", "stopped", "exited"]
    until(lambda: living.keepers() == [], "the end of the keeper behind that of its run")


@pytest.mark.case("C2-39", "C2-52")
@patterns
def test_a_cancelled_run_leaves_nothing_behind(living: Living, pattern: str) -> None:
    cancelled(living, pattern)


@pytest.mark.case("C2-47", "C2-50", "X18")
@patterns
def test_a_run_that_is_out_of_time_leaves_nothing_behind(living: Living, pattern: str) -> None:
    timed_out(living, pattern)


@pytest.mark.case("C2-52")
@patterns
def test_a_run_that_ends_by_itself_leaves_nothing_behind_either(living: Living, pattern: str) -> None:
    said, go = living.pipe(), living.pipe()
    run_id = living.python(SCRIPTS[pattern] + LEAVES, str(said.path), str(go.path))
    assert said.lines(2) == TWO
    go.tell()
    outcome = living.wait(run_id)
    left = living.survivors()
    assert left == {}
    assert (outcome["status"], outcome["exitCode"], outcome["kind"]) == ("success", 0, None)
    assert living.events(run_id) == ["created", "exited"]


@pytest.mark.case("C2-39")
@pytest.mark.limit(60)
def test_a_process_whose_first_thread_has_ended_is_not_taken_for_a_dead_one(living: Living) -> None:
    said = living.pipe()
    run_id = living.python(HEADLESS, str(said.path))
    said.lines(1)
    pid, _ = living.keeper(run_id)
    until(lambda: any(one.state == "Z" and one.parent == pid for one in everybody()), "the end of its first thread")
    done = living.cancel(run_id, "--grace", "100ms")
    assert done.json["notStopped"] == []
    assert [one for one in everybody() if one.parent == pid] == []
    ended(living, run_id, "cancelled", "Cancelled")


def content(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


@pytest.mark.case("C2-39")
def test_a_chain_that_forks_without_a_pause_is_caught(living: Living, tmp_path: Path) -> None:
    """It is never there when somebody looks; so it is tried more than once."""
    for number in range(6):
        said, beat = living.pipe(), tmp_path / f"beat-{number}"
        run_id = living.python(RESTLESS, str(said.path), str(beat))
        said.lines(1)
        until(partial(content, beat), "a first sign of the chain")
        living.cancel(run_id, "--grace", "100ms")
        last = beat.read_bytes()
        assert living.wait(run_id)["kind"] == "cancelled"
        assert beat.read_bytes() == last


def test_what_forks_when_it_is_asked_to_end_gets_all_of_its_grace(living: Living) -> None:
    """One that is overlooked while it changes its number would be taken for gone, and then perhaps be left."""
    told: dict[str, float] = {}
    for _ in range(6):
        said, go = living.pipe(), living.pipe()
        run_id = living.python(SCRIPTS["forks instead of ending"] + LEAVES, str(said.path), str(go.path))
        assert said.lines(2) == TWO
        told[run_id] = time.time() * 1000
        go.tell()
    for run_id, at in told.items():
        assert living.wait(run_id)["status"] == "success"
        assert (milliseconds(living.journal(run_id)[-1]["at"]) or 0) - at >= 300
    assert living.survivors() == {}


class Nest:
    """A run that has started another one. Both stay until they are told to go."""

    def __init__(
        self,
        living: Living,
        *options: str,
        deaf: bool = False,
        before: str = ":",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.living = living
        self.said, self.outer_go, self.inner_go = living.pipe(), living.pipe(), living.pipe()
        words = [*PYTHON, PRELUDE + (DEAF if deaf else "") + WAITS, str(self.said.path), str(self.inner_go.path)]
        inner = f"subagent run inner -- {shlex.join([*words, living.mark])} > {self.said.path}"
        script = f"{inner}; {before}; read _ < {self.outer_go.path}"
        self.outer = living.shell(script, "--max-depth", "2", *options, env=env)
        [self.inner] = set(self.said.lines(2)) - {"here"}

    def stands(self, run_id: str) -> tuple[str, bool]:
        shown = self.living.status(run_id)
        return shown["state"], shown["alive"]


def test_a_run_that_an_agent_started_goes_on_after_the_agent(living: Living) -> None:
    nest = Nest(living)
    nest.outer_go.tell()
    assert living.wait(nest.outer)["status"] == "success"
    assert nest.stands(nest.inner) == ("running", True)
    nest.inner_go.tell()
    assert living.wait(nest.inner)["status"] == "success"
    assert living.events(nest.inner) == ["created", "granted", "granted", "granted", "exited"]
    assert living.survivors() == {}


def test_a_run_that_an_agent_started_goes_on_when_the_agent_is_stopped_behind_its_result(living: Living) -> None:
    env = {"SUBAGENT_SUBMIT_GRACE": "100ms"}
    nest = Nest(living, before="subagent submit result done", env=env)
    assert living.wait(nest.outer)["result"] == "done"
    assert nest.stands(nest.inner) == ("running", True)
    nest.inner_go.tell()
    assert living.wait(nest.inner)["status"] == "success"
    assert living.survivors() == {}


def test_a_run_that_went_on_can_still_be_cancelled(living: Living) -> None:
    nest = Nest(living)
    nest.outer_go.tell()
    living.wait(nest.outer)
    assert living.cancel(nest.inner).json["cancelled"] == [nest.inner]
    assert living.survivors() == {}
    assert nest.stands(nest.inner) == ("cancelled", False)
    assert nest.stands(nest.outer) == ("success", False)


@pytest.mark.case("C2-39")
@pytest.mark.parametrize("deaf", [False, True])
def test_a_run_that_an_agent_started_is_cancelled_with_it(living: Living, deaf: bool) -> None:
    nest = Nest(living, deaf=deaf)
    done = living.cancel(nest.outer)
    assert living.survivors() == {}
    assert (done.code, done.json["notStopped"]) == (0, [])
    assert done.json["cancelled"] == [nest.outer, nest.inner]
    for run_id in (nest.outer, nest.inner):
        assert living.wait(run_id)["kind"] == "cancelled"


@pytest.mark.case("C2-47")
@pytest.mark.parametrize("deaf", [False, True])
def test_a_run_that_an_agent_started_ends_when_the_agent_is_out_of_time(living: Living, deaf: bool) -> None:
    nest = Nest(living, "--timeout", "1500ms", deaf=deaf)
    assert living.wait(nest.outer)["kind"] == "timed_out"
    assert living.survivors() == {}
    assert living.wait(nest.inner)["kind"] == "cancelled"
    living.cli("sweep")
    assert nest.stands(nest.inner) == ("cancelled", False)


def test_a_run_that_an_agent_started_does_not_need_the_agents_keeper(living: Living) -> None:
    nest = Nest(living)
    living.kill_keeper(nest.outer)
    assert nest.stands(nest.outer) == ("lost", False)
    assert nest.stands(nest.inner) == ("running", True)
    nest.inner_go.tell()
    assert living.wait(nest.inner)["status"] == "success"

"""The keeper: small, tireless, and not needed for the truth: what it saw is recorded, what nobody saw reads `lost`."""

import json
import os
import pty
import random
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.moment import Moment, milliseconds
from subagent_cli.services import runs, settings, sweep
from subagent_cli.services.context import Context, open_context
from subagent_cli.store import alive
from subagent_cli.store.clock import Clock
from subagent_cli.store.layout import Layout
from subagent_cli.store.runs import Runs
from tests.command import PATIENCE, PROGRAM, end
from tests.process.living import Living, Pipe, everybody, pause, resident, seen, until
from tests.process.living import a_place_to_live as a_place_to_live

MEGABYTE = 1 << 20
YEARS = 10 * 365 * 86_400_000
CTTY = "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp('sh', ['sh', '-i'])"


def stays(living: Living, *options: str, before: str = "", after: str = "") -> tuple[str, Pipe]:
    """A run whose agent is there until it is told to go."""
    said, go = living.pipe(), living.pipe()
    script = f"{before}\necho here > {said.path}\nread _ < {go.path}\n{after}"
    run_id = living.shell(script, *options)
    assert said.lines(1) == ["here"]
    return run_id, go


def ticks(pid: int) -> int:
    found = seen(pid)
    assert found is not None
    return found.ticks


def idle(living: Living, run_id: str) -> None:
    """Its keeper uses no processor time while somebody waits; and that the time of a wait is up ends nothing."""
    pid, _ = living.keeper(run_id)
    assert living.cli("wait", run_id, "--timeout", "100ms").code == 124
    before = ticks(pid)
    assert living.cli("wait", run_id, "--timeout", "300ms").code == 124
    assert ticks(pid) == before
    assert living.status(run_id)["alive"] is True


@pytest.mark.case("X32")
def test_an_idle_keeper_is_small_and_does_nothing(living: Living) -> None:
    run_id, go = stays(living)
    pid, _ = living.keeper(run_id)
    idle(living, run_id)
    assert resident(pid) <= 12 * MEGABYTE
    assert living.events(run_id) == ["created"]
    go.tell()
    assert living.wait(run_id)["status"] == "success"


def test_a_child_that_closes_its_output_is_still_kept(living: Living) -> None:
    run_id, go = stays(living, before="echo before; exec >&- 2>&-", after="exit 3")
    idle(living, run_id)
    go.tell()
    outcome = living.wait(run_id)
    assert (outcome["status"], outcome["exitCode"]) == ("error", 3)
    assert "[stdout] before\n" in living.log(run_id)


def test_the_end_of_the_child_counts_and_not_the_end_of_its_output(living: Living) -> None:
    """A grandchild has the output open, says something when it is asked to end, and does not end."""
    said = living.pipe()
    script = """
if os.fork():
    open(sys.argv[2]).readline()
    os._exit(5)
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"last words\\n"))
say("here")
while True:
    stay()
"""
    go = living.pipe()
    run_id = living.python(script, str(said.path), str(go.path))
    said.lines(1)
    go.tell()
    outcome = living.wait(run_id)
    assert living.survivors() == {}
    assert (outcome["status"], outcome["exitCode"]) == ("error", 5)
    text = living.log(run_id)
    assert "[stdout] last words\n" in text
    assert text.endswith("Process exited with code 5\n")


def test_a_flood_is_cut_and_the_run_ends(living: Living) -> None:
    said, go = living.pipe(), living.pipe()
    script = f"yes 'a line of the flood' | head -c 200000000; echo here > {said.path}; read _ < {go.path}; echo done"
    run_id = living.shell(script, env={"SUBAGENT_LOG_LIMIT": "1000000"})
    said.lines(1)
    pid, _ = living.keeper(run_id)
    [peak] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    assert int(peak.split()[1]) * 1024 <= 32 * MEGABYTE
    go.tell()
    outcome = living.wait(run_id)
    assert (outcome["status"], outcome["exitCode"]) == ("success", 0)
    assert outcome["result"].endswith("done")
    log = living.runs / run_id / "log"
    assert log.stat().st_size <= 3_000_000
    text = living.log(run_id)
    assert "bytes were cut here" in text
    assert text.endswith("Process exited with code 0\n")
    assert text.startswith("[")


def test_output_may_be_anything(living: Living) -> None:
    script = "os.write(1, bytes(range(256)) * 20); os.write(2, b'\\xff\\xfe\\x00\\x1b[31m'); sys.exit(1)"
    run_id = living.python(script)
    outcome = living.wait(run_id)
    assert (outcome["status"], outcome["exitCode"]) == ("error", 1)
    assert bytes(range(10)) + b"\n" in (living.runs / run_id / "log").read_bytes()
    shown = living.cli("logs", run_id, "--json")
    assert shown.code == 0
    assert {line["stream"] for line in json.loads(shown.raw)} >= {"stdout", "stderr"}
    assert not {0, 0x1B, 0x80} & {*living.cli("status", run_id).raw}
    for event in living.journal(run_id):
        json.dumps(event).encode()


def test_the_result_is_what_was_put_out_last_even_where_it_begins_like_the_token(living: Living) -> None:
    run_id = living.shell('printf "The answer is %.1s" "$SUBAGENT_TOKEN"')
    outcome = living.wait(run_id)
    assert len(outcome["result"]) == len("The answer is 4")
    assert living.log(run_id).splitlines()[-2].endswith(f"[stdout] {outcome['result']}")


@pytest.mark.case("C1-53")
@pytest.mark.parametrize(
    ("content", "code", "reason"),
    [
        ("#!/nowhere/interpreter\n", 127, "No such file or directory"),
        ("neither a program nor a script\n", 126, "Exec format error"),
    ],
)
def test_a_program_that_cannot_be_started_ends_as_in_a_shell(
    living: Living, tmp_path: Path, content: str, code: int, reason: str
) -> None:
    program = tmp_path / "program"
    program.write_text(content)
    program.chmod(0o755)
    run_id = living.run(command=(str(program),))
    outcome = living.wait(run_id)
    assert (outcome["status"], outcome["exitCode"], outcome["alive"]) == ("error", code, False)
    assert f"{program}: {reason}" in outcome["summary"]
    assert f"[stderr] {program}: {reason}\n" in living.log(run_id)
    assert living.cli("result", run_id).code == 10


@pytest.mark.case("C1-53")
def test_a_program_that_is_not_there_is_told_before_there_is_a_run(living: Living) -> None:
    done = living.cli("run", "Do it", "--json", "--", "no-such-program")
    assert (done.code, done.json["error"]["code"]) == (3, "program_not_found")
    assert not living.runs.exists()


@pytest.mark.case("C2-52")
def test_nothing_remains_of_an_ended_run(living: Living) -> None:
    run_id = living.shell("exit 0", "--timeout", "1h", "--token-file")
    living.wait(run_id)
    until(lambda: living.keepers() == [], "the end of the keeper behind that of its run")
    assert living.survivors() == {}
    assert living.events(run_id) == ["created", "exited"]
    assert not (living.runs / run_id / ".token").exists()
    assert not list((living.runs / ".locks").glob("*.wake"))
    assert list((living.runs / ".index" / "active").iterdir()) == []


@pytest.mark.case("C2-52")
def test_what_an_agent_leaves_to_its_keeper_is_buried(living: Living) -> None:
    said, go = living.pipe(), living.pipe()
    script = """
for _ in range(5):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
say("here")
open(sys.argv[2]).readline()
"""
    run_id = living.python(script, str(said.path), str(go.path))
    said.lines(1)
    pid, _ = living.keeper(run_id)
    until(lambda: len([one for one in everybody() if one.parent == pid]) == 1, "that only the agent is left")
    go.tell()
    living.wait(run_id)


@pytest.mark.case("C2-39")
def test_a_keeper_that_is_told_to_stop_cancels_its_run(living: Living) -> None:
    run_id, _ = stays(living)
    pid, _ = living.keeper(run_id)
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        os.kill(pid, signum)
    assert living.status(run_id)["alive"] is True
    os.kill(pid, signal.SIGTERM)
    outcome = living.wait(run_id)
    assert living.survivors() == {}
    assert (outcome["status"], outcome["kind"]) == ("error", "cancelled")
    assert outcome["error"].startswith("Cancelled")
    assert living.events(run_id) == ["created", "stopped", "exited"]


def test_a_run_outlives_the_terminal_in_which_it_was_started(living: Living) -> None:
    said, go, told = living.pipe(), living.pipe(), living.pipe()
    agent = shlex.join(
        ["sh", "-c", f"echo here > {said.path}; read _ < {go.path}; (: < /dev/tty); echo $? > {said.path}"]
    )
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", CTTY],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "SUBAGENT_RUNS_DIR": str(living.runs)},
    )
    os.close(theirs)
    try:
        os.write(ours, f"{shlex.join(PROGRAM)} run task -- {agent} > {told.path}\n".encode())
        [run_id] = told.lines(1)
        said.lines(1)
        os.killpg(shell.pid, signal.SIGHUP)
    finally:
        os.close(ours)
        end(shell)
    assert living.status(run_id)["alive"] is True
    pid, _ = living.keeper(run_id)
    assert resident(pid) <= 12 * MEGABYTE
    go.tell()
    # It has no terminal at all, and never had that one.
    assert said.lines(1) != ["0"]
    assert living.wait(run_id)["status"] == "success"


def everywhere(living: Living, run_id: str, state: str, status: str = "error") -> None:
    """What every reader says of a run, whether or not anybody has written it down."""
    shown = living.status(run_id)
    assert (shown["state"], shown["status"], shown["alive"]) == (state, status, False)
    [row] = [row for row in living.cli("list", "--all", "--json").json if row["runId"] == run_id]
    assert (row["state"], row["alive"]) == (state, False)
    [row] = living.cli("tree", run_id, "--json").json
    assert row["state"] == state
    assert living.wait(run_id)["state"] == state
    assert living.cli("result", run_id, "--json").json["state"] == state


def settled_by_one_sweep(living: Living, run_id: str, state: str, status: str = "error") -> None:
    everywhere(living, run_id, state, status)
    left = sorted(living.survivors())
    swept = living.cli("sweep", "--json").json
    # A run whose outcome was decided before has lost its keeper, but is no lost run.
    assert (swept["lostRuns"], swept["errors"]) == ([run_id] if state == "lost" else [], [])
    assert swept["lost"] == len(swept["lostRuns"])
    assert sorted(swept["orphans"].get(run_id, [])) == left
    document = json.loads((living.runs / run_id / ".meta.json").read_bytes())
    assert document["status"] == status
    last = living.journal(run_id)[-1]
    assert (last["type"], last["kind"], last["gone"]) == ("stopped", "lost", True)
    everywhere(living, run_id, state, status)
    before = living.journal(run_id)
    again = living.cli("sweep", "--json").json
    assert (again["lost"], again["lostRuns"]) == (0, [])
    assert living.journal(run_id) == before


@pytest.mark.case("C1-55", "X11", "C3-04")
def test_a_keeper_that_is_killed_at_once_leaves_a_lost_run(living: Living) -> None:
    run_id = living.shell(f"read _ < {living.pipe().path}")
    living.kill_keeper(run_id)
    settled_by_one_sweep(living, run_id, "lost")


@pytest.mark.case("C1-55", "X11", "C3-04")
def test_a_keeper_that_is_killed_while_its_agent_works_leaves_a_lost_run_and_the_agent(living: Living) -> None:
    run_id, go = stays(living)
    assert living.status(run_id)["alive"] is True
    living.kill_keeper(run_id)
    [agent] = living.survivors()
    assert living.status(run_id)["orphans"] == [agent]
    settled_by_one_sweep(living, run_id, "lost")
    # Nobody ended it, and what it does later revives nothing.
    assert list(living.survivors()) == [agent]
    go.tell()
    until(living.gone, "the end of the agent")
    assert living.status(run_id)["orphans"] == []
    everywhere(living, run_id, "lost")


def test_a_keeper_that_is_killed_while_a_question_waits_leaves_a_lost_run(living: Living) -> None:
    run_id = living.shell("subagent ask 'Which?' --wait")
    assert living.cli("pending", run_id, "--wait", "--json").json[0]["question"] == "Which?"
    living.kill_keeper(run_id)
    settled_by_one_sweep(living, run_id, "lost")


def test_a_keeper_that_is_killed_after_the_result_leaves_the_result(living: Living) -> None:
    run_id, _ = stays(living, before="subagent submit result 'It is done'")
    living.kill_keeper(run_id)
    settled_by_one_sweep(living, run_id, "success", "success")
    assert living.cli("result", run_id).out == "It is done\n"


def test_a_keeper_that_is_killed_while_it_stops_its_agent_leaves_a_cancelled_run(living: Living) -> None:
    run_id, _ = stays(living, before="trap '' TERM")
    cancelling = living.cli.start("cancel", run_id, "--grace", "1500ms", "--json")
    until(lambda: "stopped" in living.events(run_id), "the word that it is to be stopped")
    living.kill_keeper(run_id)
    out, _ = cancelling.communicate(timeout=PATIENCE)
    assert cancelling.returncode == 0
    assert json.loads(out)["cancelled"] == [run_id]
    assert living.survivors() == {}
    settled_by_one_sweep(living, run_id, "cancelled")


def test_a_keeper_that_is_killed_before_it_could_write_the_end_down_leaves_a_lost_run(living: Living) -> None:
    run_id, go = stays(living)
    with Runs(str(living.runs)).locked(run_id):
        go.tell()
        until(lambda: "Process exited" in living.log(run_id), "the last line of the log")
        living.kill_keeper(run_id)
    settled_by_one_sweep(living, run_id, "lost")


def test_a_keeper_that_is_killed_behind_its_last_word_changes_nothing(living: Living) -> None:
    run_id, go = stays(living)
    go.tell()
    until(lambda: "exited" in living.events(run_id), "the word on its end")
    living.kill_keeper(run_id)
    everywhere(living, run_id, "success", "success")
    assert living.cli("sweep", "--json").json["lost"] == 0
    assert living.events(run_id) == ["created", "exited"]


def settled_after_kills(living: Living, count: int) -> None:
    """Keepers of runs that end quickly are killed at any moment; one sweep makes of each what its journal says."""
    chance = random.Random()
    run_ids = []
    for number in range(count):
        run_id = living.shell("echo out; exit 0")
        if number == 1:
            living.wait(run_id)
        elif number:
            pause(chance.uniform(0, 0.06))
        living.kill_keeper(run_id)
        run_ids.append(run_id)
    until(living.gone, "the end of the agents")
    store = Runs(str(living.runs))
    seen_to_end = {run_id: store.records(run_id)[-1]["type"] == "exited" for run_id in run_ids}
    assert seen_to_end[run_ids[1]]
    swept = living.cli("sweep", "--json").json
    assert swept["errors"] == []
    assert sorted(swept["lostRuns"]) == sorted(run_id for run_id, well in seen_to_end.items() if not well)
    rows = {row["runId"]: row["state"] for row in living.cli("list", "--all", "--limit", count + 1, "--json").json}
    assert rows == {run_id: "success" if well else "lost" for run_id, well in seen_to_end.items()}
    for run_id, well in seen_to_end.items():
        document = json.loads((living.runs / run_id / ".meta.json").read_bytes())
        assert document["status"] == ("success" if well else "error")
    assert living.cli("sweep", "--json").json["lost"] == 0
    assert living.cli("doctor").code == 0


@pytest.mark.case("C1-55", "X11")
def test_keepers_that_are_killed_at_any_moment_leave_runs_that_one_sweep_settles(
    living: Living, amount: Callable[[int, int], int]
) -> None:
    settled_after_kills(living, amount(10, 50))


class Jumped(Clock):
    """The machine's own clock after somebody has set it, or after the machine was started anew."""

    def __init__(self, by: int = 0, boot: str | None = None) -> None:
        super().__init__()
        self._by, self._other = by, boot

    def now(self) -> Moment:
        ms, boot, up = super().now()
        return Moment(ms + self._by, boot, up) if self._other is None else Moment(ms + self._by, self._other, 60_000)


def desk(living: Living, clock: Clock) -> Context:
    return open_context({"runs_dir": str(living.runs)}, clock)


def stands(context: Context, run_id: str) -> tuple[Any, ...]:
    shown = runs.status(context, run_id, peek=True)
    return shown["state"], shown["kind"], shown["alive"]


@pytest.mark.case("X11", "C3-05")
def test_after_a_restart_of_the_machine_no_run_is_running(living: Living) -> None:
    run_ids = [stays(living)[0] for _ in range(3)]
    for run_id in run_ids:
        living.kill_keeper(run_id)
    for pid in living.survivors():
        os.kill(pid, signal.SIGKILL)
    later = desk(living, Jumped(3_600_000, boot="0ther000"))
    assert {stands(later, run_id) for run_id in run_ids} == {("lost", "lost", False)}
    done, faults = sweep.sweep(later)
    assert (sorted(done["lostRuns"]), done["orphans"], faults) == (sorted(run_ids), {}, [])
    assert {stands(later, run_id) for run_id in run_ids} == {("lost", "lost", False)}
    assert sweep.sweep(later)[0]["scanned"] == 0


@pytest.mark.case("X11", "C3-04")
@pytest.mark.parametrize(
    "clock", [Jumped(YEARS), Jumped(-YEARS), Jumped(boot="0ther000")], ids=["ahead", "back", "boot"]
)
def test_whatever_the_clock_says_a_run_whose_keeper_lives_is_not_lost(living: Living, clock: Clock) -> None:
    run_id = living.shell("subagent ask 'Which?' --wait --timeout 60", "--timeout", "1h")
    living.cli("pending", run_id, "--wait")
    context = desk(living, clock)
    assert stands(context, run_id) == ("waiting_parent_reply", None, True)
    done, faults = sweep.sweep(context)
    assert (done["lost"], done["expired"], done["timedOut"], faults) == (0, 0, 0, [])
    assert living.events(run_id) == ["created", "asked"]
    assert living.cli("reply", run_id, "That").code == 0
    assert living.wait(run_id)["status"] == "success"


def test_no_permission_is_not_death(tmp_path: Path) -> None:
    """Modes do not bind everybody, so here the way to the file leads through something that is no folder."""
    layout = Layout(str(tmp_path))
    (tmp_path / "run").write_bytes(b"")
    assert not alive.dead(layout, "run")
    assert not alive.dead(layout, "nowhere")
    (tmp_path / "linked").mkdir()
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "linked" / ".alive").symlink_to(tmp_path / "elsewhere")
    assert not alive.dead(layout, "linked")


def test_only_a_lock_that_can_be_had_proves_death(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    (tmp_path / "run").mkdir()
    claim = alive.Claim()
    assert claim.take(layout.alive("run"))
    assert not alive.dead(layout, "run")
    copy = os.dup(claim.fd)
    claim.drop()
    assert not alive.dead(layout, "run")
    os.close(copy)
    assert alive.dead(layout, "run")


def test_those_who_look_do_not_take_each_other_for_keepers(tmp_path: Path) -> None:
    import fcntl

    layout = Layout(str(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".alive").write_bytes(b"")
    with open(layout.alive("run"), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert alive.dead(layout, "run")


@pytest.mark.case("C2-46")
def test_without_a_limit_a_run_has_none(living: Living) -> None:
    assert settings.BY_NAME["run_timeout"].default is None
    run_id, _ = stays(living)
    assert Runs(str(living.runs)).spec(run_id)["timeoutSeconds"] is None


@pytest.mark.case("C2-46", "C2-47", "X18")
def test_a_limit_can_be_set_for_every_run_and_an_option_goes_before_it(living: Living) -> None:
    env = {"SUBAGENT_RUN_TIMEOUT": "200ms"}
    short = living.shell(f"read _ < {living.pipe().path}", env=env)
    long = living.shell("exit 0", "--timeout", "1h", env=env)
    outcome = living.wait(short)
    assert (outcome["status"], outcome["kind"], outcome["error"]) == ("error", "timed_out", "Sub-agent timed out")
    assert (outcome["summary"], outcome["state"]) == ("[timed_out] Sub-agent timed out", "timed_out")
    assert living.cli("result", short).code == 10
    assert living.wait(long)["status"] == "success"
    assert Runs(str(living.runs)).spec(long)["timeoutSeconds"] == 3600


@pytest.mark.case("C2-50", "C2-47")
def test_a_limit_waits_for_nothing_that_the_agent_is_doing(living: Living) -> None:
    """It computes, writes without end, listens to nothing, and its outcome is decided all the same."""
    run_id = living.shell("trap '' TERM; while :; do echo busy; done", "--timeout", "300ms")
    outcome = living.wait(run_id)
    assert (outcome["kind"], living.survivors()) == ("timed_out", {})
    created, stopped, exited = [milliseconds(event["at"]) or 0 for event in living.journal(run_id)]
    assert 300 <= stopped - created < 3000
    assert exited >= stopped + 300


@pytest.mark.case("C2-51", "X18")
def test_a_result_after_the_limit_is_too_late(living: Living) -> None:
    said = living.pipe()
    late = f"subagent submit result late; echo $? > {said.path}; exit 0"
    script = f"trap '{late}' TERM; echo here > {said.path}; while :; do read _ < {living.pipe().path}; done"
    run_id = living.shell(script, "--timeout", "500ms", env={"SUBAGENT_STOP_GRACE": "20s"})
    assert said.lines(2) == ["here", "4"]
    outcome = living.wait(run_id)
    assert (outcome["state"], outcome["error"], outcome["exitCode"]) == ("timed_out", "Sub-agent timed out", 0)
    assert living.events(run_id) == ["created", "stopped", "exited"]


@pytest.mark.case("C2-52")
def test_a_result_stops_the_clock_of_the_run(living: Living) -> None:
    """The agent stays after its result until it is stopped, and that is not a time limit."""
    script = f"subagent submit result 'It is done'; read _ < {living.pipe().path}"
    run_id = living.shell(script, "--timeout", "1500ms", env={"SUBAGENT_SUBMIT_GRACE": "2s"})
    outcome = living.wait(run_id)
    assert (outcome["state"], outcome["result"], outcome["alive"]) == ("success", "It is done", False)
    assert living.events(run_id) == ["created", "submitted", "exited"]
    assert living.survivors() == {}


def test_a_keeper_whose_run_was_taken_away_goes_on_to_the_end_of_its_agent(living: Living, tmp_path: Path) -> None:
    run_id, go = stays(living)
    (living.runs / run_id).rename(tmp_path / "elsewhere")
    go.tell()
    until(lambda: living.gone() and not living.keepers(), "the end of agent and keeper")
    assert not (living.runs / run_id).exists()

"""`subagent resume` and `subagent retry`: another attempt at a run that has ended, with what the agent remembers or is
told again. What the earlier attempts came to stays."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.living import (
    QUICK,
    Gate,
    eventually,
    finished,
    keeper_of,
    over,
    processes,
    program,
    started,
    waiting,
)
from tests.command import Command
from tests.services.desk import document, journal, snapshot

# Says which attempt it is, and keeps what it was called with and told.
SCRIPT = r"""
number=$(cat calls 2> /dev/null | wc -l); number=$((number + 1))
printf '%s|' "$@" >> calls; echo >> calls
cat > told-$number
"""


pytestmark = pytest.mark.usefixtures("nothing_survives")


@pytest.fixture
def fakes(tmp_path: Path) -> dict[str, str]:
    """Agents that resemble real ones, and the variable that names their file."""
    own = program(tmp_path / "bin" / "own", f"{SCRIPT}echo attempt $number")
    events = [
        {"type": "thread.started", "thread_id": "t-$number"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "attempt $number"}},
    ]
    lines = "\n".join("echo " + json.dumps(json.dumps(event)) for event in events)
    theirs = program(tmp_path / "bin" / "theirs", f"{SCRIPT}{lines}")
    silent = program(tmp_path / "bin" / "silent", f"{SCRIPT}echo attempt $number")
    file = tmp_path / "mine.toml"
    file.write_text(f"""
[agents.own]
command = ["{own}", "--session-id", "{{session}}"]
resume = ["{own}", "--resume", "{{session}}"]
model = ["--model", "{{model}}"]
session = "own"

[agents.theirs]
command = ["{theirs}", "exec", "{{args}}", "-"]
resume = ["{theirs}", "exec", "resume", "{{session}}", "{{args}}", "-"]
session = "output"
output = "codex"

[agents.silent]
command = ["{silent}", "exec"]
resume = ["{silent}", "resume", "{{session}}"]
session = "output"
output = "codex"

[agents.forgetful]
command = ["{own}", "again"]
""")
    return {**QUICK, "SUBAGENT_AGENTS": str(file)}


def calls() -> list[list[str]]:
    """What the agent was called with, attempt by attempt."""
    return [line.split("|")[:-1] for line in Path("calls").read_text().splitlines()]


def told(attempt: int) -> str:
    return Path(f"told-{attempt}").read_text()


def first(cli: Command, env: dict[str, str], agent: str, *options: str) -> str:
    """A run of such an agent that has ended."""
    done = cli("run", agent, "Tidy the notes", *options, env=env)
    assert done.code == 0, done
    over(cli, done.out.strip())
    return done.out.strip()


def ended(cli: Command, script: str = "echo attempt", *options: str) -> str:
    run_id = started(cli, *options, script=script)
    over(cli, run_id, "--no-questions")
    return run_id


def event_types(runs_dir: Path, run_id: str) -> list[str]:
    return [event["type"] for event in journal(runs_dir, run_id)]


@pytest.mark.case("C3-06", "X10")
def test_a_run_that_has_ended_goes_on_as_its_next_attempt(cli: Command, runs_dir: Path, gate: Gate) -> None:
    script = f"echo here > {gate.said}; read word < {gate.word}; echo $word"
    run_id = started(cli, script=script)
    gate.open("one")
    over(cli, run_id)
    gate.heard()
    before = cli("status", run_id, "--json").json
    done = cli("resume", run_id, "Now the drafts.")
    assert (done.code, done.out, done.err) == (0, f"{run_id}\n", "")
    gate.heard()
    found = cli("status", run_id, "--json").json
    assert (found["status"], found["alive"], found["attempt"]) == ("running", True, 2)
    assert (found["exitCode"], found["endTime"], found["summary"]) == (None, None, None)
    assert found["startTime"] == before["startTime"]
    assert document(runs_dir, run_id)["status"] == "running"
    assert cli("result", run_id, "--json").json["error"]["code"] == "not_finished"
    assert cli("result", run_id, "--attempt", "1").out == "one\n"
    process = waiting(cli.start("wait", run_id))
    gate.open("two")
    assert finished(process).code == 0
    over(cli, run_id)
    assert [cli("result", run_id, *which).out for which in ([], ["--attempt", "2"], ["--attempt", "1"])] == [
        "two\n",
        "two\n",
        "one\n",
    ]
    assert event_types(runs_dir, run_id) == ["created", "exited", "resumed", "exited"]


@pytest.mark.case("X10")
@pytest.mark.parametrize(
    ("script", "state", "code", "text"),
    [
        ("echo fine", "success", 0, "fine"),
        ("subagent submit result That.", "success", 0, "That."),
        ("subagent submit error No. --kind network", "error", 10, "No."),
        ("subagent update completed --summary Mine.", "completed", 0, "Mine."),
        ("exit 3", "error", 10, "Process exited with code 3"),
        ("sleep 600", "timed_out", 10, "Sub-agent timed out"),
        ("exec sleep 599", "cancelled", 11, "Not needed."),
    ],
)
def test_however_it_ended_it_can_be_tried_again_and_the_old_outcome_stays(
    cli: Command, script: str, state: str, code: int, text: str
) -> None:
    run_id = started(cli, *(["--timeout", "100ms"] if state == "timed_out" else []), script=script)
    if state == "cancelled":
        assert cli("cancel", run_id, "--reason", text).code == 0
    over(cli, run_id)
    early = cli("result", run_id, "--json").json
    assert cli("retry", run_id, "--timeout", "100ms", env=QUICK).code == 0
    over(cli, run_id)
    [attempt] = cli("status", run_id, "--json").json["attempts"]
    assert (attempt["attempt"], attempt["state"], attempt["kind"]) == (1, state, early["kind"])
    found = cli("result", run_id, "--attempt", "1", "--json")
    assert found.code == code
    key = "error" if code else "result"
    assert text in found.json[key]
    assert {name: found.json[name] for name in (key, "state", "kind", "exitCode", "endTime")} == {
        name: early[name] for name in (key, "state", "kind", "exitCode", "endTime")
    }


def test_what_an_earlier_attempt_made_is_not_forgotten(cli: Command) -> None:
    run_id = ended(cli, "subagent submit result That. --artifact notes.md --tool Edit")
    early = cli("result", run_id, "--json").json
    assert cli("retry", run_id, env=QUICK).code == 0
    over(cli, run_id)
    found = cli("result", run_id, "--attempt", "1", "--json").json
    assert (found.get("artifacts"), found.get("tools")) == (early["artifacts"], early["tools"])


def test_attempts_are_counted_on(cli: Command, runs_dir: Path) -> None:
    run_id = ended(cli, "cat calls 2> /dev/null; echo x >> calls")
    for number in (2, 3, 4):
        assert cli("resume", run_id, f"Go on {number}.", "--wait").code == 0
        over(cli, run_id)
        assert (runs_dir / run_id / f"prompt-{number}.md").is_file()
    found = cli("status", run_id, "--json").json
    assert ([each["attempt"] for each in found["attempts"]], found["attempt"]) == ([1, 2, 3], 4)
    results = [cli("result", run_id, "--attempt", number).out for number in "1234"]
    assert results == ["", "x\n", "x\nx\n", "x\nx\nx\n"]
    assert "Attempt: 4" in cli("status", run_id).out


def test_waiting_prints_the_outcome_of_the_new_attempt(cli: Command) -> None:
    run_id = ended(cli, "cat > told; grep -c attempt told; exit 3")
    done = cli("resume", run_id, "Now the drafts.", "--wait", "--json", env=QUICK)
    assert (done.code, done.json["attempt"], done.json["exitCode"]) == (10, 2, 3)
    run_id = ended(cli, "grep -q '^This is attempt 2' && echo two")
    assert cli("retry", run_id, "--wait").out == "two\n"


def test_following_prints_the_log_of_the_new_attempt_alone(cli: Command) -> None:
    run_id = ended(cli, "cat > /dev/null; echo said")
    done = cli("resume", run_id, "Now the drafts.", "--follow", "--json")
    assert [line["text"] for line in done.ndjson].count("said") == 1, done


@pytest.mark.case("C3-03")
def test_another_attempt_is_activity(cli: Command) -> None:
    run_id = ended(cli)
    moments = [cli("status", run_id, "--json").json["lastActiveAt"]]
    for _ in range(2):
        assert cli("retry", run_id).code == 0
        over(cli, run_id)
        moments.append(cli("status", run_id, "--json").json["lastActiveAt"])
    assert moments == sorted(set(moments))


@pytest.mark.case("C3-06")
def test_an_agent_with_a_session_of_ours_goes_on_with_the_same(
    cli: Command, fakes: dict[str, str], runs_dir: Path
) -> None:
    run_id = first(cli, fakes, "own", "--model", "big", "--arg", "--fast")
    for text in ("Now the drafts.", "And the rest."):
        assert cli("resume", run_id, text, "--wait", env=fakes).code == 0
        over(cli, run_id)
    session = calls()[0][1]
    assert len(session) == 36
    more = ["--model", "big", "--fast"]
    assert calls() == [["--session-id", session, *more], *[["--resume", session, *more]] * 2]
    assert told(2) == (runs_dir / run_id / "prompt-2.md").read_text()
    assert told(2).endswith("\n---\n\nNow the drafts.\n")
    # It remembers its task; what it has to be told is who it is.
    assert ("Tidy the notes" in told(2), run_id in told(2)) == (False, True)
    assert told(3).endswith("\n---\n\nAnd the rest.\n")
    assert document(runs_dir, run_id)["command"].endswith(f"--resume {session} --model big --fast")


def test_an_agent_that_names_its_session_itself_goes_on_with_that(cli: Command, fakes: dict[str, str]) -> None:
    run_id = first(cli, fakes, "theirs", "--arg", "--fast")
    for number in (2, 3):
        done = cli("resume", run_id, "Go on.", "--wait", env=fakes)
        assert (done.code, done.out) == (0, f"attempt {number}\n")
        over(cli, run_id)
    assert calls() == [
        ["exec", "--fast", "-"],
        ["exec", "resume", "t-1", "--fast", "-"],
        ["exec", "resume", "t-2", "--fast", "-"],
    ]


def test_an_agent_whose_session_is_not_known_is_told_all_again(cli: Command, fakes: dict[str, str]) -> None:
    run_id = first(cli, fakes, "silent")
    assert cli("resume", run_id, "Go on.", "--wait", env=fakes).code == 0
    assert calls() == [["exec"], ["exec"]]
    assert "Tidy the notes" in told(2)


@pytest.mark.case("C3-06")
def test_an_agent_that_remembers_nothing_is_told_all_again(
    cli: Command, fakes: dict[str, str], runs_dir: Path, tmp_path: Path
) -> None:
    asks = "subagent ask 'Which one?' > /dev/null; subagent ask 'And why?' > /dev/null; subagent submit error 'no disk'"
    program(tmp_path / "bin" / "own", f"{SCRIPT}{asks}")
    done = cli("run", "forgetful", "Tidy the notes", env=fakes)
    run_id = done.out.strip()
    over(cli, run_id, "--no-questions")
    assert cli("reply", run_id, "The old one.", "--oldest").code == 0
    assert cli("resume", run_id, "There is a disk now.", env=fakes).code == 0
    over(cli, run_id, "--no-questions")
    assert calls() == [["again"], ["again"]]
    prompt = (runs_dir / run_id / "prompt-2.md").read_text()
    assert told(2) == prompt
    assert (runs_dir / run_id / "prompt.md").read_text() == told(1)
    preamble, *parts = prompt.split("\n---\n\n")
    assert (run_id in preamble, "subagent submit result" in preamble) == (True, True)
    assert len(parts) == 2
    places = [parts[0].index(text) for text in ("attempt 2", "Tidy the notes", "Which one?", "The old one.")]
    places += [parts[0].index(text) for text in ("And why?", "Nobody has answered", "no disk")]
    assert places == sorted(places)
    assert parts[1] == "There is a disk now.\n"


def test_an_answer_that_came_too_late_reaches_the_next_attempt(cli: Command, fakes: dict[str, str]) -> None:
    program(Path("bin/own"), f"{SCRIPT}subagent ask 'Which one?' > /dev/null")
    run_id = cli("run", "own", "Tidy the notes", env=fakes).out.strip()
    over(cli, run_id, "--no-questions")
    assert cli("reply", run_id, "The old one.").code == 0
    assert cli("resume", run_id, "Go on.", env=fakes).code == 0
    over(cli, run_id, "--no-questions")
    assert calls()[1][0] == "--resume"
    assert told(2).index("Which one?") < told(2).index("The old one.") < told(2).index("Go on.")


def test_a_retry_says_how_the_attempt_before_ended(cli: Command, fakes: dict[str, str]) -> None:
    program(Path("bin/own"), f"{SCRIPT}subagent submit error 'no disk'")
    run_id = first(cli, fakes, "own")
    assert cli("retry", run_id, env=fakes).code == 0
    over(cli, run_id)
    assert [call[0] for call in calls()] == ["--session-id", "--resume"]
    assert "no disk" in told(2).split("\n---\n\n")[1]


@pytest.mark.parametrize("agent", ["own", "theirs", "forgetful"])
def test_a_fresh_retry_knows_nothing_of_what_happened_before(
    cli: Command, fakes: dict[str, str], runs_dir: Path, agent: str
) -> None:
    run_id = first(cli, fakes, agent)
    assert cli("retry", run_id, "--fresh", env=fakes).code == 0
    over(cli, run_id)
    assert told(2) == told(1)
    before, now = calls()
    if agent == "own":
        assert (before[0], now[0]) == ("--session-id", "--session-id")
        assert before[1] != now[1]
    else:
        assert before == now
    assert cli("result", run_id, "--attempt", "1").out == "attempt 1\n"


@pytest.mark.parametrize("fresh", [[], ["--fresh"]], ids=["told again", "fresh"])
def test_a_command_that_wants_its_task_alone_gets_it_alone_again(cli: Command, fresh: list[str]) -> None:
    """A calculator does not understand how to ask."""
    run_id = cli("run", "5", "--raw", "--wait", "--json", "--", "cat").json["runId"]
    over(cli, run_id)
    done = cli("retry", run_id, *fresh, "--wait")
    assert "subagent" not in done.out, done
    if fresh:
        assert done.out == "5\n"


def test_resuming_such_a_command_hands_over_the_text_alone(cli: Command) -> None:
    run_id = cli("run", "5", "--raw", "--wait", "--json", "--", "cat").json["runId"]
    over(cli, run_id)
    assert "subagent" not in cli("resume", run_id, "6", "--wait").out


def test_a_text_can_come_from_standard_input(cli: Command, runs_dir: Path) -> None:
    run_id = ended(cli)
    text = "one\n\n$(id) \"two\" 'three' žluť"
    assert cli("resume", run_id, "-", "--wait", input=f"{text}\n".encode()).code == 0
    assert (runs_dir / run_id / "prompt-2.md").read_text().endswith(f"\n---\n\n{text}\n")


def test_the_next_attempt_has_its_own_variables_limit_and_the_same_folder(
    cli: Command, tmp_path: Path, runs_dir: Path
) -> None:
    (tmp_path / "there").mkdir()
    run_id = ended(cli, "pwd; echo ${MINE-none}; sleep ${LONG-0}", "--cwd", "there", "--env", "MINE=first")
    assert cli("result", run_id).out == f"{tmp_path}/there\nfirst\n"
    assert cli("resume", run_id, "x", "--wait", "--env", "MINE=second").out == f"{tmp_path}/there\nsecond\n"
    over(cli, run_id)
    late = cli("retry", run_id, "--wait", "--env", "LONG=600", "--timeout", "100ms", "--json", env=QUICK)
    assert (late.code, late.json["state"]) == (10, "timed_out")


@pytest.mark.case("X17")
def test_a_limit_that_the_run_was_given_holds_for_each_attempt(cli: Command) -> None:
    run_id = ended(cli, "sleep 600", "--timeout", "100ms")
    done = cli("retry", run_id, "--wait", "--json", env=QUICK, timeout=20)
    assert (done.json["attempt"], done.json["state"]) == (2, "timed_out")


@pytest.mark.case("X10")
@pytest.mark.parametrize("verb", [["resume", "Go on."], ["retry"], ["retry", "--fresh"]], ids=" ".join)
def test_a_run_that_is_alive_is_refused(cli: Command, runs_dir: Path, verb: list[str]) -> None:
    run_id = started(cli, script="exec sleep 600")
    before = snapshot(runs_dir, locks=False)
    done = cli(verb[0], run_id, *verb[1:], "--json")
    assert (done.code, done.json["error"]["code"]) == (4, "run_alive")
    assert done.json["error"]["next"] == f"subagent wait {run_id[-8:]}"
    assert "cancel" in done.json["error"]["hint"]
    assert snapshot(runs_dir, locks=False) == before


def test_a_run_whose_process_has_not_ended_is_alive_whatever_it_submitted(
    cli: Command, runs_dir: Path, gate: Gate
) -> None:
    run_id = started(
        cli,
        script=f"subagent submit result That.; echo here > {gate.said}; exec sleep 600",
        SUBAGENT_SUBMIT_GRACE="60s",
    )
    gate.heard()
    assert cli("retry", run_id, "--json").json["error"]["code"] == "run_alive"
    assert cli("cancel", run_id).code == 0
    assert cli("retry", run_id, env=QUICK).code == 0
    gate.heard()
    assert cli("status", run_id, "--json").json["attempt"] == 2


@pytest.mark.parametrize("state", ["pending", "ended"])
def test_a_run_that_somebody_else_started_is_refused(cli: Command, runs_dir: Path, state: str) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    if state == "ended":
        cli("update", run_id, "success")
    before = snapshot(runs_dir, locks=False)
    for words in (["resume", run_id, "Go on."], ["retry", run_id]):
        done = cli(*words, "--json")
        assert (done.code, done.json["error"]["code"]) == (4, "not_launched")
    assert snapshot(runs_dir, locks=False) == before
    assert processes(runs_dir) == []


def test_a_key_twice_is_one_attempt(cli: Command, runs_dir: Path, gate: Gate) -> None:
    run_id = ended(cli, "echo one")
    request = ["resume", run_id, "Go on.", "--key", "k"]
    both = [cli.start(*request, env=QUICK) for _ in range(2)]
    assert [finished(process).out for process in both] == [f"{run_id}\n"] * 2
    over(cli, run_id)
    assert cli(*request).code == 0
    assert event_types(runs_dir, run_id).count("resumed") == 1
    other = cli("resume", run_id, "Something else.", "--key", "k", "--json")
    assert (other.code, other.json["error"]["code"]) == (4, "key_reused")
    assert cli("status", run_id, "--json").json["attempt"] == 2


def test_a_key_is_good_while_the_attempt_is_under_way_too(cli: Command, gate: Gate) -> None:
    run_id = ended(cli, f"echo here > {gate.said}; [ -e second ] && exec sleep 600; touch second")
    gate.heard()
    request = ["retry", run_id, "--key", "k"]
    assert cli(*request, env=QUICK).code == 0
    gate.heard()
    again = cli(*request)
    assert (again.code, again.out) == (0, f"{run_id}\n")
    assert cli("retry", run_id, "--key", "other").code == 4


def test_of_two_attempts_at_once_one_is_made(cli: Command, runs_dir: Path) -> None:
    run_id = ended(cli, "[ -e second ] && exec sleep 600; touch second")
    both = [cli.start("retry", run_id, env=QUICK) for _ in range(2)]
    assert sorted(finished(process).code for process in both) == [0, 4]
    assert event_types(runs_dir, run_id).count("resumed") == 1
    assert cli("status", run_id, "--json").json["attempt"] == 2


def test_the_token_of_an_earlier_attempt_is_good_for_nothing(cli: Command, gate: Gate) -> None:
    script = f"echo $SUBAGENT_TOKEN >> tokens; echo here > {gate.said}; read word < {gate.word}"
    run_id = started(cli, script=script)
    gate.open()
    over(cli, run_id)
    gate.heard()
    assert cli("retry", run_id, env=QUICK).code == 0
    gate.heard()
    old, new = Path("tokens").read_text().split()
    assert old != new
    for words in (["whoami"], ["submit", "result", "Late."], ["tell", "Late."], ["update", "success"]):
        late = cli(*words, "--json", env={"SUBAGENT_RUN_ID": run_id, "SUBAGENT_TOKEN": old})
        assert (late.code, late.json["error"]["code"]) == (5, "denied"), words
    now = cli("submit", "result", "In time.", env={"SUBAGENT_RUN_ID": run_id, "SUBAGENT_TOKEN": new})
    assert now.code == 0
    gate.open()
    over(cli, run_id)
    assert cli("result", run_id).out == "In time.\n"


def lost(cli: Command, runs_dir: Path, gate: Gate, script: str) -> tuple[str, int]:
    """A run whose keeper was killed, and the process that it leaves behind."""
    run_id = started(cli, script=f"echo $$ > {gate.said}; {script}")
    child = int(gate.heard())
    keeper = keeper_of(runs_dir, run_id)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: keeper not in processes(runs_dir))
    return run_id, child


@pytest.mark.parametrize("swept", [False, True], ids=["as it was found", "swept"])
def test_a_lost_run_goes_on(cli: Command, runs_dir: Path, gate: Gate, swept: bool) -> None:
    run_id, child = lost(cli, runs_dir, gate, "[ -e second ] && exec echo found; touch second; exec sleep 600")
    eventually(lambda: Path("second").exists())
    os.kill(child, signal.SIGKILL)
    eventually(lambda: processes(runs_dir) == [])
    if swept:
        assert cli("sweep", "--json").json["lostRuns"] == [run_id]
    done = cli("resume", run_id, "Go on.", "--wait", "--json", env=QUICK)
    assert (done.code, done.json["result"], done.json["attempt"]) == (0, "found", 2)
    [attempt] = cli("status", run_id, "--json").json["attempts"]
    assert (attempt["state"], attempt["kind"], attempt["exitCode"]) == ("lost", "lost", None)
    early = cli("result", run_id, "--attempt", "1", "--json")
    assert (early.code, early.json["state"]) == (10, "lost")


def test_what_a_lost_attempt_left_behind_is_not_forgotten_by_the_next(cli: Command, runs_dir: Path, gate: Gate) -> None:
    """Two agents at one task, one of which nobody can find any more, is what must not be."""
    run_id, child = lost(cli, runs_dir, gate, "exec sleep 600")
    assert cli("status", run_id, "--json").json["orphans"] == [child]
    done = cli("retry", run_id, "--json", env=QUICK)
    assert done.code in (0, 4), done
    assert child not in processes(runs_dir) or child in cli("status", run_id, "--json").json["orphans"], done


@pytest.mark.parametrize("missing", ["program", "folder", "agent"])
def test_what_has_vanished_meanwhile_is_told_before_anything_changes(
    cli: Command, fakes: dict[str, str], runs_dir: Path, tmp_path: Path, missing: str
) -> None:
    (tmp_path / "there").mkdir()
    run_id = first(cli, fakes, "own", "--cwd", "there")
    if missing == "program":
        (tmp_path / "bin" / "own").unlink()
    elif missing == "folder":
        for file in (tmp_path / "there").iterdir():
            file.unlink()
        (tmp_path / "there").rmdir()
    else:
        (tmp_path / "mine.toml").write_text("")
    before = snapshot(runs_dir, locks=False)
    done = cli("resume", run_id, "Go on.", "--json", env=fakes)
    expected: dict[str, Any] = {
        "program": (3, "program_not_found"),
        "folder": (2, "bad_cwd"),
        "agent": (2, "unknown_agent"),
    }
    assert (done.code, done.json.get("error", {}).get("code")) == expected[missing], done
    assert snapshot(runs_dir, locks=False) == before


def test_a_worker_goes_on_with_a_run_that_it_started(cli: Command) -> None:
    script = (
        "id=$(subagent run 'Do more' -- sh -c 'echo deeper'); subagent wait $id > /dev/null;"
        "subagent resume $id 'And more' --wait > second; subagent whoami"
    )
    run_id = started(cli, "--max-depth", "2", script=script)
    over(cli, run_id)
    assert Path("second").read_text() == "deeper\n"

"""`subagent wait`: what wakes it, what it says then, what to type next, and that it never changes anything."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from shlex import split

import pytest

from tests.cli.living import (
    QUICK,
    Gate,
    finished,
    interrupted,
    keeper_of,
    started,
    waiting,
)
from tests.command import Command
from tests.services.desk import document, journal, snapshot

pytestmark = pytest.mark.usefixtures("nothing_survives")

ASKS = "subagent ask 'Which one?' --wait"


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path, "second")
    yield made
    made.close()


def held(cli: Command, gate: Gate, then: str = "echo fine", *options: str) -> str:
    """A run that goes on when the gate opens."""
    return started(cli, *options, script=f"read word < {gate.word}; {then}")


def test_a_wait_for_one_run_ends_with_it(cli: Command, gate: Gate) -> None:
    run_id = held(cli, gate)
    process = waiting(cli.start("wait", run_id))
    gate.open()
    done = finished(process)
    assert (done.code, done.out, done.err) == (0, f"{run_id[-8:]}  success  fine\n", "")


def test_a_wait_as_json_says_why_it_woke_and_what_is_next(cli: Command, gate: Gate) -> None:
    run_id = held(cli, gate)
    process = waiting(cli.start("wait", run_id, "--json"))
    gate.open()
    found = finished(process).json
    assert list(found) == ["woke", "cursor", "pending", "runs", "sub_agent_results", "questions", "next"]
    assert (found["woke"], found["questions"], found["cursor"]) == ("done", [], "-")
    [run] = found["runs"]
    assert (run["runId"], run["state"], run["result"], run["alive"]) == (run_id, "success", "fine", False)
    assert (run["exitCode"], run["attempt"]) == (0, 1)
    assert found["next"] == [f"subagent result {run_id[-8:]}"]


def test_a_run_that_has_ended_is_not_waited_for(cli: Command) -> None:
    run_id = started(cli, "--name", "n", script="echo fine")
    assert cli("wait", "n").code == 0
    for name in (run_id, run_id[-8:], "n", "@last"):
        assert cli("wait", name).out == f"{run_id[-8:]}  success  fine\n"


def test_a_wait_for_many_ends_with_the_last_of_them(cli: Command, gate: Gate, second: Gate) -> None:
    first, other = held(cli, gate, "echo one"), held(cli, second, "echo two")
    process = waiting(cli.start("wait", first, other, first))
    gate.open()
    assert cli("wait", first).code == 0
    assert process.poll() is None
    second.open()
    done = finished(process)
    assert (done.code, done.out) == (0, f"{first[-8:]}  success  one\n{other[-8:]}  success  two\n")


@pytest.mark.parametrize("option", [["--any"], ["--count", "1"]], ids=" ".join)
def test_a_wait_for_any_ends_with_the_first_and_names_it_alone(
    cli: Command, gate: Gate, second: Gate, option: list[str]
) -> None:
    first, other = held(cli, gate), held(cli, second)
    process = waiting(cli.start("wait", first, other, *option))
    second.open()
    done = finished(process)
    assert (done.code, done.out) == (0, f"{other[-8:]}  success  fine\n")
    assert cli("status", first, "--json").json["alive"] is True


def test_a_wait_for_a_number_of_runs_ends_with_as_many(cli: Command, gate: Gate) -> None:
    run_ids = [held(cli, gate) for _ in range(3)]
    process = waiting(cli.start("wait", *run_ids, "--count", "2", "--json"))
    gate.open()
    assert cli("wait", *run_ids, "--any").code == 0
    assert process.poll() is None
    gate.open()
    found = finished(process).json
    assert sorted(run["state"] for run in found["runs"]) == ["running", "success", "success"]
    assert len(found["next"]) == 2


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (["ok"], 0),
        (["ok", "ok"], 0),
        (["fails"], 10),
        (["fails", "fails"], 10),
        (["is late"], 10),
        (["cancelled"], 11),
        (["cancelled", "cancelled"], 11),
        (["ok", "fails"], 20),
        (["ok", "cancelled"], 20),
        (["ok", "is late", "cancelled"], 20),
        (["fails", "cancelled"], 10),
        (["fails", "is late"], 10),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, list) else None,
)
def test_the_exit_code_says_how_the_runs_ended(cli: Command, ends: list[str], code: int) -> None:
    run_ids = []
    for end in ends:
        script = {"ok": "true", "fails": "exit 3", "is late": "sleep 600", "cancelled": "sleep 600"}[end]
        run_ids.append(started(cli, *(["--timeout", "50ms"] if end == "is late" else []), script=script))
    stopped = [run_id for run_id, end in zip(run_ids, ends, strict=True) if end == "cancelled"]
    if stopped:
        assert cli("cancel", *stopped, "--grace", "0").code == 0
    assert cli("wait", *run_ids).code == code


@pytest.mark.case("X17")
def test_a_wait_that_takes_too_long_cancels_nothing(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="sleep 600")
    before = snapshot(runs_dir, locks=False)
    done = cli("wait", run_id, "--timeout", "100ms")
    assert (done.code, done.out) == (124, f"{run_id[-8:]}  running\n")
    assert done.err.splitlines() == [
        "the time is up; nothing was cancelled",
        f"next: subagent wait {run_id[-8:]} --after -",
    ]
    told = cli("wait", run_id, "--timeout", "100ms", "--json")
    assert (told.code, told.json["woke"], told.json["runs"][0]["alive"]) == (124, "timeout", True)
    assert told.json["next"] == [f"subagent wait {run_id[-8:]} --after -"]
    assert snapshot(runs_dir, locks=False) == before


def test_a_question_wakes_a_wait_which_says_how_to_answer_and_go_on(cli: Command) -> None:
    run_id = started(cli, script=ASKS)
    done = cli("wait", run_id)
    question = cli("pending", "--json").json[0]["message_id"]
    assert done.code == 12
    first, reply = done.out.splitlines()
    assert (first.startswith(f"sh {run_id[-8:]} asks ("), first.endswith("ago): Which one?")) == (True, True)
    assert reply.strip() == f"subagent reply {question[-8:]} ANSWER"
    assert done.err == f"then: subagent wait {run_id[-8:]} --after {question[-8:]}\n"
    told = cli("wait", run_id, "--json")
    assert (told.code, told.json["woke"], told.json["cursor"]) == (12, "question", question[-8:])
    [item] = told.json["questions"]
    assert (item["message_id"], item["question"], item["run_id"]) == (question, "Which one?", run_id)
    assert told.json["next"] == [item["reply"], f"subagent wait {run_id[-8:]} --after {question[-8:]}"]
    assert told.json["runs"][0]["state"] == "waiting_parent_reply"


def test_a_question_that_comes_later_wakes_a_wait(cli: Command, gate: Gate) -> None:
    run_id, other = held(cli, gate, ASKS), started(cli, script="sleep 600")
    process = waiting(cli.start("wait", other, run_id, "--json"))
    gate.open()
    done = finished(process)
    assert (done.code, [item["run_id"] for item in done.json["questions"]]) == (12, [run_id])


def test_behind_a_cursor_a_known_question_wakes_nobody_and_a_new_one_does(
    cli: Command, gate: Gate, second: Gate
) -> None:
    run_id = started(
        cli,
        script=f"subagent ask 'First?' > /dev/null; read word < {gate.word};"
        f"subagent ask 'Second?' > /dev/null; read word < {second.word}",
    )
    first = cli("wait", run_id, "--json").json
    assert [item["question"] for item in first["questions"]] == ["First?"]
    again = cli("wait", run_id, "--after", first["cursor"], "--timeout", "200ms", "--json")
    assert (again.code, again.json["cursor"]) == (124, first["cursor"])
    process = waiting(cli.start("wait", run_id, "--after", first["cursor"], "--json"))
    gate.open()
    done = finished(process)
    assert done.code == 12
    assert [item["question"] for item in done.json["questions"]] == ["First?", "Second?"]
    assert first["cursor"] in done.json["cursor"].split(".")
    last = cli("wait", run_id, "--after", done.json["cursor"], "--timeout", "200ms", "--json")
    assert (last.code, last.json["cursor"]) == (124, done.json["cursor"])
    process = waiting(cli.start("wait", run_id, "--after", done.json["cursor"]))
    second.open()
    assert finished(process).code == 0


def test_the_commands_that_a_wait_prints_lead_to_the_end(cli: Command) -> None:
    """As a parent that only copies what it reads."""
    run_id = started(cli, script=f"{ASKS}; subagent ask 'And then?' --wait")
    words = ["wait", run_id]
    answers = iter(["This.", "That."])
    for _ in range(2):
        done = cli(*words, "--json")
        assert done.code == 12, done
        reply, wait = done.json["next"]
        assert split(reply)[-1] == "ANSWER"
        assert cli(*split(reply)[1:-1], next(answers)).code == 0
        words = split(wait)[1:]
    last = cli(*words, "--json")
    assert (last.code, last.json["runs"][0]["result"]) == (0, "This.\nThat.")
    assert cli(*split(last.json["next"][0])[1:]).out == "This.\nThat.\n"


@pytest.mark.parametrize("option", [["--any"], ["--count", "1"]], ids=" ".join)
def test_the_next_wait_is_for_as_many_as_the_first(cli: Command, gate: Gate, option: list[str]) -> None:
    """Otherwise whoever copies it waits for all of them."""
    asks, other = started(cli, script=ASKS), held(cli, gate)
    question = cli("wait", asks, other, *option, "--json")
    late = cli("wait", asks, other, *option, "--after", question.json["cursor"], "--timeout", "50ms", "--json")
    assert (question.code, late.code) == (12, 124)
    gate.open()
    for done in (question, late):
        assert cli(*split(done.json["next"][-1])[1:], timeout=10).code == 0


def test_the_next_commands_name_the_runs_directory_where_it_was_named(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script=ASKS)
    told = cli("--runs-dir", runs_dir, "wait", run_id, "--json", env={"SUBAGENT_RUNS_DIR": None})
    assert [split(line)[1:3] for line in told.json["next"]] == [["--runs-dir", str(runs_dir)]] * 2


def test_questions_can_be_left_out(cli: Command) -> None:
    run_id = started(cli, script=ASKS)
    assert cli("wait", run_id).code == 12
    assert cli("wait", run_id, "--no-questions", "--timeout", "100ms").code == 124
    process = waiting(cli.start("wait", run_id, "--no-questions"))
    assert cli("reply", run_id, "That.").code == 0
    done = finished(process)
    assert (done.code, done.out) == (0, f"{run_id[-8:]}  success  That.\n")


def test_the_end_of_a_run_goes_before_questions_that_it_left(cli: Command) -> None:
    run_id = started(cli, script="subagent ask 'Which one?'; echo fine")
    assert cli("wait", run_id, "--no-questions").code == 0
    done = cli("wait", run_id, "--json")
    assert (done.code, done.json["woke"], done.json["questions"]) == (0, "done", [])


@pytest.mark.parametrize("when", ["while it waits", "before"])
def test_a_lost_keeper_wakes_a_wait_soon(cli: Command, runs_dir: Path, when: str) -> None:
    run_id = started(cli, script="sleep 600")
    words = ["wait", run_id, "--json"]
    process = waiting(cli.start(*words)) if when == "while it waits" else None
    os.kill(keeper_of(runs_dir, run_id), signal.SIGKILL)
    done = finished(process or cli.start(*words), within=5)
    assert (done.code, done.json["woke"], done.json["runs"][0]["state"]) == (10, "done", "lost")
    assert done.json["runs"][0]["alive"] is False
    # It only looked: what has become of it is written down by those who write.
    assert [event["type"] for event in journal(runs_dir, run_id)] == ["created"]


def test_two_that_wait_for_one_run_both_wake(cli: Command, gate: Gate) -> None:
    run_id = held(cli, gate)
    both = [waiting(cli.start("wait", run_id)) for _ in range(2)]
    gate.open()
    assert [finished(process).code for process in both] == [0, 0]


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_an_interrupt_detaches_and_the_run_goes_on(cli: Command, runs_dir: Path, gate: Gate, form: list[str]) -> None:
    run_id = held(cli, gate)
    before = snapshot(runs_dir)
    done = interrupted(cli.start("wait", run_id, *form))
    assert done.code == 130
    assert "Traceback" not in done.err
    assert "interrupted; nothing was cancelled" in (done.out if form else done.err)
    assert snapshot(runs_dir) == before
    gate.open()
    assert cli("wait", run_id).code == 0
    assert cli("result", run_id).out == "fine\n"


@pytest.mark.parametrize(("status", "code"), [("success", 0), ("completed", 0), ("error", 10)])
def test_a_run_that_somebody_else_started_can_be_waited_for(cli: Command, status: str, code: int) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    process = waiting(cli.start("wait", run_id, "--json"))
    assert cli("update", run_id, status, "--summary", "Mine.").code == 0
    done = finished(process)
    assert (done.code, done.json["runs"][0]["error" if code else "result"]) == (code, "Mine.")
    assert done.json["runs"][0]["alive"] is None


def test_a_question_of_a_run_that_somebody_else_started_wakes_a_wait_too(cli: Command) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    process = waiting(cli.start("wait", run_id, "--json"))
    assert cli("ask", "Which one?", "--run", run_id).code == 0
    done = finished(process)
    assert (done.code, done.json["questions"][0]["run_id"]) == (12, run_id)
    assert cli("cancel", run_id).code == 0
    assert cli("wait", run_id).code == 11


def test_an_agent_waits_for_the_runs_that_it_started(cli: Command, runs_dir: Path) -> None:
    script = "id=$(subagent run 'Do more' -- sh -c 'echo deeper'); subagent wait $id --json > woke; echo over"
    run_id = started(cli, "--max-depth", "2", script=script)
    assert cli("wait", run_id).code == 0
    assert '"result":"deeper"' in Path("woke").read_text()
    assert document(runs_dir, run_id)["status"] == "success"


def test_waiting_costs_no_processor_time(cli: Command) -> None:
    run_id = started(cli, script="sleep 600")
    process = waiting(cli.start("wait", run_id, "--timeout", "1500ms"))
    # The last look after a wake-up comes within about a second; from then on the kernel tells.
    used = _ticks(process.pid)
    cli("wait", run_id, "--timeout", "800ms", env=QUICK)
    assert process.poll() is None
    assert _ticks(process.pid) - used <= 3
    assert finished(process).code == 124


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_an_interrupted_question_says_how_to_go_on_with_it(cli: Command) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    done = interrupted(cli.start("ask", "Which?", "--run", run_id, "--wait"))
    [question] = cli("pending", "--json").json
    assert done.code == 130
    assert f"subagent check {question['message_id'][-8:]}" in done.err

"""The commands that wait, follow and sweep, as a shell calls them: what wakes them, what they print, how they end, and
that interrupting one changes nothing."""

import configparser
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context, open_context
from tests.command import PATIENCE, PROGRAM, Command, Done
from tests.services.desk import FOREIGN_RUN, foreign_message, journal, snapshot, words, write_foreign

SOON = 10.0
LONG = "5m"
NOBODY = "0190a000-0000-7000-8000-000000000000"

Process = subprocess.Popen[bytes]


@pytest.fixture
def house(runs_dir: Path) -> Context:
    """The same runs from within this process, which is quicker than a command for what is not tested here."""
    return open_context({"runs_dir": str(runs_dir)})


def new_run(house: Context) -> str:
    run_id: str = runs.create(house, "helper", "Do it")["runId"]
    return run_id


def ask(house: Context, run_id: str, text: str = "Which?", **more: Any) -> str:
    message_id: str = questions.ask(house, text, run=run_id, **more)["messageId"]
    return message_id


def watching(process: Process) -> None:
    """Waits until a process has begun to wait, which shows in what it has open."""
    until = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it does not begin to wait"
        links = []
        folder = f"/proc/{process.pid}/fd"
        for name in os.listdir(folder):
            try:
                links.append(os.readlink(os.path.join(folder, name)))
            except FileNotFoundError:
                continue
        if any("inotify" in link for link in links):
            return
        select.select([], [], [], 0.005)


def finished(process: Process, within: float = SOON) -> Done:
    """How a process ended, which it must do soon."""
    out, err = process.communicate(timeout=within)
    return Done(process.returncode, out, err)


def hear(process: Process, count: int) -> list[Any]:
    """The next lines of JSON that a process prints while it runs."""
    assert process.stdout is not None
    heard = b""
    until = time.monotonic() + SOON
    while heard.count(b"\n") < count:
        assert select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))[0], heard
        part = os.read(process.stdout.fileno(), 1)
        assert part, (heard, process.communicate())
        heard += part
    return [json.loads(line) for line in heard.splitlines()]


WAITS: dict[str, Callable[[str, str], list[str]]] = {
    "ask": lambda run_id, _: ["ask", "And which?", "--run", run_id, "--wait", "--timeout", LONG],
    "check": lambda _, message_id: ["check", message_id, "--wait", "--timeout", LONG],
    "pending": lambda run_id, _: ["pending", run_id, "--wait", "--timeout", LONG],
    "events": lambda *_: ["events", "-f"],
    "events of one run": lambda run_id, _: ["events", run_id, "-f"],
    "logs": lambda run_id, _: ["logs", run_id, "-f"],
}


@pytest.mark.case("C0-23")
def test_an_answer_ends_ask_and_is_all_that_it_prints(cli: Command, house: Context, runs_dir: Path) -> None:
    run_id = new_run(house)
    process = cli.start("ask", "Which?", "--run", run_id, "--wait", "--timeout", LONG)
    watching(process)
    questions.reply(house, run_id, "That.\nAnd that.")
    done = finished(process)
    assert (done.code, done.out, done.err) == (0, "That.\nAnd that.\n", "")
    assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"])


@pytest.mark.case("C0-23")
@pytest.mark.parametrize("peek", [False, True])
def test_an_answer_ends_check(cli: Command, house: Context, runs_dir: Path, peek: bool) -> None:
    run_id = new_run(house)
    message_id = ask(house, run_id)
    options = ["--peek"] if peek else []
    process = cli.start("check", message_id, "--wait", "--timeout", LONG, "--json", *options)
    watching(process)
    questions.reply(house, run_id, "That.")
    done = finished(process)
    assert done.code == 0
    assert (done.json["answer"], done.json["state"]) == ("That.", "ANSWERED")
    assert words(runs_dir, run_id)[1] == ["parent_replied" if peek else "acknowledged_by_subagent"]


@pytest.mark.parametrize("of", ["all", "one"])
def test_a_question_ends_pending(cli: Command, house: Context, of: str) -> None:
    run_id = new_run(house)
    process = cli.start("pending", *([run_id] if of == "one" else []), "--wait", "--timeout", LONG, "--json")
    watching(process)
    message_id = ask(house, run_id)
    done = finished(process)
    assert (done.code, [item["message_id"] for item in done.json]) == (0, [message_id])


def test_pending_can_wait_for_the_first_question_of_a_run_that_is_not_there_yet(
    cli: Command, house: Context, runs_dir: Path
) -> None:
    runs_dir.mkdir()
    process = cli.start("pending", "--wait", "--timeout", LONG, "--json")
    watching(process)
    message_id = ask(house, new_run(house))
    assert [item["message_id"] for item in finished(process).json] == [message_id]


def test_a_wait_that_is_answered_leads_to_the_next_command(cli: Command, house: Context) -> None:
    """A parent and a worker in two shells, each waiting for the other."""
    run_id = new_run(house)
    parent = cli.start("pending", "--wait", "--timeout", LONG, "--json")
    watching(parent)
    worker = cli.start("ask", "Which?", "--wait", "--timeout", LONG, env={"SUBAGENT_RUN_ID": run_id})
    (item,) = finished(parent).json
    program, *rest = shlex.split(item["reply"])
    assert program == "subagent"
    assert cli(*rest[:-1], "That.").code == 0
    assert finished(worker).out == "That.\n"


@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("form", ["text", "json"])
def test_an_interrupt_ends_a_wait_with_130_and_changes_nothing(
    cli: Command, house: Context, runs_dir: Path, what: str, form: str
) -> None:
    run_id, quiet = new_run(house), new_run(house)
    message_id = ask(house, run_id)
    waits = WAITS[what](quiet if what == "pending" else run_id, message_id)
    process = cli.start(*waits, *(["--json"] if form == "json" else []))
    watching(process)
    before = snapshot(runs_dir)
    process.send_signal(signal.SIGINT)
    done = finished(process)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert done.err.count("\n") <= 3
    assert snapshot(runs_dir) == before
    assert {item["message_id"] for item in questions.pending(house, run_id)[0]} >= {message_id}
    assert len(questions.pending(house, run_id)[0]) == (2 if what == "ask" else 1)


@pytest.mark.case("C0-29", "X31")
@pytest.mark.parametrize("verb", ["ask", "check"])
def test_a_question_that_expires_ends_the_wait_with_1(cli: Command, house: Context, verb: str) -> None:
    run_id = new_run(house)
    if verb == "ask":
        words_ = ["ask", "Which?", "--run", run_id, "--deadline", "300ms"]
    else:
        words_ = ["check", ask(house, run_id, deadline=300)]
    done = finished(cli.start(*words_, "--wait", "--timeout", LONG))
    assert (done.code, done.out) == (1, "")
    assert "expired" in done.err
    assert "Stalled" not in done.err
    found = cli("status", run_id, "--json").json
    assert (found["status"], found["messages"][0]["state"]) == ("running", "EXPIRED")


@pytest.mark.case("C0-29")
def test_a_sweep_ends_the_wait_for_what_it_expires(cli: Command, house: Context) -> None:
    run_id = new_run(house)
    process = cli.start("ask", "Which?", "--run", run_id, "--wait", "--timeout", LONG, "--json")
    watching(process)
    assert cli("sweep", "--max-age", "1ms", "--json").json["expired"] == 1
    done = finished(process)
    assert (done.code, done.json["answer"], done.json["state"]) == (1, None, "EXPIRED")


def test_a_default_is_the_answer_when_the_deadline_has_passed(cli: Command, house: Context, runs_dir: Path) -> None:
    run_id = new_run(house)
    options = ["--option", "red", "--option", "blue", "--default", "2", "--deadline", "300ms"]
    done = finished(cli.start("ask", "Which?", "--run", run_id, *options, "--wait", "--timeout", LONG))
    assert (done.code, done.out) == (0, "blue\n")
    assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"])


@pytest.mark.case("C0-19", "C0-20", "C0-21")
@pytest.mark.parametrize("verb", ["ask", "check"])
@pytest.mark.parametrize("by", ["option", "variable", "setting"])
def test_a_wait_whose_time_is_up_exits_with_124_in_the_exact_words_and_the_question_stays(
    cli: Command, house: Context, runs_dir: Path, verb: str, by: str
) -> None:
    run_id = new_run(house)
    words_ = ["ask", "Which?", "--run", run_id] if verb == "ask" else ["check", ask(house, run_id)]
    before = ["--set", "answer_timeout=200ms"] if by == "setting" else []
    behind = ["--timeout", "200ms"] if by == "option" else []
    env = {"SUBAGENT_ANSWER_TIMEOUT": "200ms"} if by == "variable" else {}
    done = finished(cli.start(*before, *words_, "--wait", *behind, env=env))
    assert (done.code, done.out) == (124, "")
    assert done.err.splitlines()[0] == "error: Stalled: Parent No-Response"
    program, *next_words = shlex.split(done.err.split("next: ")[1])
    assert program == "subagent"
    again = finished(cli.start(*before, *next_words, *behind, "--json", env=env))
    assert (again.code, again.json["success"]) == (124, False)
    assert (again.json["error"]["code"], again.json["error"]["message"]) == ("stalled", "Stalled: Parent No-Response")
    assert words(runs_dir, run_id) == ("waiting_parent_reply", ["pending_parent_reply"])
    assert cli("reply", run_id, "That.").code == 0
    assert finished(cli.start(*before, *next_words, *behind, env=env)).out == "That.\n"


def test_pending_whose_time_is_up_exits_with_124(cli: Command, house: Context) -> None:
    new_run(house)
    done = finished(cli.start("pending", "--wait", "--timeout", "100ms", "--json"))
    assert (done.code, done.json["error"]["code"]) == (124, "no_question")


@pytest.mark.parametrize("time_", ["", "0", "-1", "soon", "nan", "1y"])
@pytest.mark.parametrize("words_", [["check", "--wait", "--timeout"], ["sweep", "--max-age"]], ids=["check", "sweep"])
def test_a_time_that_is_none_is_refused(
    cli: Command, house: Context, runs_dir: Path, words_: list[str], time_: str
) -> None:
    message_id = ask(house, new_run(house))
    verb, *options = words_
    before = snapshot(runs_dir)
    done = cli(verb, *([message_id] if verb == "check" else []), *options, time_, timeout=SOON)
    assert done.code == 2
    assert snapshot(runs_dir) == before


def test_a_wait_can_be_as_long_as_anybody_likes(cli: Command, house: Context) -> None:
    run_id = new_run(house)
    parent = cli.start("pending", "--wait", "--timeout", "30d", "--json")
    watching(parent)
    message_id = ask(house, run_id, deadline=10**15)
    assert [item["message_id"] for item in finished(parent).json] == [message_id]
    worker = cli.start("check", message_id, "--wait", "--timeout", "9000000d")
    watching(worker)
    questions.reply(house, message_id, "That.")
    assert finished(worker).out == "That.\n"


def test_a_write_of_another_program_in_place_ends_check(cli: Command, house: Context, runs_dir: Path) -> None:
    run_id = new_run(house)
    message_id = ask(house, run_id)
    process = cli.start("check", message_id, "--wait", "--timeout", LONG)
    watching(process)
    script = """
import json, sys
with open(sys.argv[1], "r+", encoding="utf-8") as file:
    found = json.load(file)
    found["status"] = "parent_replied"
    found["messages"][0].update(
        answerContent="Theirs.", answerTimestamp="2026-01-02T03:04:05.678Z", messageStatus="parent_replied"
    )
    file.seek(0)
    file.truncate()
    file.flush()
    json.dump(found, file)
"""
    subprocess.run([sys.executable, "-c", script, runs_dir / run_id / ".meta.json"], check=True, timeout=PATIENCE)
    assert finished(process).out == "Theirs.\n"
    assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"])


@pytest.mark.case("C0-22")
def test_where_the_kernel_does_not_tell_a_wait_ends_all_the_same(cli: Command, house: Context, runs_dir: Path) -> None:
    message_id = ask(house, new_run(house))
    script = """
import sys
from subagent_cli.store.watch import Watch
Watch._open = lambda self: None
from subagent_cli.__main__ import start
sys.stderr.write("waiting\\n")
sys.stderr.flush()
start()
"""
    env = {**os.environ, "SUBAGENT_RUNS_DIR": str(runs_dir)}
    words_ = [*PROGRAM[:2], "-c", script, "check", message_id, "--wait", "--timeout", LONG]
    with subprocess.Popen(words_, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == b"waiting\n"
            questions.reply(house, message_id, "That.")
            assert finished(process).out == "That.\n"
        finally:
            process.kill()


def test_several_commands_that_wait_for_one_answer_all_print_it(cli: Command, house: Context, runs_dir: Path) -> None:
    run_id = new_run(house)
    message_id = ask(house, run_id)
    processes = [cli.start("check", message_id, "--wait", "--timeout", LONG) for _ in range(6)]
    for process in processes:
        watching(process)
    questions.reply(house, message_id, "That.")
    assert [finished(process).out for process in processes] == ["That.\n"] * 6
    assert [event["type"] for event in journal(runs_dir, run_id)].count("acknowledged") == 1


def test_a_wait_for_what_is_not_there_exits_with_3(cli: Command, house: Context) -> None:
    run_id = new_run(house)
    assert cli("check", NOBODY, "--wait", timeout=SOON).code == 3
    assert cli("pending", NOBODY, "--wait", timeout=SOON).code == 3
    assert cli("ask", "Which?", "--run", NOBODY, "--wait", timeout=SOON).code == 3
    assert cli("logs", NOBODY, "-f", timeout=SOON).code == 3
    assert cli("events", NOBODY, "-f", timeout=SOON).code == 3
    runs.update(house, run_id, "success")
    assert cli("pending", run_id, "--wait", timeout=SOON).code == 4


@pytest.mark.case("X9")
def test_a_single_question_waits_for_the_one_before_it(cli: Command, house: Context) -> None:
    run_id = new_run(house)
    process = cli.start("ask", "First?", "--run", run_id, "--single", "--wait", "--timeout", LONG)
    watching(process)
    second = cli("ask", "Second?", "--run", run_id, "--single", "--wait", "--timeout", LONG, "--json")
    assert (second.code, second.json["error"]["code"]) == (4, "question_open")
    questions.reply(house, run_id, "That.")
    assert finished(process).out == "That.\n"


def test_events_are_a_line_each_and_one_can_go_on_behind_a_number(cli: Command, house: Context) -> None:
    run_id, other = new_run(house), new_run(house)
    ask(house, run_id, "Which\nof \x1b[31mthem\u2028?")
    questions.tell(house, "Going on.", run=other)
    all_of_them = cli("events", "--json")
    assert all_of_them.code == 0
    assert [(event["runId"], event["seq"], event["type"]) for event in all_of_them.ndjson] == [
        (run_id, 1, "created"),
        (other, 1, "created"),
        (run_id, 2, "asked"),
        (other, 2, "told"),
    ]
    assert all_of_them.ndjson[2]["question"] == "Which\nof \x1b[31mthem\u2028?"
    assert "\x1b" not in all_of_them.out
    of_one = cli("events", run_id, "--after", "1", "--json")
    assert [event["seq"] for event in of_one.ndjson] == [2]
    assert cli("events", run_id, "--after", "2").out == ""
    plain = cli("events")
    assert len(plain.out.splitlines()) == 4
    assert "\x1b" not in plain.out
    for wrong in (["--after", "1"], [run_id, "--after", "-1"], [run_id, "--after", "x"]):
        assert cli("events", *wrong).code == 2


def test_events_of_no_run_are_no_output(cli: Command, runs_dir: Path) -> None:
    runs_dir.mkdir()
    done = cli("events", "--json")
    assert (done.code, done.out) == (0, "")


@pytest.mark.case("C1-35")
def test_a_damaged_run_is_reported_by_all_who_look_and_hides_no_other(cli: Command, tmp_path: Path) -> None:
    root = tmp_path / "foreign" / "runs"
    house = open_context({"runs_dir": str(root)})
    torn, run_id = new_run(house), new_run(house)
    message_id = ask(house, run_id)
    (root / torn / ".meta.json").write_bytes(b"{ torn")
    for verb in ("list", "pending", "status", "sweep"):
        done = cli(verb, "--json", runs_dir=root)
        assert done.code == 8, verb
        assert torn in done.err, verb
        assert "Traceback" not in done.err
    assert [row["runId"] for row in cli("list", "--json", runs_dir=root).json] == [run_id]
    assert [item["message_id"] for item in cli("pending", "--json", runs_dir=root).json] == [message_id]
    journal_file = root / torn / "journal.jsonl"
    journal_file.write_bytes(b"{ torn\n" + journal_file.read_bytes())
    done = cli("events", "--json", runs_dir=root)
    assert done.code == 8
    assert torn in done.err
    assert {event["runId"] for event in done.ndjson} == {run_id}
    assert cli("events", torn, runs_dir=root).code == 8
    swept = cli("sweep", "--max-age", "1ms", "--json", runs_dir=root)
    assert (swept.code, swept.json["expired"]) == (8, 1)
    assert [torn in error for error in swept.json["errors"]] == [True]


def test_events_as_they_come_take_in_new_runs(cli: Command, house: Context) -> None:
    first = new_run(house)
    process = cli.start("events", "-f", "--json")
    assert [(event["runId"], event["seq"]) for event in hear(process, 1)] == [(first, 1)]
    second = new_run(house)
    message_id = ask(house, second)
    heard = hear(process, 2)
    assert [(event["runId"], event["type"]) for event in heard] == [(second, "created"), (second, "asked")]
    # One after the other: of two events of one millisecond nobody knows which came first.
    questions.reply(house, message_id, "That.")
    assert [event["type"] for event in hear(process, 1)] == ["replied"]
    questions.tell(house, "Going on.", run=first)
    assert [event["type"] for event in hear(process, 1)] == ["told"]
    runs.update(house, second, "success")
    assert [(event["runId"], event["type"]) for event in hear(process, 1)] == [(second, "reported")]
    third = new_run(house)
    runs.update(house, third, "success")
    assert [(event["runId"], event["type"]) for event in hear(process, 2)] == [(third, "created"), (third, "reported")]


def test_events_of_one_run_end_with_it(cli: Command, house: Context) -> None:
    run_id = new_run(house)
    process = cli.start("events", run_id, "-f", "--json")
    hear(process, 1)
    questions.tell(house, "Going on.", run=run_id)
    runs.update(house, run_id, "success")
    done = finished(process)
    assert done.code == 0
    assert [event["type"] for event in done.ndjson] == ["told", "reported"]


@pytest.mark.parametrize("turn", range(5))
def test_a_followed_log_ends_with_the_run_and_its_last_words(cli: Command, house: Context, turn: int) -> None:
    run_id = new_run(house)
    house.runs.log(run_id, "[stdout] zero", "[stdout] one", now=house.clock.now())
    process = cli.start("logs", run_id, "-f", "-n", "1", "--json")
    assert [line["text"] for line in hear(process, 1)] == ["one"]
    for number in range(50):
        house.runs.log(run_id, f"[stdout] line {number}", now=house.clock.now())
    runs.update(house, run_id, "success", "Done.")
    done = finished(process)
    assert done.code == 0
    expected = [*(f"line {number}" for number in range(50)), "Status updated to: success", "Summary: Done."]
    assert [line["text"] for line in done.ndjson] == expected


def test_a_log_can_be_followed_from_now_on(cli: Command, house: Context) -> None:
    run_id = new_run(house)
    house.runs.log(run_id, "[stdout] old", now=house.clock.now())
    process = cli.start("logs", run_id, "-f", "-n", "0")
    watching(process)
    # It has looked when it sleeps.
    runs.update(house, run_id, "success")
    done = finished(process)
    assert "old" not in done.out


def test_a_reader_that_goes_away_ends_a_stream_quietly(cli: Command, house: Context) -> None:
    run_id = new_run(house)
    process = cli.start("events", "-f", "--json")
    hear(process, 1)
    assert process.stdout is not None
    process.stdout.close()
    questions.tell(house, "Going on.", run=run_id)
    assert process.stderr is not None
    assert process.wait(SOON) in (0, 1)
    assert b"Traceback" not in process.stderr.read()


@pytest.mark.case("C0-25")
def test_sweep_tells_what_it_has_done(cli: Command, house: Context, runs_dir: Path) -> None:
    run_id = new_run(house)
    message_id = ask(house, run_id)
    ask(house, run_id, default="that", deadline=1)
    before = snapshot(runs_dir)
    would = cli("sweep", "--max-age", "1ms", "--dry-run", "--json")
    assert snapshot(runs_dir) == before
    assert would.code == 0
    assert (would.json["expired"], would.json["dryRun"]) == (1, True)
    assert cli("sweep", "--json").json["expired"] == 0
    done = cli("sweep", "--max-age", "1ms", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json.keys() >= {"scanned", "expired", "timedOut", "lost", "errors"}
    assert (done.json["scanned"], done.json["expired"], done.json["messages"]) == (1, 1, [message_id])
    plain = cli("sweep")
    assert (plain.code, plain.err) == (0, "")
    assert "nothing to do" in plain.out


def test_sweep_enters_what_was_copied_in(cli: Command, house: Context, runs_dir: Path, tmp_path: Path) -> None:
    new_run(house)
    cli("sweep")
    there = open_context({"runs_dir": str(tmp_path / "elsewhere")})
    run_id = new_run(there)
    message_id = ask(there, run_id)
    shutil.copytree(tmp_path / "elsewhere" / run_id, runs_dir / run_id)
    stamp = there.clock.now().iso
    write_foreign(runs_dir, status="waiting_parent_reply", messages=[foreign_message(questionTimestamp=stamp)])
    assert cli("pending", "--json").json == []
    assert set(cli("sweep", "--json").json["entered"]) == {run_id, FOREIGN_RUN}
    shown = cli("pending", "--json").json
    assert [item["run_id"] for item in shown] == [run_id, FOREIGN_RUN]
    assert shown[0]["message_id"] == message_id
    assert cli("check", message_id).code == 0


@pytest.mark.parametrize("made", [True, False])
def test_sweep_of_nothing(cli: Command, runs_dir: Path, made: bool) -> None:
    if made:
        runs_dir.mkdir()
    done = cli("sweep", "--json")
    assert done.code == (0 if made else 3)
    assert runs_dir.exists() == made


def test_two_sweeps_at_once_do_the_work_of_one(cli: Command, house: Context) -> None:
    asked = [ask(house, new_run(house)) for _ in range(20)]
    processes = [cli.start("sweep", "--max-age", "1ms", "--json") for _ in range(3)]
    told = [finished(process, PATIENCE) for process in processes]
    assert [done.code for done in told] == [0, 0, 0]
    assert sorted(message_id for done in told for message_id in done.json["messages"]) == sorted(asked)


FOLDERS = ["runs", "with space", "50%", "a$b", "${HOME}", 'q"uote', "o'brien", "back\\slash", "semi;colon", "Žluť"]


def script(root: Path, *words_: str) -> str:
    """What the installed program prints, called by its own path."""
    program = Path(PROGRAM[0]).with_name("subagent")
    done = subprocess.run([program, "--runs-dir", root, *words_], capture_output=True, timeout=PATIENCE, check=True)
    assert done.stderr == b""
    return done.stdout.decode()


@pytest.mark.parametrize("name", FOLDERS)
def test_the_line_for_cron_is_one_and_runs_as_it_stands(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    house = open_context({"runs_dir": str(root), "question_ttl": "1ms"})
    ask(house, new_run(house), deadline=1)
    (line,) = script(root, "sweep", "--print-cron").splitlines()
    fields = line.split(" ", 5)
    assert all(re.fullmatch(r"\*(/\d+)?", field) for field in fields[:5])
    # Cron takes a percent sign for the end of the command unless a backslash stands before it, which it removes.
    assert not re.search(r"(?<!\\)%", fields[5])
    command = fields[5].replace("\\%", "%")
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "nobody"), "SHELL": "/bin/sh"}
    done = subprocess.run(["/bin/sh", "-c", command], env=bare, cwd="/", capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert json.loads(script(root, "sweep", "--json"))["expired"] == 0
    (run_id,) = house.runs.all()
    assert words(root, run_id)[1] == ["parent_acknowledged"]


@pytest.mark.parametrize("name", FOLDERS)
def test_the_units_for_systemd_are_well_formed_and_name_the_folder(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    text = script(root, "sweep", "--print-systemd")
    service, timer = (part for part in re.split(r"(?m)^# \S+\.(?:service|timer)\n", text) if part.strip())
    units = []
    for part in (service, timer):
        unit = configparser.ConfigParser(interpolation=None, strict=True)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(part)
        units.append(unit)
    assert units[0]["Service"]["Type"] == "oneshot"
    assert units[1]["Install"]["WantedBy"] == "timers.target"
    assert re.fullmatch(r"\d+min", units[1]["Timer"]["OnUnitActiveSec"])
    # Systemd knows quotes and backslashes as a shell does, and doubles percent and dollar signs.
    words_ = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(units[0]["Service"]["ExecStart"])]
    assert words_ == [str(Path(PROGRAM[0]).with_name("subagent")), "--runs-dir", str(root), "sweep"]

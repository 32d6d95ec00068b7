"""Errors: one line that says what is wrong, what helps, the exit code of its kind, and never a traceback."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.command import PATIENCE, PROGRAM, Command
from tests.services.desk import snapshot

NOBODY = "0190a000-0000-7000-8000-000000000000"


def create(cli: Command, *more: str) -> str:
    return cli("create", "helper", "Do it", *more).out.strip()


def error(cli: Command, *args: str, code: int, name: str) -> dict[str, object]:
    """The error both ways: as an object and as lines, with the same exit code."""
    as_json = cli(*args, "--json")
    assert (as_json.code, as_json.err) == (code, ""), as_json
    assert as_json.json["success"] is False
    told: dict[str, object] = as_json.json["error"]
    assert told["code"] == name
    assert {"code", "message", "hint"} <= told.keys() <= {"code", "message", "hint", "candidates", "next"}
    plain = cli(*args)
    assert (plain.code, plain.out) == (code, ""), plain
    first, *rest = plain.err.splitlines()
    assert first == f"error: {' '.join(str(told['message']).split())}"
    if told["hint"]:
        assert f"hint: {told['hint']}" in rest
    return told


@pytest.mark.case("X27")
@pytest.mark.parametrize(("typed", "meant"), [("stauts", "status"), ("replay", "reply"), ("lst", "list")])
def test_an_unknown_command_is_answered_with_the_one_that_may_be_meant(cli: Command, typed: str, meant: str) -> None:
    told = error(cli, typed, code=2, name="usage")
    assert f"Did you mean {meant}" in str(told["message"])


@pytest.mark.case("X27")
def test_an_unknown_option_is_answered_with_the_one_that_may_be_meant(cli: Command) -> None:
    told = error(cli, "ask", "Which?", "--deadlin", "5m", code=2, name="usage")
    assert "--deadline" in str(told["message"])
    assert "subagent ask --help" in str(told["hint"])


@pytest.mark.case("X27", "C1-41")
def test_an_unknown_status_is_answered_with_those_there_are(cli: Command) -> None:
    run_id = create(cli)
    told = error(cli, "update", run_id, "sucess", code=2, name="unknown_status")
    assert told["candidates"] == ["success", "error", "running", "completed"]
    told = error(cli, "list", "--status", "runing", code=2, name="unknown_status")
    assert "running" in str(told["candidates"])


@pytest.mark.case("X27", "C1-12")
def test_an_unknown_run_or_message_is_not_found_and_the_similar_is_named(cli: Command) -> None:
    create(cli, "--name", "tidy-notes")
    told = error(cli, "ask", "Which?", "--run", "tidy-note", code=3, name="run_not_found")
    assert told["candidates"] == ["tidy-notes"]
    error(cli, "result", NOBODY, code=3, name="run_not_found")
    told = error(cli, "reply", "tidy-notez", "That.", code=3, name="not_found")
    assert told["candidates"] == ["tidy-notes"]
    error(cli, "reply", "tidy-notes", NOBODY, "That.", code=3, name="message_not_found")


@pytest.mark.case("X27")
def test_a_forgotten_answer_is_said_to_be_missing(cli: Command) -> None:
    run_id = create(cli)
    message_id = cli("ask", "Which?", "--run", run_id).out.strip()
    for words in ([run_id], [message_id], [run_id, message_id]):
        told = error(cli, "reply", *words, code=2, name="usage")
        assert "the answer is missing" in str(told["message"])
    assert "quotes" in str(error(cli, "reply", run_id, message_id, "use", "that", code=2, name="usage")["message"])


@pytest.mark.case("X27")
def test_an_ambiguous_part_is_answered_with_the_candidates(cli: Command, runs_dir: Path) -> None:
    both = ["abcd0000-0000-4000-8000-000000000001", "abcd0000-0000-4000-8000-000000000002"]
    for run_id in both:
        (runs_dir / run_id).mkdir(parents=True)
    told = error(cli, "result", "abcd", code=2, name="ambiguous")
    assert sorted(told["candidates"]) == both  # type: ignore[call-overload]
    assert both[0] in cli("result", "abcd").err


@pytest.mark.case("X27")
def test_what_is_refused_in_this_state_says_so(cli: Command) -> None:
    run_id = create(cli)
    told = error(cli, "result", run_id, code=4, name="not_finished")
    assert str(told["next"]).startswith("subagent wait ")
    cli("update", run_id, "success")
    error(cli, "ask", "Which?", "--run", run_id, code=4, name="run_finished")
    error(cli, "update", run_id, "running", code=4, name="run_finished")
    error(cli, "reply", run_id, "That.", code=4, name="no_pending_question")


@pytest.mark.case("X27")
def test_a_wrong_token_is_denied(cli: Command, runs_dir: Path) -> None:
    made = cli("create", "helper", "Do it", "--json").json
    before = snapshot(runs_dir)
    wrong = {**made["env"], "SUBAGENT_TOKEN": "0" * 64}
    for verb in (["ask", "Which?"], ["status"], ["list"], ["update", "success"], ["create", "helper", "Do it"]):
        done = cli(*verb, "--json", env=wrong)
        assert (done.code, done.json["error"]["code"]) == (5, "denied"), verb
    lonely = cli("list", "--json", env={"SUBAGENT_TOKEN": "0" * 64})
    assert (lonely.code, lonely.json["error"]["code"]) == (5, "denied")
    assert snapshot(runs_dir) == before


@pytest.mark.case("X27")
def test_a_busy_run_names_its_holder_and_can_be_tried_again(cli: Command, runs_dir: Path) -> None:
    run_id = create(cli)
    cli("update", run_id, "running")
    script = "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    lock = runs_dir / ".locks" / f"{run_id}.lock"
    holder = subprocess.Popen(
        [PROGRAM[0], "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        holder.stdout.readline()
        done = cli("--set", "lock_timeout=10ms", "ask", "Which?", "--run", run_id, "--json")
        assert (done.code, done.json["error"]["code"]) == (7, "busy")
        assert "again" in done.json["error"]["hint"]
        assert cli("status", run_id).code == 0
    finally:
        holder.stdin.close()
        holder.wait(PATIENCE)
        holder.stdout.close()
    assert cli("ask", "Which?", "--run", run_id).code == 0


BAD = [
    [],
    ["--nonsense"],
    ["--runs-dir"],
    ["--set", "nonsense", "list"],
    ["--set", "max_text=many", "list"],
    ["--set", f"max_text={'9' * 5000}", "list"],
    ["--set", "nonsense=1", "list"],
    ["--runs-dir", "", "list"],
    ["ask"],
    ["ask", "Which?"],
    ["ask", "", "--run", "tidy"],
    ["ask", "a", "b", "--run", "tidy"],
    ["ask", "Which?", "--run", ""],
    ["ask", "Which?", "--run", "tidy", "--option", "one"],
    ["ask", "Which?", "--run", "tidy", *["--option", "x"] * 5],
    ["ask", "Which?", "--run", "tidy", "--option", "a", "--option", "b", "--default", "3"],
    ["ask", "Which?", "--run", "tidy", "--option", "a", "--option", "b", "--default", "9" * 5000],
    ["ask", "Which?", "--run", "tidy", "--deadline", "soon"],
    ["ask", "Which?", "--run", "tidy", "--deadline", "-1"],
    ["ask", "Which?", "--run", "tidy", "--deadline", "nan"],
    ["check"],
    ["check", "", "--run", "tidy"],
    ["check", "zzzz"],
    ["create", "helper"],
    ["create", "", "Do it"],
    ["create", "helper", ""],
    ["create", "helper", "Do it", "--name", "../x"],
    ["create", "helper", "Do it", "--cwd", "/nowhere"],
    ["list", "--limit", "0"],
    ["list", "--limit", "many"],
    ["list", "extra"],
    ["list", "--status", "\x1b[2J"],
    ["logs", "tidy", "-n", "-1"],
    ["logs", "tidy", "-n", "x"],
    ["pending", "a", "b"],
    ["reply"],
    ["reply", "tidy"],
    ["reply", "tidy", "That."],
    ["reply", "tidy", "a", "b", "c"],
    ["reply", "tidy", "zzzz", "That."],
    ["result"],
    ["result", "tidy"],
    ["schema", "nonsense"],
    ["schema", "--typescript", "nonsense"],
    ["completion"],
    ["completion", "powershell"],
    ["status", "zzzz"],
    ["status", "\x1b]52;c;aGk=\x07"],
    ["tell"],
    ["tell", "", "--run", "tidy"],
    ["update"],
    ["update", "tidy"],
    ["update", "tidy", "nonsense"],
    ["update", "tidy", "success", "extra"],
]


@pytest.mark.case("X27")
@pytest.mark.parametrize("words", BAD, ids=lambda words: " ".join(words)[:60].encode("unicode_escape").decode() or "-")
def test_bad_input_is_told_in_a_line_and_changes_nothing(cli: Command, runs_dir: Path, words: list[str]) -> None:
    create(cli, "--name", "tidy")
    before = snapshot(runs_dir, locks=False)
    done = cli(*words)
    assert done.code in (2, 3, 4), done
    assert "Traceback" not in done.err
    assert "fault of subagent" not in done.err
    assert done.err.strip() or done.out.strip()
    assert "\x1b" not in done.out + done.err
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("X27")
def test_no_fault_shows_a_traceback_unless_it_is_asked_for(cli: Command) -> None:
    create(cli)
    assert "Traceback" not in cli("result", "@last").err
    debugged = cli("result", "@last", env={"SUBAGENT_DEBUG": "1"})
    assert debugged.code == 4
    assert "Traceback" in debugged.err


def shell(cli: Command, line: str) -> "subprocess.CompletedProcess[bytes]":
    """A line of shell in which `"$@"` is the program."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *PROGRAM],
        capture_output=True,
        timeout=PATIENCE,
        env={**os.environ, "SUBAGENT_RUNS_DIR": os.fspath(cli.runs_dir)},
        check=False,
    )


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["result", "@last"], ["nonsense", "--json"], ["-h"]])
def test_a_reader_that_has_gone_away_is_no_reason_to_complain(cli: Command, words: list[str]) -> None:
    run_id = create(cli)
    cli("update", run_id, "success", "--summary", "-", input=b"line\n" * 50_000)
    reader, writer = os.pipe()
    # Closed before the program starts, so that no buffer of the system can hide the loss.
    os.close(reader)
    try:
        done = subprocess.run(
            [*PROGRAM, *words],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            env={**os.environ, "SUBAGENT_RUNS_DIR": os.fspath(cli.runs_dir)},
            check=False,
        )
    finally:
        os.close(writer)
    assert done.stderr == b""


@pytest.mark.parametrize("form", ["", "--json"], ids=["plain", "json"])
@pytest.mark.parametrize("way", [">&-", "2>&-", "<&-", ">&- 2>&-", "> /dev/full"])
def test_closed_and_full_streams_give_no_traceback(cli: Command, way: str, form: str) -> None:
    run_id = create(cli)
    cli("update", run_id, "running")
    for verb, code in (("list", 0), (f"tell x --run {run_id}", 0), (f"result {run_id}", 4), ("nonsense", 2), ("-h", 0)):
        done = shell(cli, f'"$@" {verb} {form} {way}')
        assert b"Traceback" not in done.stderr, verb
        assert b"fault of subagent" not in done.stderr, verb
        assert b"Exception ignored" not in done.stderr, verb
        assert len(done.stderr.splitlines()) <= 3, verb
        if way in ("2>&-", "<&-"):
            assert done.returncode == code, verb


@pytest.mark.parametrize("form", ["", "--json"], ids=["plain", "json"])
def test_a_change_whose_result_cannot_be_printed_is_not_called_a_failure_and_its_retry_changes_nothing(
    cli: Command, form: str
) -> None:
    create(cli)
    for _ in range(2):
        done = shell(cli, f'"$@" ask "Which?" --run @last --key k {form} > /dev/full')
        assert done.returncode == 9
        assert done.stderr.startswith(b"error: the result could not be printed: No space left on device\nhint: ")
        assert b"--key" in done.stderr
    assert len(cli("pending", "--json").json) == 1


def test_a_text_that_should_come_from_a_closed_input_is_missing_and_not_a_fault(cli: Command, runs_dir: Path) -> None:
    create(cli)
    before = snapshot(runs_dir, locks=False)
    done = shell(cli, '"$@" ask - --run @last <&-')
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: ")
    assert b"fault of subagent" not in done.stderr
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.parametrize("words", [["ask", "Which?", "--run", "@last"], ["check", "0000"], ["pending"]])
def test_a_limit_for_a_wait_that_nobody_asked_for_is_a_mistake(cli: Command, words: list[str]) -> None:
    create(cli)
    told = error(cli, *words, "--timeout", "1s", code=2, name="usage")
    assert "--wait" in str(told["message"])
    assert cli("pending", "--json").json == []

"""Mistakes in starting, waiting for, ending and going on with runs: each is told in one line with its exit code and
its word, and leaves nothing behind: no run, no process, no entry."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from subagent_cli.core.errors import InvalidInput, NotFound
from subagent_cli.services import cancellation, identity, outcomes, resumption, waiting
from subagent_cli.services.context import Context
from subagent_cli.services.settings import Caller
from tests.cli.living import QUICK, eventually, one_line, over, processes, program, started
from tests.cli.test_bad_input import HOSTILE
from tests.command import PATIENCE, PROGRAM, Command, Done
from tests.services.desk import create, snapshot

pytestmark = pytest.mark.usefixtures("nothing_survives")

NOBODY = "0190a000-0000-7000-8000-000000000000"
REPAINT = "\x1b[31mred\x1b]0;title\x07 \u202eevil\u2066 \x9b31m"


@pytest.fixture
def ended(cli: Command, runs_dir: Path) -> str:
    """A run that has ended, and whose keeper has tidied up."""
    run_id = started(cli, "--name", "tidy", script="echo fine")
    assert cli("wait", run_id).code == 0
    eventually(lambda: processes(runs_dir) == [])
    return run_id


def refused(cli: Command, tmp_path: Path, words: Sequence[str], code: int, word: str, **call: object) -> Done:
    """Tries it in both forms; nothing may have changed anywhere."""
    before = snapshot(tmp_path)
    plain = cli(*words, **call)  # type: ignore[arg-type]
    # In front: behind -- it would be the command's own.
    told = cli("--json", *words, **call)  # type: ignore[arg-type]
    assert (plain.code, told.code, told.err) == (code, code, ""), (plain, told)
    error = told.json["error"]
    assert (told.json["success"], error["code"]) == (False, word), told
    assert " ".join(error["message"].split())[:40] in one_line(plain), (plain, told)
    assert snapshot(tmp_path) == before
    assert processes(tmp_path / "runs") == []
    return told


WRONG: dict[str, tuple[list[str], int, str]] = {
    "a program that is not there": (["Do it", "--", "no-such-program"], 3, "program_not_found"),
    "a path that is not there": (["Do it", "--", "/no/such/program"], 3, "program_not_found"),
    "a relative path that is not there": (["Do it", "--", "./no-such-program"], 3, "program_not_found"),
    "a path that counts from elsewhere": (["Do it", "--cwd", "folder", "--", "./tool"], 3, "program_not_found"),
    "a folder as program": (["Do it", "--", "/tmp"], 3, "program_not_found"),
    "a folder beside us as program": (["Do it", "--", "./folder"], 3, "program_not_found"),
    "a file that cannot be run": (["Do it", "--", "./plain"], 3, "program_not_found"),
    "a program below a file": (["Do it", "--", "./plain/x"], 3, "program_not_found"),
    "a link to nothing": (["Do it", "--", "./dangling"], 3, "program_not_found"),
    "a program without a name": (["Do it", "--", ""], 2, "no_command"),
    "no program at all": (["Do it", "--"], 2, "no_command"),
    "a folder that is not there": (["Do it", "--cwd", "nowhere", "--", "true"], 2, "bad_cwd"),
    "a file as folder": (["Do it", "--cwd", "plain", "--", "true"], 2, "bad_cwd"),
    "a folder below a file": (["Do it", "--cwd", "plain/x", "--", "true"], 2, "bad_cwd"),
    "a folder without a name": (["Do it", "--cwd", "", "--", "true"], 2, "bad_cwd"),
    "a folder with a name that is too long": (["Do it", "--cwd", "x" * 5000, "--", "true"], 2, "bad_cwd"),
    "an agent that nobody knows": (["nobody", "Do it"], 2, "unknown_agent"),
    "an agent that is not installed": (["absent", "Do it"], 3, "program_not_found"),
    "an agent without a name": (["", "Do it"], 2, "invalid_agent"),
    "an agent with a hostile name": (["../../etc", "Do it"], 2, "unknown_agent"),
    "an empty task": (["", "--", "true"], 2, "empty_text"),
    "an empty task for an agent": (["mine", ""], 2, "empty_text"),
    "nothing": ([], 2, "usage"),
    "an agent alone": (["mine"], 2, "usage"),
    "too many words": (["mine", "Do", "it"], 2, "usage"),
    "an agent and a command": (["mine", "Do it", "--", "true"], 2, "usage"),
    "a command without a task": (["--", "true"], 2, "usage"),
    "an option that nobody knows": (["Do it", "--color", "--", "true"], 2, "usage"),
    "two ways to wait": (["Do it", "--wait", "--follow", "--", "true"], 2, "usage"),
    "a model for a command": (["Do it", "--model", "big", "--", "true"], 2, "usage"),
    "words for a command that has its own": (["Do it", "--arg", "x", "--", "true"], 2, "usage"),
    "a model for an agent without": (["mine", "Do it", "--model", "big"], 2, "no_model_option"),
    "a depth of 0": (["Do it", "--max-depth", "0", "--", "true"], 2, "usage"),
    "a depth that is no number": (["Do it", "--max-depth", "x", "--", "true"], 2, "usage"),
    "a variable without =": (["Do it", "--env", "PLAIN", "--", "true"], 2, "invalid_env"),
    "a variable without a name": (["Do it", "--env", "=x", "--", "true"], 2, "invalid_env"),
    "a variable twice": (["Do it", "--env", "A=1", "--env", "A=2", "--", "true"], 2, "invalid_env"),
    "a token of one's own": (["Do it", "--env", "SUBAGENT_TOKEN=x", "--", "true"], 2, "invalid_env"),
    "an identity of one's own": (["Do it", "--env", "SUBAGENT_RUN_ID=x", "--", "true"], 2, "invalid_env"),
    "a setting of ours as a variable": (["Do it", "--env", "SUBAGENT_OUTPUT=json", "--", "true"], 2, "invalid_env"),
    "a label without =": (["Do it", "--label", "x", "--", "true"], 2, "invalid_label"),
    "a label without a name": (["Do it", "--label", "=x", "--", "true"], 2, "invalid_label"),
    "a label with a bad name": (["Do it", "--label", "a b=c", "--", "true"], 2, "invalid_label"),
    "a label of two lines": (["Do it", "--label", "a=b\nc", "--", "true"], 2, "invalid_label"),
    "a label that is too long": (["Do it", "--label", "a=" + "x" * 257, "--", "true"], 2, "invalid_label"),
    "a label twice": (["Do it", "--label", "a=b", "--label", "a=c", "--", "true"], 2, "invalid_label"),
    "a task that is no text": (["caf\udce9", "--", "true"], 2, "not_utf8"),
    "a name that is no text": (["Do it", "--name", "caf\udce9", "--", "true"], 2, "invalid_name"),
}


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """Files and agents to make mistakes with."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "dangling").symlink_to("nowhere-to-be-found")
    program(tmp_path / "tool", "true")
    file = tmp_path / "mine.toml"
    file.write_text('[agents.mine]\ncommand = ["true"]\n[agents.absent]\ncommand = ["no-such-program"]\n')
    return {"SUBAGENT_AGENTS": str(file)}


@pytest.mark.case("C1-54", "C1-56")
@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_told_before_anything_exists(
    cli: Command, tmp_path: Path, surroundings: dict[str, str], what: str
) -> None:
    words, code, word = WRONG[what]
    refused(cli, tmp_path, ["run", *words], code, word, env=surroundings)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("time_", ["x", "0", "-1", "", " ", "1y", "nan", "inf", "1e999", "5 m m", "0x5"])
def test_a_time_limit_that_is_none_is_refused(cli: Command, tmp_path: Path, time_: str) -> None:
    refused(cli, tmp_path, ["run", "Do it", f"--timeout={time_}", "--", "true"], 2, "invalid_input")


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".x", "-x", "a b", "x\ny", "\x1b[31m", "\u202eabc", "x" * 129, NOBODY, "@last", "é" * 65]
)
def test_a_name_that_is_none_is_refused(cli: Command, tmp_path: Path, name: str) -> None:
    refused(cli, tmp_path, ["run", "Do it", f"--name={name}", "--", "true"], 2, "invalid_name")


@pytest.mark.case("C1-56")
def test_an_agent_that_is_nearly_right_is_named(cli: Command, tmp_path: Path) -> None:
    told = refused(cli, tmp_path, ["run", "cluade", "Do it"], 2, "unknown_agent")
    assert told.json["error"]["message"] == "Unknown subagent: cluade"
    assert told.json["error"]["candidates"] == ["claude"]
    assert "subagent agents" in told.json["error"]["hint"]


def test_what_is_missing_is_named_as_it_was_typed(cli: Command, tmp_path: Path) -> None:
    told = refused(cli, tmp_path, ["run", "Do it", "--", "/no/such/program"], 3, "program_not_found")
    assert "/no/such/program" in told.json["error"]["message"]
    # A path from the root is not looked for in any folder.
    assert str(tmp_path) not in told.json["error"]["message"]


def test_a_task_that_begins_with_a_dash_is_not_sent_behind_the_dashes(cli: Command, tmp_path: Path) -> None:
    """There the command stands; standard input takes any text."""
    for words in (["run", "- one\n- two", "--", "true"], ["run", "claude", "-x"]):
        told = refused(cli, tmp_path, words, 2, "usage")
        assert "goes behind --" not in told.json["error"]["hint"], told
    done = cli("run", "-", "--raw", "--wait", "--", "cat", input=b"- one\n- two")
    assert done.out == "- one\n- two\n"


def test_a_command_whose_name_is_two_lines_is_told_as_such(cli: Command, tmp_path: Path) -> None:
    for word in ("a\nb", "\x1b[31m", "\u202ex"):
        done = cli("run", "Do it", "--", word)
        assert done.code in (2, 3), done
        assert "needs a name" not in one_line(done), done
        assert "\x1b" not in done.err
        assert "\u202e" not in done.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.case("C1-54")
def test_a_folder_that_cannot_be_entered_is_refused(cli: Command, tmp_path: Path, runs_dir: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    # Modes do not bind root, unless it gives up what lets it pass them by.
    without = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    lead = [shutil.which("setpriv") or "setpriv", *without] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*lead, *PROGRAM, "run", "Do it", "--cwd", closed, "--json", "--", "true"],
        env={**os.environ, "SUBAGENT_RUNS_DIR": str(runs_dir)},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    closed.chmod(0o700)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "bad_cwd"), done
    assert not runs_dir.exists()


@pytest.mark.case("C1-54")
def test_a_folder_that_is_gone_from_under_the_caller_is_told_as_such(cli: Command, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", gone, *PROGRAM, "run", "Do it", "--json", "--", "true"],
        env={**os.environ, "SUBAGENT_RUNS_DIR": str(tmp_path / "runs")},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "bad_cwd"), done
    assert not (tmp_path / "runs").exists()


def test_a_task_beyond_the_limit_is_refused_with_the_limit(cli: Command, tmp_path: Path) -> None:
    words = ["run", "-", "--", "true"]
    told = refused(cli, tmp_path, words, 2, "too_long", input=b"x" * 5_000_000)
    assert "SUBAGENT_MAX_TEXT" in told.json["error"]["hint"]
    refused(cli, tmp_path, words, 2, "not_utf8", input=b"caf\xe9")
    refused(cli, tmp_path, words, 2, "empty_text", input=b"")
    assert not (tmp_path / "runs").exists()


def test_a_file_of_agents_that_is_missing_or_wrong_is_named(cli: Command, tmp_path: Path) -> None:
    named = {"SUBAGENT_AGENTS": str(tmp_path / "none.toml")}
    told = refused(cli, tmp_path, ["run", "mine", "Do it"], 2, "invalid_setting", env=named)
    assert "none.toml" in told.json["error"]["message"]
    (tmp_path / "none.toml").write_text("[agents.mine]\n")
    refused(cli, tmp_path, ["run", "mine", "Do it"], 2, "invalid_agent_file", env=named)


def test_a_runs_directory_that_is_a_file_is_refused(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    refused(cli, tmp_path, ["run", "Do it", "--", "true"], 2, "bad_runs_dir", runs_dir=tmp_path / "file")


VERBS: dict[str, Callable[[Context, str], object]] = {
    "wait": lambda desk, word: waiting.for_runs(desk, [word], timeout=1),
    "wait for two": lambda desk, word: waiting.for_runs(desk, ["tidy", word], timeout=1),
    "cancel": lambda desk, word: cancellation.cancel(desk, [word]),
    "cancel two": lambda desk, word: cancellation.cancel(desk, ["tidy", word]),
    "resume": lambda desk, word: resumption.resume(desk, word, "Go on."),
    "retry": lambda desk, word: resumption.resume(desk, word, None, fresh=True),
    "result of an attempt": lambda desk, word: outcomes.result(desk, word, 1),
    "submit as that run": lambda desk, word: outcomes.submit(
        desk._replace(caller=Caller(word, "0" * 64)), "result", "Done."
    ),
    "whoami": lambda desk, word: identity.whoami(desk._replace(caller=Caller(word, "0" * 64))),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_hostile_word_names_a_run_or_changes_anything(desk: Context, tmp_path: Path, verb: str) -> None:
    create(desk, "tidy")
    (tmp_path / "outside").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside")
    before = snapshot(tmp_path)
    wrong = []
    for word in [*HOSTILE, "link"]:
        try:
            VERBS[verb](desk, word)
        except (InvalidInput, NotFound):
            continue
        except Exception as error:
            wrong.append(f"{word[:60]!r}: {error!r}")
        else:
            wrong.append(f"{word[:60]!r}: was accepted")
    assert wrong == []
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "words",
    [
        ["wait", "--", "{}"],
        ["wait", "--timeout", "1s", "--", "tidy", "{}"],
        ["cancel", "--", "{}"],
        ["cancel", "--", "tidy", "{}"],
        ["resume", "--", "{}", "Go on."],
        ["retry", "--", "{}"],
        ["result", "--attempt", "1", "--", "{}"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-1:]),
)
def test_the_command_line_refuses_hostile_words_too(cli: Command, tmp_path: Path, ended: str, words: list[str]) -> None:
    for word in ("../outside", "a b", f"../{ended}", ""):
        refused(cli, tmp_path, [part.format(word) for part in words], 2, "invalid_run_id")


@pytest.mark.parametrize(
    "words",
    [
        ["wait", NOBODY],
        ["wait", "tidy", NOBODY],
        ["cancel", NOBODY],
        ["cancel", "tidy", NOBODY],
        ["resume", NOBODY, "Go on."],
        ["retry", NOBODY],
        ["result", NOBODY, "--attempt", "1"],
    ],
    ids=" ".join,
)
def test_a_run_that_is_not_there_is_exit_code_3(cli: Command, tmp_path: Path, ended: str, words: list[str]) -> None:
    refused(cli, tmp_path, words, 3, "run_not_found")


@pytest.mark.parametrize("verb", ["wait", "cancel", "resume", "retry", "result"])
def test_a_name_that_is_nearly_right_is_offered(cli: Command, tmp_path: Path, ended: str, verb: str) -> None:
    told = refused(cli, tmp_path, [verb, "tidi", *(["x"] if verb == "resume" else [])], 3, "run_not_found")
    assert told.json["error"]["candidates"] == ["tidy"]


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        (["result", "tidy", "--attempt", "99"], 3, "no_such_attempt"),
        (["result", "tidy", "--attempt", "0"], 2, "usage"),
        (["result", "tidy", "--attempt", "x"], 2, "usage"),
        (["wait", "tidy", "--after", "x"], 2, "invalid_cursor"),
        (["wait", "tidy", "--after", ""], 2, "invalid_cursor"),
        (["wait", "tidy", "--after", "0123456789"], 2, "invalid_cursor"),
        (["wait", "tidy", "--after", "01234567."], 2, "invalid_cursor"),
        (["wait", "tidy", "--after", "0123456G"], 2, "invalid_cursor"),
        (["wait", "tidy", "--after", "../../x0"], 2, "invalid_cursor"),
        (["wait", "tidy", "--timeout", "x"], 2, "invalid_input"),
        (["wait", "tidy", "--count", "0"], 2, "usage"),
        (["wait", "tidy", "--any", "--count", "1"], 2, "usage"),
        (["wait"], 2, "no_run"),
        (["cancel"], 2, "usage"),
        (["cancel", "tidy", "--all"], 2, "usage"),
        (["cancel", "tidy", "--grace", "x"], 2, "invalid_input"),
        (["resume", "tidy"], 2, "usage"),
        (["resume", "tidy", ""], 2, "empty_text"),
        (["resume", "tidy", "Go on.", "--timeout", "x"], 2, "invalid_input"),
        (["resume", "tidy", "Go on.", "--env", "SUBAGENT_TOKEN=x"], 2, "invalid_env"),
        (["resume", "tidy", "Go on.", "--wait", "--follow"], 2, "usage"),
        (["resume", "tidy", "caf\udce9"], 2, "not_utf8"),
        (["retry", "tidy", "--wait", "--follow"], 2, "usage"),
        (["retry", "tidy", "--env", "x"], 2, "invalid_env"),
        (["retry", "tidy", "again"], 2, "usage"),
        (["submit", "result", "x"], 5, "no_identity"),
        (["submit", "result"], 2, "usage"),
        (["submit", "done", "x"], 2, "usage"),
        (["submit", "result", "x", "--kind", "auth"], 2, "usage"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_about_a_run_that_is_there_changes_nothing(
    cli: Command, tmp_path: Path, ended: str, words: list[str], code: int, word: str
) -> None:
    refused(cli, tmp_path, words, code, word)


def test_texts_beyond_the_limit_do_not_reach_a_run(cli: Command, tmp_path: Path, ended: str) -> None:
    for words in (["resume", "tidy", "-"],):
        refused(cli, tmp_path, words, 2, "too_long", input=b"x" * 2_000_000)
        refused(cli, tmp_path, words, 2, "empty_text", input=b"")
        refused(cli, tmp_path, words, 2, "not_utf8", input=b"\xff")


def test_a_run_that_only_has_an_identity_submits_nothing(cli: Command, tmp_path: Path) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    told = refused(cli, tmp_path, ["submit", "result", "x"], 5, "no_identity", env={"SUBAGENT_RUN_ID": run_id})
    assert "subagent update" in told.json["error"]["hint"]


AS_A_WORKER = [
    ["run", "Do it", "--", "true"],
    ["wait", "tidy"],
    ["cancel", "tidy"],
    ["cancel", "--all"],
    ["resume", "tidy", "Go on."],
    ["retry", "tidy"],
    ["submit", "result", "x"],
    ["submit", "error", "x"],
    ["result", "tidy"],
    ["whoami"],
    ["agents"],
    ["tell", "x"],
    ["logs"],
]


@pytest.mark.parametrize("words", AS_A_WORKER, ids=" ".join)
def test_a_wrong_token_is_denied_whatever_is_wanted(cli: Command, tmp_path: Path, ended: str, words: list[str]) -> None:
    told = refused(cli, tmp_path, words, 5, "denied", env={"SUBAGENT_RUN_ID": ended, "SUBAGENT_TOKEN": "0" * 64})
    assert "0000" not in told.out


def test_a_token_is_good_for_its_own_run_alone(cli: Command, tmp_path: Path) -> None:
    made = [cli("create", "helper", "Do it", "--json").json["env"] for _ in range(2)]
    swapped = {**made[0], "SUBAGENT_TOKEN": made[1]["SUBAGENT_TOKEN"]}
    for env in (
        swapped,
        {"SUBAGENT_TOKEN": made[0]["SUBAGENT_TOKEN"]},
        {**made[0], "SUBAGENT_RUN_ID": NOBODY},
        {**made[0], "SUBAGENT_RUN_ID": "../x"},
        {**made[0], "SUBAGENT_TOKEN": made[0]["SUBAGENT_TOKEN"][:-1]},
        {**made[0], "SUBAGENT_TOKEN": "caf\udce9"},
        {"SUBAGENT_RUN_ID": made[0]["SUBAGENT_RUN_ID"], "SUBAGENT_TOKEN_FILE": str(tmp_path / "none")},
    ):
        refused(cli, tmp_path, ["submit", "result", "x"], 5, "denied", env=env)


@pytest.mark.parametrize("text", [REPAINT, "a\0b", f"one\n{REPAINT}\n\0\ttwo", "\ufeff\u2028x\u200f"], ids=ascii)
def test_a_text_of_any_letters_goes_through_whole_and_repaints_nothing(cli: Command, tmp_path: Path, text: str) -> None:
    run_id = cli("run", "-", "--name", "tidy", "--raw", "--", "cat", input=text.encode()).out.strip()
    assert cli("wait", run_id).code == 0
    assert cli("result", run_id, "--json").json["result"] == text
    assert cli("resume", run_id, "-", "--wait", input=text.encode()).code == 0
    assert text in (tmp_path / "runs" / run_id / "prompt-2.md").read_text()
    done = [cli(*words) for words in (["result", run_id], ["logs", run_id], ["status", run_id], ["wait", run_id])]
    done.append(cli("run", text.replace("\0", ""), "Do it"))
    done.append(cli("run", "Do it", "--name", text.replace("\0", ""), "--", "true"))
    for printed in done:
        for letter in "\x1b\0\x07\x9b\u202e\u2066\u2028\u200f\ufeff":
            assert letter not in printed.out + printed.err, printed


def test_a_submitted_text_of_any_letters_stays_whole(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(f"a\0b {REPAINT}")
    run_id = started(cli, script="subagent submit error - --artifact \"$(printf '\\033[31m')\" < text")
    assert cli("wait", run_id).code == 10
    found = cli("result", run_id, "--json").json
    assert (found["error"], found["artifacts"]) == (f"a\0b {REPAINT}", ["\x1b[31m"])
    assert not set("\x1b\0\u202e") & set(cli("result", run_id).out + cli("logs", run_id).out)


def test_an_agent_that_cannot_be_started_after_all_ends_the_run_as_an_error(cli: Command, tmp_path: Path) -> None:
    """What only the system can find out: an interpreter that is not there."""
    bad = tmp_path / "bad"
    bad.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o700)
    done = cli("run", "Do it", "--wait", "--json", "--", "./bad", env=QUICK)
    assert (done.code, done.json["exitCode"]) == (10, 127), done
    assert "No such file" in done.json["summary"]
    over(cli, done.json["runId"])
    eventually(lambda: processes(tmp_path / "runs") == [])

"""`subagent run`: what it prints, what the agent gets, and what becomes of the run when the agent ends."""

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import pytest

from tests.cli.living import (
    QUICK,
    Gate,
    eventually,
    finished,
    interrupted,
    over,
    processes,
    program,
    started,
    waiting,
)
from tests.command import Command, Done
from tests.services.desk import document, journal, words

pytestmark = pytest.mark.usefixtures("nothing_survives")

STAMP = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] "
AWKWARD = "two\nlines, \"quotes\", 'more', $HOME `id` \\ = and žluť 🦊"


def spec(runs_dir: Path, run_id: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((runs_dir / run_id / "run.json").read_bytes())
    return found


def environment(cli: Command, tmp_path: Path, *options: str, **env: str | None) -> dict[str, str]:
    """The variables that a child of `run` with these options is given."""
    done = cli("run", "Do it", "--wait", *options, "--", "sh", "-c", f"cat /proc/$$/environ > {tmp_path}/got", env=env)
    assert done.code == 0, done
    entries = os.fsdecode((tmp_path / "got").read_bytes()).rstrip("\0").split("\0")
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def agents(tmp_path: Path, **tables: str) -> dict[str, str]:
    """A file with agents of the test's own, and the variable that names it."""
    file = tmp_path / "mine.toml"
    file.write_text("".join(f"[agents.{name}]\n{table}\n" for name, table in tables.items()))
    return {"SUBAGENT_AGENTS": str(file)}


def test_run_prints_the_id_alone_and_the_run_is_there_from_then_on(cli: Command, runs_dir: Path) -> None:
    for _ in range(3):
        done = cli("run", "Do it", "--", "sh", "-c", "echo hello")
        assert (done.code, done.err) == (0, "")
        run_id = done.out.removesuffix("\n")
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run_id)
        status, logs = cli("status", run_id, "--json"), cli("logs", run_id, "--json")
        assert (status.code, status.json["status"] in ("running", "success")) == (0, True)
        assert (logs.code, logs.json[0]["text"]) == (0, "Starting sh with input: Do it")
        assert [cli(verb, run_id).code for verb in ("status", "logs")] == [0, 0]


def test_run_as_json_is_the_id_and_the_folder(cli: Command, runs_dir: Path) -> None:
    done = cli("run", "Do it", "--json", "--", "true")
    assert list(done.json)[:2] == ["runId", "runDirectory"]
    assert done.json["runDirectory"] == str(runs_dir / done.json["runId"])
    assert (runs_dir / done.json["runId"] / ".meta.json").is_file()


@pytest.mark.case("X8", "C3-07")
def test_a_run_is_running_at_once_where_a_created_one_is_pending(cli: Command, runs_dir: Path) -> None:
    run_id, created = started(cli, script="sleep 600"), cli("create", "sh", "Do it").out.strip()
    assert [document(runs_dir, each)["status"] for each in (run_id, created)] == ["running", "pending"]
    found = cli("status", run_id, "--json").json
    assert (found["state"], found["alive"], found["kind"], found["exitCode"]) == ("running", True, None, None)
    assert found["next"] == [f"subagent wait {run_id[-8:]}"]
    assert cli("status", created, "--json").json["alive"] is None


def test_the_process_outlives_the_command_and_ends_on_its_own(cli: Command, gate: Gate) -> None:
    run_id = started(cli, script=f"read word < {gate.word}; echo got $word")
    gate.open("it")
    assert over(cli, run_id).code == 0
    assert cli("result", run_id).out == "got it\n"


@pytest.mark.case("C3-07")
def test_any_command_is_an_agent_under_its_own_name(cli: Command, runs_dir: Path) -> None:
    run_id = cli("run", "Do it", "--", "/bin/echo", "--name", "x", "--", "-y").out.strip()
    assert over(cli, run_id).code == 0
    assert cli("result", run_id).out == "--name x -- -y\n"
    found = spec(runs_dir, run_id)
    assert (found["agentName"], found["agentSource"]) == ("echo", None)
    assert found["argv"] == ["/bin/echo", "--name", "x", "--", "-y"]
    assert document(runs_dir, run_id)["command"] == "/bin/echo --name x -- -y"


def test_words_reach_the_command_as_they_are(cli: Command) -> None:
    odd = ["a b", "", "$(id)", "`id`", "*", "; echo x", AWKWARD, "{prompt}", "{session}", "-"]
    done = cli("run", "Do it", "--wait", "--", "printf", "[%s]", *odd)
    assert done.out == "".join(f"[{word}]" for word in odd) + "\n"


def test_bytes_that_are_no_text_reach_the_command_too(cli: Command, tmp_path: Path) -> None:
    done = cli("run", "Do it", "--wait", "--", "sh", "-c", f'printf "%s" "$1" > {tmp_path}/got', "sh", "caf\udce9")
    assert done.code == 0, done
    assert (tmp_path / "got").read_bytes() == b"caf\xe9"


def test_an_agent_of_ones_own_file_is_found_by_its_name(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    file = program(tmp_path / "bin" / "mine", "echo mine: $0")
    env = agents(tmp_path, mine=f'command = ["{file}"]')
    done = cli("run", "mine", "Do it", "--wait", "--json", env=env)
    assert (done.code, done.json["result"]) == (0, f"mine: {file}")
    found = spec(runs_dir, done.json["runId"])
    assert (found["agentName"], found["agentSource"]) == ("mine", env["SUBAGENT_AGENTS"])


def test_model_and_args_go_where_the_agent_has_a_place_for_them(cli: Command, tmp_path: Path) -> None:
    file = program(tmp_path / "mine", 'printf "[%s]" "$@"')
    env = agents(
        tmp_path,
        placed=f'command = ["{file}", "a", "{{args}}", "z"]\nmodel = ["-m", "{{model}}"]',
        plain=f'command = ["{file}", "a"]\nmodel = ["--model={{model}}"]',
    )
    more = ["--model", "big one", "--arg", "--fast", "--arg", "x y", "--wait"]
    assert cli("run", "placed", "Do it", *more, env=env).out == "[a][-m][big one][--fast][x y][z]\n"
    assert cli("run", "plain", "Do it", *more, env=env).out == "[a][--model=big one][--fast][x y]\n"
    assert cli("run", "plain", "Do it", "--wait", env=env).out == "[a]\n"


def test_a_program_named_by_its_place_counts_from_the_working_folder(cli: Command, tmp_path: Path) -> None:
    program(tmp_path / "there" / "tool", "echo from $PWD")
    done = cli("run", "Do it", "--cwd", "there", "--wait", "--", "./tool")
    assert done.out == f"from {tmp_path}/there\n"


def test_the_working_folder_is_the_one_named_or_this_one(cli: Command, tmp_path: Path, runs_dir: Path) -> None:
    (tmp_path / "with space").mkdir()
    for options, expected in (
        ([], tmp_path),
        (["--cwd", "with space"], tmp_path / "with space"),
        (["--cwd", str(tmp_path / "with space")], tmp_path / "with space"),
    ):
        done = cli("run", "Do it", "--wait", "--json", *options, "--", "pwd")
        assert done.json["result"] == str(expected)
        assert spec(runs_dir, done.json["runId"])["cwd"] == str(expected)


def test_a_run_goes_by_its_name_and_carries_its_labels(cli: Command) -> None:
    run_id = started(cli, "--name", "tidy", "--label", "team=red", "--label", "note=a=b ž", script="sleep 600")
    found = cli("status", "tidy", "--json").json
    assert (found["runId"], found["name"]) == (run_id, "tidy")
    assert found["labels"] == {"team": "red", "note": "a=b ž"}


def test_the_server_sees_a_linked_run(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, "--link", script="echo hello")
    assert over(cli, run_id).code == 0
    for end in (".meta.json", ".log"):
        assert (runs_dir / f"{run_id}{end}").samefile(runs_dir / run_id / end.replace(".log", "log"))
    assert json.loads((runs_dir / f"{run_id}.meta.json").read_bytes())["status"] == "success"


def test_raw_hands_over_the_task_and_nothing_else(cli: Command, runs_dir: Path) -> None:
    done = cli("run", AWKWARD, "--raw", "--wait", "--json", "--", "cat")
    assert done.json["result"] == AWKWARD
    assert (runs_dir / done.json["runId"] / "prompt.md").read_text() == AWKWARD


def test_a_key_twice_is_one_run_and_one_process(cli: Command, gate: Gate, runs_dir: Path) -> None:
    script = f"echo started > {gate.said}; read word < {gate.word}"
    request = ["run", "Do it", "--key", "k", "--name", "n", "--", "sh", "-c", script]
    first, second = (cli.start(*request) for _ in range(2))
    ids = {finished(first).out, finished(second).out}
    third = cli(*request)
    assert (third.code, {third.out}) == (0, ids)
    gate.open()
    run_id = third.out.strip()
    assert over(cli, run_id).code == 0
    assert gate.heard() == "started"
    assert gate.silent()
    assert cli(*request).out.strip() == run_id
    assert [row["runId"] for row in cli("list", "--all", "--json").json] == [run_id]
    assert [event["type"] for event in journal(runs_dir, run_id)].count("created") == 1


@pytest.mark.parametrize(
    "other",
    [
        ["Do that", "--", "sh", "-c", "echo a"],
        ["Do it", "--", "sh", "-c", "echo b"],
        ["Do it", "--", "bash", "-c", "echo a"],
        ["Do it", "--name", "n", "--", "sh", "-c", "echo a"],
        ["Do it", "--label", "a=b", "--", "sh", "-c", "echo a"],
        ["Do it", "--cwd", "/", "--", "sh", "-c", "echo a"],
        ["claude", "Do it"],
    ],
    ids=["task", "argument", "program", "name", "label", "folder", "agent"],
)
def test_a_key_for_something_else_is_refused(cli: Command, tmp_path: Path, other: Sequence[str]) -> None:
    """Otherwise the caller takes the outcome of one command for that of another."""
    program(tmp_path / "bin" / "claude", "true")
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    run_id = cli("run", "Do it", "--key", "k", "--wait", "--json", "--", "sh", "-c", "echo a").json["runId"]
    done = cli("run", "--key", "k", "--json", *other, env={"PATH": path})
    assert (done.code, done.json["error"]["code"]) == (4, "key_reused"), done
    assert [row["runId"] for row in cli("list", "--all", "--json").json] == [run_id]


def test_the_key_of_a_created_run_starts_nothing_and_says_so(cli: Command) -> None:
    cli("create", "sh", "Do it", "--key", "k")
    done = cli("run", "Do it", "--key", "k", "--json", "--", "sh", "-c", "echo a")
    assert (done.code, done.json["error"]["code"]) == (4, "key_reused"), done


def test_the_environment_is_the_callers_without_ours_and_with_who_the_agent_is(
    cli: Command, tmp_path: Path, runs_dir: Path
) -> None:
    """Settings of the caller would change what the child's own commands print and do."""
    callers = {
        "SUBAGENT_OUTPUT": "json",
        "SUBAGENT_DEBUG": "1",
        "SUBAGENT_STOP_GRACE": "1s",
        "SUBAGENT_WHATEVER": "x",
        "MINE": AWKWARD,
        "TERM": "xterm",
        "COLORTERM": "truecolor",
    }
    got = environment(cli, tmp_path, **callers)
    ours = {name: value for name, value in got.items() if name.startswith("SUBAGENT_")}
    names = {"SUBAGENT_RUN_ID", "SUBAGENT_RUNS_DIR", "SUBAGENT_PARENT", "SUBAGENT_DEPTH", "SUBAGENT_TOKEN"}
    assert set(ours) == names
    assert (ours["SUBAGENT_RUNS_DIR"], ours["SUBAGENT_PARENT"]) == (str(runs_dir), "")
    assert (ours["SUBAGENT_DEPTH"], len(ours["SUBAGENT_TOKEN"])) == ("1", 64)
    assert (got["NO_COLOR"], got["TERM"], got["MINE"]) == ("1", "dumb", AWKWARD)
    assert got["HOME"] == os.environ["HOME"]


def test_a_childs_commands_speak_text_although_its_parent_wants_json(cli: Command) -> None:
    done = cli("run", "Do it", "--wait", "--", "sh", "-c", "subagent whoami", env={"SUBAGENT_OUTPUT": "json"})
    assert done.json["result"].startswith("worker of ")


def test_variables_reach_the_agent_letter_by_letter(cli: Command, tmp_path: Path) -> None:
    got = environment(
        cli, tmp_path, "--env", f"MINE={AWKWARD}", "--env", "EMPTY=", "--env", "A=b=c", "--env", "TERM=vt100"
    )
    assert (got["MINE"], got["EMPTY"], got["A"], got["TERM"]) == (AWKWARD, "", "b=c", "vt100")


def test_a_cleared_environment_holds_nothing_of_the_callers(cli: Command, tmp_path: Path) -> None:
    got = environment(cli, tmp_path, "--env-clear", "--env", "MINE=x", SECRET="y")
    assert {name for name in got if not name.startswith("SUBAGENT_")} == {"PATH", "NO_COLOR", "TERM", "MINE"}
    assert got["PATH"].split(":")[-1] == os.path.dirname(sys.executable)


@pytest.mark.parametrize("way", ["option", "variable", "file"])
def test_denied_variables_do_not_reach_the_agent(cli: Command, tmp_path: Path, way: str) -> None:
    env: dict[str, str | None] = {"AWS_KEY": "1", "AWS_REGION": "2", "SECRET": "3", "NOT_SECRET": "4"}
    if way == "file":
        (tmp_path / "subagent.toml").write_text('env_deny = "AWS_*, SECRET"\n')
    elif way == "variable":
        env["SUBAGENT_ENV_DENY"] = "AWS_*,SECRET"
    options = ["--set", "env_deny=AWS_*,SECRET"] if way == "option" else []
    script = f"cat /proc/$$/environ > {tmp_path}/got"
    assert cli(*options, "run", "Do it", "--wait", "--", "sh", "-c", script, env=env).code == 0
    names = [entry.partition(b"=")[0] for entry in (tmp_path / "got").read_bytes().split(b"\0")]
    assert b"NOT_SECRET" in names
    assert not {b"AWS_KEY", b"AWS_REGION", b"SECRET"} & set(names)


def test_what_is_denied_can_still_be_given(cli: Command, tmp_path: Path) -> None:
    got = environment(cli, tmp_path, "--env", "SECRET=mine", SECRET="theirs", SUBAGENT_ENV_DENY="SECRET")
    assert got["SECRET"] == "mine"


@pytest.mark.parametrize("options", [[], ["--env-clear"], ["--env", "PATH=/usr/bin:/bin"]], ids=" ".join)
def test_the_agent_finds_subagent(cli: Command, options: list[str]) -> None:
    script = 'command -v subagent && subagent tell "Found."'
    done = cli("run", "Do it", "--wait", "--json", *options, "--", "sh", "-c", script, env={"PATH": "/usr/bin:/bin"})
    assert (done.code, done.json["result"]) == (0, f"{os.path.dirname(sys.executable)}/subagent"), done
    assert [note["text"] for note in cli("status", done.json["runId"], "--json").json["notes"]] == ["Found."]


def test_a_subagent_of_the_callers_own_path_goes_first(cli: Command, tmp_path: Path) -> None:
    other = program(tmp_path / "bin" / "subagent", "true")
    env = {"PATH": f"{other.parent}:/usr/bin:/bin"}
    assert cli("run", "Do it", "--wait", "--", "sh", "-c", "command -v subagent", env=env).out == f"{other}\n"


TOKEN_SCRIPT = (
    "cat /proc/$$/environ > got; cat $SUBAGENT_TOKEN_FILE > token; stat -c %a $SUBAGENT_TOKEN_FILE > mode;"
    "subagent whoami --json > who; read word < gate.word; subagent submit result done"
)


def test_a_token_in_a_file_is_in_no_environment_and_still_proves_the_worker(
    cli: Command, tmp_path: Path, runs_dir: Path, gate: Gate
) -> None:
    run_id = started(cli, "--token-file", script=TOKEN_SCRIPT)
    file = runs_dir / run_id / ".token"
    gate.open()
    assert over(cli, run_id).code == 0
    token = (tmp_path / "token").read_bytes()
    got = (tmp_path / "got").read_bytes()
    assert re.fullmatch(rb"[0-9a-f]{64}", token)
    assert token not in got
    assert b"SUBAGENT_TOKEN_FILE=" + os.fsencode(file) in got.split(b"\0")
    assert (tmp_path / "mode").read_text() == "600\n"
    who = json.loads((tmp_path / "who").read_text())
    assert (who["role"], who["runId"]) == ("worker", run_id)
    assert cli("result", run_id).out == "done\n"
    assert not file.exists()


def test_a_token_in_a_file_is_gone_when_the_run_is_cancelled(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, "--token-file", script="sleep 600")
    file = runs_dir / run_id / ".token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert cli("cancel", run_id, "--grace", "0").code == 0
    assert not file.exists()


def test_the_outcome_is_all_that_wait_prints(cli: Command) -> None:
    done = cli("run", "Do it", "--wait", "--", "sh", "-c", "echo noise >&2; echo one; echo two")
    assert (done.code, done.out) == (0, "one\ntwo\n")
    assert re.fullmatch(r"run [0-9a-f-]{36}\n", done.err)


def test_no_output_is_an_outcome_without_text(cli: Command) -> None:
    done = cli("run", "Do it", "--wait", "--", "true")
    assert (done.code, done.out) == (0, "")


def test_the_end_of_the_output_is_whole_even_where_it_looks_like_a_token(cli: Command) -> None:
    """What may be the beginning of the token is held back, and must not stay so at the end."""
    script = 'printf "%s" "$SUBAGENT_TOKEN" | cut -c1-5 | tr -d "\\n" > begin; printf "x%s" "$(cat begin)"'
    done = cli("run", "Do it", "--wait", "--json", "--", "sh", "-c", script)
    assert done.json["result"] == "x" + Path("begin").read_text()
    log = [line["text"] for line in cli("logs", done.json["runId"], "--json").json]
    assert log[-2:] == [done.json["result"], "Process exited with code 0"]


@pytest.mark.parametrize(
    ("script", "code", "state"),
    [
        ("echo fine", 0, "success"),
        ("exit 3", 10, "error"),
        ("subagent submit error no; exit 0", 10, "error"),
        ("subagent submit result yes; exit 3", 0, "success"),
        ("kill -9 $$", 10, "error"),
        ("sleep 600", 10, "timed_out"),
    ],
)
def test_the_exit_code_says_how_it_ended(cli: Command, script: str, code: int, state: str) -> None:
    options = ["--timeout", "100ms"] if state == "timed_out" else []
    done = cli("run", "Do it", "--wait", "--json", *options, "--", "sh", "-c", script, env=QUICK)
    assert (done.code, done.json["state"]) == (code, state), done
    assert cli("result", done.json["runId"], "--json").code == code


def test_a_run_that_is_cancelled_meanwhile_is_exit_code_11(cli: Command, gate: Gate) -> None:
    script = f"echo here > {gate.said}; sleep 600"
    process = cli.start("run", "Do it", "--name", "n", "--wait", "--", "sh", "-c", script, env=QUICK)
    gate.heard()
    assert cli("cancel", "n", "--reason", "Not needed.").code == 0
    done = finished(process)
    assert (done.code, done.out) == (11, "Not needed.\n")


def test_a_question_comes_first_with_exit_code_12_and_the_next_commands(cli: Command) -> None:
    script = 'subagent ask "Which one?" --wait'
    done = cli("run", "Do it", "--wait", "--", "sh", "-c", script, env=QUICK)
    run_id = done.err.splitlines()[0].removeprefix("run ")
    question = cli("pending", "--json").json[0]["message_id"]
    assert done.code == 12
    assert re.fullmatch(
        rf"sh {run_id[-8:]} asks \(\ds ago\): Which one\?\n  subagent reply {question[-8:]} ANSWER\n", done.out
    )
    again = f"subagent wait {run_id[-8:]} --after {question[-8:]}"
    assert done.err.splitlines()[1:] == [f"then: {again}"]
    assert cli("reply", question, "That one.").code == 0
    assert cli(*again.split()[1:]).code == 0
    assert cli("result", run_id).out == "That one.\n"


@pytest.mark.parametrize("option", ["--wait", "--follow"])
def test_an_interrupt_lets_the_run_go_on(cli: Command, gate: Gate, option: str) -> None:
    script = f"echo here > {gate.said}; read word < {gate.word}; echo got $word"
    process = cli.start("run", "Do it", "--name", "n", option, "--", "sh", "-c", script, env=QUICK)
    gate.heard()
    done = interrupted(process)
    assert done.code == 130
    assert "nothing was cancelled" in done.err
    assert cli("status", "n", "--json").json["alive"] is True
    gate.open("it")
    assert over(cli, "n").code == 0
    assert cli("result", "n").out == "got it\n"


@pytest.mark.case("C1-52")
def test_following_prints_the_log_until_the_end(cli: Command, gate: Gate) -> None:
    script = f"echo one; echo here > {gate.said}; read word < {gate.word}; echo two"
    process = cli.start("run", "Do it", "--follow", "--", "sh", "-c", script)
    gate.heard()
    waiting(process)
    gate.open()
    done = finished(process)
    assert done.code == 0
    assert re.fullmatch(r"run [0-9a-f-]{36}\n", done.err)
    lines = [re.sub(f"^{STAMP}", "", line) for line in done.out.splitlines()]
    assert lines[:2] == ["Starting sh with input: Do it", f"Command: sh -c {quote(script)}"]
    assert lines[2:] == ["[stdout] one", "[stdout] two", "Process exited with code 0"]


def test_following_as_json_is_an_object_a_line(cli: Command) -> None:
    done = cli("run", "Do it", "--follow", "--json", "--", "sh", "-c", "echo one; echo two >&2")
    assert {(line["stream"], line["text"]) for line in done.ndjson[2:-1]} == {("stdout", "one"), ("stderr", "two")}


@pytest.mark.case("X8", "X17")
def test_a_run_that_takes_too_long_ends_as_timed_out(cli: Command, runs_dir: Path) -> None:
    done = cli("run", "Do it", "--timeout", "200ms", "--wait", "--json", "--", "sleep", "600", env=QUICK)
    found = done.json
    assert (done.code, found["state"], found["kind"]) == (10, "timed_out", "timed_out")
    assert (found["error"], found["status"], found["alive"]) == ("Sub-agent timed out", "error", False)
    over(cli, found["runId"])
    shown = document(runs_dir, found["runId"])
    assert (shown["status"], shown["summary"]) == ("error", "[timed_out] Sub-agent timed out")
    assert processes(runs_dir) == []
    assert cli("result", found["runId"]).out == "Sub-agent timed out\n"


@pytest.mark.case("X17")
def test_a_run_has_no_limit_unless_one_is_given(cli: Command, runs_dir: Path) -> None:
    assert spec(runs_dir, started(cli, script="true"))["timeoutSeconds"] is None


@pytest.mark.case("X17")
def test_the_limit_comes_from_option_variable_and_file_in_this_order(
    cli: Command, runs_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "subagent.toml").write_text('run_timeout = "3h"\n')
    assert spec(runs_dir, started(cli, script="true"))["timeoutSeconds"] == 10_800
    assert spec(runs_dir, started(cli, script="true", SUBAGENT_RUN_TIMEOUT="2h"))["timeoutSeconds"] == 7_200
    run_id = started(cli, "--timeout", "90", script="true", SUBAGENT_RUN_TIMEOUT="2h")
    assert spec(runs_dir, run_id)["timeoutSeconds"] == 90
    file_alone = cli("run", "Do it", "--", "sleep", "600", env={**QUICK, "SUBAGENT_RUN_TIMEOUT": "100ms"})
    assert cli("wait", file_alone.out.strip()).code == 10


@pytest.mark.case("X17")
def test_a_worker_that_submits_in_time_is_not_timed_out_afterwards(cli: Command) -> None:
    script = "subagent submit result done; exec sleep 600"
    done = cli("run", "Do it", "--timeout", "1s", "--wait", "--json", "--", "sh", "-c", script, env=QUICK)
    assert (done.code, done.json["state"], done.json["result"]) == (0, "success", "done")


def nested(cli: Command, *options: str, inner: str) -> Done:
    return cli("run", "Do it", "--name", "top", "--wait", *options, "--", "sh", "-c", inner, env=QUICK)


def test_a_run_may_not_start_another_unless_that_was_allowed(cli: Command) -> None:
    nested(cli, inner="subagent run 'Do more' --json -- true > told; echo $? > code")
    error = json.loads(Path("told").read_text())["error"]
    assert (error["code"], Path("code").read_text()) == ("depth_exceeded", "4\n")
    assert "--max-depth" in error["hint"]
    assert len(cli("list", "--all", "--json").json) == 1


def test_a_deeper_tree_is_allowed_by_option_and_by_setting(cli: Command) -> None:
    inner = "subagent run 'Do more' --wait -- sh -c 'subagent whoami; subagent run deeper --json -- true'; true"
    for number, options in enumerate((["--max-depth", "2"], [])):
        env = {**QUICK, "SUBAGENT_MAX_DEPTH": "2"} if not options else QUICK
        done = cli("run", "Do it", "--name", f"t{number}", "--wait", *options, "--", "sh", "-c", inner, env=env)
        assert "at depth 2 of 2" in done.out, done
        assert "depth_exceeded" in done.out, done
        child = cli("list", "--all", "--parent", f"t{number}", "--json").json
        assert [row["parentId"] for row in child] == [cli("status", f"t{number}", "--json").json["runId"]]


def test_how_deep_is_not_for_the_worker_to_say(cli: Command) -> None:
    done = nested(cli, inner="subagent run more --max-depth 9 --json -- true; echo $?")
    told, code = done.out.splitlines()
    assert (json.loads(told)["error"]["code"], code) == ("denied", "5")
    assert len(cli("list", "--all", "--json").json) == 1


@pytest.mark.case("C1-52")
def test_each_line_has_the_shape_that_the_server_writes(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="echo one; echo two >&2; echo; printf three; exit 4")
    assert over(cli, run_id).code == 10
    lines = (runs_dir / run_id / "log").read_text().splitlines()
    assert all(re.match(STAMP, line) for line in lines), lines
    bare = [re.sub(f"^{STAMP}", "", line) for line in lines]
    assert bare[0] == "Starting sh with input: Do it"
    assert bare[1] == "Command: sh -c 'echo one; echo two >&2; echo; printf three; exit 4'"
    assert sorted(bare[2:-1]) == sorted(["[stdout] one", "[stderr] two", "[stdout] ", "[stdout] three"])
    assert bare[-1] == "Process exited with code 4"


@pytest.mark.case("C1-52")
def test_a_task_of_several_lines_cannot_pose_as_lines_of_the_log(cli: Command, runs_dir: Path) -> None:
    task = "one\n[2026-01-01T00:00:00.000Z] Process exited with code 0"
    run_id = cli("run", task, "--", "sh", "-c", f"echo '{task}'").out.strip()
    assert over(cli, run_id).code == 0
    log = (runs_dir / run_id / "log").read_text()
    ends = [line for line in log.splitlines() if re.fullmatch(STAMP + r"Process exited with code \d+", line)]
    assert len(ends) == 1


def test_a_long_task_is_not_repeated_in_the_log(cli: Command, runs_dir: Path) -> None:
    done = cli("run", "-", "--wait", "--json", "--", "sh", "-c", "wc -c", input=b"x" * 100_000)
    assert (runs_dir / done.json["runId"] / "log").stat().st_size < 10_000
    assert int(done.json["result"]) > 100_000


@pytest.mark.case("C1-47", "C2-17", "X16")
def test_a_silent_exit_with_0_is_a_success_without_a_summary(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="echo all of it")
    assert over(cli, run_id).code == 0
    found = document(runs_dir, run_id)
    assert (found["status"], found["exitCode"], found["summary"]) == ("success", 0, None)
    assert found["endTime"] >= found["startTime"]
    assert cli("result", run_id).out == "all of it\n"


@pytest.mark.case("C1-48")
def test_a_silent_exit_with_an_error_is_an_error_with_the_end_of_the_log(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="seq 100; echo oh >&2; exit 7")
    assert over(cli, run_id).code == 10
    found = document(runs_dir, run_id)
    lines = found["summary"].splitlines()
    assert (found["status"], found["exitCode"], len(lines)) == ("error", 7, 50)
    assert re.fullmatch(STAMP + "Process exited with code 7", lines[-1])
    assert any(line.endswith("[stderr] oh") for line in lines)
    assert any(line.endswith("[stdout] 100") for line in lines)
    assert found["endTime"] is not None
    status = cli("status", run_id, "--json").json
    assert (status["state"], status["kind"]) == ("error", "sub_agent_error")


def test_a_process_that_a_signal_ended_has_the_exit_code_of_a_shell(cli: Command, runs_dir: Path) -> None:
    for name, code in (("KILL", 128 + signal.SIGKILL), ("SEGV", 128 + signal.SIGSEGV)):
        run_id = started(cli, script=f"kill -{name} $$")
        assert over(cli, run_id).code == 10
        assert document(runs_dir, run_id)["exitCode"] == code


@pytest.mark.case("C1-49", "X16")
@pytest.mark.parametrize(
    ("said", "code", "status"), [("success", 3, "success"), ("error", 0, "error"), ("success", 0, "success")]
)
def test_what_the_worker_reported_outlives_its_exit(
    cli: Command, runs_dir: Path, said: str, code: int, status: str
) -> None:
    run_id = started(cli, script=f"subagent update {said} --summary Mine.; echo later; exit {code}")
    assert over(cli, run_id).code == (10 if status == "error" else 0)
    found = document(runs_dir, run_id)
    assert (found["status"], found["exitCode"], found["summary"]) == (status, code, "Mine.")
    assert found["endTime"] is not None
    assert [event["type"] for event in journal(runs_dir, run_id)][-2:] == ["reported", "exited"]
    assert cli("result", run_id).out == "Mine.\n"


@pytest.mark.case("C1-50", "X8")
@pytest.mark.parametrize("code", [0, 3])
def test_completed_is_read_as_success_and_not_overturned(cli: Command, runs_dir: Path, code: int) -> None:
    run_id = started(cli, script=f"subagent update completed --summary Mine.; exit {code}")
    assert over(cli, run_id).code == 0
    found = document(runs_dir, run_id)
    assert (found["status"], found["exitCode"], found["summary"]) == ("completed", code, "Mine.")
    assert cli("result", run_id).code == 0


def test_a_summary_of_a_run_that_is_still_running_is_no_verdict(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="subagent update running --summary Halfway.; exit 2")
    assert over(cli, run_id).code == 10
    found = document(runs_dir, run_id)
    assert (found["status"], found["exitCode"], found["summary"]) == ("error", 2, "Halfway.")


@pytest.mark.case("C1-51", "X10")
@pytest.mark.parametrize(("code", "status"), [(0, "success"), (1, "error")])
def test_a_run_that_ends_while_its_question_waits_stays_ended_when_it_is_answered(
    cli: Command, runs_dir: Path, code: int, status: str
) -> None:
    run_id = started(cli, script=f"subagent ask 'Which?' > id; exit {code}")
    assert over(cli, run_id, "--no-questions").code == (10 if code else 0)
    question = Path("id").read_text().strip()
    assert words(runs_dir, run_id) == (status, ["pending_parent_reply"])
    assert [item["message_id"] for item in cli("pending", "--json").json] == [question]
    assert cli("reply", question, "That.").code == 0
    assert words(runs_dir, run_id) == (status, ["parent_replied"])
    assert cli("check", question).out == "That.\n"
    cli("status", run_id)
    assert words(runs_dir, run_id) == (status, ["acknowledged_by_subagent"])
    found = document(runs_dir, run_id)
    assert (found["exitCode"], found["endTime"] is None) == (code, False)


@pytest.mark.case("C3-03")
def test_a_run_was_last_active_when_it_began_and_when_it_ended(cli: Command, gate: Gate) -> None:
    run_id = started(cli, script=f"read word < {gate.word}")
    begun = cli("status", run_id, "--json").json
    assert begun["lastActiveAt"] == begun["startTime"]
    cli("tell", "Unimportant.", "--run", run_id)
    assert cli("status", run_id, "--json").json["lastActiveAt"] == begun["lastActiveAt"]
    gate.open()
    assert over(cli, run_id).code == 0
    ended = cli("status", run_id, "--json").json
    assert ended["lastActiveAt"] == ended["endTime"] > begun["lastActiveAt"]


def test_nothing_is_left_of_a_run_that_ended(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="sleep 600 & echo done")
    assert over(cli, run_id).code == 0
    eventually(lambda: processes(runs_dir) == [])
    assert os.listdir(runs_dir / ".index" / "active") == []
    assert not (runs_dir / ".locks" / f"{run_id}.wake").exists()


@pytest.mark.case("C1-57")
def test_the_prompt_names_the_run_and_the_commands_then_a_rule_then_the_task(cli: Command, runs_dir: Path) -> None:
    task = f"Do this:\n---\n{AWKWARD}"
    run_id = cli("run", task, "--", "sh", "-c", "cat > got").out.strip()
    assert over(cli, run_id).code == 0
    prompt = (runs_dir / run_id / "prompt.md").read_text()
    preamble, rule, rest = prompt.partition("\n---\n\n")
    assert (bool(rule), rest) == (True, f"{task}\n")
    assert run_id in preamble
    for command in (
        'subagent ask "',
        'subagent tell "',
        "subagent update running --summary",
        'subagent submit result "',
        'subagent submit error "',
    ):
        assert command in preamble
    assert Path("got").read_text() == prompt


@pytest.mark.case("C1-57")
def test_each_command_of_the_preamble_works_as_it_stands(cli: Command, runs_dir: Path) -> None:
    """The child takes the lines out of its own prompt and runs them."""
    script = r"""
        sed -n 's/^  \(subagent [a-z]* .*\)/\1/p' | sed 's/   .*//' > lines
        grep -v -e submit -e ' ask ' lines > now
        ask=$(grep ' ask ' lines)
        echo "$ask --timeout 30m --option A --option B --deadline 100ms --default 1" >> now
        grep 'submit result' lines >> now
        while read -r line; do sh -c "$line" >> out 2>&1 || echo "$line: $?" >> failed; done < now
    """
    run_id = started(cli, script=script)
    assert over(cli, run_id, "--no-questions").code == 0
    assert len(Path("lines").read_text().splitlines()) == 6
    assert not Path("failed").exists(), Path("failed").read_text() + Path("out").read_text()
    found = cli("status", run_id, "--json").json
    assert (found["summary"], [note["text"] for note in found["notes"]]) == ("RESULT", ["NOTE"])
    assert [message["questionContent"] for message in found["messages"]] == ["QUESTION"]


def test_the_prompt_comes_on_standard_input_which_then_ends(cli: Command, tmp_path: Path) -> None:
    env = agents(tmp_path, mine='command = ["sh", "-c", "cat; echo over"]')
    assert cli("run", "mine", "Do it", "--raw", "--wait", env=env).out == "Do itover\n"


@pytest.mark.parametrize("way", ["arg", "file"])
def test_the_prompt_comes_as_an_argument_or_a_file_where_the_agent_wants_that(
    cli: Command, tmp_path: Path, runs_dir: Path, way: str
) -> None:
    place = "{prompt}" if way == "arg" else "{prompt_file}"
    show = 'printf "%s" "$1"' if way == "arg" else 'cat "$1"'
    file = program(tmp_path / "mine", f"{show} > got; cat > stdin")
    env = agents(tmp_path, mine=f'command = ["{file}", "{place}"]\nprompt = "{way}"')
    run_id = cli("run", "mine", AWKWARD, "--wait", "--json", env=env).json["runId"]
    assert Path("got").read_text() == (runs_dir / run_id / "prompt.md").read_text()
    assert Path("stdin").read_text() == ""
    if way == "arg":
        # Whoever may look at the command need not see the task.
        assert document(runs_dir, run_id)["command"] == f"{file} '{{prompt}}'"


def test_a_prompt_that_is_too_long_for_an_argument_is_named_there(cli: Command, tmp_path: Path, runs_dir: Path) -> None:
    file = program(tmp_path / "mine", 'printf "%s" "$1" > got; grep -o "/[^ ]*prompt.md" got | xargs cat > read')
    env = agents(tmp_path, mine=f'command = ["{file}", "{{prompt}}"]\nprompt = "arg"')
    task = "ž" * 75_000
    done = cli("run", "mine", "-", "--wait", "--json", input=task.encode(), env=env)
    assert done.code == 0, done
    prompt = runs_dir / done.json["runId"] / "prompt.md"
    told = Path("got").read_text()
    assert (len(told) < 1000, str(prompt) in told) == (True, True)
    assert Path("read").read_text() == prompt.read_text()
    assert prompt.read_text().endswith(f"\n---\n\n{task}\n")


def test_a_prompt_just_below_that_is_an_argument_still(cli: Command, tmp_path: Path) -> None:
    file = program(tmp_path / "mine", 'printf "%s" "$1" | wc -c')
    env = agents(tmp_path, mine=f'command = ["{file}", "{{prompt}}"]\nprompt = "arg"')
    assert cli("run", "mine", "-", "--raw", "--wait", input=b"x" * 99_000, env=env).out == "99000\n"


@pytest.mark.parametrize("way", ["stdin", "arg", "file"])
def test_five_million_bytes_reach_the_agent_where_they_are_allowed(
    cli: Command, tmp_path: Path, runs_dir: Path, way: str
) -> None:
    task = b"0123456789abcde\n" * 312_500
    wide = {"SUBAGENT_MAX_TEXT": "6000000"}
    file = program(tmp_path / "mine", "cat $(ls -d $SUBAGENT_RUNS_DIR/*/prompt.md) | wc -c; wc -c")
    line = {"stdin": "", "arg": ', "{prompt}"', "file": ', "{prompt_file}"'}[way]
    env = agents(tmp_path, mine=f'command = ["{file}"{line}]\nprompt = "{way}"')
    done = cli("run", "mine", "-", "--raw", "--wait", "--json", input=task, env={**env, **wide})
    assert done.code == 0, done
    # One line feed at the end of standard input is not meant.
    size = len(task) - 1
    assert done.json["result"].split() == [str(size), str(size if way == "stdin" else 0)]
    assert (runs_dir / done.json["runId"] / "prompt.md").read_bytes() == task[:-1]


def test_a_task_from_standard_input_is_taken_whole(cli: Command) -> None:
    done = cli("run", "-", "--raw", "--wait", "--", "cat", input=f"{AWKWARD}\n\nend\n".encode())
    assert done.out == f"{AWKWARD}\n\nend\n"


def test_a_dash_behind_the_dashes_is_the_commands_own(cli: Command) -> None:
    assert cli("run", "Do it", "--raw", "--wait", "--", "cat", "-").out == "Do it\n"

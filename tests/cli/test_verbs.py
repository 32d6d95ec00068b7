"""Every verb once for real, as a user types it: exit code, result on stdout, talk on stderr, plain and as JSON."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from subagent_cli.core.ids import is_uuid, short
from subagent_cli.services.settings import is_ours
from tests.command import PROGRAM, Command
from tests.services.desk import snapshot

NOBODY = "0190a000-0000-7000-8000-000000000000"


def create(cli: Command, *more: str) -> str:
    done = cli("create", "helper", "Do it", *more)
    assert (done.code, done.err) == (0, "")
    return done.out.strip()


def ask(cli: Command, run_id: str, text: str = "Which?", *more: str) -> str:
    done = cli("ask", text, "--run", run_id, *more)
    assert done.code == 0, done
    return done.out.strip()


@pytest.mark.case("C1-08", "C1-16", "C1-25", "C0-10")
def test_a_whole_conversation(cli: Command, runs_dir: Path) -> None:
    run_id = cli("create", "helper", "Tidy the notes", "--name", "tidy").out.strip()
    assert is_uuid(run_id)

    worker = {"SUBAGENT_RUN_ID": run_id}
    asked = cli("ask", "Delete the old ones?", "--option", "yes", "--option", "no", env=worker)
    message_id = asked.out.strip()
    assert is_uuid(message_id)
    assert f"subagent check {short(message_id)}" in asked.err

    looked = cli("check", short(message_id), env=worker)
    assert (looked.code, looked.out) == (0, "")
    assert "pending" in looked.err

    waiting = cli("pending")
    assert waiting.code == 0
    assert "Delete the old ones?" in waiting.out
    assert f"subagent reply {short(message_id)} ANSWER" in waiting.out

    replied = cli("reply", "tidy", "1")
    assert (replied.code, replied.out) == (0, "")
    assert short(message_id) in replied.err

    peeked = cli("status", "tidy", "--peek")
    assert "Status: parent_replied" in peeked.out.splitlines()
    shown = cli("status", env=worker)
    assert "Status: parent_replied" in shown.out.splitlines()
    assert "  Answer: yes" in shown.out.splitlines()
    assert "Status: running" in cli("status", "tidy").out.splitlines()
    assert cli("check", message_id, env=worker).out == "yes\n"

    assert cli("tell", "Nearly there", env=worker).code == 0
    ended = cli("update", "success", "--summary", "3 deleted", env=worker)
    assert (ended.code, ended.out, ended.err) == (0, "Status: success\nSummary: 3 deleted\n", "")
    outcome = cli("result", "tidy")
    assert (outcome.code, outcome.out, outcome.err) == (0, "3 deleted\n", "")
    log = cli("logs", "@last")
    assert [line.split("] ", 1)[1] for line in log.out.splitlines()] == [
        "Status updated to: success",
        "Summary: 3 deleted",
    ]
    assert cli("pending").out == ""
    assert "success" in cli("list").out


def test_create_prints_the_id_alone_and_json_the_workers_environment(cli: Command, runs_dir: Path) -> None:
    done = cli("create", "helper", "Do it", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json.keys() == {"runId", "runDirectory", "env"}
    assert Path(done.json["runDirectory"]) == runs_dir / done.json["runId"]
    worker = done.json["env"]
    assert cli("ask", "Which?", env=worker).code == 0
    assert cli("status", "--json", env=worker).json["runId"] == done.json["runId"]


@pytest.mark.case("C1-10", "C1-17", "C0-05", "C0-12", "X33")
def test_the_question_verbs_as_json(cli: Command, runs_dir: Path) -> None:
    run_id = create(cli)
    asked = cli("ask", "Which?", "--run", run_id, "--json")
    assert (asked.code, asked.err) == (0, "")
    assert asked.json.keys() >= {"messageId", "message_id", "instructions"}
    message_id = asked.json["messageId"]

    looked = cli("check", message_id, "--json").json
    assert (looked["answer"], looked["state"], looked["messageStatus"]) == (None, "PENDING", "pending_parent_reply")

    (item,) = cli("pending", "--json").json
    assert item.items() >= {"message_id": message_id, "question": "Which?", "run_id": run_id}.items()
    assert item["timestamp"]

    replied = cli("reply", message_id, "That.", "--json")
    assert (replied.code, replied.err) == (0, "")
    assert replied.json["success"] is True
    on_disk = json.loads((runs_dir / run_id / ".meta.json").read_bytes())
    assert replied.json["updatedMetadata"] == on_disk

    looked = cli("check", message_id, "--json").json
    assert (looked["answer"], looked["state"]) == ("That.", "ANSWERED")

    unknown = cli("check", NOBODY, "--json")
    assert unknown.code == 3
    assert unknown.json["answer"] is None


@pytest.mark.case("C1-10")
@pytest.mark.parametrize("by", ["variable", "option"])
def test_the_instructions_are_a_command_that_works_as_it_stands(cli: Command, tmp_path: Path, by: str) -> None:
    place = str(tmp_path / "kept")
    told = ["--runs-dir", place] if by == "option" else []
    env = {"SUBAGENT_RUNS_DIR": None if by == "option" else place}
    run_id = cli("create", "helper", "Do it", *told, env=env).out.strip()
    asked = cli("ask", "Which?", "--run", run_id, "--json", *told, env=env).json
    program, *words = shlex.split(asked["instructions"].rpartition(": ")[2])
    assert program == "subagent"
    polled = cli(*words, "--json", env=env)
    assert polled.code == 0, polled
    assert polled.json["messageId"] == asked["messageId"]


@pytest.mark.case("C1-24", "C1-30")
def test_the_run_verbs_as_json(cli: Command, runs_dir: Path) -> None:
    run_id = create(cli, "--name", "tidy")
    message_id = ask(cli, run_id)
    shown = cli("status", run_id, "--json")
    assert (shown.code, shown.err) == (0, "")
    expected = {"runId", "agentName", "command", "startTime", "status", "exitCode", "endTime", "summary", "messages"}
    expected |= {"logFile", "logDirectory", "state", "kind", "alive", "instructions", "next"}
    assert shown.json.keys() >= expected
    assert shown.json["messages"][0]["messageId"] == message_id
    program, *words = shlex.split(shown.json["next"][0])
    assert program == "subagent"
    assert cli(*words).code == 0

    assert cli("tell", "Note.", "--run", run_id, "--json").json["text"] == "Note."
    assert cli("status", "tidy", "--json").json["notes"][-1]["text"] == "Note."
    (row,) = cli("list", "--json").json
    assert (row["runId"], row["name"], row["pendingQuestions"]) == (run_id, "tidy", 0)
    updated = cli("update", run_id, "error", "--summary", "No disk.", "--json")
    assert updated.json == json.loads((runs_dir / run_id / ".meta.json").read_bytes())
    outcome = cli("result", run_id, "--json")
    assert outcome.code == 10
    assert (outcome.json["error"], outcome.json["kind"]) == ("No disk.", "sub_agent_error")
    lines = cli("logs", run_id, "-n", "1", "--json").json
    assert [(line["stream"], line["text"]) for line in lines] == [("system", "Summary: No disk.")]
    assert lines[0]["timestamp"]


@pytest.mark.case("C1-28", "C1-44", "X33")
@pytest.mark.parametrize("verb", [["status", NOBODY], ["update", NOBODY, "success"]], ids=["status", "update"])
def test_an_unknown_run_is_an_object_that_says_so_and_exit_3(cli: Command, runs_dir: Path, verb: list[str]) -> None:
    create(cli)
    before = snapshot(runs_dir)
    expected = {
        "runId": NOBODY,
        "status": "not_found",
        "message": "Run ID not found",
        "logDirectory": str(runs_dir),
    }
    done = cli(*verb, "--json")
    assert done.code == 3
    assert done.json.items() >= expected.items()
    plain = cli(*verb)
    assert plain.code == 3
    assert "Status: not_found" in plain.out.splitlines()
    assert snapshot(runs_dir) == before


@pytest.mark.case("C0-15", "C1-46", "X33")
@pytest.mark.parametrize("verb", ["pending", "logs"])
def test_lists_of_an_unknown_run_are_empty_and_exit_3(cli: Command, runs_dir: Path, verb: str) -> None:
    create(cli)
    before = snapshot(runs_dir)
    done = cli(verb, NOBODY, "--json")
    assert (done.code, done.json) == (3, [])
    plain = cli(verb, NOBODY)
    assert (plain.code, plain.out) == (3, "")
    assert NOBODY in plain.err
    assert snapshot(runs_dir) == before


@pytest.mark.case("C1-46")
def test_the_logs_of_an_unknown_run_are_missed_in_the_known_words(cli: Command) -> None:
    create(cli)
    assert f"No logs found for run ID: {NOBODY}" in cli("logs", NOBODY).err


@pytest.mark.case("X4")
def test_the_three_ways_to_address_a_reply(cli: Command) -> None:
    run_id = create(cli)
    first, second, third = (ask(cli, run_id) for _ in range(3))
    several = cli("reply", run_id, "That.", "--json")
    assert (several.code, several.json["error"]["code"]) == (4, "several_pending")
    assert [line.split()[0] for line in several.json["error"]["candidates"]] == [first, second, third]
    assert cli("reply", first, "That.", "--json").json["messageIds"] == [first]
    assert cli("reply", run_id, short(second), "That.", "--json").json["messageIds"] == [second]
    assert cli("reply", run_id, "That.", "--json").json["messageIds"] == [third]
    none = cli("reply", run_id, "That.", "--json")
    assert (none.code, none.json["success"], none.json["error"]["code"]) == (4, False, "no_pending_question")
    fourth, fifth, sixth, seventh = (ask(cli, run_id) for _ in range(4))
    assert cli("reply", run_id, "That.", "--oldest", "--json").json["messageIds"] == [fourth]
    assert cli("reply", "--latest", run_id, "That.", "--json").json["messageIds"] == [seventh]
    assert cli("reply", run_id, "--all", "That.", "--json").json["messageIds"] == [fifth, sixth]


@pytest.mark.case("X5")
def test_the_table_and_the_list_leave_replies_unread_and_another_worker_too(cli: Command) -> None:
    run_id, other = create(cli), create(cli)
    ask(cli, run_id)
    cli("reply", run_id, "That.")
    table = cli("status")
    assert table.code == 0
    assert "parent_replied" in table.out
    assert "parent_replied" in cli("list").out
    assert cli("status", run_id, "--json", env={"SUBAGENT_RUN_ID": other}).json["status"] == "parent_replied"
    assert cli("status", run_id, "--json").json["status"] == "parent_replied"
    assert cli("status", run_id, "--json").json["status"] == "running"


def test_a_session_can_ask_for_json_once(cli: Command) -> None:
    run_id = create(cli)
    session = {"SUBAGENT_OUTPUT": "json"}
    assert cli("status", run_id, env=session).json["runId"] == run_id
    assert cli("list", env=session).json[0]["runId"] == run_id
    failed = cli("result", run_id, env=session)
    assert (failed.code, failed.json["success"], failed.err) == (4, False, "")
    usage = cli("frobnicate", env=session)
    assert (usage.code, usage.json["error"]["code"]) == (2, "usage")


@pytest.mark.parametrize("where", ["project file", "option"])
def test_errors_take_the_form_that_results_have(cli: Command, tmp_path: Path, where: str) -> None:
    run_id = create(cli)
    before_verb = ["--set", "output=json"] if where == "option" else []
    if where == "project file":
        (tmp_path / "subagent.toml").write_text('output = "json"')
    assert cli(*before_verb, "status", run_id).json["runId"] == run_id
    assert cli(*before_verb, "result", run_id).json["success"] is False


def test_a_text_that_reads_like_an_option_does_not_change_the_form_of_errors(cli: Command) -> None:
    create(cli)
    done = cli("ask", "--run", "nobody", "--", "--json")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: ")


def test_shared_options_stand_before_or_behind_the_verb(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    run_id = create(cli)
    nowhere = {"SUBAGENT_RUNS_DIR": str(tmp_path / "nowhere")}
    for words in (
        ["--runs-dir", str(runs_dir), "--json", "status", run_id],
        ["status", run_id, "--runs-dir", str(runs_dir), "--json"],
        ["--json", "status", "--runs-dir", str(runs_dir), run_id],
    ):
        done = cli(*words, env=nowhere)
        assert (done.code, done.json["runId"]) == (0, run_id)
    assert cli("--runs-dir", str(tmp_path / "elsewhere"), "status", "--runs-dir", runs_dir, run_id).code == 0


def test_a_dash_stands_for_standard_input_wherever_a_text_goes(cli: Command, runs_dir: Path) -> None:
    run_id = cli("create", "helper", "-", input=b"Do\nit\n").out.strip()
    assert (runs_dir / run_id / "prompt.md").read_bytes() == b"Do\nit"
    cli("ask", "-", "--run", run_id, input="Žluť?\nOr\n\n".encode())
    assert cli("pending", "--json").json[0]["question"] == "Žluť?\nOr\n"
    assert cli("reply", run_id, "-", input=b"two\nlines").code == 0
    assert cli("status", run_id, "--json").json["messages"][0]["answerContent"] == "two\nlines"
    cli("tell", "-", "--run", run_id, input=b"a note\r\n")
    assert cli("status", run_id, "--json").json["notes"][0]["text"].startswith("a note")
    assert cli("update", run_id, "success", "--summary", "-", "--json", input=b"Done.\n").json["summary"] == "Done."


def test_texts_that_begin_with_a_dash_go_behind_two_dashes(cli: Command) -> None:
    run_id = create(cli)
    assert cli("ask", "--run", run_id, "--", "--really?").code == 0
    assert cli("pending", "--json").json[0]["question"] == "--really?"
    assert cli("reply", "--json", "--", run_id, "-5").json["success"] is True
    assert cli("status", run_id, "--json").json["messages"][0]["answerContent"] == "-5"
    forgotten = cli("ask", "-5", "--run", run_id)
    assert forgotten.code == 2
    assert "--" in forgotten.err.split("hint:")[1]


def test_a_worker_reports_on_its_own_run_without_naming_it(cli: Command) -> None:
    run_id = create(cli)
    worker = {"SUBAGENT_RUN_ID": run_id}
    assert cli("update", "running", env=worker).code == 0
    assert cli("status", "--json", env=worker).json["status"] == "running"
    assert cli("update", "success", "--summary", "Done.", env=worker).code == 0
    assert cli("result", env=worker).out == "Done.\n"
    assert "Done." in cli("logs", env=worker).out


def test_list_stops_at_its_limit_and_says_so(cli: Command) -> None:
    made = [create(cli) for _ in range(3)]
    some = cli("list", "--limit", "2")
    assert len(some.out.splitlines()) == 2
    assert "--all" in some.err
    assert len(cli("list", "--limit", "2", "--all").out.splitlines()) == 3
    exactly = cli("list", "--limit", "3")
    assert [line.split()[0] for line in exactly.out.splitlines()] == [short(run_id) for run_id in reversed(made)]
    assert exactly.err == ""


def test_nothing_to_show_is_said_on_stderr_and_is_no_failure(cli: Command, runs_dir: Path) -> None:
    runs_dir.mkdir()
    for verb in ("list", "status", "pending"):
        done = cli(verb)
        assert (done.code, done.out) == (0, "")
        assert done.err.startswith("no ")
        assert cli(verb, "--json").json == []


def test_the_console_script_and_the_module_are_the_same_program(cli: Command) -> None:
    script = Path(PROGRAM[0]).with_name("subagent")
    done = subprocess.run([script, "--version"], capture_output=True, timeout=60, check=True)
    assert done.stdout == cli("--version").raw


def test_contradictory_ways_to_choose_a_question_are_refused(cli: Command) -> None:
    run_id = cli("create", "worker", "do it").out.strip()
    cli("ask", "First?", "--run", run_id)
    cli("ask", "Second?", "--run", run_id)
    refused = cli("reply", run_id, "yes", "--oldest", "--latest")
    assert refused.code == 2
    assert "exclude each other" in refused.err
    assert len(cli("pending", "--json").json) == 2


def test_a_runs_folder_that_has_lost_its_index_is_still_found(cli: Command, runs_dir: Path) -> None:
    run_id = cli("create", "worker", "do it").out.strip()
    shutil.rmtree(runs_dir / ".index")
    assert is_ours(str(runs_dir))
    assert cli("list", "--json").json[0]["runId"] == run_id

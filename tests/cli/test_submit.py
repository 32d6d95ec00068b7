"""`subagent submit`: the worker decides the outcome, once; that its process ends is another fact."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.living import QUICK, Gate, eventually, finished, over, processes, program, started, waiting
from tests.command import Command, Done
from tests.services.desk import document, journal, snapshot

pytestmark = pytest.mark.usefixtures("nothing_survives")

KINDS = [
    "auth",
    "rate_limit",
    "network",
    "invalid_request",
    "server_error",
    "timed_out",
    "cancelled",
    "sub_agent_error",
    "context_exhausted",
    "content_filter",
]


@pytest.fixture
def worker(cli: Command) -> dict[str, str]:
    """The identity of a run whose process is nobody's business here."""
    found: dict[str, str] = cli("create", "helper", "Do it", "--json").json["env"]
    return found


def types(runs_dir: Path, run_id: str) -> list[str]:
    return [event["type"] for event in journal(runs_dir, run_id)]


@pytest.mark.case("C2-14", "C2-22", "X8")
def test_a_result_ends_the_run_as_a_success(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="echo noise; subagent submit result '12 notes tidied'; echo more noise")
    done = over(cli, run_id)
    assert (done.code, done.json["runs"][0]["result"]) == (0, "12 notes tidied")
    assert cli("result", run_id).out == "12 notes tidied\n"
    found = document(runs_dir, run_id)
    assert (found["status"], found["summary"], found["exitCode"]) == ("success", "12 notes tidied", 0)
    assert types(runs_dir, run_id) == ["created", "submitted", "exited"]


@pytest.mark.case("C2-15", "C2-22", "X8")
def test_an_error_ends_the_run_as_failed_although_submitting_it_succeeds(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="subagent submit error 'no disk'; echo $? > code")
    done = over(cli, run_id)
    assert (done.code, done.json["runs"][0]["error"]) == (10, "no disk")
    assert Path("code").read_text() == "0\n"
    failed = cli("result", run_id, "--json")
    assert (failed.code, failed.json["error"], failed.json["kind"]) == (10, "no disk", "sub_agent_error")
    assert "result" not in failed.json
    found = document(runs_dir, run_id)
    assert (found["status"], found["exitCode"]) == ("error", 0)
    assert found["summary"].endswith("no disk")


@pytest.mark.case("C2-14", "C2-15")
@pytest.mark.parametrize("word", ["result", "error"])
def test_submitting_tells_the_worker_to_end_and_gives_the_outcome(
    cli: Command, worker: dict[str, str], word: str
) -> None:
    said = cli("submit", word, "That.", env=worker)
    assert (said.code, said.out, said.err) == (0, "", f"{word} submitted; end now\n")
    again = cli("submit", word, "That.", "--json", env=worker).json
    assert (again["runId"], again[word]) == (worker["SUBAGENT_RUN_ID"], "That.")
    assert again["state"] == {"result": "success", "error": "error"}[word]


@pytest.mark.case("C2-14")
@pytest.mark.parametrize("words", [["result"], ["result", ""], ["error", ""], []], ids=str)
def test_an_outcome_without_a_text_is_no_outcome(
    cli: Command, runs_dir: Path, worker: dict[str, str], words: list[str]
) -> None:
    before = snapshot(runs_dir, locks=False)
    assert cli("submit", *words, env=worker).code == 2
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C2-16")
@pytest.mark.parametrize(
    "words", [["result", "a", "error", "b"], ["result", "a", "b"], ["result", "a", "--kind", "auth"]], ids=" ".join
)
def test_a_submit_stands_alone(cli: Command, runs_dir: Path, worker: dict[str, str], words: list[str]) -> None:
    before = snapshot(runs_dir, locks=False)
    done = cli("submit", *words, env=worker)
    assert (done.code, done.out) == (2, "")
    assert snapshot(runs_dir, locks=False) == before
    assert cli("submit", "result", "Alone.", env=worker).code == 0


@pytest.mark.case("C2-16", "C2-35")
@pytest.mark.parametrize(
    "words",
    [
        ["submit", "result", "Other."],
        ["submit", "error", "That."],
        ["submit", "result", "That.", "--artifact", "x"],
        ["submit", "result", "That.", "--tool", "x"],
        ["ask", "Which?"],
        ["tell", "More."],
        ["update", "running"],
        ["update", "error"],
    ],
    ids=" ".join,
)
def test_after_an_outcome_nothing_else_counts(
    cli: Command, runs_dir: Path, worker: dict[str, str], words: list[str]
) -> None:
    assert cli("submit", "result", "That.", env=worker).code == 0
    before = snapshot(runs_dir, locks=False)
    done = cli(*words, "--json", env=worker)
    assert (done.code, done.json["error"]["code"]) == (4, "run_finished"), done
    assert snapshot(runs_dir, locks=False) == before
    assert cli("result", worker["SUBAGENT_RUN_ID"]).out == "That.\n"


@pytest.mark.case("C2-35")
@pytest.mark.parametrize("words", [["result", "That."], ["error", "No.", "--kind", "network"]], ids=" ".join)
def test_the_same_outcome_again_is_no_harm(
    cli: Command, runs_dir: Path, worker: dict[str, str], words: list[str]
) -> None:
    request = ["submit", *words, "--artifact", "a", "--artifact", "b", "--tool", "t"]
    assert cli(*request, env=worker).code == 0
    before = snapshot(runs_dir, locks=False)
    assert cli(*request, env=worker).code == 0
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C2-35")
def test_of_two_outcomes_at_once_one_counts_and_the_other_is_told(
    cli: Command, runs_dir: Path, worker: dict[str, str]
) -> None:
    both = [cli.start("submit", "result", text, env=worker) for text in ("One.", "Two.")]
    codes = [finished(process).code for process in both]
    assert sorted(codes) == [0, 4]
    first = ["One.", "Two."][codes.index(0)]
    assert cli("result", worker["SUBAGENT_RUN_ID"]).out == f"{first}\n"
    assert types(runs_dir, worker["SUBAGENT_RUN_ID"]).count("submitted") == 1


@pytest.mark.case("C2-35")
def test_a_run_that_was_ended_by_others_takes_no_outcome(cli: Command, worker: dict[str, str]) -> None:
    run_id = worker["SUBAGENT_RUN_ID"]
    assert cli("cancel", run_id, "--reason", "Not needed.").code == 0
    assert cli("submit", "result", "That.", env=worker).code == 4
    assert cli("result", run_id).out == "Not needed.\n"


@pytest.mark.case("C2-23")
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_error_is_a_word_that_is_kept(
    cli: Command, runs_dir: Path, worker: dict[str, str], kind: str
) -> None:
    run_id = worker["SUBAGENT_RUN_ID"]
    assert cli("submit", "error", "No.", "--kind", kind, env=worker).code == 0
    found = cli("result", run_id, "--json")
    assert (found.json["kind"], found.json["error"], found.json["status"]) == (kind, "No.", "error")
    assert found.code == (11 if kind == "cancelled" else 10)
    assert document(runs_dir, run_id)["status"] == "error"


@pytest.mark.case("C2-23")
@pytest.mark.parametrize("kind", ["lost", "Network", "no such", "../x"])
def test_another_kind_of_error_is_refused_with_those_that_there_are(
    cli: Command, runs_dir: Path, worker: dict[str, str], kind: str
) -> None:
    before = snapshot(runs_dir, locks=False)
    done = cli("submit", "error", "No.", f"--kind={kind}", "--json", env=worker)
    assert (done.code, done.json["error"]["code"]) == (2, "unknown_kind")
    assert sorted(done.json["error"]["candidates"]) == sorted(KINDS)
    assert snapshot(runs_dir, locks=False) == before


def test_artifacts_and_tools_are_part_of_the_outcome(cli: Command, worker: dict[str, str]) -> None:
    more = ["--artifact", "notes.md", "--artifact", "žluť/a b", "--tool", "Edit", "--tool", "Bash"]
    assert cli("submit", "result", "That.", *more, env=worker).code == 0
    found = cli("result", worker["SUBAGENT_RUN_ID"], "--json").json
    assert (found["artifacts"], found["tools"]) == (["notes.md", "žluť/a b"], ["Edit", "Bash"])
    assert cli("result", worker["SUBAGENT_RUN_ID"]).out == "That.\n"


def test_an_outcome_can_come_from_standard_input(cli: Command, worker: dict[str, str]) -> None:
    text = "one\n\ntwo \"x\" 'y' $z\n"
    assert cli("submit", "result", "-", input=text.encode(), env=worker).code == 0
    assert cli("result", worker["SUBAGENT_RUN_ID"]).out == text


def test_an_outcome_stands_in_the_log(cli: Command) -> None:
    run_id = started(cli, script="subagent submit error 'no\ndisk'")
    over(cli, run_id)
    lines = [line["text"] for line in cli("logs", run_id, "--json").json]
    assert "Submitted error: no" in lines


@pytest.mark.case("C2-14")
def test_a_process_that_lingers_is_stopped_and_only_then_a_wait_ends(cli: Command, runs_dir: Path, gate: Gate) -> None:
    script = f"subagent submit result That.; echo here > {gate.said}; exec sleep 600"
    run_id = started(cli, script=script, SUBAGENT_SUBMIT_GRACE="1500ms")
    gate.heard()
    process = waiting(cli.start("wait", run_id, "--json"))
    found = cli("status", run_id, "--json").json
    assert (found["state"], found["alive"], found["exitCode"]) == ("success", True, None)
    # The outcome is there at once, for whoever asks for it.
    assert cli("result", run_id).out == "That.\n"
    assert process.poll() is None
    done = finished(process)
    assert (done.code, done.json["runs"][0]["alive"]) == (0, False)
    over(cli, run_id)
    found = document(runs_dir, run_id)
    assert (found["status"], found["exitCode"], found["summary"]) == ("success", 143, "That.")
    assert any("did not end: it is stopped" in line["text"] for line in cli("logs", run_id, "--json").json)
    eventually(lambda: processes(runs_dir) == [])


def test_a_process_that_ends_in_time_is_left_alone(cli: Command, runs_dir: Path, gate: Gate) -> None:
    script = (
        "trap 'echo asked > asked' TERM; subagent submit result That.;"
        f"echo here > {gate.said}; read word < {gate.word}; exit 7"
    )
    run_id = started(cli, script=script, SUBAGENT_SUBMIT_GRACE="60s")
    gate.heard()
    gate.open()
    assert over(cli, run_id).code == 0
    assert document(runs_dir, run_id)["exitCode"] == 7
    assert not Path("asked").exists()


def test_a_process_that_does_not_listen_is_killed(cli: Command, runs_dir: Path) -> None:
    script = "trap '' TERM; subagent submit result That.; while :; do sleep 600; done"
    run_id = started(cli, script=script)
    done = over(cli, run_id)
    assert (done.code, document(runs_dir, run_id)["exitCode"]) == (0, 137)
    eventually(lambda: processes(runs_dir) == [])


@pytest.mark.case("C2-36", "C2-35")
def test_cancelling_a_run_that_has_an_outcome_ends_its_process_and_leaves_the_outcome(
    cli: Command, runs_dir: Path, gate: Gate
) -> None:
    run_id = started(
        cli,
        script=f"subagent submit result That.; echo here > {gate.said}; exec sleep 600",
        SUBAGENT_SUBMIT_GRACE="60s",
    )
    gate.heard()
    done = cli("cancel", run_id, "--json")
    assert (done.code, done.json["cancelled"], done.json["ended"]) == (0, [], [run_id])
    assert processes(runs_dir) == []
    found = cli("result", run_id, "--json")
    assert (found.code, found.json["result"], found.json["kind"]) == (0, "That.", None)
    assert document(runs_dir, run_id)["status"] == "success"


@pytest.mark.case("C2-36")
@pytest.mark.parametrize("word", ["result", "error"])
def test_cancelling_an_ended_run_changes_nothing(
    cli: Command, runs_dir: Path, worker: dict[str, str], word: str
) -> None:
    run_id = worker["SUBAGENT_RUN_ID"]
    assert cli("submit", word, "That.", env=worker).code == 0
    before = snapshot(runs_dir, locks=False)
    done = cli("cancel", run_id, "--reason", "Too late.", "--json")
    assert (done.code, done.json["cancelled"], done.json["ended"]) == (0, [], [run_id])
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C2-17", "C1-47")
def test_whoever_just_ends_with_text_has_succeeded_with_that_text(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, script="echo thinking >&2; echo 'It is done.'; echo Really.")
    assert over(cli, run_id).code == 0
    found = cli("result", run_id, "--json").json
    assert (found["result"], found["summary"]) == ("It is done.\nReally.", None)
    assert document(runs_dir, run_id)["summary"] is None


@pytest.mark.case("C2-17")
def test_of_an_agent_that_speaks_json_its_last_words_count(cli: Command, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"type": "system", "session_id": "s"},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Edit"}]}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "Not yet."}]}},
        {"type": "result", "result": "It is done.", "session_id": "s"},
    ]
    (tmp_path / "said").write_text("".join(json.dumps(event) + "\n" for event in events))
    (tmp_path / "mine.toml").write_text('[agents.mine]\ncommand = ["cat", "said"]\noutput = "claude"\n')
    done = cli("run", "mine", "Do it", "--wait", "--json", env={"SUBAGENT_AGENTS": str(tmp_path / "mine.toml")})
    assert (done.code, done.json["result"], done.json["tools"]) == (0, "It is done.", ["Edit"])


@pytest.mark.case("C2-17")
def test_the_end_of_a_long_output_is_the_result(cli: Command) -> None:
    run_id = started(cli, script="seq 200000; echo the end")
    assert over(cli, run_id).code == 0
    text = cli("result", run_id).out
    assert text.endswith("\n199999\n200000\nthe end\n")


def test_what_was_submitted_goes_before_what_was_put_out(cli: Command) -> None:
    run_id = started(cli, script="echo before; subagent submit result That. 2> said; echo behind")
    assert over(cli, run_id).code == 0
    assert cli("result", run_id).out == "That.\n"
    assert Path("said").read_text() == "result submitted; end now\n"


@pytest.mark.case("C2-22")
@pytest.mark.parametrize("word", ["result", "error"])
def test_a_run_whose_parent_is_gone_still_ends(cli: Command, runs_dir: Path, gate: Gate, word: str) -> None:
    """The run that started it has ended, and so has everything that could have waited for it."""
    inner = program(Path("inner").absolute(), f"read word < {gate.word}; subagent submit {word} That.")
    top = started(cli, "--max-depth", "2", script=f"subagent run 'Do more' --name inner -- {inner}")
    assert over(cli, top).code == 0
    process = waiting(cli.start("wait", "inner"))
    gate.open()
    assert finished(process).code == (10 if word == "error" else 0)
    over(cli, "inner")
    assert document(runs_dir, cli("status", "inner", "--json").json["runId"])["status"] in ("success", "error")


def test_a_worker_of_a_run_that_nobody_started_here_can_submit(cli: Command, worker: dict[str, str]) -> None:
    run_id = worker["SUBAGENT_RUN_ID"]
    assert cli("status", run_id, "--json").json["status"] == "pending"
    assert cli("submit", "result", "That.", env=worker).code == 0
    waited: Done = cli("wait", run_id, timeout=10)
    assert (waited.code, waited.out) == (0, f"{run_id[-8:]}  success  That.\n")


def test_the_grace_after_a_submit_is_a_setting(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "subagent.toml").write_text('submit_grace = "50ms"\nstop_grace = "50ms"\n')
    quiet: dict[str, str | None] = dict.fromkeys(QUICK)
    run_id = started(cli, script="subagent submit result That.; exec sleep 600", **quiet)
    assert finished(cli.start("wait", run_id), within=10).code == 0
    over(cli, run_id)
    assert os.listdir(tmp_path / "runs" / ".index" / "active") == []

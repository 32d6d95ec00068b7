"""`subagent dispatch`: what is asked, what comes back, and what is refused before anything exists."""

import json
import os
import re
import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.cli.main import main
from subagent_cli.core.ids import is_uuid
from subagent_cli.services.context import Context
from tests.cli.living import QUICK, SOON, Gate, all_ended, eventually, finished, over, processes, program, started
from tests.command import Command, Done
from tests.services.desk import create, snapshot

FAILED = "Subagent execution failed: "
GOOD: dict[str, Any] = {"mode": "ad_hoc", "instructions": "Do it"}
ASKED = ("--mode", "ad_hoc", "--instructions", "Do it")
OPTIONS = {"expected_artifacts": "--artifact"}

Refusal = Callable[..., tuple[object, Any]]

# What stays when no run does: empty folders and a page that explains them.
STANDING = {"README.md", ".locks", ".workspaces"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which somebody dispatches. Whatever a test leaves running ends with it."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.md").write_text("Two words.\n")
    monkeypatch.chdir(folder)
    with all_ended(runs_dir):
        yield folder


def dispatched(cli: Command, *words: str, script: str, **env: str | None) -> Done:
    """How a dispatch to a shell script has ended."""
    return cli("dispatch", *ASKED, *words, "--", "sh", "-c", script, env=env)


def remains(runs_dir: Path) -> list[str]:
    """What there is of any run, of its copy, its locks and its index entries."""
    paths = {path.relative_to(runs_dir) for path in runs_dir.rglob("*")}
    return sorted(
        str(path) for path in paths if str(path) not in STANDING and path.parts[:1] + path.parts[2:] != (".index",)
    )


def heard(process: "subprocess.Popen[bytes]", questions: int = 1) -> list[str]:
    """The questions that a command prints, each as a line, and how to answer it as the next."""
    said, stream = b"", process.stderr
    assert stream is not None
    while not (said.endswith(b"\n") and said.count(b"subagent reply") == questions):
        assert select.select([stream], [], [], SOON)[0], said
        chunk = os.read(stream.fileno(), 4096)
        assert chunk, (said, process.communicate())
        said += chunk
    return said.decode().splitlines()


def answered(cli: Command, line: str, text: str) -> None:
    """Types the command that was printed, with an answer."""
    found = re.search(r"subagent (reply \S+)", line)
    assert found, line
    assert cli(*found[1].split(), text).code == 0


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str], runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """Types a dispatch that is refused, in this process: its exit code and what is said."""
    monkeypatch.setenv("SUBAGENT_RUNS_DIR", str(runs_dir))

    def type_(*words: str) -> tuple[object, Any]:
        with pytest.raises(SystemExit) as ended:
            main(["dispatch", "--json", *words])
        return ended.value.code, json.loads(capsys.readouterr().out)["error"]

    return type_


def file_of(folder: Path, payload: object, name: str = "payload.json") -> Path:
    (folder / name).write_text(json.dumps(payload))
    return folder / name


def as_options(payload: dict[str, Any]) -> list[str]:
    words = list[str]()
    for name, value in payload.items():
        for one in value if isinstance(value, list) else [value]:
            words += [OPTIONS.get(name, f"--{name.replace('_', '-')}"), one]
    return words


@pytest.mark.case("C4-28")
def test_the_summary_is_printed_and_nothing_else(cli: Command, runs_dir: Path) -> None:
    done = dispatched(cli, script="echo noise; subagent submit result 'It is done.' 2> /dev/null; echo more noise")
    assert (done.code, done.out, done.err) == (0, "It is done.\n", "")
    assert remains(runs_dir) == []


@pytest.mark.case("C4-28", "C4-31", "X30")
def test_as_json_there_is_the_payload_with_each_tool_once_where_it_was_first_named(cli: Command) -> None:
    script = "subagent submit result 'It is done.' --tool Edit --tool Bash --tool Edit --artifact a.md"
    done = dispatched(cli, "--artifact", " a.md ", "--json", script=script)
    assert (done.code, done.err) == (0, "")
    assert done.json == {
        "success": True,
        "message": "It is done.",
        "value": {"message_summary": "It is done.", "artifacts": ["a.md"], "tools_used": ["Edit", "Bash"]},
        "missingArtifacts": [],
        "delivered": [],
        "notDelivered": [],
    }


def claude(*tools: str) -> list[dict[str, Any]]:
    used = [{"type": "assistant", "message": {"content": [{"type": "tool_use", "name": name}]}} for name in tools]
    return [*used, {"type": "result", "result": "It is done.", "session_id": "s"}]


def codex(*tools: str) -> list[dict[str, Any]]:
    used = [{"type": "item.completed", "item": {"type": "mcp_tool_call", "tool": name}} for name in tools]
    return [*used, {"type": "item.completed", "item": {"type": "agent_message", "text": "It is done."}}]


@pytest.mark.case("C4-31", "X30")
@pytest.mark.parametrize("form", [claude, codex])
@pytest.mark.parametrize("submitted", [(), ("mine", "mine")], ids=["left out", "submitted"])
def test_of_an_agent_that_names_no_tools_those_of_its_output_count(
    cli: Command, tmp_path: Path, form: Any, submitted: tuple[str, ...]
) -> None:
    events = form("read", "edit", "read", "bash", "edit")
    (tmp_path / "said").write_text("".join(json.dumps(event) + "\n" for event in events))
    submits = f"subagent submit result 'It is done.' {' '.join(f'--tool {name}' for name in submitted)} 2> /dev/null\n"
    program(tmp_path / "mine", (submits if submitted else "") + f"cat {tmp_path}/said")
    (tmp_path / "mine.toml").write_text(f'[agents.mine]\ncommand = ["./mine"]\noutput = "{form.__name__}"\n')
    done = cli("dispatch", "mine", *ASKED, "--json", env={"SUBAGENT_AGENTS": str(tmp_path / "mine.toml")})
    assert (done.code, done.json["message"]) == (0, "It is done.")
    assert done.json["value"]["tools_used"] == (["mine"] if submitted else ["read", "edit", "bash"])


@pytest.mark.case("C4-29", "C4-30")
@pytest.mark.parametrize("as_json", [True, False])
def test_what_was_delivered_is_passed_on_as_it_is_and_what_is_missing_is_told(cli: Command, as_json: bool) -> None:
    script = "subagent submit result Done --artifact ' draft.md' --artifact z --artifact a --artifact z 2> /dev/null"
    words = ["--artifact", "report.md", "--artifact", "a", "--artifact", "report.md", *(["--json"] if as_json else [])]
    done = dispatched(cli, *words, script=script)
    assert done.code == 0
    assert done.err == "warning: an expected artifact was not delivered: report.md\n"
    if as_json:
        assert (done.json["success"], done.json["missingArtifacts"]) == (True, ["report.md"])
        assert done.json["value"]["artifacts"] == [" draft.md", "z", "a", "z"]
    else:
        assert done.out == "Done\n"


@pytest.mark.case("C4-33")
@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("subagent submit error 'no disk'", "no disk"),
        ("echo out; echo 'no disk' >&2; exit 3", "Process exited with code 3\nno disk"),
        ("kill -9 $$", "Process exited with code 137"),
    ],
    ids=["submitted", "exit code", "killed"],
)
def test_a_failure_has_no_value_and_says_why(cli: Command, runs_dir: Path, script: str, text: str) -> None:
    done = dispatched(cli, "--json", "--artifact", "a.md", script=script)
    assert (done.code, done.err) == (1, "")
    assert done.json == {"success": False, "message": FAILED + text, "value": None}
    assert remains(runs_dir) == []


@pytest.mark.case("C4-33")
def test_a_failure_is_printed_where_the_summary_would_be(cli: Command) -> None:
    done = dispatched(cli, script="subagent submit error 'no disk' 2> /dev/null")
    assert (done.code, done.out, done.err) == (1, f"{FAILED}no disk\n", "")


@pytest.mark.case("C4-37")
def test_a_summary_beyond_ascii_is_kept_and_warned_of(cli: Command) -> None:
    done = dispatched(cli, script="echo 'Übung: 3 žlutí 🦊'")
    assert (done.code, done.out) == (0, "Übung: 3 žlutí 🦊\n")
    assert done.err == "warning: the summary is not plain ASCII\n"


STEP = {"mode": "plan_step"}
# By what is said of it, how a payload differs from a good one; what is None is left out.
BAD: dict[str, Any] = {
    "mode is required.": {"mode": None},
    "mode must be 'plan_step' or 'ad_hoc'.": {"mode": "batch"},
    "instructions is required.": {"instructions": None},
    "instructions must be non-empty ASCII text.": {"instructions": " \n"},
    "instructions must be <= 2000 characters of ASCII text.": {"instructions": "x" * 2001},
    "instructions must contain only ASCII characters.": {"instructions": "Prüfe"},
    "expected_artifacts must be non-empty ASCII text.": {"expected_artifacts": ["a", " "]},
    "expected_artifacts must be <= 160 characters of ASCII text.": {"expected_artifacts": ["x" * 161]},
    "expected_artifacts must contain only ASCII characters.": {"expected_artifacts": ["ž.md"]},
    "plan_step_id is required when mode is 'plan_step'.": STEP,
    "plan_step_id must be non-empty ASCII text.": {**STEP, "plan_step_id": ""},
    "plan_step_id must contain only ASCII characters.": {**STEP, "plan_step_id": "č. 1"},
}
# What no option can say.
ODD: dict[str, Any] = {
    "snapshot is no field of a dispatch.": {"snapshot": {}},
    "instructions must be text.": {"instructions": 5},
    "expected_artifacts must be a sequence of ASCII texts.": {"expected_artifacts": "a.md"},
    "prompt_ns must be text.": {"prompt_ns": ["docs"]},
    "a dispatch is a table of ": [GOOD],
}


@pytest.mark.case("C4-14", "C4-16", "X24")
@pytest.mark.parametrize("told", [*BAD, *ODD])
def test_a_payload_that_cannot_be_meant_is_refused_before_anything_exists(
    refusal: Refusal, desk: Context, runs_dir: Path, tmp_path: Path, told: str
) -> None:
    payload = {**BAD, **ODD}[told]
    if isinstance(payload, dict):
        payload = {name: value for name, value in {**GOOD, **payload}.items() if value is not None}
    one, both = file_of(tmp_path, payload), file_of(tmp_path, [GOOD, payload], "payloads.json")
    create(desk)
    before = snapshot(runs_dir)
    ways = [["--request", str(one)], ["--requests", str(both)], *([as_options(payload)] if told in BAD else [])]
    for way in ways:
        code, error = refusal(*way, "--", "touch", f"{tmp_path}/started")
        assert (code, error["code"]) == (2, "invalid_dispatch")
        assert error["message"].startswith(f"requests.1: {told}" if "--requests" in way else told)
        assert snapshot(runs_dir) == before
    assert not (tmp_path / "started").exists()


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "unknown agent": ([*ASKED, "nobody"], 2, "unknown_agent"),
    "missing program": ([*ASKED, "--", "no-such-program"], 3, "program_not_found"),
    "no program": ([*ASKED, "--"], 2, "usage"),
    "no folder": ([*ASKED, "--cwd", "nowhere", "--"], 2, "bad_cwd"),
    "a file as folder": ([*ASKED, "--cwd", "notes.md", "--"], 2, "bad_cwd"),
    "agent and command": ([*ASKED, "claude", "--"], 2, "usage"),
    "neither": ([*ASKED], 2, "usage"),
    "options and a file": (["--mode", "ad_hoc", "--request", "good.json", "--"], 2, "usage"),
    "options and a batch": (["--artifact", "a", "--requests", "good.json", "--"], 2, "usage"),
    "a file and a batch": (["--request", "good.json", "--requests", "good.json", "--"], 2, "usage"),
    "no file": (["--request", "nowhere", "--"], 2, "unreadable_file"),
    "no JSON": (["--request", "notes.md", "--"], 2, "invalid_requests"),
    "no JSON in a batch": (["--requests", "notes.md", "--"], 2, "invalid_requests"),
    "no batch": (["--requests", "good.json", "--"], 2, "invalid_dispatch"),
    "no time": ([*ASKED, "--timeout", "soon", "--"], 2, "invalid_input"),
    "no variable": ([*ASKED, "--env", "=x", "--"], 2, "invalid_env"),
    "a variable of ours": ([*ASKED, "--env", "SUBAGENT_TOKEN=x", "--"], 2, "invalid_env"),
    "a model of a command": ([*ASKED, "--model", "big", "--"], 2, "usage"),
}


@pytest.mark.case("C4-14")
@pytest.mark.parametrize("wrong", REFUSED)
def test_a_call_that_cannot_be_meant_is_refused_before_anything_exists(
    refusal: Refusal, runs_dir: Path, project: Path, wrong: str
) -> None:
    words, code, error = REFUSED[wrong]
    file_of(project, GOOD, "good.json")
    command = ["touch", str(project / "started")] if words[-1] == "--" and wrong != "no program" else []
    found, told = refusal(*words, *command)
    assert (found, told["code"]) == (code, error), told
    assert not runs_dir.exists()
    assert not (project / "started").exists()


@pytest.mark.case("C4-14")
@pytest.mark.parametrize("into", ["notes.md", "notes.md/below"])
def test_a_place_for_what_is_delivered_that_cannot_be_one_is_refused_before_the_child_has_worked(
    cli: Command, runs_dir: Path, project: Path, into: str
) -> None:
    done = dispatched(cli, "--into", into, "--json", script=f"touch {project}/started; echo Done")
    assert (done.code, done.json["success"]) == (2, False), done
    assert not (project / "started").exists()
    assert not runs_dir.exists()


@pytest.mark.case("C4-13")
@pytest.mark.parametrize("way", ["options", "file", "stdin"])
def test_the_child_is_told_all_that_was_asked(cli: Command, tmp_path: Path, way: str) -> None:
    payload = {
        "mode": "plan_step",
        "prompt_ns": "docs/ž",
        "prompt_key": "review",
        "instructions": "  Review\nthe docs. ",
        "expected_artifacts": ["report.md", "notes.md"],
        "plan_step_id": " S1 ",
    }
    words = as_options(payload) if way == "options" else ["--request", "-" if way == "stdin" else "payload.json"]
    file_of(Path.cwd(), payload)
    stdin = json.dumps(payload).encode() if way == "stdin" else None
    done = cli("dispatch", *words, "--", "sh", "-c", f"cat > {tmp_path}/prompt; echo Done", input=stdin)
    assert (done.code, done.out) == (0, "Done\n"), done
    preamble, _, task = (tmp_path / "prompt").read_text().partition("\n---\n\n")
    assert 'subagent ask "' in preamble
    assert task.startswith("Review\nthe docs.\n\n")
    for said in (
        "step S1 of your parent's plan",
        "prompt: docs/ž/review\n",
        "throwaway copy",
        'subagent submit result "SUMMARY" --artifact PATH --tool NAME',
        "Expected of you:\n  report.md\n  notes.md\n",
    ):
        assert said in task


@pytest.mark.case("C4-13", "C4-19", "X25")
def test_a_kept_child_has_an_id_of_its_own_and_carries_the_request_and_its_parents_session(
    cli: Command, runs_dir: Path
) -> None:
    payload = {**GOOD, "prompt_ns": "  padded\n", "prompt_key": "Prüfung/α", "plan_step_id": "dropped"}
    done = cli("dispatch", *as_options(payload), "--keep", "--json", "--", "true")
    run_id = done.json["runId"]
    spec = json.loads((runs_dir / run_id / "run.json").read_bytes())
    told = dict(spec["dispatch"])
    session, created = told.pop("sessionId"), told.pop("sessionCreatedAt")
    assert told == {**payload, "expected_artifacts": [], "plan_step_id": None}
    assert is_uuid(session)
    assert session[14] == run_id[14] == "7"
    assert session != spec["runId"] == run_id
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created)
    assert created <= spec["createdAt"]


@pytest.mark.case("C4-24", "C4-22")
def test_of_the_conversation_with_the_child_nothing_can_be_found_afterwards(
    cli: Command, runs_dir: Path, gate: Gate
) -> None:
    script = f"echo $SUBAGENT_RUN_ID > {gate.said}; echo SECRET; subagent tell SECRET; subagent ask SECRET; echo SECRET"
    done = dispatched(cli, "--env", "MINE=SECRET", script=f"{script}; subagent submit result Done 2> /dev/null")
    run_id = gate.heard()
    assert (done.code, done.out) == (0, "Done\n")
    for verb in ("status", "logs", "result", "events"):
        assert cli(verb, run_id).code == 3
    for words in (["list", "--all"], ["events"], ["pending"], ["tree"]):
        told = cli(*words)
        assert (told.code, told.out) == (0, ""), words
    assert remains(runs_dir) == []
    assert b"SECRET" not in b"".join(text for text in snapshot(runs_dir).values() if isinstance(text, bytes))


def test_a_question_is_told_once_with_the_command_that_answers_it(cli: Command, runs_dir: Path) -> None:
    script = "one=$(subagent ask 'Which?' --wait); two=$(subagent ask 'And then?' --wait); echo $one, then $two"
    process = cli.start("dispatch", *ASKED, "--json", "--", "sh", "-c", script)
    for question, text in (("Which?", "This"), ("And then?", "that")):
        asks, reply = heard(process)
        assert asks.endswith(question)
        answered(cli, reply, text)
    done = finished(process)
    assert (done.code, done.err, done.json["message"]) == (0, "", "This, then that")
    assert remains(runs_dir) == []


def test_a_child_whose_time_is_up_has_failed(cli: Command, runs_dir: Path) -> None:
    done = dispatched(cli, "--timeout", "150ms", script="exec sleep 600")
    assert (done.code, done.out) == (1, f"{FAILED}Sub-agent timed out\n")
    assert remains(runs_dir) == []
    eventually(lambda: processes(runs_dir) == [])


@pytest.mark.case("C4-29")
def test_what_was_delivered_is_copied_out_under_its_name(cli: Command, project: Path) -> None:
    script = (
        "mkdir out; echo a > out/a.md; echo b > b.md; echo more > notes.md; echo c > c.md; subagent submit result Done"
    )
    artifacts = " ".join(f"--artifact {name}" for name in ("out/a.md", "b.md", "gone.md"))
    done = dispatched(cli, "--into", "new/place", "--json", script=f"{script} {artifacts} 2> /dev/null")
    assert (done.code, done.err) == (0, "warning: not brought out of the workspace: gone.md\n")
    assert done.json["value"]["artifacts"] == ["out/a.md", "b.md", "gone.md"]
    assert (done.json["delivered"], done.json["notDelivered"]) == (["out/a.md", "b.md"], ["gone.md"])
    files = {name: text for name, text in snapshot(project).items() if text is not None}
    assert files == {"notes.md": b"Two words.\n", "new/place/out/a.md": b"a\n", "new/place/b.md": b"b\n"}


def test_names_that_lead_out_of_the_copy_bring_nothing(cli: Command, project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("SECRET\n")
    names = ["../../../../secret", f"{tmp_path}/secret", "link", "way/secret", "notes.md/../../x", ".git/config", "."]
    script = (
        f"ln -s {tmp_path}/secret link; ln -s {tmp_path} way; mkdir .git; echo x > .git/config; subagent submit result"
    )
    artifacts = " ".join(f"--artifact {name}" for name in names)
    done = dispatched(cli, "--into", "out", "--json", script=f"{script} Done {artifacts} 2> /dev/null")
    assert (done.code, done.json["delivered"], done.json["notDelivered"]) == (0, [], names)
    assert snapshot(project) == {"notes.md": b"Two words.\n", "out": None}


def test_the_name_of_an_artifact_cannot_pose_as_a_line_of_ours(cli: Command) -> None:
    script = "subagent submit result Done --artifact 'a\nerror: all is lost' 2> /dev/null"
    done = dispatched(cli, "--into", "out", script=script)
    assert done.code == 0
    assert [line for line in done.err.splitlines() if line.startswith("error: ")] == []


@pytest.mark.case("X12")
def test_an_agent_that_may_not_nest_is_refused(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    inner = f"subagent dispatch --mode ad_hoc --instructions 'Do it' --json -- touch {tmp_path}/started"
    run_id = started(cli, script=f"{inner} > {tmp_path}/told; echo $?")
    assert over(cli, run_id).json["runs"][0]["result"] == "4"
    assert json.loads((tmp_path / "told").read_bytes())["error"]["code"] == "depth_exceeded"
    assert not (tmp_path / "started").exists()
    assert [row["runId"] for row in cli("list", "--all", "--json").json] == [run_id]
    assert not (runs_dir / ".workspaces").exists()


@pytest.mark.case("C4-39")
def test_an_agent_that_was_resumed_hands_down_the_time_that_it_has_now(
    cli: Command, runs_dir: Path, tmp_path: Path
) -> None:
    inner = "subagent dispatch --mode ad_hoc --instructions 'Do it' --keep --json -- true"
    script = f"[ -e {tmp_path}/second ] || exec touch {tmp_path}/second; {inner} > {tmp_path}/told"
    run_id = started(cli, "--max-depth", "2", script=script)
    assert over(cli, run_id).code == 0
    assert cli("resume", run_id, "Again", "--timeout", "100s", "--wait").code == 0
    child = json.loads((tmp_path / "told").read_bytes())["runId"]
    limit = json.loads((runs_dir / child / "run.json").read_bytes())["timeoutSeconds"]
    assert limit is not None
    assert 0 < limit < 100


@pytest.mark.case("C4-17")
def test_the_child_works_in_the_folder_that_is_named_and_gets_what_is_given(
    cli: Command, tmp_path: Path, runs_dir: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "there.md").touch()
    (tmp_path / "mine.toml").write_text('[agents.mine]\ncommand = ["./mine", "{args}"]\nmodel = ["-m", "{model}"]\n')
    program(tmp_path / "mine", 'ls; echo "$MINE $@"; echo "$GIT_DIR,$GIT_AUTHOR_NAME,$GIT_CEILING_DIRECTORIES"; pwd')
    words = ["--cwd", "../other", "--env", "MINE=a b", "--model", "big", "--arg", "-x"]
    env = {"SUBAGENT_AGENTS": str(tmp_path / "mine.toml"), "GIT_DIR": str(tmp_path), "GIT_AUTHOR_NAME": "Ada"}
    done = cli("dispatch", "mine", *ASKED, *words, env=env)
    assert done.code == 0, done
    files, said, git, place = done.out.splitlines()
    assert (done.code, files, said) == (0, "there.md", "a b -m big -x")
    assert re.fullmatch(rf"{runs_dir}/\.workspaces/[0-9a-f-]{{36}}/tree", place)
    assert git == f",Ada,{os.path.dirname(place)}"

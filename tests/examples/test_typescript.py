"""The TypeScript client compiles under its own settings, does what it says, and types what is really printed."""

import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import PATIENCE, Command, end
from tests.compat import nodejs

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "typescript"
MODULES = Path(nodejs.MODULES)

# Calls one function of the client and prints what came of it. The call is in a file: it may be longer than a word.
CALLER = """\
import { readFileSync } from "node:fs";
import * as client from "./client.js";

const [name, ...words] = JSON.parse(readFileSync(process.argv[2], "utf8"));
try {
  console.log(JSON.stringify({ value: await client[name](...words) }));
} catch (error) {
  const { name, code, exitCode } = error;
  console.log(JSON.stringify({ thrown: name, code, exitCode }));
}
"""

Node = Callable[[str], list[str]]
Start = Callable[..., "subprocess.Popen[bytes]"]
Call = Callable[..., dict[str, Any]]


def compiled(node: Node, *words: "str | Path") -> "subprocess.CompletedProcess[str]":
    """As `npm run build` does it, with the compiler and the types that the tests have."""
    program = node(os.path.join("node_modules", "typescript", "bin", "tsc"))
    return subprocess.run(
        [*program, *map(str, words), "--typeRoots", str(MODULES / "@types")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Compiles the example, once for all tests here: it takes longer than most of them."""

    @functools.cache
    def once() -> Path:
        folder = tmp_path_factory.mktemp("typescript")
        done = compiled(nodejs.script, "--project", EXAMPLE, "--outDir", folder)
        assert done.returncode == 0, done.stdout + done.stderr
        # It says that the scripts are modules.
        shutil.copy(EXAMPLE / "package.json", folder)
        (folder / "caller.js").write_text(CALLER)
        return folder

    return once


@pytest.fixture
def built(node: Node, build: Callable[[], Path]) -> Path:
    """The folder of the compiled example."""
    return build()


@pytest.fixture
def start(node: Node, built: Path, runs_dir: Path) -> Iterator[Start]:
    """Starts a compiled script as the worker of a run; none outlives its test."""
    started: list[subprocess.Popen[bytes]] = []

    def launch(script: str, *words: str, run: str = "", **changes: str) -> "subprocess.Popen[bytes]":
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
        own = {"SUBAGENT_RUN_ID": run} if run else {}
        process = subprocess.Popen(
            [*node(str(built / script)), *words],
            env={**os.environ, "PATH": path, "SUBAGENT_RUNS_DIR": str(runs_dir), **own, **changes},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        end(process)


@pytest.fixture
def begin(start: Start, tmp_path: Path) -> Start:
    """`begin("ask", "Which?", run=run)`: a process that calls the client's function."""
    numbers = itertools.count(1)

    def called(*words: object, **given: str) -> "subprocess.Popen[bytes]":
        file = tmp_path / f"call{next(numbers)}.json"
        file.write_text(json.dumps(words))
        return start("caller.js", str(file), **given)

    return called


@pytest.fixture
def call(begin: Start) -> Call:
    """`call("tell", "Half done", run=run)`: what the client's function resolved to, or what it threw."""
    return lambda *words, **given: outcome(begin(*words, **given))


@pytest.fixture
def run(cli: Command) -> str:
    return cli("create", "helper", "Set the project up").out.strip()


@pytest.fixture
def launched(cli: Command) -> Iterator[Callable[..., str]]:
    """`launched("sh", "-c", "exit 3")`: the id of a run that this command is started for; it ends with the test."""
    yield lambda *words: cli("run", "Set the project up", "--", *words).out.strip()
    cli("cancel", "--all", "--grace", "0")


def outcome(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err.decode()
    found: dict[str, Any] = json.loads(out)
    return found


def only_question(cli: Command, run: str) -> dict[str, Any]:
    """The question of this run, as soon as it is there."""
    (question,) = cli("pending", run, "--wait", "--timeout", "30s", "--json").json
    assert isinstance(question, dict)
    return question


def shown(cli: Command, run: str) -> dict[str, Any]:
    found: dict[str, Any] = cli("status", run, "--peek", "--json").json
    return found


def test_the_types_are_those_that_schema_prints(cli: Command) -> None:
    assert (EXAMPLE / "subagent.ts").read_bytes() == cli("schema", "--typescript").raw


def test_the_example_asks_for_the_versions_that_it_is_tested_with() -> None:
    wanted = json.loads((EXAMPLE / "package.json").read_text())["devDependencies"]
    tested = json.loads(Path(nodejs.FOLDER, "package.json").read_text())["dependencies"]
    assert wanted == {name: tested[name] for name in ("@types/node", "typescript")}


def test_the_example_compiles_under_its_own_settings_and_leaves_its_folder_alone(node: Node, tmp_path: Path) -> None:
    before = sorted(EXAMPLE.iterdir())
    done = compiled(node, "--project", EXAMPLE, "--outDir", tmp_path / "built")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(os.listdir(tmp_path / "built")) == ["client.js", "subagent.js", "worker.js"]
    assert sorted(EXAMPLE.iterdir()) == before


def test_a_worker_asks_is_answered_by_number_and_reports_what_it_was_told(start: Start, cli: Command, run: str) -> None:
    worker = start("worker.js", run=run)
    question = only_question(cli, run)
    assert question["options"] == ["sqlite", "postgres"]
    assert cli("reply", question["message_id"], "2").code == 0
    out, err = worker.communicate(timeout=PATIENCE)
    assert (worker.returncode, out, err) == (0, b"", b"")
    ended = shown(cli, run)
    assert ended["status"] == "success"
    assert ended["summary"] == "The project is set up with postgres"
    assert [note["text"] for note in ended["notes"]] == ["Looking around"]


def test_a_worker_can_be_started_by_run_and_be_answered_after_a_wait(
    node: Node, built: Path, cli: Command, launched: Callable[..., str]
) -> None:
    run = launched(*node(str(built / "worker.js")))
    assert cli("wait", run, "--timeout", "30s").code == 12
    assert cli("reply", run, "2").code == 0
    assert cli("wait", run, "--timeout", "30s").code == 0
    ended = shown(cli, run)
    assert (ended["summary"], ended["exitCode"]) == ("The project is set up with postgres", 0)


def test_a_worker_that_nobody_answers_reports_that(start: Start, cli: Command, run: str) -> None:
    worker = start("worker.js", run=run, SUBAGENT_ANSWER_TIMEOUT="100ms")
    _, err = worker.communicate(timeout=PATIENCE)
    assert (worker.returncode, err) == (1, b"")
    ended = shown(cli, run)
    assert (ended["status"], ended["summary"]) == ("error", "nobody answered")


def test_an_unanswered_question_is_a_stalled_error_and_goes_on(call: Call, cli: Command, run: str) -> None:
    thrown = call("ask", "-- who?", {"timeout": "100ms"}, run=run)
    assert thrown == {"thrown": "StalledError", "code": "stalled", "exitCode": 124}
    assert only_question(cli, run)["question"] == "-- who?"


def test_a_question_past_its_deadline_is_an_expired_error_unless_it_has_a_default(call: Call, run: str) -> None:
    assert call("ask", "Who?", {"deadline": "1ms"}, run=run) == {
        "thrown": "ExpiredError",
        "code": "expired",
        "exitCode": 1,
    }
    wanted = {"deadline": 0.001, "default": "2", "options": ["-a", "--b"]}
    assert call("ask", "Who?", wanted, run=run) == {"value": "--b"}


@pytest.mark.parametrize("text", ["-", "--help", "-x y\n", "ends with lines\n\n", "é ☃ 𝄞", "x" * 200_000])
def test_a_text_may_be_anything(call: Call, cli: Command, run: str, text: str) -> None:
    assert call("tell", text, run=run)["value"]["text"] == text
    assert call("update", "success", text, run=run)["value"]["summary"] == text
    ended = shown(cli, run)
    assert [note["text"] for note in ended["notes"]] == [text]
    assert ended["summary"] == text


def test_a_worker_and_a_parent_speak_through_the_client(call: Call, begin: Start, run: str) -> None:
    worker = begin("ask", "-r or -f?", {"options": ["-r", "-f"]}, run=run)
    (question,) = call("pending", {"run": run, "wait": True, "timeout": 30})["value"]
    assert (question["question"], question["options"], question["run_id"]) == ("-r or -f?", ["-r", "-f"], run)
    assert call("reply", question["message_id"], "--neither")["value"]["success"] is True
    assert outcome(worker) == {"value": "--neither"}
    assert call("pending") == {"value": []}
    assert call("status", run)["value"]["messages"][0]["state"] == "RETRIEVED"


def test_looking_leaves_an_answer_unread(call: Call, cli: Command, run: str) -> None:
    cli("ask", "Which?", "--run", run)
    call("reply", run, "that one")
    assert [call("status", run)["value"]["status"] for _ in range(2)] == ["parent_replied"] * 2


def test_other_errors_are_told_apart_by_their_code(call: Call, cli: Command, run: str) -> None:
    def code(*words: object, **given: str) -> object:
        thrown = call(*words, **given)
        assert thrown["thrown"] == "SubagentError"
        return thrown["code"]

    assert code("tell", "x") == "no_run"
    assert code("ask", "", run=run) == "empty_question"
    assert code("reply", run, "x") == "no_pending_question"
    for words in (("status", "nobody"), ("pending", {"run": "nobody"}), ("reply", "nobody", "x")):
        assert code(*words) in ("run_not_found", "not_found")
    cli("update", run, "success")
    assert code("ask", "Too late?", run=run) == "run_finished"
    assert code("pending", {"run": run, "wait": True}) == "run_finished"


def test_a_parent_that_waits_in_vain_is_told_so(call: Call, run: str) -> None:
    thrown = call("pending", {"wait": True, "timeout": "50ms"})
    assert thrown == {"thrown": "StalledError", "code": "no_question", "exitCode": 124}


def test_without_the_command_the_error_is_that_of_node(call: Call, tmp_path: Path) -> None:
    assert call("pending", PATH=str(tmp_path)) == {"thrown": "Error", "code": "ENOENT"}


def test_the_types_of_the_client_are_what_is_printed(node: Node, tmp_path: Path, cli: Command, run: str) -> None:
    """A literal that has a key too many or too few, or another type, does not compile."""

    def printed(*words: str) -> str:
        return json.dumps(cli(*words, "--json").json)

    ask = ("ask", "Which?", "--run", run, "--option", "a", "--option", "b")
    samples = [
        ("Run", printed("status", run)),
        ("Told", printed("tell", "Half done", "--run", run)),
        ("AskedQuestion", printed(*ask, "--wait", "--deadline", "1ms")),
        ("AskedQuestion", printed(*ask, "--wait", "--deadline", "1ms", "--default", "2")),
        ("{ success: false; error: Failure }", printed(*ask, "--wait", "--timeout", "1ms", "--default", "2")),
        ("PendingQuestion[]", printed("pending")),
        ("Run", printed("status", run)),
        ("Replied", printed("reply", run, "1")),
        ("MetaDocument", printed("update", run, "success", "--summary", "Done")),
        ("Run", printed("status", run)),
    ]
    project(tmp_path / "samples", samples)
    done = compiled(node, "--project", tmp_path / "samples")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_that_was_started_and_tried_again_has_the_type_too(
    node: Node, tmp_path: Path, cli: Command, launched: Callable[..., str]
) -> None:
    failed, hanging = launched("sh", "-c", "exit 3"), launched("sleep", "1000")
    assert cli("wait", failed, "--timeout", "30s").code == 10
    assert cli("retry", failed, "--wait").code == 10
    runs = [shown(cli, failed), shown(cli, hanging)]
    assert [(run["alive"], len(run["attempts"])) for run in runs] == [(False, 1), (True, 0)]
    project(tmp_path / "samples", [("Run", json.dumps(run)) for run in runs])
    done = compiled(node, "--project", tmp_path / "samples")
    assert done.returncode == 0, done.stdout + done.stderr


def project(folder: Path, samples: list[tuple[str, str]]) -> None:
    """A folder that the compiler takes under the example's settings: each sample as a value of its type."""
    folder.mkdir()
    lines = [
        f"import type {{ MetaDocument }} from {json.dumps(str(EXAMPLE / 'subagent.js'))};",
        "import type { AskedQuestion, Failure, PendingQuestion, Replied, Run, Told } "
        f"from {json.dumps(str(EXAMPLE / 'client.js'))};",
        *(f"export const sample{number}: {kind} = {text};" for number, (kind, text) in enumerate(samples)),
        "// @ts-expect-error a key too many: otherwise the samples above would prove little",
        'export const surplus: Told = { runId: "", at: "", clock: "", type: "told", text: "", more: 1 };',
    ]
    (folder / "samples.mts").write_text("\n".join(lines) + "\n")
    # The example's own sources lie outside this folder.
    changes = {"noEmit": True, "rootDir": "/"}
    settings = {"extends": str(EXAMPLE / "tsconfig.json"), "include": ["*.mts"], "compilerOptions": changes}
    (folder / "tsconfig.json").write_text(json.dumps(settings))

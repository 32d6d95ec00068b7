"""A cold start loads what its verb needs and nothing else: the slow libraries stay out of the polling verbs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import PATIENCE, Command

HEAVY = ("pydantic", "rich", "asyncio", "subprocess")
# What inspect imports, and click imports inspect.
PUT_OFF = ("ast", "dis", "tokenize")

SCRIPT = """
import sys
from subagent_cli.__main__ import start
try:
    start()
except SystemExit as ended:
    print("exit", ended.code, file=sys.stderr)
print("modules", *sorted(sys.modules), file=sys.stderr)
"""


def loaded(runs_dir: Path, *words: str) -> set[str]:
    """Every module that a call has loaded when it is done."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, "--runs-dir", str(runs_dir), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    *_, ended, modules = done.stderr.splitlines()
    assert ended == "exit 0", done
    return set(modules.split()[1:])


def tops(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.fixture
def run_id(cli: Command) -> str:
    """A finished run with a question that was answered and read, beside one with a question that waits."""
    run_id = cli("create", "helper", "Do it", "--name", "done").out.strip()
    cli("ask", "Which?", "--run", run_id)
    cli("reply", run_id, "That.")
    cli("status", run_id)
    cli("update", run_id, "success", "--summary", "Done.")
    cli("create", "helper", "Do it", "--name", "open")
    cli("ask", "Which?", "--run", "open")
    return run_id


def test_looking_loads_neither_locks_nor_models_nor_paint(cli: Command, runs_dir: Path, run_id: str) -> None:
    message_id = cli("pending", "--json").json[0]["message_id"]
    for words in (
        ["status"],
        ["status", run_id],
        ["status", "open", "--json"],
        ["pending"],
        ["check", message_id],
        ["list"],
        ["result", run_id],
        ["logs", run_id],
    ):
        assert tops(loaded(runs_dir, *words)) & {*HEAVY, *PUT_OFF, "filelock"} == set(), words


def test_asking_and_replying_take_a_free_lock_without_the_library(runs_dir: Path, run_id: str) -> None:
    for words in (["ask", "Which?", "--run", "open"], ["reply", "open", "That.", "--oldest"]):
        assert tops(loaded(runs_dir, *words)) & {*HEAVY, *PUT_OFF, "filelock"} == set(), words


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_help_page_loads_no_command(runs_dir: Path, word: str) -> None:
    modules = loaded(runs_dir, word)
    assert [name for name in modules if name.startswith("subagent_cli.cli.commands")] == []
    assert tops(modules) & {*HEAVY, "filelock"} == set()


def test_what_was_put_off_is_there_when_somebody_asks_for_it() -> None:
    words = "import sys; sys.argv[1:] = ['--version']; from subagent_cli.__main__ import start\n"
    words += "try: start()\nexcept SystemExit: pass\n"
    words += "import inspect, platform\n"
    words += "print(inspect.signature(start), inspect.cleandoc('a\\n    b'), platform.system() != '')\n"
    words += "from inspect import cleandoc; print(cleandoc is sys.modules['inspect'].cleandoc)"
    done = subprocess.run([sys.executable, "-P", "-c", words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["() -> NoReturn a", "b True", "True"]


def test_a_command_loads_its_own_file_and_no_other(runs_dir: Path, run_id: str) -> None:
    modules = loaded(runs_dir, "check", cli_message(runs_dir))
    commands = {name for name in modules if name.startswith("subagent_cli.cli.commands.")}
    assert commands == {"subagent_cli.cli.commands.check"}


def cli_message(runs_dir: Path) -> str:
    return next((runs_dir / ".index" / "questions").iterdir()).name

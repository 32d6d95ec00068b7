"""The page on dispatching in Python speaks of all that is public and shows what works, and the room is light."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from subagent_cli import dispatch
from tests.command import PATIENCE

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "dispatch-python.md"
HEAVY = ("pydantic", "click", "filelock", "rich", "asyncio", "subprocess", "subagent_cli.store", "subagent_cli.process")


def blocks(language: str) -> list[str]:
    parts = DOCUMENT.read_text(encoding="utf-8").split(f"```{language}\n")[1:]
    return [part.partition("```")[0] for part in parts]


def test_what_is_public_is_what_the_document_speaks_of() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in dispatch.__all__:
        assert hasattr(dispatch, name)
        assert f"`{name}" in text or name == "SubagentMode"
    for kind in (dispatch.Session, dispatch.EventBus, dispatch.SubagentToolsSection):
        for method in (name for name in vars(kind) if not name.startswith("_")):
            assert f"`{method}(" in text
    for table in (dispatch.DispatchSubagent, dispatch.DispatchSubagentResult, dispatch.ToolResult, dispatch.Tool):
        for field in fields(table):
            assert f"`{field.name}`" in text


def test_every_block_of_the_document_runs_and_prints_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A snapshot finds the classes of its items by their module, as in any program.
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for block in blocks("python"):
        exec(compile(block, str(DOCUMENT), "exec"), vars(module))
    assert capsys.readouterr().out == "".join(blocks("text"))
    assert len(blocks("python")) == 2


def test_a_program_that_dispatches_loads_nothing_heavy() -> None:
    # An editable install may lead elsewhere; these tests are of this checkout.
    program = f"import sys; sys.path.insert(0, {str(DOCUMENT.parents[1])!r}); import subagent_cli.dispatch\n"
    program += f"print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "[]\n"

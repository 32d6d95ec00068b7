"""A child of an agent that takes MCP servers gets ours, as itself, and nothing secret is written down for it."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from subagent_cli.services import attachment
from subagent_cli.services.agents import known
from subagent_cli.services.context import Context
from tests.cli.living import all_ended, over, program
from tests.command import Command

# A program that is told of a server as claude is, starts it with nothing but what it inherited, and uses it.
CLIENT = """
import json, subprocess, sys

server = json.loads(sys.argv[sys.argv.index("--mcp-config") + 1])["mcpServers"]["subagent"]
process = subprocess.Popen([server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def ask(id_, method, params):
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode() + b"\\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())["result"]

client = {"name": "claude", "version": "1"}
ask(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
tools = [tool["name"] for tool in ask(2, "tools/list", {})["tools"]]
ask(3, "tools/call", {"name": "submit_result", "arguments": {"result": " ".join(tools)}})
"""


def command_of(cli: Command, run_id: str) -> list[str]:
    words: list[str] = json.loads((Path(cli.runs_dir) / run_id / "run.json").read_text())["argv"]
    return words


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, which writes its words down."""
    (tmp_path / "client.py").write_text(CLIENT)
    client = shlex.join([sys.executable, str(tmp_path / "client.py")])
    made = program(tmp_path / "bin" / "claude", f'exec {client} "$@"')
    monkeypatch.setenv("PATH", f"{made.parent}:/usr/bin:/bin")
    return made


@pytest.mark.case("C2-11", "X13")
def test_an_agent_that_takes_servers_has_ours_as_the_worker_of_its_run(
    cli: Command, runs_dir: Path, claude: Path
) -> None:
    with all_ended(runs_dir):
        run_id = cli("run", "claude", "Do it").out.strip()
        [run] = over(cli, run_id).json["runs"]
        tools = run["result"].split()
        assert {"submit_result", "ask_parent"} <= set(tools)
        assert "spawn_agents" not in tools
        words = command_of(cli, run_id)
        assert "--allowedTools=mcp__subagent" in words
        config = json.loads(words[words.index("--mcp-config") + 1])
        assert config["mcpServers"]["subagent"]["args"] == ["mcp", "--worker"]
        assert "TOKEN" not in (runs_dir / run_id / "run.json").read_text()


def test_a_setting_keeps_it_away(cli: Command, runs_dir: Path, claude: Path) -> None:
    claude.write_text("#!/bin/sh\nexit 0\n")
    with all_ended(runs_dir):
        for way in ({"SUBAGENT_ATTACH_MCP": "off"}, {}):
            Path("subagent.toml").write_text("attach_mcp = true\n" if way else "attach_mcp = false\n")
            run_id = cli("run", "claude", "Do it", env=way).out.strip()
            over(cli, run_id)
            assert "--mcp-config" not in command_of(cli, run_id)


def test_neither_a_folder_of_that_name_nor_an_older_release_counts_as_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert attachment.installed()
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    assert not attachment.installed()


@pytest.mark.parametrize("name", ["claude", "codex", "qwen"])
def test_the_presets_that_take_servers_name_ours(desk: Context, name: str) -> None:
    assert any("{mcp_" in word for word in known(desk)[name].mcp)

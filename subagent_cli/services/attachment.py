"""Attaching the MCP server: how an agent's program is told of it, for a child that we start and for a client of the
user's own.

A child's server finds its identity in the environment that it inherits from the child, so no token stands in any of
this. It is told to be a worker's: should a program hand it no environment it does not start, and never acts as the
operator.
"""

import json
import os.path
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from subagent_cli.core.errors import InvalidInput
from subagent_cli.services import settings
from subagent_cli.services.context import Context, Payload

NAME = "subagent"
_WORKER = ["mcp", "--worker"]


def installed() -> bool:
    """Whether the extra is there. A folder of that name is not it, and neither is an older release."""
    found = [find_spec(name) for name in ("mcp", "mcp_types")]
    return all(spec is not None and spec.origin is not None for spec in found)


def wanted(context: Context) -> bool:
    """Whether children get the server."""
    return bool(context.settings["attach_mcp"].value) and installed()


def placeholders() -> Mapping[str, str]:
    """What stands for the server in the words of an agent's table."""
    program = _program()
    return {
        "mcp_config": json.dumps({"mcpServers": {NAME: {"command": program, "args": _WORKER}}}, ensure_ascii=False),
        "mcp_command": _quoted(program),
        "mcp_args": json.dumps(_WORKER),
    }


def snippet(context: Context, agent: str) -> str:
    """What a user's own client is to be told, in the form in which that client reads it."""
    if agent not in CLIENTS:
        raise InvalidInput(
            f"it is not known how {agent[:40]!r} is told of a server", code="unknown_client", candidates=tuple(CLIENTS)
        )
    return CLIENTS[agent](_program(), {"SUBAGENT_RUNS_DIR": os.path.abspath(context.runs.layout.root)})


def _program() -> str:
    folder = settings.own_folder()
    return os.path.join(folder, "subagent") if folder else "subagent"


def _json(table: Payload) -> str:
    return json.dumps(table, indent=2, ensure_ascii=False)


def _quoted(text: str) -> str:
    """What JSON writes between quotes, TOML reads, as long as no character is spelled in two halves."""
    return json.dumps(text, ensure_ascii=False)


def _usual(program: str, env: Mapping[str, str]) -> str:
    return _json({"mcpServers": {NAME: {"command": program, "args": ["mcp"], "env": dict(env)}}})


def _codex(program: str, env: Mapping[str, str]) -> str:
    variables = "".join(f"\n{name} = {_quoted(value)}" for name, value in env.items())
    return (
        f'[mcp_servers.{NAME}]\ncommand = {_quoted(program)}\nargs = ["mcp"]\ntool_timeout_sec = 600\n\n'
        f"[mcp_servers.{NAME}.env]{variables}"
    )


def _copilot(program: str, env: Mapping[str, str]) -> str:
    server = {"type": "local", "command": program, "args": ["mcp"], "env": dict(env), "tools": ["*"]}
    return _json({"mcpServers": {NAME: server}})


def _opencode(program: str, env: Mapping[str, str]) -> str:
    server = {"type": "local", "command": [program, "mcp"], "environment": dict(env), "enabled": True}
    return _json({"mcp": {NAME: server}})


CLIENTS: Mapping[str, Callable[[str, Mapping[str, str]], str]] = {
    "claude": _usual,
    "codex": _codex,
    "gemini": _usual,
    "qwen": _usual,
    "copilot": _copilot,
    "cursor-agent": _usual,
    "opencode": _opencode,
}
PLACES = {
    "claude": "`claude --mcp-config FILE`, or .mcp.json in the project",
    "codex": "~/.codex/config.toml",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "copilot": "~/.copilot/mcp-config.json",
    "cursor-agent": ".cursor/mcp.json",
    "opencode": "opencode.json",
}

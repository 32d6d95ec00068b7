"""Agents that can be run: those of the project, of the user, and the shipped ones."""

import os.path

from subagent_cli.process import agents
from subagent_cli.process.agents import Agent
from subagent_cli.services import settings
from subagent_cli.services.context import Context, Payload


def known(context: Context, first: str | None = None) -> dict[str, Agent]:
    """Every agent by name, as the nearest file defines it; or the first one, where it is still there."""
    files = settings.agent_files(context.settings["agents"])
    return agents.load([first, *files] if first and os.path.isfile(first) else files)


def listed(context: Context) -> list[Payload]:
    """Every agent and where its program lies; those that are installed first."""
    path = settings.program_path()
    rows = [_row(agent, agents.installed(agent, path)) for agent in known(context).values()]
    return sorted(rows, key=lambda row: (row["installed"] is None, row["name"]))


def _row(agent: Agent, installed: str | None) -> Payload:
    return {
        "name": agent.name,
        "command": list(agent.command),
        "prompt": agent.prompt,
        "resume": bool(agent.resume),
        "session": agent.session,
        "output": agent.output,
        "installed": installed,
        "source": agent.source,
    }

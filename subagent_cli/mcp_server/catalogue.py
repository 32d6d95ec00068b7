"""Which tools there are, and which of them are offered to whom.

The operator has a parent's tools. The worker of a run has the same, without those that start agents unless its tree
may go deeper, and those that hand in an outcome. What is not offered and is called all the same is refused by the
service behind it.
"""

from collections.abc import Iterator
from contextlib import suppress

from subagent_cli.core.errors import InvalidInput
from subagent_cli.mcp_server import launches, messages, outcomes, questions, runs, waiting
from subagent_cli.mcp_server.tool import PARENTS, WORKERS, Tool
from subagent_cli.services import agents, identity
from subagent_cli.services.context import Context

TOOLS = (
    *launches.TOOLS,
    *runs.TOOLS,
    *questions.TOOLS,
    *waiting.TOOLS,
    *outcomes.TOOLS,
    *messages.TOOLS,
)
_BY_NAME = {tool.name: tool for tool in TOOLS}


def offered(context: Context) -> list[Tool]:
    """The tools of whoever calls."""
    caller = identity.whoami(context)
    works = caller["role"] == "worker"
    starts = not works or caller["depth"] < caller["maxDepth"]
    return [
        tool
        for tool in (*(_running(context) if starts else ()), *TOOLS)
        if (starts or tool.offered != PARENTS) and (works or tool.offered != WORKERS)
    ]


def named(name: str) -> Tool | None:
    """A tool by its name, whether it is offered or not. Any agent may be asked for; the service knows which there
    are."""
    if name not in _BY_NAME and name.startswith(launches.RUN_PREFIX):
        return launches.running(name.removeprefix(launches.RUN_PREFIX))
    return _BY_NAME.get(name)


def _running(context: Context) -> Iterator[Tool]:
    # What is wrong with a file of agents is told to whoever starts one; it takes no other tool away.
    with suppress(InvalidInput):
        for agent in agents.listed(context):
            if agent["installed"]:
                yield launches.running(agent["name"])

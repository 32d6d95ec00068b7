"""`subagent mcp`."""

import sys
from typing import Any

import click

from subagent_cli.cli.output import print_talk
from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.core.errors import Denied, InvalidInput, SubagentError
from subagent_cli.services import attachment, settings

_HINT = "install subagent with its extra: pipx install '.[mcp]' in a clone of it"


class Serving(click.Command):
    """Its standard output belongs to a protocol, so what goes wrong is told on standard error in any form."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SubagentError as error:
            if ctx.params.get("client"):
                raise
            from subagent_cli.cli.errors import exit_code_of, text_of

            print_talk(text_of(error))
            ctx.exit(exit_code_of(error))


@verb(
    "mcp",
    example="subagent mcp --print-config claude > mcp.json && claude --mcp-config mcp.json\n"
    "subagent mcp --print-config codex >> ~/.codex/config.toml",
    cls=Serving,
)
@click.option("--print-config", "client", metavar="AGENT", help="Print what AGENT is to be told of this server.")
@click.option("--worker", is_flag=True, help="Serve the worker of a run, or nobody (always so below an agent).")
def command(context: Context, client: str | None, worker: bool) -> Answer:
    """Serve the same verbs as MCP tools.

    For agents that speak MCP and have no shell: on standard input and output, for as long as the client is there. In
    the environment of a run it serves that run's worker, else the operator. Needs the extra `mcp`.
    """
    if client is not None:
        printed = attachment.snippet(context, client)
        talk = f"for {attachment.PLACES[client]}"
        missing = [] if attachment.installed() else [f"the server is not installed: {_HINT}"]
        return Answer({"agent": client, "config": printed}, printed, talk=talk, warnings=missing)
    if not attachment.installed():
        raise InvalidInput("the MCP server is not installed", code="not_installed", hint=_HINT)
    if (worker or settings.within_a_run()) and context.caller.token is None:
        raise Denied(
            "no run is named in the environment whose worker could be served",
            code="no_identity",
            hint="the program that starts the server hands on SUBAGENT_RUN_ID, SUBAGENT_RUNS_DIR and SUBAGENT_TOKEN",
        )
    if sys.stdin is None or sys.stdout is None:
        raise InvalidInput("standard input and output are needed, and one of them is closed", code="no_input")
    if sys.stdin.isatty():
        print_talk("waiting for an MCP client; subagent mcp --print-config AGENT prints what one is told")
    from subagent_cli.mcp_server.server import serve

    serve(context)
    return Answer(None, stream=())

"""The entry point: finds the command, loads only its file, and turns every outcome into an exit code."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from subagent_cli import __version__

# The help page is printed from this table so that it need not load every command; a test holds it to their own help.
SECTIONS: dict[str, dict[str, str]] = {
    "For the parent": {
        "run": "Start an agent on a task.",
        "create": "Make a run whose process you start yourself.",
        "status": "Show a run, or all active runs; picks up replies.",
        "pending": "List the questions that wait for an answer.",
        "reply": "Answer a question.",
        "spawn": "Start several children at once, as a group.",
        "wait": "Wait until runs have ended, or one of them asks.",
        "cancel": "End runs and their processes.",
        "resume": "Go on with a run that has ended.",
        "retry": "Try a run that has ended once more.",
        "dispatch": "Have a task done by a throwaway child.",
        "list": "List runs, newest first.",
        "tree": "Show runs below the runs that made them.",
        "result": "Print the outcome of a finished run.",
        "logs": "Print the log of a run.",
        "events": "Print what happened, one event a line.",
    },
    "For the worker": {
        "ask": "Ask the parent a question.",
        "check": "Look whether a question has been answered.",
        "tell": "Leave a note for the parent.",
        "update": "Report where the run stands.",
        "submit": "Hand in the outcome of your run, once and for good.",
    },
    "Between agents": {
        "send": "Send a message to an agent.",
        "inbox": "List the messages that have come for an agent.",
        "message": "Store, print and list typed messages.",
        "schemas": "List the schemas of messages, or print one.",
        "grant": "Give an agent a capability on another.",
        "revoke": "Take a capability back that you gave.",
        "grants": "List who may do what with which run.",
        "wake": "Start an agent again for messages that it has not answered.",
    },
    "For the house": {
        "sweep": "Expire old questions and tidy up; for cron.",
        "doctor": "Check every run, and mend what can be mended.",
        "clean": "Delete finished runs that are old.",
        "export": "Put runs into one file.",
        "import": "Take runs out of such a file.",
        "link": "Let the TypeScript server see runs.",
    },
    "About subagent": {
        "agents": "List the agents that can be run.",
        "whoami": "Say as whom you are calling.",
        "config": "Show every setting and where it comes from.",
        "schema": "Print JSON Schemas or TypeScript types of the files.",
        "mcp": "Serve the same verbs as MCP tools.",
        "completion": "Print the completion script for a shell.",
    },
}
COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}


class Verbs(click.Group):
    """Commands that are imported when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"subagent_cli.cli.commands.{name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, n=2)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"No such command {args[0][:40]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--runs-dir", metavar="DIR", help="Where the runs lie.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Any setting of `subagent config`.")
@click.version_option(__version__, "-V", "--version", message="subagent %(version)s")
@click.pass_context
def cli(ctx: click.Context, runs_dir: str | None, as_json: bool, pairs: Sequence[str]) -> None:
    """Start child agents, answer their questions while they run, collect their results.

    A run is a folder; RUN is its id, the beginning or end of it, its name, or @last. Text arguments take - for
    standard input. Every command takes --json.

    \b
    run=$(subagent run claude "Tidy the notes")
    subagent wait $run                 # it has ended, or asks something
    subagent reply $run "Keep them"
    subagent result $run
    """
    ctx.obj = {**(ctx.obj or {}), **_settings(pairs)}
    if runs_dir is not None:
        ctx.obj["runs_dir"] = runs_dir
    if as_json:
        ctx.obj["output"] = "json"


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    from subagent_cli.services.settings import BY_NAME

    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in BY_NAME:
            raise click.UsageError(f"--set takes NAME=VALUE with one of: {', '.join(BY_NAME)}")
        given[name] = value
    return given


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and ends the process with its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(words, prog_name="subagent", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BaseException as error:
        from subagent_cli.cli.errors import exit_code_of, report

        report(error, words)
        code = exit_code_of(error)
    sys.exit(code if isinstance(code, int) else 0)

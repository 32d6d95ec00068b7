"""`subagent result`."""

from typing import Any

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.services import outcomes

_EXIT = {"error": 10, "timed_out": 10, "lost": 10, "cancelled": 11}


@verb("result", example="subagent result @last")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of an earlier attempt (default: the last).")
def command(context: Context, run: str | None, attempt: int | None) -> Answer:
    """Print the outcome of a finished run.

    Exit code 0 if it succeeded, 10 if it ended in error, 11 if it was cancelled, 4 if it has not ended.
    """
    return printed(outcomes.result(context, run, attempt))


def printed(outcome: dict[str, Any]) -> Answer:
    """The outcome as its text alone, and as an exit code."""
    text = outcome["error"] if "error" in outcome else outcome["result"]
    return Answer(outcome, text or "", code=exit_code(outcome["state"]))


def exit_code(state: str) -> int:
    return _EXIT.get(state, 0)

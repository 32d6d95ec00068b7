"""`subagent result`."""

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.services import runs

_EXIT = {"error": 10, "timed_out": 10, "lost": 10, "cancelled": 11}


@verb("result", example="subagent result @last")
@click.argument("run", required=False, shell_complete=complete_run)
def command(context: Context, run: str | None) -> Answer:
    """Print the outcome of a finished run.

    Exit code 0 if it succeeded, 10 if it ended in error, 11 if it was cancelled, 4 if it has not ended.
    """
    outcome = runs.result(context, run)
    return Answer(outcome, outcome["summary"] or "", code=_EXIT.get(outcome["state"], 0))

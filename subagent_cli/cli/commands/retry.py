"""`subagent retry`."""

from typing import Any

import click

from subagent_cli.cli.commands.run import start, started, starting
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.services import resumption


@verb("retry", example="subagent retry @last --wait")
@click.argument("run", shell_complete=complete_run)
@click.option("--fresh", is_flag=True, help="From the beginning: no session, no word of what happened before.")
@starting
def command(context: Context, run: str, fresh: bool, wait: bool, follow: bool, key: str | None, **how: Any) -> Answer:
    """Try a run that has ended once more.

    As `subagent resume`, but nobody has to say anything: the agent is told how the attempt before ended and does the
    task again. Variables are not kept: give --env again.
    """
    made = resumption.resume(context, run, None, fresh=fresh, key=key, start=start(**how))
    return started(context, made, wait, follow)

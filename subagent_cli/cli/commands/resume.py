"""`subagent resume`."""

from typing import Any

import click

from subagent_cli.cli.commands.run import start, started, starting
from subagent_cli.cli.verb import Answer, Context, complete_run, text_argument, verb
from subagent_cli.services import resumption


@verb("resume", example='subagent resume notes "Now the drafts too" --wait')
@click.argument("run", shell_complete=complete_run)
@click.argument("text", type=text_argument)
@starting
def command(context: Context, run: str, text: str, wait: bool, follow: bool, key: str | None, **how: Any) -> Answer:
    """Go on with a run that has ended.

    Starts its agent again, as the next attempt of the same run, with what you say now. An agent that can goes on with
    its own session; any other is told the task, what was asked and answered, and how it ended. The old outcome stays:
    `subagent result RUN --attempt N`. A run that has not ended is refused.
    Variables are not kept: give --env again.
    """
    return started(context, resumption.resume(context, run, text, key=key, start=start(**how)), wait, follow)

"""`subagent wake`."""

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.services import deliveries


@verb("wake", example="subagent wake critic")
@click.argument("run", shell_complete=complete_run)
def command(context: Context, run: str) -> Answer:
    """Start an agent again for messages that it has not answered.

    `send` does this by itself, and so does the end of a run that leaves messages unanswered; this is for after a
    restart of the machine. An agent is started at most max_wakes times for one message (`subagent config`).
    """
    found = deliveries.wake(context, run)
    waiting = len(found["unreplied"])
    if found["attempt"]:
        talk = f"run {short(found['runId'])} was started (attempt {found['attempt']}) for {waiting} messages"
    else:
        talk = "it has not ended; it finds them in its inbox" if waiting else "no message wants a reply"
    return Answer(found, talk=talk)

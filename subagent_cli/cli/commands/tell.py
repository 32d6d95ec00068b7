"""`subagent tell`."""

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, text_argument, verb
from subagent_cli.services import questions


@verb("tell", example='subagent tell "Half of the notes are done"')
@click.argument("text", type=text_argument)
@click.option("--run", metavar="RUN", shell_complete=complete_run, help="The telling run (default: SUBAGENT_RUN_ID).")
def command(context: Context, text: str, run: str | None) -> Answer:
    """Leave a note for the parent.

    Nobody has to answer it; `subagent status` shows the latest one.
    """
    told = questions.tell(context, text, run=run)
    return Answer(told, talk="noted")

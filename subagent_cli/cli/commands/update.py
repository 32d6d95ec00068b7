"""`subagent update`."""

import click

from subagent_cli.cli.output import did_you_mean, indented
from subagent_cli.cli.verb import Answer, Context, text_argument, verb
from subagent_cli.core.errors import RunNotFound
from subagent_cli.core.transition import REPORTS
from subagent_cli.services import runs


@verb("update", example='subagent update success --summary "Notes tidied, 3 deleted"')
@click.argument("words", nargs=-1, required=True, metavar="[RUN] STATUS")
@click.option("--summary", type=text_argument, metavar="TEXT", help="What came of it.")
def command(context: Context, words: tuple[str, ...], summary: str | None) -> Answer:
    """Report where the run stands.

    STATUS is running, success, completed or error. Success, completed and error end the run for good. RUN defaults
    to the worker's own (SUBAGENT_RUN_ID).
    """
    if len(words) > 2:
        raise click.UsageError("update takes [RUN] STATUS; a summary goes behind --summary")
    if len(words) == 2 and words[0] in REPORTS and words[1] not in REPORTS:
        raise click.UsageError("update takes [RUN] STATUS in this order")
    run, status = (words[0], words[1]) if len(words) == 2 else (None, words[0])
    try:
        document = runs.update(context, run, status, summary)
    except RunNotFound as error:
        missing = runs.not_found(context, error)
        text = f"Status: not_found\n{missing['message']}: {missing['runId']}"
        return Answer(missing, text, talk=did_you_mean(error), code=3)
    text = f"Status: {document['status']}"
    if document["summary"] is not None:
        text += f"\nSummary: {indented(document['summary'])}"
    return Answer(document, text)

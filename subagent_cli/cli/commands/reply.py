"""`subagent reply`."""

import click

from subagent_cli.cli.verb import Answer, Context, key_option, text_argument, verb
from subagent_cli.core import command as wanted
from subagent_cli.core.ids import short
from subagent_cli.services import questions

_FORMS = "reply takes QUESTION ANSWER, RUN ANSWER or RUN QUESTION ANSWER"


@verb("reply", example='subagent reply 3f2a9c1d "Use sqlite"\nsubagent reply @last 2      # the second option')
@click.argument("words", nargs=-1, required=True, metavar="QUESTION|RUN|RUN QUESTION ANSWER")
@click.option("--oldest", is_flag=True, help="With RUN: the oldest waiting question.")
@click.option("--latest", is_flag=True, help="With RUN: the latest one.")
@click.option("--all", "everything", is_flag=True, help="With RUN: every waiting question.")
@key_option("replies once")
def command(
    context: Context, words: tuple[str, ...], oldest: bool, latest: bool, everything: bool, key: str | None
) -> Answer:
    """Answer a question.

    Named by the question, by its run (if only one waits there), or by both. If the question has options, the answer
    may be the number of one. The first answer counts.
    """
    if not 2 <= len(words) <= 3:
        hint = "the answer is missing" if len(words) == 1 else "put the answer in quotes"
        raise click.UsageError(f"{_FORMS}: {hint}")
    if oldest + latest + everything > 1:
        raise click.UsageError("--oldest, --latest and --all exclude each other")
    which = wanted.OLDEST if oldest else wanted.LATEST if latest else wanted.ALL if everything else wanted.ONLY
    answer = text_argument(words[-1])
    message = words[1] if len(words) == 3 else None
    done = questions.reply(context, words[0], answer, message=message, which=which, key=key)
    answered = ", ".join(map(short, done["messageIds"]))
    return Answer(done, talk=f"{done['message']} ({answered})")

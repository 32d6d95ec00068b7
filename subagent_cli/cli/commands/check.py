"""`subagent check`."""

from typing import Any

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, verb, with_wait
from subagent_cli.core.errors import NotFound
from subagent_cli.services import questions

_SILENCE = {
    "PENDING": "pending: no answer yet",
    "EXPIRED": "expired: nobody answered in time; go on without an answer",
}


@verb("check", example="subagent check 3f2a9c1d\nsubagent check 3f2a9c1d --wait --timeout 10m")
@click.argument("message", metavar="QUESTION")
@click.option("--run", metavar="RUN", shell_complete=complete_run, help="The run that asked; found by itself.")
@click.option("--peek", is_flag=True, help="Only look: the answer stays unread.")
@click.option("--wait", is_flag=True, help="Wait for the answer.")
@click.option("--timeout", metavar="TIME", help="With --wait: for so long at most (default: 5m).")
def command(context: Context, message: str, run: str | None, peek: bool, wait: bool, timeout: str | None) -> Answer:
    """Look whether a question has been answered.

    Prints the answer, and nothing while there is none. An answer that is printed counts as delivered; it can be
    read again. With --wait it returns when the answer is there, exits with 1 when the question expires, and with
    124 when nobody has answered in time; the question then still waits.
    """
    limit = with_wait(wait, timeout)
    try:
        if wait:
            from subagent_cli.services import waiting

            return answered(waiting.for_answer(context, message, run=run, timeout=limit, peek=peek))
        found = questions.check(context, message, run=run, peek=peek)
    except NotFound as error:
        if error.code not in ("message_not_found", "run_not_found"):
            raise
        return Answer(questions.not_found(message, error), talk=f"error: {error.message}", code=3)
    return _shown(found)


def answered(found: dict[str, Any]) -> Answer:
    """What a wait for an answer ends with: an answer, or the news that there will be none."""
    return _shown(found)._replace(code=1 if found["state"] == "EXPIRED" else 0)


def _shown(found: dict[str, Any]) -> Answer:
    return Answer(found, found["answer"] or "", talk=_SILENCE.get(found["state"], ""))

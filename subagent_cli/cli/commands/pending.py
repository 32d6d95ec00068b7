"""`subagent pending`."""

from typing import Any

import click

from subagent_cli.cli.output import age, did_you_mean, indented
from subagent_cli.cli.verb import Answer, Context, complete_run, verb, with_wait
from subagent_cli.core.errors import RunNotFound
from subagent_cli.core.ids import short
from subagent_cli.core.moment import Moment
from subagent_cli.services import questions


@verb("pending", example="subagent pending\nsubagent pending --wait")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--wait", is_flag=True, help="If there is none, wait for one.")
@click.option("--timeout", metavar="TIME", help="With --wait: for so long at most (default: 5m).")
def command(context: Context, run: str | None, wait: bool, timeout: str | None) -> Answer:
    """List the questions that wait for an answer.

    Of all runs, or of one; the oldest first, each with the command that answers it. With --wait it exits with 124
    if no question came in time, and with 4 if RUN has ended and none will come.
    """
    limit = with_wait(wait, timeout)
    try:
        if wait:
            from subagent_cli.services.waiting import for_question

            waiting, faults = for_question(context, run, limit)
        else:
            waiting, faults = questions.pending(context, run)
    except RunNotFound as error:
        return Answer([], talk=f"error: {error.message}\n{did_you_mean(error)}".strip(), code=3)
    now = context.clock.now()
    return Answer(
        waiting,
        "\n".join(shown(item, now) for item in waiting),
        talk="" if waiting else "no question is waiting",
        code=8 if faults else 0,
        warnings=[fault.message for fault in faults],
    )


def shown(item: dict[str, Any], now: Moment) -> str:
    """A question that waits: who asks what, and the command that answers it."""
    who = f"{item['agent_name'] or 'run'} {short(item['run_id'])}"
    lines = [f"{who} asks ({age(item['timestamp'], now)} ago): {indented(item['question'])}"]
    lines += [f"  {number}. {indented(text)}" for number, text in enumerate(item.get("options", ()), 1)]
    lines.append(f"  {item['reply']}")
    return "\n".join(lines)

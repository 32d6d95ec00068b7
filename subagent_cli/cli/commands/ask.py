"""`subagent ask`."""

import click

from subagent_cli.cli.output import print_talk
from subagent_cli.cli.verb import Answer, Context, complete_run, key_option, text_argument, verb, with_wait
from subagent_cli.core.moment import duration
from subagent_cli.services import questions


@verb("ask", example='subagent ask "Which database?" --option sqlite --option postgres --deadline 10m --default 1')
@click.argument("question", type=text_argument)
@click.option("--run", metavar="RUN", shell_complete=complete_run, help="The asking run (default: SUBAGENT_RUN_ID).")
@click.option("--option", "options", multiple=True, metavar="TEXT", help="A possible answer; two to four of them.")
@click.option("--default", metavar="TEXT", help="The answer if nobody gives one in time; may be an option's number.")
@click.option("--deadline", metavar="TIME", help="When it is too late: 90, 90s, 5m, 2h (default: 24h).")
@click.option("--single", is_flag=True, help="Refuse while another question of the run is open.")
@click.option("--wait", is_flag=True, help="Wait for the answer and print it instead of the id.")
@click.option("--timeout", metavar="TIME", help="With --wait: for so long at most (default: 5m).")
@key_option("asks once")
def command(
    context: Context,
    question: str,
    run: str | None,
    options: tuple[str, ...],
    default: str | None,
    deadline: str | None,
    single: bool,
    wait: bool,
    timeout: str | None,
    key: str | None,
) -> Answer:
    """Ask the parent a question.

    Prints the question's id and returns at once; `subagent check ID` picks the answer up. With --wait it prints the
    answer instead, exits with 1 if the question expires, and with 124 if nobody has answered in time (the question
    then still waits).
    """
    limit, patience = None if deadline is None else duration(deadline), with_wait(wait, timeout)
    asked = questions.ask(
        context, question, run=run, options=options, default=default, deadline=limit, single=single, key=key
    )
    if wait:
        from subagent_cli.cli.commands.check import answered
        from subagent_cli.services import waiting

        try:
            return answered(waiting.for_answer(context, asked["messageId"], run=asked["runId"], timeout=patience))
        except KeyboardInterrupt:
            # The question waits on, and nobody else says which it is.
            print_talk(asked["instructions"])
            raise
    return Answer(asked, asked["messageId"], talk=asked["instructions"])

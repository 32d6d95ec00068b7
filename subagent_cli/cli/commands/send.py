"""`subagent send`."""

import click

from subagent_cli.cli.commands import message as messages_
from subagent_cli.cli.output import print_talk
from subagent_cli.cli.verb import Answer, Context, complete_run, verb, with_wait
from subagent_cli.core.ids import short
from subagent_cli.services import deliveries


@verb(
    "send",
    example='subagent send critic --text "Look at the parser" --wait\n'
    "subagent send grader 3f2a9c1d      # a message that is there already",
)
@click.argument("run", shell_complete=complete_run)
@click.argument("message", required=False)
@messages_.with_content
@click.option("--wait", is_flag=True, help="Wait for the reply and print it.")
@click.option("--timeout", metavar="TIME", help="With --wait: for so long at most (default: 5m).")
def command(
    context: Context,
    run: str,
    message: str | None,
    text: str | None,
    schema: str | None,
    content: str | None,
    in_reply_to: str | None,
    key: str | None,
    wait: bool,
    timeout: str | None,
) -> Answer:
    """Send a message to an agent.

    MESSAGE is the id of one that is stored, or its content is given here. The agent is told its id, who sent it, and
    how to read and answer it. One that has ended is started again for it; one that is running finds it in its inbox,
    and is started again if it ends without a reply. An agent may send where it holds send_messages.
    """
    until = with_wait(wait, timeout)
    schema, content = messages_.content_of(text, schema, content)
    sent = deliveries.send(context, run, message, schema=schema, content=content, in_reply_to=in_reply_to, key=key)
    if wait:
        from subagent_cli.services import messages

        # Whoever waits is to know at once that there may be nobody to answer.
        for warning in sent["warnings"]:
            print_talk(f"warning: {warning}")
        replies, faults = messages.for_reply(context, sent["message_id"], timeout=until)
        if not replies:
            raise faults[0]
        return Answer(replies[0], messages_.shown(replies[0]), talk=messages_.about(replies[0]))
    started = f"; it was started for it (attempt {sent['attempt']})" if sent["attempt"] else ""
    return Answer(sent, sent["message_id"], talk=f"delivered to {short(sent['agent_id'])}{started}")

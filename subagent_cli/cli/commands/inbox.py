"""`subagent inbox`."""

from typing import Any

import click

from subagent_cli.cli.output import age
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.core.moment import Moment
from subagent_cli.services import inboxes


@verb("inbox", example="subagent inbox --unreplied")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--unreplied", is_flag=True, help="Only those that still want a reply.")
def command(context: Context, run: str | None, unreplied: bool) -> Answer:
    """List the messages that have come for an agent.

    Oldest first, each with the commands that read and answer it. For its worker the run is known.
    """
    items = inboxes.listed(context, run, unreplied=unreplied)
    now = context.clock.now()
    return Answer(items, "\n".join(_shown(item, now) for item in items), talk="" if items else "no messages")


def _shown(item: dict[str, Any], now: Moment) -> str:
    """A message that came: from whom, and what to do about it."""
    state = "replied" if item["replied"] else "wants a reply" if item["wants_reply"] else "is a reply to yours"
    lines = [
        f"{short(item['message_id'])} from {short(item['sender'])} ({age(item['delivered_at'], now)} ago): {state}"
    ]
    lines.append(f"  {item['read']}")
    if item["reply"] and not item["replied"]:
        lines.append(f"  {item['reply']}")
    return "\n".join(lines)

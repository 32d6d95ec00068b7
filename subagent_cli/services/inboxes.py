"""Inboxes: the messages that have come for an agent, and which of them it has not replied to.

A delivery is an event in the journal of the run, and names the message without its content. Whether it was replied to
follows from the messages that its agent has written.
"""

from subagent_cli.core import command as wanted
from subagent_cli.core.delivery import Delivery
from subagent_cli.core.errors import NotFound, SubagentError
from subagent_cli.core.grant import SEND
from subagent_cli.core.ids import short
from subagent_cli.core.run import CREATED, Run
from subagent_cli.services import access, addresses
from subagent_cli.services.context import Context, Payload
from subagent_cli.store.messages import Message, Messages
from subagent_cli.store.runs import Change


def listed(context: Context, run: str | None = None, *, unreplied: bool = False) -> list[Payload]:
    """What has come for an agent, oldest first; with `unreplied`, what still wants a reply."""
    run_id = addresses.run(context, run)
    found = context.runs.read(run_id, context.clock.now())
    items = [_shown(context, found, delivery) for delivery in found.inbox.values()]
    return [item for item in items if not unreplied or (item["wants_reply"] and not item["replied"])]


def deliver(context: Context, run_id: str, message: Message) -> Change:
    """Puts a message into the inbox of a run; a second time is no harm."""
    order = _order(context, message, _message_received(context, message))
    # Nobody has to answer himself.
    order = order._replace(notice=message["created_by_agent_id"] == run_id)
    return context.runs.change(run_id, order, context.clock.now)


def notify(context: Context, message: Message, original: Message) -> list[str]:
    """Tells the author of a message that a reply to it is there, if it is idle: who runs looks for itself. Gives
    warnings, since the reply is there whatever becomes of this."""
    author = original["created_by_agent_id"]
    if author is None or author == message["created_by_agent_id"]:
        return []
    try:
        if not _was_asked(context, original) and not access.may(context, SEND, author):
            # Who may only read somebody's messages cannot speak to him by answering them.
            return []
        run = context.runs.read(author, context.clock.now())
        if run.over or run.phase == CREATED:
            order = _order(context, message, _reply_received(message))._replace(notice=True, owed=True)
            return list(context.runs.change(author, order, context.clock.now).warnings)
    except NotFound:
        return []
    except SubagentError as error:
        return [f"the author of the message could not be told: {error.message}"]
    return []


def _was_asked(context: Context, original: Message) -> bool:
    caller = access.agent(context)
    return caller is None or original["id"] in context.runs.read(caller, context.clock.now()).inbox


def untold(context: Context, run: Run) -> list[Delivery]:
    """What a new attempt has to be told: replies that it has not heard of, and messages that want a reply, unless it
    was started for them in vain too often."""
    limit: int = context.settings["max_wakes"].value
    return [
        delivery
        for delivery in run.inbox.values()
        if (not delivery.told if delivery.notice else delivery.told < limit and not _replied(context, run, delivery))
    ]


def unreplied(context: Context, run: Run) -> list[Delivery]:
    """The messages that want a reply of this agent and have none."""
    return [delivery for delivery in run.inbox.values() if not delivery.notice and not _replied(context, run, delivery)]


def _replied(context: Context, run: Run, delivery: Delivery) -> bool:
    store = Messages(context.runs.layout)
    for reply_id in store.replies(delivery.message_id):
        try:
            reply = store.read(reply_id)
        except SubagentError:
            # One that was tampered with is no reply.
            continue
        if reply and (reply["in_reply_to"], reply["created_by_agent_id"]) == (delivery.message_id, run.id):
            return True
    return False


def _shown(context: Context, run: Run, delivery: Delivery) -> Payload:
    message_id = short(delivery.message_id)
    wants = not delivery.notice
    return {
        "message_id": delivery.message_id,
        "sender": delivery.sender,
        "delivered_at": delivery.at,
        "in_reply_to": delivery.in_reply_to,
        "wants_reply": wants,
        "replied": wants and _replied(context, run, delivery),
        "told": delivery.told,
        "read": context.spelled("message", "show", message_id),
        "reply": context.spelled("message", "put", "--in-reply-to", message_id, "--text", "REPLY") if wants else None,
    }


def _order(context: Context, message: Message, text: str) -> wanted.Deliver:
    return wanted.Deliver(access.agent(context), message["id"], text, message["sha256"], message["in_reply_to"] or None)


def _message_received(context: Context, message: Message) -> str:
    original = message["in_reply_to"]
    return (
        "Message received\n"
        f"ID: {message['id']}\n"
        f"From: {access.agent(context) or 'the operator'}\n"
        + (f"In reply to: {original}\n" if original else "")
        + f"Read: subagent message show {message['id']}\n"
        f'Reply: subagent message put --in-reply-to {message["id"]} --text "REPLY"'
        " (or --schema SCHEMA --content JSON; subagent schemas lists them)\n"
    )


def _reply_received(message: Message) -> str:
    return (
        "Reply received\n"
        f"Your message: {message['in_reply_to']}\n"
        f"Reply ID: {message['id']}\n"
        f"Read: subagent message show {message['id']}\n"
    )

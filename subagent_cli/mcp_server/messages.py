"""Typed messages between agents, and who may do what with whom."""

import json

from subagent_cli.core.grant import CAPABILITIES
from subagent_cli.mcp_server.tool import (
    ADDS,
    KEY,
    LOOKS,
    OWN_RUN,
    RUN,
    SETTLES,
    TABLE,
    TABLES,
    TEXT,
    YES_OR_NO,
    Call,
    Said,
    Tool,
    count,
    flag,
    gives,
    length,
    one_of,
    table,
    text,
)
from subagent_cli.services import deliveries, grants, inboxes, messages

CATALOGUE = "resource://messages/schemas"


def upsert_message(call: Call) -> Said:
    """Store a message and get its id. Its content is validated first, and nobody can change it afterwards."""
    content = json.dumps(call.get("content"))
    made = messages.put(
        call.context, call.get("schema_type"), content, in_reply_to=call.get("in_reply_to"), key=call.get("key")
    )
    return Said(made, made["message_id"])


def send_message(call: Call) -> Said:
    """Deliver a message to an agent: a stored one by its id, or a text. An agent that has ended is started again for
    it; one that is running finds it in its inbox."""
    said = call.get("text")
    new = (messages.PLAINTEXT, messages.as_content(said)) if said is not None else (None, None)
    sent = deliveries.send(
        call.context,
        call.get("agent_id"),
        call.get("message_id"),
        schema=new[0],
        content=new[1],
        in_reply_to=call.get("in_reply_to"),
        key=call.get("key"),
    )
    return Said(sent, f"delivered: {sent['message_id']}")


def show_message(call: Call) -> Said:
    """Read a message by its id. One that somebody has tampered with is not believed."""
    found = messages.show(call.context, call.get("message_id"))
    return Said(dict(found))


def list_messages(call: Call) -> Said:
    """List the messages that you may read, oldest first; with in_reply_to the replies to one of them, for which
    timeout waits."""
    original, schema, limit = call.get("in_reply_to"), call.get("schema_type"), call.length("timeout")
    if original is not None and limit is not None:
        found, faults = messages.for_reply(
            call.context, original, schema=schema, timeout=limit, stop=call.stopped.is_set
        )
    else:
        found, faults = messages.listed(call.context, in_reply_to=original, schema=schema, limit=call.get("limit"))
    return Said({"messages": list(map(dict, found)), "warnings": [fault.message for fault in faults]})


def inbox(call: Call) -> Said:
    """List the messages that have come for an agent, oldest first."""
    return Said({"messages": inboxes.listed(call.context, call.get("runId"), unreplied=call.get("unreplied", False))})


def grant_access(call: Call) -> Said:
    """Give an agent a capability on another. Twice is no harm."""
    done = grants.grant(
        call.context,
        call.get("target_agent_id"),
        call.get("grantee_agent_id"),
        call.get("capability"),
        lasts=call.length("expires"),
    )
    return Said(done, f"{done['grantee']} has {done['capability']} on {done['target']}")


_ID = text("The id of the message.")
_REPLIES_TO = text("The message that this one answers.")
_SCHEMA = one_of(messages.NAMES, f"Which form its content has; {CATALOGUE} shows them.")

TOOLS = (
    Tool(
        "upsert_message",
        upsert_message,
        ADDS,
        {
            "schema_type": _SCHEMA,
            "content": table("What it says, in the form of its schema."),
            "in_reply_to": _REPLIES_TO,
            "key": KEY,
        },
        gives(message_id=TEXT),
        needs=("schema_type", "content"),
    ),
    Tool(
        "send_message",
        send_message,
        ADDS,
        {
            "agent_id": text("To whom."),
            "message_id": text("A message that is stored."),
            "text": text("Or what to say; it is stored as a plaintext message."),
            "in_reply_to": text("With text: the message that it answers."),
            "key": KEY,
        },
        gives(status=TEXT, message_id=TEXT, agent_id=TEXT),
        needs=("agent_id",),
        also={"runId": "agent_id"},
    ),
    Tool(
        "show_message",
        show_message,
        LOOKS,
        {"message_id": _ID},
        gives(id=TEXT, schema_type=TEXT, content=TABLE),
        needs=("message_id",),
        also={"messageId": "message_id"},
    ),
    Tool(
        "list_messages",
        list_messages,
        LOOKS,
        {
            "in_reply_to": text("Only replies to this one."),
            "schema_type": _SCHEMA,
            "limit": count("Only the newest so many."),
            "timeout": length("With in_reply_to: wait so long for a reply."),
        },
        gives(messages=TABLES),
        patient=True,
    ),
    Tool(
        "inbox",
        inbox,
        LOOKS,
        {"runId": OWN_RUN, "unreplied": flag("Only those that still want a reply.")},
        gives(messages=TABLES),
        also={"run_id": "runId"},
    ),
    Tool(
        "grant_access",
        grant_access,
        SETTLES,
        {
            "target_agent_id": RUN,
            "grantee_agent_id": text("Who gets it."),
            "capability": one_of(CAPABILITIES, "What it may do with the target."),
            "expires": length("For so long (default: until it is revoked)."),
        },
        gives(success=YES_OR_NO),
        needs=("target_agent_id", "grantee_agent_id", "capability"),
        also={"target": "target_agent_id", "grantee": "grantee_agent_id"},
    ),
)

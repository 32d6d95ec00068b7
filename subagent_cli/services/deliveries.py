"""Deliveries: a message is sent to an agent, and an agent that is idle is started to read it.

The message is delivered when this returns, whether its target runs or not. A running agent is not started twice: its
keeper looks into its inbox when it ends.
"""

import time

from subagent_cli.core.errors import InvalidInput, Refused, SubagentError
from subagent_cli.core.grant import READ, SEND
from subagent_cli.core.ids import short
from subagent_cli.services import access, addresses, inboxes, messages, resumption
from subagent_cli.services.context import Context, Payload
from subagent_cli.store.messages import Message

_CALL = "Messages have come for you. Read each of them and reply to those that want a reply."
# A keeper that has written down the end of its run is gone a moment later.
_PATIENCE_SECONDS = 5.0


def send(
    context: Context,
    target: str,
    message: str | None = None,
    *,
    schema: str | None = None,
    content: str | None = None,
    in_reply_to: str | None = None,
    key: str | None = None,
) -> Payload:
    """Delivers a message to an agent: one that is stored, or a new one, which is stored first."""
    run_id = addresses.run(context, target, SEND)
    found = _message(context, message, schema, content, in_reply_to, key)
    change = inboxes.deliver(context, run_id, found)
    warnings = list(change.warnings)
    started = None
    try:
        started = _woken(context, run_id)
    except SubagentError as error:
        warnings.append(f"it is delivered, but its agent could not be started: {error.message}")
    return {
        "status": "delivered",
        "message_id": found["id"],
        "agent_id": run_id,
        "attempt": started,
        "warnings": warnings,
    }


def wake(context: Context, run: str) -> Payload:
    """Starts an idle agent for the messages in its inbox that want a reply."""
    run_id = addresses.run(context, run, SEND)
    found = context.runs.read(run_id, context.clock.now())
    waiting = inboxes.unreplied(context, found)
    try:
        started = _woken(context, run_id)
        if started is None and waiting:
            _say_why_not(context, run_id, len(waiting))
    except SubagentError as error:
        # Mostly it is a keeper that has this done when it ends, and nobody is there to be told.
        context.runs.log(run_id, f"Not started again: {error.message}", now=context.clock.now())
        raise
    # What came for an agent is for those to see who may read it.
    shown = waiting if access.may(context, READ, run_id) else []
    return {"runId": run_id, "attempt": started, "unreplied": [delivery.message_id for delivery in shown]}


def _message(
    context: Context,
    message: str | None,
    schema: str | None,
    content: str | None,
    in_reply_to: str | None,
    key: str | None,
) -> Message:
    if message is not None and (content is not None or schema is not None or in_reply_to is not None):
        raise InvalidInput("a message that is stored, or a new one, not both", code="usage")
    if message is not None:
        return messages.find(context, message)
    if schema is None or content is None:
        raise InvalidInput(
            "nothing to send", code="usage", hint="name a message, or give --text, or --schema and --content"
        )
    return messages.write(context, schema, content, in_reply_to=in_reply_to, key=key and f"send {key}")


def _woken(context: Context, run_id: str) -> int | None:
    """Starts the agent, if it is idle and has something to be told of; gives the number of the attempt."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        run = context.runs.read(run_id, context.clock.now())
        if not run.kept or not run.over or not any(not new.notice for new in inboxes.untold(context, run)):
            return None
        try:
            resumption.attempt(context, run_id, _CALL)
        except Refused as refusal:
            # Somebody else started it, or its keeper is about to go.
            if refusal.code != "run_alive" or run.gone or time.monotonic() > give_up:
                raise
        else:
            return run.attempt + 1


def _say_why_not(context: Context, run_id: str, waiting: int) -> None:
    run = context.runs.read(run_id, context.clock.now())
    if not run.over:
        return
    if not run.kept:
        raise Refused(
            f"run {short(run_id)} was not started by `subagent run`: there is nothing to start again",
            code="not_launched",
        )
    limit = context.settings["max_wakes"].value
    raise Refused(
        f"run {short(run_id)} was started {limit} times for its {waiting} unreplied messages in vain",
        code="woken_in_vain",
        hint="raise max_wakes (SUBAGENT_MAX_WAKES), or go on with it yourself",
        next=context.spelled("resume", short(run_id), "TEXT"),
    )

"""What may happen between agents: one gives another a capability on a run, takes it back, or sends a message to it.

Whether the caller may is decided here, under the lock of the run in whose journal its grants stand, so that nothing
slips through beside a revocation.
"""

from collections.abc import Sequence

from subagent_cli.core import command as wanted
from subagent_cli.core import event as happened
from subagent_cli.core.errors import Denied, InvalidInput
from subagent_cli.core.event import Event
from subagent_cli.core.grant import ADMINISTER, ANSWER, CAPABILITIES, OPERATOR, REPORT, SEND, STOP, WORK, held
from subagent_cli.core.moment import Moment
from subagent_cli.core.run import Run

_NOT_GRANTED = {
    ADMINISTER: "No permission to administer grants for agent {}",
    SEND: "No permission to send messages to agent {}",
    ANSWER: "No permission to answer questions of agent {}",
    WORK: "Only the worker of run {} itself, or the operator, may do this",
    REPORT: "Only the worker of run {}, whoever started it, or the operator may report on it",
    STOP: "Only whoever started run {}, or the operator, may end it",
}


def grant(run: Run, command: wanted.Grant, now: Moment) -> Sequence[Event]:
    _must_administer(run, command.by, command.capability, now)
    granted = happened.Granted(now, command.by or OPERATOR, command.grantee, command.capability, command.lasts)
    known = run.grants.get(granted[1:4])
    # A row that ends is granted anew, or what was given again would end when the first gift did.
    return () if known is not None and known.lasts is None and command.lasts is None else (granted,)


def revoke(run: Run, command: wanted.Revoke, now: Moment) -> Sequence[Event]:
    _must_administer(run, command.by, command.capability, now)
    if command.everything and command.by is not None:
        raise Denied("an agent takes back what it gave itself", code="not_granted", hint="leave --all out")
    return tuple(
        happened.Revoked(now, grantor, grantee, capability)
        for grantor, grantee, capability in run.grants
        if (grantee, capability) == (command.grantee, command.capability)
        and (command.everything or grantor == (command.by or OPERATOR))
    )


def _must_administer(run: Run, agent: str | None, capability: str, now: Moment) -> None:
    if capability not in CAPABILITIES:
        raise InvalidInput(
            f"there is no capability {capability[:40]!r}", code="unknown_capability", candidates=CAPABILITIES
        )
    if agent is not None and ADMINISTER not in held(run.grants, agent, now):
        raise not_granted(ADMINISTER, run.id)


def deliver(run: Run, command: wanted.Deliver, now: Moment) -> Sequence[Event]:
    if command.by is not None and not command.owed and SEND not in held(run.grants, command.by, now):
        raise not_granted(SEND, run.id)
    known = run.inbox.get(command.message_id)
    # What an agent was only told of can still be sent to it, and then wants a reply.
    if known is not None and (command.notice or not known.notice):
        return ()
    return (
        happened.Delivered(
            now,
            command.message_id,
            command.by or OPERATOR,
            command.text,
            command.sha256,
            command.in_reply_to,
            command.notice or None,
        ),
    )


def not_granted(right: str, run_id: str) -> Denied:
    """The refusal of an agent that lacks a right on a run."""
    grantable = right if right in CAPABILITIES else SEND if right == ANSWER else None
    return Denied(
        _NOT_GRANTED[right].format(run_id[:64]),
        code="not_granted",
        hint=f"it takes {grantable}: whoever administers its grants can give it" if grantable else None,
        next="subagent grants" if grantable else None,
    )

"""Grants: who gave whom which capability on which run."""

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import RunNotFound, SubagentError
from subagent_cli.core.event import Revoked
from subagent_cli.core.grant import ADMINISTER, KNOW, Grant
from subagent_cli.core.ids import canonical, is_uuid
from subagent_cli.core.moment import iso
from subagent_cli.core.run import Run
from subagent_cli.services import access, addresses
from subagent_cli.services.context import Context, Payload


def grant(context: Context, target: str, grantee: str, capability: str, *, lasts: int | None = None) -> Payload:
    """Gives an agent a capability on a run; again is no harm. `lasts` is in milliseconds."""
    run_id, agent_id = addresses.run(context, target, ADMINISTER), _grantee(context, grantee)
    command = wanted.Grant(access.agent(context), agent_id, capability, lasts)
    change = context.runs.change(run_id, command, context.clock.now)
    return {
        "success": True,
        "target": run_id,
        "grantee": agent_id,
        "capability": capability,
        "warnings": list(change.warnings),
    }


def revoke(context: Context, target: str, grantee: str, capability: str, *, everything: bool = False) -> Payload:
    """Takes back what the caller gave; the operator may take back what anybody gave. What others gave is said."""
    run_id, agent_id = addresses.run(context, target, ADMINISTER), canonical(grantee)
    if not is_uuid(agent_id):
        agent_id = _grantee(context, grantee)
    command = wanted.Revoke(access.agent(context), agent_id, capability, everything)
    change = context.runs.change(run_id, command, context.clock.now)
    now = context.clock.now()
    left = [
        row.grantor
        for row in change.after.grants.values()
        if (row.grantee, row.capability) == (agent_id, capability) and row.holds(now)
    ]
    return {
        "success": True,
        "target": run_id,
        "grantee": agent_id,
        "capability": capability,
        "revoked": sum(isinstance(event, Revoked) for event in change.events),
        "stillGrantedBy": left,
        "warnings": list(change.warnings),
    }


def listed(context: Context, target: str | None = None) -> list[Payload]:
    """The rows that stand: for an agent those that it has itself, and all on runs that it administers."""
    now, caller = context.clock.now(), access.agent(context)
    run_ids = access.known(context) if target is None else [addresses.run(context, target, KNOW)]
    found: list[Payload] = []
    for run_id in run_ids:
        try:
            run = context.runs.read(run_id, now)
        except SubagentError:
            if target is not None:
                raise
            continue
        everything = access.may(context, ADMINISTER, run_id)
        rows = [row for row in run.grants.values() if row.holds(now)]
        found += [_shown(run, row) for row in rows if everything or row.grantee == caller]
    return found


def _shown(run: Run, row: Grant) -> Payload:
    return {
        "target": run.id,
        "grantee": row.grantee,
        "capability": row.capability,
        "grantor": row.grantor,
        "granted_at": row.granted.iso,
        "expires_at": iso(row.granted.ms + row.lasts) if row.lasts is not None else None,
    }


def _grantee(context: Context, text: str) -> str:
    """Somebody may be given a capability by whoever knows its whole id, also where nothing else is known of it."""
    whole = canonical(text)
    if context.runs.exists(whole):
        return whole
    try:
        return addresses.run(context, text, KNOW)
    except RunNotFound as error:
        error.message = f"there is no agent {text[:64]} to give it to"
        raise

"""Who may do what with which run: the one place where every verb of every door asks.

The operator, who carries no token, may do everything. An agent is held to its grants and to what follows from having
started a run; what it may not know of behaves as absent.
"""

from collections.abc import Iterable

from subagent_cli.core.errors import Denied, SubagentError
from subagent_cli.core.exchange import not_granted
from subagent_cli.core.grant import HEAR, KNOW, READ, REPORT, WORK, allowed, held
from subagent_cli.services.context import Context

_OF_ITS_OWN = (READ, KNOW, HEAR, WORK, REPORT)


def agent(context: Context) -> str | None:
    """The run as whose worker somebody calls; None for the operator."""
    return context.caller.run_id if context.caller.token else None


def may(context: Context, right: str, run_id: str) -> bool:
    """Whether the caller has this right on a run. What cannot be read gives no rights."""
    caller = agent(context)
    if caller is None or (caller == run_id and right in _OF_ITS_OWN):
        return True
    now = context.clock.now()
    try:
        capabilities = held(context.runs.read(run_id, now).grants, caller, now)
        return allowed(right, caller, run_id, context.runs.spec(run_id).get("parentId"), capabilities)
    except SubagentError:
        return False


def must(context: Context, right: str, run_id: str) -> None:
    if not may(context, right, run_id):
        raise not_granted(right, run_id)


def among(context: Context, run_ids: Iterable[str], right: str = READ) -> list[str]:
    """Those of the runs on which the caller has this right, in their order."""
    caller = agent(context)
    if caller is None:
        return list(run_ids)
    circle = set(_circle(context, caller))
    return [run_id for run_id in run_ids if run_id in circle and may(context, right, run_id)]


def known(context: Context) -> list[str]:
    """Every run that the caller may know of, newest first."""
    caller = agent(context)
    if caller is None:
        return list(context.runs.all())
    return [run_id for run_id in sorted(_circle(context, caller), reverse=True) if may(context, KNOW, run_id)]


def operator_only(context: Context, verb: str) -> None:
    """For what concerns all runs alike."""
    if agent(context) is not None:
        raise Denied(f"{verb} is for the operator, not for the worker of a run", code="operator_only")


def _circle(context: Context, caller: str) -> set[str]:
    """Runs on which an agent may have rights, by the index: more than it has, never fewer."""
    index = context.runs.index
    return {caller, *index.children(caller), *index.granted(caller)}

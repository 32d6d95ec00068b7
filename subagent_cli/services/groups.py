"""Groups: how a fan-out stands.

It is worked out from its children whenever somebody asks, so what is pending and what is completed always add up, an
outcome that came before anybody waited is there, and none is counted twice.
"""

from collections.abc import Sequence
from contextlib import suppress

from subagent_cli.core.errors import NotFound, SubagentError
from subagent_cli.core.run import Run
from subagent_cli.services import access, addresses, outcomes
from subagent_cli.services.context import Context, Payload
from subagent_cli.store.groups import Group, Groups

AWAITING, CANCELLING, DONE = "AwaitingSubAgents", "CancellingSubAgents", "done"


def status(context: Context, name: str) -> Payload:
    """How a group stands: who is still at it, and what the others came to."""
    group_id = addresses.group(context, name)
    if group_id is None:
        raise NotFound(f"there is no group {name[:64]}", code="group_not_found")
    group = Groups(context.runs.layout).read(group_id) or {"children": []}
    runs = members(context, group)
    return {
        "group_id": group_id,
        "state": state_of(list(runs.values())),
        "parent_id": group.get("parentId"),
        "created_at": group.get("createdAt"),
        "deadline_seconds": group.get("deadlineSeconds"),
        "pending": [run_id for run_id, run in runs.items() if not run.over],
        "completed": [run_id for run_id, run in runs.items() if run.over],
        "sub_agent_results": outcomes.aggregate(context, [run for run in runs.values() if run.over]),
    }


def members(context: Context, group: Group) -> dict[str, Run]:
    """The children of a group that are there for the caller, in the order in which they were asked for."""
    now, found = context.clock.now(), dict[str, Run]()
    for run_id in access.among(context, (child["runId"] for child in group["children"])):
        with suppress(NotFound):
            found[run_id] = context.runs.read(run_id, now)
    return found


def state_of(runs: Sequence[Run]) -> str:
    """What the parent of these runs is doing about them."""
    pending = [run for run in runs if not run.over]
    if not pending:
        return DONE
    return CANCELLING if any(run.stopping for run in pending) else AWAITING


def forget_empty(context: Context) -> list[str]:
    """Removes the records of groups none of whose children is there any more; gives their ids."""
    groups, gone = Groups(context.runs.layout), list[str]()
    for group_id in groups.all():
        with suppress(SubagentError):
            group = groups.read(group_id)
            if group and not any(context.runs.exists(child["runId"]) for child in group["children"]):
                groups.remove(group)
                gone.append(group_id)
    return gone

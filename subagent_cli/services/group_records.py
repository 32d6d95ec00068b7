"""Records of groups that cannot be read any more, put together again from the runs that belong to them.

Each run says to which group it belongs, so nothing is lost but the deadline, which stands in the runs as well. What
stood there before is kept beside the new record.
"""

import os
from collections.abc import Iterator
from itertools import count

from subagent_cli.core.errors import SubagentError
from subagent_cli.services.visit import Visit, listed, named
from subagent_cli.store import atomic
from subagent_cli.store.groups import Group, Groups
from subagent_cli.store.layout import Layout
from subagent_cli.store.reader import Spec
from subagent_cli.store.repair import DAMAGE, Finding

_FIX = "put together from its runs; what stood there is kept beside it"


def faults(visit: Visit) -> Iterator[Finding]:
    """The damaged records, of which those are mended that have a run."""
    layout, groups = visit.runs.layout, Groups(visit.runs.layout)
    for group_id in list(groups.all()):
        if _can_be_read(groups, group_id):
            continue
        found = _rebuilt(visit, group_id)
        if visit.fix and found:
            with atomic.io(f"mend group {group_id}"):
                atomic.appear(layout.group(group_id), _free(layout.group(group_id)))
                groups.create(found)
        text = f"the record of a group cannot be read: {named(layout, [layout.group(group_id)])}"
        fixed = visit.fix and _can_be_read(groups, group_id)
        yield Finding(None, "damaged_group", text, DAMAGE, _FIX if found else None, fixed)


def _can_be_read(groups: Groups, group_id: str) -> bool:
    try:
        return groups.read(group_id) is not None
    except SubagentError:
        return False


def _rebuilt(visit: Visit, group_id: str) -> Group | None:
    """A record of the runs that name this group, in the order in which they were made."""
    members = [(run_id, spec) for run_id, spec in _specs(visit) if spec.get("groupId") == group_id]
    if not members:
        return None
    first = members[0][1]
    return {
        "version": 1,
        "groupId": group_id,
        "parentId": first.get("parentId"),
        "children": [
            {"runId": run_id, "agentName": spec.get("agentName"), "task": spec.get("task")} for run_id, spec in members
        ],
        "deadlineSeconds": None,
        "createdAt": first.get("createdAt"),
        "keyDigest": _key(visit.runs.layout, group_id),
    }


def _specs(visit: Visit) -> Iterator[tuple[str, Spec]]:
    for run_id in sorted(visit.runs.all()):
        try:
            yield run_id, visit.runs.spec(run_id)
        except SubagentError:
            continue


def _key(layout: Layout, group_id: str) -> str | None:
    """Under which key it was spawned, as the index says."""
    for digest in listed(layout.spawns):
        try:
            if atomic.content(layout.spawn_mark(digest)).decode("utf-8", "replace").strip() == group_id:
                return digest
        except OSError:
            continue
    return None


def _free(path: str) -> str:
    """A name beside a file that nothing has yet, and that is no record's."""
    return next(name for number in count(1) if not os.path.lexists(name := f"{path}.damaged-{number}"))

"""The sweep: writes down what time has brought about, and tidies up behind crashes and other programs.

Safe beside any number of other processes and of itself, and cheap however many runs have ended: it reads the active
runs alone, and takes a lock only where there is something to write. A damaged run is reported and stops nobody else.
"""

import os.path
from collections.abc import Sequence

from subagent_cli.core.command import Settle
from subagent_cli.core.errors import SubagentError
from subagent_cli.core.event import Event, Expired, Replied, Stopped
from subagent_cli.core.transition import LOST
from subagent_cli.services import access, groups
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.leftovers import orphans_of
from subagent_cli.store import removal
from subagent_cli.store.reconcile import reconcile


def sweep(
    context: Context, *, max_age: int | None = None, dry_run: bool = False
) -> tuple[Payload, list[SubagentError]]:
    """What was (or, in a dry run, would be) done, and what could not be looked at."""
    access.operator_only(context, "sweep")
    context.must_be_there()
    runs = context.runs if max_age is None else context.runs.aged(max_age)
    now = context.clock.now
    healed = reconcile(runs, lambda run_id: runs.read(run_id, now()), dry_run=dry_run)
    faults = list(healed.faults)
    events: list[Event] = []
    unkept: list[str] = []
    active = runs.index.active()
    # In a dry run those that would be entered have no entry yet.
    for run_id in sorted({*active, *healed.entered}):
        try:
            late, left = runs.unsettled(run_id, now())
            if (late or left) and not dry_run:
                late = runs.change(run_id, Settle(), now).late
        except SubagentError as error:
            if runs.exists(run_id) and error.message not in [fault.message for fault in faults]:
                faults.append(error)
            continue
        events += late
        if any(isinstance(event, Stopped) for event in late):
            unkept.append(run_id)
    emptied = removal.empty_trash(runs.layout) if healed.trash and not dry_run else []
    # One whose outcome was decided before its keeper died has lost nothing.
    lost = [run_id for run_id in unkept if runs.exists(run_id) and runs.read(run_id, now()).state == LOST]
    empty = [] if dry_run else groups.forget_empty(context)
    thrown = _thrown_away(context, faults, dry_run=dry_run)
    removed = [*healed.removed, *emptied, *(f"group {group_id}" for group_id in empty), *thrown]
    expired = [event.message_id for event in events if isinstance(event, Expired)]
    defaulted = [event.message_id for event in events if isinstance(event, Replied)]
    return {
        "scanned": len(active),
        "expired": len(expired),
        "defaulted": len(defaulted),
        "timedOut": 0,
        "lost": len(lost),
        "errors": [fault.message for fault in faults],
        "messages": expired + defaulted,
        "lostRuns": lost,
        "orphans": _left_behind(context, unkept),
        "entered": healed.entered,
        "removed": removed,
        "dryRun": dry_run,
    }, faults


def _thrown_away(context: Context, faults: list[SubagentError], *, dry_run: bool) -> list[str]:
    """Throwaway children whose dispatch was killed: they are ended, and go with their copies of a folder."""
    if not os.path.lexists(context.runs.layout.workspaces):
        return []
    from subagent_cli.services import throwaways

    gone: list[str] = []
    for run_id in throwaways.abandoned(context):
        try:
            if not dry_run:
                throwaways.clear(context, run_id)
            gone.append(f"workspace {run_id}")
        except SubagentError as fault:
            faults.append(fault)
    return gone


def _left_behind(context: Context, unkept: Sequence[str]) -> dict[str, list[int]]:
    """Which of these runs still have processes although their keepers are gone. They are told of, not ended."""
    found = {run_id: orphans_of(context, run_id) for run_id in unkept if context.runs.exists(run_id)}
    return {run_id: [pid for pid, _ in processes] for run_id, processes in found.items() if processes}

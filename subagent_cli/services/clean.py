"""Cleaning up: finished runs that are old go, and take along the runs that they created.

Never goes: a run that has not ended, one with a question that waits, one of whose descendants has either, and one
that cannot be read. Finding and deleting are two steps, so that somebody can be asked in between; every run is looked
at again, under its lock, before it goes.
"""

import os.path
from collections.abc import Sequence
from functools import partial

from subagent_cli.core.errors import NotFound, Refused, SubagentError
from subagent_cli.core.ids import short
from subagent_cli.core.moment import Moment, ago, duration, milliseconds
from subagent_cli.core.run import Run
from subagent_cli.core.value import Value
from subagent_cli.services import access, addresses, groups
from subagent_cli.services.context import Context, Payload
from subagent_cli.store import removal

DEFAULT_AGE = "30d"


class Plan(Value):
    """What may go, each run with its descendants before it; what is old enough and stays; what cannot be read."""

    families: list[list[str]]
    kept: list[Payload]
    faults: list[SubagentError]

    @property
    def run_ids(self) -> list[str]:
        return list(dict.fromkeys(run_id for family in self.families for run_id in family))

    def answer(self, deleted: Sequence[str], *, dry_run: bool = False) -> Payload:
        return {"deleted": list(deleted), "kept": self.kept, "dryRun": dry_run}


def plan(context: Context, names: Sequence[str] = (), older_than: str | None = None) -> Plan:
    """What a cleaning would delete: of all runs those that are old, or of the named ones all that have ended."""
    access.operator_only(context, "clean")
    context.must_be_there()
    limit = older_than if older_than is not None or names else DEFAULT_AGE
    age = duration(limit) if limit is not None else None
    now = context.clock.now()
    found = Plan([], [], [])
    for run_id in dict.fromkeys([addresses.run(context, name) for name in names] or context.runs.all()):
        try:
            run = context.runs.read(run_id, now)
        except NotFound:
            continue
        except SubagentError as fault:
            _keep(found, run_id, fault)
            continue
        if run.active:
            if names:
                raise _unfinished(run)
        elif age is not None and _age(run, now) <= age:
            if names:
                found.kept.append({"runId": run_id, "reason": f"it ended {ago(_age(run, now))} ago"})
        else:
            _add_family(context, run_id, now, found)
    return found


def delete(context: Context, found: Plan) -> Payload:
    """Deletes what the plan says and gives the ids; what has changed since then is kept."""
    timeout = context.settings["lock_timeout"].value / 1000
    removal.empty_trash(context.runs.layout, timeout)
    entries = removal.entries_of(context.runs.layout, found.run_ids)
    deleted: dict[str, None] = {}
    warnings: list[str] = []
    for family in found.families:
        for run_id in family:
            if run_id in deleted:
                continue
            try:
                check = partial(_must_be_over, context, run_id)
                warnings += removal.remove(context.runs, run_id, entries, check)
            except NotFound:
                continue
            except Refused as refusal:
                _keep_rest(found, family, run_id, refusal.message)
                break
            except SubagentError as fault:
                found.faults.append(fault)
                _keep_rest(found, family, run_id, fault.message)
                break
            deleted[run_id] = None
            if os.path.lexists(context.runs.layout.workspace(run_id)):
                from subagent_cli.services import throwaways

                throwaways.discard(context, run_id)
    groups.forget_empty(context)
    return {**found.answer(list(deleted)), "warnings": warnings}


def _add_family(context: Context, run_id: str, now: Moment, found: Plan) -> None:
    family: dict[str, None] = {}
    waiting = [run_id]
    while waiting:
        member = waiting.pop()
        if member in family:
            continue
        family[member] = None
        if member != run_id and (obstacle := _obstacle(context, member, now)):
            found.kept.append({"runId": run_id, "reason": obstacle})
            return
        waiting += removal.children(context.runs, member)
    found.families.append(list(reversed(family)))


def _obstacle(context: Context, run_id: str, now: Moment) -> str | None:
    try:
        run = context.runs.read(run_id, now)
    except NotFound:
        return None
    except SubagentError:
        return f"the run {short(run_id)} that came from it cannot be read"
    return f"the run {short(run_id)} that came from it is not over: {run.status}" if run.active else None


def _must_be_over(context: Context, run_id: str) -> None:
    run = context.runs.read(run_id, context.clock.now())
    if run.active:
        raise _unfinished(run)
    if new := removal.children(context.runs, run_id):
        raise Refused(f"the run {short(new[0])} came from it meanwhile, or stays", code="has_children")


def _unfinished(run: Run) -> Refused:
    ended = "its process has not ended" if run.alive else "a question waits for an answer"
    reason = ended if run.finished else run.status
    return Refused(
        f"run {short(run.id)} is not over: {reason}",
        code="not_finished",
        hint="only runs that have ended can be deleted; nothing was deleted",
    )


def _age(run: Run, now: Moment) -> int:
    """By the wall clock, since an end may be older than this boot and come from another program."""
    ended = milliseconds(run.ended_at)
    if ended is None:
        ended = run.changed.ms if run.changed else now.ms
    return max(0, now.ms - ended)


def _keep(found: Plan, run_id: str, fault: SubagentError) -> None:
    found.faults.append(fault)
    found.kept.append({"runId": run_id, "reason": fault.message})


def _keep_rest(found: Plan, family: Sequence[str], run_id: str, reason: str) -> None:
    """What could not go, and its forebears, which go only with it."""
    found.kept.append({"runId": run_id, "reason": reason})
    above = family[-1]
    if above != run_id:
        found.kept.append({"runId": above, "reason": f"the run {short(run_id)} that came from it stays"})

"""Spawning: many children at once, all or nothing: whatever is wrong with one task, none of them exists."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from subagent_cli.core.errors import InvalidInput, Refused, SubagentError
from subagent_cli.core.ids import short
from subagent_cli.core.moment import duration
from subagent_cli.services import access, addresses, roles, specs
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.launches import Launch, Request
from subagent_cli.store import removal
from subagent_cli.store.groups import Group, Groups

DEADLINE_TEXT = "Timed out: sub-agent exceeded its time limit"
WORK = "work"


def spawn(
    context: Context,
    requests: Sequence[Request],
    *,
    deadline: int | None = None,
    max_depth: int | None = None,
    key: str | None = None,
) -> Payload:
    """Starts a child for each request and returns at once. `deadline` is in milliseconds and counts from now."""
    context.must_be_a_folder()
    if not key:
        return _spawn(context, requests, deadline, max_depth, None)
    from subagent_cli.store.lock import held

    digest, layout = specs.key_digest("spawn", key, access.agent(context)), context.runs.layout
    with held(layout.lock(f"key-{digest}"), context.settings["lock_timeout"].value / 1000, "the key"):
        known = Groups(layout).keyed(digest)
        if known is None:
            return _spawn(context, requests, deadline, max_depth, digest)
    _same_request(context, known, requests, max_depth)
    return _made(known["groupId"], [child["runId"] for child in known["children"]], [])


def _same_request(context: Context, known: Group, requests: Sequence[Request], max_depth: int | None) -> None:
    """Whether the group that a key led to is the one that is asked for now."""
    if len(known["children"]) != len(requests):
        raise specs.key_reused(known["groupId"], "group")
    for child, request in zip(known["children"], requests, strict=True):
        if context.runs.exists(child["runId"]):
            launch = Launch(context, request, max_depth=max_depth)
            specs.same_request(context, child["runId"], launch.spec)


def _spawn(
    context: Context, requests: Sequence[Request], deadline: int | None, max_depth: int | None, digest: str | None
) -> Payload:
    _check_count(context, requests)
    _check_work(context, requests)
    group_id = context.clock.new_id()
    if deadline is not None:
        requests = [_by(deadline, request, context.settings["run_timeout"].value) for request in requests]
    launches = [_launch(context, place, request, group_id, max_depth) for place, request in enumerate(requests, 1)]
    try:
        _make(context, launches, {**_record(context, group_id, launches, deadline), "keyDigest": digest})
        faults = [fault for launch in launches if (fault := _started(launch))]
    finally:
        for launch in launches:
            launch.let_go()
    notes = dict.fromkeys(note for launch in launches for note in launch.notes)
    return _made(group_id, [launch.run_id for launch in launches], [*notes, *faults])


def _made(group_id: str, run_ids: list[str], warnings: list[str]) -> Payload:
    return {
        "group_id": group_id,
        "agent_ids": run_ids,
        "output": f"Spawning {len(run_ids)} sub-agents: {', '.join(run_ids)}",
        "warnings": warnings,
    }


def requests_from(table: object, common: Request) -> list[Request]:
    """The requests that a file of tasks asks for; what a task does not say is as for all of them."""
    from pydantic import ValidationError

    from subagent_cli.contracts.base import fault
    from subagent_cli.contracts.tasks import Tasks

    try:
        tasks = Tasks.model_validate(table).tasks
    except ValidationError as error:
        raise InvalidInput(
            fault(error, "tasks"),
            code="invalid_tasks",
            hint='{"tasks": [{"task": "…", "cwd": "…", "agent": "…", "name": "…", "timeout": "5m"}]}',
        ) from error
    return [_request(task.model_dump(exclude_none=True), common) for task in tasks]


def _request(task: Mapping[str, Any], common: Request) -> Request:
    given = dict(task)
    if "timeout" in given:
        given["start"] = common.start._replace(timeout=duration(str(given.pop("timeout"))))
    if "agent" in given:
        given["command"] = ()
    form = given.pop("input_schema", None), given.pop("output_schema", None)
    given["role"] = roles.role(given.pop("type", None), *form, common.role)
    return common._replace(**given)


def _by(deadline: int, request: Request, usual: int | None) -> Request:
    """The deadline of the group is a limit of each child's own, so that it holds whether or not anybody waits."""
    start = request.start
    own = start.timeout if start.timeout is not None else usual
    if own is not None and own <= deadline:
        return request
    return request._replace(start=start._replace(timeout=deadline, timeout_text=DEADLINE_TEXT))


def _check_count(context: Context, requests: Sequence[Request]) -> None:
    most: int = context.settings["max_children"].value
    if not requests:
        raise InvalidInput("there is no task", code="no_tasks", hint="--task TEXT for each, or --tasks FILE")
    if len(requests) > most:
        raise InvalidInput(
            f"{len(requests)} tasks at once; the limit is {most}",
            code="too_many_tasks",
            hint="spawn several groups, or raise max_children (SUBAGENT_MAX_CHILDREN)",
        )


def _check_work(context: Context, requests: Sequence[Request]) -> None:
    """One child at a time does work in the folder of its parent; the others only look."""
    if sum(request.mode == WORK for request in requests) > 1:
        raise InvalidInput("only one child of a group may be in mode work", code="several_workers")
    parent = context.caller.run_id if context.caller.token else None
    if parent is None or not any(request.mode == WORK for request in requests):
        return
    for child in addresses.children(context, parent):
        if _works(context, child):
            raise Refused(f"run {short(child)} is in mode work and has not ended", code="several_workers")


def _works(context: Context, run_id: str) -> bool:
    try:
        return context.runs.spec(run_id).get("mode") == WORK and not context.runs.read(run_id, context.clock.now()).over
    except SubagentError:
        return False


def _launch(context: Context, place: int, request: Request, group_id: str, max_depth: int | None) -> Launch:
    try:
        return Launch(context, request, max_depth=max_depth, group_id=group_id)
    except SubagentError as error:
        if error.code != "depth_exceeded":
            error.message = f"Failed to spawn sub-agents: task {place}: {error.message}"
        raise


def _record(context: Context, group_id: str, launches: Sequence[Launch], deadline: int | None) -> Group:
    children = [
        {"runId": launch.run_id, "agentName": launch.spec["agentName"], "task": launch.spec["task"]}
        for launch in launches
    ]
    return {
        "version": 1,
        "groupId": group_id,
        "parentId": launches[0].spec["parentId"],
        "deadlineSeconds": deadline / 1000 if deadline is not None else None,
        "children": children,
        "createdAt": context.clock.now().iso,
    }


def _make(context: Context, launches: Sequence[Launch], group: Group) -> None:
    """All runs and the group, or none of them: nothing has been started yet that could not be taken back."""
    try:
        for launch in launches:
            launch.make()
        Groups(context.runs.layout).create(group)
    except BaseException as error:
        _take_back(context, [launch.run_id for launch in launches], group)
        if isinstance(error, SubagentError):
            error.message = f"Failed to spawn sub-agents: {error.message}"
        raise


def _take_back(context: Context, run_ids: Sequence[str], group: Group) -> None:
    runs, layout = context.runs, context.runs.layout
    with suppress(SubagentError, OSError):
        Groups(layout).remove(group)
    entries = removal.entries_of(layout, run_ids)
    for run_id in run_ids:
        with suppress(SubagentError, OSError):
            if runs.exists(run_id):
                removal.remove(runs, run_id, entries, lambda: None)
            else:
                removal.forget(layout, run_id, entries)


def _started(launch: Launch) -> str | None:
    """Once others have started, a child that cannot be is a failure of its own, and its outcome says so."""
    try:
        launch.start()
    except SubagentError as error:
        return f"{short(launch.run_id)}: {error.message}"
    return None

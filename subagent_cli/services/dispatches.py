"""Dispatching: a validated request is done by a throwaway child in a copy of the folder, and only its result stays.

Nothing exists before the request, the agent and the folder were found good. Questions of the child are told to whoever
waits, and answered as those of any other run.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from threading import Event, Thread

from subagent_cli.core.dispatch import DispatchSubagent, missing, normalized
from subagent_cli.core.errors import InvalidInput, Refused
from subagent_cli.dispatch import Session, dispatch_subagent
from subagent_cli.process.delivery import deliver
from subagent_cli.process.workspace import Workspace
from subagent_cli.services import access, throwaways
from subagent_cli.services.agent_runner import AgentRunner, Order, Told
from subagent_cli.services.context import Context, Payload, afresh
from subagent_cli.services.patience import PULSE_SECONDS, Stop


def nobody(_: Payload) -> None:
    """There is nobody to tell of questions: they wait where all others do."""


def request_from(table: object) -> DispatchSubagent:
    """The request that a payload in JSON asks for."""
    from subagent_cli.contracts.dispatch import request_from as read

    return read(table)


def requests_from(table: object) -> Sequence[DispatchSubagent]:
    """The requests of a batch. One that is wrong refuses all of them, before any is begun."""
    from subagent_cli.contracts.dispatch import requests_from as read

    return read(table)


def dispatch(context: Context, wanted: DispatchSubagent, order: Order, *, told: Told = nobody) -> Payload:
    """Has a request done and gives what came of it. `told` hears of each question that the child asks."""
    runner = AgentRunner(context, order, told, context.clock.new_id())
    wanted = normalized(wanted)
    _check(runner, wanted, order)
    return _done(runner, wanted, order, _session(context))


def several(
    context: Context,
    wanted: Sequence[DispatchSubagent],
    order: Order,
    *,
    told: Told = nobody,
    stop: Stop | None = None,
) -> list[Payload]:
    """Has several requests done at once; what came of each, in their order. One that fails does not stop the others.
    Once `stop` says that nobody waits any more all of them are ended."""
    wanted = [normalized(one) for one in wanted]
    most: int = context.settings["max_children"].value
    if len(wanted) > most:
        raise InvalidInput(
            f"{len(wanted)} requests at once; the limit is {most}",
            code="too_many_requests",
            hint="dispatch them in several calls, or raise max_children (SUBAGENT_MAX_CHILDREN)",
        )
    stopped = Event()
    children = [(AgentRunner(afresh(context), order, told, context.clock.new_id(), stopped), one) for one in wanted]
    for child in children:
        _check(*child, order)
    return _at_once(context, children, order, stopped, stop)


def _check(runner: AgentRunner, wanted: DispatchSubagent, order: Order) -> None:
    """Finds what is wrong before anything exists: a child has worked in vain whose result has nowhere to go."""
    runner.context.must_be_a_folder()
    runner.check(wanted)
    if order.into is not None:
        place = os.path.abspath(order.into)
        while not os.path.lexists(place):
            place = os.path.dirname(place)
        if not order.into or not os.path.isdir(place) or not os.access(place, os.W_OK | os.X_OK):
            raise InvalidInput(
                f"nothing can be brought to {order.into!r}: {place} is no folder of yours", code="bad_into"
            )


def _at_once(
    context: Context,
    children: Sequence[tuple[AgentRunner, DispatchSubagent]],
    order: Order,
    stopped: Event,
    stop: Stop | None,
) -> list[Payload]:
    """Each in a thread of its own. Whoever interrupts it ends all of them, and then waits until nothing is left."""
    results: dict[str, Payload] = {}
    begun, ended, session = list[Thread](), SimpleQueue[None](), _session(context)

    def one(runner: AgentRunner, wanted: DispatchSubagent) -> None:
        try:
            results[runner.run_id] = _done(runner, wanted, order, session)
        except Exception as error:
            results[runner.run_id] = _failed(f"Subagent execution failed: {error}")
        finally:
            ended.put(None)

    try:
        for child in children:
            thread = Thread(target=one, args=child)
            thread.start()
            begun.append(thread)
        # Not by joining: in Python 3.11 a join that is interrupted takes the thread for ended.
        while len(results) < len(begun):
            _until_one_ends(ended, stop)
    except BaseException:
        stopped.set()
        for runner, _ in children:
            throwaways.end(context, runner.run_id)
        while len(results) < len(begun):
            ended.get()
        raise
    return [results[runner.run_id] for runner, _ in children]


def _until_one_ends(ended: "SimpleQueue[None]", stop: Stop | None) -> None:
    # In slices: a signal that the system gives to another thread does not wake this one.
    with suppress(Empty):
        ended.get(timeout=PULSE_SECONDS)
    if stop and stop():
        raise Refused("nobody waits for the result any more; the child was ended", code="interrupted")


def _done(runner: AgentRunner, wanted: DispatchSubagent, order: Order, parent: tuple[str, str]) -> Payload:
    context, troubles = runner.context, list[str]()
    with throwaways.place(context, runner.run_id, order.cwd, keep=order.keep, troubles=troubles) as place:
        session = Session(*parent)
        session.seed(Workspace, [place])
        done = dispatch_subagent(session, wanted, runner)
        arrived, left = list[str](), list[str]()
        if order.into is not None and done.value is not None:
            arrived, left = deliver(place, done.value.artifacts, order.into)
    result: Payload = {"success": done.success, "message": done.message, "value": None}
    if done.value is not None:
        result["value"] = asdict(done.value)
        result |= {"missingArtifacts": list(missing(wanted, done.value)), "delivered": arrived, "notDelivered": left}
    if order.keep and context.runs.exists(runner.run_id):
        result |= {"runId": runner.run_id, "workspace": place.folder}
    troubles += [f"not brought out of the workspace: {name}" for name in left]
    return {**result, "warnings": [*done.warnings, *troubles]}


def _failed(message: str) -> Payload:
    return {"success": False, "message": message, "value": None, "warnings": []}


def _session(context: Context) -> tuple[str, str]:
    """The session of whoever dispatches: of an agent its run, of the operator this one call."""
    parent = access.agent(context)
    if parent is None:
        return context.clock.new_id(), context.clock.now().iso
    return parent, str(context.runs.spec(parent).get("createdAt") or context.clock.now().iso)

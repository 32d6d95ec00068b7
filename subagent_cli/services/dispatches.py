"""Dispatching: a validated request is done by a throwaway child in a copy of the folder, and only its result stays.

Nothing exists before the request, the agent and the folder were found good. Questions of the child are told to whoever
waits, and answered as those of any other run.
"""

from collections.abc import Sequence
from dataclasses import asdict
from threading import Event, Thread

from subagent_cli.core.dispatch import DispatchSubagent, missing, normalized
from subagent_cli.core.errors import InvalidInput
from subagent_cli.dispatch import Session, dispatch_subagent
from subagent_cli.process.delivery import deliver
from subagent_cli.process.workspace import Workspace
from subagent_cli.services import access, throwaways
from subagent_cli.services.agent_runner import AgentRunner, Order, Told
from subagent_cli.services.context import Context, Payload
from subagent_cli.store.runs import Runs


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
    _check(context, runner, wanted)
    return _done(context, wanted, order, runner)


def several(
    context: Context, wanted: Sequence[DispatchSubagent], order: Order, *, told: Told = nobody
) -> list[Payload]:
    """Has several requests done at once; what came of each, in their order. One that fails does not stop the others."""
    wanted = [normalized(one) for one in wanted]
    most: int = context.settings["max_children"].value
    if len(wanted) > most:
        raise InvalidInput(
            f"{len(wanted)} requests at once; the limit is {most}",
            code="too_many_requests",
            hint="dispatch them in several calls, or raise max_children (SUBAGENT_MAX_CHILDREN)",
        )
    stopped = Event()
    children = [(AgentRunner(_apart(context), order, told, context.clock.new_id(), stopped), one) for one in wanted]
    for runner, one in children:
        _check(context, runner, one)
    return _at_once(context, children, order, stopped)


def _check(context: Context, runner: AgentRunner, wanted: DispatchSubagent) -> None:
    context.must_be_a_folder()
    runner.check(wanted)


def _apart(context: Context) -> Context:
    """The same for another thread: what a store remembers belongs to one."""
    found = context.settings
    lock_timeout, ttl = found["lock_timeout"].value / 1000, found["question_ttl"].value
    return context._replace(runs=Runs(context.runs.layout.root, lock_timeout=lock_timeout, ttl=ttl))


def _at_once(
    context: Context, children: Sequence[tuple[AgentRunner, DispatchSubagent]], order: Order, stopped: Event
) -> list[Payload]:
    """Each in a thread of its own. Whoever interrupts it ends all of them, and then waits until nothing is left."""
    results: dict[str, Payload] = {}

    def one(runner: AgentRunner, wanted: DispatchSubagent) -> None:
        try:
            results[runner.run_id] = _done(runner.context, wanted, order, runner)
        except Exception as error:
            results[runner.run_id] = _failed(f"Subagent execution failed: {error}")

    threads = [Thread(target=one, args=child) for child in children]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        stopped.set()
        for runner, _ in children:
            throwaways.end(context, runner.run_id)
        for thread in filter(Thread.is_alive, threads):
            thread.join()
        raise
    return [results[runner.run_id] for runner, _ in children]


def _done(context: Context, wanted: DispatchSubagent, order: Order, runner: AgentRunner) -> Payload:
    with throwaways.place(context, runner.run_id, order.cwd, keep=order.keep) as place:
        session = Session(*_session(context))
        session.seed(Workspace, [place])
        done = dispatch_subagent(session, wanted, runner)
        arrived, left = list[str](), list[str]()
        if order.into is not None and done.value is not None:
            arrived, left = deliver(place, done.value.artifacts, order.into)
    result: Payload = {"success": done.success, "message": done.message, "value": None}
    if done.value is not None:
        result["value"] = asdict(done.value)
        result |= {"missingArtifacts": list(missing(wanted, done.value)), "delivered": arrived, "notDelivered": left}
    if order.keep:
        result |= {"runId": runner.run_id, "workspace": place.folder}
    return {**result, "warnings": [*done.warnings, *(f"not brought out of the workspace: {name}" for name in left)]}


def _failed(message: str) -> Payload:
    return {"success": False, "message": message, "value": None, "warnings": []}


def _session(context: Context) -> tuple[str, str]:
    """The session of whoever dispatches: of an agent its run, of the operator this one call."""
    parent = access.agent(context)
    if parent is None:
        return context.clock.new_id(), context.clock.now().iso
    return parent, str(context.runs.spec(parent).get("createdAt") or context.clock.now().iso)

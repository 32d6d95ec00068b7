"""The runner behind `subagent dispatch`: an agent, or any command, as a run of its own in a throwaway copy of a folder.

It finds that copy mounted in the session, starts the agent there and waits for its end. What the agent handed in is the
result; the tools that it used, by its own word or by its output, are published on the bus.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from threading import Event

from subagent_cli.core.dispatch import DispatchSubagent, DispatchSubagentError, DispatchSubagentResult
from subagent_cli.core.errors import Refused, SubagentError
from subagent_cli.core.moment import milliseconds
from subagent_cli.core.value import Value
from subagent_cli.dispatch import EventBus, Session, ToolInvoked
from subagent_cli.process.workspace import Workspace, confined
from subagent_cli.services import access, outcomes, prompts, settings, waiting
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.launches import Launch, Request
from subagent_cli.services.starts import Start

Told = Callable[[Payload], None]
_NOTHING: Mapping[str, str] = {}


class Order(Value):
    """By whom a request is done, in a copy of which folder, and what becomes of the copy. `timeout` is in
    milliseconds."""

    agent: str | None = None
    command: tuple[str, ...] = ()
    cwd: str | None = None
    model: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = _NOTHING
    timeout: int | None = None
    keep: bool = False
    into: str | None = None


class AgentRunner:
    """Serves one request. `told` hears of each question that is asked; once `stopped` is set nothing is started."""

    def __init__(self, context: Context, order: Order, told: Told, run_id: str, stopped: Event | None = None) -> None:
        self.context, self.run_id = context, run_id
        self._order, self._told = order, told
        self._stopped = stopped or Event()

    def check(self, wanted: DispatchSubagent) -> None:
        """Finds what is wrong with the agent and the folder, as far as it can be found before there is a copy."""
        Launch(self.context, self._request(wanted, None, {}))

    def __call__(self, session: Session, bus: EventBus, request: DispatchSubagent, /) -> DispatchSubagentResult:
        [place] = session.select(Workspace)
        parent = {"sessionId": session.session_id, "sessionCreatedAt": session.created_at}
        launch = Launch(self.context, self._request(request, place, parent), run_id=self.run_id)
        try:
            launch.make()
            if self._stopped.is_set():
                raise DispatchSubagentError("Cancelled")
            launch.start()
        finally:
            launch.let_go()
        try:
            self._until_over()
        except SubagentError as error:
            self._end_without_a_run(launch)
            raise DispatchSubagentError(f"its run cannot be read any more: {error.message}") from error
        done = outcomes.result(self.context, self.run_id)
        for tool in done["tools"]:
            bus.publish(ToolInvoked(tool))
        if "error" in done:
            raise DispatchSubagentError(done["error"] or done["state"])
        return DispatchSubagentResult(done["result"] or "", tuple(done["artifacts"]))

    def _request(self, wanted: DispatchSubagent, place: Workspace | None, parent: Payload) -> Request:
        order = self._order
        inherited = settings.inherited(())
        variables = confined(inherited, place) if place else inherited
        start = Start(
            _limit(self.context, order.timeout),
            {name: value for name, value in variables.items() if inherited.get(name) != value} | dict(order.env),
            deny=tuple(inherited.keys() - variables.keys()),
        )
        return Request(
            prompts.dispatched(wanted),
            agent=order.agent,
            command=order.command,
            cwd=place.folder if place else order.cwd,
            model=order.model,
            args=order.args,
            dispatch={**asdict(wanted), **parent},
            start=start,
        )

    def _end_without_a_run(self, launch: Launch) -> None:
        """Whoever removes or damages its run, the child itself perhaps, keeps nobody from ending it."""
        from subagent_cli.process import orphans

        marks = orphans.Marks(self.run_id, launch.spec["tokenHash"], self.context.runs.layout.root)
        orphans.end(marks, self.context.settings["stop_grace"].value / 1000)

    def _until_over(self) -> None:
        cursor, told = waiting.NOTHING_KNOWN, set[str]()
        while (woke := waiting.for_runs(self.context, [self.run_id], after=cursor))["woke"] != "done":
            cursor = woke["cursor"]
            for item in woke["questions"]:
                if item["message_id"] not in told:
                    told.add(item["message_id"])
                    self._told(item)


def _limit(context: Context, wanted: int | None) -> int | None:
    """The time limit of a child: what was asked for, and never more than its parent has left."""
    parent, usual = access.agent(context), context.settings["run_timeout"].value
    wanted = usual if wanted is None else wanted
    if parent is None:
        return wanted
    now = context.clock.now()
    run = context.runs.read(parent, now)
    limit = context.runs.spec(parent).get("timeoutSeconds") if run.attempt == 1 else run.limit
    since = milliseconds(run.launched_at)
    if limit is None or since is None:
        return wanted
    left = round(float(limit) * 1000) - (now.ms - since)
    if left <= 0:
        raise Refused("the time of the run that dispatches is up", code="no_time_left")
    return left if wanted is None else min(wanted, left)

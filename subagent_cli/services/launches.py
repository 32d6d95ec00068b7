"""Launches: starting an agent, or any command, as a run under a keeper.

A run that exists has a keeper from the first moment on, or is proven to have none.
"""

from collections.abc import Mapping

from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.run import RUNNING, Run
from subagent_cli.core.value import Value
from subagent_cli.process import agents as profiles
from subagent_cli.services import prompts, specs, starts
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.roles import PLAIN, Role
from subagent_cli.services.starts import OWN, PLAINLY, Child, Start
from subagent_cli.store.alive import Claim


class Request(Value):
    """What somebody wants to be done, and by whom: an agent, or a command of his own."""

    task: str
    agent: str | None = None
    command: tuple[str, ...] = ()
    cwd: str | None = None
    name: str | None = None
    labels: Mapping[str, str] = specs.NO_LABELS
    model: str | None = None
    args: tuple[str, ...] = ()
    mode: str | None = None
    role: Role = PLAIN
    dispatch: Payload | None = None
    raw: bool = False
    start: Start = PLAINLY


class Launch:
    """A request that has been found good: nothing of it exists yet. It is made, started, and let go of."""

    def __init__(
        self,
        context: Context,
        request: Request,
        *,
        key: str | None = None,
        max_depth: int | None = None,
        group_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        if request.command and (request.model is not None or request.args):
            raise InvalidInput(
                "a model (--model) and more words (--arg) are for agents, not for a command", code="usage"
            )
        self._context, self._key = context, key
        self._profile = profile = starts.profile(context, request.agent, request.command)
        token = context.clock.new_token()
        spec = specs.new_spec(
            context,
            profile.name,
            request.task,
            token,
            cwd=request.cwd,
            name=request.name,
            labels=request.labels,
            role=request.role,
            key=key,
            run_id=run_id,
        )
        self.spec = specs.may_nest(spec, max_depth)
        self.run_id: str = spec["runId"]
        self.spec |= {
            "agentSource": profile.source if request.agent else None,
            "groupId": group_id,
            "model": request.model if request.model is not None else specs.inherited_model(context, spec),
            "agentArgs": list(request.args),
            "mode": request.mode,
            "raw": request.raw,
            "dispatch": request.dispatch,
            "tokenFile": request.start.token_file,
            "sessionId": context.clock.new_id() if profile.session == "own" else None,
            "timeoutSeconds": starts.limit(context, request.start),
        }
        self._prompt = spec["task"] if request.raw else prompts.first(self.spec, spec["task"])
        self._child = Child(context, profile, self.spec, 1, self._prompt, token, request.start)
        self.spec["argv"] = self._child.shown()
        self.spec["program"] = self._child.program
        self._claim = Claim()

    def make(self) -> Run:
        """The run, or the one that was made under the same key before."""
        runs, digest = (
            self._context.runs,
            specs.key_digest("create", self._key, self.spec["parentId"]) if self._key else None,
        )

        def make() -> Run:
            return runs.create(self.spec, self._prompt, RUNNING, self._context.clock.now(), digest, self._claim)

        return runs.keyed(digest, make, self.spec["parentId"]) if digest else make()

    def start(self) -> None:
        self._child.start(self._claim)

    def let_go(self) -> None:
        """The keeper has the lock, or there is none."""
        self._claim.drop()

    @property
    def notes(self) -> list[str]:
        """What the user should know: an agent of his may have the name of a shipped one."""
        profile = self._profile
        if profile.source in ("shipped", OWN) or profile.name not in profiles.load(()):
            return []
        return [f"{profile.name} is not the one that is shipped: {profile.source}"]


def run(
    context: Context,
    request: Request,
    *,
    key: str | None = None,
    link: bool = False,
    max_depth: int | None = None,
) -> Payload:
    """Starts an agent, or any command, on a task and returns at once."""
    context.must_be_a_folder()
    launch = Launch(context, request, key=key, max_depth=max_depth)
    try:
        made = launch.make()
        if made.id == launch.run_id:
            launch.start()
        else:
            specs.same_request(context, made.id, launch.spec)
    finally:
        launch.let_go()
    if link:
        context.runs.link(made.id)
    return {"runId": made.id, "runDirectory": context.runs.layout.run(made.id), "warnings": launch.notes}

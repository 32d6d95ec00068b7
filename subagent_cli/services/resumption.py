"""Going on with a run that has ended: another attempt, with its agent's own memory where it has one."""

from shlex import join

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import InvalidInput, Refused
from subagent_cli.core.event import Resumed
from subagent_cli.core.grant import ADMINISTER
from subagent_cli.core.ids import short
from subagent_cli.core.run import Run
from subagent_cli.process.agents import Agent
from subagent_cli.services import addresses, inboxes, logs, prompts, specs, starts
from subagent_cli.services.context import Context, Payload, token_hash
from subagent_cli.services.leftovers import orphans_of
from subagent_cli.services.starts import PLAINLY, Child, Start
from subagent_cli.store import atomic, codec
from subagent_cli.store.alive import Claim
from subagent_cli.store.reader import Spec


def resume(
    context: Context,
    run: str | None,
    text: str | None,
    *,
    fresh: bool = False,
    key: str | None = None,
    start: Start = PLAINLY,
) -> Payload:
    """Another attempt at an ended run, with its agent's own memory where it has one; without a text, a retry. Who says
    how it starts takes charge of it: whoever may only send to it sends."""
    run_id = addresses.run(context, run, ADMINISTER)
    if text is not None:
        text = context.text(text, "text")
        if not text:
            raise InvalidInput("the text is empty", code="empty_text")
    return attempt(context, run_id, text, fresh=fresh, key=key, start=start)


def attempt(
    context: Context,
    run_id: str,
    text: str | None,
    *,
    fresh: bool = False,
    key: str | None = None,
    start: Start = PLAINLY,
) -> Payload:
    """Starts the next attempt of a run, whoever wants it; refused as long as the last one has not ended."""
    spec = context.runs.spec(run_id)
    if not isinstance(spec.get("argv"), list):
        raise Refused(
            f"run {short(run_id)} was not started by `subagent run`: there is nothing to start again",
            code="not_launched",
        )
    specs.folder(spec["cwd"])
    found = context.runs.read(run_id, context.clock.now())
    if orphans_of(context, run_id):
        raise Refused(
            f"run {short(run_id)} has lost its keeper, but not all of its processes",
            code="run_alive",
            hint="they would work beside the new attempt: end them first",
            next=context.spelled("cancel", short(run_id)),
        )
    log_offset = logs.size(context, run_id)
    claim = Claim()
    try:
        with atomic.io("take over the run"):
            free = found.over and claim.take(context.runs.layout.alive(run_id))
        # With the lock in our hand nobody else starts an attempt, but somebody may have until just now.
        now = context.runs.read(run_id, context.clock.now())
        if key and f"resume {key}" in now.keys:
            context.runs.change(run_id, wanted.Resume("", text or "", "", None, key), context.clock.now)
        elif free and now.attempt == found.attempt:
            _again(context, found, spec, text, fresh, key, start, claim)
        else:
            raise _still_running(context, found)
    finally:
        claim.drop()
    return {"runId": run_id, "runDirectory": context.runs.layout.run(run_id), "logOffset": log_offset}


def _again(
    context: Context, run: Run, spec: Spec, text: str | None, fresh: bool, key: str | None, start: Start, claim: Claim
) -> None:
    own = spec.get("agentSource") is None
    if own:
        profile = starts.own_command(tuple(spec["argv"]))
    else:
        profile = starts.profile(context, spec["agentName"], source=spec["agentSource"])
    start = start._replace(token_file=start.token_file or bool(spec.get("tokenFile")))
    remembers = bool(profile.resume) and not fresh
    session = _session(context, run, profile) if remembers else None
    remembers = session is not None
    if not remembers and profile.session == "own":
        session = context.clock.new_id()
    token = context.clock.new_token()
    spec = {**spec, "sessionId": session, "timeoutSeconds": starts.limit(context, start) or spec.get("timeoutSeconds")}
    news = inboxes.untold(context, run)
    said = prompts.with_news(text or (spec["task"] if spec.get("raw") else prompts.again(run)), news)
    if spec.get("raw"):
        prompt = said
    elif fresh:
        prompt = prompts.first(spec, prompts.with_news(spec["task"], news))
    elif remembers:
        prompt = prompts.remembered(run, said)
    else:
        prompt = prompts.retold(run, spec, said)
    child = Child(context, profile, spec, run.attempt + 1, prompt, token, start, remembers=remembers)
    with atomic.io("write the prompt"):
        atomic.replace(child.prompt_file, codec.encoded(prompt))
    told = tuple(delivery.message_id for delivery in news)
    limit = spec["timeoutSeconds"]
    order = wanted.Resume(join(child.shown()), text or "", token_hash(token), session, key, told, limit)
    change = context.runs.change(run.id, order, context.clock.now)
    if any(isinstance(event, Resumed) for event in change.events):
        child.start(claim)


def _session(context: Context, run: Run, profile: Agent) -> str | None:
    """The session to go on with: the one that we chose, or the one that stands in the agent's output."""
    if profile.session != "output":
        return run.session
    from subagent_cli.process import transcript

    return transcript.session_id(profile.output, logs.edges(context, run.id, "stdout"))


def _still_running(context: Context, run: Run) -> Refused:
    return Refused(
        f"run {short(run.id)} is still running",
        code="run_alive",
        hint="wait for its end, or cancel it first",
        next=context.spelled("wait", short(run.id)),
    )

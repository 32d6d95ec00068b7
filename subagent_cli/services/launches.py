"""Launches: starting an agent under a keeper, and starting it again.

Everything that can be wrong with a request is found before anything exists. A run that exists has a keeper from the
first moment on, or is proven to have none; one whose keeper could not be started has ended.
"""

import os
from collections.abc import Mapping
from shlex import join
from typing import Any, NamedTuple

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import InvalidInput, NotFound, Refused, SubagentError
from subagent_cli.core.event import Resumed
from subagent_cli.core.ids import short
from subagent_cli.core.run import RUNNING, Run
from subagent_cli.process import agents as profiles
from subagent_cli.process import launch
from subagent_cli.process.agents import Agent, Wishes
from subagent_cli.services import addresses, logs, prompts, settings, specs
from subagent_cli.services.context import Context, Payload, token_hash
from subagent_cli.services.leftovers import orphans_of
from subagent_cli.store import alive, atomic, codec
from subagent_cli.store.alive import Claim
from subagent_cli.store.reader import Spec

_NOTHING: Mapping[str, str] = {}
_LONGEST_INPUT = 2_000


class Start(NamedTuple):
    """How an attempt is started: what is not part of the task. `timeout` is in milliseconds."""

    timeout: int | None = None
    env: Mapping[str, str] = _NOTHING
    env_clear: bool = False
    token_file: bool = False


PLAINLY = Start()


def run(
    context: Context,
    task: str,
    *,
    agent: str | None = None,
    command: tuple[str, ...] = (),
    cwd: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] = specs.NO_LABELS,
    key: str | None = None,
    model: str | None = None,
    args: tuple[str, ...] = (),
    raw: bool = False,
    link: bool = False,
    max_depth: int | None = None,
    start: Start = PLAINLY,
) -> Payload:
    """Starts an agent, or any command, on a task and returns at once."""
    context.must_be_a_folder()
    profile = _profile(context, agent, command)
    token = context.clock.new_token()
    spec = specs.new_spec(context, profile.name, task, token, cwd=cwd, name=name, labels=labels, key=key)
    spec = specs.may_nest(spec, max_depth)
    run_id = spec["runId"]
    prompt = spec["task"] if raw else prompts.first(run_id, spec["task"])
    spec |= {
        "agentSource": profile.source if agent else None,
        "model": model,
        "agentArgs": list(args),
        "raw": raw,
        "sessionId": context.clock.new_id() if profile.session == "own" else None,
        "timeoutSeconds": _limit(context, start),
    }
    child = _Child(context, profile, spec, 1, prompt, token, start)
    spec["argv"] = child.shown()
    digest = specs.key_digest(key) if key else None
    claim = Claim()

    def make() -> Run:
        return context.runs.create(spec, prompt, RUNNING, context.clock.now(), digest, claim)

    try:
        made = context.runs.keyed(digest, make) if digest else make()
        if made.id == run_id:
            child.start(claim)
        else:
            specs.same_request(context, made.id, spec)
    finally:
        claim.drop()
    if link:
        context.runs.link(made.id)
    shadowed = profile.source not in ("shipped", _OWN) and profile.name in profiles.load(())
    note = [f"{profile.name} is not the one that is shipped: {profile.source}"] if shadowed else []
    return {**_made(context, made.id), "warnings": note}


def resume(
    context: Context,
    run: str | None,
    text: str | None,
    *,
    fresh: bool = False,
    key: str | None = None,
    start: Start = PLAINLY,
) -> Payload:
    """Another attempt at an ended run, with its agent's own memory where it has one; without a text, a retry."""
    run_id = addresses.run(context, run)
    if text is not None:
        text = context.text(text, "text")
        if not text:
            raise InvalidInput("the text is empty", code="empty_text")
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
    return {**_made(context, run_id), "logOffset": log_offset}


def _again(
    context: Context, run: Run, spec: Spec, text: str | None, fresh: bool, key: str | None, start: Start, claim: Claim
) -> None:
    own = spec.get("agentSource") is None
    profile = _command(tuple(spec["argv"])) if own else _profile(context, spec["agentName"], ())
    remembers = bool(profile.resume) and not fresh
    session = _session(context, run, profile) if remembers else None
    remembers = session is not None
    if not remembers and profile.session == "own":
        session = context.clock.new_id()
    token = context.clock.new_token()
    spec = {**spec, "sessionId": session, "timeoutSeconds": _limit(context, start) or spec.get("timeoutSeconds")}
    if spec.get("raw"):
        prompt = text or spec["task"]
    elif fresh:
        prompt = prompts.first(run.id, spec["task"])
    elif remembers:
        prompt = prompts.remembered(run, text or prompts.again(run))
    else:
        prompt = prompts.retold(run, spec["task"], text or prompts.again(run))
    child = _Child(context, profile, spec, run.attempt + 1, prompt, token, start, remembers=remembers)
    with atomic.io("write the prompt"):
        atomic.replace(child.prompt_file, codec.encoded(prompt))
    order = wanted.Resume(join(child.shown()), text or "", token_hash(token), session, key)
    change = context.runs.change(run.id, order, context.clock.now)
    if any(isinstance(event, Resumed) for event in change.events):
        child.start(claim)


class _Child:
    """One attempt on its way to its keeper."""

    def __init__(
        self,
        context: Context,
        profile: Agent,
        spec: Spec,
        attempt: int,
        prompt: str,
        token: str,
        start: Start,
        *,
        remembers: bool = False,
    ) -> None:
        self._context, self._profile, self._spec, self._attempt = context, profile, spec, attempt
        self._token, self._start, self._prompt = token, start, prompt
        layout, run_id = context.runs.layout, spec["runId"]
        root = os.path.abspath(layout.root)
        self.prompt_file = os.path.join(root, os.path.relpath(layout.prompt_of(run_id, attempt), layout.root))
        wishes = Wishes(
            cwd=spec["cwd"],
            runs_dir=root,
            run_dir=os.path.join(root, run_id),
            run_id=run_id,
            session=spec.get("sessionId"),
            model=spec.get("model"),
            args=tuple(spec.get("agentArgs") or ()),
            prompt_file=self.prompt_file,
            prompt=prompt,
        )
        own = profile.source == _OWN
        self._argv = list(profile.command) if own else profiles.words(profile, wishes, resume=remembers)
        masked = wishes._replace(prompt="{prompt}")
        self._shown = self._argv if own else profiles.words(profile, masked, resume=remembers)
        self._env = self._environment(root, {} if own else profiles.variables(profile, wishes))
        self._program = _program(self._argv[0], self._env["PATH"], spec["cwd"])

    def shown(self) -> list[str]:
        """The command as others may see it."""
        return self._shown

    def start(self, claim: Claim) -> None:
        """Starts the keeper; where that fails the run has ended, and says so."""
        context, run_id = self._context, self._spec["runId"]
        task = self._spec["task"]
        shown = task if len(task) <= _LONGEST_INPUT else f"{task[:_LONGEST_INPUT]} …"
        log_from = logs.size(context, run_id)
        context.runs.log(
            run_id,
            f"Starting {self._spec['agentName']} with input: {shown}",
            f"Command: {join(self._shown)}",
            now=context.clock.now(),
        )
        layout = context.runs.layout
        try:
            with atomic.io("start the keeper"):
                if self._start.token_file:
                    atomic.replace(layout.token(run_id), self._token.encode())
                wake = alive.listen(layout, run_id)
            try:
                launch.start({**self._orders(), "log_from": log_from}, claim.fd, wake)
            finally:
                os.close(wake)
        except SubagentError as error:
            verdict = wanted.Exit(self._attempt, 127, error.message)
            context.runs.change(run_id, verdict, context.clock.now)
            raise

    def _orders(self) -> dict[str, Any]:
        found, layout, run_id = self._context.settings, self._context.runs.layout, self._spec["runId"]
        return {
            "root": os.path.abspath(layout.root),
            "run": run_id,
            "attempt": self._attempt,
            "program": self._program,
            "argv": self._argv,
            "env": self._env,
            "cwd": self._spec["cwd"],
            "stdin": self.prompt_file if self._profile.prompt == "stdin" else None,
            "log": os.path.abspath(layout.log(run_id)),
            "wake": os.path.abspath(layout.wake(run_id)),
            "token_file": os.path.abspath(layout.token(run_id)),
            "token": self._token,
            "output": self._profile.output,
            "timeout": self._spec["timeoutSeconds"],
            "stop_grace": found["stop_grace"].value / 1000,
            "submit_grace": found["submit_grace"].value / 1000,
            "lock_timeout": found["lock_timeout"].value / 1000,
            "ttl": found["question_ttl"].value,
            "log_limit": found["log_limit"].value,
        }

    def _environment(self, root: str, own: Mapping[str, str]) -> dict[str, str]:
        """What the agent gets: the caller's variables, who it is, and `subagent` on its PATH."""
        deny = self._context.settings["env_deny"].value
        base = {} if self._start.env_clear else settings.inherited(deny)
        run_id = self._spec["runId"]
        token = {"SUBAGENT_TOKEN": self._token}
        if self._start.token_file:
            token = {"SUBAGENT_TOKEN_FILE": os.path.abspath(self._context.runs.layout.token(run_id))}
        return {
            **base,
            "NO_COLOR": "1",
            "TERM": "dumb",
            **own,
            **self._start.env,
            "PATH": _with_ourselves(self._start.env.get("PATH") or base.get("PATH") or os.defpath),
            "SUBAGENT_RUN_ID": run_id,
            "SUBAGENT_RUNS_DIR": root,
            "SUBAGENT_PARENT": self._spec["parentId"] or "",
            "SUBAGENT_DEPTH": str(self._spec["depth"]),
            **token,
        }


_OWN = "command"


def _profile(context: Context, agent: str | None, command: tuple[str, ...]) -> Agent:
    if agent is None:
        return _command(command)
    if not agent:
        raise InvalidInput("the agent needs a name", code="invalid_agent")
    from subagent_cli.services import agents

    return profiles.find(agents.known(context), agent)


def _command(words: tuple[str, ...]) -> Agent:
    """Any command as an agent: its words are taken as they are, and its prompt comes on standard input."""
    if not words or not words[0]:
        raise InvalidInput("there is no command behind --", code="no_command")
    if not words[0].isprintable():
        raise InvalidInput(f"not the name of a program: {words[0][:40]!r}", code="no_command")
    return Agent(os.path.basename(words[0]) or words[0], words, source=_OWN)


def _program(word: str, path: str, cwd: str) -> str:
    """The file that is run. Found now, so that a mistake is told before anything exists."""
    from shutil import which

    found = which(os.path.join(cwd, word) if os.sep in word else word, path=path)
    if found is None:
        where = " on the PATH" if os.sep not in word else "" if os.path.isabs(word) else f" in {cwd}"
        raise NotFound(
            f"there is no program {word[:80]!r}{where}",
            code="program_not_found",
            hint="subagent agents shows which agents are installed",
        )
    return os.path.abspath(found)


def _with_ourselves(path: str) -> str:
    """PATH, with the folder of our own command at its end where no other place in it has one."""
    from shutil import which

    if which("subagent", path=path):
        return path
    own = settings.own_folder()
    return f"{path}{os.pathsep}{own}" if own else path


def _limit(context: Context, start: Start) -> float | None:
    limit: int | None = start.timeout if start.timeout is not None else context.settings["run_timeout"].value
    return limit / 1000 if limit is not None else None


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


def _made(context: Context, run_id: str) -> Payload:
    return {"runId": run_id, "runDirectory": context.runs.layout.run(run_id)}

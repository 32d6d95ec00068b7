"""One attempt on its way to its keeper: which program, which words, which environment.

Everything that can be wrong with it is found here, before anything exists. An attempt whose keeper could not be started
has ended, and says so.
"""

import os
from collections.abc import Mapping
from shlex import join
from typing import Any

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import InvalidInput, NotFound, SubagentError
from subagent_cli.core.transition import TIMED_OUT_TEXT
from subagent_cli.core.value import Value
from subagent_cli.process import agents as profiles
from subagent_cli.process import launch
from subagent_cli.process.agents import Agent, Wishes
from subagent_cli.services import attachment, logs, settings
from subagent_cli.services.context import Context
from subagent_cli.store import alive, atomic
from subagent_cli.store.alive import Claim
from subagent_cli.store.reader import Spec

OWN = "command"
_NOTHING: Mapping[str, str] = {}
_LONGEST_INPUT = 2_000


class Start(Value):
    """How an attempt is started: what is not part of the task. `timeout` is in milliseconds; what `deny`
    names of the caller's variables is not handed on."""

    timeout: int | None = None
    env: Mapping[str, str] = _NOTHING
    env_clear: bool = False
    token_file: bool = False
    timeout_text: str = TIMED_OUT_TEXT
    deny: tuple[str, ...] = ()


PLAINLY = Start()


class Child:
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
        self.prompt_file = os.path.abspath(layout.prompt_of(run_id, attempt))
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
            mcp=attachment.placeholders() if profile.mcp and attachment.wanted(context) else None,
        )
        own = profile.source == OWN
        self._argv = list(profile.command) if own else profiles.words(profile, wishes, resume=remembers)
        masked = wishes._replace(prompt="{prompt}")
        self._shown = self._argv if own else profiles.words(profile, masked, resume=remembers)
        self._env = self._environment(root, {} if own else profiles.variables(profile, wishes))
        self.program = _program(self._argv[0], self._env["PATH"], spec["cwd"])
        if spec.get("program") and os.path.basename(spec["program"]) == os.path.basename(self._argv[0]):
            # The one that it was started with: whoever starts a later attempt does not choose another by his PATH.
            self.program = spec["program"] if os.access(spec["program"], os.X_OK) else self.program

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
            if context.runs.read(run_id, context.clock.now()).stop is not None:
                # Somebody was so quick to cancel it that there was nobody yet to be told.
                alive.nudge(layout, run_id)
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
            "program": self.program,
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
            "timeout_text": self._start.timeout_text,
            "stop_grace": found["stop_grace"].value / 1000,
            "submit_grace": found["submit_grace"].value / 1000,
            "lock_timeout": found["lock_timeout"].value / 1000,
            "ttl": found["question_ttl"].value,
            "log_limit": found["log_limit"].value,
            # A throwaway child is gone when it has ended.
            "again": None if self._spec.get("dispatch") else [*settings.as_options(found), "wake", run_id],
        }

    def _agents(self) -> dict[str, str]:
        """What an agent may start in turn is defined where its own was."""
        file = self._context.settings["agents"].value
        return {"SUBAGENT_AGENTS": file} if file else {}

    def _environment(self, root: str, own: Mapping[str, str]) -> dict[str, str]:
        """What the agent gets: the caller's variables, who it is, and `subagent` on its PATH."""
        for name, value in self._start.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise InvalidInput(f"not a variable: {name[:40]!r}", code="invalid_env")
        deny = self._context.settings["env_deny"].value
        base = {} if self._start.env_clear else settings.inherited((*deny, *self._start.deny))
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
            **self._agents(),
            **token,
        }


def profile(context: Context, agent: str | None, command: tuple[str, ...] = (), source: str | None = None) -> Agent:
    """The agent of this name, or a command as one. `source` is the file in which it was found before."""
    if agent is not None and command:
        raise InvalidInput("an agent or a command, not both", code="usage")
    if agent is None:
        return own_command(command)
    if not agent:
        raise InvalidInput("the agent needs a name", code="invalid_agent")
    from subagent_cli.services import agents

    return profiles.find(agents.known(context, source), agent)


def own_command(words: tuple[str, ...]) -> Agent:
    """Any command as an agent: its words are taken as they are, and its prompt comes on standard input."""
    if not words or not words[0]:
        raise InvalidInput("neither an agent nor a command is named", code="no_command")
    if not words[0].isprintable():
        raise InvalidInput(f"not the name of a program: {words[0][:40]!r}", code="no_command")
    return Agent(os.path.basename(words[0]) or words[0], words, source=OWN)


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


def limit(context: Context, start: Start) -> float | None:
    """The time limit in seconds."""
    ms: int | None = start.timeout if start.timeout is not None else context.settings["run_timeout"].value
    return ms / 1000 if ms is not None else None

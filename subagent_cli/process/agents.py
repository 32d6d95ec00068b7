"""Agents as data: what to start, how the prompt reaches it, how it goes on with an earlier session.

A file is taken whole or refused, naming the file and the agent. Placeholders are filled once and from left to right, so
that no text of a user is taken for one; braces that are no placeholder stay as they are.
"""

import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from subagent_cli.core.errors import InvalidInput, Refused
from subagent_cli.core.ids import is_label
from subagent_cli.core.value import Value
from subagent_cli.process.transcript import FORMS

LONGEST_ARGUMENT = 100_000
PRESETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agents.toml")
_ARGS = "{args}"
_EVERYWHERE = ("cwd", "prompt_file", "run_dir", "run_id", "runs_dir", "session")
_MCP = ("mcp_args", "mcp_command", "mcp_config")
_SOMEWHERE = (*_EVERYWHERE, *_MCP, "args", "model", "prompt")


class Agent(Value):
    name: str
    command: tuple[str, ...]
    prompt: str = "stdin"
    resume: tuple[str, ...] = ()
    session: str | None = None
    model: tuple[str, ...] = ()
    output: str = "text"
    mcp: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    source: str = "shipped"


class Wishes(Value):
    """What one attempt is to be started with. `mcp` is how our MCP server is named to it, if it is to have it."""

    cwd: str
    runs_dir: str
    run_dir: str
    run_id: str
    session: str | None
    model: str | None
    args: tuple[str, ...]
    prompt_file: str
    prompt: str
    mcp: Mapping[str, str] | None = None


def load(paths: Sequence[str]) -> dict[str, Agent]:
    """Every agent by name: an earlier file goes before a later one, the shipped presets come last."""
    found: dict[str, Agent] = {}
    for path in (*paths, PRESETS):
        for name, table in _tables(path).items():
            try:
                agent = _agent(name, table, path)
            except InvalidInput as error:
                raise _wrong(f"{path}: agent {name[:40]!r}: {error.message}", error.candidates) from error
            found.setdefault(name, agent)
    return found


def find(agents: Mapping[str, Agent], name: str) -> Agent:
    if name in agents:
        return agents[name]
    raise InvalidInput(
        f"Unknown subagent: {name}",
        code="unknown_agent",
        candidates=_close(name, agents),
        hint="subagent agents lists them; `run --name N TASK -- CMD…` runs any command",
    )


def words(agent: Agent, wishes: Wishes, *, resume: bool = False) -> list[str]:
    """The command line of an attempt."""
    line = agent.resume if resume else agent.command
    if not line:
        raise Refused(f"{agent.name} cannot go on with an earlier session", code="cannot_resume")
    values = _values(agent, wishes, line)
    if agent.prompt == "arg":
        values["prompt"] = _argument(wishes)
    server = [_filled(word, {**values, **wishes.mcp}) for word in agent.mcp] if wishes.mcp else []
    more = [*_model(agent, wishes, values), *server, *wishes.args]
    if _ARGS not in line:
        at = next((at for at, word in enumerate(line) if "prompt" in _used(word)), len(line))
        line = (*line[:at], _ARGS, *line[at:])
    at = line.index(_ARGS)
    filled = [_filled(word, values) for word in line]
    return [*filled[:at], *more, *filled[at + 1 :]]


def variables(agent: Agent, wishes: Wishes) -> dict[str, str]:
    """What its environment has beside that of every agent."""
    values = _values(agent, wishes, agent.env.values())
    return {name: _filled(value, values) for name, value in agent.env.items()}


def installed(agent: Agent, path: str) -> str | None:
    """Where its program lies, looked for in the folders of `path`."""
    from shutil import which

    return which(agent.command[0], path=path)


def _values(agent: Agent, wishes: Wishes, texts: Iterable[str]) -> dict[str, str]:
    if wishes.session is None and any("session" in _used(text) for text in texts):
        raise Refused(f"no session of {agent.name} is known", code="no_session")
    return {name: getattr(wishes, name) or "" for name in _EVERYWHERE}


def _argument(wishes: Wishes) -> str:
    """The prompt as one word, where it can be one."""
    if "\0" in wishes.prompt or len(wishes.prompt.encode("utf-8", "replace")) > LONGEST_ARGUMENT:
        return f"Your task is in the file {wishes.prompt_file}: read all of it and do what it says."
    return wishes.prompt


def _model(agent: Agent, wishes: Wishes, values: Mapping[str, str]) -> list[str]:
    if wishes.model is None:
        return []
    if not agent.model:
        raise InvalidInput(
            f"{agent.name} does not say how it takes a model",
            code="no_model_option",
            hint="give the program's own option with --arg",
        )
    return [_filled(word, {**values, "model": wishes.model}) for word in agent.model]


def _filled(text: str, values: Mapping[str, str]) -> str:
    head, *rest = text.split("{")
    filled = [head]
    for part in rest:
        name, brace, tail = part.partition("}")
        filled.append(values[name] + tail if brace and name in values else "{" + part)
    return "".join(filled)


def _used(text: str) -> set[str]:
    """Names between braces, whether or not they are placeholders."""
    return {part.partition("}")[0] for part in text.split("{")[1:] if "}" in part}


def _close(word: str, known: Iterable[str]) -> Sequence[str]:
    from difflib import get_close_matches

    names = sorted(known)
    return get_close_matches(word, names) or names


def _wrong(message: str, candidates: Sequence[str] = ()) -> InvalidInput:
    return InvalidInput(message, code="invalid_agent_file", candidates=candidates)


def _tables(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(f"{path} cannot be read: {error}") from error
    for key in content:
        if key != "agents":
            raise _wrong(f"{path}: unknown table {key[:40]!r}", ("agents",))
    tables = content.get("agents", {})
    if not isinstance(tables, dict):
        raise _wrong(f"{path}: agents are tables like [agents.NAME]")
    return tables


def _agent(name: str, table: Any, path: str) -> Agent:
    if not is_label(name):
        raise _wrong("a name has letters, digits, dots, dashes and underscores")
    if not isinstance(table, dict):
        raise _wrong(f"an agent is a table, not {str(table)[:40]!r}")
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise _wrong(f"unknown key {key[:40]!r}", _close(key, _KEYS))
        given[key] = _KEYS[key](key, value)
    if not given.get("command"):
        raise _wrong("it has no command")
    agent = Agent(name, source="shipped" if path == PRESETS else path, **given)
    _check(agent)
    return agent._replace(command=_placed(agent.command, path), resume=_placed(agent.resume, path))


def _line(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) and "\0" not in word for word in value):
        raise _wrong(f"{key} is a list of words")
    return tuple(value)


def _variables(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(f"{key} is a table")
    for name, text in value.items():
        if not name or "=" in name or not isinstance(text, str) or "\0" in name + text:
            raise _wrong(f"{key}: not a variable with a text: {name[:40]!r}")
    return dict(value)


def _one_of(*choices: str) -> Callable[[str, Any], str]:
    def parse(key: str, value: Any) -> str:
        if value not in choices:
            raise _wrong(f"{key} cannot be {str(value)[:40]!r}", choices)
        return str(value)

    return parse


_KEYS: dict[str, Callable[[str, Any], Any]] = {
    "command": _line,
    "prompt": _one_of("stdin", "arg", "file"),
    "resume": _line,
    "session": _one_of("own", "output"),
    "model": _line,
    "mcp": _line,
    "output": _one_of(*FORMS),
    "env": _variables,
}


def _check(agent: Agent) -> None:
    """That every placeholder is one, stands where it has a meaning, and that none is missing."""
    allowed = {*_EVERYWHERE, *(("prompt",) if agent.prompt == "arg" else ())}
    if agent.session is None:
        allowed.remove("session")
    # A session that the output will name is not known when the first attempt starts.
    early = allowed - ({"session"} if agent.session == "output" else set())
    for key, line, names in (
        ("command", agent.command, early),
        ("resume", agent.resume, allowed),
        ("model", agent.model, {*early, "model"} - {"prompt"}),
        ("mcp", agent.mcp, {*early, *_MCP} - {"prompt"}),
        ("env", tuple(agent.env.values()), early - {"prompt"}),
    ):
        lone = key in ("command", "resume")
        for word in line:
            _check_word(key, word, {*names, "args"} if lone and word == _ARGS else names)
        if lone and line and (line.count(_ARGS) > 1 or not line[0] or _used(line[0]) & {"args", "prompt"}):
            raise _wrong(f"{key} begins with a program and has {_ARGS} once at most")
    needed = {"arg": "prompt", "file": "prompt_file"}.get(agent.prompt)
    for key, line in (("command", agent.command), ("resume", agent.resume)):
        if line and needed and not any(needed in _used(word) for word in line):
            raise _wrong(f"{key} has no {{{needed}}}, so the prompt would not reach it")
    if agent.model and not any("model" in _used(word) for word in agent.model):
        raise _wrong("model has no {model}")


def _check_word(key: str, word: str, names: Iterable[str]) -> None:
    for name in sorted(_used(word)):
        alone = word == f"{{{name}}}" and name.isidentifier()
        if name not in names and (alone or name in _SOMEWHERE):
            raise _wrong(f"{key} cannot use the placeholder {{{name[:40]}}}", _close(name, names))


def _placed(line: tuple[str, ...], path: str) -> tuple[str, ...]:
    """A program that is named by its place, which counts from where the file lies."""
    if not line or os.sep not in line[0] or line[0].startswith("{"):
        return line
    folder = os.path.dirname(os.path.abspath(path))
    return (os.path.normpath(os.path.join(folder, os.path.expanduser(line[0]))), *line[1:])

"""Settings, and where each came from. The only module that reads the environment.

In this order: an option, an environment variable, the project's `subagent.toml` (here or in a folder above), the
user's `config.toml`, the default.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from subagent_cli.core.errors import Denied, InvalidInput
from subagent_cli.core.ids import is_uuid
from subagent_cli.core.moment import duration, spelled
from subagent_cli.core.value import Value

PROJECT_FILE = "subagent.toml"


class Setting(Value):
    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str
    show: Callable[[Any], str] = str

    @property
    def variable(self) -> str:
        return f"SUBAGENT_{self.name.upper()}"


class Found(Value):
    value: Any
    source: str


class Caller(Value):
    """Who calls, as far as the environment says: the run it names, and the token that proves it."""

    run_id: str | None = None
    token: str | None = None


def _folder(text: str) -> str:
    if not text or "\0" in text:
        raise InvalidInput("the runs directory has no name")
    return os.path.abspath(os.path.expanduser(text))


def _file(text: str) -> str:
    return os.path.abspath(os.path.expanduser(text))


def _output(text: str) -> str:
    if text not in ("text", "json"):
        raise InvalidInput(f"not an output form: {text[:40]!r}", candidates=("text", "json"))
    return text


def _size(text: str) -> int:
    if not text.isdecimal() or not 0 < len(text) < 16 or int(text) < 1:
        raise InvalidInput(f"not a number of bytes: {text[:40]!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or not 0 < int(text) < 100:
        raise InvalidInput(f"not a number from 1 to 99: {text[:40]!r}")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in ("on", "off", "true", "false"):
        raise InvalidInput(f"not a switch: {text[:40]!r}", candidates=("on", "off"))
    return text.lower() in ("on", "true")


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


SETTINGS = (
    Setting("runs_dir", _folder, None, "where the runs lie"),
    Setting("output", _output, "text", "text or json"),
    Setting("lock_timeout", duration, 10_000, "how long to wait for a busy run", spelled),
    Setting("question_ttl", duration, 86_400_000, "the age at which an unanswered question expires", spelled),
    Setting("answer_timeout", duration, 300_000, "how long to wait for an answer or a question", spelled),
    Setting("agents", _file, None, "a file that defines agents, before all others", lambda path: path or "none"),
    Setting("run_timeout", duration, None, "how long a run may take", lambda ms: "none" if ms is None else spelled(ms)),
    Setting("stop_grace", duration, 5_000, "what a process that is stopped gets to end by itself", spelled),
    Setting("submit_grace", duration, 30_000, "what a process gets to end after its outcome was submitted", spelled),
    Setting("max_depth", _count, 1, "how deep runs may start runs: 1 means that a run starts none"),
    Setting("max_children", _count, 10, "how many children one spawn may start"),
    Setting("max_wakes", _count, 3, "how often an agent is started for a message that it does not reply to"),
    Setting("env_deny", _patterns, (), "variables that agents do not get, e.g. AWS_*,SECRET", ",".join),
    Setting("attach_mcp", _switch, True, "whether agents get our MCP server", lambda on: "on" if on else "off"),
    Setting("log_limit", _size, 67_108_864, "the longest log of one attempt, in bytes"),
    Setting("max_workspace", _size, 536_870_912, "the largest folder that `dispatch` copies for a child, in bytes"),
    Setting("max_text", _size, 1_048_576, "the longest question, answer, note or summary, in bytes"),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def load(options: Mapping[str, str | None]) -> dict[str, Found]:
    """Every setting, with its source."""
    environment = os.environ
    files = _files(environment)
    found: dict[str, Found] = {}
    for setting in SETTINGS:
        given = options.get(setting.name)
        variable = environment.get(setting.variable)
        if given is not None:
            found[setting.name] = Found(_parsed(setting, given, "option"), "option")
        elif variable:
            found[setting.name] = Found(_parsed(setting, variable, setting.variable), setting.variable)
        else:
            for path, table in files:
                if setting.name in table:
                    found[setting.name] = Found(_parsed(setting, _in_file(setting, table, path), path), path)
                    break
            else:
                found[setting.name] = Found(setting.default, "default")
    if found["runs_dir"].value is None:
        found["runs_dir"] = _default_runs_dir(environment)
    return found


def as_options(found: Mapping[str, Found]) -> list[str]:
    """The settings that are not the usual ones, as options for another call of ours, wherever that is made."""
    words = ["--runs-dir", os.path.abspath(found["runs_dir"].value)]
    for setting in SETTINGS:
        value, source = found[setting.name]
        if source != "default" and value is not None and setting.name not in ("runs_dir", "output"):
            words += ["--set", f"{setting.name}={setting.show(value)}"]
    return words


def wants_json() -> bool:
    """Whether the whole session asks for JSON, for errors that come before the settings are known."""
    try:
        return bool(load({})["output"].value == "json")
    except InvalidInput:
        return os.environ.get("SUBAGENT_OUTPUT") == "json"


def wants_debug() -> bool:
    return bool(os.environ.get("SUBAGENT_DEBUG"))


def caller() -> Caller:
    return Caller(os.environ.get("SUBAGENT_RUN_ID") or None, os.environ.get("SUBAGENT_TOKEN") or _token_in_file())


def within_a_run() -> bool:
    """Whether we were started below an agent of ours, whatever else its program handed on."""
    return bool(os.environ.get("SUBAGENT_DEPTH"))


def inherited(deny: Sequence[str]) -> dict[str, str]:
    """The caller's variables as an agent gets them: without those that are ours, and without those that are denied."""
    from fnmatch import fnmatchcase

    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SUBAGENT_") and not any(fnmatchcase(name, pattern) for pattern in deny)
    }


def own_folder() -> str | None:
    """Where our own command lies, as far as can be told."""
    for folder in (os.path.dirname(os.path.abspath(sys.argv[0])), os.path.dirname(sys.executable)):
        if os.access(os.path.join(folder, "subagent"), os.X_OK) and os.path.isfile(os.path.join(folder, "subagent")):
            return folder
    return None


def _token_in_file() -> str | None:
    path = os.environ.get("SUBAGENT_TOKEN_FILE")
    if not path:
        return None
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(256).strip()
    except (OSError, ValueError) as error:
        raise Denied(f"the token cannot be read from SUBAGENT_TOKEN_FILE: {error}") from error
    if not token:
        raise Denied("the file that SUBAGENT_TOKEN_FILE names is empty")
    return token


def is_ours(folder: str) -> bool:
    """Whether a folder called `runs` is a runs directory, and not that of some other program."""
    if os.path.isdir(os.path.join(folder, ".index")):
        return True
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    return names <= {"README.md", ".gitignore", ".gitkeep"} or any(map(is_uuid, names))


def _parsed(setting: Setting, text: str, source: str) -> Any:
    try:
        return setting.parse(text)
    except InvalidInput as error:
        raise InvalidInput(
            f"{setting.name} ({source}): {error.message}",
            code="invalid_setting",
            hint=error.hint,
            candidates=error.candidates,
        ) from error


def _in_file(setting: Setting, table: Mapping[str, Any], path: str) -> str:
    """A value of a file as the text that an option would be; a folder counts from where the file lies."""
    value = table[setting.name]
    if isinstance(value, bool) and setting.parse is _switch:
        return "on" if value else "off"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidInput(f"{path}: a setting is a text or a number, not {str(value)[:40]!r}", code="invalid_setting")
    if setting.parse in (_folder, _file):
        return os.path.join(os.path.dirname(path), os.path.expanduser(str(value)))
    return str(value)


def _upwards() -> list[str]:
    """This folder and those above it."""
    try:
        folder = os.getcwd()
    except OSError:
        return []
    folders = [folder]
    while (above := os.path.dirname(folder)) != folder:
        folder = above
        folders.append(folder)
    return folders


def _home(environment: Mapping[str, str], variable: str, *fallback: str) -> str:
    """A folder of the user's, by the conventions of the desktop."""
    base = environment.get(variable)
    return os.path.join(base if base else os.path.join(os.path.expanduser("~"), *fallback), "subagent")


def _default_runs_dir(environment: Mapping[str, str]) -> Found:
    for folder in _upwards():
        candidate = os.path.join(folder, "runs")
        if is_ours(candidate):
            return Found(candidate, "found here" if folder == os.getcwd() else "found above")
    return Found(os.path.join(_home(environment, "XDG_STATE_HOME", ".local", "state"), "runs"), "default")


def _files(environment: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    paths = [os.path.join(folder, PROJECT_FILE) for folder in _upwards()]
    paths = [path for path in paths if os.path.isfile(path)][:1]
    named = environment.get("SUBAGENT_CONFIG")
    if named and not os.path.isfile(named):
        raise InvalidInput(f"SUBAGENT_CONFIG names a file that is not there: {named}", code="invalid_setting")
    user = named or os.path.join(_home(environment, "XDG_CONFIG_HOME", ".config"), "config.toml")
    if os.path.isfile(user):
        paths.append(user)
    return [(path, _table(path)) for path in paths]


def _table(path: str) -> Mapping[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}", code="invalid_setting") from error
    for name in table:
        if name not in BY_NAME:
            raise InvalidInput(
                f"{path}: unknown setting {name[:40]!r}", code="invalid_setting", candidates=tuple(BY_NAME)
            )
    return table


def agent_files(named: Found) -> list[str]:
    """Files that define agents, the one that goes first in front; the shipped agents come after all of them."""
    if named.value and not os.path.isfile(named.value):
        raise InvalidInput(
            f"agents ({named.source}) names a file that is not there: {named.value}", code="invalid_setting"
        )
    above = [os.path.join(folder, "agents.toml") for folder in _upwards()]
    project = [path for path in above if os.path.isfile(path)][:1]
    user = os.path.join(_home(os.environ, "XDG_CONFIG_HOME", ".config"), "agents.toml")
    files = [*([named.value] if named.value else []), *project, *([user] if os.path.isfile(user) else [])]
    return list(dict.fromkeys(files))


def program_path() -> str:
    """The folders in which the caller's programs are looked for."""
    return os.environ.get("PATH") or os.defpath

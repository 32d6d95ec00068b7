"""What is asked of a run: checked before anything exists, and written down once when the run is made."""

import os
from collections.abc import Mapping, Sequence

from subagent_cli.core.errors import Denied, InvalidInput, Refused
from subagent_cli.core.ids import is_label, is_uuid, short
from subagent_cli.services.context import Context, Payload, token_hash
from subagent_cli.services.roles import PLAIN, Role
from subagent_cli.store.reader import Spec

LONGEST_LABEL = 256
NO_LABELS: Mapping[str, str] = {}
_SAME = ("agentName", "agentSource", "task", "name", "labels", "type", "inputSchema", "outputSchema")
_SAME_LAUNCH = ("cwd", "model", "agentArgs", "mode", "raw")


def new_spec(
    context: Context,
    agent: str,
    task: str,
    token: str,
    *,
    cwd: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] = NO_LABELS,
    role: Role = PLAIN,
    key: str | None = None,
    run_id: str | None = None,
) -> Spec:
    """The spec of a run whose process somebody else starts; whoever starts it himself fills in more."""
    if not agent or not agent.isprintable():
        raise InvalidInput("the agent needs a name", code="invalid_agent")
    if not task.strip():
        raise InvalidInput("the task is empty", code="empty_text")
    if name is not None and (not is_label(name) or is_uuid(name)):
        raise bad_name(name)
    labels = {key: _label(context, key, value) for key, value in labels.items()}
    parent = context.caller.run_id if context.caller.token else None
    above = context.runs.spec(parent) if parent else {}
    return {
        "version": 1,
        "runId": run_id or context.clock.new_id(),
        "agentName": context.text(agent, "agent"),
        "agentSource": None,
        "task": context.text(task, "task"),
        "argv": None,
        "program": None,
        "cwd": folder(cwd),
        "model": None,
        "agentArgs": [],
        "mode": None,
        "raw": False,
        "tokenFile": False,
        "sessionId": None,
        "name": name,
        "type": role.type,
        "inputSchema": _form(context, role.input_schema, "input schema"),
        "outputSchema": _form(context, role.output_schema, "output schema"),
        "parentId": parent,
        "groupId": None,
        "depth": above.get("depth", 0) + 1,
        "maxDepth": above.get("maxDepth") if parent else context.settings["max_depth"].value,
        "timeoutSeconds": None,
        "tokenHash": token_hash(token),
        "labels": labels,
        "dispatch": None,
        "key": key,
        "createdAt": context.clock.now().iso,
    }


def folder(cwd: str | None) -> str:
    """The folder to work in, which is there and can be entered."""
    try:
        path = os.path.abspath(cwd) if cwd is not None else os.getcwd()
    except FileNotFoundError as error:
        raise InvalidInput("the folder that you are in is gone", code="bad_cwd", hint="name one with --cwd") from error
    if cwd == "" or not os.path.isdir(path):
        what = "not a folder" if os.path.lexists(path) and cwd else "not there"
        raise InvalidInput(f"the working folder is {what}: {cwd!r}", code="bad_cwd")
    if not os.access(path, os.X_OK):
        raise InvalidInput(f"the working folder cannot be entered: {cwd!r}", code="bad_cwd")
    return path


def may_nest(spec: Spec, max_depth: int | None) -> Spec:
    """The spec with the depth that its tree may have; refused where the run would be too deep in it."""
    if spec["parentId"] is None:
        return {**spec, "maxDepth": spec["maxDepth"] if max_depth is None else max_depth}
    if max_depth is not None:
        raise Denied("how deep a tree may be is said by whoever starts it", hint="leave --max-depth out")
    limit = spec["maxDepth"] or 1
    if spec["depth"] > limit:
        raise Refused(
            f"a run at depth {spec['depth'] - 1} may not start another: the limit of this tree is {limit}",
            code="depth_exceeded",
            hint="do it yourself, or ask your parent; whoever starts the tree can raise it with --max-depth",
        )
    return spec


def inherited_model(context: Context, spec: Spec) -> str | None:
    """The model of the run that starts this one, where both are of the same agent: another one may not know it."""
    above = context.runs.spec(spec["parentId"]) if spec["parentId"] else {}
    return above.get("model") if above.get("agentName") == spec["agentName"] else None


def labels_of(spec: Spec) -> dict[str, str]:
    labels = spec.get("labels")
    items = labels.items() if isinstance(labels, dict) else ()
    return {key: value for key, value in items if isinstance(value, str)}


def bad_name(name: str) -> InvalidInput:
    return InvalidInput(
        f"not a name for a run: {name[:40]!r}", code="invalid_name", hint="letters, digits, dot, dash, underscore"
    )


def key_digest(verb: str, key: str, agent: str | None) -> str:
    """What a key is filed under: everybody has keys of his own, and so has every verb."""
    try:
        return token_hash(f"{verb} {agent or ''} {key}")[:32]
    except UnicodeEncodeError as error:
        raise InvalidInput("the key is not valid UTF-8", code="not_utf8") from error


def same_request(context: Context, run_id: str, spec: Spec) -> None:
    """Whether the run that a key led to is the one that is asked for now."""
    earlier, launched = context.runs.spec(run_id), spec["argv"] is not None
    fields = (*_SAME, *_SAME_LAUNCH) if launched else _SAME
    # A command of the caller's own is compared word by word; an agent's has ids in it that differ from run to run.
    own = launched and spec["agentSource"] is None
    same = (earlier.get("argv") == spec["argv"]) if own else (earlier.get("argv") is not None) == launched
    if not same or any(earlier.get(field) != spec[field] for field in fields):
        raise key_reused(run_id)


def key_reused(identifier: str, what: str = "run") -> Refused:
    return Refused(
        f"the key was used for another {what}: {short(identifier)}",
        code="key_reused",
        hint="a key belongs to one request: repeat that request exactly, or take another key",
    )


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """KEY=VALUE words of an option, each key once."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InvalidInput(f"--{option} takes KEY=VALUE: {word[:40]!r}", code=f"invalid_{option}")
        if key in found:
            raise InvalidInput(f"the {option} {key[:40]!r} is given twice", code=f"invalid_{option}")
        found[key] = value
    return found


def _form(context: Context, form: Payload | None, what: str) -> Payload | None:
    """A form as any other text from outside: within the size that is allowed, and without the caller's token."""
    if form is None:
        return None
    import json

    kept: Payload = json.loads(context.text(json.dumps(form, ensure_ascii=False), what))
    return kept


def _label(context: Context, key: str, value: str) -> str:
    if not is_label(key):
        raise InvalidInput(
            f"not a key for a label: {key[:40]!r}",
            code="invalid_label",
            hint="letters, digits, dot, dash, underscore",
        )
    value = context.text(value, "label")
    if len(value.encode()) > LONGEST_LABEL or "".join(value.splitlines()) != value:
        raise InvalidInput(
            f"the label {key} is too long or has several lines",
            code="invalid_label",
            hint=f"one line of at most {LONGEST_LABEL} bytes; what is longer belongs into the task",
        )
    return value

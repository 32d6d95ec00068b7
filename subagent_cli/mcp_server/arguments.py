"""Arguments as a client sent them: brought under our names, and checked against what the tool takes.

Null counts as not given. What is wrong is told in one line that names the argument and never repeats what was in it at
length.
"""

from collections.abc import Mapping
from typing import Any

from subagent_cli.core.errors import InvalidInput
from subagent_cli.mcp_server.tool import Length, Schema, Tool

_KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def checked(tool: Tool, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments under our names; InvalidInput where the tool cannot take them."""
    arguments = _named(tool, given or {})
    if unknown := next((name for name in arguments if name not in tool.takes), None):
        raise _wrong(f"{tool.name} takes no argument {unknown[:40]!r}", tuple(tool.takes))
    if missing := next((name for name in tool.needs if name not in arguments), None):
        other = next((f" (or {name})" for name, ours in tool.also.items() if ours == missing), "")
        raise _wrong(f"{tool.name} needs {missing}{other}")
    for name, value in arguments.items():
        _check(name, value, tool.takes[name])
    return arguments


def _named(tool: Tool, given: Mapping[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        ours = tool.also.get(name, name)
        if named.setdefault(ours, value) != value:
            raise _wrong(f"{ours} is given twice, by different names and with different values")
    return named


def _check(where: str, value: Any, schema: Schema) -> None:
    kinds = ["number", "string"] if isinstance(schema, Length) else [schema["type"]] if "type" in schema else []
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise _wrong(f"{where} is to be {' or '.join(kinds)}, not {type(value).__name__}")
    if "enum" in schema and value not in schema["enum"]:
        raise _wrong(f"{where} cannot be {value[:40]!r}", tuple(schema["enum"]))
    if "minLength" in schema and len(value.strip()) < schema["minLength"]:
        raise _wrong(f"{where} is empty")
    if "minimum" in schema and value < schema["minimum"]:
        raise _wrong(f"{where} is to be {schema['minimum']} or more")
    if isinstance(value, list):
        for place, item in enumerate(value, 1):
            _check(f"{where}[{place}]", item, schema.get("items", {}))


def _is(value: Any, kind: str) -> bool:
    # In Python a truth value is a number, in JSON it is none.
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _wrong(message: str, candidates: tuple[str, ...] = ()) -> InvalidInput:
    return InvalidInput(message, code="invalid_arguments", candidates=candidates)

"""TypeScript declarations out of a JSON Schema, laid out as prettier would.

Knows the part of JSON Schema that our models use. Anything else raises ValueError: a type that is silently
wrong is worse than none.
"""

import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_WIDTH = 80
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def declarations(schema: Schema) -> dict[str, str]:
    """Every named type of the schema as an exported declaration, the document itself first."""
    named = {schema["title"]: schema, **schema.get("$defs", {})}
    return {name: _declaration(name, part) for name, part in named.items()}


def _declaration(name: str, schema: Schema) -> str:
    comment = _comment(schema, "")
    if "properties" not in schema:
        return comment + _assignment(f"export type {name} =", schema, "")
    required = schema.get("required", ())
    lines = [_property(key, part, key in required) for key, part in schema["properties"].items()]
    if schema.get("additionalProperties"):
        lines.append("  [key: string]: unknown;\n")
    return f"{comment}export interface {name} {{\n{''.join(lines)}}}\n"


def _property(key: str, schema: Schema, required: bool) -> str:
    written = key if _IDENTIFIER.fullmatch(key) else json.dumps(key)
    return _comment(schema, "  ") + _assignment(f"  {written}{'' if required else '?'}:", schema, "  ")


def _assignment(head: str, schema: Schema, indent: str) -> str:
    choices = _choices(schema)
    line = f"{head} {' | '.join(choices)};"
    if len(line) > _WIDTH and len(choices) > 1:
        line = head + "".join(f"\n{indent}  | {choice}" for choice in choices) + ";"
    return line + "\n"


def _choices(schema: Schema) -> list[str]:
    if "enum" in schema:
        return [json.dumps(value) for value in schema["enum"]]
    if "anyOf" in schema:
        return [choice for part in schema["anyOf"] for choice in _choices(part)]
    return [_single(schema)]


def _single(schema: Schema) -> str:
    kind = schema.get("type")
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix("#/$defs/")
    if "const" in schema:
        return json.dumps(schema["const"])
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "array":
        return f"{_operand(schema['items'])}[]"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"Record<string, {' | '.join(_choices(schema['additionalProperties']))}>"
    if kind == "object" and schema.get("additionalProperties") is True:
        return "Record<string, unknown>"
    raise ValueError(f"no TypeScript for this JSON Schema: {dict(schema)}")


def _operand(schema: Schema) -> str:
    choices = _choices(schema)
    return choices[0] if len(choices) == 1 else f"({' | '.join(choices)})"


def _comment(schema: Schema, indent: str) -> str:
    text = str(schema.get("description", "")).replace("*/", "*\\/")
    if not text:
        return ""
    if "\n" not in text and len(indent) + len(text) + len("/**  */") <= _WIDTH:
        return f"{indent}/** {text} */\n"
    lines: list[str] = []
    for paragraph in text.splitlines():
        lines += textwrap.wrap(paragraph, _WIDTH - len(indent) - len(" * "), break_on_hyphens=False) or [""]
    body = "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines)
    return f"{indent}/**\n{body}{indent} */\n"

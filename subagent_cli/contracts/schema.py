"""The published formats as JSON Schema (draft 2020-12) and as TypeScript.

Both come from the models and from nothing else: what is published is what is checked. The same models always
give the same text.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

from subagent_cli.contracts.base import Untitled
from subagent_cli.contracts.dispatch import DispatchRequest
from subagent_cli.contracts.entry import JournalEntry
from subagent_cli.contracts.meta import MetaDocument
from subagent_cli.contracts.spec import RunSpec
from subagent_cli.contracts.typescript import declarations

NAMES: Mapping[str, type[BaseModel]] = MappingProxyType(
    {"meta": MetaDocument, "run": RunSpec, "journal": JournalEntry, "dispatch": DispatchRequest}
)

_HEADER = "// Files of a run, and what `dispatch` takes. Generated: changes here get lost.\n"


class _Published(Untitled):
    @override
    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        # Our defaults only stand for a key that was left out; nobody fills them in.
        return self.generate_inner(schema["schema"])


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of one of NAMES; KeyError for another name."""
    body = NAMES[name].model_json_schema(schema_generator=_Published)
    head = {key: body.pop(key) for key in ("title", "description")}
    return {"$schema": _Published.schema_dialect, **head, **body}


def typescript(name: str | None = None) -> str:
    """TypeScript declarations of one of NAMES, or of all; KeyError for another name."""
    parts: dict[str, str] = {}
    for chosen in NAMES if name is None else (name,):
        parts.update(declarations(json_schema(chosen)))
    return "\n".join([_HEADER, *parts.values()])

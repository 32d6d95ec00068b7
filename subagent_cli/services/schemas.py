"""What others need to read and write our files and payloads: JSON Schemas and TypeScript declarations."""

from subagent_cli.core.errors import InvalidInput
from subagent_cli.services.context import Payload

NAMES = ("meta", "run", "journal", "dispatch")


def schema(name: str) -> Payload:
    """The JSON Schema of one of the published files."""
    from subagent_cli.contracts.schema import json_schema

    return json_schema(_known(name))


def typescript(name: str | None) -> str:
    """TypeScript declarations of one of them, or of all."""
    from subagent_cli.contracts.schema import typescript as declarations

    return declarations(_known(name) if name else None)


def _known(name: str) -> str:
    if name not in NAMES:
        raise InvalidInput(f"there is no schema called {name[:40]!r}", code="unknown_schema", candidates=NAMES)
    return name

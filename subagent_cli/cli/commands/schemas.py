"""`subagent schemas`."""

import json

import click

from subagent_cli.cli.output import Table
from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.core.errors import InvalidInput
from subagent_cli.services import messages


@verb("schemas", example="subagent schemas\nsubagent schemas structured_critique")
@click.argument("name", required=False)
def command(context: Context, name: str | None) -> Answer:  # noqa: ARG001
    """List the schemas of messages, or print one.

    Each with what it is for; --json prints the JSON Schemas of all of them.
    """
    found = messages.catalogue()
    if name is not None:
        if name not in found:
            raise InvalidInput(f"there is no schema {name[:40]!r}", code="unknown_schema", candidates=tuple(found))
        return Answer(found[name], json.dumps(found[name]["json_schema"], indent=2, ensure_ascii=False))
    rows = [(schema, about["description"]) for schema, about in found.items()]
    return Answer(found, table=lambda: Table(("SCHEMA", "WHAT IT IS FOR"), rows, "no schemas"))

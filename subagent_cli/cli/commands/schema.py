"""`subagent schema`."""

import json

import click

from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.services import schemas


@verb("schema", example="subagent schema meta > meta.schema.json\nsubagent schema --typescript > subagent.d.ts")
@click.argument("name", required=False, metavar="[meta|run|journal|dispatch]")
@click.option("--typescript", is_flag=True, help="TypeScript declarations instead of JSON Schema.")
def command(context: Context, name: str | None, typescript: bool) -> Answer:  # noqa: ARG001
    """Print JSON Schemas or TypeScript types of the files.

    meta is .meta.json (the default), run is run.json, journal is a line of journal.jsonl, dispatch is what
    `dispatch --request` takes. TypeScript declares all of them unless one is named.
    """
    if typescript:
        text = schemas.typescript(name)
        return Answer({"typescript": text}, text.rstrip("\n"))
    found = schemas.schema(name or "meta")
    return Answer(found, json.dumps(found, indent=2, ensure_ascii=False))

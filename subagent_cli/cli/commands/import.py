"""`subagent import`."""  # noqa: N999 - the file is named as the command is typed

import sys
from typing import IO

import click

from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.core.errors import InvalidInput
from subagent_cli.services import archives


@verb("import", example="subagent import tidy-notes.zip")
@click.argument("file")
@click.option("--renew", is_flag=True, help="New ids for what is here already and is not the same.")
def command(context: Context, file: str, renew: bool) -> Answer:
    """Take runs out of such a file.

    FILE is what `subagent export` made; - is standard input. All its runs come in, or none. A run that is here
    already, exactly the same, is passed over.
    """
    data = archives.take_in(context, _standard_input() if file == "-" else file, renew=renew)
    imported, skipped = data["imported"], data["skipped"]
    talk = [f"{item['from']} is {item['runId']} here" for item in imported if item["runId"] != item["from"]]
    talk.append(f"{len(imported)} imported, {len(skipped)} here already")
    return Answer(data, "\n".join(item["runId"] for item in imported), talk="\n".join(talk))


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise InvalidInput("standard input is closed", code="no_input")
    if sys.stdin.isatty():
        raise InvalidInput(
            "an archive does not come from a terminal", code="terminal", hint="name a file, or use a pipe"
        )
    return sys.stdin.buffer

"""`subagent export`."""

import sys
from typing import IO

import click

from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.core.errors import InvalidInput
from subagent_cli.services import archives


@verb(
    "export", example="subagent export @last tidy-notes.zip\nsubagent export --all - | ssh elsewhere subagent import -"
)
@click.argument("words", nargs=-1, required=True, metavar="[RUN]... FILE")
@click.option("--all", "everything", is_flag=True, help="Every run; then FILE stands alone.")
@click.option("--force", is_flag=True, help="Replace a FILE that is there.")
def command(context: Context, words: tuple[str, ...], everything: bool, force: bool) -> Answer:
    """Put runs into one file.

    FILE is a zip that `subagent import` reads, anywhere; - is standard output. It holds all that the runs hold, the
    hashes of their tokens included: handle it as you handle the runs.
    """
    *runs, file = words
    if everything and runs:
        raise click.UsageError("export takes RUN... FILE, or --all FILE")
    if not everything and not runs:
        raise click.UsageError("export takes RUN... FILE: which runs, or --all")
    target = _standard_output() if file == "-" else file
    data, faults = archives.export(context, runs, target, everything=everything, force=force)
    data["warnings"] = [f"left out: {fault.message}" for fault in faults]
    number = len(data["runs"])
    talk = f"{number} run{'' if number == 1 else 's'} exported, {data['bytes']} bytes"
    code = 8 if faults else 0
    # Standard output holds the archive then, and nothing else may stand there.
    return Answer(data, talk=talk, code=code, stream=()) if file == "-" else Answer(data, file, talk=talk, code=code)


def _standard_output() -> IO[bytes]:
    if sys.stdout is None:
        raise InvalidInput("standard output is closed", code="no_output")
    if sys.stdout.isatty():
        raise InvalidInput(
            "an archive does not belong on a terminal", code="terminal", hint="name a file, or use a pipe"
        )
    return sys.stdout.buffer

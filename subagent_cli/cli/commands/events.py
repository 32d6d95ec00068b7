"""`subagent events`."""

from collections.abc import Iterable, Iterator
from typing import Any

import click

from subagent_cli.cli.output import one_line
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.services import events

_ENVELOPE = ("runId", "seq", "at", "type")


@verb("events", example="subagent events @last --json\nsubagent events -f")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-f", "--follow", is_flag=True, help="Go on as events come: until the run is over, or for ever.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only those behind this number.")
def command(context: Context, run: str | None, follow: bool, after: int) -> Answer:
    """Print what happened, one event a line.

    Of one run in the order of its journal, or of all runs in the order of time. With --json each line is an object
    of its own (NDJSON). Interrupting -f changes nothing.
    """
    if follow:
        return Answer(None, stream=_lines(events.follow(context, run, after)))
    found, faults = events.read(context, run, after)
    warnings = [fault.message for fault in faults]
    return Answer(None, code=8 if faults else 0, warnings=warnings, stream=_lines(found))


def _lines(found: Iterable[dict[str, Any]]) -> Iterator[Answer]:
    for event in found:
        words = [f"{key}={one_line(str(value))}" for key, value in event.items() if key not in _ENVELOPE]
        yield Answer(event, f"{event['at']} {short(event['runId'])} {event['seq']} {event['type']} {' '.join(words)}")

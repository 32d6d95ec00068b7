"""`subagent logs`."""

import click

from subagent_cli.cli.output import did_you_mean
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.errors import RunNotFound
from subagent_cli.services import addresses, logs


@verb("logs", example="subagent logs @last -n 20\nsubagent logs @last -f")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come, until the run is over.")
def command(context: Context, run: str | None, lines: int | None, follow: bool) -> Answer:
    """Print the log of a run.

    With -f and --json each line is an object of its own (NDJSON). Interrupting -f changes nothing.
    """
    try:
        if follow:
            coming = logs.follow(context, addresses.run(context, run), lines)
            return Answer(None, stream=(Answer(line, shown(line)) for line in coming))
        found = logs.tail(context, run, lines)
    except RunNotFound as error:
        return Answer([], talk=f"No logs found for run ID: {error.run_id}\n{did_you_mean(error)}".strip(), code=3)
    return Answer(found, "\n".join(map(shown, found)))


def shown(line: dict[str, str | None]) -> str:
    """A line of a log as it stands there."""
    if line["timestamp"] is None:
        return line["text"] or ""
    stream = f"[{line['stream']}] " if line["stream"] in ("stdout", "stderr") else ""
    return f"[{line['timestamp']}] {stream}{line['text']}"

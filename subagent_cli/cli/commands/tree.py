"""`subagent tree`."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from subagent_cli.cli.output import age, one_line
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.core.moment import Moment
from subagent_cli.services import trees

_WIDEST = 40


@verb("tree", example="subagent tree\nsubagent tree @last --json")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--all", "everything", is_flag=True, help="Finished trees too.")
def command(context: Context, run: str | None, everything: bool) -> Answer:
    """Show runs below the runs that made them.

    One run and all below it, or every tree with an active run in it. A line has the run, its state, agent, age and
    name, and ?N where N questions wait for an answer. Runs that were spawned together stand below their group.
    """
    found, faults = trees.tree(context, run, everything=everything)
    return Answer(
        found,
        "\n".join(_columns(list(_lines(found, context.clock.now())))),
        talk="" if found else "no runs" if everything or run else "no active runs",
        code=8 if faults else 0,
        warnings=[fault.message for fault in faults],
    )


def _lines(rows: Sequence[dict[str, Any]], now: Moment, margin: str | None = None) -> Iterator[Sequence[str]]:
    for number, row in enumerate(rows, 1):
        last = number == len(rows)
        branch = "" if margin is None else margin + ("└─ " if last else "├─ ")
        yield (branch + short(row.get("runId") or row["groupId"]), row["state"], *_cells(row, now))
        yield from _lines(row["children"], now, "" if margin is None else margin + ("   " if last else "│  "))


def _cells(row: dict[str, Any], now: Moment) -> Sequence[str]:
    if "runId" not in row:
        return (f"group of {len(row['children'])}", age(row["startTime"], now), "", "")
    waiting = row["pendingQuestions"]
    return (
        one_line(row["agentName"], _WIDEST),
        age(row["startTime"], now),
        one_line(row["name"], _WIDEST),
        f"?{waiting}" if waiting else "",
    )


def _columns(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()

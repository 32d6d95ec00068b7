"""`subagent list`."""

from collections.abc import Sequence
from typing import Any

import click

from subagent_cli.cli.output import Table, age, one_line
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.document import RUN_WORDS
from subagent_cli.core.errors import InvalidInput, SubagentError
from subagent_cli.core.ids import short
from subagent_cli.core.moment import Moment, duration, milliseconds
from subagent_cli.services import listing

_WIDEST = 200
_STATUSES = (*RUN_WORDS, "cancelled", "timed_out", "lost")


@verb("list", example="subagent list --status waiting_parent_reply\nsubagent list --since 2h --label team=docs")
@click.option("--status", metavar="STATUS", help="Only runs in this status.")
@click.option("--parent", metavar="RUN", shell_complete=complete_run, help="Only runs that this run made.")
@click.option("--group", metavar="GROUP", help="Only runs of this group.")
@click.option("--name", metavar="NAME", help="Only runs of exactly this name.")
@click.option("--label", "labels", multiple=True, metavar="KEY[=VALUE]", help="Only runs with this label.")
@click.option("--since", metavar="TIME", help="Only runs started since: 90s, 5m, 2h, 1d, or an ISO time (UTC).")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="No limit, and runs that other runs made too.")
def command(
    context: Context,
    status: str | None,
    parent: str | None,
    group: str | None,
    name: str | None,
    labels: tuple[str, ...],
    since: str | None,
    limit: int,
    everything: bool,
) -> Answer:
    """List runs, newest first.

    Options combine. Runs that other runs started, or that were spawned as a group, are left out unless --parent,
    --group or --all asks for them.
    """
    if status is not None and status not in _STATUSES:
        raise InvalidInput(f"there is no status {status[:40]!r}", code="unknown_status", candidates=_STATUSES)
    rows, faults = listing.find(
        context,
        status=status,
        parent=parent,
        group=group,
        name=name,
        labels=[_pair(label) for label in labels],
        since=None if since is None else _start(since, context.clock.now()),
        limit=None if everything else limit + 1,
        children=everything,
    )
    talk = f"the newest {limit}; --all shows the rest" if len(rows) > limit and not everything else ""
    rows = rows if everything else rows[:limit]
    narrowed = (status or name or labels or since) and not (parent or group or everything)
    empty = "no such runs; --all looks at those that other runs made too" if narrowed else "no runs"
    return listed(rows, faults, context, empty, talk)


def _pair(label: str) -> tuple[str, str | None]:
    key, equals, value = label.partition("=")
    return key, value if equals else None


def _start(text: str, now: Moment) -> int:
    at = milliseconds(text)
    if at is not None:
        return at
    try:
        return now.ms - duration(text)
    except InvalidInput as error:
        hint = "write a length like 90s, 5m, 2h, 1d, or a time like 2026-01-31T12:00Z"
        raise InvalidInput(f"not a time: {text[:40]!r}", code="invalid_time", hint=hint) from error


def listed(
    rows: Sequence[dict[str, Any]], faults: Sequence[SubagentError], context: Context, empty: str, talk: str = ""
) -> Answer:
    """Runs as rows; those that could not be read do not hide the others."""
    return Answer(
        rows,
        talk=talk,
        code=8 if faults else 0,
        warnings=[fault.message for fault in faults],
        table=lambda: table(rows, context, empty),
    )


def table(rows: Sequence[dict[str, Any]], context: Context, empty: str) -> Table:
    """Runs as rows: what to type, how it stands, how old, what it says."""
    now = context.clock.now()
    return Table(
        ("RUN", "STATUS", "AGENT", "AGE", "NAME", "SAYS"),
        [
            (
                short(row["runId"]),
                row["state"],
                row["agentName"] or "",
                age(row["startTime"], now),
                row["name"] or "",
                one_line(row["question"] or row["outcome"] or row["summary"], _WIDEST),
            )
            for row in rows
        ],
        empty,
    )

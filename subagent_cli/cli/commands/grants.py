"""`subagent grants`."""

import click

from subagent_cli.cli.output import Table
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.services import grants


@verb("grants", example="subagent grants --target critic")
@click.option("--target", metavar="RUN", shell_complete=complete_run, help="Only those on this run.")
def command(context: Context, target: str | None) -> Answer:
    """List who may do what with which run.

    An agent sees what it was given itself, and everything on runs that it administers.
    """
    rows = grants.listed(context, target)
    return Answer(
        rows,
        table=lambda: Table(
            ("TARGET", "GRANTEE", "CAPABILITY", "GIVEN BY", "EXPIRES"),
            [
                (
                    short(row["target"]),
                    short(row["grantee"]),
                    row["capability"],
                    short(row["grantor"]),
                    row["expires_at"] or "never",
                )
                for row in rows
            ],
            "no grants",
        ),
    )

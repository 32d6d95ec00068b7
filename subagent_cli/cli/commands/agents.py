"""`subagent agents`."""

import click

from subagent_cli.cli.output import Table
from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.services import agents


@verb("agents", example="subagent agents\nsubagent agents --installed --json")
@click.option("--installed", is_flag=True, help="Only those whose program is there.")
def command(context: Context, installed: bool) -> Answer:
    """List the agents that can be run.

    Those that are installed come first. An agent is a table [agents.NAME] in the file that SUBAGENT_AGENTS names, in
    agents.toml here or in a folder above, or in agents.toml beside your config.toml; the first of them counts, and
    then those that are shipped.
    """
    rows = [row for row in agents.listed(context) if row["installed"] or not installed]
    return Answer(
        rows,
        table=lambda: Table(
            ("NAME", "INSTALLED", "RESUME", "FROM"),
            [(row["name"], row["installed"] or "no", "yes" if row["resume"] else "no", row["source"]) for row in rows],
            "no agent is installed; `subagent agents` lists those that are known",
        ),
    )

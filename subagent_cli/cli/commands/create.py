"""`subagent create`."""

import click

from subagent_cli.cli.role import with_role
from subagent_cli.cli.verb import Answer, Context, key_option, text_argument, verb
from subagent_cli.services import runs, specs
from subagent_cli.services.roles import Role


@verb("create", example='export SUBAGENT_RUN_ID=$(subagent create helper "Tidy the notes" --name tidy)')
@click.argument("agent")
@click.argument("task", type=text_argument)
@click.option("--cwd", metavar="DIR", help="The folder the worker works in (default: this one).")
@click.option("--name", metavar="NAME", help="A name to call the run by.")
@with_role
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="To find the run by; any number of them.")
@key_option("gives the same run")
@click.option("--link", is_flag=True, help="Let the TypeScript server see it too, as `subagent link` does.")
def command(
    context: Context,
    agent: str,
    task: str,
    cwd: str | None,
    name: str | None,
    labels: tuple[str, ...],
    role: Role,
    key: str | None,
    link: bool,
) -> Answer:
    """Make a run whose process you start yourself.

    Prints the run's id. Its worker asks with SUBAGENT_RUN_ID set to it; --json also prints a token that proves the
    worker's identity, shown this once. The run is pending until its worker first asks, tells or reports.
    """
    made = runs.create(
        context, agent, task, cwd=cwd, name=name, labels=specs.pairs(labels, "label"), role=role, key=key, link=link
    )
    return Answer(made, made["runId"])

"""`subagent link`."""

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.services import links


@verb("link", example="subagent link @last\nsubagent link --all")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@click.option("--all", "active", is_flag=True, help="Every active run.")
@click.option("--remove", is_flag=True, help="Take the links away again.")
def command(context: Context, runs: tuple[str, ...], active: bool, remove: bool) -> Answer:
    """Let the TypeScript server see runs.

    Makes links RUN.meta.json, RUN.log and RUN.prompt.md in the runs directory, under which that server reads and
    writes the run. What it writes is taken over, and nothing is lost on either side. Prints the links that were
    missing.
    """
    found = links.link(context, runs, active=active, remove=remove)
    paths = [path for each in found for path in each["links"]]
    talk = "" if paths else "; ".join(f"{short(each['runId'])}: nothing to do" for each in found) or "no active runs"
    return Answer(found, "\n".join(paths), talk=talk)

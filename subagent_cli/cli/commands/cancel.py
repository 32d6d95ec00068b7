"""`subagent cancel`."""

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.core.moment import duration
from subagent_cli.services import cancellation


@verb("cancel", example='subagent cancel notes --reason "not needed any more"\nsubagent cancel --all --grace 0')
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@click.option(
    "--all", "everything", is_flag=True, help="Every run that has not ended; a worker's: those that it started."
)
@click.option("--reason", metavar="TEXT", help="Why; it becomes the error of the run.")
@click.option("--grace", metavar="TIME", help="What processes get to end by themselves (default: 5s; 0 for none).")
def command(context: Context, runs: tuple[str, ...], everything: bool, reason: str | None, grace: str | None) -> Answer:
    """End runs and their processes.

    Processes are asked to end, and killed after the grace, with all that they started, other runs included. A run that
    has an outcome keeps it. Returns when they are gone; exit code 1 if one could not be ended.
    """
    limit = None if grace is None else 0 if grace.strip() in ("0", "0s") else duration(grace)
    done = cancellation.cancel(context, runs, everything=everything, reason=reason, grace=limit)
    lines = [f"{short(run_id)} {what}" for what in ("cancelled", "ended") for run_id in done[what]]
    lines = [line.replace(" ended", " had already ended") for line in lines]
    if done["orphans"]:
        lines.append(f"ended what a killed keeper left behind: {', '.join(map(str, done['orphans']))}")
    warnings = [f"still there: {name}" for name in done["notStopped"]]
    talk = "" if lines else "no run to cancel"
    return Answer(done, "\n".join(lines), talk=talk, code=1 if warnings else 0, warnings=warnings)

"""`subagent sweep`."""

import os
import sys
from typing import Any

import click

from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.core.ids import short
from subagent_cli.core.moment import duration
from subagent_cli.services import schedule, sweep


@verb("sweep", example="subagent sweep --dry-run\n(crontab -l; subagent sweep --print-cron) | crontab -")
@click.option("--max-age", metavar="TIME", help="Expire questions that are older than this (default: 24h).")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--print-cron", is_flag=True, help="Print a line for crontab and do nothing.")
@click.option("--print-systemd", is_flag=True, help="Print a service and a timer for systemd and do nothing.")
def command(context: Context, max_age: str | None, dry_run: bool, print_cron: bool, print_systemd: bool) -> Answer:
    """Expire old questions and tidy up; for cron.

    Unanswered questions beyond their deadline take their default or expire, runs whose keeper is gone end as lost,
    files and index entries that crashes left behind are removed, runs that another program put here are entered. Any
    number of sweeps may run at once. Processes that a killed keeper left are named; `subagent cancel` ends them.
    Exit code 8 if a run could not be read.
    """
    if print_cron or print_systemd:
        words = schedule.cron if print_cron else schedule.systemd
        text = words(_program(), context.settings["runs_dir"].value)
        return Answer({"cron" if print_cron else "systemd": text}, text.rstrip("\n"))
    done, faults = sweep.sweep(context, max_age=duration(max_age) if max_age is not None else None, dry_run=dry_run)
    left = [
        f"{short(run_id)} has lost its keeper, but not all of its processes ({', '.join(map(str, pids))}):"
        f" {context.spelled('cancel', short(run_id))}"
        for run_id, pids in done["orphans"].items()
    ]
    return Answer(done, _text(done), code=8 if faults else 0, warnings=[*done["errors"], *left])


def _program() -> str:
    """This very program, by its full name, since cron knows hardly any PATH."""
    import shutil

    found = shutil.which(os.path.basename(sys.argv[0])) or shutil.which("subagent") or "subagent"
    return os.path.abspath(sys.argv[0]) if os.access(sys.argv[0], os.X_OK) else found


def _text(done: dict[str, Any]) -> str:
    counts = {"expired": done["expired"], "took their default": done["defaulted"]}
    counts |= {"lost": done["lost"], "with processes left behind": len(done["orphans"])}
    counts |= {"entered": len(done["entered"]), "removed": len(done["removed"]), "errors": len(done["errors"])}
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    runs = "1 active run" if done["scanned"] == 1 else f"{done['scanned']} active runs"
    return f"{runs}: {told or 'nothing to do'}{' (dry run)' if done['dryRun'] else ''}"

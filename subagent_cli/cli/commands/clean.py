"""`subagent clean`."""

import sys
from typing import Any

import click

from subagent_cli.cli.errors import exit_code_of
from subagent_cli.cli.output import print_talk
from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.core.errors import Damaged, InvalidInput, SubagentError
from subagent_cli.core.ids import short
from subagent_cli.services import clean
from subagent_cli.services.clean import Plan


@verb("clean", example="subagent clean --older-than 7d --dry-run")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--older-than", metavar="TIME", help="Only runs that ended longer ago (default: 30d; with RUN: any).")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(context: Context, runs: tuple[str, ...], older_than: str | None, dry_run: bool, yes: bool) -> Answer:
    """Delete finished runs that are old.

    Or the finished runs that are named. A run takes along the runs that it created, and stays if one of them has not
    ended. A run that has not ended, or whose question waits for an answer, is never deleted.
    """
    if not (dry_run or yes or _on_terminal()):
        raise InvalidInput("deleting needs a yes", code="confirm", hint="--yes, or --dry-run to look first")
    plan = clean.plan(context, runs, older_than)
    if dry_run:
        return _answer(plan, plan.answer(plan.run_ids, dry_run=True), "would be deleted")
    if plan.run_ids and not yes and not _agreed(plan):
        return Answer(plan.answer([]), talk="nothing was deleted")
    return _answer(plan, clean.delete(context, plan), "deleted")


def _on_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _agreed(plan: Plan) -> bool:
    print_talk("\n".join(plan.run_ids))
    return click.confirm(f"Delete {_counted(plan.run_ids)}?", err=True)


def _answer(plan: Plan, data: dict[str, Any], done: str) -> Answer:
    faults = [fault.message for fault in plan.faults]
    kept = [f"kept {short(item['runId'])}: {item['reason']}" for item in plan.kept if item["reason"] not in faults]
    data["warnings"] = [*faults, *data.get("warnings", ())]
    deleted: list[str] = data["deleted"]
    return Answer(
        data, "\n".join(deleted), talk="\n".join([*kept, f"{_counted(deleted)} {done}"]), code=_code(plan.faults)
    )


def _counted(run_ids: list[str]) -> str:
    return "1 run" if len(run_ids) == 1 else f"{len(run_ids)} runs"


def _code(faults: list[SubagentError]) -> int:
    """Damage counts first, since it does not go away by itself."""
    worst = sorted(faults, key=lambda fault: not isinstance(fault, Damaged))
    return exit_code_of(worst[0]) if worst else 0

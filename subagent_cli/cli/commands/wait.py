"""`subagent wait`."""

from collections.abc import Sequence
from typing import Any

import click

from subagent_cli.cli.commands.pending import shown
from subagent_cli.cli.commands.result import exit_code
from subagent_cli.cli.output import one_line
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.core.moment import duration
from subagent_cli.services import waiting

_SOME_FAILED, _QUESTION, _TIME_UP = 20, 12, 124


@verb("wait", example="subagent wait notes drafts --timeout 10m\nsubagent wait notes --after 3f2a9c1d")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("--any", "any_run", is_flag=True, help="Until one of them has ended.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Until N of them have ended.")
@click.option("--timeout", metavar="TIME", help="For so long at most; nothing is cancelled (default: no limit).")
@click.option("--no-questions", is_flag=True, help="Do not wake when one of them asks.")
@click.option("--after", metavar="CURSOR", help="Do not wake for questions that were known when this was printed.")
def command(
    context: Context,
    runs: tuple[str, ...],
    any_run: bool,
    count: int | None,
    timeout: str | None,
    no_questions: bool,
    after: str | None,
) -> Answer:
    """Wait until runs have ended, or one of them asks.

    Exit code 0 if all succeeded, 10 if they ended in error, 11 if they were cancelled, 20 if some did not succeed, 12
    if a question waits (the command that answers it is printed), 124 if the time is up. Interrupting cancels nothing.
    """
    if any_run and count is not None:
        raise click.UsageError("--any and --count exclude each other")
    woke = waiting.for_runs(
        context,
        runs,
        count=1 if any_run else count,
        timeout=duration(timeout) if timeout is not None else None,
        questions_too=not no_questions,
        after=after,
    )
    part = ["--any"] if any_run else ["--count", str(count)] if count is not None else []
    return told(context, woke, part + (["--no-questions"] if no_questions else []))


def told(context: Context, woke: dict[str, Any], options: Sequence[str] = ()) -> Answer:
    """Why a wait ended: which runs have ended and how, which ask what, and what to type next."""
    ended = [run for run in woke["runs"] if run["state"] in _ENDS and not run["alive"]]
    lines = [_line(run) for run in (ended if woke["woke"] == "done" else woke["runs"])]
    # Those that have ended count for --any and --count.
    names = [short(run["runId"]) for run in woke["runs"] if options or run not in ended]
    again = context.spelled("wait", *names, *options, "--after", woke["cursor"])
    if woke["woke"] == "done":
        woke["next"] = [context.spelled("result", short(run["runId"])) for run in ended]
        return Answer(woke, "\n".join(lines), code=_code([run["state"] for run in ended]))
    if woke["woke"] == "question":
        now = context.clock.now()
        woke["next"] = [*(item["reply"] for item in woke["questions"]), again]
        return Answer(
            woke, "\n".join(shown(item, now) for item in woke["questions"]), talk=f"then: {again}", code=_QUESTION
        )
    woke["next"] = [again]
    return Answer(woke, "\n".join(lines), talk=f"the time is up; nothing was cancelled\nnext: {again}", code=_TIME_UP)


_ENDS = ("success", "completed", "error", "cancelled", "timed_out", "lost")


def _line(run: dict[str, Any]) -> str:
    text = run.get("error") or run.get("result") or ""
    return f"{short(run['runId'])}  {run['state']}  {one_line(text, 100)}".rstrip()


def _code(states: list[str]) -> int:
    codes = {exit_code(state) for state in states}
    if len(codes) == 1:
        return codes.pop()
    return _SOME_FAILED if 0 in codes else 10

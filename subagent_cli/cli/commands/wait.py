"""`subagent wait`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from subagent_cli.cli.commands.pending import shown
from subagent_cli.cli.commands.result import exit_code
from subagent_cli.cli.output import one_line
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.ids import short
from subagent_cli.core.moment import duration
from subagent_cli.core.run import Run
from subagent_cli.services import waiting

_SOME_FAILED, _QUESTION, _TIME_UP = 20, 12, 124


@verb("wait", example="subagent wait notes drafts --timeout 10m\nsubagent wait $group --any --cancel-rest")
@click.argument("runs", nargs=-1, metavar="[RUN|GROUP]...", shell_complete=complete_run)
@click.option("--any", "any_run", is_flag=True, help="Until one of them has ended.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Until N of them have ended.")
@click.option("--cancel-rest", is_flag=True, help="With --any or --count: then cancel the others.")
@click.option("--timeout", metavar="TIME", help="For so long at most; nothing is cancelled (default: no limit).")
@click.option("--no-questions", is_flag=True, help="Do not wake when one of them asks.")
@click.option("--after", metavar="CURSOR", help="Do not wake for questions that were known when this was printed.")
@click.option("--order", type=click.Choice(["spawn", "completion"]), default="spawn", help="Order of the results.")
def command(
    context: Context,
    runs: tuple[str, ...],
    any_run: bool,
    count: int | None,
    cancel_rest: bool,
    timeout: str | None,
    no_questions: bool,
    after: str | None,
    order: str,
) -> Answer:
    """Wait until runs have ended, or one of them asks.

    A group stands for all its runs; a worker that names nothing waits for all that it has started. Exit code 0 if all
    succeeded, 10 if they ended in error, 11 if they were cancelled, 20 if some did not succeed, 12 if a question waits
    (the command that answers it is printed; it may come from a run that one of them started), 124 if the time is up.
    Interrupting cancels nothing.
    """
    if any_run and count is not None:
        raise click.UsageError("--any and --count exclude each other")
    if cancel_rest and not any_run and count is None:
        raise click.UsageError("--cancel-rest goes with --any or --count")
    if not runs and context.caller.token is None:
        raise InvalidInput("no run is named", code="no_run", hint="name runs or groups", next="subagent list")
    with _live() as seen:
        woke = waiting.for_runs(
            context,
            runs,
            count=1 if any_run else count,
            timeout=duration(timeout) if timeout is not None else None,
            questions_too=not no_questions,
            after=after,
            seen=seen,
        )
    if order == "completion":
        ends = {run["runId"]: run["endTime"] or "" for run in woke["runs"]}
        woke["sub_agent_results"].sort(key=lambda item: ends[item["agent_id"]])
    if cancel_rest and woke["woke"] == "done":
        woke["cancelled"] = _cancelled(context, woke)
    part = ["--any"] if any_run else ["--count", str(count)] if count is not None else []
    return told(context, woke, part + (["--no-questions"] if no_questions else []))


def told(context: Context, woke: dict[str, Any], options: Sequence[str] = ()) -> Answer:
    """Why a wait ended: which runs have ended and how, which ask what, and what to type next."""
    ended = [run for run in woke["runs"] if _has_ended(run)]
    lines = [_line(run) for run in (ended if woke["woke"] == "done" else woke["runs"])]
    # Those that have ended count for --any and --count.
    names = [run["runId"] for run in woke["runs"]] if options else woke["pending"]
    again = context.spelled("wait", *map(short, names), *options, "--after", woke["cursor"])
    if woke["woke"] == "done":
        woke["next"] = [context.spelled("result", short(run["runId"])) for run in ended]
        return Answer(woke, "\n".join(lines), code=_code([run["state"] for run in ended]))
    if woke["woke"] == "question":
        now = context.clock.now()
        woke["next"] = [*(item["reply"] for item in woke["questions"]), again]
        asked = "\n".join(shown(item, now) for item in woke["questions"])
        return Answer(woke, asked, talk=f"then: {again}", code=_QUESTION)
    woke["next"] = [again]
    return Answer(woke, "\n".join(lines), talk=f"the time is up; nothing was cancelled\nnext: {again}", code=_TIME_UP)


@contextmanager
def _live() -> Iterator[Callable[[Sequence[Run]], None]]:
    """Shows how the runs stand while somebody watches: on a terminal, and where there are several."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from subagent_cli.cli.live import Board

    with Board() as board:
        yield board.show


def _cancelled(context: Context, woke: dict[str, Any]) -> list[str]:
    from subagent_cli.services import cancellation

    rest = [run["runId"] for run in woke["runs"] if not _has_ended(run)]
    cancelled: list[str] = cancellation.cancel(context, rest)["cancelled"] if rest else []
    return cancelled


_ENDS = ("success", "completed", "error", "cancelled", "timed_out", "lost")


def _has_ended(run: dict[str, Any]) -> bool:
    return run["state"] in _ENDS and not run["alive"]


def _line(run: dict[str, Any]) -> str:
    text = run.get("error") or run.get("result") or ""
    return f"{short(run['runId'])}  {run['state']}  {one_line(text, 100)}".rstrip()


def _code(states: list[str]) -> int:
    codes = {exit_code(state) for state in states} or {0}
    if len(codes) == 1:
        return codes.pop()
    return _SOME_FAILED if 0 in codes else 10

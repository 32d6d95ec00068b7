"""Throwaway places: the copy of a folder in which a dispatched child works, and how it goes with all that came of it.

Whatever way out is taken, the child is ended with all that it started, and its run and its copy are removed. What a
kill left behind is removed by the next sweep.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from subagent_cli.core.errors import NotFound, Refused, SubagentError
from subagent_cli.core.ids import short
from subagent_cli.process import disposal
from subagent_cli.process.workspace import Workspace, isolate
from subagent_cli.services import addresses, cancellation, settings, specs
from subagent_cli.services.context import Context
from subagent_cli.services.settings import Caller
from subagent_cli.store import atomic, removal, workspaces

_MOST_FILES = 200_000


@contextmanager
def place(context: Context, run_id: str, cwd: str | None, *, keep: bool, troubles: list[str]) -> Iterator[Workspace]:
    """A copy of the folder for a child, until the end of the block; or for as long as its run, if it is to be kept.

    What could not be cleared away is no error, since that would lose what the child came to: it is told in `troubles`.
    """
    layout = context.runs.layout
    folder = specs.folder(cwd)
    held = workspaces.claim(layout, run_id, keep=keep)
    try:
        yield isolate(
            folder,
            workspaces.tree(layout, run_id),
            limit_bytes=context.settings["max_workspace"].value,
            limit_files=_MOST_FILES,
            environment=settings.inherited(()),
            without=(layout.root,),
        )
    finally:
        try:
            # There is nothing to look at where it did not come to a run.
            if keep and context.runs.exists(run_id):
                end(context, run_id)
            else:
                clear(context, run_id)
        except SubagentError as error:
            troubles.append(f"not cleared away: {error.message}; the next sweep tries again")
        finally:
            workspaces.let_go(layout, run_id, held)


def end(context: Context, run_id: str) -> None:
    """Ends a child and all that it started."""
    with suppress(NotFound):
        if context.runs.exists(run_id):
            cancellation.cancel(context._replace(caller=Caller()), [run_id])


def clear(context: Context, run_id: str) -> None:
    """Ends a child and all that it started, and removes its run and its place."""
    family, operator = [run_id], context._replace(caller=Caller())
    if context.runs.exists(run_id):
        # In this order: a run that one of them starts in its last moments belongs to them too.
        end(context, run_id)
        family = addresses.with_children(operator, family)
        entries = removal.entries_of(context.runs.layout, family)
        for member in reversed(family):
            with suppress(NotFound):
                removal.remove(context.runs, member, entries, partial(_must_be_over, context, member))
    for member in family:
        # One that dispatched in its turn may have been ended before it could clear up.
        discard(context, member)


def discard(context: Context, run_id: str) -> None:
    """Removes the place of a run that is gone."""
    layout = context.runs.layout
    with atomic.io("remove the workspace"):
        if disposal.discard(layout.workspace(run_id)):
            atomic.unmark(layout.workspace_lock(run_id))


def abandoned(context: Context) -> list[str]:
    """Children whose dispatch was killed, and places whose run is gone."""
    layout, runs = context.runs.layout, context.runs
    return [
        run_id
        for run_id in workspaces.all_of(layout)
        if workspaces.is_abandoned(layout, run_id) and not (workspaces.is_kept(layout, run_id) and runs.exists(run_id))
    ]


def _must_be_over(context: Context, run_id: str) -> None:
    if not context.runs.read(run_id, context.clock.now()).over:
        raise Refused(f"run {short(run_id)} could not be ended", code="not_stopped")

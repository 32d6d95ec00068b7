"""Cancelling: the run ends as cancelled, and its processes end.

What has an outcome keeps it, but its process is stopped all the same. Runs that the run itself started go with it.
When this returns, nothing is left of them that could be ended. Doing it twice does no harm.
"""

import os.path
import time
from collections.abc import Sequence

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import InvalidInput, NotFound, SubagentError
from subagent_cli.core.event import Stopped
from subagent_cli.core.grant import STOP
from subagent_cli.core.ids import short
from subagent_cli.core.transition import CANCELLED, CANCELLED_TEXT
from subagent_cli.services import addresses
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.leftovers import end_orphans
from subagent_cli.store import alive
from subagent_cli.store.watch import Watch

# How much longer than the grace a keeper may take over its last words.
_PATIENCE_SECONDS = 15.0


def cancel(
    context: Context,
    names: Sequence[str],
    *,
    everything: bool = False,
    reason: str | None = None,
    grace: int | None = None,
) -> Payload:
    """Cancels runs, or with `everything` all that have not ended; gives what was cancelled and what had ended."""
    if bool(names) == everything:
        raise InvalidInput("name the runs, or say --all for every active one", code="usage")
    text = context.text(reason, "reason") if reason else CANCELLED_TEXT
    limit: int = context.settings["stop_grace"].value if grace is None else grace
    run_ids = _chosen(context, names, everything)
    done: Payload = {"cancelled": [], "ended": [], "orphans": [], "notStopped": []}
    faults: list[SubagentError] = []
    new = run_ids
    while new:
        # All are written down before the first keeper hears of it: it ends the runs below its own, and for a reason of
        # its own.
        order = wanted.Stop(CANCELLED, text, limit)
        told = [run_id for run_id in new if _written(context, run_id, order, done, faults)]
        for run_id in told:
            alive.nudge(context.runs.layout, run_id)
        for run_id in told:
            if not _over(context, run_id, limit / 1000 + _PATIENCE_SECONDS):
                done["notStopped"].append(run_id)
        # A run that was just about to start others may have done so before it ended.
        new = [run_id for run_id in addresses.with_children(context, run_ids) if run_id not in run_ids]
        run_ids += new
    if faults and len(run_ids) == 1:
        raise faults[0]
    for run_id in run_ids:
        _end_orphans(context, run_id, limit / 1000, done)
    return done


def _chosen(context: Context, names: Sequence[str], everything: bool) -> list[str]:
    """The runs that are meant, and all that they started and that may still be running."""
    if everything:
        context.must_be_there()
        own = context.caller.run_id if context.caller.token else None
        meant = context.runs.index.active() if own is None else addresses.children(context, own)
    else:
        meant = [run_id for name in names for run_id in addresses.runs_of(context, name, STOP).run_ids]
    return addresses.with_children(context, meant)


def _written(context: Context, run_id: str, command: wanted.Stop, done: Payload, faults: list[SubagentError]) -> bool:
    """Writes the end down; whether there is a keeper to tell and to wait for."""
    runs = context.runs
    try:
        gone = runs.read(run_id, context.clock.now()).gone
        change = runs.change(run_id, command._replace(gone=gone), context.clock.now)
    except NotFound:
        return False
    except SubagentError as error:
        # One that cannot be changed must not keep the others from being ended.
        done["notStopped"].append(f"{short(run_id)}: {error.message}")
        faults.append(error)
        return False
    ended = change.before.finished
    done["ended" if ended else "cancelled"].append(run_id)
    if any(isinstance(event, Stopped) for event in change.events):
        why = "" if command.text == CANCELLED_TEXT else f": {command.text}"
        runs.log(run_id, f"Cancelled{why}", now=context.clock.now())
    return bool(change.after.alive)


def _over(context: Context, run_id: str, patience: float) -> bool:
    """Waits until the keeper is gone; whether it is."""
    until = time.monotonic() + patience
    with Watch() as watch:
        while not _gone(context, run_id):
            watch.add_all(context.runs.places(run_id))
            left = until - time.monotonic()
            if left <= 0:
                return not context.runs.exists(run_id)
            watch.wait_closely(left)
    return True


def _gone(context: Context, run_id: str) -> bool:
    """Whether its keeper is dead; where somebody took the proof away, its own last word counts."""
    layout = context.runs.layout
    if os.path.exists(layout.alive(run_id)):
        return alive.dead(layout, run_id)
    return not context.runs.exists(run_id) or context.runs.read(run_id, context.clock.now()).over


def _end_orphans(context: Context, run_id: str, grace: float, done: Payload) -> None:
    """What a killed keeper left behind, which nobody but us can find."""
    ended, left = end_orphans(context, run_id, grace)
    done["orphans"] += sorted(ended)
    done["notStopped"] += [f"{short(run_id)}: process {pid}" for pid in sorted(left)]

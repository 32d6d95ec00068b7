"""Bringing the index and the runs directory together again.

Runs that lack their entries (another program put them there, or somebody copied them in) get them; entries of runs
that are gone are removed. It is cheap because it remembers which runs it has seen: as long as no name in the
directory has changed it looks at nothing, and otherwise only at names that are new or gone.
"""

import os
from collections.abc import Callable, Iterator

from subagent_cli.core.errors import NotFound, SubagentError
from subagent_cli.core.ids import is_label, is_uuid
from subagent_cli.core.run import Run
from subagent_cli.core.value import Value
from subagent_cli.store import atomic
from subagent_cli.store.layout import NEW_RUN, TRASH, Layout
from subagent_cli.store.reader import Spec
from subagent_cli.store.removal import delete, entries_of
from subagent_cli.store.roster import Roster
from subagent_cli.store.runs import Runs

# Preparing a run takes milliseconds; what is an hour old was left by a crash.
_STALE_SECONDS = 3600


class Healed(Value):
    """What was put right, what could not be looked at, and whether there is trash to be emptied."""

    entered: list[str]
    removed: list[str]
    faults: list[SubagentError]
    trash: bool = False


def reconcile(runs: Runs, read: Callable[[str], Run], *, dry_run: bool = False) -> Healed:
    """Compares names with what was seen last time and heals the difference."""
    layout = runs.layout
    healed = Healed([], [], [])
    with atomic.io("make the index"):
        if not dry_run and os.path.isdir(layout.root):
            atomic.make_folders(layout.index)
    stamp, memory = _stamp(layout), _remembered(layout)
    gone = {run_id for run_id in runs.index.active() if _gone(runs, run_id)}
    look = stamp not in ("", next(memory, None))
    stale: list[str] = []
    if look:
        entries = _list(layout.root)
        present = set(runs.all())
        # A name that is no id could lead anywhere.
        known = set(filter(is_uuid, memory))
        gone |= known - present
        unread = {run_id for run_id in sorted(present - known) if not _enter(runs, run_id, read, healed, dry_run)}
        prepared = [os.path.join(layout.root, name) for name in entries if name.startswith(NEW_RUN)]
        stale = [path for path in prepared if _old(layout, path)]
        healed = healed._replace(trash=any(name.startswith(TRASH) for name in entries))
        settled = not unread and prepared == stale and not healed.trash
    for paths in entries_of(layout, gone).values() if gone else ():
        stale += filter(os.path.lexists, paths)
    with atomic.io("tidy the index"):
        for path in stale:
            healed.removed.append(os.path.relpath(path, layout.root))
            if not dry_run:
                _remove(path)
        if look and not dry_run:
            # What could not be read, or may yet grow old, is looked at again next time.
            atomic.replace(layout.seen, "\n".join([stamp if settled else "", *sorted(present - unread)]).encode())
    return healed


def enter(layout: Layout, run: Run, spec: Spec) -> None:
    """Makes the entries that a run should have."""
    if run.active:
        atomic.mark(layout.active_mark(run.id))
    for message_id in run.questions:
        if is_label(message_id):
            _point(layout, layout.question_mark(message_id), run.id)
    name, parent = spec.get("name"), spec.get("parentId")
    if isinstance(name, str) and is_label(name):
        atomic.mark(layout.name_mark(name, run.id))
    if isinstance(parent, str) and is_uuid(parent):
        atomic.mark(layout.child_mark(parent, run.id))
    for _, grantee, _ in run.grants:
        if is_uuid(grantee):
            atomic.mark(layout.grant_mark(grantee, run.id))


def _gone(runs: Runs, run_id: str) -> bool:
    """In this order, since a run that is being made goes from its prepared name to its own."""
    return not os.path.lexists(runs.layout.new_run(run_id)) and not runs.exists(run_id)


def _point(layout: Layout, path: str, run_id: str) -> None:
    """An entry that leads to this run, unless it leads to another one that is there."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            other = file.read(64).decode("utf-8", "replace").strip()
        if other != run_id and not Roster(layout).exists(other):
            atomic.unmark(path)
    atomic.mark(path, run_id.encode())


def _enter(runs: Runs, run_id: str, read: Callable[[str], Run], healed: Healed, dry_run: bool) -> bool:
    """Whether the run could be read, and so has its entries now."""
    try:
        run, spec = read(run_id), runs.spec(run_id)
    except NotFound:
        return True
    except SubagentError as fault:
        healed.faults.append(fault)
        return False
    if run.active and not os.path.exists(runs.layout.active_mark(run_id)):
        healed.entered.append(run_id)
    if not dry_run:
        with atomic.io("enter a run into the index"):
            enter(runs.layout, run, spec)
    return True


def _remove(path: str) -> None:
    if os.path.basename(path).startswith(NEW_RUN):
        delete(path)
    else:
        atomic.unmark(path)


def _stamp(layout: Layout) -> str:
    """Changes whenever a name in the runs directory does."""
    try:
        return str(os.stat(layout.root).st_mtime_ns)
    except FileNotFoundError:
        return ""


def _remembered(layout: Layout) -> Iterator[str]:
    """The stamp of the last look, then the runs that were there. By and by, since mostly the stamp is enough."""
    try:
        with open(layout.seen, encoding="utf-8", errors="replace") as file:
            for line in file:
                yield line.rstrip("\n")
    except OSError:
        return


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _old(layout: Layout, path: str) -> bool:
    """Whether a crash left it. Both stamps come from the file system, so a clock that is set now does not count."""
    with atomic.io("look at the age of files"):
        atomic.mark(layout.now)
        try:
            return os.stat(layout.now).st_mtime - os.stat(path).st_mtime > _STALE_SECONDS
        except FileNotFoundError:
            return False
        finally:
            atomic.unmark(layout.now)

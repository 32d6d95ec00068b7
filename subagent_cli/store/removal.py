"""How a run goes: as one step for everybody who looks, and without a trace in the end.

A run is renamed into a trash name under its lock, and from then on it is gone. What its files and index entries take
is freed afterwards: the trash folder goes last, so a crash in between leaves it as a witness, and `empty_trash` does
the rest. Links are removed and never followed.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from subagent_cli.core.errors import Busy, Damaged, SubagentError
from subagent_cli.core.ids import is_uuid
from subagent_cli.store import atomic, flat
from subagent_cli.store import runs as run_store
from subagent_cli.store.layout import TRASH, Layout
from subagent_cli.store.runs import Runs

Entries = Mapping[str, list[str]]


def remove(runs: Runs, run_id: str, entries: Entries, check: Callable[[], None]) -> list[str]:
    """Removes a run, unless `check` raises, which is called under its lock; gives warnings.

    `entries` is what `entries_of` found for it. A run that is already gone is RunNotFound.
    """
    layout = runs.layout
    with runs.locked(run_id):
        check()
        with atomic.io(f"remove run {run_id}"):
            delete(layout.trash(run_id))
            if runs.lies_flat(run_id):
                flat.adopt(layout, run_id)
            atomic.appear(layout.run(run_id), layout.trash(run_id))
        run_store.reached("trashed")
        return _free(layout, run_id, entries)


def empty_trash(layout: Layout, timeout: float = 10.0) -> list[str]:
    """Finishes removals that a crash interrupted; gives the ids of those runs. What is busy waits for another time."""
    from subagent_cli.store.lock import held

    run_ids = [name.removeprefix(TRASH) for name in _list(layout.root) if name.startswith(TRASH)]
    run_ids = sorted(filter(is_uuid, run_ids))
    if not run_ids:
        return []
    entries, emptied = entries_of(layout, run_ids), list[str]()
    for run_id in run_ids:
        with suppress(Busy), held(layout.lock(run_id), timeout, f"run {run_id}"):
            # A run that has come back under the same id, by an import, needs its entries.
            if os.path.lexists(layout.run(run_id)):
                with suppress(OSError):
                    delete(layout.trash(run_id))
            else:
                _free(layout, run_id, entries)
            if not os.path.lexists(layout.trash(run_id)):
                emptied.append(run_id)
    return emptied


def children(runs: Runs, run_id: str) -> list[str]:
    """The runs that this one created and that are still there."""
    found: list[str] = []
    for child in runs.index.children(run_id):
        if child != run_id and runs.exists(child):
            try:
                parent = runs.spec(child).get("parentId")
            except Damaged:
                # What cannot be read may well be a child.
                parent = run_id
            if parent == run_id:
                found.append(child)
    return found


def entries_of(layout: Layout, run_ids: Iterable[str]) -> dict[str, list[str]]:
    """Every index entry that leads to one of these runs, found in one pass over the index."""
    found: dict[str, list[str]] = {run_id: [layout.active_mark(run_id)] for run_id in run_ids}
    for folder in (layout.names, layout.children, layout.grants):
        for group in _list(folder):
            for run_id in _list(os.path.join(folder, group)):
                if run_id in found:
                    found[run_id].append(os.path.join(folder, group, run_id))
    for folder in (layout.questions, layout.keys):
        for name in _list(folder):
            path = os.path.join(folder, name)
            run_id = _content(path)
            if run_id in found:
                found[run_id].append(path)
    return found


def forget(layout: Layout, run_id: str, entries: Entries) -> None:
    """Removes the index entries of a run that is gone."""
    for path in entries.get(run_id, ()):
        folder = os.path.dirname(path)
        if folder == layout.keys:
            _forget_key(layout, path, run_id)
        elif folder != layout.questions or _content(path) == run_id:
            atomic.unmark(path)
    with suppress(OSError):
        os.rmdir(os.path.join(layout.children, run_id))
    # The folder of one that is still there may be about to get another entry.
    grantees = {os.path.basename(folder) for folder in map(os.path.dirname, entries.get(run_id, ()))}
    for agent_id in (run_id, *grantees):
        if not os.path.lexists(layout.run(agent_id)):
            with suppress(OSError):
                os.rmdir(layout.grant_marks(agent_id))


def delete(path: str) -> None:
    """Removes whatever stands there, with all that is below it; a link goes, and what it leads to stays."""
    from shutil import rmtree

    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            rmtree(path)
        else:
            os.unlink(path)


def _free(layout: Layout, run_id: str, entries: Entries) -> list[str]:
    """What is left to do when a run is gone. A failure is a warning: the next emptying of the trash tries again."""
    try:
        atomic.sync_folder(layout.root)
        for path in flat.names(layout, run_id):
            atomic.unmark(path)
        forget(layout, run_id, entries)
        run_store.reached("forgotten")
        delete(layout.trash(run_id))
        run_store.reached("deleted")
        # Whoever waits for this lock notices that its file has gone, and asks for it anew.
        atomic.unmark(layout.lock(run_id))
        atomic.unmark(layout.wake(run_id))
    except (OSError, SubagentError) as error:
        reason = error.message if isinstance(error, SubagentError) else error.strerror or str(error)
        return [f"run {run_id} is gone, but its remains could not be removed yet: {reason}"]
    return []


def _forget_key(layout: Layout, path: str, run_id: str) -> None:
    from subagent_cli.store.lock import held

    # A retry under the same key may be making a new run just now.
    with held(layout.lock(f"key-{os.path.basename(path)}"), 10.0, "the key"):
        if _content(path) == run_id:
            atomic.unmark(path)


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise atomic.failed("read the runs directory", error) from error


def _content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(64).decode("utf-8", "replace").strip()
    except OSError:
        return ""

"""How runs of an archive come in: all of them or none, each of them whole.

They are prepared beside the others, synced, and only then appear under their names, one rename each. Where one of
them cannot, those that already have go back.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from subagent_cli.core.errors import Refused
from subagent_cli.core.ids import short
from subagent_cli.core.run import Run
from subagent_cli.core.value import Value
from subagent_cli.store import atomic, journal, reconcile, removal
from subagent_cli.store import runs as run_store
from subagent_cli.store.archive import QUARANTINE, Archive
from subagent_cli.store.layout import Layout
from subagent_cli.store.reader import Spec
from subagent_cli.store.welcome import WELCOME


class Arrival(Value):
    """A run on its way in: what it adds up to, which run of the archive it is, and files that are new for it."""

    run: Run
    spec: Spec
    source: str
    changed: Mapping[str, bytes]


def admit(layout: Layout, archive: Archive, arrivals: Sequence[Arrival], timeout: float) -> None:
    """Lets the runs appear, all or none. The caller lets in one archive at a time."""
    from subagent_cli.store.lock import held

    appeared: list[str] = []
    with atomic.io("import the runs"):
        atomic.make_folders(layout.active)
        atomic.mark(layout.readme, WELCOME.encode())
        try:
            for arrival in arrivals:
                _prepare(layout, archive, arrival)
            run_store.reached("prepared")
            for run, spec, *_ in arrivals:
                with held(layout.lock(run.id), timeout, f"run {run.id}"):
                    _appear(layout, run, spec)
                appeared.append(run.id)
                run_store.reached("appeared")
        except BaseException:
            _take_back(layout, [arrival.run.id for arrival in arrivals], appeared)
            raise
    with journal.confirmed():
        atomic.sync_folder(layout.root)


def _prepare(layout: Layout, archive: Archive, arrival: Arrival) -> None:
    folder = layout.new_run(arrival.run.id)
    # Only an import prepares a run under a known id, so what stands here was left by one that crashed.
    removal.delete(folder)
    atomic.make_folders(folder)
    for name in archive.names[arrival.source]:
        path = os.path.join(folder, name)
        atomic.make_folders(os.path.dirname(path))
        new = arrival.changed.get(name)
        _write(path, archive.chunks(f"{arrival.source}/{name}") if new is None else (new,))
    if arrival.run.alive:
        # Nobody keeps it here, and this is what proves it.
        atomic.create(os.path.join(folder, os.path.basename(layout.alive(arrival.run.id))), b"")
    if os.path.isdir(os.path.join(folder, QUARANTINE)):
        atomic.sync_folder(os.path.join(folder, QUARANTINE))
    atomic.sync_folder(folder)


def _write(path: str, chunks: Iterable[bytes]) -> None:
    atomic.create(path, b"", lasting=False)
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for chunk in chunks:
            atomic.write_all(fd, chunk)
        atomic.commit(fd)
    finally:
        os.close(fd)


def _appear(layout: Layout, run: Run, spec: Spec) -> None:
    if os.path.lexists(layout.run(run.id)):
        raise Refused(f"there is a run {short(run.id)} here already", code="exists")
    reconcile.enter(layout, run, spec)
    atomic.sync_folder(layout.active)
    atomic.appear(layout.new_run(run.id), layout.run(run.id))


def _take_back(layout: Layout, run_ids: Sequence[str], appeared: Sequence[str]) -> None:
    for run_id in run_ids:
        with suppress(OSError):
            if run_id in appeared:
                atomic.appear(layout.run(run_id), layout.new_run(run_id))
            removal.delete(layout.new_run(run_id))
    gone = [run_id for run_id in run_ids if not os.path.lexists(layout.run(run_id))]
    entries = removal.entries_of(layout, gone)
    for run_id in gone:
        with suppress(OSError):
            removal.forget(layout, run_id, entries)

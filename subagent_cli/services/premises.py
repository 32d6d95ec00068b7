"""The place where the runs lie, as the doctor sees it: the machine, the modes, and what lies about.

Only what crashes left behind is ever removed: unborn runs, temporary files, entries that lead nowhere. What others
put there is left alone.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from subagent_cli.core.errors import SubagentError
from subagent_cli.core.ids import is_uuid
from subagent_cli.services import group_records
from subagent_cli.services.visit import Entry, Visit, listed, named
from subagent_cli.store import atomic, removal, repair
from subagent_cli.store.layout import NEW_RUN, TEMPORARY, TRASH, Layout
from subagent_cli.store.messages import Messages
from subagent_cli.store.repair import DAMAGE, NOTE, WARNING, Finding

_DAY, _HOUR_SECONDS = 86_400_000, 3600


def place(visit: Visit) -> list[Finding]:
    """The directory itself, what lies about in it, and index entries that lead nowhere."""
    layout = visit.runs.layout
    try:
        excludes, written = _scratch(layout)
    except OSError as error:
        written = os.stat(layout.root).st_mtime
        found = [Finding(None, "not_writable", f"nothing can be written there: {error.strerror}", DAMAGE)]
    else:
        text = "locks do not work on this file system: two processes could change a run at once"
        found = [] if excludes else [Finding(None, "no_locks", text, DAMAGE)]
    records = (*_messages(visit), *group_records.faults(visit))
    return [*found, *_machine(visit, written), *_modes(visit), *records, *_leftovers(visit, written)]


def _scratch(layout: Layout) -> tuple[bool, float]:
    """Whether a lock keeps a second holder out here, and what time the file system says it is."""
    import fcntl

    atomic.make_folders(layout.locks)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    holder, rival = (os.open(layout.lock("doctor"), flags, 0o600) for _ in range(2))
    try:
        os.pwrite(holder, b"%-11d\n" % os.getpid(), 0)
        written = os.fstat(holder).st_mtime
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(rival, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Whether it was the rival or another doctor: somebody was kept out.
        return True, written
    finally:
        os.close(holder)
        os.close(rival)
    return False, written


def _machine(visit: Visit, written: float) -> Iterator[Finding]:
    """Clocks and the kernel's help, which no mending can change."""
    from subagent_cli.store.watch import Watch

    now = visit.clock.now()
    newest = max((int(run_id.replace("-", "")[:12], 16) for run_id in visit.runs.all() if run_id[14] == "7"), default=0)
    # How long ago something was written proves nothing, since the place may just have been left alone.
    if abs(now.ms - written * 1000) > _DAY:
        yield Finding(None, "clock", "the clock and the file system are more than a day apart", WARNING)
    elif newest - now.ms > _DAY:
        text = "the newest run was made more than a day from now: the clock was wrong then, or it is now"
        yield Finding(None, "clock", text, WARNING)
    if not now.boot:
        text = "the system does not name its boot: deadlines go by the wall clock, which can be set"
        yield Finding(None, "no_boot_id", text, NOTE)
    with Watch([visit.runs.layout.root]) as watch:
        if watch.polling:
            yield Finding(None, "no_inotify", "the kernel does not tell of changes: whoever waits must look", NOTE)


def _modes(visit: Visit) -> Iterator[Finding]:
    """Modes of all that belongs to no run."""
    layout = visit.runs.layout

    def exposed() -> Iterator[str]:
        # Messages may be written by nobody, not even by their owner.
        for folder in (layout.root, layout.messages):
            yield from repair.exposed(folder, deep=False)
        for path in (layout.index, layout.locks, layout.readme, layout.groups):
            yield from repair.exposed(path)

    paths = []
    for path in exposed():
        paths.append(path)
        if visit.fix:
            with suppress(OSError):
                repair.close_up(path)
    if paths:
        text = f"modes let others in: {named(layout, paths)}"
        fixed = visit.fix and not any(exposed())
        yield Finding(None, "open_modes", text, WARNING, "made the user's alone", fixed)


def _messages(visit: Visit) -> Iterator[Finding]:
    """Messages that somebody has changed, which nothing can mend, and replies that the index does not know."""
    layout, store = visit.runs.layout, Messages(visit.runs.layout)
    tampered, missing = list[str](), list[str]()
    for message_id in store.all():
        try:
            missing += filter(None, [store.unentered(message_id)])
        except SubagentError:
            tampered.append(layout.message(message_id))
    for path in missing if visit.fix else ():
        with suppress(OSError):
            atomic.mark(path)
    if tampered:
        yield Finding(None, "tampered_messages", f"not as they were written: {named(layout, tampered)}", DAMAGE)
    if missing:
        text = f"the index does not know these replies: {named(layout, missing)}"
        yield Finding(None, "missing_replies", text, WARNING, "entered", all(map(os.path.exists, missing)))


def _leftovers(visit: Visit, written: float) -> Iterator[Finding]:
    """What crashes left in the directory, and what others put there."""
    layout = visit.runs.layout

    def old(path: str) -> bool:
        # Both stamps are the file system's own. Whatever is an hour old is no longer under way.
        return os.path.lexists(path) and written - os.lstat(path).st_mtime > _HOUR_SECONDS

    def there(run_id: str) -> bool:
        # A run is prepared before it is entered, and renamed after: looked for in this order it cannot be missed.
        prepared = layout.new_run(run_id)
        return (os.path.lexists(prepared) and not old(prepared)) or visit.runs.exists(run_id)

    def stale(entry: Entry) -> bool:
        return not there(entry.run_id) if entry.run_id else old(entry.path)

    def forget(path: str) -> None:
        # Under its lock, since a retry may be entering a new run under an old key just now.
        run_id = entries[path].run_id
        removal.forget(layout, run_id, {run_id: [path]}) if run_id else atomic.unmark(path)

    top = {name: os.path.join(layout.root, name) for name in sorted(os.listdir(layout.root))}
    unborn = [path for name, path in top.items() if name.startswith(NEW_RUN) and old(path)]
    trash = [path for name, path in top.items() if name.startswith(TRASH)]
    folders = (layout.index, layout.groups, layout.messages)
    places = (*top.values(), *(os.path.join(folder, name) for folder in folders for name in listed(folder)))
    temporary = [path for path in places if path.endswith(TEMPORARY) and old(path)]
    entries = {entry.path: entry for group in visit.entries.values() for entry in group if stale(entry)}
    yield from _swept(visit, "unborn_runs", "left by a crash before it was a run", unborn, removal.delete)
    yield from _swept(visit, "trash", "its removal was cut off", trash, lambda _: removal.empty_trash(layout))
    yield from _swept(visit, "temporary_files", "left by a crash", temporary, atomic.unmark)
    yield from _swept(visit, "stale_entries", "leads to no run", list(entries), forget)
    if stray := [path for name, path in top.items() if _stray(name)]:
        yield Finding(None, "stray", f"not ours, and left alone: {named(layout, stray)}", NOTE)


def _swept(
    visit: Visit, code: str, text: str, paths: Sequence[str], remove: Callable[[str], object]
) -> Iterator[Finding]:
    if not paths:
        return
    for path in paths if visit.fix else ():
        with suppress(OSError, SubagentError):
            remove(path)
    fixed = not any(map(os.path.lexists, paths))
    yield Finding(None, code, f"{text}: {named(visit.runs.layout, paths)}", NOTE, "removed", fixed)


def _stray(name: str) -> bool:
    """Whether a name in the directory is none of ours, nor of the server's, nor hidden, as a newer release's may be."""
    return not (name == "README.md" or name.startswith(".") or name.endswith(TEMPORARY) or is_uuid(name[:36]))

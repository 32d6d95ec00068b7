"""What is wrong with the files of a run, and putting right what can be.

`findings` only looks. `mend` works under the lock of the run, which its caller holds: it rebuilds from what is left,
the journal before the picture, and deletes nothing. Whatever cannot stay where it is goes into the run's quarantine
first, whole, so that a crash leaves the old file or the new one and never less than both held. What a newer release
wrote, and what is gone altogether, is left as it is.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import count

from subagent_cli.core.command import Settle
from subagent_cli.core.errors import Damaged, Failed
from subagent_cli.core.evolution import fold
from subagent_cli.core.moment import Moment
from subagent_cli.core.projection import project
from subagent_cli.core.value import Value
from subagent_cli.store import atomic, codec, flat, journal
from subagent_cli.store.layout import TEMPORARY, Layout
from subagent_cli.store.picture import Pictures
from subagent_cli.store.runs import Runs
from subagent_cli.store.salvage import Remains, remains

DAMAGE, WARNING, NOTE = "damage", "warning", "note"
_FILE, _FOLDER, _OTHERS = 0o600, 0o700, 0o077


class Finding(Value):
    """Something that is not as it should be. `fix` says what mending does, as a thing done; None: nothing can be."""

    run_id: str | None
    code: str
    message: str
    severity: str
    fix: str | None = None
    fixed: bool = False


def findings(runs: Runs, run_id: str, *, ours: bool) -> list[Finding]:
    """All that is wrong with the files of a run. `ours`: it was made here, so it has had a journal."""
    layout = runs.layout
    if out := _leading_out(layout, run_id):
        # The quarantine itself cannot be put into quarantine, and nothing may be moved through it.
        movable = layout.quarantine(run_id) not in out
        names = ", ".join(map(os.path.basename, out))
        fix = "the link was moved into quarantine" if movable else None
        return [Finding(run_id, "leads_out", f"a link leads out of the runs directory: {names}", DAMAGE, fix)]
    try:
        with atomic.io("read the journal"):
            read = remains(layout, run_id)
        picture = None if read.newer else _picture(layout, run_id, read, ours)
    except Failed as error:
        return [Finding(run_id, "unreadable", error.message, DAMAGE), *_housekeeping(layout, run_id)]
    if picture and picture.code == "lost":
        return [picture]
    found = [_line_fault(run_id, read), picture]
    return [*filter(None, found), *_housekeeping(layout, run_id)]


def mend(runs: Runs, run_id: str, codes: Collection[str], now: Callable[[], Moment]) -> None:
    """Puts right what `findings` found with a fix. The caller holds the lock of the run."""
    layout = runs.layout
    if "leads_out" in codes:
        for path in _leading_out(layout, run_id):
            _set_aside(layout, run_id, path)
        return
    if "open_modes" in codes:
        for path in exposed(layout.run(run_id)):
            close_up(path)
    read = remains(layout, run_id)
    if read.lost is not None:
        _salvage(layout, run_id, read)
    elif read.torn:
        _keep(layout, run_id, layout.journal(run_id), read.data[read.end :])
        _put(layout.journal(run_id), read.data[: read.end])
    picture = _picture(layout, run_id, remains(layout, run_id), ours=False)
    if picture and picture.code == "damaged_meta":
        _repaint(layout, run_id)
    elif picture and picture.code == "overlong_meta":
        _copy(layout, run_id, layout.meta(run_id))
    runs.change(run_id, Settle(), now)


def exposed(path: str, *, deep: bool = True) -> Iterator[str]:
    """Files and folders, from this one down, whose modes let others in or keep their owner out; links are left out."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        return
    if mode & _OTHERS or mode & _wanted(mode) != _wanted(mode):
        yield path
    if deep and stat.S_ISDIR(mode):
        # Only now, since the caller may just have made the folder readable.
        names: list[str] = []
        with suppress(OSError):
            names = sorted(os.listdir(path))
        for name in names:
            yield from exposed(os.path.join(path, name))


def close_up(path: str) -> None:
    """Makes a file or folder the user's alone."""
    mode = os.lstat(path).st_mode
    os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS | _wanted(mode))


def _wanted(mode: int) -> int:
    return _FOLDER if stat.S_ISDIR(mode) else _FILE


def rewrite(layout: Layout, run_id: str, path: str, data: bytes) -> None:
    """Other bytes in a file of the run; what stands there goes into quarantine first. The caller holds the lock."""
    if os.path.lexists(path):
        _copy(layout, run_id, path)
    _put(path, data)


def _leading_out(layout: Layout, run_id: str) -> list[str]:
    places = (layout.quarantine, layout.journal, layout.meta, layout.spec, layout.prompt, layout.log)
    return [path for path in (place(run_id) for place in places) if not layout.inside(path)]


def _line_fault(run_id: str, read: Remains) -> Finding | None:
    if read.newer:
        return Finding(run_id, "newer_journal", f"{read.newer}; a newer subagent wrote it: upgrade this one", DAMAGE)
    if read.lost is not None:
        kept = read.folded.seq + len(read.picked)
        text = f"the journal is damaged: {_lines(read.lost)} lost, {kept} in order"
        fix = f"{_lines(kept)} kept, what .meta.json still shows was taken over, the damaged journal is in quarantine"
        return Finding(run_id, "damaged_journal", text, DAMAGE, fix)
    if read.torn:
        size = len(read.data) - read.end
        text = f"the journal's last {size} bytes are torn: what they said is lost unless .meta.json shows it"
        return Finding(run_id, "torn_journal", text, DAMAGE, "they were cut off into quarantine")
    return None


def _lines(number: int) -> str:
    return f"{number} line" if number == 1 else f"{number} lines"


def _picture(layout: Layout, run_id: str, read: Remains, ours: bool) -> Finding | None:
    """What is wrong with the picture, as far as that can be told from what is left of the journal."""
    pictures = Pictures(layout)
    nothing = not read.folded.seq and not read.picked
    # Where lines are lost the picture may know of them, so it is never taken for an old one of our own.
    folded = read.folded._replace(seq=0 if nothing else 1)
    try:
        picture = pictures.read(run_id)
        document = pictures.foreign(run_id, picture, folded)
    except Damaged as error:
        if nothing:
            return Finding(run_id, "lost", f"{error.message}; no journal to rebuild it from", DAMAGE)
        fix = "it was put into quarantine and written anew from the journal"
        return Finding(run_id, "damaged_meta", error.message, DAMAGE, fix)
    if picture is None:
        return Finding(run_id, "missing_meta", ".meta.json is gone", DAMAGE, "it was written anew from the journal")
    if nothing and ours:
        text = "the journal is gone: what only it held (notes, options, deadlines, keys) is lost"
        return Finding(run_id, "missing_journal", text, DAMAGE, "a new one was begun from .meta.json")
    return _known(layout, run_id, read, picture, foreign=document is not None)


def _known(layout: Layout, run_id: str, read: Remains, picture: bytes, foreign: bool) -> Finding | None:
    """What is to be said of a picture that can be read."""
    if read.lost is None and picture == codec.document(project(read.folded.run)):
        return None
    if not foreign:
        text = ".meta.json is older than the journal: a change was cut off after it was safe"
        return Finding(run_id, "stale_meta", text, WARNING, "it was written anew from the journal")
    try:
        codec.load(picture)
    except ValueError:
        text = ".meta.json has something behind its end"
        fix = "its bytes were copied into quarantine, what it says was taken over, and it was written anew"
        return Finding(run_id, "overlong_meta", text, DAMAGE, fix)
    if read.lost is not None or flat.lies_flat(layout, run_id):
        return None
    text = ".meta.json says what the journal does not: another program wrote it, or the journal has lost its end"
    return Finding(run_id, "foreign_meta", text, NOTE, "it was taken over, as the next change would have done")


def _housekeeping(layout: Layout, run_id: str) -> Iterator[Finding]:
    folder = layout.run(run_id)
    left: list[str] = []
    with suppress(OSError):
        left = [name for name in os.listdir(folder) if name.endswith(TEMPORARY)]
    if left:
        yield Finding(run_id, "temporary_files", f"left by a crash: {', '.join(left)}", NOTE, "removed")
    if open_to_others := [os.path.relpath(path, folder) for path in exposed(folder)]:
        names = ", ".join("the folder" if name == "." else name for name in open_to_others)
        yield Finding(run_id, "open_modes", f"modes let others in: {names}", WARNING, "made the user's alone")


def _salvage(layout: Layout, run_id: str, read: Remains) -> None:
    """A journal of all lines that check, numbered anew. The pictures that the later ones named are not, since one of
    them may show what was lost, and is to be taken over."""
    path = layout.journal(run_id)
    _keep(layout, run_id, path, read.data)
    first = read.data[: read.end]
    if not read.picked:
        _put(path, first[: journal.committed(first)[1]])
        return
    run = fold(read.folded.run, (happened for happened, _ in read.picked))
    picture = journal.digest(codec.document(project(run)))
    _put(path, first + journal.lines(read.folded.seq, read.picked, picture))


def _repaint(layout: Layout, run_id: str) -> None:
    """The picture of what the journal says, in the place of one that cannot be read."""
    path = layout.meta(run_id)
    if os.path.isfile(path):
        _copy(layout, run_id, path)
    else:
        # A folder, or a link to nothing.
        _set_aside(layout, run_id, path)
    atomic.replace(path, codec.document(project(remains(layout, run_id).folded.run)))


def _put(path: str, data: bytes) -> None:
    """The file with other bytes, which last; readers see the old ones or the new ones."""
    temporary = f"{path}.{os.getpid()}{TEMPORARY}"
    atomic.unmark(temporary)
    atomic.create(temporary, data)
    atomic.appear(temporary, path)
    atomic.sync_folder(os.path.dirname(path))


def _copy(layout: Layout, run_id: str, path: str) -> None:
    with open(path, "rb") as file:
        _keep(layout, run_id, path, file.read())


def _keep(layout: Layout, run_id: str, path: str, data: bytes) -> None:
    """A copy of bytes in quarantine, which lasts."""
    target = _free(layout, run_id, path)
    atomic.create(target, data)
    atomic.sync_folder(os.path.dirname(target))


def _set_aside(layout: Layout, run_id: str, path: str) -> None:
    atomic.appear(path, _free(layout, run_id, path))


def _free(layout: Layout, run_id: str, path: str) -> str:
    """A name in quarantine that nothing has yet."""
    folder = layout.quarantine(run_id)
    atomic.make_folders(folder)
    names = (os.path.join(folder, f"{os.path.basename(path)}.{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))

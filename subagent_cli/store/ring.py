"""The ring: what another program wrote into a document that we had just replaced.

The TypeScript server takes no lock and writes into the file that it has opened. Where we replace that file in between,
its bytes go where nobody looks. So while a document may be open under its flat name, a link to every file that we
replace is kept for some seconds, under a name that says which bytes were in it. Bytes that have changed since are a
late write: readers take it into account, the next change of ours takes it over, and nothing is lost on either side.
"""

import os
from contextlib import suppress

from subagent_cli.core.document import Document
from subagent_cli.core.moment import Moment, elapsed, moment
from subagent_cli.core.value import Value
from subagent_cli.store import atomic, codec, flat, journal
from subagent_cli.store.layout import Layout

KEPT_MS = 10_000
MOST = 512

# Of these every byte is compared; of older ones the size has to have changed.
_COMPARED = 16


class Late(Value):
    """A document that somebody wrote where nobody looks, and the name that its file should have once it is known."""

    path: str
    document: Document
    digest: str


class _Entry(Value):
    """A name in the ring: which file, since when, and what is known of its bytes."""

    inode: str
    since: Moment
    digest: str

    @property
    def name(self) -> str:
        return f"{self.inode}_{self.since.iso}_{self.since.clock}_{self.digest}"


class Ring:
    """The rings of the runs below one directory."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def late(self, run_id: str) -> list[Late]:
        """The late writes that are not known yet, oldest first. Takes no lock; a half-written one comes next time."""
        found: list[Late | None] = []
        with atomic.io(f"look for late writes to run {run_id}"):
            entries = self._entries(run_id)
            for place, entry in enumerate(entries):
                thorough = place >= len(entries) - _COMPARED
                found.append(_late(self._path(run_id, entry), entry.digest, thorough=thorough))
            if flat.is_split(self._layout, run_id):
                found.append(_late(self._layout.flat_meta(run_id), "", thorough=True))
        return [late for late in found if late]

    def keep(self, run_id: str, picture: bytes, now: Moment) -> None:
        """Before the document is replaced, of which these bytes are known. The caller holds the lock of the run."""
        atomic.make_folders(self._layout.ring(run_id))
        self._link(run_id, os.path.realpath(self._layout.meta(run_id)), journal.digest(picture), now)
        self._prune(run_id, now)

    def settle(self, run_id: str, taken: list[Late], now: Moment) -> None:
        """After late writes were taken over, so that they are not news again. The caller holds the lock of the run."""
        for path, _, digest in taken:
            if path == self._layout.flat_meta(run_id):
                atomic.make_folders(self._layout.ring(run_id))
                self._link(run_id, path, digest, now)
                flat.relink(self._layout, run_id)
            elif entry := _entry(os.path.basename(path)):
                atomic.appear(path, self._path(run_id, entry._replace(digest=digest)))
        self._prune(run_id, now)

    def is_empty(self, run_id: str) -> bool:
        return not self._entries(run_id)

    def files(self, run_id: str) -> list[str]:
        """What has to be watched so that no late write is missed."""
        return [self._path(run_id, entry) for entry in self._entries(run_id)]

    def _prune(self, run_id: str, now: Moment) -> None:
        entries = self._entries(run_id)
        for place, entry in enumerate(entries):
            # Nothing that was open before a boot is open after it.
            old = elapsed(entry.since, now) > KEPT_MS or entry.since.boot != now.boot
            if old or place < len(entries) - MOST:
                atomic.unmark(self._path(run_id, entry))

    def _link(self, run_id: str, path: str, digest: str, now: Moment) -> None:
        entry = _Entry(str(os.stat(path).st_ino), now, digest)
        with suppress(FileExistsError):
            os.link(path, self._path(run_id, entry))

    def _path(self, run_id: str, entry: _Entry) -> str:
        return os.path.join(self._layout.ring(run_id), entry.name)

    def _entries(self, run_id: str) -> list[_Entry]:
        try:
            names = os.listdir(self._layout.ring(run_id))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(filter(None, map(_entry, names)), key=lambda entry: (entry.since.up, entry.since.ms))


def _entry(name: str) -> _Entry | None:
    parts = name.split("_")
    if len(parts) != 4:
        return None
    inode, at, clock, digest = parts
    return _Entry(inode, moment(at, clock), digest)


def _late(path: str, known: str, *, thorough: bool) -> Late | None:
    """The document in a file, if it is another one than that which is known, and whole."""
    try:
        if not thorough and str(os.stat(path).st_size) == known.partition("-")[0]:
            return None
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        # A writer of ours has just taken it over, and the journal knows.
        return None
    digest = journal.digest(data)
    if digest == known:
        return None
    try:
        document = codec.load(data)
    except ValueError:
        return None
    return Late(path, document, digest) if isinstance(document, dict) else None

"""Runs in one file: a zip with a manifest and, below a folder for each run, the files that make it up.

Nothing in such a file is believed. Names other than those of a run's files, links, doubles and sizes beyond the
limits are refused before anything is written, and sizes are counted while reading. The runs of a file appear below
the runs directory all or none; each is prepared under a temporary name, as a new run is.
"""

import errno
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from subagent_cli.core.errors import Damaged, InvalidInput, Refused
from subagent_cli.core.ids import is_uuid
from subagent_cli.store import atomic, codec, flat
from subagent_cli.store.layout import TEMPORARY, Layout

FORMAT, VERSION, MANIFEST = "subagent-archive", 1, "manifest.json"
MOST_BYTES, MOST_ENTRIES = 1 << 30, 100_000

_HERE = Layout("")
SPEC, PROMPT, JOURNAL, META, LOG, QUARANTINE = (
    os.path.basename(path("run"))
    for path in (_HERE.spec, _HERE.prompt, _HERE.journal, _HERE.meta, _HERE.log, _HERE.quarantine)
)
_FILES = (SPEC, PROMPT, JOURNAL, META, LOG)
_CHUNK = 1 << 18
_ENTRY = b"PK\x01\x02"


class Writer:
    """Puts runs into an open file. Whoever adds a run holds its lock."""

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = ZipFile(file, "w", ZIP_DEFLATED)
        self._left = MOST_BYTES
        self._entries = 1
        self.runs: list[str] = []

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        # Nothing happens here after `finish`; before it the file is thrown away, whatever its end looks like.
        with suppress(OSError, ValueError):
            self._zip.close()

    def add(self, layout: Layout, run_id: str) -> None:
        folder = layout.run(run_id)
        kept = [f"{QUARANTINE}/{name}" for name in _listed(layout.quarantine(run_id))]
        later = filter(_is_later_prompt, _listed(folder))
        paths = {name: os.path.join(folder, name) for name in (*_FILES, *later, *kept)}
        if flat.lies_flat(layout, run_id):
            paths = dict(zip((META, LOG, PROMPT), flat.names(layout, run_id), strict=True))
        for name, path in paths.items():
            if not layout.inside(path):
                raise Damaged(f"{name} of run {run_id} is a link that leads out of the runs directory")
            if os.path.isfile(path):
                self._pour(path, f"{run_id}/{name}")
        self.runs.append(run_id)

    def finish(self, exported_at: str) -> None:
        about = {"format": FORMAT, "version": VERSION, "runs": self.runs, "exportedAt": exported_at}
        self._zip.writestr(_entry(MANIFEST), codec.document(about))
        self._zip.close()

    def _pour(self, path: str, name: str) -> None:
        self._entries += 1
        with open(path, "rb") as source, self._zip.open(_entry(name), "w", force_zip64=True) as target:
            while chunk := source.read(_CHUNK):
                self._left -= len(chunk)
                target.write(chunk)
        if self._left < 0 or self._entries > MOST_ENTRIES:
            raise InvalidInput("the runs are too large for one file", code="too_large", hint="export fewer at a time")


class Archive:
    """A file of runs, checked to the last byte when it is opened."""

    def __init__(self, file: IO[bytes]) -> None:
        with _readable():
            _few_enough(file)
            self._zip = ZipFile(file)
            self._entries = _checked(self._zip.infolist())
            left = MOST_BYTES
            for path in self._entries:
                left -= sum(map(len, self.chunks(path, left)))
            about = codec.load(self._whole(MANIFEST)) if MANIFEST in self._entries else None
        self.names: dict[str, list[str]] = {}
        for path in self._entries.keys() - {MANIFEST}:
            run_id, _, name = path.partition("/")
            self.names.setdefault(run_id, []).append(name)
        self.runs = _runs_of(about, set(self.names))
        for run_id in self.runs:
            if not {JOURNAL, META} & set(self.names[run_id]):
                raise _bad(f"run {run_id} has neither a journal nor a document")

    def read(self, run_id: str, name: str) -> bytes | None:
        path = f"{run_id}/{name}"
        with _readable():
            return self._whole(path) if path in self._entries else None

    def chunks(self, path: str, limit: int = MOST_BYTES) -> Iterator[bytes]:
        """The bytes of an entry; its own word for their number is held against what comes out."""
        entry = self._entries[path]
        count = 0
        with _readable(), self._zip.open(entry) as source:
            while chunk := source.read(_CHUNK):
                count += len(chunk)
                if count > limit:
                    raise _bad(f"it holds more than {MOST_BYTES} bytes")
                yield chunk
        if count != entry.file_size:
            raise _bad(f"{path[:80]!r} has not the size it says")

    def _whole(self, path: str) -> bytes:
        return b"".join(self.chunks(path))


@contextmanager
def whole(path: str, *, force: bool) -> Iterator[IO[bytes]]:
    """A new file that is there when all of it is; an old one is only replaced by force."""
    from tempfile import mkstemp

    target = os.path.realpath(path)
    there = _is_there(target)
    if there and not os.path.isfile(target):
        raise InvalidInput(f"not a file: {path}", code="not_a_file")
    if there and not force:
        raise _taken(path)
    if not os.path.isdir(os.path.dirname(target)):
        raise InvalidInput(f"the folder is not there: {os.path.dirname(target)}", code="no_folder")
    with atomic.io("write the archive", "choose another FILE"):
        fd, temporary = mkstemp(TEMPORARY, ".export-", os.path.dirname(target))
        try:
            with open(fd, "w+b") as file:
                yield file
                file.flush()
                atomic.commit(file.fileno())
            if not (force or _placed(temporary, target)):
                raise _taken(path)
            if force:
                atomic.appear(temporary, target)
            atomic.sync_folder(os.path.dirname(target))
        finally:
            atomic.unmark(temporary)


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InvalidInput(f"no archive can lie there: {error.strerror}: {path[:200]}", code="no_file_name") from error
    return True


def _placed(temporary: str, target: str) -> bool:
    """Puts the file where nothing is; whether nothing was."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:
        # A file system without hard links.
        if os.path.lexists(target):
            return False
        atomic.appear(temporary, target)
    return True


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)
    entry.external_attr = (stat.S_IFREG | 0o600) << 16
    entry.compress_type = ZIP_DEFLATED
    return entry


def _listed(folder: str) -> list[str]:
    if os.path.islink(folder) or not os.path.isdir(folder):
        return []
    return sorted(filter(_harmless, os.listdir(folder)))


def _is_later_prompt(name: str) -> bool:
    """What an agent was told at a later attempt."""
    number = name.removeprefix("prompt-").removesuffix(".md")
    return number.isdecimal() and number.isascii() and name == os.path.basename(_HERE.prompt_of("run", int(number)))


def _harmless(name: str) -> bool:
    return (
        0 < len(name.encode("utf-8", "replace")) <= 128
        and name.isprintable()
        and name not in (".", "..")
        and not {"/", "\\"} & set(name)
    )


def _checked(entries: Sequence[ZipInfo]) -> dict[str, ZipInfo]:
    """The entries by name, if each of them is a plain file of a run and there is one of each."""
    found: dict[str, ZipInfo] = {}
    for entry in entries:
        name = entry.filename
        run_id, _, file = name.partition("/")
        folder, _, inner = file.partition("/")
        known = file in _FILES or _is_later_prompt(file) or (folder == QUARANTINE and _harmless(inner))
        if name != entry.orig_filename or (name != MANIFEST and not (is_uuid(run_id) and known)):
            raise _bad(f"it holds a name that has no place in it: {entry.orig_filename[:80]!r}")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG) or entry.is_dir():
            raise _bad(f"{name!r} is not a plain file")
        if entry.flag_bits & 0x1 or entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise _bad(f"{name!r} is encrypted or packed in a way that is not used here")
        if name.lower() in found:
            raise _bad(f"{name!r} is there twice")
        found[name.lower()] = entry
    return {entry.filename: entry for entry in found.values()}


def _runs_of(about: object, folders: set[str]) -> list[str]:
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise _bad("it has no manifest of ours")
    if about.get("version") != VERSION:
        raise InvalidInput(
            f"the archive has version {str(about.get('version'))[:20]}, which is not known here",
            code="unknown_version",
            hint="a newer subagent wrote it: upgrade this one",
        )
    runs = about.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, str) and is_uuid(run) for run in runs):
        raise _bad("its manifest does not say which runs it holds")
    if len(set(runs)) != len(runs) or set(runs) != folders:
        raise _bad("its manifest names other runs than it holds")
    return runs


def _few_enough(file: IO[bytes]) -> None:
    """Counts what may be entries before the list of them is read into memory."""
    count = size = 0
    tail = b""
    file.seek(0)
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        count += (tail + chunk).count(_ENTRY)
        tail = chunk[-3:]
        if count > MOST_ENTRIES or size > MOST_BYTES:
            raise _bad(f"it has more than {MOST_ENTRIES} entries or {MOST_BYTES} bytes")
    file.seek(0)


@contextmanager
def _readable() -> Iterator[None]:
    """What a broken or hostile zip makes the library raise, as one refusal."""
    try:
        yield
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OverflowError) as error:
        raise _bad(str(error) or type(error).__name__) from error
    except (zlib.error, struct.error) as error:
        raise _bad(str(error)) from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise atomic.failed("read the archive", error) from error
        raise _bad("it leads to places before its beginning") from error


def _bad(reason: str) -> InvalidInput:
    return InvalidInput(
        f"not an archive of runs: {reason}", code="bad_archive", hint="subagent export makes one; nothing was imported"
    )


def _taken(path: str) -> Refused:
    return Refused(f"the file is there already: {path}", code="exists", hint="--force replaces it")

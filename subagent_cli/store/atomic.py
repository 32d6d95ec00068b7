"""Bytes that get to disk whole or not at all: the only module that writes, syncs and renames.

What readers may see: a replaced file is the old one or the new one; an appended file is a prefix of what was
appended, and a new run is there or not. What a crash leaves: a temporary file, a torn last line, an unrenamed folder;
never a half-written file under its own name.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from subagent_cli.core.errors import Failed
from subagent_cli.store.layout import TEMPORARY

_FILE, _FOLDER = 0o600, 0o700
_PORTION = 1 << 18
_count = count()
_datasync = getattr(os, "fdatasync", os.fsync)
_ROOM = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
}
_PLACE = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission there",
    errno.EPERM: "no permission there",
    errno.ENOTDIR: "a file stands where a folder is needed",
    errno.EEXIST: "a file stands where a folder is needed",
    errno.ENOENT: "it cannot be made there",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its links lead in a circle",
}
_OTHER_PLACE = "choose another place with --runs-dir"


@contextmanager
def io(doing: str, elsewhere: str = _OTHER_PLACE) -> Iterator[None]:
    """Turns what the system refuses into one clear sentence; `elsewhere` is what helps where the place is wrong."""
    try:
        yield
    except OSError as error:
        raise failed(doing, error, elsewhere) from error


def failed(doing: str, error: OSError, elsewhere: str = _OTHER_PLACE) -> Failed:
    reason = error.strerror or str(error)
    where = f": {error.filename}" if error.filename else ""
    code = "disk_full" if error.errno in _ROOM else "io_error"
    return Failed(f"could not {doing}: {reason}{where}", code=code, hint=_hint(error.errno or 0, elsewhere))


def _hint(number: int, elsewhere: str) -> str | None:
    if number in _ROOM:
        return f"{_ROOM[number]}: free some space, then try again"
    if number in _PLACE:
        return f"{_PLACE[number]}: {elsewhere}"
    return "too many open files: raise the limit (ulimit -n) or try again" if number == errno.EMFILE else None


def make_folders(path: str) -> None:
    """A folder and those above it that are missing, all of them the user's alone."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        make_folders(above)
    try:
        os.mkdir(path, _FOLDER)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def sync_folder(path: str) -> None:
    """Makes the names in a folder last."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def content(path: str) -> bytes:
    """All bytes of a file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return rest(fd)
    finally:
        os.close(fd)


def rest(fd: int) -> bytes:
    """The bytes from here to the end of the file, which may be growing."""
    parts = []
    while part := os.read(fd, _PORTION):
        parts.append(part)
        if len(part) < _PORTION:
            break
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def commit(fd: int) -> None:
    """Makes what was written to this file last. A failure is final: what is on disk is then unknown."""
    _datasync(fd)


def create(path: str, data: bytes, *, lasting: bool = True, mode: int = _FILE) -> None:
    """A new file; fails where one is."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        write_all(fd, data)
        if lasting:
            os.fsync(fd)
    finally:
        os.close(fd)


def replace(path: str, data: bytes) -> None:
    """Puts the bytes where the name points to, through links. The caller holds the lock of what it replaces.

    Without a sync: a power cut may lose the new bytes, so this is only for what can be rebuilt.
    """
    target = os.path.realpath(path) if os.path.islink(path) else path
    # Beside the name and not beside what it points to, which may be a folder of somebody else's.
    temporary = f"{path}.{os.getpid()}{TEMPORARY}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE)
    try:
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        os.replace(temporary, target)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def arriving(folder: int, name: str, mode: int = _FILE) -> Iterator[int]:
    """A file to be written that gets its name in an open folder when it is whole and lasting.

    It takes the place of a file or link of that name, and follows none.
    """
    temporary = f".{os.getpid()}-{next(_count)}{TEMPORARY}"
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
    try:
        try:
            yield fd
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def append(path: str, data: bytes) -> None:
    """Bytes at the end of a file, in one write as far as the system allows."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _FILE)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def mark(path: str, data: bytes = b"") -> None:
    """A small file of the index: made if it is missing, mended if a crash left it empty."""
    with suppress(FileNotFoundError):
        if os.stat(path).st_size or not data:
            return
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, _FILE)
    except FileNotFoundError:
        make_folders(os.path.dirname(path))
        fd = os.open(path, flags, _FILE)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def unmark(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def appear(prepared: str, path: str) -> None:
    """A prepared folder under its own name."""
    os.rename(prepared, path)


def discard(folder: str) -> None:
    """Removes a prepared folder that did not come to anything."""
    with suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)

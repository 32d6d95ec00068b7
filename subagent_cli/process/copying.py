"""Copies of files and folders that share nothing with what they were copied from.

Where the file system can, a copy shares its blocks until one of the two is written to (reflink); it never is a second
name of the same file (hard link). Holes stay holes. Permissions and the time of the last change are kept; owners,
extended attributes and set-user-id bits are not. What changes or goes meanwhile is copied as it is then, or not.

A link stays a link. One that leads back into what is copied, by an absolute path or by a way outside, leads into the
copy instead. One that leads elsewhere is kept as it stands, so who writes through it writes there; a link to a folder
above what was copied is one of those.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from subagent_cli.process.descent import GONE, below, inside, opened, resolved
from subagent_cli.process.inventory import Inventory
from subagent_cli.store import atomic

# Whoever opens a named pipe that has taken the place of a file would wait for somebody to write into it.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PERMISSIONS = 0o777
_CHUNK = 1 << 20
_BLOCK = 512
_FICLONE = 0x40049409


def copy(inventory: Inventory, target: str) -> None:
    """Copies what was found into an empty folder; what may not be read is added to `unread`."""
    with opened(inventory.top) as source, opened(target) as into:
        for path in inventory.folders:
            _fill(inventory, path, source, into)
        # Those below first: a folder that may not be entered hides them.
        for path in reversed(inventory.folders):
            if path:
                with below(into, path) as there:
                    os.fchmod(there, inventory.folders[path].mode & _PERMISSIONS)


def copy_file(here: int, name: str, there: int) -> bool:
    """Copies a file between two open folders; false where it may not be read.

    Where it has gone, or is no file any more, nothing is made.
    """
    try:
        with reading(here, name) as source:
            if source is not None:
                _copied(source, os.open(name, _NEW, 0o600, dir_fd=there))
    except PermissionError:
        return False
    return True


@contextmanager
def reading(folder: int, name: str) -> Iterator[int | None]:
    """A file of an open folder, open for reading; None where there is no such file, or something that is none."""
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno not in GONE:
            raise
        yield None
        return
    try:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def pour(source: int, target: int) -> None:
    """The content of an open file, as long as it is now, into an empty one."""
    status = os.fstat(source)
    if not status.st_size or _shared(source, target):
        return
    for start, end in _stretches(source, status):
        os.lseek(source, start, os.SEEK_SET)
        os.lseek(target, start, os.SEEK_SET)
        while start < end and (chunk := os.read(source, min(end - start, _CHUNK))):
            atomic.write_all(target, chunk)
            start += len(chunk)
    if _has_holes(status):
        os.ftruncate(target, status.st_size)


def _copied(source: int, target: int) -> None:
    try:
        status = os.fstat(source)
        pour(source, target)
        os.fchmod(target, status.st_mode & _PERMISSIONS)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(target)


def _shared(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _stretches(source: int, status: os.stat_result) -> Iterator[tuple[int, int]]:
    """From where to where there is something in a file."""
    end = 0 if _has_holes(status) else status.st_size
    if end:
        yield 0, end
    while end < status.st_size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                # This file system does not tell.
                yield end, status.st_size
            return
        end = os.lseek(source, start, os.SEEK_HOLE)
        yield start, end


def _has_holes(status: os.stat_result) -> bool:
    return status.st_blocks * _BLOCK < status.st_size


def _fill(inventory: Inventory, path: str, source: int, into: int) -> None:
    folder = inventory.folders[path]
    with ExitStack() as open_ones:
        there = open_ones.enter_context(below(into, path, make=True))
        try:
            here = open_ones.enter_context(below(source, path))
        except OSError as error:
            if error.errno in GONE:
                return
            raise
        for name in folder.files:
            if not copy_file(here, name, there):
                inventory.unread.append(os.path.join(path, name))
        for name in folder.links:
            _copy_link(here, there, name, inventory.top, path)


def _copy_link(here: int, there: int, name: str, top: str, path: str) -> None:
    try:
        leads = os.readlink(name, dir_fd=here)
    except OSError:
        # It has gone, or it is no link any more.
        return
    os.symlink(_kept_inside(leads, top, path), name, dir_fd=there)


def _kept_inside(leads: str, top: str, path: str) -> str:
    """What a link in the folder `path` says in the copy."""
    stays = not os.path.isabs(leads) and os.path.normpath(os.path.join(path, leads)).split("/")[0] != ".."
    if stays:
        return leads
    back = inside(resolved(os.path.join(top, path, leads)), top)
    # Made relative below a root that both have in common, for there need not be a current folder.
    return leads if back is None else os.path.relpath(f"/{back}", f"/{path}")

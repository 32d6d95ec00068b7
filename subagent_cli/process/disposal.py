"""Removing a folder whatever is in it.

No link is followed, and nothing that is mounted in it is entered: a folder is entered only where the system says that
it is not empty, and of a mount point it says that it is busy. Neither permissions nor depth are in the way, for each
folder is made writable when it is entered, and only one is open at a time. Where the user may do that, files that were
made immutable are made mutable.
"""

import errno
import fcntl
import os
import sys
from contextlib import suppress

from subagent_cli.core.value import Value
from subagent_cli.process.descent import STEP

# Somebody may go on making files; he is followed as often as this.
_ROUNDS = 100
_GETFLAGS, _SETFLAGS = 0x80086601, 0x40086602
_LOCKED = 0x10 | 0x20
_ANY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class _Level(Value):
    """A folder on the way down: its name, which one it is, and what is still to be removed from it."""

    name: str
    identity: tuple[int, int]
    left: list[str]


def discard(target: str) -> bool:
    """Removes what stands there; whether nothing is left. Where nothing stands, nothing is left."""
    above, name = os.path.split(os.path.abspath(target))
    for _ in range(_ROUNDS):
        if not os.path.lexists(target):
            return True
        with suppress(OSError):
            _clear(os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), name)
    return not os.path.lexists(target)


def _clear(here: int, name: str) -> None:
    """Goes down and up again; `here` is the open folder above, and is closed in the end."""
    levels = [_Level("", _identity(here), [name])]
    try:
        while levels:
            if levels[-1].left:
                name = levels[-1].left.pop()
                if _full(here, name) and (below := _entered(here, name)) is not None:
                    os.close(here)
                    here = below
                    levels.append(_Level(name, _identity(here), _listed(here)))
                continue
            emptied = levels.pop()
            if levels:
                above = os.open("..", STEP, dir_fd=here)
                os.close(here)
                here = above
                if _identity(here) != levels[-1].identity:
                    # Somebody has put the folder elsewhere meanwhile, so ".." leads astray.
                    return
                _full(here, emptied.name)
    finally:
        os.close(here)


def _full(here: int, name: str) -> bool:
    """Removes a name; false, unless it is that of a folder that is not empty."""
    refusal = _refusal(here, name)
    if refusal == errno.EPERM:
        with suppress(OSError):
            _unlock(os.open(name, _ANY, dir_fd=here))
        refusal = _refusal(here, name)
    return refusal in (errno.ENOTEMPTY, errno.EEXIST)


def _refusal(here: int, name: str) -> int | None:
    try:
        try:
            os.rmdir(name, dir_fd=here)
        except NotADirectoryError:
            os.unlink(name, dir_fd=here)
    except OSError as error:
        return error.errno
    return None


def _entered(here: int, name: str) -> int | None:
    """A folder, opened and made ours to change; None where that is not possible."""
    try:
        try:
            below = os.open(name, STEP, dir_fd=here)
        except PermissionError:
            _make_readable(here, name)
            below = os.open(name, STEP, dir_fd=here)
    except OSError:
        return None
    with suppress(OSError):
        _unlock(os.dup(below))
    with suppress(OSError):
        os.fchmod(below, 0o700)
    return below


def _make_readable(here: int, name: str) -> None:
    handle = os.open(name, _HANDLE, dir_fd=here)
    try:
        # The system changes no permissions through a handle, but through the name that it has for it.
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)


def _unlock(fd: int) -> None:
    """Takes from a file or folder the marks that forbid to change it, and closes it."""
    try:
        flags = bytearray(8)
        fcntl.ioctl(fd, _GETFLAGS, flags)
        before = int.from_bytes(flags[:4], sys.byteorder)
        if before & _LOCKED:
            flags[:4] = (before & ~_LOCKED).to_bytes(4, sys.byteorder)
            fcntl.ioctl(fd, _SETFLAGS, flags)
    finally:
        os.close(fd)


def _listed(here: int) -> list[str]:
    try:
        return os.listdir(here)
    except OSError:
        return []


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino

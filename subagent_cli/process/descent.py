"""Going down into a folder one name at a time, through no link.

So nobody who can put links into it leads us out of it, not even in the last moment, and no path is too long.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""What the system answers where nothing stands any more, or something else than there was."""

STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(folder: str) -> Iterator[int]:
    """An open folder; only the last name of its path must not be a link."""
    fd = os.open(folder, STEP)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def below(top: int, folder: str, *, make: bool = False) -> Iterator[int]:
    """A folder by its path below an open one; with `make`, those that are missing are made, the user's alone."""
    here = os.dup(top)
    try:
        for name in filter(None, folder.split("/")):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=here)
            step = os.open(name, STEP, dir_fd=here)
            os.close(here)
            here = step
        yield here
    finally:
        os.close(here)


def resolved(path: str) -> str | None:
    """Where a path leads behind all links; None where one leads to the next for too long."""
    try:
        return os.path.realpath(path)
    except RecursionError:
        # Python follows them by calling itself.
        return None


def inside(path: str | None, top: str) -> str | None:
    """The path as it is spelled below another, empty for that one itself; None where it is not below it.

    Both are absolute and in order; what is on disk is not looked at.
    """
    if path == top:
        return ""
    above = top.rstrip("/") + "/"
    return path[len(above) :] if path and path.startswith(above) else None

"""Whether the keeper of a run lives: a held lock, not a process id.

The lock is taken before there is a keeper and handed to it, so there is no gap, and the system releases it however
the keeper ends. Looking takes a shared lock for a moment and never an exclusive one, so that lookers do not take each
other for keepers. Only a lock that could be had is a proof of death: no permission and no such file are not.
"""

import fcntl
import os
import stat
import time
from contextlib import suppress

from subagent_cli.store import atomic
from subagent_cli.store.layout import Layout

# A looker holds its shared lock for microseconds.
_PATIENCE_SECONDS = 1.0


def dead(layout: Layout, run_id: str) -> bool:
    """Whether it is proven that nobody keeps this run."""
    return released(layout.alive(run_id))


def released(path: str) -> bool:
    """Whether it is proven that nobody holds the lock on this file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


class Claim:
    """The lock on `.alive`, from whoever starts a keeper to the keeper."""

    def __init__(self) -> None:
        self.fd = -1

    def take(self, path: str) -> bool:
        """Takes the lock, making the file if it is missing; False where a keeper has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up:
                    os.close(fd)
                    return False
                time.sleep(0.001)
                continue
            except OSError:
                os.close(fd)
                raise
            self.fd = fd
            return True

    def drop(self) -> None:
        """Closes our copy; the lock is free unless a keeper has one too."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def nudge(layout: Layout, run_id: str) -> None:
    """Tells the keeper of a run that its journal has something for it. Where nobody listens there is nobody to tell,
    and a full pipe says all there is to say."""
    with suppress(OSError):
        fd = os.open(layout.wake(run_id), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            # A file in its place would only grow.
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b"!")
        finally:
            os.close(fd)


def listen(layout: Layout, run_id: str) -> int:
    """The end of the pipe at which the keeper is told. It is also open for writing, so that it never ends."""
    path = layout.wake(run_id)
    atomic.make_folders(os.path.dirname(path))
    atomic.unmark(path)
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)

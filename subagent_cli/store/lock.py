"""One writer at a time, each in its turn: the only module that knows filelock.

The lock files lie outside the runs, are never deleted while they could be held, and say who holds them, so that a
caller who gives up can name the one in the way. Polling alone is not fair: a neighbour that re-takes the lock at once
can keep it from everybody, and many pollers leave the holder no processor. So whoever wants the lock of a run first
queues in the kernel, and only the head of the queue polls.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from subagent_cli.core.errors import Busy
from subagent_cli.store.atomic import io, make_folders

# The library's own 50 ms make every hand-over wait.
_POLL_SECONDS = 0.001

# By process as well, since a lock that was made before a fork is of no use behind it.
_locks: dict[tuple[int, str], FileLock] = {}


@contextmanager
def held(path: str, timeout: float, what: str, queue: str | None = None) -> Iterator[None]:
    """Holds the lock for the length of a with block; Busy where it cannot be had in time.

    `queue` is a folder to queue at.
    """
    give_up = time.monotonic() + timeout
    key = (os.getpid(), path)
    lock = _locks.get(key) or _locks.setdefault(key, _make(path))
    with io(f"lock {what}"):
        turn = _turn(queue, timeout) if queue else None
        try:
            if queue and turn is None:
                raise Timeout(path)
            lock.acquire(timeout=max(0.0, give_up - time.monotonic()))
        except Timeout:
            raise Busy(
                f"{what} is busy: {_holder(path)} has held it for more than {timeout:g} s",
                hint="try again; nothing was changed",
            ) from None
        finally:
            if turn is not None:
                # A child that another thread forks meanwhile has a copy, which closing alone would leave locked.
                fcntl.flock(turn, fcntl.LOCK_UN)
                os.close(turn)
    try:
        yield
    finally:
        lock.release()


def _turn(queue: str, timeout: float) -> int | None:
    """The descriptor that is the head of the queue until it is closed; None where that took too long."""
    fd = os.open(queue, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return fd if _queued(fd, timeout) else None
    except OSError:
        os.close(fd)
        raise
    return fd


def _queued(fd: int, timeout: float) -> bool:
    """Waits in the kernel's queue. The call there knows no time limit, so a thread makes it, and closes the
    descriptor if nobody waits for it any more when its turn comes."""
    turn, decided = threading.Event(), threading.Lock()
    given_up = False

    def wait() -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with decided:
            if given_up:
                os.close(fd)
            turn.set()

    threading.Thread(target=wait, daemon=True).start()
    turn.wait(timeout)
    with decided:
        given_up = not turn.is_set()
    return not given_up


def _make(path: str) -> FileLock:
    with io("make the lock folder"):
        make_folders(os.path.dirname(path))
    return FileLock(path, mode=0o600, poll_interval=_POLL_SECONDS, fallback_to_soft=False, on_acquired=_sign)


def _sign(fd: int) -> None:
    os.pwrite(fd, b"%-11d\n" % os.getpid(), 0)


def _holder(path: str) -> str:
    try:
        with open(path, "rb") as file:
            pid = int(file.read(12))
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(200).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return "another process"
    return f"process {pid} ({words})" if words else f"process {pid}"

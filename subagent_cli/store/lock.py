"""One writer at a time, each in its turn: the only module that knows filelock.

The lock files lie outside the runs, are never deleted while they could be held, and say who holds them, so that a
caller who gives up can name the one in the way. Polling alone is not fair: a neighbour that re-takes the lock at once
can keep it from everybody, and many pollers leave the holder no processor. So whoever wants the lock of a run first
queues in the kernel, and only the head of the queue polls.

A lock that is free is taken by the same call of the kernel as filelock makes (flock on its file), without the library:
its import takes longer than the whole change, and its bookkeeping forty times as long as the call. Where somebody is
in the way, or the file system is a strange one, the library does it.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from subagent_cli.core.errors import Busy
from subagent_cli.store.atomic import io, make_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from filelock import FileLock

_Release = Callable[[], object]

# The library's own 50 ms make every hand-over wait.
_POLL_SECONDS = 0.001

# By process as well, since a lock that was made before a fork is of no use behind it.
_locks: dict[tuple[int, str], "FileLock"] = {}
_holding: set[tuple[int, int, str]] = set()


@contextmanager
def held(path: str, timeout: float, what: str, queue: str | None = None) -> Iterator[None]:
    """Holds the lock for the length of a with block; Busy where it cannot be had in time.

    `queue` is a folder to queue at. A thread that holds the lock may take it once more.
    """
    holder = (os.getpid(), threading.get_ident(), path)
    if holder in _holding:
        yield
        return
    with io(f"lock {what}"):
        release = _taken(path, timeout, queue)
        if release is None:
            raise Busy(
                f"{what} is busy: {_holder(path)} has held it for more than {timeout:g} s",
                hint="try again; nothing was changed",
            )
    _holding.add(holder)
    try:
        yield
    finally:
        _holding.discard(holder)
        release()


def _taken(path: str, timeout: float, queue: str | None) -> _Release | None:
    """The lock, as what releases it; None where it cannot be had in time."""
    give_up = time.monotonic() + timeout
    if queue is None:
        return _at_once(path) or _patiently(path, give_up)
    turn = _turn(queue, timeout)
    if turn is None:
        return None
    try:
        return _at_once(path) or _patiently(path, give_up)
    finally:
        _let_go(turn)


def _at_once(path: str) -> _Release | None:
    """The lock, if it is free."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_folders(os.path.dirname(path))
        fd = os.open(path, flags, 0o600)
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A lock whose file somebody has taken away meanwhile keeps nobody out.
        if os.fstat(fd).st_nlink:
            _sign(fd)
            return lambda: _let_go(fd)
    os.close(fd)
    return None


def _patiently(path: str, give_up: float) -> _Release | None:
    """The lock as the library takes it, which waits for it as long as there is time."""
    from filelock import FileLock, Timeout

    key = (os.getpid(), path)
    lock = _locks.get(key)
    if lock is None:
        lock = FileLock(path, mode=0o600, poll_interval=_POLL_SECONDS, fallback_to_soft=False, on_acquired=_sign)
        lock = _locks.setdefault(key, lock)
    try:
        lock.acquire(timeout=max(0.0, give_up - time.monotonic()))
    except Timeout:
        return None
    return lock.release


def _let_go(fd: int) -> None:
    """A child that another thread forks meanwhile has a copy, which closing alone would leave locked. What was done
    under the lock is done, so a failure here is none of it."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    with suppress(OSError):
        os.close(fd)


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


def _sign(fd: int) -> None:
    # A full disk keeps nobody from the lock: room is made under one too.
    with suppress(OSError):
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

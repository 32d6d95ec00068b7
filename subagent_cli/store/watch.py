"""Waking up when something changes below a runs directory.

On Linux the kernel tells (inotify, through libc: no package, no event loop). Where it cannot, because the system has
none or its instances are used up, the wait becomes a look every now and then, at growing intervals. Either way a
wait may end early without a reason: whoever waits looks again.
"""

import gc
import os
import select
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any

_CLOSE_WRITE, _MODIFY, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x2, 0x80, 0x100, 0x200
_EVENTS = _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC

# The system counts the milliseconds of a poll in 31 bits.
_LONGEST_POLL = 1_000_000.0

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
_SOON, _LATE = 0.005, 1.0


class Watch:
    """A set of folders; `wait` returns when something in one of them has changed, or the time is up.

    A file that is being written counts when it is closed, or with `growing` at every write: a log is kept open.
    """

    def __init__(
        self,
        folders: Iterable[str] = (),
        *,
        growing: bool = False,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        # A call that waits is no longer a short one: what `start` turned off is wanted again.
        gc.enable()
        self._libc: Any = None
        self._fd = -1
        self._watched: set[str] = set()
        self._events = _EVENTS | (_MODIFY if growing else 0)
        self._pause, self._longest_pause = first_pause, longest_pause
        self._soon: float | None = _SOON
        self._open()
        self.add_all(folders)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def polling(self) -> bool:
        return self._fd < 0

    def await_folder(self, folder: str) -> None:
        """Watches a folder, and while it is not there the nearest one above it, where it or its parent will come."""
        while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
        self.add(folder)

    def add_all(self, folders: Iterable[str]) -> None:
        for folder in folders:
            self.add(folder)

    def add(self, folder: str) -> None:
        """Watches one more folder, or a file; one that is not there is passed over."""
        if self.polling or folder in self._watched:
            return
        if self._libc.inotify_add_watch(self._fd, os.fsencode(folder), self._events) < 0:
            if os.path.isdir(folder):
                self._close()
            return
        self._watched.add(folder)

    def wait(self, seconds: float | None) -> bool:
        """Until something changes, or for so long; whether something is known to have changed."""
        if self.polling:
            time.sleep(self._pause if seconds is None else max(0.0, min(seconds, self._pause)))
            self._pause = min(self._pause * 2, self._longest_pause)
            return False
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if poll.poll(None if seconds is None else 1000 * max(0.0, min(seconds, _LONGEST_POLL))):
            with suppress(BlockingIOError):
                while os.read(self._fd, 65_536):
                    pass
            return True
        return False

    def wait_closely(self, seconds: float | None) -> None:
        """As `wait`, but shorter for a while after each change: the lock of a process that dies falls a moment after
        the last event that it causes."""
        pauses = [pause for pause in (seconds, self._soon) if pause is not None]
        if self.wait(min(pauses) if pauses else None):
            self._soon = _SOON
        elif self._soon is not None:
            self._soon = self._soon * 4 if self._soon < _LATE else None

    def _open(self) -> None:
        if not sys.platform.startswith("linux"):
            return
        import ctypes

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_FLAGS)

    def _close(self) -> None:
        if self._fd >= 0:
            # On a busy machine the kernel takes some 15 ms over this, for which nobody who was woken should wait.
            threading.Thread(target=os.close, args=(self._fd,), daemon=True).start()
        self._fd = -1

"""Starting a keeper: the one place where a process of ours is made that outlives us.

The keeper gets its orders through a pipe, so that neither the token nor the environment of the agent can be seen in a
list of processes, and the locks that it is to hold as open files. When this returns, it has them.
"""

import fcntl
import marshal
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from subagent_cli.core.errors import Failed
from subagent_cli.process.keeper import ALIVE_FD, READY, WAKE_FD

# Isolated and without site-packages it is smaller and starts sooner; where our code lies stands in its orders.
_FLAGS = ("-I", "-S", "-c")
_STUB = (
    "import marshal, sys; orders = marshal.load(sys.stdin.buffer); sys.path[:] = orders['path'];"
    " from subagent_cli.process import keeper, session; session.detach(); keeper.keep(orders)"
)
_HIGH = 64


def start(orders: Mapping[str, Any], alive_fd: int, wake_fd: int) -> None:
    """Starts a keeper and hands it its orders and its locks; Failed where it did not take them."""
    try:
        answer = _handed_over(
            marshal.dumps({**orders, "path": list(map(os.path.abspath, sys.path))}), alive_fd, wake_fd
        )
    except OSError as error:
        raise _not_started(str(error)) from error
    if answer != READY:
        raise _not_started(answer.decode("utf-8", "replace").strip().rpartition("\n")[2] or "it ended at once")


def _handed_over(orders: bytes, alive_fd: int, wake_fd: int) -> bytes:
    """What the keeper says when it has everything."""
    here: list[int] = []

    def high(fd: int) -> int:
        # Out of the way of the numbers that they get in the keeper.
        here.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH))
        return here[-1]

    reading, writing = os.pipe()
    answers, answering = os.pipe()
    here += [reading, answering]
    try:
        wanted = {0: high(reading), 1: high(answering), 2: high(answering)}
        wanted |= {ALIVE_FD: high(alive_fd), WAKE_FD: high(wake_fd)}
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *_FLAGS, _STUB],
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in wanted.items()],
        )
    except OSError:
        os.close(writing)
        os.close(answers)
        raise
    finally:
        for fd in here:
            os.close(fd)
    with os.fdopen(answers, "rb") as listening:
        # A keeper that cannot even start hangs up, and says why.
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as telling:
            telling.write(orders)
        # A caller that lets the system bury its children has none to wait for.
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        return listening.read()


def _not_started(reason: str) -> Failed:
    return Failed(f"the keeper of the run could not be started: {reason}", code="not_started")

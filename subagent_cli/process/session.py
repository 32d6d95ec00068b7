"""Becoming a process of one's own: without a terminal, without a parent who waits, and heir of all below.

The keeper loads this and must stay small.
"""

import os
import sys

_SUBREAPER, _NAME = 36, 15


def detach() -> None:
    """Lets whoever started this process go on, and goes on itself in a session of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")


def adopt_orphans() -> None:
    """Makes this process the parent of all that lose theirs below it, and gives it a name that people recognise."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_NAME, b"subagent-keeper", 0, 0, 0)


def fall_silent() -> None:
    """Lets go of whoever started this process, who has been told all there is to tell."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)

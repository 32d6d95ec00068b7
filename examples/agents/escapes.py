#!/usr/bin/env python3
"""Leaves processes behind that are hard to catch: in sessions of their own, without a parent, deaf to a polite TERM.

Signals to the process group of an agent reach none of them. Whoever stops this run has to find them all the same.
"""

import os
import signal


def stray() -> None:
    """A second fork, whose parent ends at once, cuts the line that leads back to the agent."""
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # In one piece, since the others speak at the same time.
        os.write(1, b"stray %d\n" % os.getpid())
        while True:
            signal.pause()


for _ in range(3):
    if os.fork() == 0:
        stray()
        os._exit(0)
signal.pause()

"""Processes that belong to nobody's run, and that say so when a signal reaches them.

Promise: whatever signal is sent to one of them is noticed: it is written down, or ends it, or stops it.
"""

import os
import select
import subprocess
import sys
from collections.abc import Mapping

from tests.process.living import PATIENCE, seen

_SCRIPT = """
import os, signal
def heard(signum, frame):
    os.write(1, b"%d\\n" % signum)
for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(signum, heard)
os.write(1, b"up\\n")
while True:
    signal.pause()
"""


class Bystander:
    """Is up when it is there."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def start(self) -> str:
        found = seen(self.pid)
        return found.start if found else ""

    @property
    def harm(self) -> str:
        """What has been done to it; empty where nothing has."""
        assert self.process.stdout is not None
        if self.process.poll() is not None:
            return f"it was ended: {self.process.returncode}"
        found = seen(self.pid)
        if found is None or found.state in "TtZX":
            return "it was stopped"
        if select.select([self.process.stdout], [], [], 0)[0]:
            return f"it got signal {os.read(self.process.stdout.fileno(), 100).decode().split()}"
        return ""

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()

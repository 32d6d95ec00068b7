"""Processes that a keeper left behind when it was killed, told by what only they were given.

An agent and all that it starts carry the run's id and token in their environment, and where its runs lie. The token is
what counts: a person who looks into a run may well have its id in his shell, and must never be taken for a part of it.
So does the place: a copy of a run elsewhere has lost nobody.
"""

import os
import signal
import time
from hashlib import sha256
from hmac import compare_digest

from subagent_cli.core.value import Value
from subagent_cli.process import stop
from subagent_cli.process.stop import Process

_PAUSE_SECONDS = 0.01
_KILL_SECONDS = 10.0


class Marks(Value):
    """By what the processes of a run are told: its id, the hash of its token, and the runs directory it lies in."""

    run_id: str
    token_hash: str
    root: str


def find(run: Marks) -> list[Process]:
    """The processes that belong to this run, as far as the system lets us see, and never the caller or those above."""
    above = _above()
    found: list[Process] = []
    for name in _listed("/proc"):
        if name.isdigit() and int(name) not in above:
            start = stop.start_of(int(name))
            if start and _belongs(int(name), run):
                found.append((int(name), start))
    return found


def end(run: Marks, grace: float) -> tuple[set[int], set[int]]:
    """Asks them to end and kills them after the grace; gives those that have ended and those that are still there."""
    seen = _signalled(run, signal.SIGTERM, grace, again=False)
    seen |= _signalled(run, signal.SIGKILL, _KILL_SECONDS, again=True)
    left = {pid for pid, _ in find(run)}
    return seen - left, left


def _signalled(run: Marks, signum: int, seconds: float, *, again: bool) -> set[int]:
    """Sends a signal to all of them, with `again` also to those that come later, until none is left or time is up."""
    until = time.monotonic() + seconds
    told: set[Process] = set()
    while left := set(find(run)):
        for process in left - told if again or not told else ():
            stop.send(process, signum)
        told |= left
        if time.monotonic() > until:
            break
        time.sleep(_PAUSE_SECONDS)
    return {pid for pid, _ in told}


def _belongs(pid: int, run: Marks) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
    except OSError:
        return False
    if variables.get(b"SUBAGENT_RUN_ID") != run.run_id.encode():
        return False
    root = variables.get(b"SUBAGENT_RUNS_DIR", b"")
    if os.path.realpath(root) != os.path.realpath(os.fsencode(run.root)):
        return False
    token = variables.get(b"SUBAGENT_TOKEN") or _content(variables.get(b"SUBAGENT_TOKEN_FILE", b""))
    return bool(token) and compare_digest(sha256(token).hexdigest(), run.token_hash)


def _content(path: bytes) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(256).strip()
    except OSError:
        return b""


def _above() -> set[int]:
    """This process and all above it."""
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        pid = stop.parent_of(pid)
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []

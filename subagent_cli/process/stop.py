"""Ending processes, and only those that are meant.

A process is its id and its start time: an id alone may belong to somebody else by the time a signal is sent. Where
the system has handles for processes (pidfd), the handle is opened first, the start time is looked at again, and the
signal goes to the handle.

The keeper loads this and must stay small.
"""

import errno
import os
import signal

_SEND = getattr(signal, "pidfd_send_signal", None)
_OPEN = getattr(os, "pidfd_open", None)

Process = tuple[int, str]
"""A process id and the start time that goes with it."""


def start_of(pid: int) -> str:
    """When the process was started, in the system's own count; empty where it is gone or the system does not tell."""
    return _stat(pid)[1]


def parent_of(pid: int) -> int:
    return _stat(pid)[0]


def descendants(top: int, spared: set[int]) -> list[Process]:
    """All processes below one, without those that are spared and what is below them. Zombies do not count."""
    children: dict[int, list[Process]] = {}
    for name in _listed("/proc"):
        if name.isdigit():
            parent, start = _stat(int(name))
            if start:
                children.setdefault(parent, []).append((int(name), start))
    found: list[Process] = []
    left = [top]
    while left:
        below = [child for child in children.get(left.pop(), ()) if child[0] not in spared]
        found += below
        left += [pid for pid, _ in below]
    return found


def children() -> list[int]:
    """The children of this process, which has one thread; of each of them the id is good until it is buried."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return list(map(int, file.read().split()))
    except OSError:
        return []


def kill_child(pid: int) -> None:
    """Kills a child of this process. Nobody else has its number before it is buried."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def send(process: Process, signum: int) -> bool:
    """Sends a signal, unless the process is gone; whether it was sent."""
    pid, start = process
    if _OPEN is None or _SEND is None:
        return start_of(pid) == start and _killed(pid, signum)
    try:
        handle = _OPEN(pid)
    except OSError:
        return False
    try:
        if start_of(pid) != start:
            return False
        _SEND(handle, signum)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _killed(pid: int, signum: int) -> bool:
    try:
        os.kill(pid, signum)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def _stat(pid: int) -> tuple[int, str]:
    """Parent and start time of a process; no start time for one that is gone or a zombie."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0, ""
    try:
        # The second field is a name in brackets, which may hold anything.
        fields = os.read(fd, 4096).rpartition(b")")[2].split()
    except OSError:
        return 0, ""
    finally:
        os.close(fd)
    # One whose first thread has ended looks like a zombie, but its other threads go on.
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and int(fields[17]) < 2):
        return 0, ""
    return int(fields[1]), fields[19].decode()


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []

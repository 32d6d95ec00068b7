"""What the tests of living runs share: children that wait for a word, eyes for processes, and an end for all of them.

Promise: whatever becomes of a test, no process of its runs is left when `all_ended` lets go.
"""

import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.command import PATIENCE, Command, Done

SOON = 20.0

# What stops soon when it is stopped, so that no test waits for a grace that is not its subject.
QUICK = {"SUBAGENT_STOP_GRACE": "300ms", "SUBAGENT_SUBMIT_GRACE": "300ms"}


@contextmanager
def all_ended(runs_dir: Path) -> Iterator[None]:
    """Kills every process that has to do with these runs, however the test ends."""
    try:
        yield
    finally:
        until = time.monotonic() + PATIENCE
        while left := processes(runs_dir):
            assert time.monotonic() < until, f"could not be ended: {left}"
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            select.select([], [], [], 0.005)


def processes(runs_dir: Path) -> list[int]:
    """Processes that belong to runs below this folder: agents by their environment, keepers by what they have open."""
    mark = os.fsencode(f"SUBAGENT_RUNS_DIR={runs_dir}")
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in pids if mark in _environ(pid) or _holds(pid, f"{runs_dir}{os.sep}")]


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _holds(pid: int, folder: str) -> bool:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith(folder):
                return True
    return False


def keeper_of(runs_dir: Path, run_id: str) -> int:
    """The process that keeps a run, as it signed itself."""
    return int((runs_dir / run_id / ".alive").read_text().splitlines()[-1].split()[0])


def eventually(condition: Callable[[], object], within: float = SOON) -> None:
    """Waits until something is so."""
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, "it did not come about"
        select.select([], [], [], 0.005)


def over(cli: Command, *words: str) -> Done:
    """Waits for runs as `wait --json` does, and then for their keepers, who have the last word in every file."""
    done = cli("wait", *words, "--json")
    for run in done.json["runs"]:
        eventually(partial(_released, Path(cli.runs_dir) / run["runId"] / ".alive"))
    return done


def _released(file: Path) -> bool:
    """Whether nobody holds the lock on a file, or there is none."""
    try:
        fd = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


class Gate:
    """A pipe in the file system: a child says something at it, or waits at it until it is let through.

    In a shell: `echo here > gate.said` and `read word < gate.word`.
    """

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.said, self.word = folder / f"{name}.said", folder / f"{name}.word"
        for path in (self.said, self.word):
            os.mkfifo(path)
        # Open for both, so that neither side waits for the other to open it.
        self._said = os.open(self.said, os.O_RDWR | os.O_NONBLOCK)
        self._word = os.open(self.word, os.O_RDWR | os.O_NONBLOCK)

    def heard(self, within: float = SOON) -> str:
        """The next line that a child says."""
        heard = b""
        until = time.monotonic() + within
        while not heard.endswith(b"\n"):
            assert select.select([self._said], [], [], max(0.0, until - time.monotonic()))[0], (
                f"only {heard!r} was said"
            )
            heard += os.read(self._said, 1)
        return heard.decode().rstrip("\n")

    def silent(self) -> bool:
        """Whether nothing has been said that was not heard."""
        return not select.select([self._said], [], [], 0)[0]

    def open(self, word: str = "go") -> None:
        """Lets one child through."""
        os.write(self._word, f"{word}\n".encode())

    def close(self) -> None:
        for fd in (self._said, self._word):
            os.close(fd)


def interrupted(process: "subprocess.Popen[bytes]") -> Done:
    """How a command ends that is interrupted once it has begun to wait."""
    eventually(lambda: process.poll() is not None or _watches(process.pid))
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    return finished(process)


def finished(process: "subprocess.Popen[bytes]", within: float = SOON) -> Done:
    out, err = process.communicate(timeout=within)
    return Done(process.returncode, out, err)


def waiting(process: "subprocess.Popen[bytes]") -> "subprocess.Popen[bytes]":
    """The command, once it has begun to wait."""
    eventually(lambda: process.poll() is not None or _watches(process.pid))
    return process


def _watches(pid: int) -> bool:
    """Whether a process waits for the kernel to tell, which shows in what it has open."""
    links = []
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return any("inotify" in link for link in links)


def started(cli: Command, *words: str, script: str, **env: str | None) -> str:
    """A new run of a shell script; its id."""
    done = cli("run", "Do it", *words, "--", "sh", "-c", script, env={**QUICK, **env})
    assert done.code == 0, done
    return done.out.strip()


def program(path: Path, script: str) -> Path:
    """A shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


def one_line(done: Done) -> str:
    """What an error says, which is one line and at most what helps."""
    assert done.out == "", done
    first, *others = done.err.splitlines()
    assert first.startswith("error: "), done
    assert all(line.startswith(("hint: ", "next: ", "one of: ")) for line in others), done
    assert "Traceback" not in done.err
    assert "fault of subagent" not in done.err
    return first.removeprefix("error: ")

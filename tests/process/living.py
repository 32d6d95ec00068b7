"""Real runs with real processes, and the certainty that none of them outlives its test.

Every process that a test starts carries a word in its environment (and, where the test puts it there, in its command
line) that no other process has. What is found by that word when the test is over is killed, and so are the keepers,
which carry nothing: they are found by what they have written into `.alive`.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import pytest

from tests.command import Command, Done

PATIENCE = 30.0
MARK = "LIVING_MARK"
PYTHON = (sys.executable, "-I", "-S", "-c")

# Stands in front of the small programs that tests run as agents: they say that they are there, and stay.
PRELUDE = """
import os, signal, sys, time
AGENT = os.getpid()
def say(word):
    fd = os.open(sys.argv[1], os.O_WRONLY)
    os.write(fd, word.encode() + b"\\n")
    os.close(fd)
def stay():
    while True:
        signal.pause()
"""

T = TypeVar("T")
Process = tuple[int, str]


class Seen(NamedTuple):
    """A process as the system shows it."""

    pid: int
    parent: int
    state: str
    threads: int
    ticks: int
    start: str

    @property
    def there(self) -> bool:
        """A process whose first thread has ended looks like a zombie, and is none while it has others."""
        return self.state not in "ZX" or self.threads > 1


def until(happened: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Looks again and again, within a bound, until there is something to see, and gives it."""
    give_up = time.monotonic() + patience
    while not (found := happened()):
        assert time.monotonic() < give_up, f"not in time: {what}"
        pause(0.003)
    return found


def pause(seconds: float) -> None:
    """Lets others go on for a moment of this length; never to wait for something that can be waited for."""
    select.select([], [], [], seconds)


def seen(pid: int) -> Seen | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return None
    return Seen(pid, int(fields[1]), fields[0], int(fields[17]), int(fields[11]) + int(fields[12]), fields[19])


def everybody() -> list[Seen]:
    found = [seen(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [process for process in found if process is not None]


def marked(word: str) -> dict[int, str]:
    """The processes that have a word in their environment or command line, and how they were called."""
    found: dict[int, str] = {}
    for process in everybody():
        if process.there and process.pid != os.getpid():
            line, variables = (_said(process.pid, file) for file in ("cmdline", "environ"))
            if word.encode() in line or word.encode() in variables:
                found[process.pid] = line.replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    return found


def below(pid: int) -> list[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for process in everybody():
        children.setdefault(process.parent, []).append(process.pid)
    found, left = [], [pid]
    while left:
        found += (more := children.get(left.pop(), []))
        left += more
    return found


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


class Pipe:
    """A named pipe at which processes say what they have come to, and from which they read what they wait for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # Open on both sides, so that nobody waits for the other one to come.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._heard = b""

    def lines(self, count: int, patience: float = PATIENCE) -> list[str]:
        """The next lines, within a bound."""
        give_up = time.monotonic() + patience
        while self._heard.count(b"\n") < count:
            if not select.select([self._fd], [], [], max(0.0, give_up - time.monotonic()))[0]:
                raise TimeoutError(f"no more than {self._heard!r} was said, not {count} lines")
            self._heard += os.read(self._fd, 65_536)
        *found, self._heard = self._heard.split(b"\n", count)
        return [line.decode() for line in found]

    def said(self) -> list[str]:
        """What was said so far, without waiting."""
        while select.select([self._fd], [], [], 0)[0]:
            self._heard += os.read(self._fd, 65_536)
        *found, self._heard = self._heard.split(b"\n")
        return [line.decode() for line in found]

    def tell(self, text: str = "go\n") -> None:
        os.write(self._fd, text.encode())

    def close(self) -> None:
        os.close(self._fd)


class Living:
    """The runs of one test and all that belongs to them."""

    def __init__(self, cli: Command, folder: Path) -> None:
        self.cli = cli
        self.runs = Path(cli.runs_dir)
        self.mark = f"living-{uuid4().hex}"
        self._folder = folder
        self._pipes: list[Pipe] = []

    def pipe(self) -> Pipe:
        self._pipes.append(Pipe(self._folder / f"pipe-{len(self._pipes)}"))
        return self._pipes[-1]

    def run(self, *options: str, command: tuple[str, ...], env: Mapping[str, str | None] | None = None) -> str:
        """The id of a run that was just started."""
        done = self.cli("run", "Do it", *options, "--", *command, env=env)
        assert done.code == 0, done
        return done.out.strip()

    def shell(self, script: str, *options: str, env: Mapping[str, str | None] | None = None) -> str:
        return self.run(*options, command=("sh", "-c", script), env=env)

    def python(self, script: str, *words: str, options: tuple[str, ...] = ()) -> str:
        """A program behind the prelude; its first word is the path of a pipe."""
        return self.run(*options, command=(*PYTHON, PRELUDE + script, *words, self.mark))

    def status(self, run_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.cli("status", run_id, "--peek", "--json").json
        return shown

    def wait(self, run_id: str, *options: str) -> dict[str, Any]:
        """How a run that was waited for has ended."""
        done = self.cli("wait", run_id, "--timeout", f"{PATIENCE:g}", "--json", *options)
        assert done.json["woke"] == "done", done
        outcome: dict[str, Any] = done.json["runs"][0]
        return outcome

    def cancel(self, *words: str) -> Done:
        return self.cli("cancel", *words, "--json")

    def journal(self, run_id: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.runs / run_id / "journal.jsonl").read_bytes().splitlines()]

    def events(self, run_id: str) -> list[str]:
        return [event["type"] for event in self.journal(run_id)]

    def log(self, run_id: str) -> str:
        return (self.runs / run_id / "log").read_text(errors="replace")

    def keeper(self, run_id: str) -> Process:
        """The keeper of a run by its id and start time."""
        pid, _, start = (self.runs / run_id / ".alive").read_text().splitlines()[-1].partition(" ")
        return int(pid), start

    def kill_keeper(self, run_id: str) -> None:
        """Ends a keeper as a crash would, and returns when it is gone."""
        pid, start = self.keeper(run_id)
        found = seen(pid)
        if found is None or found.start != start:
            return
        os.kill(pid, signal.SIGKILL)
        until(lambda: not _is_there(pid, start), "the end of a keeper that was killed")

    def keepers(self) -> list[Process]:
        """Those that are still there."""
        found = [path.read_text().splitlines()[-1:] for path in self._folder.rglob(".alive")]
        words = [line[0].partition(" ") for line in found if line]
        return [(int(pid), start) for pid, _, start in words if pid.isdigit() and _is_there(int(pid), start)]

    def survivors(self) -> dict[int, str]:
        """What is there of this test: agents, all that they started, and calls that have not returned."""
        return marked(self.mark)

    def gone(self) -> bool:
        return not self.survivors()

    def close(self) -> None:
        """Ends everything, however often it takes."""
        for pid, _ in self.keepers():
            for one in (pid, *below(pid)):
                _kill(one)
        for pipe in self._pipes:
            pipe.close()
            # Some programs go on as long as theirs is there.
            pipe.path.unlink()
        until(self._cleared, "the end of all that a test has started")

    def _cleared(self) -> bool:
        for pid in (*(pid for pid, _ in self.keepers()), *self.survivors()):
            _kill(pid)
        return not self.keepers() and not self.survivors()


@pytest.fixture(name="living")
def a_place_to_live(cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Living]:
    """Modules that want it import it under this name."""
    living = Living(cli, tmp_path)
    monkeypatch.setenv(MARK, living.mark)
    monkeypatch.setenv("SUBAGENT_STOP_GRACE", "300ms")
    yield living
    living.close()


def _is_there(pid: int, start: str) -> bool:
    found = seen(pid)
    return found is not None and found.there and found.start == start


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _said(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""

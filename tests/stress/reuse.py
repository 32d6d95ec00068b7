"""Runs whose keepers and agents are killed and whose process numbers then belong to others; it is process 1 of a
namespace of its own, where it may say which number comes next.

Promise: prints how many numbers were really reused, who of those that have them now was harmed, and which run was taken
for alive because of them.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from subagent_cli.process import stop
from tests.command import PROGRAM
from tests.process.living import below, seen, until
from tests.stress.bystander import Bystander

_NEXT = Path("/proc/sys/kernel/ns_last_pid")
_AGENT = (sys.executable, "-I", "-S", "-c", "import signal\nwhile True: signal.pause()")
_TRIES = 50
# In any order, but for the last, after which nothing of the run is left.
_VERBS: Sequence[Sequence[str]] = (
    ("status", "{}", "--peek", "--json"),
    ("sweep",),
    ("doctor", "--fix"),
    ("list", "--all"),
    ("cancel", "{}", "--grace", "50ms"),
    ("cancel", "--all", "--grace", "50ms"),
)


class Round:
    """One run, and what became of it."""

    def __init__(self, root: str, told: dict[str, Any]) -> None:
        self._root, self._told = root, told
        self.run_id = self._call("run", "Do it", "--", *_AGENT).strip()
        pid, _, start = Path(root, self.run_id, ".alive").read_text().splitlines()[-1].partition(" ")
        self._keeper = int(pid), start
        self._agents = until(lambda: [pid for pid in below(int(pid)) if _is_agent(pid)], "the agent")
        self._old = [self._keeper, *((pid, stop.start_of(pid)) for pid in self._agents)]

    def play(self, chance: random.Random, *, orphaned: bool) -> None:
        ended = self._old[:1] if orphaned else self._old
        for pid, _ in ended:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(_there(pid) for pid, _ in ended), "the end of what was killed")
        others = [found for found in (reused(pid) for pid, _ in ended) if found]
        self._told["reused"] += len(others)
        for process in ended:
            if any(other.pid == process[0] for other in others) and stop.send(process, signal.SIGTERM):
                self._told["harmed"].append("a signal went to who has taken over a number")
        for words in (*chance.sample(_VERBS, len(_VERBS)), ("clean", "--older-than", "1ms", "--yes")):
            self._call(*(word.format(self.run_id) for word in words))
            self._told["harmed"] += [f"{words[0]}: {other.harm}" for other in others if other.harm]
            self._told["alive"] += [f"{words[0]} of {self.run_id}"] * self._seems_alive()
        if orphaned and any(map(_there, self._agents)):
            self._told["left"].append(self.run_id)
        for other in others:
            other.close()

    def _seems_alive(self) -> bool:
        done = self._call("status", self.run_id, "--peek", "--json")
        return bool(json.loads(done).get("alive"))

    def _call(self, *words: str) -> str:
        environment = {**os.environ, "SUBAGENT_RUNS_DIR": self._root}
        done = subprocess.run(
            [*PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        if "Traceback" in done.stderr or "fault of subagent" in done.stderr:
            self._told["faults"].append(done.stderr[-300:])
        return done.stdout


def reused(pid: int) -> Bystander | None:
    """A process that has this number now; None where somebody else has got it."""
    for _ in range(_TRIES):
        _NEXT.write_text(str(pid - 1))
        made = Bystander()
        if made.pid == pid:
            return made
        made.close()
    return None


def _is_agent(pid: int) -> bool:
    with suppress(OSError):
        return b"signal.pause()" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _there(pid: int) -> bool:
    """Whether a process is there, once whatever is left of it is buried: nobody else does it here."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    found = seen(pid)
    return found is not None and found.there


def main(root: str, rounds: int, seed: int) -> None:
    told: dict[str, Any] = {"reused": 0, "harmed": [], "alive": [], "left": [], "faults": []}
    for number in range(rounds):
        Round(root, told).play(random.Random(f"{seed} {number}"), orphaned=number % 3 == 2)
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

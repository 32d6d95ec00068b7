"""How every benchmark here measures: a process that is timed, rounds in a shuffled order, a process beside this one.

Nothing in here measures anything of its own accord: the parts say what is measured.
"""

import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from statistics import median
from typing import NamedTuple, TypeVar

from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context, open_context

SUBAGENT = os.path.join(os.path.dirname(sys.executable), "subagent")
# How long a process that was told to wait may take to get there, in seconds.
SETTLING = 0.02
PATIENCE = 10.0

T = TypeVar("T")


class Case(NamedTuple):
    """A process to start: its words, where, in which environment; made anew for each round, outside the timing."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    stdin: str = os.devnull


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def environment(home: str, **changes: str) -> dict[str, str]:
    """What every process here is started with: nothing of the caller's own settings, and none of Python's either,
    which may forbid the compiled files that an installed program has. They too lie in the temporary folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUBAGENT_", "PYTHON"))}
    compiled = os.path.join(home, "compiled")
    return {**kept, "PYTHONPYCACHEPREFIX": compiled, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, **changes}


def opened(root: str) -> Context:
    return open_context({"runs_dir": root})


def new_run(context: Context) -> str:
    run_id: str = runs.create(context, "helper", "Tidy the notes")["runId"]
    return run_id


def asked(context: Context, run_id: str) -> str:
    message_id: str = questions.ask(context, "Delete the old ones?", run=run_id, options=("yes", "no"))["messageId"]
    return message_id


def finished(pid: int) -> int:
    """The exit code of a process that was started here. Whoever interrupts us waits for its end too, so that what it
    makes can be tidied up."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except BaseException:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        raise


def started(case: Case) -> float:
    """Milliseconds from starting the process to its end."""
    os.chdir(case.folder)
    talk = os.path.join(case.environment["XDG_STATE_HOME"], "stderr")
    files = [
        (os.POSIX_SPAWN_OPEN, 0, case.stdin, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, talk, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    ]
    begin = time.perf_counter()
    pid = os.posix_spawn(case.words[0], case.words, case.environment, file_actions=files)
    code = finished(pid)
    end = time.perf_counter()
    if code != 0:
        with open(talk, encoding="utf-8", errors="replace") as file:
            raise RuntimeError(f"{' '.join(case.words)} ended with {code}: {file.read().strip()}")
    return (end - begin) * 1000


def every_round(measures: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each measure gave in rounds that take all of them in a new order; a first round does not count."""
    found: dict[str, list[T]] = {name: [] for name in measures}
    names = list(measures)
    for turn in range(rounds + 1):
        random.shuffle(names)
        for name in names:
            value = measures[name]()
            if turn:
                found[name].append(value)
    return found


def shuffled(measures: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of each measure over such rounds."""
    return {name: median(values) for name, values in every_round(measures, rounds).items()}


class Beside:
    """A process beside this one that waits for one thing after the other and says when it had it."""

    def __init__(self, wait: Callable[[str], object]) -> None:
        words, self._words = os.pipe()
        self._times, times = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._serve(wait, words, times)
        os.close(words)
        os.close(times)

    def waits(self, word: str) -> None:
        """Tells it what to wait for, and gives it the time to get there."""
        os.write(self._words, f"{word}\n".encode())
        time.sleep(SETTLING)

    def had_it(self) -> float:
        if not select.select([self._times], [], [], PATIENCE)[0]:
            raise RuntimeError("a process that waits was not woken")
        return float(os.read(self._times, 100))

    def end(self) -> None:
        for fd in (self._words, self._times):
            os.close(fd)
        # Its pipe may stay open in another process that was forked later, so the end of it is no sign.
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _serve(self, wait: Callable[[str], object], words: int, times: int) -> None:
        """All that the other process does until it is ended. It must not return."""
        try:
            while True:
                wait(os.read(words, 100).decode().strip())
                os.write(times, repr(time.monotonic()).encode())
        finally:
            os._exit(1)

"""What benchmarks of living runs share: a folder whose runs end with the block, a gate at which agents wait, waiting.

Promises: whatever was started here is ended when a part ends, however it ends, and no wait is without an end.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from scripts.bench_rounds import finished
from subagent_cli.services import cancellation, waiting
from subagent_cli.services.context import Context, open_context
from subagent_cli.store import alive

# How long anything here may take before the measuring has failed, in seconds.
PATIENCE = 60.0


@contextmanager
def endable() -> Iterator[None]:
    """Within the block a SIGTERM ends us as an error does, so that what was started is ended first."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def runs_below(root: str, **settings: str) -> Iterator[Context]:
    """A runs directory whose runs and keepers have ended when the block has."""
    context = open_context({"runs_dir": root, **settings})
    try:
        yield context
    finally:
        if os.path.isdir(root):
            left = cancellation.cancel(context, (), everything=True, grace=0)["notStopped"]
            gone(context)
            if left:
                raise RuntimeError(f"could not be ended: {', '.join(left)}")


class Gate:
    """A pipe at which agents wait, after a first line, until each of them is let through."""

    def __init__(self, path: str) -> None:
        os.mkfifo(path, 0o600)
        # Open for both, so that nobody hangs in opening it, neither an agent nor we.
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.command = ("sh", "-c", 'echo waiting; exec head -c 1 "$0"', path)

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def let_through(self, count: int = 1) -> None:
        os.write(self._fd, b"." * count)


def at_once(count: int, words: tuple[str, ...], environ: dict[str, str], home: str) -> None:
    """Starts so many processes, each of which starts a run, and returns when all have ended well."""
    files = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    talk = os.path.join(home, "many-stderr")
    files.append((os.POSIX_SPAWN_OPEN, 2, talk, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    pids: list[int] = []
    codes: list[int] = []
    try:
        for _ in range(count):
            pids.append(os.posix_spawn(words[0], words, environ, file_actions=files))
        codes += [finished(pid) for pid in pids]
    finally:
        # Also when one could not be started, or somebody interrupts us: a run can only be ended when it is there.
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
    if any(codes):
        with open(talk, encoding="utf-8", errors="replace") as file:
            raise RuntimeError(f"{sum(map(bool, codes))} of {count} runs were not started: {file.read()[:2000]}")


def bounded(done: Callable[[], bool], what: str) -> None:
    """Looks until it is so. What is waited for here is outside the timing, or takes seconds."""
    give_up = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > give_up:
            raise RuntimeError(f"{what} took more than {PATIENCE:g} s")
        time.sleep(0.002)


def gone(context: Context) -> None:
    """Until no run here has a keeper: its last word comes a moment before its end."""
    for run_id in context.runs.all():
        bounded(lambda run_id=run_id: alive.dead(context.runs.layout, run_id), "the end of a keeper")  # type: ignore[misc]


def begun(context: Context, run_ids: Sequence[str]) -> None:
    """Until the first line of every run is in its log."""
    for run_id in run_ids:
        bounded(lambda run_id=run_id: b"[stdout] waiting" in _log(context, run_id), "the start of a run")  # type: ignore[misc]


def over(context: Context, run_ids: Sequence[str]) -> None:
    """Until the runs are over, all of them successfully."""
    woke = waiting.for_runs(context, run_ids, timeout=int(PATIENCE * 1000))
    bad = [f"{run['runId']} {run['state']}: {run.get('error')}" for run in woke["runs"] if run["state"] != "success"]
    if woke["woke"] != "done" or bad:
        raise RuntimeError(f"waiting for {len(run_ids)} runs ended with {woke['woke']}; {'; '.join(bad) or 'no error'}")


def _log(context: Context, run_id: str) -> bytes:
    with open(context.runs.layout.log(run_id), "rb") as file:
        return file.read(4096)

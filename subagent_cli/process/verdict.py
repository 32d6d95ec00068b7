"""What a keeper has to do with the files of its run: looking at the journal, and writing down how it ended.

Loaded when there is something to read or write, and not before: it brings the store with it, which is larger than all
the rest of a keeper.
"""

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from subagent_cli.core.command import Command, Exit, Stop
from subagent_cli.core.errors import NotFound, SubagentError
from subagent_cli.core.run import Run
from subagent_cli.core.transition import CANCELLED, TIMED_OUT
from subagent_cli.process import stop, transcript
from subagent_cli.store.clock import Clock
from subagent_cli.store.runs import Runs

Orders = Mapping[str, Any]

_ENDED = (CANCELLED, TIMED_OUT)
_LOG_LINES, _LOG_BYTES = 50, 16_384
_RESULT_BYTES, _ERROR_BYTES = 65_536, 4_096
_LONGEST_PAUSE = 5.0
_MOST_DIGITS = 9


def look(orders: Orders) -> Run | None:
    """How the run stands; None where it is gone. Raises what reading it raises."""
    try:
        return _runs(orders).read(orders["run"], Clock().now())
    except NotFound:
        return None


def stopped(kind: str, text: str, grace: float) -> Command:
    return Stop(kind, text, int(grace * 1000))


def exited(orders: Orders, code: int, out: bytes, err: bytes) -> Command:
    """How the agent ended, and what it said last: its result, or how it failed."""
    said = transcript.final_text(orders["output"], out)
    if code:
        said = transcript.final_text("text", err[-_ERROR_BYTES:]) or said
        said = f"Process exited with code {code}" + (f"\n{said}" if said else "")
    tools = transcript.tools_used(orders["output"], out)
    summary = _tail(orders["log"], orders["log_from"]) if code else None
    return Exit(orders["attempt"], code, summary, _end_of(said, _RESULT_BYTES) if said else None, tools)


def say(orders: Orders, unsaid: list[Command], patience: float, lock_timeout: float) -> None:
    """Writes down what there is to say, in this order; what the disk does not take in time stays in the list."""
    give_up, pause = time.monotonic() + patience, 0.05
    runs = _runs(orders, lock_timeout)
    while unsaid:
        try:
            runs.change(orders["run"], unsaid[0], Clock().now)
            del unsaid[0]
        except NotFound:
            # The run was removed, and with it whoever would want to know.
            unsaid.clear()
        except (SubagentError, OSError):
            if time.monotonic() > give_up:
                return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def wake(orders: Orders) -> None:
    """Has the agent started again if messages have come for it that may want a reply. Somebody else does that, since
    this keeper has to be gone first; nobody does where the run was told to end."""
    if orders["again"] is None:
        return
    try:
        run = look(orders)
    except (SubagentError, OSError):
        return
    if run is None or run.attempt != orders["attempt"] or run.stop is not None or run.kind in _ENDED:
        return
    if any(not delivery.notice for delivery in run.inbox.values()):
        stub = f"import sys; sys.path[:] = {orders['path']!r}; from subagent_cli.cli.main import main; main()"
        env = {name: value for name, value in orders["env"].items() if not name.startswith("SUBAGENT_")}
        words = [sys.executable, "-I", "-S", "-c", stub, *orders["again"]]
        os.posix_spawn(sys.executable, words, env)


def other_keepers(orders: Orders) -> list[stop.Process]:
    """The processes that keep runs which this one started."""
    runs = _runs(orders)
    known = [_last_line(runs.layout.alive(child)) for child in runs.index.children(orders["run"])]
    # An agent may have written anything there.
    numbers = [(int(pid), start) for pid, start in known if start and pid.isdecimal() and len(pid) <= _MOST_DIGITS]
    return [(pid, start) for pid, start in numbers if stop.start_of(pid) == start]


def _runs(orders: Orders, lock_timeout: float = 0.0) -> Runs:
    return Runs(orders["root"], lock_timeout=lock_timeout, ttl=orders["ttl"])


def _last_line(path: str) -> tuple[str, str]:
    try:
        with open(path, "rb") as file:
            pid, _, start = file.read().decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2].partition(" ")
    except OSError:
        return "", ""
    return pid, start


def _end_of(text: str, limit: int) -> str:
    """The last lines of a text that is too long to be handed on whole."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[-limit:].partition(b"\n")[2].decode("utf-8", "replace")


def _tail(path: str, since: int) -> str | None:
    """The last lines of this attempt's log, as the summary of a run that failed without one."""
    try:
        with open(path, "rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return "\n".join(lines[-_LOG_LINES:])

"""What several processes did at once, as each of them wrote it down.

Promise: a call is in its diary before it begins and its result is there only after it has ended, by a clock that all
processes of the machine share. So a process that is killed leaves, of its last call, that it began and no more.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from subagent_cli.core.errors import NotFound, Refused, SubagentError

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"


class Call(NamedTuple):
    """One call of a verb. Where nobody was told how it ended, the outcome is unknown and the end is never."""

    who: str
    verb: str
    args: dict[str, Any]
    begin: float
    end: float = inf
    outcome: str = UNKNOWN
    result: Any = None

    @property
    def run(self) -> str | None:
        run_id: str | None = self.args.get("run")
        return run_id

    def __str__(self) -> str:
        return f"{self.who}: {self.verb} {self.args} -> {self.outcome} {str(self.result)[:200]}"


class Diary:
    """The calls of this process, in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def call(self, verb: str, args: dict[str, Any], does: Callable[[], Any]) -> Any:
        """Does it, and gives its result; None where it was refused."""
        self._write({"verb": verb, "args": args, "begin": time.monotonic_ns()})
        result = None
        try:
            result = does()
            end = {"outcome": OK, "result": result}
        except (Refused, NotFound) as error:
            end = {"outcome": REFUSED, "result": error.code}
        except SubagentError as error:
            end = {"outcome": f"{type(error).__name__}: {error.message}"}
        except Exception as error:
            end = {"outcome": f"broken: {error!r}"}
        self._write({**end, "end": time.monotonic_ns()})
        return result

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")


def read(folder: Path) -> list[Call]:
    """Every call that any process wrote down, in the order in which they began."""
    calls = [call for file in sorted(folder.iterdir()) for call in _calls(file.stem, file.read_bytes())]
    return sorted(calls, key=lambda call: call.begin)


def _calls(who: str, diary: bytes) -> Iterable[Call]:
    # What stands behind the last line end was being written when the process was killed.
    lines = [json.loads(line) for line in diary.split(b"\n")[:-1]]
    for place, line in enumerate(lines):
        if "verb" in line:
            following = lines[place + 1] if place + 1 < len(lines) else {}
            yield Call(who, **line, **(following if "verb" not in following else {}))

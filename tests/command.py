"""The real program in a real process, as a user or an agent calls it.

Promise: no call outlives its test, and none waits for ever.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE = 60.0

# -P: unlike the console script, `-m` would put the test's own folder first on the import path.
PROGRAM = [sys.executable, "-P", "-m", "subagent_cli"]


@dataclass(frozen=True)
class Done:
    """How a call ended; `out` and `err` are text, `raw` is what stdout held, byte for byte."""

    code: int
    raw: bytes
    raw_err: bytes

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def err(self) -> str:
        return self.raw_err.decode()

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.raw)
        except ValueError as error:
            raise AssertionError(f"stdout is not JSON: {self}") from error

    @property
    def ndjson(self) -> list[Any]:
        try:
            return [json.loads(line) for line in self.raw.splitlines()]
        except ValueError as error:
            raise AssertionError(f"stdout is not JSON line by line: {self}") from error


class Command:
    """`cli("ask", "Which one?", "--run", rid)` runs to the end; `cli.start(...)` gives a running process."""

    def __init__(self, runs_dir: "os.PathLike[str]") -> None:
        self.runs_dir = runs_dir
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(
        self,
        *args: object,
        input: bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        runs_dir: "str | os.PathLike[str] | None" = None,
        cwd: "str | os.PathLike[str] | None" = None,
        timeout: float = PATIENCE,
    ) -> Done:
        process = self.start(*args, env=env, runs_dir=runs_dir, cwd=cwd, pipe=input is not None)
        try:
            out, err = process.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            end(process)
            raise
        return Done(process.returncode, out, err)

    def start(
        self,
        *args: object,
        env: Mapping[str, str | None] | None = None,
        runs_dir: "str | os.PathLike[str] | None" = None,
        cwd: "str | os.PathLike[str] | None" = None,
        pipe: bool = False,
    ) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            PROGRAM + [os.fspath(arg) if isinstance(arg, os.PathLike) else str(arg) for arg in args],
            stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(env or {}, runs_dir),
            cwd=cwd,
            # A group of its own, so that whatever the call leaves running can be ended with it.
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            end(process)

    def _environment(
        self, changes: Mapping[str, str | None], runs_dir: "str | os.PathLike[str] | None"
    ) -> dict[str, str]:
        wanted = {**os.environ, "SUBAGENT_RUNS_DIR": os.fspath(runs_dir or self.runs_dir), **changes}
        return {name: value for name, value in wanted.items() if value is not None}


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a call and close its pipes; harmless when it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()

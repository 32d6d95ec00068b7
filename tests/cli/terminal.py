"""The program on a real terminal: a pseudo-terminal as its standard output, read to the end within a bound."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.command import PATIENCE, PROGRAM, end


def on_terminal(runs_dir: Path, *args: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and all that was painted; standard error goes to the terminal as well."""
    environment = {**os.environ, "SUBAGENT_RUNS_DIR": str(runs_dir), "TERM": "xterm-256color", "COLUMNS": "160"}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *args],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**environment, **(env or {})},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        painted = _read(ours)
        code = process.wait(PATIENCE)
    finally:
        end(process)
        os.close(ours)
    return code, painted.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    parts: list[bytes] = []
    until = time.monotonic() + PATIENCE
    while select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            part = os.read(terminal, 65_536)
        except OSError:
            # The last writer has closed its side.
            return b"".join(parts)
        if not part:
            return b"".join(parts)
        parts.append(part)
    raise TimeoutError("the program still holds its terminal")

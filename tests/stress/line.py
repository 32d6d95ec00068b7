"""The command line without a process of its own: the same words, the same exit code, its output kept in memory.

Nothing is written to any file but by the verb itself, so a fault that is injected into a call of the system meets the
store and never the printing.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import NamedTuple
from unittest.mock import patch

from subagent_cli.cli.main import main
from subagent_cli.process import launch


class Said(NamedTuple):
    """How a call ended."""

    code: int
    out: str
    err: str


def typed(root: str, words: Sequence[str], env: Mapping[str, str]) -> Said:
    """One call on the runs below a folder."""
    out, err = TextIOWrapper(BytesIO(), "utf-8"), TextIOWrapper(BytesIO(), "utf-8")
    code: object = None
    with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, env):
        try:
            main(["--runs-dir", root, "--json", *words])
        except SystemExit as ending:
            code = ending.code
    out.seek(0)
    err.seek(0)
    return Said(code if isinstance(code, int) else -1, out.read(), err.read())


def start_no_keepers() -> None:
    """From now on a child that is spawned gets all its files and no keeper: it is found to be lost."""
    launch.start = _start_nothing


def _start_nothing(orders: object, alive_fd: int, wake_fd: int) -> None:
    """In the place of what makes a process that outlives us."""

"""The command line inside of this process: a thousand calls in the time in which the program starts ten times.

Promise: what comes back is what the program would have printed, and the code with which it would have ended.
"""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from subagent_cli.cli import errors
from subagent_cli.cli.main import cli

# All that repaints a terminal or turns a text round, but for the line feed that ends a line and the tab.
_CONTROLS = (*range(9), *range(11, 32), *range(0x7F, 0xA0))
_DIRECTIONS = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
RAW = frozenset(map(chr, (*_CONTROLS, *_DIRECTIONS)))
CODES = frozenset((0, 1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 20, 124))


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def raw(self) -> str:
        """The letters that do something to a terminal."""
        return "".join(sorted(RAW.intersection(self.out + self.err)))

    @property
    def is_faulty(self) -> bool:
        """Whether it is a fault of ours: a traceback, an error that nobody has foreseen, a code that is none."""
        told = self.out + self.err
        return self.code not in CODES or "Traceback (" in told or "fault of subagent itself" in told


class _Stream(io.TextIOWrapper):
    """A standard stream that is, or is not, said to be a terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        self._bytes, self._terminal = io.BytesIO(), terminal
        super().__init__(self._bytes, encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode("utf-8", "replace")


def call(words: Sequence[str], *, terminal: bool = False) -> Said:
    """One call with an empty standard input."""
    with _streams(terminal) as (out, err):
        try:
            code = cli.main(list(words), prog_name="subagent", standalone_mode=False)
        except (KeyboardInterrupt, pytest.fail.Exception):
            raise
        except BaseException as error:
            errors.report(error, words)
            code = errors.exit_code_of(error)
        return Said(code if isinstance(code, int) else 0, out.text, err.text)


@contextmanager
def _streams(terminal: bool) -> Iterator[tuple[_Stream, _Stream]]:
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = _Stream(terminal=terminal), _Stream(terminal=terminal)
    sys.stdin, sys.stdout, sys.stderr = _Stream(), out, err
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error here is no end of the program, and nothing is painted in colours."""
    monkeypatch.setattr(errors, "_silence", lambda: None)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")

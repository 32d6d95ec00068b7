"""Output: the one place where anything is printed.

Standard output carries the result alone, standard error the talk. Text that came from outside is made harmless here,
once: escape sequences, control characters and direction overrides become visible escapes, so that no question can
repaint a terminal or pose as something else. In JSON they are escaped as JSON escapes them, and nothing is lost.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from subagent_cli.core.errors import OutcomeUnknown, SubagentError
from subagent_cli.core.moment import Moment, ago, milliseconds
from subagent_cli.core.value import Value

_MOST_WARNINGS = 20
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF)
_CONTROLS = (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0))
_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS} | {code: f"\\u{code:04x}" for code in _DIRECTIONS}
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_DIRECTIONS)}


class Answer(Value):
    """What a command has to say: data for machines, text for people and agents, an exit code.

    `last_code` is asked for the exit code when a stream has ended, where that depends on how it did.
    """

    data: Any
    text: str = ""
    talk: str = ""
    code: int = 0
    warnings: Sequence[str] = ()
    table: Callable[[], "Table"] | None = None
    stream: Iterable["Answer"] | None = None
    last_code: Callable[[], int] | None = None


class Table(Value):
    """Rows for a terminal; the same as plain columns elsewhere."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    empty: str


def harmless(text: str) -> str:
    """Text that cannot do anything to a terminal."""
    return text.replace("\r\n", "\n").translate(_VISIBLE).encode("utf-8", "backslashreplace").decode()


def indented(text: str, margin: str = "  ") -> str:
    """Later lines moved in, so that a text of several lines cannot pose as lines of ours."""
    return f"\n{margin}".join(text.replace("\r\n", "\n").split("\n"))


def one_line(text: str | None, width: int = 60) -> str:
    flat = " ".join((text or "").split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def age(stamp: str | None, now: Moment) -> str:
    ms = milliseconds(stamp)
    return ago(max(0, now.ms - ms)) if ms is not None else "?"


def did_you_mean(error: SubagentError) -> str:
    return f"did you mean: {', '.join(error.candidates)}" if error.candidates else ""


def print_answer(answer: Answer, as_json: bool) -> None:
    """Says what a command has done. Where that cannot be said it is done all the same, and the caller must know so."""
    try:
        _print(answer, as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutcomeUnknown(
            f"the result could not be printed: {error.strerror or error}",
            code="not_printed",
            hint="what the command does was done: look with status; a retry with the same --key is safe",
        ) from error


def _print(answer: Answer, as_json: bool) -> None:
    for warning in answer.warnings[:_MOST_WARNINGS]:
        print_talk(f"warning: {indented(warning)}")
    if len(answer.warnings) > _MOST_WARNINGS:
        print_talk(f"and {len(answer.warnings) - _MOST_WARNINGS} more warnings; see subagent doctor")
    if answer.stream is not None:
        for part in answer.stream:
            if as_json:
                _print_line(part.data)
            else:
                _write(sys.stdout, harmless(part.text) + "\n")
    elif as_json:
        print_json(answer.data)
    elif answer.table is not None:
        _print_table(answer.table())
    elif answer.text:
        _write(sys.stdout, harmless(answer.text) + "\n")
    if answer.talk and not as_json:
        print_talk(answer.talk)


def print_json(data: Any) -> None:
    layout: dict[str, Any] = {"indent": 2} if _on_terminal() else {"separators": (",", ":")}
    text = json.dumps(data, ensure_ascii=False, **layout)
    _write(sys.stdout, text.translate(_ESCAPED) + "\n")


def _print_line(data: Any) -> None:
    """One line of a stream, which is NDJSON also on a terminal."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    _write(sys.stdout, text.translate(_ESCAPED) + "\n")


def print_talk(text: str) -> None:
    _write(sys.stderr, harmless(text) + "\n")


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _print_table(table: Table) -> None:
    if not table.rows:
        print_talk(table.empty)
    elif _on_terminal():
        _paint(table)
    else:
        _write(sys.stdout, harmless("\n".join(_columns(table.rows))) + "\n")


def _columns(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    flat = [[one_line(cell, 200) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*flat, strict=True)]
    for row in flat:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _paint(table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as Painted
    from rich.text import Text

    painted = Painted(box=None, pad_edge=False, header_style="bold")
    for heading in table.headings:
        painted.add_column(heading, no_wrap=heading in ("RUN", "QUESTION ID", "STATUS", "AGE"), overflow="fold")
    for row in table.rows:
        painted.add_row(*(Text(harmless(cell)) for cell in row))
    Console().print(painted)


def _write(stream: TextIO | None, text: str) -> None:
    """Bytes, since the stream's own encoding may be anything, and at once, so that a failure is met here."""
    if stream is not None:
        stream.flush()
        stream.buffer.write(text.encode("utf-8", "backslashreplace"))
        stream.buffer.flush()

"""What a benchmark comes to: rows, which the parts fill, and their tables as text and as Markdown.

Promises: a row that rests on an imitation of ours never stands in the same table as one that does not.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

HEAD = ("what", "ours", "yardstick", "", "ratio", "goal", "verdict", "stretch goal")
TO_THE_RIGHT = (False, True, True, False, True, True, False, False)


class Row(NamedTuple):
    """One figure beside its yardstick. `goal` and `stretch` bound the ratio, which is ours / yardstick.

    It is bounded from above for times and sizes, from below for rates. `faster` turns the ratio of two times around, so
    that it says how many times faster we are. `imitation` says that the yardstick is something that we made ourselves.
    """

    what: str
    ours: float
    yardstick: float
    beside: str
    unit: str
    goal: float | None = None
    stretch: float | None = None
    faster: bool = False
    imitation: bool = False

    @property
    def ratio(self) -> float:
        return self.yardstick / self.ours if self.faster else self.ours / self.yardstick

    @property
    def sign(self) -> str:
        return "≥" if self.faster or self.unit.endswith("/s") else "≤"

    @property
    def verdict(self) -> str:
        return self._against(self.goal)

    @property
    def stretch_verdict(self) -> str:
        return self._against(self.stretch)

    def _against(self, limit: float | None) -> str:
        if limit is None:
            return ""
        return "met" if (self.ratio >= limit if self.sign == "≥" else self.ratio <= limit) else "missed"


class Line(NamedTuple):
    """One line of a drawing: what was measured at each amount. Yardsticks are not `ours`."""

    name: str
    points: Sequence[tuple[float, float]]
    ours: bool


class Curve(NamedTuple):
    """A drawing: how a cost in milliseconds grows with an amount. `note` says what the dashed lines are."""

    name: str
    title: str
    note: str
    amount: str
    lines: Sequence[Line]


class Part(NamedTuple):
    """What one part of the benchmark found, and what it left out because something is missing here."""

    name: str
    rows: Sequence[Row]
    left_out: Sequence[str] = ()
    curve: Curve | None = None

    def only(self, imitation: bool) -> "Part":
        return self._replace(rows=[row for row in self.rows if row.imitation is imitation])


def table(parts: Iterable[Part]) -> str:
    """For a terminal: one table, in which each part has a heading of its own."""
    parts = [part for part in parts if part.rows]
    lines = [HEAD, *(_cells(row) for part in parts for row in part.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [_line(HEAD, widths)]
    for part in parts:
        shown += ["", part.name, *(_line(_cells(row), widths) for row in part.rows)]
    return "\n".join(shown)


def markdown(parts: Iterable[Part]) -> str:
    """The same for a document."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'|'.join('--:' if right else '---' for right in TO_THE_RIGHT)}|"]
    for part in parts:
        if part.rows:
            lines.append(f"| **{part.name}** |{' |' * (len(HEAD) - 1)}")
            lines += [f"| {' | '.join(_cells(row))} |" for row in part.rows]
    return "\n".join(lines)


def figure(value: float, unit: str) -> str:
    if value >= 1000:
        return f"{value:,.0f} {unit}"
    return f"{value:.{1 if value >= 1 else 2}f} {unit}"


def _cells(row: Row) -> tuple[str, ...]:
    goal = f"{row.sign} {row.goal:g}" if row.goal is not None else ""
    stretch = f"{row.sign} {row.stretch:g} {row.stretch_verdict}" if row.stretch is not None else ""
    ours, yardstick = figure(row.ours, row.unit), figure(row.yardstick, row.unit)
    return (row.what, ours, yardstick, row.beside, f"{row.ratio:.2f}", goal, row.verdict, stretch)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = zip(cells, widths, TO_THE_RIGHT, strict=True)
    return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in padded).rstrip()

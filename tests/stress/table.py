"""The table of the long tests, as values: rows in, lines out.

Promise: nothing is in a cell but what a test said of itself. Rows that differ in nothing but the number they begin with
are parts of one promise, and their numbers are added up; a row of a test that failed is never added to another's.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import pytest

ROW = "stress row"
FOLDER = "stress"
HEADS = ("tried", "how much", "lost", "seconds", "")
FAILED = "FAILED"
BEGIN, END = "<!-- stress:begin -->", "<!-- stress:end -->"

# As the promises follow each other in docs/reliability.md; others come behind.
ORDER = (
    "test_parallel",
    "test_beside",
    "test_kills",
    "test_syscalls",
    "test_full_disk",
    "test_damage",
    "test_fuzz",
    "test_hostile",
    "test_model",
    "test_history",
    "test_keeper",
    "test_clocks",
    "test_pids",
    "test_sweep",
    "test_waiting",
)
_AMOUNT = re.compile(r"(\d[\d,]*)(\s.*)", re.DOTALL)


class Row(NamedTuple):
    place: int
    row: str
    tried: str
    lost: str
    seconds: float
    passed: bool

    @property
    def cells(self) -> tuple[str, ...]:
        return self.row, self.tried, self.lost, f"{self.seconds:.0f}", "" if self.passed else FAILED


def rows_of(report: pytest.TestReport) -> list[Row]:
    """What one test has said. One that failed without a word is in the table too, under its own name."""
    file, _, test = report.nodeid.partition("::")
    module = PurePath(file).stem
    place = ORDER.index(module) if module in ORDER else len(ORDER)
    properties: Sequence[tuple[str, Any]] = report.user_properties
    said = [tuple(map(str, value)) for name, value in properties if name == ROW]
    if not said and not report.passed and PurePath(file).parent.name == FOLDER:
        said = [(test, "broken off", "unknown")]
    seconds = report.duration / max(1, len(said))
    return [Row(place, row, tried, lost, seconds, report.passed) for row, tried, lost in said]


def table(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """The cells of the table with their heads, in the order of the promises."""

    def alike(row: Row) -> tuple[object, ...]:
        return row.place, row.row, _amount(row.tried)[1], row.lost, row.passed

    return [HEADS, *(_sum(list(same)).cells for _, same in groupby(sorted(rows, key=alike), alike))]


def plain(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """The table in columns, for a terminal."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def markdown(cells: Sequence[tuple[str, ...]], machine: str) -> str:
    """The table as it stands in a document, without the column for failures: there are none."""
    heads, *rows = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row[:-1]] for row in cells)
    lines = [machine, "", _line(heads), _line(["---"] * (len(heads) - 1) + ["--:"]), *map(_line, rows)]
    return "\n".join(lines)


def put(document: str, text: str) -> str:
    """The document with another text between its two markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"it has no {BEGIN} with {END} behind it")
    return f"{before}{begin}\n{text}\n{end}{after}"


def file_system(folder: str) -> str:
    """The kind of file system that a folder lies on, where the machine says so."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "an unknown file system"
    here = Path(folder).resolve()
    around = [fields for fields in mounts if here.is_relative_to(fields[1])]
    return max(around, key=lambda fields: len(fields[1]))[2] if around else "an unknown file system"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _amount(tried: str) -> tuple[int | None, str]:
    """The number with which a text begins, and the rest of the text."""
    found = _AMOUNT.match(tried)
    return (int(found[1].replace(",", "")), found[2]) if found else (None, tried)


def _sum(parts: Sequence[Row]) -> Row:
    first = parts[0]
    amount, rest = _amount(first.tried)
    seconds = sum(part.seconds for part in parts)
    if amount is None or len(parts) == 1:
        return first._replace(seconds=seconds)
    total = sum(_amount(part.tried)[0] or 0 for part in parts)
    return first._replace(tried=f"{total:,}{rest}", seconds=seconds)

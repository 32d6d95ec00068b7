"""What a run of the benchmark says: as a table, as JSON, and as the documents that hold its figures.

Promises: the documents hold nothing but what a run printed, and of performance.md only what stands between the markers
is changed.
"""

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from scripts.bench_machine import told
from scripts.bench_plot import svg
from scripts.bench_table import Part, markdown, table

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
IMITATIONS = (
    "Beside what is an imitation of ours: the double of the TypeScript server, made from what it was seen to do"
)
METHOD = "Medians of shuffled rounds, a first one left out. Only the ratios travel."


class Report(NamedTuple):
    machine: dict[str, str | int]
    parts: Sequence[Part]
    quick: bool
    seconds: float

    @property
    def left_out(self) -> list[str]:
        return [what for part in self.parts for what in part.left_out]

    def of(self, imitation: bool) -> list[Part]:
        return [part.only(imitation) for part in self.parts]


def text(report: Report) -> str:
    blocks = [table(report.of(imitation=False))]
    if any(part.rows for part in report.of(imitation=True)):
        blocks += [f"{IMITATIONS}.", table(report.of(imitation=True))]
    if report.left_out:
        blocks.append("\n".join(f"left out: {what}" for what in report.left_out))
    blocks.append(f"{METHOD}\n{report.machine['date']}: {told(report.machine)}; {_length(report)}.")
    return "\n\n".join(blocks)


def data(report: Report) -> dict[str, Any]:
    return {
        "machine": report.machine,
        "quick": report.quick,
        "seconds": round(report.seconds),
        "rows": [
            {
                "part": part.name,
                **row._asdict(),
                "ours": _short(row.ours),
                "yardstick": _short(row.yardstick),
                "ratio": _short(row.ratio),
                "sign": row.sign,
                "verdict": row.verdict or None,
                "stretchVerdict": row.stretch_verdict or None,
            }
            for part in report.parts
            for row in part.rows
        ],
        "leftOut": report.left_out,
        "curves": {
            part.curve.name: {
                "title": part.curve.title,
                "note": part.curve.note,
                "amount": part.curve.amount,
                "unit": "ms",
                "lines": [
                    {**line._asdict(), "points": [(x, _short(y)) for x, y in line.points]} for line in part.curve.lines
                ],
            }
            for part in report.parts
            if part.curve
        },
    }


def as_json(report: Report) -> str:
    return json.dumps(data(report), indent=2, ensure_ascii=False)


def save(report: Report, folder: str) -> list[str]:
    """Writes performance.json, a drawing for each curve, and the tables in performance.md; says which files."""
    files = {"performance.json": as_json(report) + "\n"}
    for part in report.parts:
        if part.curve:
            files[f"performance-{part.curve.name}.svg"] = svg(part.curve, f"{report.machine['date']}, {_class(report)}")
    before, after = around(folder)
    files["performance.md"] = f"{before}{BEGIN}\n{_figures(report)}\n{END}{after}"
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
    return sorted(files)


def around(folder: str) -> tuple[str, str]:
    """What stands before the figures in the document of this folder, and what stands behind them."""
    document = os.path.join(folder, "performance.md")
    try:
        with open(document, encoding="utf-8") as file:
            before, _, rest = file.read().partition(BEGIN)
    except OSError as error:
        raise SystemExit(f"the figures cannot be written: {error}") from error
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{document} has no place for figures: {BEGIN} and {END}")
    return before, after


def _figures(report: Report) -> str:
    blocks = [
        f"Measured on {report.machine['date']}: {told(report.machine)}; {_length(report)}. {METHOD}",
        markdown(report.of(imitation=False)),
    ]
    if any(part.rows for part in report.of(imitation=True)):
        blocks += [f"### {IMITATIONS.partition(':')[0]}", markdown(report.of(imitation=True))]
    blocks += [f"Left out: {what}." for what in report.left_out]
    return "\n\n".join(blocks)


def _short(value: float) -> float:
    """As many digits as mean something."""
    return float(f"{value:.4g}")


def _length(report: Report) -> str:
    length = f"{report.seconds / 60:.0f} minutes" if report.seconds >= 90 else f"{report.seconds:.0f} seconds"
    return f"{'with --quick, ' if report.quick else ''}{length}"


def _class(report: Report) -> str:
    machine = report.machine
    return ", ".join(
        (
            f"{machine['cores']} cores ({machine['cpu']})",
            str(machine["memory"]),
            str(machine["fileSystem"]),
            f"Python {machine['python']}",
        )
    )

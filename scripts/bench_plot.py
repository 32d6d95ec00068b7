"""Draws a curve as SVG, by hand: both axes logarithmic, each line named at its end, legible on light and dark.

Ours are solid and coloured, yardsticks dashed and grey; marks differ too, so that nothing hangs on colour alone.
"""

import math
from collections.abc import Sequence
from html import escape

from scripts.bench_table import Curve, Line

WIDTH, HEIGHT = 880, 520
LEFT, RIGHT, TOP, BOTTOM = 84, 240, 96, 64
LABEL_GAP = 19
OURS = ("#2f81f7", "#d9730d", "#1a9c5b", "#b4489a")
THEIRS = ("#7d8590", "#7d8590")
MARKS = ("circle", "square", "diamond", "triangle")
STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
.title { font-size: 18px; font-weight: 600; }
.quiet { fill: #59636e; }
.paper { fill: #ffffff; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.fine { stroke: #d1d9e0; stroke-width: 1; opacity: 0.45; }
.leader { stroke: #7d8590; stroke-width: 1; opacity: 0.6; fill: none; }
.line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
.theirs { stroke-dasharray: 6 5; stroke-width: 1.75; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .paper { fill: #0d1117; }
  .grid, .fine { stroke: #3d444d; }
}"""


class Axis:
    """Where a value lies between two places: logarithmic, from a whole power of ten or a part of it to another."""

    def __init__(self, values: Sequence[float], begin: float, end: float, steps: Sequence[int]) -> None:
        self.steps = steps
        self.low = max((tick for tick in self._ticks(min(values) / 10, min(values))), default=min(values))
        self.high = min((tick for tick in self._ticks(max(values), max(values) * 10)), default=max(values))
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self._begin + part * (self._end - self._begin)

    def ticks(self) -> list[float]:
        return self._ticks(self.low, self.high)

    def _ticks(self, low: float, high: float) -> list[float]:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**power for power in powers for step in self.steps]
        return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def svg(curve: Curve, measured: str) -> str:
    """`measured` says when and on what."""
    amounts = [x for line in curve.lines for x, _ in line.points]
    costs = [y for line in curve.lines for _, y in line.points]
    across = Axis(amounts, LEFT, WIDTH - RIGHT, (1,))
    up = Axis(costs, HEIGHT - BOTTOM, TOP, (1, 2, 5))
    title = escape(curve.title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        _text(24, 32, curve.title, "title"),
        _text(24, 53, measured, "quiet"),
        _text(24, 71, curve.note, "quiet"),
        *_grid(across, up, curve.amount),
        *(_line(line, place, across, up) for line, place in _places(curve.lines)),
        *_names(curve.lines, across, up),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _places(lines: Sequence[Line]) -> list[tuple[Line, int]]:
    """Each line, and which of its kind it is. Yardsticks come first, so that ours lie above them."""
    ours, theirs = ([line for line in lines if line.ours is kind] for kind in (True, False))
    return [*((line, place) for place, line in enumerate(theirs)), *((line, place) for place, line in enumerate(ours))]


def _grid(across: Axis, up: Axis, amount: str) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts: list[str] = []
    for tick in up.ticks():
        y, is_power = up(tick), math.isclose(math.log10(tick) % 1, 0, abs_tol=1e-9)
        parts.append(f'<path class="{"grid" if is_power else "fine"}" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(_text(LEFT - 10, y + 4.5, f"{tick:,g} ms", "" if is_power else "quiet", "end"))
    for tick in across.ticks():
        x = across(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>')
        parts.append(_text(x, bottom + 21, f"{tick:,.0f}", "", "middle"))
    parts.append(_text((LEFT + right) / 2, bottom + 45, amount, "quiet", "middle"))
    return parts


def _line(line: Line, place: int, across: Axis, up: Axis) -> str:
    colour = _colour(line, place)
    points = [(across(x), up(y)) for x, y in line.points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    kind = "line" if line.ours else "line theirs"
    marks = "".join(_mark(MARKS[place % len(MARKS)], x, y, line.ours, colour) for x, y in points)
    return f'<path class="{kind}" stroke="{colour}" d="M{path}"/>{marks}'


def _colour(line: Line, place: int) -> str:
    colours = OURS if line.ours else THEIRS
    return colours[place % len(colours)]


def _mark(kind: str, x: float, y: float, full: bool, colour: str) -> str:
    paint = f'fill="{colour}"' if full else f'class="paper" stroke="{colour}" stroke-width="1.75"'
    match kind:
        case "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {paint}/>'
        case "square":
            return f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" {paint}/>'
        case "diamond":
            return f'<path d="M{x:.1f} {y - 5.2:.1f}l5.2 5.2l-5.2 5.2l-5.2 -5.2z" {paint}/>'
        case _:
            return f'<path d="M{x:.1f} {y - 5:.1f}l5 8.6h-10z" {paint}/>'


def _names(lines: Sequence[Line], across: Axis, up: Axis) -> list[str]:
    """The name of each line right of its end, moved apart where ends lie close together."""
    right = WIDTH - RIGHT
    ends = sorted(((up(line.points[-1][1]), line, place) for line, place in _places(lines)), key=lambda end: end[0])
    places = apart([y for y, _, _ in ends], TOP + 4, HEIGHT - BOTTOM)
    parts: list[str] = []
    for (y, line, place), at in zip(ends, places, strict=True):
        x, last = across(line.points[-1][0]), line.points[-1][1]
        parts.append(f'<path class="leader" d="M{x + 7:.1f} {y:.1f}L{right + 22} {at:.1f}"/>')
        parts.append(_mark(MARKS[place % len(MARKS)], right + 30, at, line.ours, _colour(line, place)))
        cost = f'<tspan class="quiet" dx="8">{_cost(last)}</tspan>'
        parts.append(_text(right + 40, at + 4.5, line.name, "" if line.ours else "quiet", more=cost))
    return parts


def _cost(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def apart(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """The same places in their order, a line apart and within the drawing: those in a heap spread around it."""
    heaps: list[list[float]] = []
    for place in wanted:
        heaps.append([place])
        while len(heaps) > 1 and _spread(heaps[-2], low, high)[-1] + LABEL_GAP > _spread(heaps[-1], low, high)[0]:
            heaps[-2:] = [[*heaps[-2], *heaps[-1]]]
    return [place for heap in heaps for place in _spread(heap, low, high)]


def _spread(heap: Sequence[float], low: float, high: float) -> list[float]:
    height = LABEL_GAP * (len(heap) - 1)
    first = min(max(sum(heap) / len(heap) - height / 2, low), high - height)
    return [first + LABEL_GAP * place for place in range(len(heap))]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start", more: str = "") -> str:
    shown = f' class="{kind}"' if kind else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{shown}{where}>{escape(text)}{more}</text>'

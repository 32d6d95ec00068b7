"""Points and lengths of time, as values.

A moment carries two clocks: the wall clock, which people read and anybody can set, and the time since boot, which
nobody can. Within one boot lengths are measured by the second, so a clock that jumps neither ages nor rejuvenates
anything.
"""

from datetime import UTC, datetime, timedelta

from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.value import Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
_MOST_DIGITS = 20
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Moment(Value):
    ms: int
    boot: str = ""
    up: int = 0

    @property
    def iso(self) -> str:
        return iso(self.ms)

    @property
    def clock(self) -> str:
        return f"{self.boot}+{self.up}" if self.boot else ""


def moment(at: str, clock: str) -> Moment:
    """The moment that a journal line speaks of."""
    boot, _, up = clock.partition("+")
    # No clock has that many digits, and Python reads no number of thousands of them.
    known = up.isdecimal() and len(up) <= _MOST_DIGITS
    return Moment(milliseconds(at) or 0, boot, int(up)) if known else Moment(milliseconds(at) or 0)


def earlier(stamp: str, seen: Moment) -> Moment:
    """The moment that somebody else's stamp names, on the clocks of the moment at which it was seen."""
    ms = milliseconds(stamp)
    if ms is None or ms >= seen.ms:
        return seen
    return Moment(ms, seen.boot, seen.up - (seen.ms - ms))


def elapsed(since: Moment, now: Moment) -> int:
    """Milliseconds between two moments, never negative."""
    if since.boot and since.boot == now.boot:
        return max(0, now.up - since.up)
    return max(0, now.ms - since.ms)


def iso(ms: int) -> str:
    """As JavaScript's toISOString writes it, for years of four digits; what lies beyond them becomes their edge."""
    ms = max(_FIRST, min(ms, _LAST))
    at = _EPOCH + timedelta(milliseconds=ms)
    return f"{at.year:04d}-{at.month:02d}-{at.day:02d}T{at.hour:02d}:{at.minute:02d}:{at.second:02d}.{ms % 1000:03d}Z"


def milliseconds(text: str | None) -> int | None:
    """The time that a stamp of any ISO 8601 spelling names, or None."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    ms = (at.replace(tzinfo=at.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)
    return ms if _FIRST <= ms <= _LAST else None


def duration(text: str) -> int:
    """Milliseconds in `90`, `90s`, `5m`, `2h`, `1d` or `250ms`; a bare number is seconds."""
    bare = text.strip().lower()
    unit = bare.lstrip("0123456789.")
    number = bare.removesuffix(unit) if unit else bare
    factor = _UNITS.get(unit.strip() or "s")
    try:
        length = round(float(number) * factor) if factor else -1
    except (ValueError, OverflowError):
        length = -1
    if length <= 0:
        raise InvalidInput(f"not a length of time: {text[:40]!r}", hint="write 90, 90s, 5m, 2h or 1d")
    return length


def spelled(ms: int) -> str:
    """A length of time as `duration` reads it."""
    unit = next(unit for unit in reversed(_UNITS) if ms % _UNITS[unit] == 0)
    return f"{ms // _UNITS[unit]}{unit}"


def ago(ms: int) -> str:
    """A length of time in the fewest characters that still inform."""
    seconds = ms // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"

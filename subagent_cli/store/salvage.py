"""What is left of a journal: all of it where it is whole, else every line that still checks."""

from subagent_cli.core.errors import Damaged
from subagent_cli.core.event import Event, Record, event
from subagent_cli.core.evolution import fold
from subagent_cli.core.run import Run
from subagent_cli.core.value import Value
from subagent_cli.store import codec, journal
from subagent_cli.store.layout import Layout


class Remains(Value):
    """A journal as far as it can be read: bytes that are in order up to `end`, then what can be picked out."""

    folded: journal.Folded
    data: bytes = b""
    picked: tuple[tuple[Event, str | None], ...] = ()
    lost: int | None = None
    newer: str | None = None

    @property
    def end(self) -> int:
        return self.folded.end

    @property
    def torn(self) -> bool:
        return self.lost is None and self.newer is None and len(self.data) > self.end


def remains(layout: Layout, run_id: str) -> Remains:
    try:
        with open(layout.journal(run_id), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return Remains(journal.Folded(Run(run_id)))
    try:
        records, end = journal.committed(data)
        folded = journal.Folded(fold(Run(run_id), map(event, records)), len(records), end, journal.pictures(records))
    except Damaged as error:
        if error.code == "newer_journal":
            return Remains(journal.Folded(Run(run_id)), data, newer=error.message)
    except (ValueError, TypeError):
        # Whole by its checksum, and yet not what a journal says: somebody sealed it by hand.
        pass
    else:
        return Remains(folded, data)
    return _picked(run_id, data)


def _picked(run_id: str, data: bytes) -> Remains:
    """All lines of a damaged journal that check: those before the damage as they stand, those behind it as events."""
    *lines, torn = data.split(b"\n")
    first: list[Event] = []
    picked: list[tuple[Event, str | None]] = []
    end = last = behind = 0
    intact = True
    for line in lines:
        try:
            record = codec.load(line) if journal.checks(line) else {}
            happened = event(record) if _is_ours(record) else None
            fold(Run(run_id), (happened,) if happened else ())
        except (Damaged, ValueError, TypeError) as error:
            if isinstance(error, Damaged) and error.code == "newer_journal":
                return Remains(journal.Folded(Run(run_id)), data, newer=error.message)
            happened = None
        if happened is None:
            intact, behind = False, behind + bool(line)
            continue
        intact = intact and record["seq"] == len(first) + 1
        last, behind = max(last, record["seq"]), 0
        if intact:
            first.append(happened)
            end += len(line) + 1
        else:
            picked.append((happened, record.get("origin")))
    lost = max(0, last - len(first) - len(picked)) + behind + bool(torn)
    return Remains(journal.Folded(fold(Run(run_id), first), len(first), end), data, tuple(picked), lost)


def _is_ours(record: Record) -> bool:
    """Whether what is written about an event is what we write; its checksum only says that somebody did."""
    return type(record.get("seq")) is int and all(isinstance(record.get(key, ""), str) for key in ("meta", "origin"))

"""Reading a run, without a lock and without a trace: its picture, late writes to it, and then its journal.

In this order, so that a newer write of our own never looks like somebody else's.
"""

from collections.abc import Sequence
from typing import Any

from subagent_cli.core.document import Document
from subagent_cli.core.errors import Damaged
from subagent_cli.core.event import Event
from subagent_cli.core.evolution import fold
from subagent_cli.core.moment import Moment
from subagent_cli.core.run import Run
from subagent_cli.core.value import Value
from subagent_cli.store import atomic, codec, journal
from subagent_cli.store.layout import Layout
from subagent_cli.store.picture import Pictures
from subagent_cli.store.ring import Late, Ring

Spec = dict[str, Any]

_KEPT = 1000


class Sight(Value):
    """The files of a run: what was found in them, and what of it another program wrote."""

    picture: bytes | None
    late: list[Late]
    folded: journal.Folded
    document: Document | None

    @property
    def foreign(self) -> bool:
        return self.document is not None or bool(self.late)

    def absorbed(self, now: Moment) -> Sequence[Event]:
        """What other programs wrote, as events: first what came too late for its file, then what stands there."""
        if not self.foreign:
            return ()
        from subagent_cli.core.absorption import absorb

        run, events = self.folded.run, list[Event]()
        for late in self.late:
            events += absorb(run, late.document, now, late=True)
            run = fold(self.folded.run, events)
        return events if self.document is None else [*events, *absorb(run, self.document, now)]


class Reader:
    """Reads the runs below one directory, and remembers what their journals added up to."""

    def __init__(self, layout: Layout, ring: Ring) -> None:
        self._layout = layout
        self._ring = ring
        self._pictures = Pictures(layout)
        self._folded: dict[str, journal.Folded] = {}

    def see(self, run_id: str) -> Sight:
        picture = self._pictures.read(run_id)
        late = self._ring.late(run_id)
        folded = self.fold(run_id)
        return Sight(picture, late, folded, self._pictures.foreign(run_id, picture, folded))

    def spec(self, run_id: str) -> Spec:
        """What was asked of the run; empty for a run that another program made."""
        path = self._layout.spec(run_id)
        if not self._layout.inside(path):
            raise Damaged(f"run.json of run {run_id} is a link that leads out of the runs directory")
        try:
            found = codec.load(atomic.content(path))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise atomic.failed(f"read run.json of run {run_id}", error) from error
        except ValueError as error:
            raise Damaged(f"could not read run.json of run {run_id}: {error}") from error
        return found if isinstance(found, dict) else {}

    def fold(self, run_id: str) -> journal.Folded:
        """The run that its journal adds up to."""
        path = self._layout.journal(run_id)
        if not self._layout.inside(path):
            raise Damaged(f"the journal of run {run_id} is a link that leads out of the runs directory")
        try:
            folded = journal.read(path, run_id, self._folded.get(run_id))
        except OSError as error:
            raise atomic.failed(f"read the journal of run {run_id}", error) from error
        except Damaged as error:
            raise Damaged(f"run {run_id}: {error.message}", code=error.code, hint=error.hint) from error
        except (TypeError, ValueError, AttributeError) as error:
            raise Damaged(f"run {run_id}: the journal holds an event that makes no sense: {error}") from error
        self.remember(run_id, folded)
        return folded

    def remember(self, run_id: str, folded: journal.Folded) -> None:
        """What the journal adds up to, for the next time that it is asked for."""
        if len(self._folded) >= _KEPT:
            self._folded.clear()
        self._folded[run_id] = folded

    def digest(self, picture: bytes) -> str:
        return self._pictures.digest(picture)

    def paint(self, run: Run) -> bytes:
        """The picture of a run."""
        try:
            return self._pictures.paint(run)
        except ValueError as error:
            raise self._pictures.unreadable(run.id, str(error)) from error

"""What the sessions of these tests hold: items of several kinds, and some that no snapshot can hold or give back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from subagent_cli.dispatch import DispatchSubagent, Session

SESSION_ID = "01936f2e-0000-7000-8000-000000000000"
CREATED_AT = "2025-01-31T12:00:00.000Z"
REQUEST = DispatchSubagent("ad_hoc", "docs", "review", " Review the docs ", ("report.md",))


@dataclass(frozen=True, slots=True)
class Note:
    text: str


@dataclass(frozen=True)
class Step:
    """Frozen at its surface alone: what hangs on it can be changed."""

    name: str
    done: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Mount:
    path: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class AddNote:
    text: str


@dataclass(frozen=True)
class Held:
    """Cannot be captured: a lock belongs to its process."""

    lock: Any = field(default_factory=Lock)


class Stubborn:
    """Can be captured, and not restored."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[()]]:
        return _refuse, ()


def _refuse() -> object:
    raise ValueError("not again")


def appended(notes: tuple[Note, ...], added: AddNote) -> tuple[Note, ...]:
    return (*notes, Note(added.text))


def replaced(_: tuple[Note, ...], note: Note) -> tuple[Note, ...]:
    return (note,)


def a_session() -> Session:
    """A parent with data in two slices and none in two others, of which one only a reducer speaks of."""
    session = Session(SESSION_ID, CREATED_AT)
    session.seed(Step, [Step("S1", {"files": ["a.md"]})])
    session.seed(Mount)
    session.register(AddNote, appended, Note)
    session.apply(AddNote("from the parent"))
    session.register(Held, lambda items, item: (*items, item))
    return session


def state(session: Session) -> dict[type, tuple[Any, ...]]:
    return {kind: session.select(kind) for kind in session.slice_types()}

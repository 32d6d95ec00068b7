"""A session: data in slices, one for each type of item, and the reducers that change them.

All reducers of one change have run or none of it shows. A clone has the structure of its origin and shares no data
with it; `rollback` brings a snapshot's data in, whole or not at all. Each call holds the session's lock, so threads
may share one. A closed session is empty and refuses whatever is asked of it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, TypeVar, overload

from subagent_cli.core.errors import Refused
from subagent_cli.dispatch.bus import EventBus
from subagent_cli.dispatch.snapshot import Snapshot, SnapshotRestoreError, captured, restored

S = TypeVar("S")
D = TypeVar("D")

# A function of its arguments alone: a clone calls the same one.
Reducer = Callable[[tuple[S, ...], D], tuple[S, ...]]


class SessionClosed(Refused):
    """The session is over, and nothing is left of it."""

    code = "session_closed"


class Session:
    """`session_id` and `created_at` are the caller's and stay as they are; a clone has the same ones."""

    def __init__(self, session_id: str, created_at: str, bus: EventBus | None = None) -> None:
        self.session_id = session_id
        self.created_at = created_at
        self.bus = EventBus() if bus is None else bus
        self._lock = RLock()
        self._slices: dict[type, tuple[Any, ...]] = {}
        self._reducers: dict[type, list[tuple[Reducer[Any, Any], type]]] = {}
        self._closed = False

    @overload
    def register(self, data_type: type[D], reducer: Reducer[D, D]) -> None: ...
    @overload
    def register(self, data_type: type[D], reducer: Reducer[S, D], slice_type: type[S]) -> None: ...
    def register(self, data_type: type, reducer: Reducer[Any, Any], slice_type: type | None = None) -> None:
        """From now on data of this type goes through the reducer into a slice, which exists at once. Data that is
        published on the session's bus goes the same way."""
        target = data_type if slice_type is None else slice_type
        with self._opened():
            if data_type not in self._reducers:
                self.bus.subscribe(data_type, self.apply)
            self._reducers.setdefault(data_type, []).append((reducer, target))
            self._slices.setdefault(target, ())

    def seed(self, slice_type: type[S], items: Iterable[S] = ()) -> None:
        """Puts these items in place of what the slice holds."""
        with self._opened():
            self._slices[slice_type] = _checked(slice_type, tuple(items))

    def select(self, slice_type: type[S]) -> tuple[S, ...]:
        """What the slice holds; nothing where there is no such slice."""
        with self._opened():
            return self._slices.get(slice_type, ())

    def slice_types(self) -> tuple[type, ...]:
        with self._opened():
            return tuple(self._slices)

    def apply(self, data: object) -> None:
        """Runs the reducers of exactly this type of data, in their order. Data that nobody reduces changes nothing."""
        with self._opened():
            changed: dict[type, tuple[Any, ...]] = {}
            for reducer, target in tuple(self._reducers.get(type(data), ())):
                before = changed.get(target, self._slices[target])
                changed[target] = _checked(target, reducer(before, data))
            self._slices.update(changed)

    def reset(self) -> None:
        """Empties every slice; the structure stays."""
        with self._opened():
            self._slices = dict.fromkeys(self._slices, ())

    def snapshot(self) -> Snapshot:
        with self._opened():
            return captured(self._slices)

    def rollback(self, snapshot: Snapshot) -> None:
        """Makes the data that of the snapshot; slices that came later are emptied."""
        with self._opened():
            foreign = [kind.__qualname__ for kind in snapshot.types if kind not in self._slices]
            if foreign:
                raise SnapshotRestoreError(f"the session has no slice of {', '.join(foreign)}")
            self._slices = dict.fromkeys(self._slices, ()) | restored(snapshot)

    def clone(self, bus: EventBus | None = None) -> "Session":
        """Another session of the same structure, with a store and a bus of its own; its slices are empty."""
        with self._opened():
            twin = Session(self.session_id, self.created_at, bus)
            for data_type, reducers in self._reducers.items():
                for reducer, target in reducers:
                    twin.register(data_type, reducer, target)
            for slice_type in self._slices:
                twin.seed(slice_type)
            return twin

    def close(self) -> None:
        """Ends the session: it forgets its data and stops listening. Twice does no harm."""
        with self._lock:
            for data_type in self._reducers:
                self.bus.unsubscribe(data_type, self.apply)
            self._reducers.clear()
            self._slices.clear()
            self._closed = True

    @contextmanager
    def _opened(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise SessionClosed("the session is closed")
            yield


def _checked(slice_type: type, items: Any) -> tuple[Any, ...]:
    if isinstance(items, tuple) and all(isinstance(item, slice_type) for item in items):
        return items
    raise TypeError(f"a slice of {slice_type.__qualname__} is a tuple of such items")

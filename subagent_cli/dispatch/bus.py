"""Events within one process: whoever publishes waits until all listeners have heard.

An event reaches those who listen for exactly its type, in the order in which they came. One that raises keeps no
other from hearing it; what was raised is handed back to the publisher. A closed bus is silent: it has no listeners
and takes none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from subagent_cli.core.errors import Refused

E = TypeVar("E")


@dataclass(slots=True, frozen=True)
class ToolInvoked:
    """A tool was called; that it failed does not make it unused."""

    name: str
    success: bool = True


class EventBus:
    def __init__(self) -> None:
        self._lock = Lock()
        self._handlers: dict[type, list[Callable[[Any], object]]] = {}
        self._closed = False

    def subscribe(self, event_type: type[E], handler: Callable[[E], object]) -> None:
        with self._lock:
            if self._closed:
                raise Refused("the bus is closed", code="bus_closed")
            self._handlers.setdefault(event_type, []).append(handler)

    def unsubscribe(self, event_type: type[E], handler: Callable[[E], object]) -> None:
        """Takes a listener away, once for each time it came; one that is not there is no fault."""
        with self._lock:
            handlers = self._handlers.get(event_type, [])
            if handler in handlers:
                handlers.remove(handler)

    def publish(self, event: object) -> tuple[Exception, ...]:
        """Tells everybody who listens for this type; gives back what their handlers raised."""
        # Outside the lock, so that a handler may publish, subscribe and unsubscribe.
        with self._lock:
            handlers = tuple(self._handlers.get(type(event), ()))
        faults = [_fault_of(handler, event) for handler in handlers]
        return tuple(fault for fault in faults if fault is not None)

    def listeners(self) -> int:
        with self._lock:
            return sum(map(len, self._handlers.values()))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._handlers.clear()


def _fault_of(handler: Callable[[Any], object], event: object) -> Exception | None:
    try:
        handler(event)
    except Exception as error:
        return error
    return None

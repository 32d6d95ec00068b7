"""Dispatching: a request is done in a copy of the session, of which nothing is left afterwards but the result.

A request that cannot be meant, and a state that cannot be copied, raise ToolValidationError. Whatever goes wrong in
the child is a result without success. On every way out the child's session is closed and its bus has no listeners.
"""

from dataclasses import dataclass, replace

from subagent_cli.core.dispatch import (
    DispatchSubagent,
    DispatchSubagentResult,
    ToolValidationError,
    delivered,
    normalized,
    shortfalls,
)
from subagent_cli.core.errors import SubagentError
from subagent_cli.dispatch.bus import EventBus, ToolInvoked
from subagent_cli.dispatch.runner import SubagentRunner
from subagent_cli.dispatch.session import Session
from subagent_cli.dispatch.snapshot import Snapshot


@dataclass(slots=True, frozen=True)
class ToolResult:
    """What the parent reads. Without success there is no value. Warnings are what was agreed and not kept."""

    message: str
    value: DispatchSubagentResult | None
    success: bool
    warnings: tuple[str, ...] = ()


def dispatch_subagent(session: Session, request: DispatchSubagent, runner: SubagentRunner) -> ToolResult:
    """Has the runner do the request in a throwaway child of the session."""
    wanted = normalized(request)
    bus = EventBus()
    snapshot, child = _captured(session, bus)
    try:
        _hydrate(child, snapshot)
        return _outcome(child, bus, wanted, runner)
    finally:
        child.close()
        bus.close()


def _captured(session: Session, bus: EventBus) -> tuple[Snapshot, Session]:
    try:
        # In this order: what the session gets in between is structure that the snapshot need not know.
        return session.snapshot(), session.clone(bus)
    except SubagentError as error:
        raise ToolValidationError("Unable to capture parent session state.", hint=error.message) from error


def _hydrate(child: Session, snapshot: Snapshot) -> None:
    try:
        child.rollback(snapshot)
    except SubagentError as error:
        raise ToolValidationError("Unable to hydrate child session from snapshot.", hint=error.message) from error


def _outcome(child: Session, bus: EventBus, wanted: DispatchSubagent, runner: SubagentRunner) -> ToolResult:
    recorder = _ToolRecorder()
    bus.subscribe(ToolInvoked, recorder)
    try:
        result = delivered(runner(child, bus, replace(wanted)))
    except ToolValidationError:
        raise
    except Exception as error:
        return ToolResult(f"Subagent execution failed: {str(error) or type(error).__name__}", None, success=False)
    if not result.tools_used:
        result = replace(result, tools_used=recorder.names())
    return ToolResult(result.message_summary, result, success=True, warnings=shortfalls(wanted, result))


class _ToolRecorder:
    """Listens for tools and knows each by its name, first seen first."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def __call__(self, event: ToolInvoked) -> None:
        self._seen.setdefault(event.name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._seen)

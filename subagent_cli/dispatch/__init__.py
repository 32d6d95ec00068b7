"""Dispatching within one Python process: a request is checked, done by your runner in a throwaway copy of your
session, and comes back as a summary. Nothing else of the child remains, however it ends.

    from subagent_cli.dispatch import DispatchSubagent, DispatchSubagentResult, Session, dispatch_subagent

    def runner(session, bus, request):
        return DispatchSubagentResult(f"Did it: {request.instructions}")

    session = Session("session-1", "2025-01-31T12:00:00.000Z")
    result = dispatch_subagent(session, DispatchSubagent("ad_hoc", "docs", "review", "Review the docs"), runner)

Needs nothing but the standard library, no files and no processes. docs/dispatch-python.md says the rest.
"""

from subagent_cli.core.dispatch import (
    DispatchSubagent,
    DispatchSubagentError,
    DispatchSubagentResult,
    SubagentMode,
    ToolValidationError,
)
from subagent_cli.dispatch.bus import EventBus, ToolInvoked
from subagent_cli.dispatch.runner import SubagentRunner
from subagent_cli.dispatch.section import SubagentToolsSection, Tool
from subagent_cli.dispatch.session import Session, SessionClosed
from subagent_cli.dispatch.snapshot import Snapshot, SnapshotError, SnapshotRestoreError
from subagent_cli.dispatch.tool import ToolResult, dispatch_subagent

__all__ = [
    "DispatchSubagent",
    "DispatchSubagentError",
    "DispatchSubagentResult",
    "EventBus",
    "Session",
    "SessionClosed",
    "Snapshot",
    "SnapshotError",
    "SnapshotRestoreError",
    "SubagentMode",
    "SubagentRunner",
    "SubagentToolsSection",
    "Tool",
    "ToolInvoked",
    "ToolResult",
    "ToolValidationError",
    "dispatch_subagent",
]

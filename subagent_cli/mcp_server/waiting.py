"""Waiting for agents, and ending them."""

from collections.abc import Sequence
from functools import partial

from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.run import Run
from subagent_cli.mcp_server import texts
from subagent_cli.mcp_server.tool import (
    ENDS,
    LOOKS,
    TABLES,
    TEXT,
    TEXTS,
    Call,
    Said,
    Tool,
    count,
    flag,
    gives,
    length,
    text,
)
from subagent_cli.mcp_server.tool import texts as list_of
from subagent_cli.services import cancellation, waiting

# Some clients give a call a minute.
_PATIENCE_MS = 50_000


def wait_agents(call: Call) -> Said:
    """Wait until agents have ended, one of them asks, or the time is up; `woke` says which: done, question or timeout.
    Waits for 50 seconds unless told otherwise; call it again with the cursor that it gave, so that a question that you
    know does not wake it. Nothing is cancelled by waiting. A worker that names nobody waits for all that it started."""
    names = _names(call)
    if not names and not call.context.caller.token:
        raise InvalidInput("no run is named", code="no_run", hint="give agent_ids or group_id")
    woke = waiting.for_runs(
        call.context,
        names,
        count=call.get("count"),
        timeout=call.length("timeout", _PATIENCE_MS),
        questions_too=call.get("questions", True),
        after=call.get("cursor"),
        seen=partial(_seen, call),
        stop=call.stopped.is_set,
    )
    now = call.context.clock.now()
    lines = [f"woke: {woke['woke']}", *map(texts.ended, woke["runs"])]
    lines += [texts.question(item, item["run_id"], item["message_id"], now) for item in woke["questions"]]
    if woke["woke"] != "done":
        lines.append(f"Wait on with cursor {woke['cursor']}.")
    return Said(woke, "\n".join(lines))


def cancel_agents(call: Call) -> Said:
    """End runs, with all that they started, and return when their processes are gone. What has an outcome keeps it."""
    grace = call.length("grace")
    done = cancellation.cancel(
        call.context, _names(call), everything=call.get("all", False), reason=call.get("reason"), grace=grace
    )
    lines = [f"{run_id} cancelled" for run_id in done["cancelled"]]
    lines += [f"{run_id} had already ended" for run_id in done["ended"]]
    lines += [f"still there: {name}" for name in done["notStopped"]]
    return Said(done, "\n".join(lines) or "no run to cancel", failed=bool(done["notStopped"]))


def _names(call: Call) -> list[str]:
    group = call.get("group_id")
    return [*call.get("agent_ids", ()), *([group] if group is not None else [])]


def _seen(call: Call, runs: Sequence[Run]) -> None:
    asking = sum(len(run.pending) for run in runs)
    call.note = f"{sum(run.over for run in runs)} of {len(runs)} have ended"
    call.note += f", {asking} questions wait" if asking else ""


_WHO = {"agent_ids": list_of("Runs, by id or name."), "group_id": text("All runs of a group.")}
_ALSO = {"runIds": "agent_ids", "ids": "agent_ids"}

TOOLS = (
    Tool(
        "wait_agents",
        wait_agents,
        LOOKS,
        {
            **_WHO,
            "count": count("Until so many of them have ended (default: all)."),
            "timeout": length("For so long at most (default: 50)."),
            "questions": flag("Whether to return when one of them asks (default: true)."),
            "cursor": text("As an earlier wait gave it: questions known then do not wake this one."),
        },
        gives(woke=TEXT, cursor=TEXT, pending=TEXTS, runs=TABLES, sub_agent_results=TABLES, questions=TABLES),
        also={**_ALSO, "after": "cursor"},
        patient=True,
    ),
    Tool(
        "cancel_agents",
        cancel_agents,
        ENDS,
        {
            **_WHO,
            "all": flag("Every run that has not ended; a worker's: those that it started."),
            "reason": text("Why; it becomes the error of the run."),
            "grace": length("What processes get to end by themselves (default: 5; 0 for none)."),
        },
        gives(cancelled=TEXTS, ended=TEXTS, notStopped=TEXTS),
        also=_ALSO,
        patient=True,
    ),
)

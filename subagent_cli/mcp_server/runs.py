"""Looking at a run, reading its log, reporting on it. Each has two names: that of the TypeScript server, and a shorter
one."""

from subagent_cli.core.errors import RunNotFound
from subagent_cli.core.transition import REPORTS
from subagent_cli.mcp_server import texts
from subagent_cli.mcp_server.tool import (
    LOOKS,
    OWN_RUN,
    SETTLES,
    TABLES,
    TEXT,
    Call,
    Said,
    Tool,
    count,
    flag,
    gives,
    one_of,
    text,
)
from subagent_cli.services import logs, runs

_LINES = 1000


def check_status(call: Call) -> Said:
    """Show how a run stands: its status, its questions and answers, what came of it. A reply that is shown here for the
    first time counts as delivered, unless peek is true or another run's worker looks."""
    try:
        found = runs.status(call.context, call.get("runId"), peek=call.get("peek", False))
    except RunNotFound as error:
        found = runs.not_found(call.context, error)
    return Said(found, texts.status(found, call.context.clock.now()))


def get_logs(call: Call) -> Said:
    """Print the last lines of the log of a run."""
    try:
        found = logs.tail(call.context, call.get("runId"), call.get("lines", _LINES))
    except RunNotFound as error:
        return Said({"runId": error.run_id, "lines": []}, f"No logs found for run ID: {error.run_id}")
    return Said({"runId": call.get("runId"), "lines": found}, "\n".join(map(_line, found)))


def update_status(call: Call) -> Said:
    """Report where a run stands. success, completed and error end it for good."""
    try:
        document = runs.update(call.context, call.get("runId"), call.get("status"), call.get("summary"))
    except RunNotFound as error:
        missing = runs.not_found(call.context, error)
        return Said(missing, f"Status: not_found\n{missing['message']}: {missing['runId']}")
    said = f"Status: {document['status']}"
    if document["summary"] is not None:
        said += f"\nSummary: {texts.indented(document['summary'])}"
    return Said(document, said)


def _line(line: dict[str, str | None]) -> str:
    """A line of a log as it stands there."""
    if line["timestamp"] is None:
        return line["text"] or ""
    stream = f"[{line['stream']}] " if line["stream"] in ("stdout", "stderr") else ""
    return f"[{line['timestamp']}] {stream}{line['text']}"


_ALSO = {"run_id": "runId"}
_STATUS = gives(status=TEXT)

TOOLS = tuple(
    tool._replace(name=name)
    for names, tool in (
        (
            ("check_subagent_status", "check_status"),
            Tool(
                "",
                check_status,
                SETTLES,
                {"runId": OWN_RUN, "peek": flag("Only look: replies stay unread.")},
                _STATUS,
                also=_ALSO,
            ),
        ),
        (
            ("get_subagent_logs", "get_logs"),
            Tool(
                "",
                get_logs,
                LOOKS,
                {"runId": OWN_RUN, "lines": count(f"So many lines at most (default: {_LINES}).")},
                gives(lines=TABLES),
                also=_ALSO,
            ),
        ),
        (
            ("update_subagent_status", "update_status"),
            Tool(
                "",
                update_status,
                SETTLES,
                {
                    "runId": OWN_RUN,
                    "status": one_of(REPORTS, "Where it stands."),
                    "summary": text("What came of it, or how far it is."),
                },
                _STATUS,
                needs=("status",),
                also=_ALSO,
            ),
        ),
    )
    for name in names
)

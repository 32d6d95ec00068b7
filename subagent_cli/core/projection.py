"""The picture of a run that others read: its `.meta.json`, with no key or word that the server would refuse."""

from typing import Any

from subagent_cli.core.document import Document
from subagent_cli.core.question import message
from subagent_cli.core.run import Run


def project(run: Run, messages: Any = None) -> Document:
    """The document, its keys in the order in which the server makes a new one. `messages` is what stands there for the
    questions, where the caller has that already."""
    document: Document = {"runId": run.shown_id or run.id}
    for key, value in (("agentName", run.agent), ("command", run.command), ("startTime", run.started_at)):
        if value is not None:
            document[key] = value
    document["status"] = run.status
    document["exitCode"] = run.exit_code
    document["endTime"] = run.ended_at
    document["summary"] = run.summary
    if run.questions:
        document["messages"] = messages or [message(question) for question in run.questions.values()]
    if run.updated_at is not None:
        document["lastUpdated"] = run.updated_at
    document.update(run.extras)
    return document

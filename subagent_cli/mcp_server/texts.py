"""How runs and questions read. The lines are those of the command line; what there is to do next is said in tools."""

from collections.abc import Mapping
from typing import Any

from subagent_cli.core.moment import Moment, ago, milliseconds
from subagent_cli.services.context import Payload

_LINES = (
    ("Run ID", "runId"),
    ("Agent Name", "agentName"),
    ("Status", "status"),
    ("Exit Code", "exitCode"),
    ("Start Time", "startTime"),
    ("End Time", "endTime"),
    ("Summary", "summary"),
)


def indented(text: object, margin: str = "  ") -> str:
    """Later lines moved in, so that a text of several lines cannot pose as lines of ours."""
    return f"\n{margin}".join(str(text).replace("\r\n", "\n").split("\n"))


def age(stamp: str | None, now: Moment) -> str:
    ms = milliseconds(stamp)
    return ago(max(0, now.ms - ms)) if ms is not None else "?"


def status(found: Payload, now: Moment) -> str:
    """A run as it stands, or that there is none."""
    lines = [f"{label}: {_value(found.get(key))}" for label, key in _LINES]
    if found["status"] == "not_found":
        return "\n".join([*lines, f"{found['message']} in {found['logDirectory']}"])
    if found.get("kind"):
        lines.append(f"Kind: {found['kind']}")
    for note in found.get("notes", ())[-1:]:
        lines.append(f"Note ({age(note['at'], now)} ago): {indented(note['text'])}")
    messages = found.get("messages", ())
    if found["status"] in ("running", "parent_replied"):
        lines += _interactions([message for message in messages if message["state"] in ("ANSWERED", "RETRIEVED")])
    pending = [message for message in messages if message["state"] == "PENDING"]
    for message in pending:
        asked = {"question": message["questionContent"], "timestamp": message["questionTimestamp"], **message}
        lines.append(question(asked, found["runId"], message["messageId"], now))
    if not pending and found.get("instructions"):
        under_way = found["alive"] and found["status"] == "running"
        lines.append(
            "Under way; wait_agents returns when it has ended or asks." if under_way else found["instructions"]
        )
    return "\n".join(lines)


def question(asked: Mapping[str, Any], run_id: str, message_id: str, now: Moment) -> str:
    """A question that waits, and how it is answered."""
    lines = [f"Question ({age(asked['timestamp'], now)} ago): {indented(asked['question'])}"]
    lines += [f"  {number}. {indented(text)}" for number, text in enumerate(asked.get("options", ()), 1)]
    lines.append(f"  Answer it with reply_subagent, runId {run_id}, messageId {message_id}.")
    return "\n".join(lines)


def message(found: Payload) -> str:
    """A question and what has become of it."""
    lines = [
        f"Message ID: {found['messageId']}",
        f"Message Status: {found['messageStatus']}",
        f"Question: {indented(found['questionContent'])}",
        f"Asked At: {_value(found['questionTimestamp'])}",
    ]
    if found["state"] == "PENDING":
        return "\n".join([*lines, "Answer: Not yet answered", "Answered At: N/A"])
    answer = indented(found["answerContent"] or "(empty)")
    return "\n".join([*lines, f"Answer: {answer}", f"Answered At: {_value(found['answerTimestamp'])}"])


def ended(run: Payload) -> str:
    """A run and what came of it so far, whole."""
    text = run.get("error") or run.get("result") or ""
    return f"{run['runId']}  {run['state']}  {indented(text)}".rstrip()


def _value(value: object) -> str:
    return "N/A" if value is None or value == "" else indented(value)


def _interactions(answered: list[Payload]) -> list[str]:
    """Every reply that is delivered now; when none is, the last one that was."""
    unread = [message for message in answered if message["state"] == "ANSWERED"]
    answered = sorted(answered, key=lambda message: milliseconds(message["answerTimestamp"]) or 0)
    lines: list[str] = ["Last Interaction:"] if answered else []
    for message in unread or answered[-1:]:
        lines += [
            f"  Question: {indented(message['questionContent'], '    ')}",
            f"  Asked At: {_value(message['questionTimestamp'])}",
            f"  Answer: {indented(message['answerContent'] or '(empty)', '    ')}",
            f"  Answered At: {_value(message['answerTimestamp'])}",
        ]
    return lines

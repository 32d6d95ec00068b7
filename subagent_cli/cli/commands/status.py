"""`subagent status`."""

from typing import Any

import click

from subagent_cli.cli.output import age, did_you_mean, indented, one_line
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.errors import InvalidInput, RunNotFound
from subagent_cli.core.ids import short
from subagent_cli.core.moment import Moment, milliseconds
from subagent_cli.services import runs

_LINES = (
    ("Run ID", "runId"),
    ("Agent Name", "agentName"),
    ("Status", "status"),
    ("Exit Code", "exitCode"),
    ("Start Time", "startTime"),
    ("End Time", "endTime"),
    ("Summary", "summary"),
)


@verb("status", example="subagent status @last\nsubagent status            # all active runs")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--peek", is_flag=True, help="Only look: replies stay unread.")
def command(context: Context, run: str | None, peek: bool) -> Answer:
    """Show a run, or all active runs; picks up replies.

    A reply that is shown here for the first time counts as delivered: the run goes from parent_replied to running.
    It does not with --peek, nor when another run's worker looks. Without RUN it is the worker's own run
    (SUBAGENT_RUN_ID), else the list of all active runs. RUN may be a group: who is still at it, and what the others
    came to.
    """
    if run is None and context.caller.run_id is None:
        from subagent_cli.cli.commands.list import listed
        from subagent_cli.services import listing

        return listed(*listing.find(context, active=True), context, "no active runs")
    try:
        found = runs.status(context, run, peek=peek)
    except InvalidInput as error:
        if error.code != "is_a_group" or run is None:
            raise
        return _group(context, run)
    except RunNotFound as error:
        missing = runs.not_found(context, error)
        return Answer(missing, _text(missing, context.clock.now()), talk=did_you_mean(error), code=3)
    return Answer(found, _text(found, context.clock.now()))


def _group(context: Context, name: str) -> Answer:
    """How a group stands: who is still at it, and what the others came to."""
    from subagent_cli.services import groups

    found = groups.status(context, name)
    ended = {item["agent_id"]: item["outcome"] for item in found["sub_agent_results"]}
    lines = [f"Group ID: {found['group_id']}", f"State: {found['state']}"]
    lines += [f"Pending: {', '.join(map(short, found['pending'])) or 'none'}"]
    for run_id, outcome in ended.items():
        [(word, came)] = outcome.items()
        lines.append(f"{short(run_id)}  {word}  {one_line(came.get('result') or came.get('error'), 100)}".rstrip())
    if found["pending"]:
        lines.append(f"  {context.spelled('wait', short(found['group_id']))}")
    return Answer(found, "\n".join(lines))


def _text(found: dict[str, Any], now: Moment) -> str:
    lines = [f"{label}: {_value(found.get(key))}" for label, key in _LINES]
    if found["status"] == "not_found":
        lines.append(f"{found['message']} in {found['logDirectory']}")
    if found.get("kind"):
        lines.append(f"Kind: {found['kind']}")
    if found.get("attempts"):
        lines.append(f"Attempt: {found['attempt']}")
    for note in found.get("notes", ())[-1:]:
        lines.append(f"Note ({age(note['at'], now)} ago): {indented(note['text'])}")
    messages = found.get("messages", ())
    answered = [message for message in messages if message["state"] in ("ANSWERED", "RETRIEVED")]
    if answered and found["status"] in ("running", "parent_replied"):
        lines += _interactions(answered)
    pending = [message for message in messages if message["state"] == "PENDING"]
    for message, reply in zip(pending, found.get("next", ()), strict=False):
        lines += _question(message, reply, now)
    others = found.get("next", ())[len(pending) :]
    if found.get("instructions") and (others or not pending):
        lines += [found["instructions"], *(f"  {command}" for command in others)]
    return "\n".join(lines)


def _value(value: object) -> str:
    return "N/A" if value is None or value == "" else indented(str(value))


def _interactions(answered: list[dict[str, Any]]) -> list[str]:
    """Every reply that is delivered now; when none is, the last one that was."""
    unread = [message for message in answered if message["state"] == "ANSWERED"]
    answered = sorted(answered, key=lambda message: milliseconds(message["answerTimestamp"]) or 0)
    lines: list[str] = []
    for message in unread or answered[-1:]:
        lines += [
            "Last Interaction:" if not lines else "",
            f"  Question: {indented(message['questionContent'], '    ')}",
            f"  Asked At: {one_line(message['questionTimestamp'])}",
            f"  Answer: {indented(message['answerContent'] or '(empty)', '    ')}",
            f"  Answered At: {one_line(message['answerTimestamp'])}",
        ]
    return [line for line in lines if line]


def _question(message: dict[str, Any], reply: str, now: Moment) -> list[str]:
    lines = [f"Question ({age(message['questionTimestamp'], now)} ago): {indented(message['questionContent'])}"]
    lines += [f"  {number}. {indented(text)}" for number, text in enumerate(message.get("options", ()), 1)]
    lines.append(f"  {reply}")
    return lines

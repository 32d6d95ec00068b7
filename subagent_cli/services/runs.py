"""Runs: making one whose process somebody else starts, looking at it, reporting on it."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import RunNotFound, SubagentError
from subagent_cli.core.event import Reported
from subagent_cli.core.grant import KNOW, READ, REPORT
from subagent_cli.core.ids import short
from subagent_cli.core.projection import project
from subagent_cli.core.run import CREATED, RUNNING, WAITING, Run
from subagent_cli.services import access, addresses, outcomes, questions, specs
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.leftovers import orphans_of
from subagent_cli.services.roles import PLAIN, Role

POLL_NOTE = "Still running: wait 30 seconds before looking again."


def create(
    context: Context,
    agent: str,
    task: str,
    *,
    cwd: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] = specs.NO_LABELS,
    role: Role = PLAIN,
    key: str | None = None,
    link: bool = False,
) -> Payload:
    """A run whose process somebody else starts; `pending` until its first ask, note or report."""
    context.must_be_a_folder()
    token = context.clock.new_token()
    spec = specs.new_spec(context, agent, task, token, cwd=cwd, name=name, labels=labels, role=role, key=key)

    def make() -> Run:
        return context.runs.create(spec, spec["task"], CREATED, context.clock.now(), digest)

    digest = specs.key_digest("create", key, access.agent(context)) if key else None
    run = context.runs.keyed(digest, make, spec["parentId"]) if digest else make()
    made: Payload = {"runId": run.id, "runDirectory": context.runs.layout.run(run.id)}
    known = run.id != spec["runId"]
    if known:
        specs.same_request(context, run.id, spec)
    if link:
        context.runs.link(run.id)
    if known:
        return made
    root = os.path.abspath(context.runs.layout.root)
    return {**made, "env": {"SUBAGENT_RUN_ID": run.id, "SUBAGENT_RUNS_DIR": root, "SUBAGENT_TOKEN": token}}


def status(context: Context, run: str | None, *, peek: bool = False) -> Payload:
    """The run as it stands. Replies that are shown here for the first time count as delivered, unless `peek`."""
    run_id = addresses.run(context, run)
    found = context.runs.read(run_id, context.clock.now())
    warnings: Sequence[str] = ()
    if found.unread and not peek and _may_pick_up(context, run_id):
        try:
            change = context.runs.change(run_id, wanted.Acknowledge(), context.clock.now)
            found, warnings = change.before, change.warnings
        except SubagentError as error:
            warnings = (f"the reply stays unread: {error.message}",)
    return {**_shown(context, found), "warnings": list(warnings)}


def update(context: Context, run: str | None, status: str, summary: str | None = None) -> Payload:
    """A self-report: the worker says where its run stands. Returns the document."""
    run_id = addresses.run(context, run, REPORT)
    summary = context.text(summary, "summary") if summary is not None else None
    change = context.runs.change(run_id, wanted.Report(status.lower(), summary), context.clock.now)
    warnings = list(change.warnings)
    if any(isinstance(event, Reported) for event in change.events):
        lines = [f"Status updated to: {status.lower()}"]
        if summary is not None:
            lines.append(f"Summary: {summary}")
        warnings += context.runs.log(run_id, *lines, now=context.clock.now())
    shown = project(change.after) if access.may(context, READ, run_id) else {"runId": run_id, "status": status.lower()}
    return {**shown, "warnings": warnings}


def not_found(context: Context, error: RunNotFound) -> Payload:
    """What status and update say of a run that is not there."""
    missing: Payload = {
        "runId": error.run_id,
        "status": "not_found",
        "message": "Run ID not found",
        "logDirectory": context.runs.layout.root,
    }
    return {**missing, "candidates": list(error.candidates)} if error.candidates else missing


def _may_pick_up(context: Context, run_id: str) -> bool:
    """The operator and the run's own worker pick replies up; another run's worker only looks."""
    if context.caller.run_id is None:
        return True
    try:
        return addresses.run(context, None) == run_id
    except SubagentError:
        return False


def _shown(context: Context, run: Run) -> Payload:
    shown: Payload = project(run)
    if run.questions or run.claim:
        shown["messages"] = [questions.view(question) for question in run.questions.values()]
    spec, log_file = context.runs.spec(run.id), context.runs.log_file(run.id)
    left = [pid for pid, _ in orphans_of(context, run.id)] if run.gone else []
    return {
        **shown,
        "name": spec.get("name"),
        "type": spec.get("type"),
        "model": spec.get("model"),
        "inputSchema": spec.get("inputSchema"),
        "outputSchema": spec.get("outputSchema"),
        "labels": specs.labels_of(spec),
        "parentId": spec.get("parentId"),
        "groupId": spec.get("groupId"),
        "userInitiated": not (spec.get("parentId") or spec.get("groupId")),
        "subAgents": _children(context, run.id),
        "logFile": log_file,
        "logDirectory": os.path.dirname(log_file),
        "state": run.state,
        "kind": run.kind,
        "alive": run.alive,
        "orphans": left,
        "attempt": run.attempt,
        "attempts": list(map(outcomes.earlier, run.attempts)),
        "createdAt": spec.get("createdAt"),
        "lastActiveAt": run.active_at,
        "notes": [note._asdict() for note in run.notes],
        "instructions": _instructions(run, left),
        "next": _next(context, run, left),
    }


def _children(context: Context, run_id: str) -> Payload:
    """The runs that this one has started: those that are still at it, and those that have ended."""
    now, found = context.clock.now(), dict[str, bool]()
    for child in access.among(context, addresses.children(context, run_id), KNOW):
        with suppress(SubagentError):
            found[child] = context.runs.read(child, now).over
    return {
        "pending": [child for child, over in found.items() if not over],
        "completed": [child for child, over in found.items() if over],
    }


def _next(context: Context, run: Run, left: Sequence[int]) -> list[str]:
    """The commands that answer its questions, in their order, and what else there is to do."""
    replies = [questions.reply_command(context, run, question) for question in run.pending]
    verb = "cancel" if left else "retry" if run.state == "lost" else "wait" if run.alive and not replies else None
    return [*replies, context.spelled(verb, short(run.id))] if verb else replies


def _instructions(run: Run, left: Sequence[int]) -> str | None:
    if left:
        return f"Its keeper is gone, but {len(left)} of its processes are not: cancel stops them."
    if run.pending:
        return "A question waits for an answer: reply with the command under next."
    if run.status == WAITING:
        return "The run waits for an answer from its parent."
    if run.finished and run.alive:
        return "The outcome is decided; its process has not ended yet."
    if run.state == "lost":
        return "Nobody saw how it ended; its work may be half done."
    if run.alive:
        return "Under way. This waits for its end or its next question:"
    return POLL_NOTE if run.status == RUNNING else None

"""Runs: making one, looking at it, reporting on it, taking its outcome."""

import os
from collections.abc import Mapping, Sequence

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import InvalidInput, Refused, RunNotFound, SubagentError
from subagent_cli.core.event import Reported
from subagent_cli.core.ids import is_label, is_uuid, short
from subagent_cli.core.projection import project
from subagent_cli.core.run import CREATED, ERROR, RUNNING, WAITING, Run
from subagent_cli.services import addresses, questions
from subagent_cli.services.context import Context, Payload, token_hash
from subagent_cli.store.reader import Spec

POLL_NOTE = "Still running: wait 30 seconds before looking again."
LONGEST_LABEL = 256
NO_LABELS: Mapping[str, str] = {}


def create(
    context: Context,
    agent: str,
    task: str,
    *,
    cwd: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] = NO_LABELS,
    key: str | None = None,
    link: bool = False,
) -> Payload:
    """A run whose process somebody else starts; `pending` until its first ask, note or report."""
    context.must_be_a_folder()
    token = context.clock.new_token()
    spec = _spec(context, agent, task, cwd, name, labels, key, token)

    def make() -> Run:
        return context.runs.create(spec, spec["task"], CREATED, context.clock.now(), digest)

    digest = _key_digest(key) if key else None
    run = context.runs.keyed(digest, make) if digest else make()
    if link:
        context.runs.link(run.id)
    made: Payload = {"runId": run.id, "runDirectory": context.runs.layout.run(run.id)}
    if run.id != spec["runId"]:
        _same_request(context, run.id, spec)
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
    run_id = addresses.run(context, run)
    if summary is not None:
        context.text(summary, "summary")
    change = context.runs.change(run_id, wanted.Report(status.lower(), summary), context.clock.now)
    warnings = list(change.warnings)
    if any(isinstance(event, Reported) for event in change.events):
        lines = [f"Status updated to: {status.lower()}"]
        if summary is not None:
            lines.append(f"Summary: {summary}")
        warnings += context.runs.log(run_id, *lines, now=context.clock.now())
    return {**project(change.after), "warnings": warnings}


def result(context: Context, run: str | None) -> Payload:
    """The outcome of a finished run."""
    run_id = addresses.run(context, run)
    found = context.runs.read(run_id, context.clock.now())
    if not found.finished:
        raise Refused(
            f"run {short(run_id)} has not ended: {found.status}",
            code="not_finished",
            next=context.spelled("status", short(run_id)),
        )
    text = "error" if found.phase == ERROR else "result"
    return {
        "runId": run_id,
        "status": found.status,
        "state": found.state,
        "kind": found.kind,
        text: found.summary,
        "summary": found.summary,
        "artifacts": [],
        "exitCode": found.exit_code,
        "endTime": found.ended_at,
    }


def not_found(context: Context, error: RunNotFound) -> Payload:
    """What status and update say of a run that is not there."""
    missing: Payload = {
        "runId": error.run_id,
        "status": "not_found",
        "message": "Run ID not found",
        "logDirectory": context.runs.layout.root,
    }
    return {**missing, "candidates": list(error.candidates)} if error.candidates else missing


def labels_of(spec: Spec) -> dict[str, str]:
    labels = spec.get("labels")
    items = labels.items() if isinstance(labels, dict) else ()
    return {key: value for key, value in items if isinstance(value, str)}


def bad_name(name: str) -> InvalidInput:
    return InvalidInput(
        f"not a name for a run: {name[:40]!r}", code="invalid_name", hint="letters, digits, dot, dash, underscore"
    )


def _may_pick_up(context: Context, run_id: str) -> bool:
    """The operator and the run's own worker pick replies up; another run's worker only looks."""
    if context.caller.run_id is None:
        return True
    try:
        return addresses.run(context, None) == run_id
    except SubagentError:
        return False


def _spec(
    context: Context,
    agent: str,
    task: str,
    cwd: str | None,
    name: str | None,
    labels: Mapping[str, str],
    key: str | None,
    token: str,
) -> Spec:
    if not agent or not agent.isprintable():
        raise InvalidInput("the agent needs a name", code="invalid_agent")
    if not task:
        raise InvalidInput("the task is empty", code="empty_text")
    if name is not None and (not is_label(name) or is_uuid(name)):
        raise bad_name(name)
    _check_labels(context, labels)
    folder = os.path.abspath(cwd) if cwd is not None else os.getcwd()
    if cwd == "" or not os.path.isdir(folder):
        raise InvalidInput(f"the working folder is not there: {cwd!r}", code="bad_cwd")
    parent = context.caller.run_id if context.caller.token else None
    return {
        "version": 1,
        "runId": context.clock.new_id(),
        "agentName": context.text(agent, "agent"),
        "task": context.text(task, "task"),
        "argv": None,
        "cwd": folder,
        "name": name,
        "parentId": parent,
        "groupId": None,
        "depth": context.runs.spec(parent).get("depth", 0) + 1 if parent else 0,
        "timeoutSeconds": None,
        "tokenHash": token_hash(token),
        "labels": dict(labels),
        "key": key,
        "createdAt": context.clock.now().iso,
    }


def _check_labels(context: Context, labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not is_label(key):
            raise InvalidInput(
                f"not a key for a label: {key[:40]!r}",
                code="invalid_label",
                hint="letters, digits, dot, dash, underscore",
            )
        size = len(context.text(value, "label").encode())
        if size > LONGEST_LABEL or "".join(value.splitlines()) != value:
            raise InvalidInput(
                f"the label {key} is too long or has several lines",
                code="invalid_label",
                hint=f"one line of at most {LONGEST_LABEL} bytes; what is longer belongs into the task",
            )


def _key_digest(key: str) -> str:
    return token_hash(f"create {key}")[:32]


def _same_request(context: Context, run_id: str, spec: Spec) -> None:
    earlier = context.runs.spec(run_id)
    if any(earlier.get(field) != spec[field] for field in ("agentName", "task", "name", "labels")):
        raise Refused(
            f"the key was used for another run: {short(run_id)}",
            code="key_reused",
            hint="a key belongs to one request: repeat that request exactly, or take another key",
        )


def _shown(context: Context, run: Run) -> Payload:
    shown: Payload = project(run)
    if run.questions or run.claim:
        shown["messages"] = [questions.view(question) for question in run.questions.values()]
    commands = [questions.reply_command(context, run, question) for question in run.pending]
    spec, log_file = context.runs.spec(run.id), context.runs.log_file(run.id)
    return {
        **shown,
        "name": spec.get("name"),
        "labels": labels_of(spec),
        "logFile": log_file,
        "logDirectory": os.path.dirname(log_file),
        "state": run.state,
        "kind": run.kind,
        "alive": None,
        "notes": [note._asdict() for note in run.notes],
        "instructions": _instructions(run),
        "next": commands,
    }


def _instructions(run: Run) -> str | None:
    if run.pending:
        return "A question waits for an answer: reply with the command under next."
    if run.status == WAITING:
        return "The run waits for an answer from its parent."
    return POLL_NOTE if run.status == RUNNING else None

"""Outcomes: what came of a run, and the worker's own word on it."""

from collections.abc import Sequence

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import Denied, InvalidInput, NotFound, Refused
from subagent_cli.core.event import Submitted
from subagent_cli.core.ids import short
from subagent_cli.core.run import ERROR, Attempt, Run
from subagent_cli.core.transition import FAILURE, LOST, RESULT, RETRYABLE, TIMED_OUT, TIMED_OUT_TEXT
from subagent_cli.services import addresses
from subagent_cli.services.context import Context, Payload
from subagent_cli.store import alive, codec

_NO_WORD = "It ended without a word"
_FORMS = """{"success": {"result": "…"}} or {"failure": {"error": "…", "error_kind": "…"}}, or with a "type" as a tag"""


def submit(
    context: Context,
    word: str,
    text: str,
    *,
    kind: str | None = None,
    artifacts: Sequence[str] = (),
    tools: Sequence[str] = (),
) -> Payload:
    """The worker decides the outcome of its own run: `word` is result or error. Once; the same again is no harm."""
    if context.caller.token is None:
        raise Denied(
            "submitting is for the worker of a run, which proves itself with SUBAGENT_RUN_ID and SUBAGENT_TOKEN",
            code="no_identity",
            hint="whoever looks after a run reports on it with subagent update",
        )
    run_id = addresses.run(context, None)
    text = context.text(text, word)
    command = wanted.Submit(
        word,
        text,
        kind,
        tuple(context.text(artifact, "artifact") for artifact in artifacts),
        tuple(context.text(tool, "tool") for tool in tools),
    )
    change = context.runs.change(run_id, command, context.clock.now)
    warnings = list(change.warnings)
    if any(isinstance(event, Submitted) for event in change.events):
        warnings += context.runs.log(run_id, f"Submitted {word}: {text}", now=context.clock.now())
    alive.nudge(context.runs.layout, run_id)
    return {**view(change.after), "warnings": warnings}


def hand_on(context: Context, outcome: str, *, artifacts: Sequence[str] = (), tools: Sequence[str] = ()) -> Payload:
    """The worker hands in an outcome that some program wrote as JSON: that of a run of its own, say."""
    word, text, kind = _said(outcome)
    return submit(context, word, text, kind=kind, artifacts=artifacts, tools=tools)


def _said(outcome: str) -> tuple[str, str, str | None]:
    """The outcome's word, text and kind, in whichever of its two forms it is written."""
    from pydantic import ValidationError

    from subagent_cli.contracts.base import fault
    from subagent_cli.contracts.outcome import Success, TimedOut
    from subagent_cli.contracts.outcome import outcome as read

    try:
        found = read(codec.load(codec.encoded(outcome)))
    except ValidationError as error:
        raise InvalidInput(fault(error, "outcome"), code="invalid_outcome", hint=_FORMS) from error
    except ValueError as error:
        raise InvalidInput(f"the outcome is not valid JSON: {error}", code="invalid_outcome", hint=_FORMS) from error
    if isinstance(found, Success):
        return RESULT, found.result or _NO_WORD, None
    if isinstance(found, TimedOut):
        return FAILURE, TIMED_OUT_TEXT, TIMED_OUT
    # That a run was lost is for us to find, and of no meaning to whoever started the one that hands it on.
    return FAILURE, found.error or _NO_WORD, None if found.error_kind == LOST else found.error_kind


def result(context: Context, run: str | None, attempt: int | None = None) -> Payload:
    """The outcome of a finished run, or of an earlier attempt at it."""
    run_id = addresses.run(context, run)
    found = context.runs.read(run_id, context.clock.now())
    if attempt is not None and attempt != found.attempt:
        if 0 < attempt <= len(found.attempts):
            return {"runId": run_id, **earlier(found.attempts[attempt - 1])}
        raise NotFound(f"run {short(run_id)} has no attempt {attempt}", code="no_such_attempt")
    if not found.finished:
        raise Refused(
            f"run {short(run_id)} has not ended: {found.status}",
            code="not_finished",
            next=context.spelled("wait", short(run_id)),
        )
    return view(found)


def view(run: Run) -> Payload:
    """How a run stands, and what came of it."""
    shown: Payload = {"runId": run.id, "status": run.status, "state": run.state, "kind": run.kind}
    if run.finished:
        shown["error" if run.phase == ERROR else "result"] = run.text
        shown["retryable"] = run.kind in RETRYABLE
    return {
        **shown,
        "summary": run.summary,
        "artifacts": list(run.artifacts),
        "tools": list(run.tools),
        "exitCode": run.exit_code,
        "endTime": run.ended_at,
        "alive": run.alive,
        "attempt": run.attempt,
    }


def earlier(attempt: Attempt) -> Payload:
    """What came of an attempt that others have followed."""
    return {
        "attempt": attempt.number,
        "state": attempt.state,
        "kind": attempt.kind,
        "error" if attempt.kind else "result": attempt.outcome,
        "artifacts": list(attempt.artifacts),
        "tools": list(attempt.tools),
        "exitCode": attempt.exit_code,
        "startTime": attempt.started_at,
        "endTime": attempt.ended_at,
    }


def aggregate(context: Context, runs: Sequence[Run]) -> list[Payload]:
    """What came of each of these runs, in the form that the parent of a fan-out reads."""
    return [
        {"agent_id": run.id, "task": context.runs.spec(run.id).get("task"), "outcome": outcome(run)} for run in runs
    ]


def outcome(run: Run) -> Payload:
    if run.phase == ERROR:
        return {"failure": {"error": run.text, "error_kind": run.kind or "sub_agent_error"}}
    return {"success": {"result": run.text}}

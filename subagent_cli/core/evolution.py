"""What follows from an event: the run after it.

Whatever the transition table forbids is left alone, so that events which arrive late at a finished run or at a closed
question are absorbed without a trace in the state.
"""

from collections.abc import Iterable
from typing import Any

from subagent_cli.core import event as happened
from subagent_cli.core.delivery import Delivery
from subagent_cli.core.event import Event
from subagent_cli.core.grant import Grant
from subagent_cli.core.moment import earlier
from subagent_cli.core.question import Question
from subagent_cli.core.run import ERROR, FINISHED, Attempt, Note, Run
from subagent_cli.core.transition import LIFE, QUESTION

NOTES_KEPT = 10

# What belongs to one attempt, as it is when the next one begins.
_FRESH: dict[str, Any] = {
    "exit_code": None,
    "ended_at": None,
    "summary": None,
    "kind": None,
    "outcome": None,
    "artifacts": (),
    "tools": (),
    "gone": False,
    "stop": None,
    "submitted": False,
}


def evolve(run: Run, event: Event) -> Run:
    """The run after one event."""
    return fold(run, (event,))


def fold(run: Run, events: Iterable[Event]) -> Run:
    """The run after all of these events, in one pass whatever their number."""
    events = tuple(events)
    if not events:
        return run
    # The copies belong to this call alone until it returns, so the steps may write into them.
    questions, keys, extras = dict(run.questions), dict(run.keys), dict(run.extras)
    grants, inbox = dict(run.grants), dict(run.inbox)
    run = run._replace(questions=questions, keys=keys, extras=extras, grants=grants, inbox=inbox, changed=events[-1].at)
    for event in events:
        match event:
            case happened.Asked():
                run = _live(run, "asked")
                questions.setdefault(
                    event.message_id,
                    Question(
                        event.message_id,
                        event.question,
                        event.timestamp,
                        event.at if event.timestamp == event.at.iso else earlier(event.timestamp, event.at),
                        options=event.options,
                        default=event.default,
                        deadline=event.deadline,
                        extras=event.extras,
                    ),
                )
                if event.key:
                    keys[f"ask {event.key}"] = (event.message_id,)
            case happened.Replied():
                _close(questions, "replied", event.message_id, event.answer, event.timestamp)
                if event.key:
                    keys[f"reply {event.key}"] = (*keys.get(f"reply {event.key}", ()), event.message_id)
            case happened.Acknowledged():
                for message_id in event.message_ids:
                    _close(questions, "acknowledged", message_id)
            case happened.Expired():
                _close(questions, "expired", event.message_id, event.text, event.timestamp)
            case happened.Told():
                run = _live(run, "told")
                run = run._replace(notes=(*run.notes, Note(event.at.iso, event.text))[-NOTES_KEPT:])
            case happened.Reported():
                run = _reported(run, event)
            case happened.Submitted():
                run = _submitted(run, event)
            case happened.Stopped():
                run = _stopped(run, event)
            case happened.Exited():
                run = _exited(run, event)
            case happened.Resumed():
                run = _resumed(run, event)
                if event.key:
                    keys[f"resume {event.key}"] = (str(event.attempt), event.text)
                for message_id in event.told:
                    if message_id in inbox:
                        inbox[message_id] = inbox[message_id]._replace(told=inbox[message_id].told + 1)
            case happened.Delivered():
                if event.message_id not in inbox or inbox[event.message_id].notice:
                    inbox[event.message_id] = _delivery(event)
            case happened.Granted():
                grants[event[1:4]] = Grant(*event[1:4], event.at, event.lasts)
            case happened.Revoked():
                grants.pop(event[1:4], None)
            case happened.Observed():
                run = _observed(run, event, questions, extras)
            case happened.Created():
                run = run._replace(
                    phase=event.phase,
                    agent=event.agent,
                    command=event.command,
                    started_at=event.at.iso,
                    launched_at=event.at.iso,
                    active_at=event.at.iso,
                    kept=bool(event.kept),
                    session=event.session,
                )
    return run


def _delivery(event: happened.Delivered) -> Delivery:
    return Delivery(
        event.message_id,
        event.sender,
        event.at.iso,
        event.text,
        event.sha256,
        event.in_reply_to,
        bool(event.notice),
    )


def _live(run: Run, trigger: str) -> Run:
    phase = LIFE.get((run.phase, trigger), run.phase)
    return run if phase == run.phase else run._replace(phase=phase)


def _close(
    questions: dict[str, Question],
    trigger: str,
    message_id: str,
    closing: str | None = None,
    at: str | None = None,
) -> None:
    question = questions.get(message_id)
    state = QUESTION.get((question.state, trigger)) if question else None
    if question is None or state is None:
        return
    question = question._replace(state=state)
    questions[message_id] = question if closing is None else question._replace(closing=closing, closed_at=at)


def _reported(run: Run, event: happened.Reported) -> Run:
    phase = LIFE.get((run.phase, f"reported {event.status}"))
    if phase is None:
        return run
    run = run._replace(phase=phase, updated_at=event.timestamp or run.updated_at)
    if event.summary is not None:
        run = run._replace(summary=event.summary)
    if phase in FINISHED:
        run = run._replace(ended_at=run.ended_at or event.ended_at or event.timestamp or event.at.iso)
        run = run._replace(kind=run.kind or event.kind)
    return run


def _submitted(run: Run, event: happened.Submitted) -> Run:
    phase = LIFE.get((run.phase, f"submitted {event.word}"))
    if phase is None:
        return run
    return run._replace(
        phase=phase,
        submitted=True,
        kind=event.kind,
        outcome=event.text,
        summary=f"[{event.kind}] {event.text}" if event.kind else event.text,
        artifacts=event.artifacts,
        tools=event.tools,
        ended_at=event.timestamp,
        updated_at=event.timestamp,
    )


def _stopped(run: Run, event: happened.Stopped) -> Run:
    run = run._replace(gone=run.gone or bool(event.gone))
    if event.grace is not None:
        run = run._replace(stop=event.grace)
    if event.gone:
        run = run._replace(active_at=event.timestamp)
    phase = LIFE.get((run.phase, event.kind))
    if phase is None:
        return run
    return run._replace(
        phase=phase,
        kind=event.kind,
        outcome=event.text,
        summary=f"[{event.kind}] {event.text}",
        ended_at=event.timestamp,
    )


def _exited(run: Run, event: happened.Exited) -> Run:
    if run.exit_code is not None:
        return run
    decided = run.finished
    run = _live(run, "exited 0" if event.exit_code == 0 else "exited non-zero")
    if not decided:
        run = run._replace(kind="sub_agent_error" if run.phase == ERROR else None)
        run = run._replace(outcome=event.output if run.summary is None else None)
    return run._replace(
        exit_code=event.exit_code,
        ended_at=run.ended_at or event.timestamp,
        summary=run.summary if run.summary is not None else event.summary,
        tools=run.tools or event.tools,
        active_at=event.timestamp,
    )


def _resumed(run: Run, event: happened.Resumed) -> Run:
    if (run.phase, "resumed") not in LIFE:
        return run
    ended = Attempt(
        run.attempt,
        run.state,
        run.kind,
        run.text,
        run.artifacts,
        run.tools,
        run.exit_code,
        run.launched_at,
        run.ended_at,
    )
    return _live(run, "resumed")._replace(
        attempt=event.attempt,
        attempts=(*run.attempts, ended),
        command=event.command,
        launched_at=event.at.iso,
        active_at=event.at.iso,
        session=event.session,
        token_hash=event.token_hash,
        limit=event.limit,
        **_FRESH,
    )


def _observed(run: Run, event: happened.Observed, questions: dict[str, Question], extras: dict[str, object]) -> Run:
    fields = {
        "runId": "shown_id",
        "agentName": "agent",
        "command": "command",
        "startTime": "started_at",
        "summary": "summary",
        "lastUpdated": "updated_at",
        "endTime": "ended_at",
    }
    for key, value in event.keys.items():
        if key in fields:
            run = run._replace(**{fields[key]: value})
        else:
            extras[key] = value
    if event.odd:
        run = run._replace(odd={**run.odd, **event.odd})
    for message_id, found in event.messages.items():
        if message_id in questions:
            question = questions[message_id]
            questions[message_id] = question._replace(extras={**question.extras, **found})
    return run

"""Waiting without polling: for an answer, for a question.

A wait wakes when the run's files change, when a deadline passes, or when its time is up. It changes nothing by
itself and can be interrupted at any time: whatever it waited for goes on.
"""

from subagent_cli.core.errors import NotFound, Refused, Stalled, SubagentError
from subagent_cli.core.ids import short
from subagent_cli.core.moment import elapsed
from subagent_cli.core.question import PENDING
from subagent_cli.services import addresses, questions
from subagent_cli.services.context import Context, Payload
from subagent_cli.store.watch import Watch


def for_answer(
    context: Context, message: str, *, run: str | None = None, timeout: int | None = None, peek: bool = False
) -> Payload:
    """Until the question is answered or has expired; as `check` then. Stalled when the time is up."""
    run_id = addresses.run(context, run) if run is not None else None
    meant = addresses.message(context, message, run_id)
    limit = _limit(context, timeout)
    start = context.clock.now()
    with Watch() as watch:
        while True:
            watch.add_all(context.runs.places(meant.run_id))
            now = context.clock.now()
            question = context.runs.read(meant.run_id, now).questions.get(meant.message_id or "")
            if question is None:
                raise NotFound(f"Message with ID {message[:64]} not found", code="message_not_found")
            if question.state != PENDING:
                return questions.check(context, question.id, run=meant.run_id, peek=peek)
            left = limit - elapsed(start, now)
            if left <= 0:
                raise Stalled(
                    "Stalled: Parent No-Response",
                    hint="the question is still pending",
                    next=context.spelled("check", short(question.id), "--wait"),
                )
            overdue = question.limit(context.settings["question_ttl"].value) + 1 - elapsed(question.asked, now)
            watch.wait(max(1, min(left, overdue)) / 1000)


def for_question(
    context: Context, run: str | None = None, timeout: int | None = None
) -> tuple[list[Payload], list[SubagentError]]:
    """Until a question waits for an answer; as `pending` then. Stalled when the time is up, refused when the run
    that could ask has ended."""
    run_id = addresses.run(context, run) if run is not None else None
    limit = _limit(context, timeout)
    start = context.clock.now()
    layout = context.runs.layout
    with Watch() as watch:
        while True:
            # Watched before it is looked at, so that nothing can happen in between.
            for folder in (layout.root, layout.active, layout.questions) if run_id is None else ():
                watch.await_folder(folder)
            for active in context.runs.index.active() if run_id is None else [run_id]:
                watch.add_all(context.runs.places(active))
            over = run_id is not None and context.runs.read(run_id, context.clock.now()).finished
            waiting, faults = questions.pending(context, run_id)
            left = limit - elapsed(start, context.clock.now())
            if waiting:
                return waiting, faults
            if over:
                raise Refused(
                    f"run {short(run_id or '')} has ended: no question will come",
                    code="run_finished",
                    next=context.spelled("result", short(run_id or "")),
                )
            if left <= 0:
                raise Stalled("no question came in time", code="no_question", hint="nothing was changed")
            watch.wait(left / 1000)


def _limit(context: Context, timeout: int | None) -> int:
    limit: int = context.settings["answer_timeout"].value if timeout is None else timeout
    return limit

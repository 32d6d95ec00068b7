"""Waiting without polling: for an answer, for a question, for the end of runs.

A wait wakes when the run's files change, when a deadline passes, or when its time is up. It changes nothing by
itself and can be interrupted at any time: whatever it waited for goes on.
"""

from collections.abc import Callable, Sequence

from subagent_cli.core.errors import InvalidInput, NotFound, Refused, Stalled, SubagentError
from subagent_cli.core.grant import HEAR
from subagent_cli.core.ids import is_uuid, short
from subagent_cli.core.moment import elapsed
from subagent_cli.core.question import PENDING, Question
from subagent_cli.core.run import Run
from subagent_cli.services import access, addresses, outcomes, questions
from subagent_cli.services.addresses import Several
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.patience import Stop, nap
from subagent_cli.store.watch import Watch

NOTHING_KNOWN = "-"


def for_answer(
    context: Context,
    message: str,
    *,
    run: str | None = None,
    timeout: int | None = None,
    peek: bool = False,
    stop: Stop | None = None,
) -> Payload:
    """Until the question is answered or has expired; as `check` then. Stalled when the time is up, or once `stop` says
    that nobody waits any more."""
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
            if left <= 0 or (stop and stop()):
                raise Stalled(
                    "Stalled: Parent No-Response",
                    hint="the question is still pending",
                    next=context.spelled("check", short(question.id), "--wait"),
                )
            overdue = question.limit(context.settings["question_ttl"].value) + 1 - elapsed(question.asked, now)
            watch.wait(nap(max(1, min(left, overdue)) / 1000, stop))


def for_question(
    context: Context, run: str | None = None, timeout: int | None = None
) -> tuple[list[Payload], list[SubagentError]]:
    """Until a question waits for an answer; as `pending` then. Stalled when the time is up, refused when the run
    that could ask has ended."""
    run_id = addresses.run(context, run, HEAR) if run is not None else None
    limit = _limit(context, timeout)
    start = context.clock.now()
    layout = context.runs.layout
    with Watch() as watch:
        while True:
            # Watched before it is looked at, so that nothing can happen in between.
            for folder in (layout.root, layout.active, layout.questions) if run_id is None else ():
                watch.await_folder(folder)
            for active in access.among(context, context.runs.index.active(), HEAR) if run_id is None else [run_id]:
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


def for_runs(
    context: Context,
    names: Sequence[str],
    *,
    count: int | None = None,
    timeout: int | None = None,
    questions_too: bool = True,
    after: str | None = None,
    seen: Callable[[Sequence[Run]], None] = lambda _: None,
    stop: Stop | None = None,
) -> Payload:
    """Until `count` of the runs (all, unless told otherwise) are over, a question waits that was not known at the
    cursor `after`, or the time is up; `woke` says which. A name may be that of a group, and stands for its runs; a
    question may come from any run below. A run is over when its outcome is decided and its process has ended. `seen` is
    told how the runs stand. Once `stop` says that nobody waits any more it ends as if the time were up.
    """
    meant = [addresses.runs_of(context, name) for name in names]
    if not names and context.caller.token:
        children = access.among(context, addresses.children(context, context.caller.run_id or ""))
        meant = [Several(child, [child]) for child in children]
    run_ids = list(dict.fromkeys(run_id for several in meant for run_id in several.run_ids))
    if context.caller.token and context.caller.run_id in run_ids:
        raise Refused("a run cannot wait for its own end", code="own_run")
    if count is not None and count > len(run_ids):
        raise InvalidInput(f"{count} of {len(run_ids)} runs will never have ended", code="usage")
    need = len(run_ids) if count is None else count
    known = _known(after)
    start = context.clock.now()
    with Watch() as watch:
        while True:
            # Where runs appear, so that one that is started below these is not missed.
            watch.await_folder(context.runs.layout.active)
            below = access.among(context, addresses.with_children(context, run_ids), HEAR)
            tree = list(dict.fromkeys((*run_ids, *below)))
            for run_id in tree:
                watch.add_all(context.runs.places(run_id))
            now = context.clock.now()
            found = {run_id: context.runs.read(run_id, now) for run_id in tree}
            runs = [found[run_id] for run_id in run_ids]
            seen(runs)
            left = None if timeout is None else timeout - elapsed(start, now)
            waiting = [(run, question) for run in found.values() if not run.over for question in run.pending]
            if sum(run.over for run in runs) >= need:
                return _woke(context, "done", meant, runs, waiting)
            if questions_too and any(_mark(question.id) not in known for _, question in waiting):
                return _woke(context, "question", meant, runs, waiting)
            if (left is not None and left <= 0) or (stop and stop()):
                return _woke(context, "timeout", meant, runs, waiting)
            watch.wait_closely(nap(None if left is None else left / 1000, stop))


def _woke(
    context: Context,
    why: str,
    meant: Sequence[Several],
    runs: Sequence[Run],
    waiting: Sequence[tuple[Run, Question]],
) -> Payload:
    over = {run.id for run in runs if run.over}
    return {
        "woke": why,
        "cursor": ".".join(sorted(_mark(question.id) for _, question in waiting)) or NOTHING_KNOWN,
        "pending": [several.id for several in meant if not over.issuperset(several.run_ids)],
        "runs": [outcomes.view(run) for run in runs],
        "sub_agent_results": outcomes.aggregate(context, [run for run in runs if run.over]),
        "questions": [questions.waiting(run, question, context) for run, question in waiting],
    }


def _mark(message_id: str) -> str:
    """A few digits that stand for a question; ids of other programs may be anything."""
    if is_uuid(message_id):
        return short(message_id).lower()
    from zlib import crc32

    return f"{crc32(message_id.encode('utf-8', 'replace')):08x}"


def _known(cursor: str | None) -> set[str]:
    marks = set() if cursor in (None, NOTHING_KNOWN) else set(cursor.split("."))
    if any(len(mark) != 8 or not set(mark) <= set("0123456789abcdef") for mark in marks):
        raise InvalidInput(f"not a cursor: {str(cursor)[:40]!r}", code="invalid_cursor", hint="as a wait printed it")
    return marks


def _limit(context: Context, timeout: int | None) -> int:
    limit: int = context.settings["answer_timeout"].value if timeout is None else timeout
    return limit

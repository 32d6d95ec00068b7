"""The question loop: a worker asks or tells, a parent looks and replies, the worker picks the answer up."""

from collections.abc import Sequence

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import InvalidInput, NotFound, SubagentError
from subagent_cli.core.event import Replied, record
from subagent_cli.core.grant import ANSWER, HEAR, READ, WORK
from subagent_cli.core.ids import is_uuid, short
from subagent_cli.core.moment import iso, milliseconds
from subagent_cli.core.projection import project
from subagent_cli.core.question import PENDING, WORDS, Question
from subagent_cli.core.run import Run
from subagent_cli.services import access, addresses
from subagent_cli.services.context import Context, Payload


def ask(
    context: Context,
    question: str,
    *,
    run: str | None = None,
    options: Sequence[str] = (),
    default: str | None = None,
    deadline: int | None = None,
    single: bool = False,
    key: str | None = None,
) -> Payload:
    """Puts a question to the parent and returns at once; `deadline` is in milliseconds."""
    run_id = addresses.run(context, run, WORK)
    question, *choices = (context.text(text, "question") for text in (question, *options))
    default = context.text(default, "default") if default is not None else None
    command = wanted.Ask(context.clock.new_id(), question, tuple(choices), default, deadline, single, key)
    change = context.runs.change(run_id, command, context.clock.now)
    message_id = change.after.keys[f"ask {key}"][0] if key else command.message_id
    return {
        "messageId": message_id,
        "message_id": message_id,
        "runId": run_id,
        "instructions": f"Poll for the answer with: {context.spelled('check', short(message_id))}",
        "warnings": list(change.warnings),
    }


def tell(context: Context, text: str, *, run: str | None = None) -> Payload:
    """Leaves a note for the parent that wants no answer."""
    run_id = addresses.run(context, run, WORK)
    change = context.runs.change(run_id, wanted.Tell(context.text(text, "note")), context.clock.now)
    return {"runId": run_id, **record(change.events[-1]), "warnings": list(change.warnings)}


def reply(
    context: Context,
    target: str,
    answer: str,
    *,
    message: str | None = None,
    which: str = wanted.ONLY,
    key: str | None = None,
) -> Payload:
    """Answers a question: `target` is the question, or the run whose question is meant."""
    answer = context.text(answer, "answer")
    if message is not None:
        run_id = addresses.run(context, target, ANSWER)
        meant = addresses.message(context, message, run_id)
    else:
        meant = addresses.run_or_message(context, target)
        _not_an_id(context, meant, answer)
    if meant.message_id is not None and which != wanted.ONLY:
        raise InvalidInput(f"--{which} goes with a run, not with a question", code="usage")
    command = wanted.Reply(answer, meant.message_id, which, key)
    change = context.runs.change(meant.run_id, command, context.clock.now)
    answered = [event.message_id for event in change.events if isinstance(event, Replied)]
    return {
        "success": True,
        "message": "Reply successfully recorded.",
        "runId": meant.run_id,
        "messageIds": answered or list(change.after.keys.get(f"reply {key}", ())),
        "updatedMetadata": project(change.after) if access.may(context, READ, meant.run_id) else None,
        "warnings": list(change.warnings),
    }


def check(context: Context, message: str, *, run: str | None = None, peek: bool = False) -> Payload:
    """What has become of a question. An answer that is seen here for the first time counts as delivered."""
    run_id = addresses.run(context, run) if run is not None else None
    meant = addresses.message(context, message, run_id)
    message_id = meant.message_id or ""
    found = context.runs.read(meant.run_id, context.clock.now())
    warnings: Sequence[str] = ()
    if not peek and picks_up(context, meant.run_id) and any(question.id == message_id for question in found.unread):
        change = context.runs.change(meant.run_id, wanted.Acknowledge(message_id), context.clock.now)
        found, warnings = change.before, change.warnings
    question = found.questions.get(message_id)
    if question is None:
        raise NotFound(f"Message with ID {message_id[:64]} not found", code="message_not_found")
    return {**view(question), "answer": question.answer, "runId": meant.run_id, "warnings": list(warnings)}


def picks_up(context: Context, run_id: str) -> bool:
    """Whether an answer that the caller sees has arrived: not where it is the worker of another run."""
    caller = access.agent(context)
    return caller is None or caller == run_id


def not_found(message: str, error: NotFound) -> Payload:
    """What check says of a question that is not there: no answer, and why."""
    return {"messageId": message, "answer": None, "state": "NOT_FOUND", "message": error.message}


def pending(context: Context, run: str | None = None) -> tuple[list[Payload], list[SubagentError]]:
    """What waits for an answer, oldest first, and what could not be looked at."""
    context.must_be_there()
    if run is None:
        run_ids = access.among(context, context.runs.index.active(), HEAR)
    else:
        run_ids = [addresses.run(context, run, HEAR)]
    now = context.clock.now()
    items: list[Payload] = []
    faults: list[SubagentError] = []
    for run_id in run_ids:
        try:
            found = context.runs.read(run_id, now)
        except NotFound:
            continue
        except SubagentError as error:
            if run is not None:
                raise
            faults.append(error)
            continue
        items += [waiting(found, question, context) for question in found.pending]
    items.sort(key=lambda item: milliseconds(item["timestamp"]) or 0)
    return items, faults


def view(question: Question) -> Payload:
    """A question as output shows it: the document's keys, null where there is no answer, and the exact state."""
    shown: Payload = {
        "messageId": question.id,
        "questionContent": question.text,
        "questionTimestamp": question.asked_at,
        "answerContent": question.closing if question.state != PENDING else None,
        "answerTimestamp": question.closed_at,
        "messageStatus": WORDS[question.state],
        "state": question.state,
        "options": list(question.options),
    }
    return {**question.extras, **shown}


def reply_command(context: Context, run: Run, question: Question) -> str:
    """The command that answers this question. Ids of other programs may be anything, so those go by the run."""
    if is_uuid(question.id):
        return context.spelled("reply", short(question.id), "ANSWER")
    pending = run.pending
    which = "" if len(pending) == 1 else "--oldest" if question is pending[0] else "--latest"
    if which == "--latest" and question is not pending[-1]:
        from shlex import quote

        return context.spelled("reply", short(run.id), "--", quote(question.id), "ANSWER")
    return context.spelled("reply", short(run.id), "ANSWER", which).rstrip()


def waiting(run: Run, question: Question, context: Context) -> Payload:
    """A question that waits, and the command that answers it."""
    limit = question.limit(context.settings["question_ttl"].value)
    item: Payload = {
        "message_id": question.id,
        "question": question.text,
        "timestamp": question.asked_at,
        "run_id": run.id,
        "agent_name": run.agent,
        "expires_at": iso(question.asked.ms + limit),
        "reply": reply_command(context, run, question),
    }
    if question.options:
        item["options"] = list(question.options)
    if question.default is not None:
        item["default"] = question.default
    return item


def _not_an_id(context: Context, meant: addresses.Target, answer: str) -> None:
    """Whoever forgets the answer would otherwise send a message id as one."""
    if meant.message_id is not None or len(answer) not in (8, 36):
        return
    waiting = context.runs.read(meant.run_id, context.clock.now()).pending
    if any(answer.lower() in (question.id.lower(), short(question.id)) for question in waiting):
        raise InvalidInput(
            "the answer is missing: that is the id of a question",
            code="usage",
            next=context.spelled("reply", short(answer), "ANSWER"),
        )

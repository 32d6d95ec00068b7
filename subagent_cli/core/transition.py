"""What may happen to a run. This is the one file that decides.

The two tables are the whole law: what is not in them is refused, and a refusal changes nothing. `decide` holds a
command against them and answers with events; `due` says what the passing of time has brought about. What agents give
and send each other is no step in a run's life, and is decided in `exchange`.
"""

from collections.abc import Mapping, Sequence

from subagent_cli.core import command as wanted
from subagent_cli.core import event as happened
from subagent_cli.core import exchange
from subagent_cli.core.command import ALL, LATEST, OLDEST, Command
from subagent_cli.core.errors import InvalidInput, NotFound, Refused
from subagent_cli.core.event import Event
from subagent_cli.core.ids import short
from subagent_cli.core.moment import Moment, elapsed, iso
from subagent_cli.core.question import (
    ANSWERED,
    EXPIRED,
    FEWEST_OPTIONS,
    MOST_OPTIONS,
    PENDING,
    RETRIEVED,
    WORDS,
    Question,
    chosen,
    expiry_text,
)
from subagent_cli.core.run import COMPLETED, CREATED, ERROR, RUNNING, SUCCESS, Run

LIFE: Mapping[tuple[str, str], str] = {
    (CREATED, "asked"): RUNNING,
    (CREATED, "told"): RUNNING,
    (CREATED, "reported running"): RUNNING,
    (CREATED, "reported success"): SUCCESS,
    (CREATED, "reported completed"): COMPLETED,
    (CREATED, "reported error"): ERROR,
    (CREATED, "submitted result"): SUCCESS,
    (CREATED, "submitted error"): ERROR,
    (CREATED, "cancelled"): ERROR,
    (CREATED, "timed_out"): ERROR,
    (CREATED, "lost"): ERROR,
    (CREATED, "exited 0"): SUCCESS,
    (CREATED, "exited non-zero"): ERROR,
    (RUNNING, "asked"): RUNNING,
    (RUNNING, "told"): RUNNING,
    (RUNNING, "reported running"): RUNNING,
    (RUNNING, "reported success"): SUCCESS,
    (RUNNING, "reported completed"): COMPLETED,
    (RUNNING, "reported error"): ERROR,
    (RUNNING, "submitted result"): SUCCESS,
    (RUNNING, "submitted error"): ERROR,
    (RUNNING, "cancelled"): ERROR,
    (RUNNING, "timed_out"): ERROR,
    (RUNNING, "lost"): ERROR,
    (RUNNING, "exited 0"): SUCCESS,
    (RUNNING, "exited non-zero"): ERROR,
    (SUCCESS, "reported success"): SUCCESS,
    (SUCCESS, "reported completed"): COMPLETED,
    (SUCCESS, "exited 0"): SUCCESS,
    (SUCCESS, "exited non-zero"): SUCCESS,
    (SUCCESS, "resumed"): RUNNING,
    (COMPLETED, "reported completed"): COMPLETED,
    (COMPLETED, "reported success"): SUCCESS,
    (COMPLETED, "exited 0"): COMPLETED,
    (COMPLETED, "exited non-zero"): COMPLETED,
    (COMPLETED, "resumed"): RUNNING,
    (ERROR, "reported error"): ERROR,
    (ERROR, "exited 0"): ERROR,
    (ERROR, "exited non-zero"): ERROR,
    (ERROR, "resumed"): RUNNING,
}

QUESTION: Mapping[tuple[str, str], str] = {
    (PENDING, "replied"): ANSWERED,
    (PENDING, "expired"): EXPIRED,
    (ANSWERED, "acknowledged"): RETRIEVED,
}

REPORTS = (SUCCESS, ERROR, RUNNING, COMPLETED)
RESULT, FAILURE = "result", "error"
KINDS = (
    "auth",
    "rate_limit",
    "network",
    "invalid_request",
    "server_error",
    "timed_out",
    "cancelled",
    "sub_agent_error",
    "context_exhausted",
    "content_filter",
)
RETRYABLE = ("network", "rate_limit", "server_error", "timed_out")
CANCELLED, TIMED_OUT, LOST = "cancelled", "timed_out", "lost"
CANCELLED_TEXT = "Cancelled"
TIMED_OUT_TEXT = "Sub-agent timed out"
LOST_TEXT = "The keeper of the run ended without a word: it was killed, or the machine went down"
NO_RUNTIME_TEXT = "Sub-agent runtime not found"


def decide(run: Run, command: Command, now: Moment) -> Sequence[Event]:
    """The events that make the command true: none where it already is, a refusal where it may not be."""
    match command:
        case wanted.Ask():
            return _ask(run, command, now)
        case wanted.Tell():
            return _tell(run, command, now)
        case wanted.Reply():
            return _reply(run, command, now)
        case wanted.Acknowledge():
            return _acknowledge(run, command, now)
        case wanted.Report():
            return _report(run, command, now)
        case wanted.Submit():
            return _submit(run, command, now)
        case wanted.Stop():
            return _stop(run, command, now)
        case wanted.Exit():
            return _exit(run, command, now)
        case wanted.Resume():
            return _resume(run, command, now)
        case wanted.Grant():
            return exchange.grant(run, command, now)
        case wanted.Revoke():
            return exchange.revoke(run, command, now)
        case wanted.Deliver():
            return exchange.deliver(run, command, now)
        case wanted.Settle():
            return ()


def due(run: Run, now: Moment, ttl: int) -> Sequence[Event]:
    """What the passing of time has done: each overdue question takes its default, or expires."""
    events: list[Event] = []
    for question in run.pending:
        limit = question.limit(ttl)
        if elapsed(question.asked, now) <= limit:
            continue
        at = question.asked.ms + limit
        if question.default is not None:
            events.append(happened.Replied(now, question.id, question.default, iso(at), by="default"))
        else:
            events.append(happened.Expired(now, question.id, expiry_text(question, ttl, at), iso(at)))
    return events


def lost(run: Run, now: Moment) -> Sequence[Event]:
    """What it means that the keeper of the run is proven to be gone."""
    return (happened.Stopped(now, LOST, LOST_TEXT, now.iso, gone=True),) if run.alive else ()


def _ask(run: Run, command: wanted.Ask, now: Moment) -> Sequence[Event]:
    if not command.question:
        raise InvalidInput("Question cannot be empty", code="empty_question")
    if command.options and not FEWEST_OPTIONS <= len(command.options) <= MOST_OPTIONS:
        raise InvalidInput(
            f"a question has {FEWEST_OPTIONS} to {MOST_OPTIONS} options, not {len(command.options)}",
            code="option_count",
        )
    default = command.default
    if default is not None:
        default = chosen(Question("", "", "", now, options=command.options), default)
    if command.key and (used := run.keys.get(f"ask {command.key}")):
        earlier = run.questions[used[0]]
        asked = (earlier.text, earlier.options, earlier.default, earlier.deadline)
        _same_use(command.key, asked == (command.question, command.options, default, command.deadline))
        return ()
    _must_live(run, "asked", "ask")
    open_now = run.pending + run.unread
    if command.single and open_now:
        raise Refused(
            f"a question is still open: {short(open_now[0].id)}",
            code="question_open",
            hint="--single allows one at a time",
            next=f"subagent check {short(open_now[0].id)}",
        )
    return (
        happened.Asked(
            now,
            command.message_id,
            command.question,
            now.iso,
            command.options,
            default,
            command.deadline,
            command.key,
        ),
    )


def _tell(run: Run, command: wanted.Tell, now: Moment) -> Sequence[Event]:
    if not command.text:
        raise InvalidInput("the note is empty", code="empty_text")
    _must_live(run, "told", "tell")
    return (happened.Told(now, command.text),)


def _reply(run: Run, command: wanted.Reply, now: Moment) -> Sequence[Event]:
    if command.key and (used := run.keys.get(f"reply {command.key}")):
        replied = [run.questions[message_id] for message_id in used if message_id in run.questions]
        same = all(question.closing == chosen(question, command.answer) for question in replied)
        _same_use(command.key, same and command.message_id in (None, *(question.id for question in replied)))
        return ()
    return tuple(
        happened.Replied(now, question.id, chosen(question, command.answer), now.iso, key=command.key)
        for question in _addressed(run, command)
    )


def _addressed(run: Run, command: wanted.Reply) -> Sequence[Question]:
    if command.message_id is not None:
        question = _question(run, command.message_id)
        if question.state != PENDING:
            raise Refused(
                f"Message status is not 'pending_parent_reply': found '{WORDS[question.state]}'",
                code="not_pending",
                hint="it has expired: nobody answered in time"
                if question.state == EXPIRED
                else "the first answer is kept",
            )
        return (question,)
    pending = run.pending
    if not pending:
        raise Refused(f"no question is waiting in run {short(run.id)}", code="no_pending_question")
    if command.which == ALL:
        return pending
    if command.which == OLDEST:
        return pending[:1]
    if command.which == LATEST:
        return pending[-1:]
    if len(pending) > 1:
        raise Refused(
            f"{len(pending)} questions are waiting in run {short(run.id)}",
            code="several_pending",
            hint="name one, or say --oldest, --latest or --all",
            candidates=[f"{question.id} {question.text}" for question in pending],
        )
    return pending


def _acknowledge(run: Run, command: wanted.Acknowledge, now: Moment) -> Sequence[Event]:
    if command.message_id is None:
        unread = run.unread
    else:
        question = _question(run, command.message_id)
        unread = [question] if question.state == ANSWERED else []
    return (happened.Acknowledged(now, tuple(question.id for question in unread)),) if unread else ()


def _report(run: Run, command: wanted.Report, now: Moment) -> Sequence[Event]:
    if command.status not in REPORTS:
        raise InvalidInput(
            f"not a status that can be reported: {command.status[:40]!r}",
            code="unknown_status",
            candidates=REPORTS,
        )
    _must_live(run, f"reported {command.status}", f"become {command.status}")
    if run.finished and run.phase == command.status and command.summary in (None, run.summary):
        return ()
    kind = "sub_agent_error" if command.status == ERROR else None
    return (happened.Reported(now, command.status, now.iso, command.summary, kind),)


def _submit(run: Run, command: wanted.Submit, now: Moment) -> Sequence[Event]:
    if not command.text:
        raise InvalidInput(f"the {command.word} is empty", code="empty_text")
    kind = command.kind if command.word == FAILURE else None
    if command.word == FAILURE and kind is None:
        kind = "sub_agent_error"
    if kind is not None and kind not in KINDS:
        raise InvalidInput(f"there is no kind of error {kind[:40]!r}", code="unknown_kind", candidates=KINDS)
    if run.submitted and (run.text, run.kind, run.artifacts, run.tools) == (
        command.text,
        kind,
        command.artifacts,
        command.tools,
    ):
        return ()
    _must_live(run, f"submitted {command.word}", f"take another {command.word}")
    return (happened.Submitted(now, command.word, command.text, now.iso, kind, command.artifacts, command.tools),)


def _stop(run: Run, command: wanted.Stop, now: Moment) -> Sequence[Event]:
    """A decided outcome stays, but who cancels its run wants the process stopped all the same: at once, or sooner than
    was said before. A time limit has nothing to say to a run that has its outcome."""
    hurried = run.stop is None or command.grace < run.stop or command.gone
    if run.over or (run.finished and (command.kind == TIMED_OUT or not hurried)):
        return ()
    text = NO_RUNTIME_TEXT if command.gone else command.text
    return (happened.Stopped(now, command.kind, text, now.iso, command.grace, command.gone or None),)


def _exit(run: Run, command: wanted.Exit, now: Moment) -> Sequence[Event]:
    if command.attempt != run.attempt or run.exit_code is not None:
        return ()
    output = None if run.finished else command.output
    return (happened.Exited(now, command.exit_code, now.iso, command.summary, output, command.tools),)


def _resume(run: Run, command: wanted.Resume, now: Moment) -> Sequence[Event]:
    if command.key and (used := run.keys.get(f"resume {command.key}")):
        _same_use(command.key, used[1] == command.text)
        return ()
    if not run.kept:
        raise Refused(
            f"run {short(run.id)} was not started by `subagent run`: there is nothing to start again",
            code="not_launched",
        )
    again = happened.Resumed(
        now,
        run.attempt + 1,
        command.command,
        command.text,
        command.token_hash,
        command.session,
        command.key,
        command.told,
        command.limit,
    )
    return (*lost(run, now), again)


def _question(run: Run, message_id: str) -> Question:
    question = run.questions.get(message_id)
    if question is None:
        raise NotFound(f"Message with ID {message_id[:64]} not found", code="message_not_found")
    return question


def _must_live(run: Run, trigger: str, verb: str) -> None:
    if (run.phase, trigger) not in LIFE:
        raise Refused(f"run {short(run.id)} has ended ({run.state}): it cannot {verb}", code="run_finished")


def _same_use(key: str, same: bool) -> None:
    if not same:
        raise Refused(
            f"the key {key[:40]!r} was used for something else in this run",
            code="key_reused",
            hint="a key belongs to one request: repeat that request exactly, or take another key",
        )

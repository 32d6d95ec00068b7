"""What another writer has put into `.meta.json`, as events of ours.

The merge only ever adds: messages are matched by their id, states move forward, the first answer wins, an end is an
end, and a key that has vanished is not a key that was deleted. So it does not matter how often, or how late, a
document is seen: absorbing it twice adds nothing. What the server's schema would refuse is kept in the journal as
odd, and is mended in the document by the next write.
"""

from collections.abc import Sequence
from typing import Any

from subagent_cli.core.document import EXPIRED_MARK, MESSAGE_KEYS, RUN_KEYS, Document
from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.event import Acknowledged, Asked, Event, Exited, Expired, Observed, Replied, Reported
from subagent_cli.core.moment import Moment, milliseconds
from subagent_cli.core.question import ANSWERED, EXPIRED, PENDING, RETRIEVED, STATES, Question, chosen
from subagent_cli.core.run import COMPLETED, CREATED, ERROR, FINISHED, REPLIED, RUNNING, WAITING, Run
from subagent_cli.core.transition import LIFE, REPORTS

_FAILED_WORDS = {
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "timed_out": "timed_out",
    "lost": "lost",
    "failed": "sub_agent_error",
    "terminated": "cancelled",
}


def absorb(run: Run, document: Document, now: Moment, *, late: bool = False) -> Sequence[Event]:
    """The events that bring the run up to what the document says beyond it.

    A late document was written on top of an older one: what it has for keys of others may be older than what we know.
    """
    keys, odd = _keys(run, document)
    events, extras = _messages(run, document.get("messages"), odd, now)
    if late:
        keys = {key: value for key, value in keys.items() if key not in run.extras}
        extras = {}
    events += _life(run, document, keys, now)
    odd = {key: value for key, value in odd.items() if _differs(run.odd, key, value)}
    if keys or extras or odd:
        events.insert(0, Observed(now, keys, extras, odd))
    return events


def _differs(kept: Any, key: str, value: object) -> bool:
    # By spelling, since 1, 1.0 and True are equal in Python and not in the document.
    return key not in kept or repr(kept[key]) != repr(value)


def _keys(run: Run, document: Document) -> tuple[dict[str, Any], dict[str, Any]]:
    """Top-level keys to take over, and values that have no place in the document."""
    keys: dict[str, Any] = {}
    odd: dict[str, Any] = {}
    missing = {
        "agentName": run.agent is None,
        "command": run.command is None,
        "startTime": run.started_at is None,
        "runId": run.shown_id is None and document.get("runId") != run.id,
    }
    for key, value in document.items():
        fits = RUN_KEYS.get(key)
        if fits is None:
            if _differs(run.extras, key, value):
                keys[key] = value
        elif key == "messages" or value is None:
            continue
        elif not fits(value):
            odd[key] = value
        elif missing.get(key):
            keys[key] = value
    return keys, odd


def _life(run: Run, document: Document, keys: dict[str, Any], now: Moment) -> list[Event]:
    """The end of the run, its process's exit, and newer reports."""

    def legal(key: str) -> Any:
        value = document.get(key)
        return value if RUN_KEYS[key](value) else None

    word, kind = _word(document.get("status"))
    exit_code, ended_at, summary, updated_at = map(legal, ("exitCode", "endTime", "summary", "lastUpdated"))
    ended_at = ended_at or None
    newer = (milliseconds(updated_at) or 0) > (milliseconds(run.updated_at) or 0)
    news = summary if summary != run.summary and (run.summary is None or newer) else None

    events: list[Event] = []
    reports = word in REPORTS and (run.phase, f"reported {word}") in LIFE
    stamp = updated_at if newer else None
    over = word in FINISHED or exit_code is not None or ended_at is not None
    if word in FINISHED and not run.finished:
        events.append(Reported(now, word, stamp, news, kind, ended_at))
    elif reports and newer and (run.finished or not over):
        events.append(Reported(now, word, stamp, news))
    elif run.phase == CREATED and word in (RUNNING, WAITING, REPLIED) and not over:
        events.append(Reported(now, RUNNING, stamp, news))
    elif ended_at is not None and exit_code is None and not run.finished:
        # The server lets a finished run go on and keeps its end time: that run has ended, how is not said.
        events.append(Reported(now, COMPLETED, stamp, news, None, ended_at))
    if not events:
        if stamp:
            keys["lastUpdated"] = stamp
        if news is not None:
            keys["summary"] = news
    if exit_code is not None and run.exit_code is None:
        events.append(Exited(now, exit_code, ended_at or now.iso))
    return events


def _word(status: object) -> tuple[str, str | None]:
    """The legal word that is meant, and the kind where the run failed; empty where nothing is."""
    if not isinstance(status, str):
        return "", None
    word = status.lower()
    if word in _FAILED_WORDS:
        return ERROR, _FAILED_WORDS[word]
    return (word, "sub_agent_error" if word == ERROR else None) if RUN_KEYS["status"](word) else ("", None)


def _messages(
    run: Run, found: object, odd: dict[str, Any], now: Moment
) -> tuple[list[Event], dict[str, dict[str, Any]]]:
    events: list[Event] = []
    extras: dict[str, dict[str, Any]] = {}
    if found is not None and not isinstance(found, list):
        odd["messages"] = found
    known: dict[str, Question] = dict(run.questions)
    fresh: dict[str, dict[str, Any]] = {}
    taken: dict[str, set[str]] = {}
    for place, item in enumerate(found if isinstance(found, list) else ()):
        if not isinstance(item, dict):
            odd[f"messages[{place}]"] = item
            continue
        seen = _seen(item, now, odd)
        before = taken.setdefault(seen.id, set())
        others = {key: value for key, value in item.items() if key not in MESSAGE_KEYS and key not in before}
        before.update(others)
        if seen.id not in known:
            fresh[seen.id] = others
            events.append(Asked(now, seen.id, seen.text, seen.asked_at, extras=others))
            known[seen.id] = Question(seen.id, seen.text, seen.asked_at, now)
        elif seen.id in fresh:
            fresh[seen.id].update(others)
        elif others := {k: v for k, v in others.items() if _differs(known[seen.id].extras, k, v)}:
            extras.setdefault(seen.id, {}).update(others)
        known[seen.id] = _forward(seen, known[seen.id], events, odd, now)
    return events, extras


def _seen(item: Document, now: Moment, odd: dict[str, Any]) -> Question:
    """A message as it is meant, whatever it lacks."""
    message_id = item.get("messageId")
    if not isinstance(message_id, str) or not message_id:
        message_id = _made_id(item)
    for key, fits in MESSAGE_KEYS.items():
        if item.get(key) is not None and not fits(item[key]):
            odd[f"{message_id}.{key}"] = item[key]

    def legal(key: str) -> Any:
        value = item.get(key)
        return value if isinstance(value, str) else None

    closing, word = legal("answerContent"), legal("messageStatus")
    # A word that the server has no use for either closes the message: nobody will answer it.
    state = STATES.get(word, EXPIRED) if word is not None else ANSWERED if closing else PENDING
    return Question(
        message_id,
        legal("questionContent") or "",
        legal("questionTimestamp") or now.iso,
        now,
        state,
        closing,
        legal("answerTimestamp"),
    )


def _forward(seen: Question, known: Question, events: list[Event], odd: dict[str, Any], now: Moment) -> Question:
    """Moves a message from the state it is known in to the one it was seen in, if that is further on."""
    answered = seen.state in (ANSWERED, RETRIEVED)
    closed_at = seen.closed_at or now.iso
    answer = _meant(known, seen.closing or "")
    state = known.state
    if state == PENDING and answered:
        events.append(Replied(now, seen.id, answer, closed_at))
        state = ANSWERED
        known = known._replace(closing=answer)
    elif state == PENDING and seen.state == EXPIRED:
        text = seen.closing or "Closed by another program; go on without an answer."
        text = text if text.startswith(EXPIRED_MARK) else f"{EXPIRED_MARK} {text}"
        events.append(Expired(now, seen.id, text, closed_at))
        state = EXPIRED
        known = known._replace(closing=text)
    elif seen.closing and seen.state != EXPIRED and known.closing not in (answer, seen.closing):
        # A rival answer, or one to a message that is called unanswered.
        odd[f"{seen.id}.answerContent"] = seen.closing
    if state == ANSWERED and seen.state == RETRIEVED:
        events.append(Acknowledged(now, (seen.id,)))
        state = RETRIEVED
    return known._replace(state=state)


def _meant(known: Question | None, answer: str) -> str:
    try:
        return chosen(known, answer) if known else answer
    except InvalidInput:
        return answer


def _made_id(item: Document) -> str:
    """An id for a message that has none, the same whenever it is seen."""
    from hashlib import sha256

    digits = sha256(repr(sorted(item.items(), key=lambda pair: pair[0])).encode("utf-8", "replace")).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"

"""Whether a history can be true.

Promise: from the calls alone, and the journals beside them, every one of these is found: an acknowledged change that a
later look does not show, a state or a run that goes backwards, an answer that changes or that two have given, a refused
call that left something, a reply that was new to two, something that nobody did or that is there and then is not, a
journal with a gap or in another order than the calls that wrote it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from subagent_cli.core.event import Record
from tests.stress.history import OK, REFUSED, UNKNOWN, Call
from tests.stress.looks import Seen, backwards, entries, looks, of

FINISHED = ("success", "completed", "error")
KEPT_NOTES = 10

# The journal's events that a call brings about, the call, the field that holds its text, and the name of that text.
WRITTEN = {
    "asked": ("ask", "question", "text"),
    "told": ("tell", "text", "text"),
    "replied": ("reply", "answer", "answer"),
    "reported": ("update", "summary", "text"),
    "submitted": ("submit", "text", "text"),
}


def faults(calls: Sequence[Call], journals: Mapping[str, Sequence[Record]]) -> list[str]:
    """Everything that cannot be true of a history; nothing where it can."""
    found = [f"it broke: {call}" for call in calls if call.outcome not in (OK, REFUSED, UNKNOWN)]
    calls = [call for call in calls if call.outcome in (OK, REFUSED, UNKNOWN)]
    for run_id, journal in journals.items():
        mine = [call for call in calls if call.run in (run_id, None)]
        for check in (_messages, _answers, _causes, _pickups, _life, _summaries, _notes, _journal):
            found += check(run_id, mine, journal)
    return found


def _messages(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """Questions that were acknowledged or seen are there ever after, and only go forward."""
    picked_up = {
        message_id: Seen(call.begin, call.end, 2, call, at_least=True) for message_id, call in _news(run_id, calls)
    }
    for message_id, found in looks(run_id, calls).items():
        pickup = [picked_up[message_id]] if message_id in picked_up else []
        yield from backwards(f"question {message_id}", [*(look.seen for look in found), *pickup])
        states = {look.state for look in found}
        if "EXPIRED" in states and states & {"ANSWERED", "RETRIEVED"}:
            yield f"question {message_id} expired, and was answered too"


def _news(run_id: str, calls: Sequence[Call]) -> Iterator[tuple[str, Call]]:
    """Answers that a call has picked up, being the first to show them to who asked."""
    for call in of(calls, "check", "status"):
        if not call.args["peek"] and not call.result["warnings"]:
            yield from ((message_id, call) for message_id, state, _ in entries(run_id, call) if state == "ANSWERED")


def _answers(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """A question has one answer for ever, and at most one of those who gave any was told that it was theirs."""
    for message_id, found in looks(run_id, calls).items():
        winners = [call for call in of(calls, "reply") if message_id in call.result]
        shown = {look.answer for look in found if look.state in ("ANSWERED", "RETRIEVED")}
        answers = shown | {call.args["answer"] for call in winners}
        if len(answers) > 1:
            yield f"question {message_id} has several answers: {sorted(map(str, answers))}"
        if len(winners) > 1:
            yield f"question {message_id} was answered by several: {list(map(str, winners))}"


def _causes(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """Nothing is answered with what nobody had begun to answer, or is over for no reason."""
    asked = {call.result: call for call in of(calls, "ask")}
    for message_id, found in looks(run_id, calls).items():
        ask = asked.get(message_id)
        # What somebody asked who was killed may have had any limit and any default.
        expires = ask is None or "deadline" in ask.args
        replies = [
            call
            for call in of(calls, "reply", outcome=None)
            if call.outcome != REFUSED and call.args.get("message") in (None, message_id)
        ]
        for look in found:
            begun = {call.args["answer"] for call in replies if call.begin < look.seen.end}
            default = expires and (ask is None or ask.args["default"] is not None)
            if default and (ask is None or look.answer == ask.args["default"]):
                continue
            if look.state in ("ANSWERED", "RETRIEVED") and look.answer not in begun:
                yield f"nobody had answered question {message_id} with {look.answer!r}: {look.seen.call}"
            if look.seen.rank > 0 and not begun and not expires:
                yield f"nothing had happened to question {message_id}: {look.seen.call}"


def _pickups(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """An answer is new to one reader at most, and is known to have arrived only if somebody had begun to read."""
    told: dict[str, list[Call]] = defaultdict(list)
    for message_id, call in _news(run_id, calls):
        told[message_id].append(call)
    for message_id, several in told.items():
        if len(several) > 1:
            yield f"the answer to {message_id} was new to several: {list(map(str, several))}"
    readers = of(calls, "check", "status", outcome=None)
    first = min((call.begin for call in readers if not call.args["peek"]), default=inf)
    for call in of(calls, "check", "status"):
        for message_id, state, _ in entries(run_id, call):
            if state == "RETRIEVED" and first > call.end:
                yield f"nobody had picked up the answer to {message_id}: {call}"


def _life(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """A run that has ended stays so, an error stays an error, and an ended run takes no question and no note."""
    seen: list[Seen] = []
    for call in calls:
        rank: int | None = None
        if call.outcome == OK and call.verb in ("status", "update", "submit"):
            phase = call.result["phase"] if call.verb == "status" else call.result
            rank = 0 if phase not in FINISHED else 2 if phase == "error" else 1
        elif call.outcome == OK and call.verb in ("ask", "tell"):
            rank = 0
        elif call.outcome == REFUSED and call.result == "run_finished":
            seen.append(Seen(call.begin, call.end, 1, call, at_least=True))
        if rank is not None:
            seen.append(Seen(call.begin, call.end, rank, call))
    yield from backwards(f"run {run_id}", seen)
    shown = {each.rank for each in seen if each.rank > 0 and not each.at_least}
    if len(shown) > 1:
        yield f"run {run_id} ended in two ways"


def _summaries(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """The summary that is shown was written, not refused, and not followed by another one before the look began."""
    writes = {call.args["text"]: call for call in of(calls, "update", "submit", outcome=None)}
    for look in of(calls, "status"):
        text = str(look.result["summary"])
        # An outcome that was submitted may stand behind a word on its kind.
        write = writes.get(text) or next((call for key, call in writes.items() if text.endswith(key)), None)
        begun = write.begin if write else -inf
        if look.result["summary"] is not None and (write is None or write.outcome == REFUSED or begun > look.end):
            yield f"nobody had written the summary {text!r}: {look}"
        written = write.end if write and write.outcome == OK else -inf if write is None else inf
        later = [
            call for call in of(writes.values(), "update", "submit") if written < call.begin < call.end < look.begin
        ]
        if later:
            yield f"a summary was lost: {later[0]} before {look}"


def _notes(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """A note is among the last ones until enough others may have come behind it."""
    tells = {call.args["text"]: call for call in of(calls, "tell", outcome=None)}
    looks_at = of(calls, "status")
    since = {text: call.end for text, call in tells.items() if call.outcome == OK}
    for look in looks_at:
        for text in look.result["notes"]:
            since[text] = min(look.end, since.get(text, inf))
            if text not in tells or tells[text].outcome == REFUSED or tells[text].begin > look.end:
                yield f"nobody had left the note {text!r}: {look}"
    for look in looks_at:
        shown = look.result["notes"]
        for text, end in since.items():
            newer = [
                other for other in shown if other in tells and text in tells and tells[other].end > tells[text].begin
            ]
            if end < look.begin and text not in shown and len(newer) < KEPT_NOTES:
                yield f"the note {text!r} is not there any more: {look}"


def _journal(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """The journal counts without a gap; holds what was acknowledged once, nothing that was refused or that nobody did;
    in an order in which the calls can have come; and nothing begins behind the end of the run."""
    if [line["seq"] for line in journal] != list(range(1, len(journal) + 1)):
        yield f"the journal of {run_id} does not count without a gap"
    held: Counter[tuple[str, str]] = Counter()
    order: list[Seen] = []
    ended = False
    for line in journal:
        if line["type"] in ("asked", "told") and ended:
            yield f"behind the end of {run_id}: {line}"
        ended = ended or line["type"] == "submitted" or line.get("status") in FINISHED
        if line["type"] not in WRITTEN or line.get("by") == "default":
            continue
        verb, field, name = WRITTEN[line["type"]]
        key = verb, str(line.get(field))
        held[key] += 1
        mine = [call for call in calls if call.verb == verb and call.args[name] == key[1]]
        if not mine or mine[0].outcome == REFUSED:
            yield f"nobody did, or it was refused: {line}"
        else:
            order.append(Seen(mine[0].begin, mine[0].end, line["seq"], mine[0]))
    yield from backwards(f"the journal of {run_id}", order)
    yield from _held(calls, held)
    yield from _shown(run_id, calls, journal)


def _held(calls: Sequence[Call], held: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for verb, _, name in WRITTEN.values():
        for call in of(calls, verb, outcome=None):
            times = held.get((verb, call.args[name]), 0)
            if call.outcome == OK and times == 0:
                yield f"it was acknowledged and is not there: {call}"
            if times > 1 and not (verb == "reply" and call.args.get("which") == "all"):
                yield f"it is there {times} times: {call}"


def _shown(run_id: str, calls: Sequence[Call], journal: Sequence[Record]) -> Iterator[str]:
    """What anybody was shown stands in the journal, whoever did it."""
    asked = {line["messageId"] for line in journal if line["type"] == "asked"}
    replied = {(line["messageId"], line.get("answer")) for line in journal if line["type"] == "replied"}
    told = {line.get("text") for line in journal if line["type"] == "told"}
    # A default counts from its deadline on, and is written down by the next who writes.
    replied |= {(line["messageId"], line.get("default")) for line in journal if line["type"] == "asked"}
    for call in of(calls, "status", "check", "pending"):
        shown = entries(run_id, call)
        answers = {(message_id, answer) for message_id, state, answer in shown if state in ("ANSWERED", "RETRIEVED")}
        notes = set(call.result["notes"]) if call.verb == "status" else set()
        if {message_id for message_id, _, _ in shown} - asked or notes - told:
            yield f"what was shown is not in the journal: {call}"
        if answers - replied:
            yield f"an answer that was shown is not in the journal: {call}"

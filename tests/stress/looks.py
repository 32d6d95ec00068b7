"""What the calls of a history tell of each question and run, as looks that can be put in order.

Promise: two looks are in order where one had ended before the other began; otherwise either may have been the first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from tests.stress.history import OK, REFUSED, Call

RANKS = {"PENDING": 0, "ANSWERED": 1, "RETRIEVED": 2, "EXPIRED": 2}
ABSENT = -1


class Seen(NamedTuple):
    """At some moment between begin and end the thing had this rank, or at least this one."""

    begin: float
    end: float
    rank: int
    call: Call
    at_least: bool = False


def of(calls: Iterable[Call], *verbs: str, outcome: str | None = OK) -> list[Call]:
    return [call for call in calls if call.verb in verbs and outcome in (None, call.outcome)]


def backwards(what: str, seen: Sequence[Seen]) -> Iterator[str]:
    """A look that shows less than one that had ended before it began."""
    by_end = sorted(seen, key=lambda each: each.end)
    place, most = 0, None
    for look in sorted(seen, key=lambda each: each.begin):
        while place < len(by_end) and by_end[place].end < look.begin:
            if most is None or by_end[place].rank > most.rank:
                most = by_end[place]
            place += 1
        if most is not None and not look.at_least and look.rank < most.rank:
            yield f"{what} went back from {most.rank} to {look.rank}: {most.call} and then {look.call}"


class Look(NamedTuple):
    """What a call tells of one question: the exact state and answer too, where it shows them."""

    seen: Seen
    state: str | None = None
    answer: str | None = None


def looks(run_id: str, calls: Sequence[Call]) -> dict[str, list[Look]]:
    """What every call tells of every question of a run that anybody was told of."""
    there = _there(run_id, calls)
    found: dict[str, list[Look]] = {message_id: [] for message_id in there}
    for call in calls:
        for message_id, look in (*_told(run_id, call), *_left_out(run_id, call, there)):
            found.setdefault(message_id, []).append(look)
    return found


def _there(run_id: str, calls: Sequence[Call]) -> dict[str, float]:
    """Since when each question is known to be there."""
    since = {call.result: call.end for call in of(calls, "ask")}
    for call in of(calls, "status"):
        for message_id, _, _ in entries(run_id, call):
            since[message_id] = min(call.end, since.get(message_id, inf))
    return since


def _told(run_id: str, call: Call) -> Iterator[tuple[str, Look]]:
    def at_least(rank: int) -> Look:
        return Look(Seen(call.begin, call.end, rank, call, at_least=True))

    if call.verb == "reply" and (call.outcome, call.result) == (REFUSED, "not_pending"):
        yield call.args["message"], at_least(1)
    if call.outcome != OK:
        return
    if call.verb == "ask":
        yield call.result, at_least(0)
    elif call.verb == "reply":
        yield from ((message_id, at_least(1)) for message_id in call.result)
    elif call.verb in ("check", "status", "pending"):
        for message_id, state, answer in entries(run_id, call):
            yield message_id, Look(Seen(call.begin, call.end, RANKS[state], call), state, answer)


def _left_out(run_id: str, call: Call, there: Mapping[str, float]) -> Iterator[tuple[str, Look]]:
    """A list of what is pending leaves out what is not; a list of everything leaves out what is not there."""
    if call.outcome != OK or call.verb not in ("status", "pending"):
        return
    some = call.verb == "pending"
    listed = {message_id for message_id, _, _ in entries(run_id, call)}
    for message_id, since in there.items():
        if since < call.begin and message_id not in listed:
            yield message_id, Look(Seen(call.begin, call.end, 1 if some else ABSENT, call, at_least=some))


def entries(run_id: str, call: Call) -> list[tuple[str, str, str | None]]:
    """The questions that a call shows, with state and answer."""
    if call.verb == "pending":
        return [(message_id, "PENDING", None) for owner, message_id in call.result if owner == run_id]
    if call.verb == "check":
        return [(call.args["message"], call.result["state"], call.result["answer"])]
    return [(message_id, state, answer) for message_id, state, answer in call.result["messages"]]

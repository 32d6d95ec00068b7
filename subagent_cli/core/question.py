"""A question of a worker to its parent, and how it is written into `.meta.json`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from subagent_cli.core.document import EXPIRED_MARK, Document
from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.moment import Moment, iso
from subagent_cli.core.value import Value

PENDING = "PENDING"
ANSWERED = "ANSWERED"
RETRIEVED = "RETRIEVED"
EXPIRED = "EXPIRED"

WORDS = {
    PENDING: "pending_parent_reply",
    ANSWERED: "parent_replied",
    RETRIEVED: "acknowledged_by_subagent",
    EXPIRED: "parent_acknowledged",
}
STATES = {word: state for state, word in WORDS.items()}

FEWEST_OPTIONS, MOST_OPTIONS = 2, 4
NO_EXTRAS: Mapping[str, Any] = MappingProxyType({})


class Question(Value):
    """`closing` is what stands in `answerContent`: the answer, or for an expired question the sentence that says so."""

    id: str
    text: str
    asked_at: str
    asked: Moment
    state: str = PENDING
    closing: str | None = None
    closed_at: str | None = None
    options: tuple[str, ...] = ()
    default: str | None = None
    deadline: int | None = None
    extras: Mapping[str, Any] = NO_EXTRAS

    @property
    def answer(self) -> str | None:
        return self.closing if self.state in (ANSWERED, RETRIEVED) else None

    @property
    def content(self) -> str:
        """The question as any parent reads it: with its options, which have no key of their own in the document."""
        if not self.options:
            return self.text
        return "\n".join([self.text, "", *(f"{number}. {text}" for number, text in enumerate(self.options, 1))])

    def limit(self, ttl: int) -> int:
        """After how many milliseconds it is no longer waited for."""
        return ttl if self.deadline is None else self.deadline


def message(question: Question) -> Document:
    """One entry of `messages`, without any key or word that the server would refuse."""
    entry: Document = {
        "messageId": question.id,
        "questionContent": question.content,
        "questionTimestamp": question.asked_at,
    }
    if question.state != PENDING:
        entry["answerContent"] = question.closing or ""
        entry["answerTimestamp"] = question.closed_at or question.asked_at
    entry["messageStatus"] = WORDS[question.state]
    entry.update(question.extras)
    return entry


def chosen(question: Question, answer: str) -> str:
    """The answer that is meant: with options, a bare number is the option of that number."""
    number = answer.strip()
    if not question.options or not number.isdecimal():
        return answer
    numbered = {str(place): text for place, text in enumerate(question.options, 1)}
    if number.lstrip("0") not in numbered:
        raise InvalidInput(
            f"there is no option {number[:20]}: the question has {len(numbered)}",
            code="no_such_option",
            hint="answer with an option's number, or in words",
            candidates=[f"{place}. {text}" for place, text in numbered.items()],
        )
    return numbered[number.lstrip("0")]


def expiry_text(question: Question, ttl: int, at: int) -> str:
    """What a worker that polls through another program reads instead of an answer."""
    seconds = question.limit(ttl) // 1000
    return f"{EXPIRED_MARK} Nobody answered within {seconds} s (until {iso(at)}); go on without an answer."

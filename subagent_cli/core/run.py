"""A run as it stands: what its journal adds up to."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from subagent_cli.core.moment import Moment
from subagent_cli.core.question import ANSWERED, NO_EXTRAS, PENDING, Question

CREATED = "pending"
RUNNING = "running"
SUCCESS = "success"
COMPLETED = "completed"
ERROR = "error"
FINISHED = (SUCCESS, COMPLETED, ERROR)

WAITING = "waiting_parent_reply"
REPLIED = "parent_replied"


class Note(NamedTuple):
    """Something that a worker told its parent without waiting for an answer."""

    at: str
    text: str


class Run(NamedTuple):
    """`phase` is where the run's life stands; what people see is `status`, which questions can overlay.

    A run that another program made may lack any key, so most values can be None: they are then left out of the
    document, or null where the server wants the key. `extras` are keys of others that the document carries along,
    `odd` are values of others that the server would refuse: they are kept here and left out of the document.
    `claim` is what a document of another program says about waiting while it holds no question; only readers see it.
    """

    id: str
    phase: str = CREATED
    agent: str | None = None
    command: str | None = None
    started_at: str | None = None
    exit_code: float | None = None
    ended_at: str | None = None
    summary: str | None = None
    updated_at: str | None = None
    kind: str | None = None
    shown_id: str | None = None
    questions: Mapping[str, Question] = NO_EXTRAS
    notes: tuple[Note, ...] = ()
    keys: Mapping[str, tuple[str, ...]] = NO_EXTRAS
    extras: Mapping[str, Any] = NO_EXTRAS
    odd: Mapping[str, Any] = NO_EXTRAS
    changed: Moment | None = None
    claim: str | None = None

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def status(self) -> str:
        """The word on disk: an unread reply first, then a waiting question, then the run's own phase."""
        if self.finished:
            return self.phase
        states = {question.state for question in self.questions.values()}
        if ANSWERED in states:
            return REPLIED
        if PENDING in states:
            return WAITING
        return self.claim if self.claim and not states else self.phase

    @property
    def state(self) -> str:
        """The exact state, where the word on disk is coarser."""
        if self.phase == ERROR and self.kind in ("cancelled", "timed_out", "lost"):
            return self.kind
        return self.status

    @property
    def pending(self) -> list[Question]:
        """The questions that wait for an answer, oldest first."""
        return [question for question in self.questions.values() if question.state == PENDING]

    @property
    def unread(self) -> list[Question]:
        return [question for question in self.questions.values() if question.state == ANSWERED]

    @property
    def active(self) -> bool:
        """Whether anybody may still have to do with it."""
        return not self.finished or bool(self.pending)

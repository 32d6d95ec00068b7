"""A run as it stands: what its journal adds up to."""

from collections.abc import Mapping
from typing import Any

from subagent_cli.core.delivery import Delivery
from subagent_cli.core.grant import NO_GRANTS, Grants
from subagent_cli.core.moment import Moment
from subagent_cli.core.question import ANSWERED, NO_EXTRAS, PENDING, Question
from subagent_cli.core.value import Value

CREATED = "pending"
RUNNING = "running"
SUCCESS = "success"
COMPLETED = "completed"
ERROR = "error"
FINISHED = (SUCCESS, COMPLETED, ERROR)

WAITING = "waiting_parent_reply"
REPLIED = "parent_replied"


class Note(Value):
    """Something that a worker told its parent without waiting for an answer."""

    at: str
    text: str


class Attempt(Value):
    """One go at the task that is over; a later one leaves it as it was."""

    number: int
    state: str
    kind: str | None
    outcome: str | None
    artifacts: tuple[str, ...]
    tools: tuple[str, ...]
    exit_code: float | None
    started_at: str | None
    ended_at: str | None


class Run(Value):
    """`phase` is where the run's life stands; what people see is `status`, which questions can overlay.

    A run that another program made may lack any key, so most values can be None: they are then left out of the
    document, or null where the server wants the key. `extras` are keys of others that the document carries along,
    `odd` are values of others that the server would refuse: they are kept here and left out of the document.
    `claim` is what a document of another program says about waiting while it holds no question; only readers see it.

    How a run ended and that its process has ended are two facts. `kept` says that a keeper of ours owns the process of
    this attempt, whose end is then an exit code, or `gone` where nobody saw it. `stop` is the grace in milliseconds
    that the process was given when somebody wanted it stopped; `submitted` says that the worker itself decided the
    outcome. `limit` is how many seconds a later attempt may take; what the first may take stands in its spec.

    `grants` are the capabilities that agents have on this run, `inbox` the messages that came for its own agent.
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
    grants: Grants = NO_GRANTS
    inbox: Mapping[str, Delivery] = NO_EXTRAS
    attempt: int = 1
    attempts: tuple[Attempt, ...] = ()
    launched_at: str | None = None
    active_at: str | None = None
    outcome: str | None = None
    artifacts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    kept: bool = False
    gone: bool = False
    stop: int | None = None
    submitted: bool = False
    session: str | None = None
    token_hash: str | None = None
    limit: float | None = None

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
    def alive(self) -> bool | None:
        """Whether its process is there, as far as is known; None where it is not ours to know."""
        return self.exit_code is None and not self.gone if self.kept else None

    @property
    def over(self) -> bool:
        """Whether the outcome is decided and the process has ended."""
        return self.finished and not self.alive

    @property
    def stopping(self) -> bool:
        """Whether somebody wants it to end and it has not: not its worker, whatever that says of itself, and not its
        time limit."""
        return not self.over and self.stop is not None and self.kind != "timed_out"

    @property
    def active(self) -> bool:
        """Whether anybody may still have to do with it."""
        return not self.over or bool(self.pending)

    @property
    def text(self) -> str | None:
        """What came of it, in words: what was submitted or put out last, else its summary."""
        return self.outcome if self.outcome is not None else self.summary

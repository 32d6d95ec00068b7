"""Events: what has happened to a run, as values and as the records that stand in its journal.

A record is the event's type and its fields in camelCase, empty ones left out. Fields that a newer release added are
passed over; a type that is not known here refuses to be read, since ignoring it would make the rest untrue.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from subagent_cli.core.errors import Damaged
from subagent_cli.core.moment import Moment, moment

Record = dict[str, Any]


class Created(NamedTuple):
    """The run exists; `phase` says whether its process is already under way, `kept` whether a keeper of ours has it."""

    at: Moment
    run_id: str
    agent: str
    command: str
    phase: str
    kept: bool | None = None
    session: str | None = None


class Observed(NamedTuple):
    """Somebody else's write to `.meta.json`, as far as it is not a happening of its own.

    `keys` and `messages` are taken over; `odd` holds values that the document's schema has no place for.
    """

    at: Moment
    keys: Mapping[str, Any] = {}
    messages: Mapping[str, Mapping[str, Any]] = {}
    odd: Mapping[str, Any] = {}


class Asked(NamedTuple):
    at: Moment
    message_id: str
    question: str
    timestamp: str
    options: tuple[str, ...] = ()
    default: str | None = None
    deadline: int | None = None
    key: str | None = None
    extras: Mapping[str, Any] = {}


class Told(NamedTuple):
    at: Moment
    text: str


class Replied(NamedTuple):
    """`by` is empty for a parent, `default` where the question's own default stepped in at its deadline."""

    at: Moment
    message_id: str
    answer: str
    timestamp: str
    by: str | None = None
    key: str | None = None


class Acknowledged(NamedTuple):
    at: Moment
    message_ids: tuple[str, ...]


class Expired(NamedTuple):
    at: Moment
    message_id: str
    text: str
    timestamp: str


class Reported(NamedTuple):
    """A self-report: status, and a summary where one was given."""

    at: Moment
    status: str
    timestamp: str | None = None
    summary: str | None = None
    kind: str | None = None
    ended_at: str | None = None


class Submitted(NamedTuple):
    """The worker has decided the outcome: `word` is result or error."""

    at: Moment
    word: str
    text: str
    timestamp: str
    kind: str | None = None
    artifacts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class Stopped(NamedTuple):
    """The run was ended from outside: `kind` is cancelled, timed_out or lost. A decided outcome stays.

    `grace` is what its process gets to end by itself, in milliseconds; `gone` says that there is none any more.
    """

    at: Moment
    kind: str
    text: str
    timestamp: str
    grace: int | None = None
    gone: bool | None = None


class Exited(NamedTuple):
    """The process is gone; a status that the worker reported itself stands above the exit code.

    `output` is what it put out last, which is the result of a run that ended well without submitting one.
    """

    at: Moment
    exit_code: float
    timestamp: str
    summary: str | None = None
    output: str | None = None
    tools: tuple[str, ...] = ()


class Resumed(NamedTuple):
    """Another attempt at an ended run; what the earlier ones came to stays. `told` are the messages that it was started
    with, `limit` is how many seconds it may take."""

    at: Moment
    attempt: int
    command: str
    text: str
    token_hash: str
    session: str | None = None
    key: str | None = None
    told: tuple[str, ...] = ()
    limit: float | None = None


class Granted(NamedTuple):
    """An agent, or the operator, gave a capability on this run; `lasts` is in milliseconds."""

    at: Moment
    grantor: str
    grantee: str
    capability: str
    lasts: int | None = None


class Revoked(NamedTuple):
    at: Moment
    grantor: str
    grantee: str
    capability: str


class Delivered(NamedTuple):
    """A message came for the agent. What it is told of it is `text`; the content stays where it is stored."""

    at: Moment
    message_id: str
    sender: str
    text: str
    sha256: str
    in_reply_to: str | None = None
    notice: bool | None = None


Event = (
    Created
    | Observed
    | Asked
    | Told
    | Replied
    | Acknowledged
    | Expired
    | Reported
    | Submitted
    | Stopped
    | Exited
    | Resumed
    | Granted
    | Revoked
    | Delivered
)

_TYPES: dict[str, Any] = {kind.__name__.lower(): kind for kind in get_args(Event)}


def _camel(field: str) -> str:
    head, *tail = field.split("_")
    return head + "".join(part.capitalize() for part in tail)


_FIELDS: dict[str, list[tuple[str, str]]] = {
    name: [(field, _camel(field)) for field in kind._fields if field != "at"] for name, kind in _TYPES.items()
}


def kind_of(event: Event) -> str:
    return type(event).__name__.lower()


def record(event: Event) -> Record:
    """The event as it is written down."""
    written: Record = {"at": event.at.iso, "clock": event.at.clock, "type": kind_of(event)}
    for field, key in _FIELDS[kind_of(event)]:
        value = getattr(event, field)
        if value is not None and value != () and value != {}:
            written[key] = value
    return written


def event(written: Record) -> Event:
    """The event that a record speaks of."""
    name = written.get("type")
    if not isinstance(name, str) or name not in _TYPES:
        raise Damaged(
            f"the journal holds an event of an unknown type: {str(name)[:40]!r}",
            code="newer_journal",
            hint="a newer subagent wrote it: upgrade this one",
        )
    known: dict[str, Any] = {"at": moment(str(written.get("at", "")), str(written.get("clock", "")))}
    for field, key in _FIELDS[name]:
        if key in written:
            value = written[key]
            known[field] = tuple(value) if isinstance(value, list) else value
    try:
        made: Event = _TYPES[name](**known)
    except TypeError as missing:
        raise Damaged(f"the journal holds an incomplete event: {missing}") from missing
    return made

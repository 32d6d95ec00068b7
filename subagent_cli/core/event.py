"""Events: what has happened to a run, as values and as the records that stand in its journal.

A record is the event's type and its fields in camelCase, empty ones left out. Fields that a newer release added are
passed over; a type that is not known here refuses to be read, since ignoring it would make the rest untrue.
"""

from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args, get_origin

from subagent_cli.core.errors import Damaged
from subagent_cli.core.moment import Moment, moment
from subagent_cli.core.value import Value

Record = dict[str, Any]


class Created(Value):
    """The run exists; `phase` says whether its process is already under way, `kept` whether a keeper of ours has it."""

    at: Moment
    run_id: str
    agent: str
    command: str
    phase: str
    kept: bool | None = None
    session: str | None = None


class Observed(Value):
    """Somebody else's write to `.meta.json`, as far as it is not a happening of its own.

    `keys` and `messages` are taken over; `odd` holds values that the document's schema has no place for.
    """

    at: Moment
    keys: Mapping[str, Any] = {}
    messages: Mapping[str, Mapping[str, Any]] = {}
    odd: Mapping[str, Any] = {}


class Asked(Value):
    at: Moment
    message_id: str
    question: str
    timestamp: str
    options: tuple[str, ...] = ()
    default: str | None = None
    deadline: int | None = None
    key: str | None = None
    extras: Mapping[str, Any] = {}


class Told(Value):
    at: Moment
    text: str


class Replied(Value):
    """`by` is empty for a parent, `default` where the question's own default stepped in at its deadline."""

    at: Moment
    message_id: str
    answer: str
    timestamp: str
    by: str | None = None
    key: str | None = None


class Acknowledged(Value):
    at: Moment
    message_ids: tuple[str, ...]


class Expired(Value):
    at: Moment
    message_id: str
    text: str
    timestamp: str


class Reported(Value):
    """A self-report: status, and a summary where one was given."""

    at: Moment
    status: str
    timestamp: str | None = None
    summary: str | None = None
    kind: str | None = None
    ended_at: str | None = None


class Submitted(Value):
    """The worker has decided the outcome: `word` is result or error."""

    at: Moment
    word: str
    text: str
    timestamp: str
    kind: str | None = None
    artifacts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class Stopped(Value):
    """The run was ended from outside: `kind` is cancelled, timed_out or lost. A decided outcome stays.

    `grace` is what its process gets to end by itself, in milliseconds; `gone` says that there is none any more.
    """

    at: Moment
    kind: str
    text: str
    timestamp: str
    grace: int | None = None
    gone: bool | None = None


class Exited(Value):
    """The process is gone; a status that the worker reported itself stands above the exit code.

    `output` is what it put out last, which is the result of a run that ended well without submitting one.
    """

    at: Moment
    exit_code: float
    timestamp: str
    summary: str | None = None
    output: str | None = None
    tools: tuple[str, ...] = ()


class Resumed(Value):
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


class Granted(Value):
    """An agent, or the operator, gave a capability on this run; `lasts` is in milliseconds."""

    at: Moment
    grantor: str
    grantee: str
    capability: str
    lasts: int | None = None


class Revoked(Value):
    at: Moment
    grantor: str
    grantee: str
    capability: str


class Delivered(Value):
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


def _written_as(hint: Any) -> frozenset[type]:
    """What a field of this type is once it has been through JSON."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    written: dict[Any, tuple[type, ...]] = {tuple: (list,), Mapping: (dict,), float: (int, float)}
    return frozenset(found for kind in kinds for found in written.get(get_origin(kind) or kind, (kind,)))


_ABSENT: Any = object()
_Field = tuple[str, str, frozenset[type], Any]
# Asked for one by one, since a call meets few of them.
_FIELDS: dict[str, list[_Field]] = {}


def _fields(name: str) -> list[_Field]:
    """The fields of an event behind its moment: how they are called in Python and in JSON, what stands there, and what
    holds where nothing does."""
    if name not in _FIELDS:
        kind = _TYPES[name]
        hints, defaults = kind.__annotations__, kind._field_defaults
        _FIELDS[name] = [
            (field, _camel(field), _written_as(hints[field]), defaults.get(field, _ABSENT))
            for field in kind._fields
            if field != "at"
        ]
    return _FIELDS[name]


def kind_of(event: Event) -> str:
    return type(event).__name__.lower()


def record(event: Event) -> Record:
    """The event as it is written down."""
    written: Record = {"at": event.at.iso, "clock": event.at.clock, "type": kind_of(event)}
    for field, key, *_ in _fields(kind_of(event)):
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
    at, clock = written.get("at"), written.get("clock", "")
    if not isinstance(at, str) or not isinstance(clock, str):
        raise _senseless("at")
    values: list[Any] = [moment(at, clock)]
    for _, key, kinds, default in _fields(name):
        value = written.get(key, _ABSENT)
        if value is _ABSENT:
            value = default
            if value is _ABSENT:
                raise Damaged(f"the journal holds an incomplete event: {name} without {key}")
        # The checksum only says that the line is as somebody wrote it.
        elif type(value) not in kinds:
            raise _senseless(key)
        elif type(value) is list:
            if not all(isinstance(item, str) for item in value):
                raise _senseless(key)
            value = tuple(value)
        values.append(value)
    made: Event = _TYPES[name](*values)
    return made


def _senseless(key: str) -> Damaged:
    return Damaged(
        f"the journal holds an event that makes no sense: its {key}",
        code="damaged_journal",
        hint="nothing was changed; `subagent doctor --fix` saves the lines that are whole",
    )

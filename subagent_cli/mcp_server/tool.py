"""A tool as data: its name, what it takes and gives, what may be expected of it, and the function behind it.

Where two programs call one argument by different names, both are taken: `also` leads from the other name to ours. An
argument that nobody knows is refused, since whoever misspells one would never learn of it.
"""

from collections.abc import Callable, Mapping
from inspect import cleandoc
from threading import Event
from typing import Any

from subagent_cli.core.moment import duration
from subagent_cli.core.value import Value
from subagent_cli.services.context import Context, Payload

Schema = dict[str, Any]


class Length(Schema):
    """A length of time: published as a number, since some models take no argument that may be one thing or another, and
    taken as a text such as `5m` all the same."""


EVERYBODY, PARENTS, WORKERS = "everybody", "parents", "workers"


class Hints(Value):
    """What a client may assume before it asks its user."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


LOOKS = Hints(read_only=True, idempotent=True)
ADDS = Hints()
SETTLES = Hints(idempotent=True)
ENDS = Hints(destructive=True, idempotent=True)
STARTS = Hints(open_world=True)


class Said(Value):
    """What a tool has to say: data, the same for a reader (the data as JSON where there is no text), and whether it is
    the news of a failure."""

    data: Payload
    text: str | None = None
    failed: bool = False


class Call:
    """One call of a tool. `stopped` is set when nobody wants its answer any more; `note` is how far it is."""

    def __init__(self, context: Context, arguments: Mapping[str, Any]) -> None:
        self.context, self.arguments = context, arguments
        self.stopped, self.note = Event(), ""

    def get(self, name: str, default: Any = None) -> Any:
        return self.arguments.get(name, default)

    def length(self, name: str, default: int | None = None) -> int | None:
        """A length of time in milliseconds: seconds, or a text such as `5m`. Nothing at all is none."""
        given = self.get(name)
        if given is None:
            return default
        return 0 if given in (0, "0") else duration(str(given))


class Tool(Value):
    """What the tool is for stands in its function's docstring."""

    name: str
    does: Callable[[Call], Said]
    hints: Hints
    takes: Mapping[str, Schema]
    gives: Schema
    needs: tuple[str, ...] = ()
    also: Mapping[str, str] = {}
    offered: str = EVERYBODY
    patient: bool = False

    @property
    def description(self) -> str:
        return " ".join(cleandoc(self.does.__doc__ or "").split())

    @property
    def input_schema(self) -> Schema:
        """What a client is told; an argument that has two names is not demanded by either."""
        others = {
            name: {**self.takes[ours], "description": f"Another name for {ours}."} for name, ours in self.also.items()
        }
        return {
            "type": "object",
            "properties": {**self.takes, **others},
            "required": [name for name in self.needs if name not in self.also.values()],
            "additionalProperties": False,
        }


def text(description: str) -> Schema:
    return {"type": "string", "description": description}


def one_of(choices: tuple[str, ...], description: str) -> Schema:
    return {"type": "string", "enum": list(choices), "description": description}


def texts(description: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def flag(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def count(description: str) -> Schema:
    return {"type": "integer", "minimum": 1, "description": description}


def length(description: str) -> Schema:
    return Length({"type": "number", "description": f"{description} In seconds."})


def table(description: str) -> Schema:
    return {"type": "object", "description": description}


def gives(**properties: Schema) -> Schema:
    """The form of an answer: what it has at least. What the services add to it later is welcome."""
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
TABLES: Schema = {"type": "array", "items": {"type": "object"}}
TABLE: Schema = {"type": "object"}
YES_OR_NO: Schema = {"type": "boolean"}

RUN = text("Which run: its id, the beginning or end of it, or its name.")
OWN_RUN = text("Which run: its id, a part of it, or its name; a worker's own where it is left out.")
KEY: Schema = {**text("Idempotency key: a repetition with the same key does it once."), "minLength": 1}

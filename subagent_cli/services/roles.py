"""Roles: what an agent is among those that work on something together, and in which form it takes and gives.

A form is a JSON Schema. It is stored, shown, and told to the agent; nothing is checked against it, since a result is a
text. Whoever wants what an agent writes to be checked has it write a typed message.
"""

from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.value import Value
from subagent_cli.services.context import Payload
from subagent_cli.store import codec

GENERIC = "generic"
TYPES = ("critic", "grader", "optimizer", GENERIC)
_HINT = "a JSON object, @FILE that holds one, or a schema of `subagent schemas`"


class Role(Value):
    type: str = GENERIC
    input_schema: Payload | None = None
    output_schema: Payload | None = None


PLAIN = Role()


def role(
    type: str | None = None, input_schema: object = None, output_schema: object = None, common: Role = PLAIN
) -> Role:
    """A role that was found good; what is not said is as in the common one. A form is given as an object, or as a text
    that names or holds one."""
    if type is not None and type not in TYPES:
        raise InvalidInput(f"there is no type of agent {type[:40]!r}", code="unknown_type", candidates=TYPES)
    takes, gives = _form(input_schema, "input schema"), _form(output_schema, "output schema")
    return Role(
        type or common.type,
        common.input_schema if takes is None else takes,
        common.output_schema if gives is None else gives,
    )


def _form(given: object, what: str) -> Payload | None:
    if given is None:
        return None
    form = _spelled(given, what) if isinstance(given, str) else given
    if isinstance(form, dict) and codec.is_shallow(form):
        return form
    raise InvalidInput(f"the {what} is not a JSON object, or nested too deeply", code="invalid_schema", hint=_HINT)


def _spelled(text: str, what: str) -> object:
    from subagent_cli.services import messages

    if text in messages.NAMES:
        return messages.catalogue()[text]["json_schema"]
    try:
        if text.startswith("@"):
            with open(text[1:], "rb") as file:
                return codec.load(file.read())
        return codec.load(codec.encoded(text))
    except OSError as error:
        raise InvalidInput(f"the {what} cannot be read: {error}", code="unreadable_file") from error
    except ValueError as error:
        raise InvalidInput(f"the {what} is not valid JSON: {error}", code="invalid_schema", hint=_HINT) from error

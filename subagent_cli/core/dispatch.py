"""A dispatch: what is asked of a throwaway child, and what it hands back.

What `normalized` lets through is fit to be handed on as it stands: texts without blanks around them, within their
limits and in ASCII, sequences as tuples. What it refuses is named by its field, and nothing has happened then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from subagent_cli.core.errors import InvalidInput, SubagentError

SubagentMode = Literal["plan_step", "ad_hoc"]

MODES: tuple[SubagentMode, ...] = ("plan_step", "ad_hoc")
LONGEST_INSTRUCTIONS = 2000
LONGEST_ARTIFACT = 160
# The rule for texts as a JSON Schema can say it: ASCII, with something to see in it.
ASCII_PATTERN = r"^[\x00-\x20\x7F]*[!-~][\x00-\x7F]*$"


class ToolValidationError(InvalidInput, ValueError):
    """What was asked cannot be meant. `field` names what is wrong, where it is one field."""

    code = "invalid_dispatch"

    def __init__(
        self, message: str, *, field: str | None = None, hint: str | None = None, candidates: Sequence[str] = ()
    ) -> None:
        super().__init__(message, hint=hint, candidates=candidates)
        self.field = field


class DispatchSubagentError(SubagentError):
    """It was asked rightly, and the child did not come to a result."""

    code = "dispatch_failed"


@dataclass(slots=True, frozen=True)
class DispatchSubagent:
    """What is asked of a child. Anything may stand in it until it is `normalized`."""

    mode: SubagentMode
    prompt_ns: str
    prompt_key: str
    instructions: str
    expected_artifacts: tuple[str, ...] = ()
    plan_step_id: str | None = None


@dataclass(slots=True, frozen=True)
class DispatchSubagentResult:
    """What a child hands back. `tools_used` may be left out by whoever cannot tell."""

    message_summary: str
    artifacts: tuple[str, ...] = ()
    tools_used: tuple[str, ...] = ()


FIELDS = tuple(field.name for field in fields(DispatchSubagent))
REQUIRED = ("mode", "instructions")


def requested(table: object) -> DispatchSubagent:
    """The request that a table of fields asks for, normalised. The names of the prompt may be left out."""
    if not isinstance(table, Mapping):
        raise ToolValidationError(f"a dispatch is a table of {', '.join(FIELDS)}.")
    for name in table:
        if name not in FIELDS:
            # Half a character in it would be an error of its own for whoever tells of this one.
            shown = str(name)[:40].encode("utf-8", "backslashreplace").decode()
            raise ToolValidationError(f"{shown} is no field of a dispatch.", field=shown, candidates=FIELDS)
    for name in REQUIRED:
        if name not in table:
            raise ToolValidationError(f"{name} is required.", field=name)
    return normalized(DispatchSubagent(**{"prompt_ns": "", "prompt_key": "", **table}))


def normalized(request: DispatchSubagent) -> DispatchSubagent:
    """A request as a runner may rely on it, or ToolValidationError. Normalising twice changes nothing more."""
    mode = _mode(request.mode)
    return DispatchSubagent(
        mode=mode,
        prompt_ns=_name(request.prompt_ns, "prompt_ns"),
        prompt_key=_name(request.prompt_key, "prompt_key"),
        instructions=_text(request.instructions, "instructions", LONGEST_INSTRUCTIONS),
        expected_artifacts=_labels(request.expected_artifacts, "expected_artifacts"),
        plan_step_id=_plan_step_id(request.plan_step_id, mode),
    )


def delivered(given: object) -> DispatchSubagentResult:
    """What a runner gave back, its sequences as tuples; DispatchSubagentError where it is no result."""
    if isinstance(given, DispatchSubagentResult) and _are_texts((given.message_summary,)):
        artifacts, tools_used = given.artifacts, given.tools_used
        if _are_texts(artifacts) and _are_texts(tools_used):
            return replace(given, artifacts=tuple(artifacts), tools_used=tuple(tools_used))
    raise DispatchSubagentError("invalid result payload")


def missing(request: DispatchSubagent, result: DispatchSubagentResult) -> tuple[str, ...]:
    """Which artifacts were expected and not delivered, each once."""
    return tuple(name for name in dict.fromkeys(request.expected_artifacts) if name not in result.artifacts)


def is_plain(summary: str) -> bool:
    """Whether a summary can be shown to a user wherever it has to be."""
    return summary.isascii()


def shortfalls(request: DispatchSubagent, result: DispatchSubagentResult) -> tuple[str, ...]:
    """In a sentence each, what was agreed and not kept. None of it makes a result a failure."""
    found = [f"an expected artifact was not delivered: {name}" for name in missing(request, result)]
    if not is_plain(result.message_summary):
        found.append("the summary is not plain ASCII")
    return tuple(found)


def _mode(value: object) -> SubagentMode:
    for mode in MODES:
        if value == mode:
            return mode
    raise ToolValidationError("mode must be 'plan_step' or 'ad_hoc'.", field="mode", candidates=MODES)


def _name(value: object, field: str) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            # JSON can spell half a character, which no file and no model will take.
            raise ToolValidationError(f"{field} must be valid text.", field=field) from None
        return value
    raise ToolValidationError(f"{field} must be text.", field=field)


def _text(value: object, field: str, longest: int | None = None) -> str:
    if not isinstance(value, str):
        raise ToolValidationError(f"{field} must be text.", field=field)
    text = value.strip()
    if not text:
        raise ToolValidationError(f"{field} must be non-empty ASCII text.", field=field)
    if longest is not None and len(text) > longest:
        raise ToolValidationError(f"{field} must be <= {longest} characters of ASCII text.", field=field)
    if not text.isascii():
        raise ToolValidationError(f"{field} must contain only ASCII characters.", field=field)
    return text


def _labels(values: object, field: str) -> tuple[str, ...]:
    # A bare text is a sequence too, of its letters.
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Sequence):
        raise ToolValidationError(f"{field} must be a sequence of ASCII texts.", field=field)
    return tuple(_text(value, field, LONGEST_ARTIFACT) for value in values)


def _plan_step_id(value: object, mode: SubagentMode) -> str | None:
    field = "plan_step_id"
    if not (value is None or isinstance(value, str)):
        raise ToolValidationError(f"{field} must be text.", field=field)
    if mode != "plan_step":
        return None
    if value is None:
        raise ToolValidationError(f"{field} is required when mode is 'plan_step'.", field=field)
    return _text(value, field)


def _are_texts(values: object) -> bool:
    return isinstance(values, tuple | list) and all(isinstance(value, str) for value in values)

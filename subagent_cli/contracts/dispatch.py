"""Dispatches as they come from a file or through a pipe: one payload, or a batch of them.

Core decides what a dispatch may say, so the verdict here is the verdict there. The JSON Schema tells it to those who
cannot ask: whatever it accepts is accepted. It is a little stricter, since it counts the blanks around a text and wants
something in it to see.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from subagent_cli.core.dispatch import (
    ASCII_PATTERN,
    LONGEST_ARTIFACT,
    LONGEST_INSTRUCTIONS,
    DispatchSubagent,
    SubagentMode,
    ToolValidationError,
    requested,
)

_PLAN_STEP_HAS_ITS_ID: dict[str, Any] = {
    "if": {"properties": {"mode": {"const": "plan_step"}}},
    "then": {
        "required": ["plan_step_id"],
        "properties": {"plan_step_id": {"type": "string", "pattern": ASCII_PATTERN}},
    },
}


class DispatchRequest(BaseModel):
    """What is asked of a throwaway child. Blanks around texts are taken off; other keys are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=_PLAN_STEP_HAS_ITS_ID)

    mode: SubagentMode = Field(description="Whether the child does a step of the parent's plan, or anything else.")
    prompt_ns: str = Field(default="", description="Where the child's prompt belongs; handed on as it is.")
    prompt_key: str = Field(default="", description="Which prompt of that place it is; handed on as it is.")
    instructions: str = Field(
        min_length=1,
        max_length=LONGEST_INSTRUCTIONS,
        description="What the child is to do, in ASCII.",
        json_schema_extra={"pattern": ASCII_PATTERN},
    )
    expected_artifacts: tuple[
        Annotated[str, Field(min_length=1, max_length=LONGEST_ARTIFACT, json_schema_extra={"pattern": ASCII_PATTERN})],
        ...,
    ] = Field(default=(), description="What the child is to deliver, a label in ASCII each.")
    plan_step_id: str | None = Field(
        default=None, description="Which step of the plan it is, in ASCII; required for plan_step, dropped for ad_hoc."
    )

    @model_validator(mode="before")
    @classmethod
    def _as_core_decides(cls, table: object) -> dict[str, Any]:
        return asdict(requested(table))

    def request(self) -> DispatchSubagent:
        return DispatchSubagent(**self.model_dump())


def request_from(table: object) -> DispatchSubagent:
    """The request that a payload asks for, normalised; ToolValidationError names the field that is wrong."""
    try:
        return DispatchRequest.model_validate(table).request()
    except ValidationError as error:
        # What core raised comes back as it was, since it says more than pydantic's report of it.
        raise error.errors()[0]["ctx"]["error"] from None


def requests_from(table: object) -> tuple[DispatchSubagent, ...]:
    """The requests of a batch, in its order: a list of payloads, bare or as `requests`. One that is wrong fails all."""
    payloads = table["requests"] if isinstance(table, Mapping) and set(table) == {"requests"} else table
    if not isinstance(payloads, list | tuple):
        raise ToolValidationError('a batch is a list of dispatches, or {"requests": [...]}.', field="requests")
    return tuple(_at(place, payload) for place, payload in enumerate(payloads))


def _at(place: int, payload: object) -> DispatchSubagent:
    where = f"requests.{place}"
    try:
        return request_from(payload)
    except ToolValidationError as error:
        field = f"{where}.{error.field}" if error.field else where
        raise ToolValidationError(
            f"{where}: {error.message}", field=field, hint=error.hint, candidates=error.candidates
        ) from None

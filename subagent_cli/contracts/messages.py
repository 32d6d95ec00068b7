"""Typed messages between agents: the schemas there are, and what their content must be.

Content is turned into the validated form, with defaults filled in and numbers that were written as text read as
numbers; that form is what is stored. A key that a schema does not know is refused, unless the schema is open.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from subagent_cli.contracts.base import Untitled


class PlaintextMessage(BaseModel):
    """Words, for whatever needs no more form."""

    model_config = ConfigDict(extra="forbid")

    text: str


class StructuredCritique(BaseModel):
    """What a critic found: issues one by one, and notes in Markdown."""

    model_config = ConfigDict(extra="forbid")

    issues: list[dict[str, Any]] = Field(description="One object for each issue; its keys are the critic's own.")
    notes_md: str = Field(description="Notes on the whole, in Markdown.")


class StructuredGrade(BaseModel):
    """How good a critique is: which share of the true issues it found, and which share of its issues are true."""

    model_config = ConfigDict(extra="allow")

    recall: float = Field(allow_inf_nan=False, description="The share of the true issues that were found.")
    precision: float = Field(allow_inf_nan=False, description="The share of the found issues that are true.")
    notes_md: str = Field(default="", description="Notes on the grade, in Markdown.")


SCHEMAS: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        "plaintext": PlaintextMessage,
        "structured_critique": StructuredCritique,
        "structured_grade": StructuredGrade,
    }
)


def catalogue() -> dict[str, dict[str, Any]]:
    """Each schema by its name, with what it is for and its JSON Schema."""
    return {
        name: {"description": model.__doc__, "json_schema": model.model_json_schema(schema_generator=Untitled)}
        for name, model in SCHEMAS.items()
    }

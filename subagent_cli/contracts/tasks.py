"""Tasks for a fan-out, as they come from a file: `{"tasks": [{"task": "…", "cwd": "…"}]}`.

A key that is not known is refused, not passed over: whoever misspells a limit would never learn of it.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Task(BaseModel):
    """One child: what it is to do, and where it differs from the others."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    task: Annotated[str, Field(min_length=1)]
    cwd: str | None = None
    agent: str | None = None
    name: str | None = None
    timeout: float | str | None = None
    model: str | None = None
    mode: Literal["explore", "work"] | None = None
    type: str | None = None
    input_schema: dict[str, Any] | str | None = None
    output_schema: dict[str, Any] | str | None = None


class Tasks(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    tasks: Annotated[list[Task], Field(min_length=1)]

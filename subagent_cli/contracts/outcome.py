"""An outcome as JSON, in either of the two forms in which programs write it.

The form of ours is `{"success": {"result": …}}` or `{"failure": {"error": …, "error_kind": …}}`; others write it with a
tag: `{"type": "success", "result": …}`, `{"type": "failure", …}` or `{"type": "timed_out"}`. Keys beside these are
passed over, so that a newer release of such a program is understood.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Text = Annotated[str, Field(min_length=1)]


class Success(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    type: Literal["success"]
    result: Text


class Failure(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    type: Literal["failure"]
    error: Text
    error_kind: str | None = None


class TimedOut(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    type: Literal["timed_out"]


Tagged = Annotated[Success | Failure | TimedOut, Field(discriminator="type")]


_TAGGED: TypeAdapter[Success | Failure | TimedOut] = TypeAdapter(Tagged)


def outcome(found: object) -> Success | Failure | TimedOut:
    """What a program says, in whichever form."""
    if isinstance(found, dict) and len(found) == 1 and "type" not in found:
        [(word, said)] = found.items()
        if word in ("success", "failure") and isinstance(said, dict):
            found = {**said, "type": word}
    return _TAGGED.validate_python(found)

"""An outcome as JSON, in either of the two forms in which programs write it.

The form of ours is `{"success": {"result": …}}` or `{"failure": {"error": …, "error_kind": …}}`; others write it with a
tag: `{"type": "success", "result": …}`, `{"type": "failure", …}` or `{"type": "timed_out"}`. Keys beside these are
passed over, so that a newer release of such a program is understood. A text is null where a run ended without a word.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class Success(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    type: Literal["success"]
    result: str | None


class Failure(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    type: Literal["failure"]
    error: str | None
    error_kind: str | None = None


class TimedOut(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    type: Literal["timed_out"]


Tagged = Annotated[Success | Failure | TimedOut, Field(discriminator="type")]


_TAGGED: TypeAdapter[Success | Failure | TimedOut] = TypeAdapter(Tagged)


def outcome(found: object) -> Success | Failure | TimedOut:
    """What a program says, in whichever form."""
    if isinstance(found, dict) and "type" not in found:
        # One that says both is neither.
        said = [{**found[word], "type": word} for word in ("success", "failure") if isinstance(found.get(word), dict)]
        found = said[0] if len(said) == 1 else found
    return _TAGGED.validate_python(found)

"""What every contract shares: exact types, and unknown keys kept.

A `Contract` never turns one type into another and never drops a key, so a document of a newer release or of
another program passes through whole. `model_dump(exclude_unset=True)` gives back the values that were read,
and a key that was left out stays out; the known keys come first, whatever their order in the document was.
"""

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    WrapValidator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

T = TypeVar("T")
_LONGEST_PLACE, _LONGEST_FAULT = 80, 200


def fault(error: ValidationError, whole: str) -> str:
    """What is wrong first, and where, in one line; `whole` is what the document is called."""
    first = error.errors()[0]
    where, what = ".".join(map(str, first["loc"])) or whole, first["msg"].lower()
    told = f"{where[:_LONGEST_PLACE]}: {what[:_LONGEST_FAULT]}"
    return "".join(letter if letter.isprintable() else "?" for letter in told)


class Untitled(GenerateJsonSchema):
    """JSON Schema without titles such as "Runid", which tell nobody more than the key does."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


class Contract(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


def _refuse_null(value: object) -> object:
    if value is None:
        raise PydanticCustomError("null", "This key may be left out, but it may not be null")
    return value


class _NeverNull:
    """In Python an absent key needs some value, and None is it; in the document null is refused."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_refuse_null, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        published: JsonSchemaValue
        [published] = [choice for choice in handler(schema)["anyOf"] if choice != {"type": "null"}]
        return published


Omissible = Annotated[T | None, _NeverNull()]


def _as_written(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    # The check alone would turn 0 into 0.0, which JavaScript never writes.
    check(value)
    return value


# NaN and the infinities have no spelling in JSON: JavaScript would write them as null.
Number = Annotated[float, Field(allow_inf_nan=False), WrapValidator(_as_written)]

"""JSON as JavaScript reads and writes it.

`document` gives the bytes of `JSON.stringify(value, null, 2)`: numbers in JavaScript's spelling, text unescaped,
a lone surrogate as its escape. `line` is the compact form for journals. Reading refuses what
JavaScript refuses.
"""

import json
from collections.abc import Iterable
from json.encoder import encode_basestring as _quote
from typing import Any

DEEPEST = 100


class Painted(str):
    """A value as it stands in a document: `document` takes it over letter for letter."""

    __slots__ = ()


def document(value: Any) -> bytes:
    """The bytes that `JSON.stringify(value, null, 2)` gives."""
    try:
        return encoded(_pretty(value, "\n"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def item(value: Any) -> str:
    """The value as `document` writes it in a list that is one of the values of the document."""
    try:
        return _pretty(value, "\n    ")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def items(painted: Iterable[str]) -> Painted:
    """A list of such values, of which there is at least one."""
    return Painted("[\n    " + ",\n    ".join(painted) + "\n  ]")


def line(value: Any) -> bytes:
    """The value on one line, without spaces, its numbers exact."""
    try:
        return encoded(_line(value))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def load(data: bytes) -> Any:
    """The value that the bytes spell; ValueError where they are not JSON to the last byte."""
    text = data.decode("utf-8")
    value, end = _decoded(text)
    if text[end:].strip(_BLANK):
        raise ValueError(f"something stands behind the document, from character {end} on")
    return value


def load_prefix(data: bytes) -> Any:
    """The value that the bytes begin with, whatever stands behind it: what is left when a shorter document was
    written over a longer one in place."""
    return _decoded(data.decode("utf-8", "replace"))[0]


def is_shallow(value: Any) -> bool:
    """Whether it is nested no deeper than anybody who reads it can go, however deep he stands himself."""
    level = [value]
    for _ in range(DEEPEST + 1):
        parts = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [inner for part in parts for inner in part]
        if not level:
            return True
    return False


def encoded(text: str) -> bytes:
    """UTF-8; a lone surrogate becomes the escape that JSON has for it."""
    return text.encode("utf-8", "backslashreplace")


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _decoded(text: str) -> tuple[Any, int]:
    try:
        return _decoder.raw_decode(text, len(text) - len(text.lstrip(_BLANK)))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _whole(digits: str) -> float | None:
    return int(digits) if len(digits) < _LONGEST_NUMBER else _fraction(digits)


def _fraction(digits: str) -> float | None:
    # Beyond all doubles JavaScript has Infinity, which it writes as null.
    value = float(digits)
    return value if -_INFINITY < value < _INFINITY else None


_BLANK = " \t\r\n"
_INFINITY = float("inf")
_LONGEST_NUMBER = 309
_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=dict).encode
_decoder = json.JSONDecoder(parse_constant=_refuse, parse_int=_whole, parse_float=_fraction)


def _pretty(value: Any, margin: str) -> str:
    if isinstance(value, str):
        return value if type(value) is Painted else _quote(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int | float):
        return _number(value)
    inner = margin + "  "
    if isinstance(value, list | tuple):
        items = [_pretty(item, inner) for item in value]
        return f"[{inner}{f',{inner}'.join(items)}{margin}]" if items else "[]"
    pairs = [
        f"{_quote(key)}: {_quote(item) if type(item) is str else _pretty(item, inner)}"
        for key, item in _in_javascript_order(value)
    ]
    return f"{{{inner}{f',{inner}'.join(pairs)}{margin}}}" if pairs else "{}"


def _in_javascript_order(value: Any) -> Any:
    """JavaScript puts keys that are array indices first, in numeric order."""
    if not value or min(value) > ":":
        return value.items()
    indices = [key for key in value if _is_index(key)]
    rest = [key for key in value if not _is_index(key)]
    return [(key, value[key]) for key in (*sorted(indices, key=int), *rest)]


def _is_index(key: str) -> bool:
    return (
        len(key) <= 10 and key.isascii() and key.isdecimal() and (key == "0" or key[0] != "0") and int(key) < 2**32 - 1
    )


def _number(value: float) -> str:
    """A number in the shortest spelling that JavaScript reads back as the same double."""
    if isinstance(value, int) and -(2**53) <= value <= 2**53:
        return str(value)
    try:
        value = float(value)
    except OverflowError:
        return "null"
    if value != value or value in (float("inf"), float("-inf")):
        return "null"
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = int(exponent or 0) + (len(whole) if whole != "0" else -(len(fraction) - len(fraction.lstrip("0"))))
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"

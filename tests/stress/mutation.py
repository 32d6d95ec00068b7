"""Documents that are nearly right: real ones, in which a value, a key or some bytes have become something else.

Promise: what comes out depends on the chance that is handed in alone, so an input that failed can be made again from
its seed and number.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

DEEP = 2_000
BIG = 5_000_000

TEXTS = [
    "",
    " ",
    "\0",
    "a\0b",
    "\x1b[31mred\x1b]0;title\x07",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x9b31m\x85",
    "\u202eevil\u2066\u061c",
    "\u2028\u2029\ufeff",
    "\ud800",
    "\udfff\ud83d",
    "x\udcff",
    "a\u0301\u200d",
    "[/red][bold]",
    "%s{0}$(id)`id`",
    "../../etc/passwd",
    "line 1\r\nline 2\rline 3",
    "__proto__",
    "\u0660\u0661\u0662\u0663",
    "ﷺ🦊",
    "0190a000-0000-7000-8000-00000000abcd",
    "2026-01-02T03:04:05.678Z",
    "9999-12-31T23:59:59.999Z",
    "0001-01-01T00:00:00+23:59",
    "+275760-09-13T00:00:00.000Z",
    "-1",
    "b0071d00+99999999999999999999",
    "running",
    "success",
    "parent_replied",
    "waiting_parent_reply",
    "acknowledged_by_subagent",
    "observed",
    "resumed",
]
NUMBERS = [0, -0.0, 1, -1, 2**31, 2**53 + 1, -(2**63), 2**64, 10**308, 10**400, 1e308, 5e-324, 1e21, 1.5, 1e-7, 0.1]
# As they can only be spelled: beyond doubles, with more digits than Python reads, without a value.
SPELLED = ["1e400", "-1e999", "9" * 5000, "-0", "NaN", "Infinity", "01", "1.", "1E+2", "0.1e-400", "\t7 ", "tru", "'a'"]
ESCAPES = [r"\ud83d\ude00", r"\udead", r"\u0000", r"\x41", r"\u12", r"\/", "\\", r"\u202E", "\n", "\t", "\x7f"]


def odd(chance: Random, depth: int = 0) -> Any:
    """Some value that nobody has asked for."""
    kind = chance.randrange(12)
    if kind < 5:
        return chance.choice(TEXTS)
    if kind < 7:
        return chance.choice(NUMBERS)
    if kind < 9 or depth > 2:
        return chance.choice([None, True, False, {}, [], ""])
    if kind < 10:
        return [odd(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 11:
        return {chance.choice(TEXTS): odd(chance, depth + 1) for _ in range(chance.randrange(4))}
    return nested(chance, chance.choice([5, 90, 101, 150]))


def nested(chance: Random, depth: int) -> Any:
    value: Any = chance.choice(TEXTS)
    for _ in range(depth):
        value = [value] if chance.random() < 0.5 else {"x": value}
    return value


def changed(chance: Random, value: Any, known: tuple[str, ...] = ()) -> Any:
    """The same value with something in it that is otherwise: another value, a key too many or too few, twins."""
    if chance.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return odd(chance)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    places = list(copy) if isinstance(copy, dict) else list(range(len(copy)))
    place = chance.choice(places)
    what = chance.randrange(8)
    if what < 4:
        copy[place] = changed(chance, copy[place], known)
    elif what < 5:
        del copy[place]
    elif isinstance(copy, list):
        copy.insert(chance.randrange(len(copy) + 1), chance.choice([copy[place], odd(chance)]))
    elif what < 6:
        copy[chance.choice([*TEXTS, *known])] = odd(chance)
    else:
        other = chance.choice(places)
        copy[place], copy[other] = copy[other], copy[place]
    return copy


def changed_often(chance: Random, value: Any, known: tuple[str, ...] = ()) -> Any:
    for _ in range(chance.choice([1, 1, 1, 2, 3, 6])):
        value = changed(chance, value, known)
    return value


def spelled(chance: Random, value: Any) -> bytes:
    """The value as JSON, spelled in one of the many ways there are."""
    indent = chance.choice([None, None, 2])
    separators = chance.choice([None, (",", ":"), (" ,\t", "\r\n: ")])
    # ASCII escapes a lone surrogate; the other way leaves it as what is no UTF-8.
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=indent, separators=separators)
    return text.encode("utf-8", chance.choice(["surrogatepass", "backslashreplace", "replace"]))


def broken(chance: Random, data: bytes) -> bytes:
    """The same bytes with some of them otherwise; mostly not JSON any more, sometimes still."""
    for _ in range(chance.choice([1, 1, 2, 4])):
        data = chance.choice(_BREAKS)(chance, data)
    return data


def _at(chance: Random, data: bytes) -> int:
    return chance.randrange(len(data) + 1)


def _number(chance: Random, data: bytes) -> bytes:
    """One of the numbers, or what stands there, in a spelling that only a text has."""
    at = _at(chance, data)
    end = at + chance.choice([0, 1, 4])
    return data[:at] + chance.choice([*SPELLED, *ESCAPES]).encode() + data[end:]


def _twin(chance: Random, data: bytes) -> bytes:
    start, end = sorted((_at(chance, data), _at(chance, data)))
    return data[:end] + data[start:end] + data[end:]


_BREAKS: list[Callable[[Random, bytes], bytes]] = [
    lambda chance, data: data[: _at(chance, data)],
    lambda chance, data: data[_at(chance, data) :],
    lambda chance, data: data[: (at := _at(chance, data))] + bytes([chance.randrange(256)]) + data[at + 1 :],
    lambda chance, data: data[: (at := _at(chance, data))] + bytes([chance.randrange(256)]) + data[at:],
    lambda chance, data: data + chance.choice([b"\0" * 40, b"}", b"\n\n", b"\xff\xfe", data]),
    lambda chance, data: chance.choice([b"\xef\xbb\xbf", b"\0", b" \t\r\n", b"\xc2\xa0", b"\xff\xfe"]) + data,
    lambda chance, data: data.replace(b":", b":" + b"[" * chance.choice([3, DEEP]), 1),
    lambda chance, data: data.replace(b'"', chance.choice([b"'", b'\\"', b'""', b'"\\ud800']), chance.choice([1, 2])),
    lambda chance, data: data.replace(b"null", chance.choice(SPELLED).encode(), 1),
    _number,
    _twin,
]

"""Identifiers: UUIDs in the spelling that every other program accepts, and the short forms that people type.

Our own ids are UUIDv7, whose first digits are a clock: names sort by time, and the random tail is what tells two
runs apart, so the last eight digits are the short form.
"""

from collections.abc import Sequence

SHORTEST = 4
_LENGTH = 36
_DASHES = (8, 13, 18, 23)
_LETTERS = b"0123456789abcdefABCDEF-"
_HEX = frozenset("0123456789abcdef")
_HEX_AND_DASH = frozenset(_LETTERS.decode())


def uuid7(ms: int, noise: bytes) -> str:
    """A UUIDv7 for a time in milliseconds; `noise` is ten random bytes."""
    number = (ms & 0xFFFF_FFFF_FFFF) << 80 | int.from_bytes(noise[:10], "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_uuid(text: str) -> bool:
    """UUID-shaped: any version, any variant, either case, dashes in their places."""
    return (
        len(text) == _LENGTH
        and text[8] == text[13] == text[18] == text[23] == "-"
        and text.count("-") == 4
        and _HEX_AND_DASH.issuperset(text)
    )


def are_uuids(words: Sequence[str]) -> bool:
    """Whether all of these are UUID-shaped. Of a hundred thousand together it takes a tenth of asking for each."""
    count, row = len(words), "".join(words)
    return (
        set(map(len, words)) <= {_LENGTH}
        and row.isascii()
        and not row.encode().translate(None, _LETTERS)
        and all(row[place::_LENGTH] == "-" * count for place in _DASHES)
        and row.count("-") == count * len(_DASHES)
    )


def canonical(text: str) -> str:
    """An id in the one form in which ids are compared, whatever form it was typed in; any other word as it is."""
    bare = digits(text)
    if bare is None or len(bare) != 32:
        return text
    return f"{bare[:8]}-{bare[8:12]}-{bare[12:16]}-{bare[16:20]}-{bare[20:]}"


def is_timed(uuid: str) -> bool:
    """Whether the id begins with a clock, as those of version 7 do."""
    return uuid[14] == "7" and uuid[19] in "89abAB"


def are_timed(uuids: Sequence[str]) -> bool:
    """Whether all of them begin with a clock."""
    row = "".join(uuids)
    return set(row[14::_LENGTH]) <= {"7"} and set(row[19::_LENGTH]) <= set("89abAB")


def digits(text: str) -> str | None:
    """The hexadecimal digits of an id or of a part of one, or None where it is neither."""
    bare = text.replace("-", "").lower()
    if SHORTEST <= len(bare) <= 32 and _HEX.issuperset(bare):
        return bare
    return None


def names(part: str, uuid: str) -> bool:
    """Whether digits that somebody typed are the beginning or the end of this id."""
    whole = uuid.replace("-", "").lower()
    return whole.startswith(part) or whole.endswith(part)


def short(uuid: str) -> str:
    """What people see and type."""
    return uuid[-8:] if is_uuid(uuid) else uuid


def is_label(text: str) -> bool:
    """A word that is safe as one file name: letters and digits of any script, dot, dash, underscore."""
    bare = text.replace("-", "").replace(".", "").replace("_", "")
    return 0 < len(text.encode("utf-8", "replace")) <= 128 and text[0] not in ".-" and (bare.isalnum() or not bare)

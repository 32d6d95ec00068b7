"""The frozen list of requirement ids, read from requirements.toml.

Promise: a list that is not well-formed is refused whole, so a slip of the pen cannot silence a claim.
"""

import os
import tomllib
from dataclasses import dataclass

FILE = os.path.join(os.path.dirname(__file__), "requirements.toml")
STATUSES = ("claimed", "open", "n/a")


class Malformed(ValueError):
    """The list says something that it may not say; the text names the case."""


@dataclass(frozen=True)
class Case:
    id: str
    status: str
    title: str
    reason: str = ""


def load(file: str = FILE) -> dict[str, Case]:
    with open(file, "rb") as stream:
        groups = tomllib.load(stream)
    return {id_: _case(id_, fields) for group in groups.values() for id_, fields in group.items()}


def with_status(cases: dict[str, Case], status: str) -> list[str]:
    return [case.id for case in cases.values() if case.status == status]


def _case(id_: str, fields: dict[str, str]) -> Case:
    try:
        case = Case(id=id_, **fields)
    except TypeError as error:
        raise Malformed(f"{id_}: needs status and title, may have reason") from error
    if case.status not in STATUSES:
        raise Malformed(f"{id_}: status is one of {', '.join(STATUSES)}, not {case.status!r}")
    if not case.title:
        raise Malformed(f"{id_}: has no title")
    if bool(case.reason) != (case.status == "n/a"):
        raise Malformed(f"{id_}: a reason belongs to n/a, and to nothing else")
    return case

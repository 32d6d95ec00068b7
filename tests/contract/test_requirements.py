"""The list of cases is whole and says of each what it must."""

from pathlib import Path

import pytest

from tests.contract import requirements

# How many there are of each kind when the list was frozen; the numbers within a group of T leave gaps.
NUMBERED = {"C0-": 34, "C1-": 58, "C2-": 52, "C3-": 47, "C4-": 39}
SERVER = [1, 2, 3, 4, *range(10, 16), *range(20, 27), *range(30, 35), *range(40, 43)]
SERVER += [50, *range(60, 66), *range(70, 75), 80, 81]

MODEL_ONLY = ["C0-31", "C0-32", "C2-18", "C2-19", "C2-20", "C2-30", "C2-43"]
MODEL_ONLY += ["C3-08", "C3-44", "C3-45", "C4-21"]


def test_no_case_has_vanished_and_none_was_invented() -> None:
    expected = {f"{kind}{number:02}" for kind, last in NUMBERED.items() for number in range(1, last + 1)}
    expected |= {f"T-{number:02}" for number in SERVER}
    expected |= {f"X{number}" for number in range(1, 36)}
    assert set(requirements.load()) == expected


@pytest.mark.case("X35")
def test_cases_that_only_a_model_caller_could_have_are_not_claimed_and_say_why() -> None:
    cases = requirements.load()
    assert [id_ for id_ in MODEL_ONLY if cases[id_].status != "n/a" or not cases[id_].reason] == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('Z-1 = { status = "done", title = "x" }', "status is one of"),
        ('Z-1 = { status = "n/a", title = "x" }', "a reason belongs to n/a"),
        ('Z-1 = { status = "open", title = "x", reason = "y" }', "a reason belongs to n/a"),
        ('Z-1 = { status = "open", title = "" }', "has no title"),
        ('Z-1 = { title = "x" }', "needs status and title"),
        ('Z-1 = { status = "open", title = "x", note = "y" }', "needs status and title"),
    ],
)
def test_a_malformed_list_is_refused(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "cases.toml"
    file.write_text(f"[Z]\n{line}\n")
    with pytest.raises(requirements.Malformed, match=complaint):
        requirements.load(str(file))

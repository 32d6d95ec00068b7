"""An outcome as JSON: both forms mean the same, and whatever is neither is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from subagent_cli.contracts.outcome import Failure, Success, TimedOut, outcome

Outcome = Success | Failure | TimedOut

FORMS: list[tuple[dict[str, Any], Outcome]] = [
    ({"success": {"result": "12 notes"}}, Success(type="success", result="12 notes")),
    ({"type": "success", "result": "12 notes"}, Success(type="success", result="12 notes")),
    ({"failure": {"error": "no disk"}}, Failure(type="failure", error="no disk")),
    ({"type": "failure", "error": "no disk"}, Failure(type="failure", error="no disk")),
    (
        {"failure": {"error": "x", "error_kind": "network"}},
        Failure(type="failure", error="x", error_kind="network"),
    ),
    (
        {"type": "failure", "error": "x", "error_kind": "network"},
        Failure(type="failure", error="x", error_kind="network"),
    ),
    ({"failure": {"error": "x", "error_kind": None}}, Failure(type="failure", error="x")),
    ({"success": {"result": None}}, Success(type="success", result=None)),
    ({"type": "failure", "error": ""}, Failure(type="failure", error="")),
    ({"type": "timed_out"}, TimedOut(type="timed_out")),
]
NEITHER: list[object] = [
    None,
    True,
    7,
    "",
    "timed_out",
    "success",
    [],
    [{"success": {"result": "x"}}],
    {},
    {"success": "x"},
    {"success": None},
    {"success": ["result", "x"]},
    {"success": {}},
    {"success": {"result": 7}},
    {"success": {"result": True}},
    {"success": {"result": ["x"]}},
    {"success": {"result": {"text": "x"}}},
    {"success": {"error": "x"}},
    {"Success": {"result": "x"}},
    {"failure": {}},
    {"failure": "x"},
    {"failure": {"error": "x", "error_kind": 7}},
    {"failure": {"error": "x", "error_kind": ["network"]}},
    {"failure": {"result": "x"}},
    {"failure": {"error_kind": "network"}},
    {"success": {"result": "x"}, "failure": {"error": "y"}},
    {"timed_out": {}},
    {"timed_out": None},
    {"type": "success"},
    {"type": "success", "error": "x"},
    {"type": "success", "success": {"result": "x"}},
    {"type": "failure", "result": "x"},
    {"type": "failure", "error": "x", "error_kind": {}},
    {"type": "Success", "result": "x"},
    {"type": "cancelled", "error": "x"},
    {"type": None, "result": "x"},
    {"type": ["success"], "result": "x"},
    {"type": {"success": 1}, "result": "x"},
    {"type": 1},
    {"result": "x"},
    {"error": "x", "error_kind": "network"},
    {"outcome": {"success": {"result": "x"}}},
    {"agent_id": "1", "task": "t", "outcome": {"success": {"result": "x"}}},
]

texts = st.text(min_size=1)
perhaps = st.none() | st.text()
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Success, type=st.just("success"), result=perhaps),
    st.builds(Failure, type=st.just("failure"), error=perhaps, error_kind=perhaps),
    st.just(TimedOut(type="timed_out")),
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
likely_words = ("type", "success", "failure", "result", "error", "error_kind")
likely_values = values | st.sampled_from(["success", "failure", "timed_out", "", {"result": "x"}, {"error": "x"}])
documents = st.dictionaries(st.sampled_from(likely_words), likely_values, max_size=4) | values


def tagged(said: Outcome) -> dict[str, Any]:
    return said.model_dump()


def keyed(said: Outcome) -> dict[str, Any]:
    """The form of ours, which has one for what timed out as for any failure."""
    found = tagged(said)
    return {found.pop("type"): found}


@pytest.mark.case("X19")
@pytest.mark.parametrize(("document", "expected"), FORMS, ids=str)
def test_each_form_of_an_outcome_is_read(document: dict[str, Any], expected: Outcome) -> None:
    before = repr(document)
    found = outcome(document)
    assert found == expected
    assert type(found) is type(expected)
    assert repr(document) == before


@pytest.mark.case("X19")
@given(outcomes)
def test_both_forms_mean_the_same(said: Outcome) -> None:
    assert outcome(tagged(said)) == said
    if not isinstance(said, TimedOut):
        assert outcome(keyed(said)) == said


@pytest.mark.case("X19")
@pytest.mark.parametrize("document", NEITHER, ids=repr)
def test_what_is_neither_is_refused(document: object) -> None:
    with pytest.raises(ValidationError):
        outcome(document)


@given(outcomes, st.dictionaries(texts.map(lambda text: f"later-{text}"), values, max_size=3))
def test_keys_of_a_newer_release_are_passed_over(said: Outcome, newer: dict[str, Any]) -> None:
    assert outcome({**newer, **tagged(said)}) == said
    if not isinstance(said, TimedOut):
        [(word, inner)] = keyed(said).items()
        assert outcome({word: {**inner, **newer}}) == said


@pytest.mark.parametrize(("document", "expected"), FORMS, ids=str)
def test_a_newer_release_may_say_more_beside_its_outcome(document: dict[str, Any], expected: Outcome) -> None:
    assert outcome({**document, "usage": {"tokens": 7}}) == expected


def test_a_tag_inside_does_not_stand_above_the_word_outside() -> None:
    said = outcome({"success": {"type": "failure", "result": "x", "error": "y"}})
    assert said == Success(type="success", result="x")


@pytest.mark.case("X19")
@given(documents)
def test_whatever_is_taken_says_what_it_was_taken_for(document: Any) -> None:
    try:
        found = outcome(document)
    except ValidationError:
        return
    said = document if "type" in document else document[found.type]
    assert document.get("type", found.type) == found.type
    assert "type" in document or not (isinstance(document.get("success"), dict) and "failure" in document)
    if isinstance(found, Success):
        assert said["result"] == found.result
    elif isinstance(found, Failure):
        assert (said["error"], said.get("error_kind")) == (found.error, found.error_kind)

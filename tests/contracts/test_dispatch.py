"""A dispatch as JSON: core, the model and the published schema give one verdict, and a batch is good as a whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from subagent_cli.contracts.dispatch import DispatchRequest, request_from, requests_from
from subagent_cli.contracts.typescript import declarations
from subagent_cli.core.dispatch import DispatchSubagent, ToolValidationError, requested

GOOD: dict[str, Any] = {"mode": "ad_hoc", "instructions": "Do it"}
STEP: dict[str, Any] = {**GOOD, "mode": "plan_step", "plan_step_id": "S1"}

ACCEPTED: dict[str, Any] = {
    "the least": GOOD,
    "a plan step": STEP,
    "all keys": {**STEP, "prompt_ns": "docs", "prompt_key": "review", "expected_artifacts": ["a.md", "b.md"]},
    "names beyond ASCII": {**GOOD, "prompt_ns": "Prüfung", "prompt_key": "α\n"},
    "empty names": {**GOOD, "prompt_ns": "", "prompt_key": ""},
    "blanks around": {**GOOD, "instructions": " Do it\n"},
    "the longest instructions": {**GOOD, "instructions": "x" * 2000},
    "several lines": {**GOOD, "instructions": "Do it.\n\tAnd that.\r\n"},
    "a control character": {**GOOD, "instructions": "a\x00b"},
    "no artifacts": {**GOOD, "expected_artifacts": []},
    "the same artifact twice": {**GOOD, "expected_artifacts": ["a", "a"]},
    "the longest artifact": {**GOOD, "expected_artifacts": ["x" * 160]},
    "blanks around an artifact": {**GOOD, "expected_artifacts": [" a.md "]},
    "a null step": {**GOOD, "plan_step_id": None},
    "a step outside a plan": {**GOOD, "plan_step_id": "S1"},
    "an empty step outside a plan": {**GOOD, "plan_step_id": ""},
    "a step beyond ASCII outside a plan": {**GOOD, "plan_step_id": "é"},
    "a long step": {**STEP, "plan_step_id": "x" * 5000},
    "blanks around a step": {**STEP, "plan_step_id": " S1 "},
}
# Core takes the blanks off before it counts and looks; a schema cannot.
STRICTER: dict[str, Any] = {
    "the longest and blanks": {**GOOD, "instructions": f"  {'x' * 2000}  "},
    "the longest artifact and blanks": {**GOOD, "expected_artifacts": [f" {'x' * 160}"]},
    "a blank beyond ASCII": {**GOOD, "instructions": "\u3000Do it"},
    "control characters alone": {**GOOD, "instructions": "\x00"},
}
# Name: payload and the field that is wrong.
REFUSED: dict[str, tuple[Any, str | None]] = {
    "null": (None, None),
    "a list": ([GOOD], None),
    "a text": ("Do it", None),
    "a number": (5, None),
    "nothing in it": ({}, "mode"),
    "no mode": ({"instructions": "Do it"}, "mode"),
    "no instructions": ({"mode": "ad_hoc"}, "instructions"),
    "an unknown mode": ({**GOOD, "mode": "batch"}, "mode"),
    "a mode in capitals": ({**GOOD, "mode": "AD_HOC"}, "mode"),
    "a mode with blanks": ({**GOOD, "mode": " ad_hoc"}, "mode"),
    "an empty mode": ({**GOOD, "mode": ""}, "mode"),
    "a null mode": ({**GOOD, "mode": None}, "mode"),
    "a number as mode": ({**GOOD, "mode": 1}, "mode"),
    "a list as mode": ({**GOOD, "mode": ["ad_hoc"]}, "mode"),
    "null as prompt_ns": ({**GOOD, "prompt_ns": None}, "prompt_ns"),
    "a number as prompt_key": ({**GOOD, "prompt_key": 5}, "prompt_key"),
    "empty instructions": ({**GOOD, "instructions": ""}, "instructions"),
    "blank instructions": ({**GOOD, "instructions": " \n\t"}, "instructions"),
    "null instructions": ({**GOOD, "instructions": None}, "instructions"),
    "a number as instructions": ({**GOOD, "instructions": 5}, "instructions"),
    "true as instructions": ({**GOOD, "instructions": True}, "instructions"),
    "a list as instructions": ({**GOOD, "instructions": ["Do it"]}, "instructions"),
    "instructions too long": ({**GOOD, "instructions": "x" * 2001}, "instructions"),
    "instructions beyond ASCII": ({**GOOD, "instructions": "Prüfe"}, "instructions"),
    "an emoji": ({**GOOD, "instructions": "Do it \U0001f600"}, "instructions"),
    "null artifacts": ({**GOOD, "expected_artifacts": None}, "expected_artifacts"),
    "a text as artifacts": ({**GOOD, "expected_artifacts": "a.md"}, "expected_artifacts"),
    "an empty text as artifacts": ({**GOOD, "expected_artifacts": ""}, "expected_artifacts"),
    "an object as artifacts": ({**GOOD, "expected_artifacts": {"a": "b"}}, "expected_artifacts"),
    "a number as artifacts": ({**GOOD, "expected_artifacts": 1}, "expected_artifacts"),
    "an empty artifact": ({**GOOD, "expected_artifacts": ["a", ""]}, "expected_artifacts"),
    "a blank artifact": ({**GOOD, "expected_artifacts": ["  "]}, "expected_artifacts"),
    "a null artifact": ({**GOOD, "expected_artifacts": [None]}, "expected_artifacts"),
    "a number as artifact": ({**GOOD, "expected_artifacts": [1]}, "expected_artifacts"),
    "an artifact beyond ASCII": ({**GOOD, "expected_artifacts": ["é"]}, "expected_artifacts"),
    "an artifact too long": ({**GOOD, "expected_artifacts": ["x" * 161]}, "expected_artifacts"),
    "a plan step without its id": ({**GOOD, "mode": "plan_step"}, "plan_step_id"),
    "a plan step with null": ({**STEP, "plan_step_id": None}, "plan_step_id"),
    "a plan step with an empty id": ({**STEP, "plan_step_id": ""}, "plan_step_id"),
    "a plan step with a blank id": ({**STEP, "plan_step_id": " "}, "plan_step_id"),
    "a plan step with an id beyond ASCII": ({**STEP, "plan_step_id": "é"}, "plan_step_id"),
    "a number as step": ({**STEP, "plan_step_id": 1}, "plan_step_id"),
    "a number as step outside a plan": ({**GOOD, "plan_step_id": 1}, "plan_step_id"),
    "a key too many": ({**GOOD, "snapshot": {}}, "snapshot"),
    "a key in capitals": ({**GOOD, "Mode": "ad_hoc"}, "Mode"),
    "a key in camel case": ({**GOOD, "planStepId": "S1"}, "planStepId"),
}

texts = st.text(max_size=3) | st.sampled_from([" a ", "x" * 160, "x" * 161, "x" * 2000, "x" * 2001, "\x00", "é"])
values = texts | st.none() | st.integers() | st.booleans() | st.floats() | st.lists(texts, max_size=3)
payloads = st.fixed_dictionaries(
    {"mode": st.sampled_from(["ad_hoc", "plan_step"]) | values, "instructions": texts | values},
    optional=dict.fromkeys(("prompt_ns", "prompt_key", "expected_artifacts", "plan_step_id", "more"), values),
)


def by_core(payload: object) -> object:
    """The request, or the field that is wrong."""
    try:
        return requested(payload)
    except ToolValidationError as error:
        return error.field


def by_model(payload: object) -> bool:
    try:
        DispatchRequest.model_validate(payload)
    except ValidationError:
        return False
    return True


def by_contract(payload: object) -> object:
    try:
        return request_from(payload)
    except ToolValidationError as error:
        return error.field


def by_schema(payload: object) -> bool:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema to judge by the schema alone")
    return bool(jsonschema.Draft202012Validator(DispatchRequest.model_json_schema()).is_valid(payload))


def refusal(table: object) -> ToolValidationError:
    with pytest.raises(ToolValidationError) as caught:
        requests_from(table)
    return caught.value


@pytest.mark.case("C4-01", "C4-02", "C4-04", "C4-11")
@pytest.mark.parametrize("payload", [pytest.param(p, id=name) for name, p in {**ACCEPTED, **STRICTER}.items()])
def test_core_and_the_model_accept_the_same(payload: dict[str, Any]) -> None:
    request = requested(payload)
    assert by_model(payload)
    assert by_contract(payload) == request
    assert DispatchRequest.model_validate_json(json.dumps(payload)).request() == request


@pytest.mark.case("C4-03", "C4-05", "C4-07", "C4-09", "C4-12", "C4-16")
@pytest.mark.parametrize(("payload", "field"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_core_and_the_model_refuse_the_same_and_name_the_field(payload: object, field: str | None) -> None:
    assert by_core(payload) == field
    assert by_contract(payload) == field
    assert not by_model(payload)


@pytest.mark.case("C4-04", "C4-05", "C4-07", "C4-09")
@pytest.mark.parametrize(
    ("payload", "good"),
    [
        *(pytest.param(payload, True, id=name) for name, payload in ACCEPTED.items()),
        *(pytest.param(payload, False, id=name) for name, payload in STRICTER.items()),
        *(pytest.param(payload, False, id=name) for name, (payload, _) in REFUSED.items()),
    ],
)
def test_the_published_schema_gives_the_same_verdict_but_for_blanks(payload: object, good: bool) -> None:
    assert by_schema(payload) is good


@given(payloads)
def test_whatever_comes_has_one_verdict(payload: dict[str, Any]) -> None:
    verdict = by_core(payload)
    good = isinstance(verdict, DispatchSubagent)
    assert by_contract(payload) == verdict
    assert by_model(payload) is good
    assert good or not by_schema(payload)


@pytest.mark.parametrize("field", ["prompt_ns", "prompt_key", "instructions", "plan_step_id"])
def test_half_a_character_is_refused(field: str) -> None:
    assert by_contract({**STEP, field: "half a \ud83d"}) == field


def test_the_schema_states_the_limits() -> None:
    schema = DispatchRequest.model_json_schema()
    keys = schema["properties"]
    assert schema["required"] == ["mode", "instructions"]
    assert schema["additionalProperties"] is False
    assert keys["mode"]["enum"] == ["plan_step", "ad_hoc"]
    assert keys["instructions"]["maxLength"] == 2000
    assert keys["expected_artifacts"]["items"]["maxLength"] == 160
    assert keys["instructions"]["pattern"] == keys["expected_artifacts"]["items"]["pattern"]
    assert all(part["description"].endswith(".") for part in [schema, *keys.values()])


def test_typescript_can_tell_it() -> None:
    text = declarations(DispatchRequest.model_json_schema())["DispatchRequest"]
    for line in (
        'mode: "plan_step" | "ad_hoc";',
        "instructions: string;",
        "expected_artifacts?: string[];",
        "plan_step_id?: string | null;",
    ):
        assert line in text


@pytest.mark.parametrize("wrap", [list, lambda payloads: {"requests": payloads}])
def test_a_batch_is_a_list_bare_or_as_requests_and_keeps_its_order(wrap: Any) -> None:
    first, second = requests_from(wrap([STEP, {**GOOD, "instructions": " Second "}]))
    assert first == DispatchSubagent("plan_step", "", "", "Do it", (), "S1")
    assert second == DispatchSubagent("ad_hoc", "", "", "Second")


@pytest.mark.parametrize("empty", [[], {"requests": []}])
def test_an_empty_batch_is_a_batch(empty: object) -> None:
    assert requests_from(empty) == ()


def test_one_wrong_payload_fails_the_batch_and_is_named_by_its_place() -> None:
    error = refusal([GOOD, GOOD, {**GOOD, "expected_artifacts": ["é"]}, {}])
    assert error.field == "requests.2.expected_artifacts"
    assert error.message == "requests.2: expected_artifacts must contain only ASCII characters."
    assert refusal({"requests": [None]}).field == "requests.0"
    assert "instructions" in refusal([{**GOOD, "more": 1}]).candidates


@pytest.mark.parametrize(
    "table",
    [None, "x", 5, {}, GOOD, {"requests": None}, {"requests": GOOD}, {"requests": [], "more": 1}, {"tasks": []}],
)
def test_what_is_no_batch_is_refused(table: object) -> None:
    assert refusal(table).field == "requests"

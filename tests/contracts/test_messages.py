"""The schemas of messages: what each takes, what it makes of it, that what is published says the same, and that
nothing is stored but the validated form."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from subagent_cli.contracts.messages import SCHEMAS, catalogue
from subagent_cli.core.errors import InvalidInput
from subagent_cli.services import deliveries, messages
from subagent_cli.services.context import Context
from subagent_cli.store import codec
from tests.services.desk import refused
from tests.store.world import FakeClock, everything, new_run, open_at

GOOD: dict[str, dict[str, Any]] = {
    "plaintext": {"text": "It is done."},
    "structured_critique": {"issues": [{"line": 7, "why": ["a", None]}, {}], "notes_md": "# Notes"},
    "structured_grade": {"recall": 0.75, "precision": 1, "notes_md": "Good."},
}


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def desk(runs_dir: Path) -> Context:
    context = open_at(runs_dir, FakeClock())
    new_run(context)
    return context


def stored(desk: Context, schema: str, content: object) -> Any:
    """What lies on disk of a content that was put there."""
    text = content if isinstance(content, str) else json.dumps(content)
    made = messages.put(desk, schema, text)["message_id"]
    found = codec.load(Path(desk.runs.layout.message(made)).read_bytes())
    assert messages.show(desk, made) == found
    return found["content"]


def same(one: Any, other: Any) -> bool:
    """Equal to every program that has doubles for numbers."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or not isinstance(one, int | float):
        return type(one) is type(other) and bool(one == other)
    return isinstance(other, int | float) and not isinstance(other, bool) and float(one) == float(other)


@pytest.mark.case("C3-22")
def test_there_are_three_schemas() -> None:
    assert set(SCHEMAS) == set(messages.NAMES) == set(catalogue()) == set(GOOD)


@pytest.mark.case("C3-22")
@pytest.mark.parametrize("schema", GOOD)
def test_what_fits_its_schema_is_stored_as_it_is(desk: Context, schema: str) -> None:
    assert same(stored(desk, schema, GOOD[schema]), GOOD[schema])


@pytest.mark.case("C3-22", "C3-23")
@pytest.mark.parametrize("schema", ["", "text", "Plaintext", "plaintext ", "structured", "../plaintext", "x" * 9999])
def test_another_schema_is_refused_with_those_that_there_are(desk: Context, runs_dir: Path, schema: str) -> None:
    with refused(runs_dir, InvalidInput, "unknown_schema"):
        messages.put(desk, schema, '{"text": "x"}')
    with pytest.raises(InvalidInput) as caught:
        messages.put(desk, schema, '{"text": "x"}')
    assert set(caught.value.candidates) == set(GOOD)
    assert len(caught.value.message) < 100


WRONG: list[tuple[str, object]] = [
    ("plaintext", {}),
    ("plaintext", {"text": None}),
    ("plaintext", {"text": 7}),
    ("plaintext", {"text": ["x"]}),
    ("plaintext", {"text": "x", "more": 1}),
    ("plaintext", {"Text": "x"}),
    ("plaintext", []),
    ("plaintext", "x"),
    ("plaintext", None),
    ("plaintext", GOOD["structured_critique"]),
    ("structured_critique", {"notes_md": ""}),
    ("structured_critique", {"issues": []}),
    ("structured_critique", {"issues": None, "notes_md": ""}),
    ("structured_critique", {"issues": {}, "notes_md": ""}),
    ("structured_critique", {"issues": ["x"], "notes_md": ""}),
    ("structured_critique", {"issues": [{}, None], "notes_md": ""}),
    ("structured_critique", {"issues": [[["a", 1]]], "notes_md": ""}),
    ("structured_critique", {"issues": [], "notes_md": 7}),
    ("structured_critique", {"issues": [], "notes_md": "", "more": 1}),
    ("structured_grade", {"recall": 1}),
    ("structured_grade", {"precision": 1}),
    ("structured_grade", {"recall": None, "precision": 1}),
    ("structured_grade", {"recall": "much", "precision": 1}),
    ("structured_grade", {"recall": "nan", "precision": 1}),
    ("structured_grade", {"recall": 1, "precision": "Infinity"}),
    ("structured_grade", {"recall": [1], "precision": 1}),
    ("structured_grade", {"recall": 1, "precision": 1, "notes_md": None}),
    ("structured_grade", {"recall": 1, "precision": 1, "notes_md": 7}),
]
NO_JSON = [
    "",
    " ",
    "{",
    '{"text": "x"',
    '{"text": "x"} {}',
    '{"text": "x",}',
    "{'text': 'x'}",
    '{"text": NaN}',
    "text",
    '{"text": "\n"}',
    "\ufeff{}",
]


@pytest.mark.case("C3-23")
@pytest.mark.parametrize(("schema", "content"), WRONG)
def test_what_does_not_fit_its_schema_stores_nothing(
    desk: Context, runs_dir: Path, schema: str, content: object
) -> None:
    with refused(runs_dir, InvalidInput, "invalid_content"):
        messages.put(desk, schema, json.dumps(content))
    with refused(runs_dir, InvalidInput, "invalid_content"):
        messages.put(desk, schema, json.dumps(content), key="k")


def test_what_was_wrong_is_said_in_a_few_words(desk: Context) -> None:
    key = "k" * 100_000
    for schema, content in (("plaintext", {"text": "x", key: 1}), ("structured_critique", {"issues": key})):
        with pytest.raises(InvalidInput) as caught:
            messages.put(desk, schema, json.dumps(content))
        assert 0 < len(caught.value.message) < 300


@pytest.mark.case("C3-23")
@pytest.mark.parametrize("text", NO_JSON)
@pytest.mark.parametrize("schema", GOOD)
def test_what_is_no_json_stores_nothing(desk: Context, runs_dir: Path, schema: str, text: str) -> None:
    with refused(runs_dir, InvalidInput, "invalid_content"):
        messages.put(desk, schema, text)


@pytest.mark.case("C3-24")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"recall": 0.5, "precision": 1}, {"recall": 0.5, "precision": 1, "notes_md": ""}),
        ({"recall": "0.5", "precision": " 1e-1 "}, {"recall": 0.5, "precision": 0.1, "notes_md": ""}),
        ({"recall": True, "precision": "1"}, {"recall": 1, "precision": 1, "notes_md": ""}),
        ({"precision": 2, "recall": -1}, {"recall": -1, "precision": 2, "notes_md": ""}),
        (
            {"recall": 1, "precision": 1, "f1": "0.5", "by": {"x": [1, None]}, "notes_md": "x"},
            {"recall": 1, "precision": 1, "notes_md": "x", "f1": "0.5", "by": {"x": [1, None]}},
        ),
    ],
)
def test_a_grade_is_stored_with_its_defaults_and_its_numbers_as_numbers(
    desk: Context, content: object, expected: object
) -> None:
    found = stored(desk, "structured_grade", content)
    assert same(found, expected)
    assert list(found)[:3] == ["recall", "precision", "notes_md"]


@pytest.mark.case("C3-24")
def test_an_issue_keeps_the_keys_and_types_that_its_critic_chose(desk: Context) -> None:
    issues = [{"severity": "0.5", "line": 7, "ok": True, "more": {"a": [[], {}, ""]}}, {}]
    assert same(stored(desk, "structured_critique", {"issues": issues, "notes_md": ""})["issues"], issues)


SURVIVES = {
    "one": "1",
    "one, in another spelling": "1.0",
    "minus nothing": "-0.0",
    "beyond a machine's whole numbers": "18446744073709551616",
    "beyond what a double tells apart": "9007199254740993",
    "of many digits": "1" + "0" * 300,
    "large": "1e300",
    "tiny": "5e-324",
    "beyond all doubles": "1e400",
    "beneath all doubles": "-1e400",
    "a whole number beyond all doubles": "9" * 5000,
    "half a character": '"\\ud800"',
    "half a character as a key": '{"\\udfff": 1}',
    "half a character as a key of the critic's": '1, "\\udfff": 1',
    "a character that says nothing": '"\\u0000"',
    "keys that are numbers": '{"b": 1, "10": 2, "2": 3, "01": 4}',
    "line separators": '"\u2028\u2029\u0085\u007f"',
    "long": f'"{"ä" * 500_000}"',
    "too long": f'"{"x" * 1_048_576}"',
    "many": "[" + "0," * 200_000 + "0]",
    "deep": "[" * 200 + "]" * 200,
    "too deep": "[" * 300 + "]" * 300,
    "far too deep": '{"a":' * 100_000 + "1" + "}" * 100_000,
}


@pytest.mark.case("C3-23", "C3-24", "C3-25")
@pytest.mark.parametrize("what", SURVIVES)
def test_a_value_is_kept_or_refused_and_never_becomes_another_one(desk: Context, runs_dir: Path, what: str) -> None:
    before = everything(runs_dir)
    text = f'{{"issues": [{{"it": {SURVIVES[what]}}}], "notes_md": ""}}'
    found, message = None, ""
    try:
        found = stored(desk, "structured_critique", text)
    except InvalidInput as refusal:
        message = refusal.message
    if found is None:
        assert 0 < len(message) < 300
        assert everything(runs_dir) == before
    else:
        assert same(found, json.loads(text, parse_int=float))


def deeper(frames: int, look: Callable[[], Any]) -> Any:
    """What somebody sees who stands so much deeper in the stack."""
    return look() if frames == 0 else deeper(frames - 1, look)


@pytest.mark.case("C3-23", "C3-25")
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": [', "]}"), ('{"a":{"b":', "}}")])
def test_what_is_nested_too_deeply_is_refused_and_what_is_not_can_be_read_from_anywhere(
    desk: Context, opening: str, closing: str
) -> None:
    def put(depth: int) -> str | None:
        nested = f"{opening * depth}0{closing * depth}"
        try:
            text = f'{{"issues": [{{"it": {nested}}}], "notes_md": ""}}'
            made: str = messages.put(desk, "structured_critique", text)["message_id"]
        except InvalidInput:
            return None
        return made

    fine, too_deep = 10, 100_000
    deepest = put(fine)
    while too_deep - fine > 1:
        middle = (fine + too_deep) // 2
        made = put(middle)
        fine, too_deep, deepest = (middle, too_deep, made) if made else (fine, middle, deepest)
    assert deepest is not None
    assert deeper(300, lambda: messages.show(desk, deepest))["id"] == deepest


@pytest.mark.case("C3-21")
def test_putting_the_same_again_makes_another_message_and_the_first_stays(desk: Context) -> None:
    text = '{"text": "the same"}'
    made = [messages.put(desk, "plaintext", text)["message_id"] for _ in range(3)]
    assert len(set(made)) == 3
    assert [found["id"] for found in messages.listed(desk)[0]] == sorted(made)
    assert {json.dumps(messages.show(desk, one)["content"]) for one in made} == {text}


@pytest.mark.case("C3-32")
def test_content_lies_in_one_place_however_many_it_was_sent_to(desk: Context, runs_dir: Path) -> None:
    runs = [new_run(desk) for _ in range(3)]
    words = "words that stand nowhere else"
    made = messages.put(desk, "plaintext", json.dumps({"text": words}))["message_id"]
    for run_id in runs:
        assert deliveries.send(desk, run_id, made)["status"] == "delivered"
    assert [name for name, data in everything(runs_dir).items() if words.encode() in data] == [f".messages/{made}.json"]
    assert all(made in desk.runs.read(run_id, desk.clock.now()).inbox for run_id in runs)


def fits(schema: str, content: object) -> bool:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema to judge by the schema alone")
    return bool(jsonschema.Draft202012Validator(catalogue()[schema]["json_schema"]).is_valid(content))


@pytest.mark.case("C3-31")
@pytest.mark.parametrize("schema", GOOD)
def test_each_schema_is_published_with_what_it_is_for(schema: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema to check the schema itself")
    about = catalogue()[schema]
    assert list(about) == ["description", "json_schema"]
    assert about["description"].endswith(".")
    jsonschema.Draft202012Validator.check_schema(about["json_schema"])
    assert about["json_schema"]["type"] == "object"
    assert json.loads(json.dumps(about)) == about
    assert messages.catalogue()[schema] == about
    about["json_schema"].clear()
    assert catalogue()[schema]["json_schema"]


@pytest.mark.case("C3-31")
@pytest.mark.parametrize("schema", GOOD)
def test_the_published_schema_takes_what_is_good_and_not_what_is_for_others(schema: str) -> None:
    assert fits(schema, GOOD[schema])
    assert [other for other in GOOD if fits(schema, GOOD[other])] == [schema]
    for key in GOOD[schema]:
        less = {other: value for other, value in GOOD[schema].items() if other != key}
        assert fits(schema, less) == ((schema, key) == ("structured_grade", "notes_md"))


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    # Every number that is written as text is one, too.
    | st.sampled_from(["0.5", "1e3", "-7", " 2 ", "nan", "", "x"]) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
likely: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=4),
    "issues": st.lists(st.dictionaries(st.text(max_size=4), values, max_size=3), max_size=3),
    "notes_md": st.text(max_size=4),
    "recall": st.floats(0, 1) | st.sampled_from(["0.5", "1", True, 1, 0]),
    "precision": st.floats(0, 1) | st.integers(-5, 5),
    "more": values,
}
contents: st.SearchStrategy[Any] = st.one_of(
    *(
        st.fixed_dictionaries(
            {key: st.one_of(likely[key], likely[key], likely[key], values) for key in keys},
            optional={key: likely[key] for key in {"notes_md", "more"} - {*keys}},
        )
        for keys in (("text",), ("issues", "notes_md"), ("recall", "precision"))
    ),
    values,
)


@pytest.mark.case("C3-24", "C3-31")
@pytest.mark.parametrize("schema", GOOD)
@given(content=contents)
def test_what_the_model_makes_of_a_content_fits_what_is_published_and_stays_so(schema: str, content: Any) -> None:
    try:
        valid = SCHEMAS[schema].model_validate(content).model_dump(mode="json")
    except ValidationError:
        # Nor does what is published promise more than is taken.
        assert not fits(schema, content)
        return
    assert fits(schema, valid)
    assert SCHEMAS[schema].model_validate(valid).model_dump(mode="json") == valid
    assert set(content) <= set(valid)
    if fits(schema, content):
        assert all(same(valid[key], content[key]) for key in content)

"""The published JSON Schema says what the models say, in valid and stable draft 2020-12."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from subagent_cli.contracts.schema import NAMES, json_schema

CORPUS = json.loads(Path(__file__).with_name("meta_corpus.json").read_text(encoding="utf-8"))

RUN: dict[str, Any] = {
    "version": 1,
    "runId": "01936f2e-0000-7000-8000-000000000000",
    "agentName": "worker",
    "task": "Count the files.",
    "argv": ["worker", "-p"],
    "cwd": "/srv/project",
    "name": None,
    "parentId": None,
    "groupId": None,
    "depth": 0,
    "timeoutSeconds": 1.5,
    "tokenHash": "0f",
    "labels": {"team": "blue"},
    "key": None,
    "createdAt": "2025-01-31T12:00:00.000Z",
}
ENTRY: dict[str, Any] = {"seq": 1, "at": "2025-01-31T12:00:00.000Z", "type": "asked", "crc": "00ff12ab"}

# Name, changes to a good document, whether the result is still good.
CASES = [
    ("run", {}, True),
    ("run", {"argv": None, "timeoutSeconds": None, "labels": {}}, True),
    ("run", {"addedLater": [1]}, True),
    ("run", {"version": 2}, False),
    ("run", {"depth": -1}, False),
    ("run", {"depth": "0"}, False),
    ("run", {"argv": "worker -p"}, False),
    ("run", {"argv": ["worker", 5]}, False),
    ("run", {"labels": {"team": 5}}, False),
    ("run", {"labels": None}, False),
    ("run", {"timeoutSeconds": "60"}, False),
    ("run", {"name": 5}, False),
    ("run", {"task": None}, False),
    ("journal", {}, True),
    ("journal", {"clock": "b:1", "origin": "meta", "meta": "0f", "question": "Which port?"}, True),
    ("journal", {"seq": 0}, False),
    ("journal", {"seq": True}, False),
    ("journal", {"clock": None}, False),
    ("journal", {"origin": None}, False),
    ("journal", {"meta": None}, False),
    ("journal", {"crc": "00FF12AB"}, False),
    ("journal", {"crc": "00ff12ab0"}, False),
    ("journal", {"crc": "00ff12ag"}, False),
]
GOOD = {"run": RUN, "journal": ENTRY}


def accepted_by_model(name: str, document: object) -> bool:
    try:
        NAMES[name].model_validate(document)
    except ValidationError:
        return False
    return True


def accepted_by_schema(name: str, document: object) -> bool:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema to judge by the schema alone")
    return bool(jsonschema.Draft202012Validator(json_schema(name)).is_valid(document))


def test_the_formats_that_are_published() -> None:
    assert list(NAMES) == ["meta", "run", "journal", "dispatch"]


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        json_schema("metadata")


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_a_valid_draft_2020_12_document_of_its_own(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema to check the schema itself")
    schema = json_schema(name)
    assert list(schema)[:3] == ["$schema", "title", "description"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == NAMES[name].__name__
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_survives_json_and_is_the_same_each_time_even_after_a_caller_changed_it(name: str) -> None:
    text = json.dumps(json_schema(name))
    assert json.loads(text) == json_schema(name)
    json_schema(name)["properties"].clear()
    assert json.dumps(json_schema(name)) == text


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_every_object_is_described_in_a_sentence(name: str) -> None:
    schema = json_schema(name)
    for part in [schema, *schema.get("$defs", {}).values()]:
        for described in [part, *part.get("properties", {}).values()]:
            assert described["description"].endswith("."), described


@pytest.mark.parametrize("name", NAMES)
def test_no_default_is_published_since_nobody_fills_it_in(name: str) -> None:
    assert '"default"' not in json.dumps(json_schema(name))


@pytest.mark.case("C1-06")
@pytest.mark.case("C1-07")
def test_the_schema_of_the_document_says_which_keys_may_be_null_and_requires_none() -> None:
    schema = json_schema("meta")
    assert "required" not in schema
    assert schema["additionalProperties"] is True
    keys = schema["properties"]
    nullable = {key for key, part in keys.items() if {"type": "null"} in part.get("anyOf", [])}
    assert nullable == {"endTime", "exitCode", "summary"}
    assert {"type": "number"} in keys["exitCode"]["anyOf"]
    others = "runId agentName status messages command startTime lastUpdated"
    assert set(keys) - nullable == set(others.split())


@pytest.mark.case("C1-04")
@pytest.mark.case("C1-05")
def test_the_schema_of_a_message_leaves_the_answer_optional_but_never_null() -> None:
    part = json_schema("meta")["$defs"]["MetaMessage"]
    assert part["required"] == ["messageId", "questionContent", "questionTimestamp", "messageStatus"]
    for key in ("answerContent", "answerTimestamp"):
        assert part["properties"][key]["type"] == "string"


@pytest.mark.case("C1-04")
@pytest.mark.case("C1-06")
def test_the_schema_lists_exactly_the_legal_words() -> None:
    parts = json_schema("meta")["$defs"]
    questions = "pending_parent_reply parent_replied acknowledged_by_subagent parent_acknowledged"
    assert sorted(parts["MessageStatus"]["enum"]) == sorted(questions.split())
    runs = "pending running completed error success waiting_parent_reply parent_replied"
    assert sorted(parts["RunStatus"]["enum"]) == sorted(runs.split())


@pytest.mark.parametrize("document", [pytest.param(d, id=name) for name, d in CORPUS["accepted"].items()])
def test_the_schema_accepts_what_the_server_accepts(document: object) -> None:
    assert accepted_by_schema("meta", document)


@pytest.mark.parametrize("document", [pytest.param(d, id=name) for name, d in CORPUS["refused"].items()])
def test_the_schema_refuses_what_blocks_the_server(document: object) -> None:
    assert not accepted_by_schema("meta", document)


@pytest.mark.parametrize(("name", "changes", "good"), CASES)
def test_model_and_schema_agree_on_run_and_journal(name: str, changes: dict[str, Any], good: bool) -> None:
    document = {**GOOD[name], **changes}
    assert accepted_by_model(name, document) is good
    assert accepted_by_schema(name, document) is good


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in GOOD for key in GOOD[name]])
def test_no_key_of_a_run_or_of_an_entry_s_envelope_may_be_missing(name: str, key: str) -> None:
    short = {other: value for other, value in GOOD[name].items() if other != key}
    assert not accepted_by_model(name, short)
    assert not accepted_by_schema(name, short)


@pytest.mark.parametrize(("name", "document"), [("run", RUN), ("journal", ENTRY)])
def test_keys_of_a_newer_release_are_kept(name: str, document: dict[str, Any]) -> None:
    newer = {**document, "addedLater": {"a": [1, None]}}
    assert NAMES[name].model_validate(newer).model_dump(exclude_unset=True) == newer

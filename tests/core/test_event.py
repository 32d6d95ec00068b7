"""What the journal holds is what happened: every event survives being written down, today's and tomorrow's fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.errors import Damaged
from subagent_cli.core.event import (
    Acknowledged,
    Asked,
    Created,
    Delivered,
    Event,
    Exited,
    Expired,
    Granted,
    Observed,
    Replied,
    Reported,
    Revoked,
    Told,
    event,
    kind_of,
    record,
)
from subagent_cli.core.moment import Moment
from tests.core.lives import START, moments, texts

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
mappings = st.dictionaries(texts, json_values, max_size=3)
perhaps = st.none() | texts
several = st.lists(texts, max_size=3).map(tuple)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Created, moments, texts, texts, texts, texts),
    st.builds(Observed, moments, mappings, st.dictionaries(texts, mappings, max_size=2), mappings),
    st.builds(Asked, moments, texts, texts, texts, several, perhaps, st.none() | st.integers(), perhaps, mappings),
    st.builds(Told, moments, texts),
    st.builds(Replied, moments, texts, texts, texts, perhaps, perhaps),
    st.builds(Acknowledged, moments, several.filter(bool)),
    st.builds(Expired, moments, texts, texts, texts),
    st.builds(Reported, moments, texts, perhaps, perhaps, perhaps, perhaps),
    st.builds(Exited, moments, numbers, texts, perhaps),
    st.builds(Granted, moments, texts, texts, texts, st.none() | st.integers()),
    st.builds(Revoked, moments, texts, texts, texts),
    st.builds(Delivered, moments, texts, texts, texts, texts, perhaps, st.none() | st.booleans()),
)


def through_the_journal(happening: Event) -> Event:
    return event(json.loads(json.dumps(record(happening))))


@given(events)
def test_every_event_survives_being_written_down(happening: Event) -> None:
    again = through_the_journal(happening)
    assert again == happening
    assert type(again) is type(happening)


@given(events, st.dictionaries(texts.map(lambda text: f"later-{text}"), json_values, max_size=3))
def test_fields_of_a_newer_release_are_passed_over(happening: Event, newer: dict[str, Any]) -> None:
    written = json.loads(json.dumps(record(happening)))
    assert event({**written, **newer}) == event(written)


@given(events)
def test_a_record_names_its_type_and_leaves_out_what_is_empty(happening: Event) -> None:
    written = record(happening)
    assert written["type"] == kind_of(happening)
    assert all(value is not None and value != () and value != {} for value in written.values())


@pytest.mark.case("X26")
def test_the_fields_of_a_record_are_in_camel_case() -> None:
    written = record(Asked(START, "m1", "Why?", START.iso, ("a", "b"), "a", 5, "k1", {"priority": 1}))
    assert written == {
        "at": "2025-10-09T08:53:20.000Z",
        "clock": "boot-a+5000000",
        "type": "asked",
        "messageId": "m1",
        "question": "Why?",
        "timestamp": "2025-10-09T08:53:20.000Z",
        "options": ("a", "b"),
        "default": "a",
        "deadline": 5,
        "key": "k1",
        "extras": {"priority": 1},
    }


def test_what_is_empty_leaves_no_key_behind() -> None:
    assert set(record(Asked(START, "m1", "Why?", "", (), None, None, None, {}))) == {
        *("at", "clock", "type", "messageId", "question", "timestamp"),
    }


@pytest.mark.parametrize("value", ["", 0])
def test_an_empty_text_and_a_zero_are_values_and_stay(value: str | int) -> None:
    happening = Exited(START, 0, "", "") if value == "" else Asked(START, "m1", "", "", deadline=0)
    assert through_the_journal(happening) == happening


@pytest.mark.parametrize("type_", [None, 5, "", "Asked", "forgotten", ["asked"], "event", "x" * 10_000])
def test_an_unknown_type_refuses_to_be_read(type_: object) -> None:
    with pytest.raises(Damaged) as refused:
        event({"at": START.iso, "clock": START.clock, "type": type_})
    assert refused.value.code == "newer_journal"
    assert len(refused.value.message) < 200


def test_a_record_without_a_type_refuses_to_be_read() -> None:
    with pytest.raises(Damaged):
        event({"at": START.iso, "clock": START.clock})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("at", 5),
        ("at", None),
        ("clock", 5),
        ("clock", None),
        ("messageId", 5),
        ("messageId", None),
        ("question", ["Why?"]),
        ("options", "ab"),
        ("options", ["a", 1]),
        ("options", {"a": "b"}),
        ("default", 1),
        ("deadline", "5"),
        ("deadline", 5.5),
        ("deadline", True),
        ("extras", ["priority"]),
    ],
)
def test_a_value_that_cannot_stand_in_its_field_refuses_to_be_read(key: str, value: object) -> None:
    asked = record(Asked(START, "m1", "Why?", START.iso, ("a", "b"), "a", 5, "k1", {"priority": 1}))
    with pytest.raises(Damaged) as refused:
        event({**json.loads(json.dumps(asked)), key: value})
    assert refused.value.code == "damaged_journal"
    named = "at" if key == "clock" else key
    assert refused.value.message == f"the journal holds an event that makes no sense: its {named}"
    assert refused.value.hint == "nothing was changed; `subagent doctor --fix` saves the lines that are whole"


@pytest.mark.parametrize("value", [None, 3, 3.5, -1])
def test_a_number_may_be_whole_or_not_and_what_may_be_missing_may_be_null(value: float | None) -> None:
    written = {"at": START.iso, "type": "exited", "exitCode": value or 0, "timestamp": "", "summary": None}
    assert event(written) == Exited(Moment(START.ms), value or 0, "")


def test_a_record_that_lacks_a_field_refuses_to_be_read() -> None:
    written = record(Replied(START, "m1", "yes", START.iso))
    del written["answer"]
    with pytest.raises(Damaged) as refused:
        event(written)
    assert "answer" in refused.value.message

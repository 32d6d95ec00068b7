"""What is asked of a throwaway child is normalised or refused by its field, and what comes back is taken as it is."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subagent_cli.core.dispatch import (
    ASCII_PATTERN,
    FIELDS,
    DispatchSubagent,
    DispatchSubagentError,
    DispatchSubagentResult,
    ToolValidationError,
    delivered,
    is_plain,
    missing,
    normalized,
    requested,
    shortfalls,
)
from subagent_cli.core.errors import InvalidInput, SubagentError

AD_HOC = DispatchSubagent("ad_hoc", "docs", "review", "Review the docs")
PLAN_STEP = replace(AD_HOC, mode="plan_step", plan_step_id="S1")
TABLE = {"mode": "ad_hoc", "prompt_ns": "docs", "prompt_key": "review", "instructions": "Review the docs"}

# Blanks as Python takes them off, characters beyond ASCII, and plain ones, near the limits too.
letters = st.text(st.sampled_from(" \t\n\x00\x1c\xa0\u3000aZ9~é"), max_size=12)
texts = letters | st.builds(lambda left, many, right: left + "x" * many + right, letters, st.integers(0, 2100), letters)
anything = texts | st.none() | st.integers() | st.binary() | st.lists(texts) | st.dictionaries(texts, texts)
requests = st.builds(
    DispatchSubagent,
    st.sampled_from(["plan_step", "ad_hoc", "other"]) | anything,
    texts | anything,
    texts | anything,
    texts | anything,
    st.lists(texts, max_size=3) | st.lists(anything, max_size=3) | anything,
    st.none() | texts | anything,
)


def asked(**changes: Any) -> DispatchSubagent:
    return replace(AD_HOC, **changes)


def judged(request: DispatchSubagent) -> DispatchSubagent | ToolValidationError:
    try:
        return normalized(request)
    except ToolValidationError as error:
        return error


def refusal(request: DispatchSubagent) -> tuple[str | None, str]:
    with pytest.raises(ToolValidationError) as caught:
        normalized(request)
    return caught.value.field, caught.value.message


@pytest.mark.case("C4-01")
def test_a_request_has_six_fields_of_which_two_may_be_left_out() -> None:
    names = "mode prompt_ns prompt_key instructions expected_artifacts plan_step_id"
    assert [field.name for field in fields(DispatchSubagent)] == names.split()
    assert (AD_HOC.expected_artifacts, AD_HOC.plan_step_id) == ((), None)


@pytest.mark.case("C4-01")
@pytest.mark.parametrize("value", [AD_HOC, DispatchSubagentResult("Done")])
def test_requests_and_results_cannot_be_changed(value: object) -> None:
    name = fields(value)[0].name  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, "other")
    assert not hasattr(value, "__dict__")


@pytest.mark.case("C4-01")
@pytest.mark.parametrize("request_", [AD_HOC, PLAN_STEP])
def test_a_good_request_comes_back_equal(request_: DispatchSubagent) -> None:
    assert normalized(request_) == request_


@pytest.mark.case("C4-02")
@pytest.mark.parametrize("given", [" Review the docs", "Review the docs\n", "\t\u3000Review the docs\xa0\x1c"])
def test_blanks_around_instructions_are_taken_off(given: str) -> None:
    assert normalized(asked(instructions=given)).instructions == "Review the docs"


@pytest.mark.case("C4-03")
@pytest.mark.parametrize("given", ["", " ", "\t\n", "\u3000"])
def test_empty_instructions_are_refused(given: str) -> None:
    assert refusal(asked(instructions=given)) == ("instructions", "instructions must be non-empty ASCII text.")


@pytest.mark.case("C4-04")
def test_two_thousand_characters_pass_and_one_more_does_not() -> None:
    longest = "x" * 2000
    assert normalized(asked(instructions=longest)).instructions == longest
    assert normalized(asked(instructions=f"  {longest}\n")).instructions == longest
    assert refusal(asked(instructions=f"{longest}x")) == (
        "instructions",
        "instructions must be <= 2000 characters of ASCII text.",
    )


@pytest.mark.case("C4-05")
@pytest.mark.parametrize("given", ["Prüfe", "a\u3000b", "\ud800", "x\x80"])
def test_instructions_beyond_ascii_are_refused(given: str) -> None:
    assert refusal(asked(instructions=given)) == ("instructions", "instructions must contain only ASCII characters.")


@pytest.mark.case("C4-06")
@pytest.mark.parametrize("field", ["instructions", "expected_artifacts"])
def test_length_is_checked_before_ascii_and_the_field_is_named(field: str) -> None:
    limit = {"instructions": 2000, "expected_artifacts": 160}[field]
    for text, told in [
        ("\xa0", f"{field} must be non-empty ASCII text."),
        ("é" * (limit + 1), f"{field} must be <= {limit} characters of ASCII text."),
        ("é" * limit, f"{field} must contain only ASCII characters."),
    ]:
        assert refusal(asked(**{field: text if field == "instructions" else [text]})) == (field, told)


@pytest.mark.case("C4-07")
def test_an_artifact_is_trimmed_and_has_160_characters_at_most() -> None:
    longest = "x" * 160
    request = asked(expected_artifacts=(" report.md\n", f" {longest} "))
    assert normalized(request).expected_artifacts == ("report.md", longest)
    field, told = refusal(asked(expected_artifacts=("report.md", f"{longest}x")))
    assert (field, told) == ("expected_artifacts", "expected_artifacts must be <= 160 characters of ASCII text.")


@pytest.mark.case("C4-07")
@pytest.mark.parametrize("label", ["", "  ", "é", 5, None, b"x", ["x"]])
def test_one_bad_artifact_is_enough(label: object) -> None:
    assert refusal(asked(expected_artifacts=["report.md", label]))[0] == "expected_artifacts"


@pytest.mark.case("C4-08")
@pytest.mark.parametrize("kind", [list, tuple, deque])
def test_any_sequence_becomes_a_tuple_in_its_order_with_its_duplicates(kind: Any) -> None:
    labels = normalized(asked(expected_artifacts=kind(["b", "a", "b "]))).expected_artifacts
    assert labels == ("b", "a", "b")
    assert type(labels) is tuple


@pytest.mark.case("C4-08")
def test_a_sequence_of_ones_own_making_will_do() -> None:
    class Pages(Sequence[str]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, place: Any) -> Any:
            return ["one", "two"][place]

    assert normalized(asked(expected_artifacts=Pages())).expected_artifacts == ("one", "two")


@pytest.mark.case("C4-08")
@pytest.mark.parametrize("values", ["report.md", "", b"", b"x", None, 5, {"a"}, {"a": 1}, iter(["a"])])
def test_what_is_no_sequence_of_texts_is_refused(values: object) -> None:
    field, told = refusal(asked(expected_artifacts=values))
    assert (field, told) == ("expected_artifacts", "expected_artifacts must be a sequence of ASCII texts.")


@pytest.mark.case("C4-09")
def test_a_plan_step_needs_its_id() -> None:
    assert refusal(asked(mode="plan_step")) == (
        "plan_step_id",
        "plan_step_id is required when mode is 'plan_step'.",
    )


@pytest.mark.case("C4-10")
def test_the_id_of_a_plan_step_is_trimmed_and_as_long_as_it_likes() -> None:
    assert normalized(replace(PLAN_STEP, plan_step_id=f" {'x' * 5000}\n")).plan_step_id == "x" * 5000


@pytest.mark.case("C4-10")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "plan_step_id must be non-empty ASCII text."),
        (" \n", "plan_step_id must be non-empty ASCII text."),
        ("Schritt é", "plan_step_id must contain only ASCII characters."),
    ],
)
def test_an_id_that_is_none_is_refused(given: str, told: str) -> None:
    assert refusal(replace(PLAN_STEP, plan_step_id=given)) == ("plan_step_id", told)


@pytest.mark.case("C4-11")
@pytest.mark.parametrize("given", ["S1", "", "é", None])
def test_outside_a_plan_there_is_no_step(given: str | None) -> None:
    assert normalized(asked(plan_step_id=given)).plan_step_id is None


@pytest.mark.case("C4-12")
@pytest.mark.parametrize("mode", ["", "PLAN_STEP", " ad_hoc", "plan-step", "batch", None, 0, True, [], {}, b"ad_hoc"])
def test_a_mode_that_there_is_not_is_refused(mode: object) -> None:
    assert refusal(asked(mode=mode)) == ("mode", "mode must be 'plan_step' or 'ad_hoc'.")


@pytest.mark.case("C4-13")
@pytest.mark.parametrize("name", ["", "  padded\n", "Prüfung/α", "x" * 5000])
def test_the_names_of_the_prompt_pass_through_untouched(name: str) -> None:
    request = normalized(asked(prompt_ns=name, prompt_key=name))
    assert (request.prompt_ns, request.prompt_key) == (name, name)


@pytest.mark.case("C4-13")
@pytest.mark.parametrize("field", ["prompt_ns", "prompt_key"])
@pytest.mark.parametrize("name", [None, 5, b"docs", ["docs"], "half a \ud83d"])
def test_a_name_that_is_no_text_is_refused(field: str, name: object) -> None:
    assert refusal(asked(**{field: name}))[0] == field


@pytest.mark.parametrize("field", ["instructions", "plan_step_id"])
@pytest.mark.parametrize("value", [5, b"x", ["x"], {"x": 1}, True])
def test_a_wrong_type_is_a_refusal_like_any_other(field: str, value: object) -> None:
    assert refusal(asked(**{field: value})) == (field, f"{field} must be text.")


def test_the_kinds_of_errors_are_those_of_the_one_tree() -> None:
    with pytest.raises(InvalidInput) as caught:
        normalized(asked(instructions=""))
    assert caught.value.code == "invalid_dispatch"
    assert isinstance(caught.value, ValueError)
    assert (ToolValidationError("unsupported").field, DispatchSubagentError("x").code) == (None, "dispatch_failed")
    assert isinstance(DispatchSubagentError("x"), SubagentError)
    assert not isinstance(DispatchSubagentError("x"), InvalidInput)


@pytest.mark.case("C4-02", "C4-06", "C4-08")
@given(requests)
@example(AD_HOC)
@example(PLAN_STEP)
def test_whatever_is_asked_is_fit_to_be_handed_on_or_refused_by_its_field(request: DispatchSubagent) -> None:
    verdict = judged(request)
    if isinstance(verdict, ToolValidationError):
        assert verdict.field in FIELDS
        assert verdict.message.startswith(f"{verdict.field} ")
        return
    fit = verdict
    limited = [(fit.instructions, 2000), *((label, 160) for label in fit.expected_artifacts)]
    for text, limit in limited:
        assert text == text.strip()
        assert text.isascii()
        assert 1 <= len(text) <= limit
    assert (fit.plan_step_id is not None) == (fit.mode == "plan_step")
    assert (fit.prompt_ns, fit.prompt_key) == (request.prompt_ns, request.prompt_key)
    assert normalized(fit) == fit


@given(st.text(st.characters(max_codepoint=127)).filter(str.strip), st.text(st.sampled_from(" \t\n\xa0")))
def test_texts_within_the_limits_are_let_through_whole(text: str, blanks: str) -> None:
    text = text.strip()[:160].strip()
    fit = normalized(asked(instructions=blanks + text + blanks, expected_artifacts=[blanks + text]))
    assert (fit.instructions, fit.expected_artifacts) == (text, (text,))


@pytest.mark.parametrize(("text", "good"), [("Do it\n", True), (" ~", True), ("", False), (" \n", False), ("é", False)])
def test_the_pattern_wants_ascii_and_something_to_see(text: str, good: bool) -> None:
    assert bool(re.search(ASCII_PATTERN, text)) is good


@pytest.mark.limit(10)
@pytest.mark.parametrize("letter", ["x", " "])
def test_the_pattern_takes_no_longer_than_the_text(letter: str) -> None:
    assert not re.search(ASCII_PATTERN, letter * 200_000 + "é")


@pytest.mark.case("C4-01")
def test_a_table_may_leave_out_all_but_the_mode_and_the_instructions() -> None:
    assert requested(TABLE) == AD_HOC
    bare = requested({"mode": "ad_hoc", "instructions": " Do it "})
    assert bare == DispatchSubagent("ad_hoc", "", "", "Do it")


@pytest.mark.case("C4-16")
@pytest.mark.parametrize("name", ["snapshot", "serializer", "session", "Mode", "", "x" * 500])
def test_a_field_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(ToolValidationError) as caught:
        requested({**TABLE, name: "x"})
    assert caught.value.field == name[:40]
    assert "instructions" in caught.value.candidates
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("field", ["mode", "instructions"])
def test_a_table_without_what_it_needs_is_refused(field: str) -> None:
    with pytest.raises(ToolValidationError) as caught:
        requested({name: value for name, value in TABLE.items() if name != field})
    assert (caught.value.field, caught.value.message) == (field, f"{field} is required.")


@pytest.mark.parametrize("table", [None, 5, "x", b"x", [], [TABLE], AD_HOC, {None: 1}, {5: 1}])
def test_what_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(ToolValidationError):
        requested(table)


@pytest.mark.case("C4-30")
def test_what_was_expected_and_not_delivered_is_missing_once_each() -> None:
    request = asked(expected_artifacts=("b", "a", "c", "b"))
    assert missing(request, DispatchSubagentResult("Done", ("a", "draft.md"))) == ("b", "c")
    assert missing(request, DispatchSubagentResult("Done", ("c", "b", "a"))) == ()
    assert missing(AD_HOC, DispatchSubagentResult("Done", ("extra",))) == ()


@pytest.mark.case("C4-37")
def test_a_summary_beyond_ascii_is_not_plain() -> None:
    assert is_plain("Done.")
    assert is_plain("")
    assert not is_plain("Fertig: 3 Änderungen")


@pytest.mark.case("C4-30", "C4-37")
def test_what_was_agreed_and_not_kept_is_told_in_sentences() -> None:
    request = asked(expected_artifacts=("report.md",))
    assert shortfalls(request, DispatchSubagentResult("Done", ("report.md",))) == ()
    assert shortfalls(request, DispatchSubagentResult("Übung")) == (
        "an expected artifact was not delivered: report.md",
        "the summary is not plain ASCII",
    )


@pytest.mark.case("C4-36")
@pytest.mark.parametrize(
    "given",
    [
        None,
        "Done",
        {"message_summary": "Done"},
        ("Done", (), ()),
        DispatchSubagentResult,
        AD_HOC,
        DispatchSubagentResult(5),  # type: ignore[arg-type]
        DispatchSubagentResult("Done", "report.md"),  # type: ignore[arg-type]
        DispatchSubagentResult("Done", (5,)),  # type: ignore[arg-type]
        DispatchSubagentResult("Done", (), None),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_result_is_refused(given: object) -> None:
    with pytest.raises(DispatchSubagentError) as caught:
        delivered(given)
    assert caught.value.message == "invalid result payload"


@pytest.mark.case("C4-29")
def test_a_result_is_taken_as_it_is_but_for_its_lists() -> None:
    result = DispatchSubagentResult("  Done é ", (" b", "a", "a"), ("x", "x"))
    assert delivered(result) == result
    loose = DispatchSubagentResult("Done", ["b", "a"], ["x"])  # type: ignore[arg-type]
    assert delivered(loose) == DispatchSubagentResult("Done", ("b", "a"), ("x",))

"""A question becomes a message that the server accepts, and an answer to options is the option that is meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.document import MESSAGE_KEYS, message_fits
from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.question import (
    ANSWERED,
    EXPIRED,
    PENDING,
    RETRIEVED,
    WORDS,
    Question,
    chosen,
    expiry_text,
    message,
)
from tests.core.lives import DAY, START, later, texts

PLAIN = Question("m1", "Which port?", START.iso, START)
ANSWER = PLAIN._replace(state=ANSWERED, closing="8080", closed_at=later(5).iso)
OPTIONS = PLAIN._replace(options=("left", "right", "neither"))

questions = st.builds(
    Question,
    texts,
    texts,
    texts,
    st.just(START),
    st.sampled_from(list(WORDS)),
    st.none() | texts,
    st.none() | texts,
    st.lists(texts, max_size=4).map(tuple),
    st.none() | texts,
    st.none(),
    st.just({}),
)


@pytest.mark.case("C1-04", "X1")
def test_the_four_states_have_the_servers_four_words() -> None:
    assert WORDS == {
        PENDING: "pending_parent_reply",
        ANSWERED: "parent_replied",
        RETRIEVED: "acknowledged_by_subagent",
        EXPIRED: "parent_acknowledged",
    }


def test_the_four_states_are_called_as_everybody_is_shown_them() -> None:
    assert (PENDING, ANSWERED, RETRIEVED, EXPIRED) == ("PENDING", "ANSWERED", "RETRIEVED", "EXPIRED")


def test_a_question_is_pending_and_holds_nothing_else_until_it_is_said() -> None:
    assert PLAIN[4:] == (PENDING, None, None, (), None, None, {})


@pytest.mark.case("C1-09", "X7")
def test_a_pending_message_has_no_answer_keys() -> None:
    assert message(PLAIN) == {
        "messageId": "m1",
        "questionContent": "Which port?",
        "questionTimestamp": START.iso,
        "messageStatus": "pending_parent_reply",
    }


@pytest.mark.case("C1-04")
def test_a_replied_message_holds_the_answer_and_its_time() -> None:
    assert list(message(ANSWER).items()) == [
        ("messageId", "m1"),
        ("questionContent", "Which port?"),
        ("questionTimestamp", START.iso),
        ("answerContent", "8080"),
        ("answerTimestamp", later(5).iso),
        ("messageStatus", "parent_replied"),
    ]


@pytest.mark.case("C1-05", "X7")
@given(questions)
def test_every_message_fits_and_none_holds_null(question: Question) -> None:
    entry = message(question)
    assert message_fits(entry)
    assert None not in entry.values()
    assert set(entry) <= set(MESSAGE_KEYS)


def test_keys_of_others_stay_behind_our_own() -> None:
    entry = message(PLAIN._replace(extras={"priority": 1}))
    assert list(entry)[-1] == "priority"


@pytest.mark.parametrize(
    ("state", "answer"), [(PENDING, None), (ANSWERED, "8080"), (RETRIEVED, "8080"), (EXPIRED, None)]
)
def test_only_an_answered_question_has_an_answer(state: str, answer: str | None) -> None:
    assert ANSWER._replace(state=state).answer == answer


@pytest.mark.case("C1-21")
def test_an_empty_answer_is_an_answer() -> None:
    empty = ANSWER._replace(closing="")
    assert empty.answer == ""
    assert message(empty)["answerContent"] == ""


@pytest.mark.case("C0-33")
def test_a_parent_that_only_reads_the_document_sees_the_numbered_options() -> None:
    assert message(OPTIONS)["questionContent"] == "Which port?\n\n1. left\n2. right\n3. neither"


@pytest.mark.case("C0-33")
@pytest.mark.parametrize(("answer", "meant"), [("1", "left"), ("3", "neither"), (" 2\n", "right"), ("02", "right")])
def test_a_number_means_the_option_of_that_number(answer: str, meant: str) -> None:
    assert chosen(OPTIONS, answer) == meant


@pytest.mark.case("C0-33")
@pytest.mark.parametrize("answer", ["0", "4", "99999999999999999999999", "1" * 5000, "0" * 5000])
def test_a_number_without_an_option_is_refused_with_the_list(answer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        chosen(OPTIONS, answer)
    assert refused.value.code == "no_such_option"
    assert refused.value.candidates == ("1. left", "2. right", "3. neither")
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("answer", ["left", "1.", "-1", "option 2", "", "²", "1 2"])
def test_an_answer_in_words_is_taken_as_it_is(answer: str) -> None:
    assert chosen(OPTIONS, answer) == answer


@given(st.text())
def test_without_options_a_number_is_only_a_text(answer: str) -> None:
    assert chosen(PLAIN, answer) == answer


@pytest.mark.parametrize(("deadline", "limit"), [(None, DAY), (0, 0), (5, 5), (2 * DAY, 2 * DAY)])
def test_a_deadline_of_its_own_replaces_the_general_one(deadline: int | None, limit: int) -> None:
    assert PLAIN._replace(deadline=deadline).limit(DAY) == limit


@pytest.mark.case("X1")
def test_an_expiry_says_so_in_a_sentence() -> None:
    assert expiry_text(PLAIN, DAY, START.ms + DAY) == (
        "[expired] Nobody answered within 86400 s (until 2025-10-10T08:53:20.000Z); go on without an answer."
    )

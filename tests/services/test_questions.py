"""The question loop: what asking, replying and checking return, what they leave on disk, and what they refuse."""

from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.command import Settle
from subagent_cli.core.errors import InvalidInput, NotFound, Refused, RunNotFound
from subagent_cli.core.ids import is_uuid, short
from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.settings import Caller
from tests.services.desk import (
    FOREIGN_MESSAGE,
    FOREIGN_RUN,
    StillClock,
    create,
    document,
    foreign_message,
    refused,
    snapshot,
    words,
    write_foreign,
)

DAY = 86_400_000
NOBODY = "0190a000-0000-7000-8000-000000000000"
ENVELOPE = ["messageId", "questionContent", "questionTimestamp", "messageStatus"]
CLOSED = ["messageId", "questionContent", "questionTimestamp", "answerContent", "answerTimestamp", "messageStatus"]


def ask(desk: Context, run_id: str, text: str = "Which?", **more: Any) -> str:
    message_id: str = questions.ask(desk, text, run=run_id, **more)["messageId"]
    return message_id


def as_worker(desk: Context, run_id: str) -> Context:
    return desk._replace(caller=Caller(run_id))


@pytest.mark.case("C0-01", "C1-08", "C1-09")
def test_a_question_is_one_pending_message_and_sets_the_run_waiting(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    run_id = create(desk)
    asked = questions.ask(desk, "Which?", run=run_id)
    assert is_uuid(asked["message_id"])
    assert asked["messageId"] == asked["message_id"]
    assert asked["instructions"]
    found = document(runs_dir, run_id)
    assert found["status"] == "waiting_parent_reply"
    assert found["messages"] == [
        {
            "messageId": asked["messageId"],
            "questionContent": "Which?",
            "questionTimestamp": clock.now().iso,
            "messageStatus": "pending_parent_reply",
        }
    ]


@pytest.mark.case("C0-02")
def test_the_asker_is_known_from_its_environment(
    runs_dir: Path, desk: Context, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = create(desk)
    create(desk)
    monkeypatch.setenv("SUBAGENT_RUN_ID", run_id)
    worker = open_context({"runs_dir": str(runs_dir)}, clock)
    assert questions.ask(worker, "Which?")["runId"] == run_id
    assert words(runs_dir, run_id) == ("waiting_parent_reply", ["pending_parent_reply"])


@pytest.mark.case("C0-02")
def test_asking_without_any_identity_is_refused(desk: Context, runs_dir: Path) -> None:
    create(desk)
    with refused(runs_dir, InvalidInput, "no_run"):
        questions.ask(desk, "Which?")


@pytest.mark.case("C0-03", "C1-14")
def test_questions_of_equal_text_are_questions_of_their_own_and_keep_their_order(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    asked = [ask(desk, run_id) for _ in range(5)]
    assert len(set(asked)) == 5
    assert [message["messageId"] for message in document(runs_dir, run_id)["messages"]] == asked


@pytest.mark.case("C0-04")
def test_a_question_waits_until_a_parent_looks(desk: Context, runs_dir: Path, clock: StillClock) -> None:
    message_id = ask(desk, create(desk))
    clock.wait(DAY - 1)
    parent = open_context({"runs_dir": str(runs_dir)}, clock)
    waiting, _ = questions.pending(parent)
    assert [item["message_id"] for item in waiting] == [message_id]


@pytest.mark.case("C0-05", "C1-36")
def test_checking_a_pending_question_gives_no_answer_and_changes_nothing(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    asked_at = clock.now().iso
    clock.wait()
    before = snapshot(runs_dir)
    found = questions.check(desk, message_id)
    assert snapshot(runs_dir) == before
    assert (found["messageId"], found["questionContent"]) == (message_id, "Which?")
    assert found["questionTimestamp"] == asked_at
    assert (found["messageStatus"], found["state"]) == ("pending_parent_reply", "PENDING")
    assert found["answer"] is found["answerContent"] is found["answerTimestamp"] is None


@pytest.mark.case("C0-06", "C1-16", "C1-17")
def test_a_reply_to_the_run_answers_its_one_question(desk: Context, runs_dir: Path, clock: StillClock) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    clock.wait()
    done = questions.reply(desk, run_id, "That.")
    assert done["success"] is True
    assert done["message"]
    assert done["messageIds"] == [message_id]
    found = document(runs_dir, run_id)
    assert done["updatedMetadata"] == found
    assert found["status"] == "parent_replied"
    (message,) = found["messages"]
    assert list(message) == CLOSED
    assert message["answerContent"] == "That."
    assert message["answerTimestamp"] == clock.now().iso
    assert message["messageStatus"] == "parent_replied"


@pytest.mark.case("C0-07", "X4")
def test_a_reply_to_a_run_without_a_pending_question_is_refused(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    with refused(runs_dir, Refused, "no_pending_question"):
        questions.reply(desk, run_id, "That.")
    ask(desk, run_id)
    questions.reply(desk, run_id, "That.")
    with refused(runs_dir, Refused, "no_pending_question"):
        questions.reply(desk, run_id, "Or that.")


@pytest.mark.case("C0-08", "C0-09", "C1-19", "C1-20")
@pytest.mark.parametrize("by", ["message", "run and message"])
@pytest.mark.parametrize("state", ["ANSWERED", "RETRIEVED", "EXPIRED"])
def test_a_closed_question_takes_no_reply_and_keeps_its_first_answer(
    desk: Context, runs_dir: Path, clock: StillClock, state: str, by: str
) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    if state == "EXPIRED":
        clock.wait(DAY + 1)
        questions.tell(desk, "Going on.", run=run_id)
    else:
        questions.reply(desk, message_id, "First.")
    if state == "RETRIEVED":
        questions.check(desk, message_id)
    with refused(runs_dir, Refused, "not_pending"):
        if by == "message":
            questions.reply(desk, message_id, "Second.")
        else:
            questions.reply(desk, run_id, "Second.", message=message_id)
    answer = questions.check(desk, message_id, peek=True)["answer"]
    assert answer == (None if state == "EXPIRED" else "First.")


@pytest.mark.case("C0-08")
def test_an_overdue_question_takes_no_reply_although_nobody_has_written_its_expiry(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    message_id = ask(desk, create(desk))
    clock.wait(DAY + 1)
    with refused(runs_dir, Refused, "not_pending"):
        questions.reply(desk, message_id, "Too late.")


@pytest.mark.case("C1-19")
def test_the_refusal_names_the_status_that_was_found(desk: Context) -> None:
    message_id = ask(desk, create(desk))
    questions.reply(desk, message_id, "First.")
    with pytest.raises(Refused, match="parent_replied"):
        questions.reply(desk, message_id, "Second.")
    questions.check(desk, message_id)
    with pytest.raises(Refused, match="acknowledged_by_subagent"):
        questions.reply(desk, message_id, "Third.")


@pytest.mark.case("C0-08", "C1-18")
def test_a_reply_to_an_unknown_message_finds_nothing(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    ask(desk, run_id)
    with refused(runs_dir, NotFound, "not_found"):
        questions.reply(desk, NOBODY, "That.")
    with refused(runs_dir, NotFound, "message_not_found"):
        questions.reply(desk, run_id, "That.", message=NOBODY)


@pytest.mark.case("C0-10", "C1-37")
def test_the_first_check_delivers_the_answer_and_marks_it_retrieved(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    questions.reply(desk, message_id, "That.")
    found = questions.check(desk, message_id)
    assert found["answer"] == found["answerContent"] == "That."
    assert (found["messageStatus"], found["state"]) == ("parent_replied", "ANSWERED")
    assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"])


@pytest.mark.case("C0-11", "C1-38", "X6")
def test_a_second_check_gives_the_answer_again_and_changes_nothing(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    questions.reply(desk, message_id, "That.")
    questions.check(desk, message_id)
    before = snapshot(runs_dir)
    found = questions.check(desk, message_id)
    assert found["answer"] == "That."
    assert (found["messageStatus"], found["state"]) == ("acknowledged_by_subagent", "RETRIEVED")
    assert snapshot(runs_dir) == before


@pytest.mark.case("X5")
def test_a_peeking_check_leaves_the_answer_unread(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    questions.reply(desk, message_id, "That.")
    before = snapshot(runs_dir)
    assert questions.check(desk, message_id, peek=True)["answer"] == "That."
    assert snapshot(runs_dir) == before


@pytest.mark.case("C1-39")
def test_checking_what_is_not_there_finds_nothing(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    with refused(runs_dir, NotFound, "message_not_found"):
        questions.check(desk, NOBODY, run=run_id)
    ask(desk, run_id)
    with refused(runs_dir, NotFound, "message_not_found"):
        questions.check(desk, NOBODY)
    with refused(runs_dir, NotFound, "message_not_found"):
        questions.check(desk, NOBODY, run=run_id)
    with refused(runs_dir, RunNotFound, "run_not_found"):
        questions.check(desk, NOBODY, run=NOBODY)


@pytest.mark.case("C1-39")
def test_an_empty_message_id_is_not_a_name_that_could_be_looked_for(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    ask(desk, run_id)
    with refused(runs_dir, InvalidInput, "invalid_message_id"):
        questions.check(desk, "")
    with refused(runs_dir, InvalidInput, "invalid_message_id"):
        questions.check(desk, "", run=run_id)
    with refused(runs_dir, InvalidInput, "invalid_message_id"):
        questions.reply(desk, run_id, "That.", message="")


@pytest.mark.case("C0-13")
def test_a_question_passes_its_states_in_order_and_never_back(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    worker = as_worker(desk, run_id)
    seen = []
    for step in range(3):
        if step == 1:
            questions.reply(desk, message_id, "That.")
        for _ in range(2):
            # While nothing is answered, no amount of looking makes the question retrieved.
            seen.append(questions.check(worker, message_id, peek=step == 1)["state"])
            if step != 1:
                runs.status(worker, None)
        if step == 1:
            runs.status(worker, None)
    assert seen == ["PENDING", "PENDING", "ANSWERED", "ANSWERED", "RETRIEVED", "RETRIEVED"]
    with refused(runs_dir, Refused, "not_pending"):
        questions.reply(desk, message_id, "Again.")


@pytest.mark.case("C0-14", "C0-17")
def test_pending_lists_the_questions_of_all_runs_oldest_first(desk: Context, clock: StillClock) -> None:
    one, two = create(desk), create(desk)
    asked = []
    for run_id in (two, one, two, one):
        clock.wait()
        asked.append(ask(desk, run_id))
    waiting, faults = questions.pending(desk)
    assert [item["message_id"] for item in waiting] == asked
    assert [item["run_id"] for item in waiting] == [two, one, two, one]
    assert faults == []


@pytest.mark.case("C0-15")
def test_pending_of_one_run_lists_only_its_own(desk: Context) -> None:
    one, two = create(desk), create(desk)
    ask(desk, one)
    mine = ask(desk, two)
    waiting, _ = questions.pending(desk, two)
    assert [item["message_id"] for item in waiting] == [mine]
    waiting, _ = questions.pending(desk, create(desk))
    assert waiting == []


@pytest.mark.case("C0-16")
def test_a_listed_question_has_the_three_fixed_names(desk: Context, clock: StillClock) -> None:
    message_id = ask(desk, create(desk))
    (item,), _ = questions.pending(desk)
    assert item["message_id"] == message_id
    assert item["question"] == "Which?"
    assert item["timestamp"] == clock.now().iso


@pytest.mark.case("C0-18")
def test_closed_questions_are_not_pending(desk: Context, clock: StillClock) -> None:
    expired = ask(desk, create(desk))
    clock.wait(DAY + 1)
    run_id = create(desk)
    answered, retrieved, waiting = (ask(desk, run_id) for _ in range(3))
    questions.reply(desk, answered, "That.")
    questions.reply(desk, retrieved, "That.")
    questions.check(desk, retrieved)
    listed, _ = questions.pending(desk)
    assert [item["message_id"] for item in listed] == [waiting]
    assert questions.check(desk, expired)["state"] == "EXPIRED"


@pytest.mark.case("C0-30")
def test_a_single_question_is_refused_until_the_open_one_is_retrieved(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    first = ask(desk, run_id, single=True)
    with refused(runs_dir, Refused, "question_open"):
        ask(desk, run_id, single=True)
    questions.reply(desk, first, "That.")
    with refused(runs_dir, Refused, "question_open"):
        ask(desk, run_id, single=True)
    questions.check(desk, first)
    assert ask(desk, run_id, single=True) != first
    ask(desk, run_id)


@pytest.mark.case("C0-33")
@pytest.mark.parametrize("count", [1, 5])
def test_options_are_two_to_four(desk: Context, runs_dir: Path, count: int) -> None:
    run_id = create(desk)
    with refused(runs_dir, InvalidInput, "option_count"):
        ask(desk, run_id, options=[f"way {number}" for number in range(count)])


@pytest.mark.case("C0-33")
@pytest.mark.parametrize("count", [2, 3, 4])
def test_an_answer_may_name_the_number_of_an_option(desk: Context, count: int) -> None:
    run_id = create(desk)
    options = [f"way {number}" for number in range(count)]
    for number, option in enumerate(options, 1):
        message_id = ask(desk, run_id, options=options)
        questions.reply(desk, message_id, f" {number}\n")
        found = questions.check(desk, message_id)
        assert found["answer"] == option
        assert found["options"] == options


@pytest.mark.case("C0-33")
@pytest.mark.parametrize(
    "number", ["0", "3", "99999999999999999999", "9" * 5000], ids=["0", "3", "20 digits", "5000 digits"]
)
def test_a_number_that_is_no_option_is_refused_with_the_options(desk: Context, runs_dir: Path, number: str) -> None:
    message_id = ask(desk, create(desk), options=["north", "south"])
    before = snapshot(runs_dir, locks=False)
    with pytest.raises(InvalidInput) as caught:
        questions.reply(desk, message_id, number)
    assert caught.value.code == "no_such_option"
    assert caught.value.candidates == ("1. north", "2. south")
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C0-33")
def test_a_question_with_options_can_be_answered_in_words_and_one_without_by_a_number(desk: Context) -> None:
    run_id = create(desk)
    constrained, open_question = ask(desk, run_id, options=["north", "south"]), ask(desk, run_id)
    questions.reply(desk, constrained, "Neither, stay.")
    questions.reply(desk, open_question, "2")
    assert questions.check(desk, constrained)["answer"] == "Neither, stay."
    assert questions.check(desk, open_question)["answer"] == "2"


@pytest.mark.case("C1-10")
def test_the_instructions_name_the_command_that_polls(desk: Context) -> None:
    asked = questions.ask(desk, "Which?", run=create(desk))
    assert asked["instructions"].endswith(desk.spelled("check", short(asked["messageId"])))


@pytest.mark.case("C1-11")
def test_an_empty_question_is_refused_and_a_blank_one_is_not(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    with refused(runs_dir, InvalidInput, "empty_question"):
        ask(desk, run_id, "")
    ask(desk, run_id, " \n ")
    assert document(runs_dir, run_id)["messages"][0]["questionContent"] == " \n "


@pytest.mark.case("C1-12")
def test_asking_for_a_run_that_cannot_be_or_is_not(desk: Context, runs_dir: Path) -> None:
    create(desk)
    with refused(runs_dir, InvalidInput, "invalid_run_id"):
        ask(desk, "not a run")
    with refused(runs_dir, RunNotFound, "run_not_found"):
        ask(desk, NOBODY)


@pytest.mark.case("C1-15", "X22")
@pytest.mark.parametrize("ending", ["success", "error", "completed"])
def test_an_ended_run_neither_asks_nor_tells(desk: Context, runs_dir: Path, ending: str) -> None:
    run_id = create(desk)
    runs.update(desk, run_id, ending)
    with refused(runs_dir, Refused, "run_finished"):
        ask(desk, run_id)
    with refused(runs_dir, Refused, "run_finished"):
        questions.tell(desk, "Still here.", run=run_id)


@pytest.mark.case("X22", "X10")
def test_a_question_that_an_ended_run_left_is_answered_and_the_run_stays_ended(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    runs.update(desk, run_id, "success")
    questions.reply(desk, message_id, "That.")
    assert words(runs_dir, run_id) == ("success", ["parent_replied"])
    questions.check(desk, message_id)
    assert words(runs_dir, run_id) == ("success", ["acknowledged_by_subagent"])


@pytest.mark.case("C1-21")
def test_an_empty_answer_is_an_answer(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    questions.reply(desk, message_id, "")
    assert words(runs_dir, run_id) == ("parent_replied", ["parent_replied"])
    found = questions.check(desk, message_id)
    assert (found["answer"], found["state"]) == ("", "ANSWERED")
    assert questions.check(desk, message_id)["answer"] == ""
    assert questions.pending(desk)[0] == []


@pytest.mark.case("C1-23")
def test_in_a_document_without_messages_no_message_is_found(foreign_desk: Context, foreign_runs: Path) -> None:
    write_foreign(foreign_runs)
    with refused(foreign_runs, NotFound, "message_not_found"):
        questions.reply(foreign_desk, FOREIGN_RUN, "That.", message=FOREIGN_MESSAGE)
    with refused(foreign_runs, NotFound, "message_not_found"):
        questions.check(foreign_desk, FOREIGN_MESSAGE, run=FOREIGN_RUN)


@pytest.mark.case("C1-40", "X9")
def test_the_run_waits_as_long_as_any_question_does(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    first, second = ask(desk, run_id), ask(desk, run_id)
    questions.reply(desk, first, "One.")
    assert words(runs_dir, run_id)[0] == "parent_replied"
    questions.check(desk, first)
    assert words(runs_dir, run_id) == ("waiting_parent_reply", ["acknowledged_by_subagent", "pending_parent_reply"])
    questions.reply(desk, second, "Two.")
    questions.check(desk, second)
    assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"] * 2)


@pytest.mark.case("X4")
@pytest.mark.parametrize("part", ["whole", "end", "beginning"])
def test_a_reply_goes_to_the_message_that_is_named(desk: Context, part: str) -> None:
    run_id = create(desk)
    ask(desk, create(desk))
    message_id = ask(desk, run_id)
    ask(desk, run_id)
    name = {"whole": message_id, "end": message_id[-8:], "beginning": message_id[:28]}[part]
    assert questions.reply(desk, name, "That.")["messageIds"] == [message_id]


@pytest.mark.case("X4")
def test_a_reply_goes_to_the_message_of_the_run_that_is_named(desk: Context, runs_dir: Path) -> None:
    one, two = create(desk, "one"), create(desk, "two")
    mine, other = ask(desk, one), ask(desk, two)
    assert questions.reply(desk, "one", "That.", message=short(mine))["messageIds"] == [mine]
    with refused(runs_dir, NotFound, "message_not_found"):
        questions.reply(desk, one, "That.", message=other)


@pytest.mark.case("X4")
@pytest.mark.parametrize(("which", "places"), [("oldest", [0]), ("latest", [2]), ("all", [0, 1, 2])])
def test_of_several_questions_of_a_run_one_can_say_which(desk: Context, which: str, places: list[int]) -> None:
    run_id = create(desk)
    asked = [ask(desk, run_id) for _ in range(3)]
    done = questions.reply(desk, run_id, "That.", which=which)
    assert done["messageIds"] == [asked[place] for place in places]
    waiting, _ = questions.pending(desk)
    assert [item["message_id"] for item in waiting] == [asked[place] for place in range(3) if place not in places]


@pytest.mark.case("X4")
def test_of_several_questions_none_is_guessed_and_all_are_named(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    asked = [ask(desk, run_id, text) for text in ("Left?", "Right?")]
    before = snapshot(runs_dir, locks=False)
    with pytest.raises(Refused) as caught:
        questions.reply(desk, run_id, "That.")
    assert caught.value.code == "several_pending"
    assert [line.split()[0] for line in caught.value.candidates] == asked
    assert "Left?" in caught.value.candidates[0]
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("X4")
def test_oldest_latest_and_all_belong_to_a_run_and_not_to_a_message(desk: Context, runs_dir: Path) -> None:
    message_id = ask(desk, create(desk))
    with refused(runs_dir, InvalidInput, "usage"):
        questions.reply(desk, message_id, "That.", which="all")


@pytest.mark.case("X4")
def test_a_message_id_in_the_place_of_the_answer_is_a_forgotten_answer(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    with refused(runs_dir, InvalidInput, "usage"):
        questions.reply(desk, run_id, message_id)


@pytest.mark.case("X14")
@pytest.mark.parametrize("closed", [False, True])
def test_the_entry_in_the_document_is_an_envelope_of_known_keys(desk: Context, runs_dir: Path, closed: bool) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id, options=["a", "b"], default="1", deadline=60_000, key="k-1")
    if closed:
        questions.reply(desk, message_id, "2", key="k-2")
    (entry,) = document(runs_dir, run_id)["messages"]
    assert list(entry) == (CLOSED if closed else ENVELOPE)
    # Whoever reads only the document still learns what can be chosen.
    assert entry["questionContent"] == "Which?\n\n1. a\n2. b"


@pytest.mark.case("X24")
@pytest.mark.parametrize("text", ["žluťoučký kůň", "日本語 🦊", "a\u0000b\u001b[2J", "\u202eabc\u2028", "e\u0301 ﬁ"])
def test_texts_of_any_script_come_back_as_they_were_given(desk: Context, runs_dir: Path, text: str) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id, text)
    questions.reply(desk, message_id, text)
    questions.tell(desk, text, run=run_id)
    runs.update(desk, run_id, "running", text)
    fresh = open_context({"runs_dir": str(runs_dir)}, desk.clock)
    found = questions.check(fresh, message_id)
    assert (found["questionContent"], found["answer"]) == (text, text)
    shown = runs.status(fresh, run_id)
    assert (shown["summary"], shown["notes"][-1]["text"]) == (text, text)
    assert document(runs_dir, run_id)["messages"][0]["questionContent"] == text


@pytest.mark.case("X24")
def test_texts_have_a_limit_in_bytes_that_can_be_set(runs_dir: Path, clock: StillClock) -> None:
    desk = open_context({"runs_dir": str(runs_dir), "max_text": "10"}, clock)
    run_id = create(desk)
    message_id = ask(desk, run_id, "ééééé")
    for too_long in ("éééééé", "01234567890"):
        with refused(runs_dir, InvalidInput, "too_long"):
            ask(desk, run_id, too_long)
        with refused(runs_dir, InvalidInput, "too_long"):
            ask(desk, run_id, options=["short", too_long])
        with refused(runs_dir, InvalidInput, "too_long"):
            questions.reply(desk, message_id, too_long)
        with refused(runs_dir, InvalidInput, "too_long"):
            questions.tell(desk, too_long, run=run_id)
        with refused(runs_dir, InvalidInput, "too_long"):
            runs.update(desk, run_id, "success", too_long)
        with refused(runs_dir, InvalidInput, "too_long"):
            create(desk, task=too_long)


@pytest.mark.case("X24")
def test_a_text_that_is_not_utf8_is_refused(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    with refused(runs_dir, InvalidInput, "not_utf8"):
        ask(desk, run_id, "half \udcff")
    with refused(runs_dir, InvalidInput, "not_utf8"):
        questions.reply(desk, message_id, "half \ud800")


@pytest.mark.case("X1")
def test_an_expired_question_gives_no_answer_and_says_why(desk: Context, runs_dir: Path, clock: StillClock) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    clock.wait(DAY)
    assert questions.check(desk, message_id)["state"] == "PENDING"
    clock.wait(1)
    found = questions.check(desk, message_id)
    assert (found["answer"], found["state"], found["messageStatus"]) == (None, "EXPIRED", "parent_acknowledged")
    assert found["answerContent"].startswith("[expired]")
    questions.tell(desk, "Going on.", run=run_id)
    assert words(runs_dir, run_id) == ("running", ["parent_acknowledged"])


def test_a_default_answers_at_the_deadline(desk: Context, clock: StillClock) -> None:
    message_id = ask(desk, create(desk), options=["a", "b"], default="2", deadline=5000)
    clock.wait(5000)
    assert questions.check(desk, message_id)["answer"] is None
    clock.wait(1)
    assert questions.check(desk, message_id)["answer"] == "b"


@pytest.mark.parametrize("days", [9_999_999, 10**12, 10**30])
def test_a_deadline_in_the_far_future_hides_no_question(desk: Context, runs_dir: Path, days: int) -> None:
    """One worker's deadline must not take the list away from everybody."""
    run_id, other = create(desk), ask(desk, create(desk))
    try:
        ask(desk, run_id, deadline=days * DAY)
    except InvalidInput:
        return
    waiting, faults = questions.pending(desk)
    assert other in [item["message_id"] for item in waiting]
    assert len(waiting) == 2
    assert faults == []


def test_a_repeated_ask_or_reply_with_the_same_key_happens_once(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id, key="k")
    assert ask(desk, run_id, key="k") == message_id
    done = questions.reply(desk, message_id, "That.", key="r")
    before = snapshot(runs_dir, locks=False)
    assert questions.reply(desk, message_id, "That.", key="r")["messageIds"] == done["messageIds"] == [message_id]
    assert snapshot(runs_dir, locks=False) == before
    with refused(runs_dir, Refused, "key_reused"):
        ask(desk, run_id, "Another?", key="k")
    with refused(runs_dir, Refused, "key_reused"):
        questions.reply(desk, message_id, "Other.", key="r")


@pytest.mark.case("C0-14")
def test_a_question_that_another_program_asked_is_answered_by_the_id_that_pending_shows(
    tmp_path: Path, clock: StillClock
) -> None:
    runs_dir = tmp_path / "foreign" / "runs"
    desk = open_context({"runs_dir": str(runs_dir)}, clock)
    run_id = create(desk)
    stamp = clock.now().iso
    write_foreign(runs_dir, run_id, status="waiting_parent_reply", messages=[foreign_message(questionTimestamp=stamp)])
    (item,), _ = questions.pending(desk)
    assert questions.reply(desk, short(item["message_id"]), "That.")["messageIds"] == [FOREIGN_MESSAGE]


@pytest.mark.case("C0-14", "X10")
def test_a_question_that_another_program_asks_for_an_ended_run_is_pending_once_we_have_written_it_down(
    tmp_path: Path, clock: StillClock
) -> None:
    runs_dir = tmp_path / "foreign" / "runs"
    desk = open_context({"runs_dir": str(runs_dir)}, clock)
    run_id = create(desk)
    runs.update(desk, run_id, "success")
    stamp = clock.now().iso
    write_foreign(runs_dir, run_id, status="waiting_parent_reply", messages=[foreign_message(questionTimestamp=stamp)])
    waiting, _ = questions.pending(desk, run_id)
    assert [item["message_id"] for item in waiting] == [FOREIGN_MESSAGE]
    # Finished runs are not looked through; the next change of this one enters it into the index again.
    assert questions.pending(desk)[0] == []
    desk.runs.change(run_id, Settle(), clock.now)
    assert [item["message_id"] for item in questions.pending(desk)[0]] == [FOREIGN_MESSAGE]


def test_a_message_id_that_another_program_spells_in_capitals_is_found_as_it_stands(
    tmp_path: Path, clock: StillClock
) -> None:
    runs_dir = tmp_path / "foreign" / "runs"
    desk = open_context({"runs_dir": str(runs_dir)}, clock)
    run_id = create(desk)
    capitals = FOREIGN_MESSAGE.upper()
    write_foreign(runs_dir, run_id, messages=[foreign_message(capitals, questionTimestamp=clock.now().iso)])
    questions.tell(desk, "Taken over.", run=run_id)
    for name in (capitals, capitals.lower()):
        assert questions.check(desk, name)["messageId"] == capitals
    assert questions.reply(desk, capitals, "That.")["messageIds"] == [capitals]


@pytest.mark.parametrize("extras", [{"state": "RETRIEVED"}, {"options": 5}, {"messageStatus2": 1, "answer": "forged"}])
def test_keys_that_another_program_adds_to_a_message_cannot_pose_as_ours(
    foreign_desk: Context, foreign_runs: Path, clock: StillClock, extras: dict[str, Any]
) -> None:
    message = foreign_message(questionTimestamp=clock.now().iso, **extras)
    write_foreign(foreign_runs, status="waiting_parent_reply", messages=[message])
    found = questions.check(foreign_desk, FOREIGN_MESSAGE, run=FOREIGN_RUN)
    assert (found["state"], found["answer"]) == ("PENDING", None)
    assert found.get("options", []) == []
    (shown,) = runs.status(foreign_desk, FOREIGN_RUN)["messages"]
    assert shown["state"] == "PENDING"
    assert shown.get("options", []) == []

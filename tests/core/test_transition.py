"""The law: what the tables allow happens, what they do not is refused and changes nothing, and time does the rest."""

from itertools import pairwise, product

import pytest
from hypothesis import given

from subagent_cli.core.command import (
    ALL,
    LATEST,
    OLDEST,
    Acknowledge,
    Ask,
    Command,
    Reply,
    Report,
    Settle,
    Submit,
    Tell,
)
from subagent_cli.core.errors import InvalidInput, NotFound, Refused, SubagentError
from subagent_cli.core.event import (
    Acknowledged,
    Asked,
    Event,
    Exited,
    Expired,
    Replied,
    Reported,
    Resumed,
    Stopped,
    Submitted,
    Told,
)
from subagent_cli.core.evolution import fold
from subagent_cli.core.moment import Moment
from subagent_cli.core.projection import project
from subagent_cli.core.question import ANSWERED, EXPIRED, PENDING, RETRIEVED, WORDS
from subagent_cli.core.run import COMPLETED, CREATED, ERROR, FINISHED, REPLIED, RUNNING, SUCCESS, WAITING, Note, Run
from subagent_cli.core.transition import LIFE, QUESTION, decide, due
from tests.core.lives import DAY, RUN, START, asked, begun, do, later, lives

PHASES = (CREATED, RUNNING, SUCCESS, COMPLETED, ERROR)
TRIGGERS: dict[str, Event] = {
    "asked": Asked(START, "m9", "May I?", START.iso),
    "told": Told(START, "half done"),
    "reported running": Reported(START, RUNNING, START.iso),
    "reported success": Reported(START, SUCCESS, START.iso),
    "reported completed": Reported(START, COMPLETED, START.iso),
    "reported error": Reported(START, ERROR, START.iso),
    "submitted result": Submitted(START, "result", "done", START.iso),
    "submitted error": Submitted(START, "error", "no disk", START.iso, "sub_agent_error"),
    "cancelled": Stopped(START, "cancelled", "Cancelled", START.iso, 5000),
    "timed_out": Stopped(START, "timed_out", "Sub-agent timed out", START.iso, 5000),
    "lost": Stopped(START, "lost", "gone", START.iso, gone=True),
    "exited 0": Exited(START, 0, START.iso),
    "exited non-zero": Exited(START, 3, START.iso),
    "resumed": Resumed(START, 2, "worker --again", "go on", "hash"),
}
COMMANDS: dict[str, Command] = {
    "asked": Ask("m9", "May I?"),
    "told": Tell("half done"),
    "reported running": Report(RUNNING),
    "reported success": Report(SUCCESS),
    "reported completed": Report(COMPLETED),
    "reported error": Report(ERROR),
    "submitted result": Submit("result", "done"),
    "submitted error": Submit("error", "no disk"),
}
MOVES: dict[str, Event] = {
    "replied": Replied(START, "m1", "yes", START.iso),
    "expired": Expired(START, "m1", "[expired] Too late.", START.iso),
    "acknowledged": Acknowledged(START, ("m1",)),
}
JUMP = 10 * 365 * DAY


def at(phase: str) -> Run:
    return Run(RUN, phase, ended_at=START.iso if phase in FINISHED else None)


def question_in(state: str) -> Run:
    """A run whose one question has come to this state in the ordinary way."""
    run = asked("m1")
    if state == EXPIRED:
        return fold(run, due(run, later(DAY + 1), DAY))
    if state in (ANSWERED, RETRIEVED):
        run = do(run, Reply("first", "m1"), now=later(10))
    return do(run, Acknowledge("m1")) if state == RETRIEVED else run


def refusal(run: Run, command: Command) -> SubagentError:
    before = repr(run)
    with pytest.raises(SubagentError) as caught:
        decide(run, command, START)
    assert repr(run) == before
    return caught.value


def lawful(phase: str, trigger: str) -> str | None:
    """The phase that follows, or None where it may not happen, in the words of the requirements."""
    verb, _, what = trigger.partition(" ")
    if trigger == "resumed":
        return RUNNING if phase in FINISHED else None
    if verb in ("submitted", "cancelled", "timed_out", "lost"):
        return None if phase in FINISHED else SUCCESS if what == "result" else ERROR
    if phase not in FINISHED:
        return {"asked": RUNNING, "told": RUNNING, "exited": SUCCESS if what == "0" else ERROR}.get(verb, what)
    if verb == "exited":
        return phase
    good = (SUCCESS, COMPLETED)
    return what if what == phase or (phase in good and what in good) else None


@pytest.mark.parametrize(("phase", "trigger"), list(product(PHASES, TRIGGERS)))
def test_the_table_of_a_run_says_what_the_requirements_say(phase: str, trigger: str) -> None:
    assert LIFE.get((phase, trigger)) == lawful(phase, trigger)


def test_the_tables_hold_nothing_else() -> None:
    assert set(LIFE) <= set(product(PHASES, TRIGGERS))
    assert set(QUESTION) <= set(product(WORDS, MOVES))


@pytest.mark.case("C2-35", "X22")
@pytest.mark.parametrize(("phase", "trigger"), list(product(PHASES, TRIGGERS)))
def test_an_event_moves_a_run_as_the_table_says_or_not_at_all(phase: str, trigger: str) -> None:
    assert fold(at(phase), [TRIGGERS[trigger]]).phase == (lawful(phase, trigger) or phase)


def test_a_success_takes_a_better_summary_and_keeps_it() -> None:
    run = do(begun(), Report(SUCCESS, "done"))
    assert do(run, Report(SUCCESS, "done, and tidied up"), now=later(5)).summary == "done, and tidied up"


def test_a_reported_error_is_an_error_of_the_worker() -> None:
    assert do(begun(), Report(ERROR)).kind == "sub_agent_error"
    assert do(begun(), Report(SUCCESS)).kind is None


@pytest.mark.case("C1-15", "C2-35", "X22")
@pytest.mark.parametrize(("phase", "trigger"), list(product(PHASES, COMMANDS)))
def test_a_command_is_held_against_the_table(phase: str, trigger: str) -> None:
    run, command = at(phase), COMMANDS[trigger]
    if lawful(phase, trigger) is None:
        refused = refusal(run, command)
        assert isinstance(refused, Refused)
        assert refused.code == "run_finished"
    else:
        assert do(run, command).phase == lawful(phase, trigger)


@pytest.mark.case("C0-13")
@pytest.mark.parametrize(("state", "move"), list(product(WORDS, MOVES)))
def test_a_question_passes_its_states_in_order_without_a_skip_or_a_way_back(state: str, move: str) -> None:
    onward = {(PENDING, "replied"): ANSWERED, (PENDING, "expired"): EXPIRED, (ANSWERED, "acknowledged"): RETRIEVED}
    before = question_in(state).questions["m1"]
    after = fold(question_in(state), [MOVES[move]]).questions["m1"]
    assert QUESTION.get((state, move)) == onward.get((state, move))
    assert after.state == onward.get((state, move), state)
    if (state, move) not in onward:
        assert after == before


@pytest.mark.case("C0-13")
@given(lives)
def test_whatever_is_tried_a_question_takes_one_step_at_a_time(life: list[Run]) -> None:
    steps = {
        (before.questions[id_].state, question.state)
        for before, after in pairwise(life)
        for id_, question in after.questions.items()
        if id_ in before.questions and before.questions[id_].state != question.state
    }
    assert steps <= {(PENDING, ANSWERED), (ANSWERED, RETRIEVED), (PENDING, EXPIRED)}
    assert all(set(before.questions) <= set(after.questions) for before, after in pairwise(life))


@pytest.mark.case("C0-09", "X10")
@given(lives)
def test_whatever_is_tried_an_answer_and_an_end_are_kept(life: list[Run]) -> None:
    for before, after in pairwise(life):
        for id_, question in before.questions.items():
            if question.state != PENDING:
                assert after.questions[id_].closing == question.closing
        if before.finished:
            assert after.finished
            assert (after.phase == ERROR) == (before.phase == ERROR)
            assert after.ended_at == before.ended_at


@pytest.mark.case("C1-08")
def test_asking_appends_a_pending_question_and_the_run_waits() -> None:
    run = do(begun(), Ask("m1", "Which port?"), now=later(7))
    assert [(q.id, q.text, q.state, q.asked_at) for q in run.pending] == [("m1", "Which port?", PENDING, later(7).iso)]
    assert run.status == WAITING


@pytest.mark.case("X8")
@pytest.mark.parametrize("command", [Ask("m1", "May I?"), Tell("here I am"), Report(RUNNING)])
def test_a_run_that_was_only_created_begins_with_its_first_word(command: Command) -> None:
    assert begun(CREATED).status == "pending"
    assert do(begun(CREATED), command).phase == RUNNING


@pytest.mark.case("C0-03", "C1-14")
def test_equal_texts_are_two_questions_in_the_order_in_which_they_were_asked() -> None:
    run = do(begun(), Ask("m2", "Again?"), Ask("m1", "Again?"))
    assert [(question.id, question.text) for question in run.pending] == [("m2", "Again?"), ("m1", "Again?")]


@pytest.mark.case("C1-11")
def test_an_empty_question_is_refused() -> None:
    refused = refusal(begun(), Ask("m1", ""))
    assert isinstance(refused, InvalidInput)
    assert refused.message == "Question cannot be empty"


@pytest.mark.case("C1-11")
def test_a_blank_question_is_asked() -> None:
    assert do(begun(), Ask("m1", "  \n")).questions["m1"].text == "  \n"


@pytest.mark.case("C0-33")
@pytest.mark.parametrize("count", [1, 5, 9])
def test_fewer_than_two_options_or_more_than_four_are_refused(count: int) -> None:
    refused = refusal(begun(), Ask("m1", "Which?", tuple("abcdefghi"[:count])))
    assert isinstance(refused, InvalidInput)
    assert refused.code == "option_count"


@pytest.mark.case("C0-33")
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_number_answers_with_the_option_of_that_number(count: int) -> None:
    run = do(begun(), Ask("m1", "Which?", tuple("abcd"[:count])), Reply(str(count), "m1"))
    assert run.questions["m1"].answer == "abcd"[count - 1]


@pytest.mark.case("C0-33")
@pytest.mark.parametrize("answer", ["0", "3", "1" * 5000])
def test_a_number_that_is_no_option_is_refused(answer: str) -> None:
    refused = refusal(do(begun(), Ask("m1", "Which?", ("a", "b"))), Reply(answer, "m1"))
    assert isinstance(refused, InvalidInput)
    assert refused.code == "no_such_option"


def test_a_default_may_be_given_by_its_number() -> None:
    assert do(begun(), Ask("m1", "Which?", ("a", "b"), default="2")).questions["m1"].default == "b"


def test_a_default_that_is_no_option_is_refused() -> None:
    assert refusal(begun(), Ask("m1", "Which?", ("a", "b"), default="3")).code == "no_such_option"


@pytest.mark.case("C0-30", "X9")
@pytest.mark.parametrize("state", [PENDING, ANSWERED])
def test_single_refuses_while_a_question_is_open(state: str) -> None:
    refused = refusal(question_in(state), Ask("m2", "And?", single=True))
    assert isinstance(refused, Refused)
    assert refused.code == "question_open"
    assert refused.next == "subagent check m1"


@pytest.mark.case("C0-30")
@pytest.mark.parametrize("state", [RETRIEVED, EXPIRED])
def test_single_asks_when_every_earlier_question_is_closed(state: str) -> None:
    assert [question.id for question in do(question_in(state), Ask("m2", "And?", single=True)).pending] == ["m2"]


def test_a_note_goes_to_the_parent_and_waits_for_nothing() -> None:
    run = do(begun(), Tell("half done"), now=later(3))
    assert run.notes == (Note(later(3).iso, "half done"),)
    assert run.status == RUNNING


def test_an_empty_note_is_refused() -> None:
    assert refusal(begun(), Tell("")).code == "empty_text"


@pytest.mark.case("C1-16", "C0-06", "C0-08")
@pytest.mark.parametrize("command", [Reply("8080", "m1"), Reply("8080")])
def test_a_reply_closes_the_question_and_the_run_shows_it(command: Reply) -> None:
    run = do(asked("m1"), command, now=later(9))
    question = run.questions["m1"]
    assert (question.state, question.answer, question.closed_at) == (ANSWERED, "8080", later(9).iso)
    assert run.status == REPLIED


@pytest.mark.case("C1-21")
def test_an_empty_answer_is_an_answer() -> None:
    run = do(asked("m1"), Reply("", "m1"))
    assert run.questions["m1"].answer == ""
    assert run.status == REPLIED


@pytest.mark.case("C0-08", "C0-09", "C0-28", "C1-19", "C1-20", "T-34")
@pytest.mark.parametrize("state", [ANSWERED, RETRIEVED, EXPIRED])
def test_a_reply_to_a_closed_question_is_refused_and_the_first_answer_kept(state: str) -> None:
    run = question_in(state)
    refused = refusal(run, Reply("second", "m1"))
    assert isinstance(refused, Refused)
    assert refused.code == "not_pending"
    assert refused.message == f"Message status is not 'pending_parent_reply': found '{WORDS[state]}'"
    assert run.questions["m1"].answer == (None if state == EXPIRED else "first")


@pytest.mark.case("C1-20")
def test_a_late_reply_that_was_written_down_all_the_same_changes_neither_message_nor_run() -> None:
    run = question_in(RETRIEVED)
    after = fold(run, [Replied(later(50), "m1", "second", later(50).iso)])
    assert (after.questions, after.status) == (run.questions, RUNNING)


@pytest.mark.case("C0-13")
def test_a_question_that_is_asked_again_under_its_id_is_not_opened_again() -> None:
    run = question_in(RETRIEVED)
    assert fold(run, [Asked(later(50), "m1", "Which, m1?", later(50).iso)]).questions == run.questions


@pytest.mark.case("C1-18", "C1-23", "T-34")
@pytest.mark.parametrize("run", [begun(), asked("m1")])
@pytest.mark.parametrize("command", [Reply("yes", "m7"), Acknowledge("m7")])
def test_an_unknown_message_is_not_found(run: Run, command: Command) -> None:
    refused = refusal(run, command)
    assert isinstance(refused, NotFound)
    assert refused.code == "message_not_found"
    assert refused.message == "Message with ID m7 not found"


@pytest.mark.case("C0-07", "X4")
@pytest.mark.parametrize("state", [ANSWERED, RETRIEVED, EXPIRED, None])
def test_a_reply_to_a_run_without_a_pending_question_is_refused(state: str | None) -> None:
    run = question_in(state) if state else begun()
    assert refusal(run, Reply("yes")).code == "no_pending_question"


@pytest.mark.case("X4")
def test_a_reply_to_one_of_several_must_say_which() -> None:
    refused = refusal(asked("m1", "m2"), Reply("yes"))
    assert refused.code == "several_pending"
    assert refused.candidates == ("m1 Which, m1?", "m2 Which, m2?")


@pytest.mark.case("X4", "C0-17")
@pytest.mark.parametrize(("which", "ids"), [(OLDEST, ["m2"]), (LATEST, ["m3"]), (ALL, ["m2", "m1", "m3"])])
def test_the_oldest_the_latest_or_all_pending_questions_are_answered(which: str, ids: list[str]) -> None:
    run = do(asked("m0", "m2", "m1", "m3"), Reply("done", "m0"), Acknowledge("m0"))
    run = do(run, Reply("yes", which=which))
    assert [question.id for question in run.unread] == ids


def test_a_reply_to_all_is_refused_whole_when_one_question_cannot_take_it() -> None:
    run = do(asked("m1"), Ask("m2", "Which?", ("a", "b")))
    assert refusal(run, Reply("3", which=ALL)).code == "no_such_option"


@pytest.mark.case("C0-10")
@pytest.mark.parametrize("command", [Acknowledge("m1"), Acknowledge()])
def test_an_answer_that_was_fetched_is_retrieved_and_stays_readable(command: Acknowledge) -> None:
    run = do(question_in(ANSWERED), command)
    assert (run.questions["m1"].state, run.questions["m1"].answer) == (RETRIEVED, "first")
    assert run.status == RUNNING


@pytest.mark.case("C0-13")
@pytest.mark.parametrize("state", [PENDING, RETRIEVED, EXPIRED])
@pytest.mark.parametrize("command", [Acknowledge("m1"), Acknowledge()])
def test_looking_at_anything_but_an_unread_answer_changes_nothing(state: str, command: Acknowledge) -> None:
    assert decide(question_in(state), command, START) == ()


def test_every_unread_answer_is_acknowledged_in_one_event() -> None:
    run = do(asked("m1", "m2", "m3"), Reply("a", "m1"), Reply("c", "m3"))
    assert decide(run, Acknowledge(), START) == (Acknowledged(START, ("m1", "m3")),)


@pytest.mark.case("X9", "C1-40", "T-31", "T-32", "T-33")
def test_the_status_of_a_run_follows_from_all_its_questions() -> None:
    run = asked("m1", "m2")
    story = [run.status]
    for command in (
        Reply("a", "m1"),
        Acknowledge("m1"),
        Reply("b", "m2"),
        Ask("m3", "And?"),
        Acknowledge("m2"),
        Reply("c", "m3"),
        Acknowledge(),
    ):
        run = do(run, command)
        story.append(run.status)
    assert story == [WAITING, REPLIED, WAITING, REPLIED, REPLIED, WAITING, REPLIED, RUNNING]


@pytest.mark.case("C1-51", "X10")
@pytest.mark.parametrize("end", [Exited(START, 0, START.iso), Reported(START, ERROR, START.iso)])
def test_the_question_of_an_ended_run_can_be_answered_and_fetched_and_the_run_stays_ended(end: Event) -> None:
    run = fold(asked("m1"), [end])
    ended = run.status
    assert run.active
    run = do(run, Reply("yes", "m1"))
    assert (run.status, run.questions["m1"].answer) == (ended, "yes")
    run = do(run, Acknowledge("m1"))
    assert (run.status, run.questions["m1"].state) == (ended, RETRIEVED)
    assert not run.active


@pytest.mark.case("C1-41")
@pytest.mark.parametrize("word", ["pending", "waiting_parent_reply", "parent_replied", "cancelled", "SUCCESS", ""])
def test_only_four_words_can_be_reported(word: str) -> None:
    refused = refusal(begun(), Report(word))
    assert isinstance(refused, InvalidInput)
    assert refused.candidates == (SUCCESS, ERROR, RUNNING, COMPLETED)


@pytest.mark.case("C1-41", "C1-42", "X8")
@pytest.mark.parametrize("word", [SUCCESS, ERROR, COMPLETED])
def test_a_finished_word_ends_the_run(word: str) -> None:
    run = do(begun(), Report(word, "all of it"), now=later(9))
    assert (run.status, run.summary, run.updated_at, run.ended_at) == (word, "all of it", later(9).iso, later(9).iso)


@pytest.mark.case("C1-42")
def test_a_report_without_a_summary_keeps_the_old_one() -> None:
    run = do(begun(), Report(RUNNING, "half of it"))
    run = do(run, Report(RUNNING), now=later(9))
    assert (run.summary, run.updated_at, run.ended_at) == ("half of it", later(9).iso, None)


@pytest.mark.case("X9")
def test_reporting_running_does_not_hide_a_question() -> None:
    assert do(asked("m1"), Report(RUNNING)).status == WAITING


@pytest.mark.case("C1-45", "X10", "X22")
@pytest.mark.parametrize("word", FINISHED)
def test_an_ended_run_does_not_go_back_to_running(word: str) -> None:
    run = do(begun(), Report(word))
    assert refusal(run, Report(RUNNING)).code == "run_finished"
    assert fold(run, [Reported(later(5), RUNNING, later(5).iso, "alive!")])._replace(changed=None) == run._replace(
        changed=None
    )


@pytest.mark.case("X10")
def test_another_finished_word_with_a_summary_annotates_a_success() -> None:
    run = do(do(begun(), Report(SUCCESS)), Report(COMPLETED, "with two warnings"), now=later(9))
    assert (run.status, run.summary, run.ended_at) == (COMPLETED, "with two warnings", START.iso)


@pytest.mark.case("X10", "C2-35")
@pytest.mark.parametrize(("first", "second"), [(ERROR, SUCCESS), (ERROR, COMPLETED), (SUCCESS, ERROR)])
def test_no_annotation_turns_a_failure_into_a_success_or_back(first: str, second: str) -> None:
    assert refusal(do(begun(), Report(first)), Report(second)).code == "run_finished"


@pytest.mark.case("X22", "C2-35")
@pytest.mark.parametrize("repeated", [Report(SUCCESS, "done"), Report(SUCCESS)])
def test_the_same_report_again_is_a_success_without_an_event(repeated: Report) -> None:
    assert decide(do(begun(), Report(SUCCESS, "done")), repeated, later(9)) == ()


@pytest.mark.case("C1-47", "C1-49", "C1-50", "X16")
@pytest.mark.parametrize("exit_code", [0, 3])
@pytest.mark.parametrize("word", [None, *FINISHED])
def test_a_self_report_stands_above_the_exit_code(word: str | None, exit_code: int) -> None:
    run = do(begun(), Report(word, "my own words")) if word else begun()
    run = fold(run, [Exited(later(9), exit_code, later(9).iso)])
    assert run.status == (word or (ERROR if exit_code else SUCCESS))
    assert (run.exit_code, run.ended_at) == (exit_code, START.iso if word else later(9).iso)
    assert run.summary == ("my own words" if word else None)


def test_settling_wants_nothing_new() -> None:
    assert decide(asked("m1"), Settle(), later(2 * DAY)) == ()


def test_asking_again_with_the_same_key_asks_once() -> None:
    run = do(begun(), Ask("m1", "Which port?", key="k"))
    assert decide(run, Ask("m2", "Which port?", key="k"), later(5)) == ()


@pytest.mark.parametrize("state", [ANSWERED, RETRIEVED, EXPIRED])
def test_a_key_is_remembered_when_the_question_is_long_closed_and_the_run_ended(state: str) -> None:
    run = do(begun(), Ask("m1", "Which port?", key="k"))
    moves = {ANSWERED: ["replied"], RETRIEVED: ["replied", "acknowledged"], EXPIRED: ["expired"]}[state]
    run = do(fold(run, [MOVES[move] for move in moves]), Report(SUCCESS))
    assert decide(run, Ask("m2", "Which port?", key="k"), later(5)) == ()


@pytest.mark.parametrize(
    "other",
    [
        Ask("m2", "Which host?", ("a", "b"), "a", 500, key="k"),
        Ask("m2", "Which port?", ("a", "c"), "a", 500, key="k"),
        Ask("m2", "Which port?", ("a", "b"), "b", 500, key="k"),
        Ask("m2", "Which port?", ("a", "b"), "a", 900, key="k"),
        Ask("m2", "Which port?", key="k"),
    ],
)
def test_a_key_of_another_question_is_refused(other: Ask) -> None:
    run = do(begun(), Ask("m1", "Which port?", ("a", "b"), "a", 500, key="k"))
    refused = refusal(run, other)
    assert isinstance(refused, Refused)
    assert refused.code == "key_reused"


def test_a_repeated_ask_may_name_its_default_by_number_as_before() -> None:
    run = do(begun(), Ask("m1", "Which port?", ("a", "b"), "2", key="k"))
    assert decide(run, Ask("m2", "Which port?", ("a", "b"), "2", key="k"), later(5)) == ()


@pytest.mark.parametrize("repeated", [Reply("2", "m1", key="k"), Reply("b", "m1", key="k"), Reply("2", key="k")])
def test_replying_again_with_the_same_key_replies_once(repeated: Reply) -> None:
    run = do(begun(), Ask("m1", "Which?", ("a", "b")), Reply("2", "m1", key="k"))
    assert decide(run, repeated, later(5)) == ()


def test_a_repeated_reply_to_all_does_not_reach_a_question_that_came_later() -> None:
    run = do(asked("m1", "m2"), Reply("yes", which=ALL, key="k"), Ask("m3", "And?"))
    assert decide(run, Reply("yes", which=ALL, key="k"), later(5)) == ()
    assert decide(run, Reply("yes", "m2", key="k"), later(5)) == ()


@pytest.mark.parametrize("other", [Reply("no", "m1", key="k"), Reply("yes", "m2", key="k"), Reply("no", key="k")])
def test_a_key_of_another_reply_is_refused(other: Reply) -> None:
    refused = refusal(do(asked("m1", "m2"), Reply("yes", "m1", key="k")), other)
    assert isinstance(refused, Refused)
    assert refused.code == "key_reused"


def test_a_repeated_reply_to_all_is_held_against_every_question_that_it_closed() -> None:
    run = do(begun(), Ask("m1", "Which?", ("a", "b")), Ask("m2", "How many?"), Reply("1", which=ALL, key="k"))
    assert decide(run, Reply("1", which=ALL, key="k"), later(5)) == ()
    assert refusal(run, Reply("a", which=ALL, key="k")).code == "key_reused"


def test_a_repeated_reply_passes_over_a_question_that_is_not_there() -> None:
    run = fold(asked("m1"), [Replied(START, "a ghost", "yes", START.iso, key="k")])
    assert decide(run, Reply("yes", key="k"), later(5)) == ()


def test_a_key_may_be_any_word_and_is_never_taken_for_none() -> None:
    run = do(begun(), Ask("m1", "Which?", key="None"), Reply("yes", "m1", key="None"))
    run = do(run, Ask("m2", "Which?"), Reply("no", "m2"))
    assert [question.closing for question in run.questions.values()] == ["yes", "no"]


def test_asks_and_replies_do_not_share_their_keys() -> None:
    run = do(begun(), Ask("m1", "Which?", key="k"), Reply("yes", "m1", key="k"))
    assert run.questions["m1"].answer == "yes"


@pytest.mark.case("C0-24", "C0-26")
def test_a_question_expires_one_millisecond_after_its_day() -> None:
    run = asked("m1")
    assert due(run, later(DAY), DAY) == []
    assert [event.message_id for event in due(run, later(DAY + 1), DAY) if isinstance(event, Expired)] == ["m1"]


@pytest.mark.case("C0-27")
@pytest.mark.parametrize("state", [ANSWERED, RETRIEVED, EXPIRED])
def test_only_pending_questions_expire(state: str) -> None:
    assert due(question_in(state), later(1000 * DAY), DAY) == []


@pytest.mark.case("X1", "T-15")
def test_an_expired_question_is_on_disk_in_words_that_a_polling_worker_understands() -> None:
    message = project(question_in(EXPIRED))["messages"][0]
    assert message["messageStatus"] == "parent_acknowledged"
    assert message["answerContent"].startswith("[expired] ")
    assert "86400 s" in message["answerContent"]
    assert later(DAY).iso in message["answerContent"]
    assert message["answerTimestamp"] == later(DAY).iso


@pytest.mark.case("X31", "C0-18")
def test_when_the_last_pending_question_expires_the_run_is_running_again() -> None:
    run = question_in(EXPIRED)
    assert (run.status, run.pending) == (RUNNING, [])


def test_each_question_has_its_own_deadline() -> None:
    run = do(begun(), Ask("m1", "Quick?", deadline=500), Ask("m2", "Slow?", deadline=2 * DAY), Ask("m3", "Usual?"))
    assert [question.id for question in fold(run, due(run, later(500), DAY)).pending] == ["m1", "m2", "m3"]
    assert [question.id for question in fold(run, due(run, later(501), DAY)).pending] == ["m2", "m3"]
    assert [question.id for question in fold(run, due(run, later(DAY + 1), DAY)).pending] == ["m2"]


def test_at_its_deadline_a_default_steps_in_as_the_answer() -> None:
    run = do(begun(), Ask("m1", "Which?", ("a", "b"), default="2", deadline=500))
    assert due(run, later(500), DAY) == []
    assert due(run, later(600), DAY) == [Replied(later(600), "m1", "b", later(500).iso, by="default")]
    after = fold(run, due(run, later(600), DAY))
    assert (after.questions["m1"].state, after.questions["m1"].answer) == (ANSWERED, "b")


def test_time_does_its_work_once() -> None:
    run = do(asked("m1"), Ask("m2", "Which?", default="a"))
    run = fold(run, due(run, later(2 * DAY), DAY))
    assert due(run, later(3 * DAY), DAY) == []


@pytest.mark.parametrize("jump", [-JUMP, JUMP])
def test_a_clock_that_jumps_within_one_boot_neither_expires_a_question_nor_saves_it(jump: int) -> None:
    run = asked("m1")
    young, old = later(DAY), later(DAY + 1)
    assert due(run, young._replace(ms=young.ms + jump), DAY) == []
    assert len(due(run, old._replace(ms=old.ms + jump), DAY)) == 1


@pytest.mark.case("C0-26")
def test_after_a_reboot_age_is_measured_by_the_wall_clock() -> None:
    run = asked("m1")
    assert due(run, Moment(START.ms + DAY, "boot-b", 1), DAY) == []
    assert len(due(run, Moment(START.ms + DAY + 1, "boot-b", 1), DAY)) == 1


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00+14:00"])
def test_a_question_stamped_before_all_dates_expires_like_any_other(stamp: str) -> None:
    run = fold(begun(), [Asked(START, "m1", "Old?", stamp)])
    run = fold(run, due(run, later(1001), 1000))
    assert run.questions["m1"].state == EXPIRED


@pytest.mark.case("X10")
def test_the_question_of_an_ended_run_expires_too_and_the_run_stays_ended() -> None:
    run = do(asked("m1"), Report(SUCCESS))
    run = fold(run, due(run, later(DAY + 1), DAY))
    assert (run.status, run.questions["m1"].state, run.active) == (SUCCESS, EXPIRED, False)


@pytest.mark.case("X8", "C1-06")
@given(lives)
def test_every_run_has_one_of_the_seven_words_on_disk(life: list[Run]) -> None:
    words = {project(run)["status"] for run in life}
    assert words <= {"pending", "running", "completed", "error", "success", "waiting_parent_reply", "parent_replied"}


@pytest.mark.case("X8")
@pytest.mark.parametrize("kind", ["cancelled", "timed_out", "lost"])
def test_the_exact_end_is_kept_where_the_word_on_disk_is_coarser(kind: str) -> None:
    run = fold(begun(), [Reported(START, ERROR, START.iso, f"[{kind}] it was", kind)])
    assert (run.status, run.state) == ("error", kind)

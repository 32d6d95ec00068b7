"""What others write into `.meta.json` is taken over, mended where the server would refuse it, and never undoes ours.

The documents are those that the TypeScript server was seen to leave behind, and any other JSON object.
"""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subagent_cli.core.absorption import absorb
from subagent_cli.core.command import Acknowledge, Ask, Reply, Report
from subagent_cli.core.document import EXPIRED_MARK, RUN_WORDS, Document, document_fits
from subagent_cli.core.errors import NotFound, Refused
from subagent_cli.core.event import Exited, Observed, kind_of
from subagent_cli.core.evolution import fold
from subagent_cli.core.moment import milliseconds
from subagent_cli.core.projection import project
from subagent_cli.core.question import ANSWERED, EXPIRED, PENDING, RETRIEVED
from subagent_cli.core.run import COMPLETED, CREATED, ERROR, FINISHED, REPLIED, RUNNING, SUCCESS, WAITING, Run
from subagent_cli.core.transition import decide, due
from tests.core.lives import DAY, RUN, START, Step, asked, begun, do, documents, later, lived, lives, runs, seen, steps

NEW = Run(RUN)
# The order in which the server's ask leaves the keys.
ORDER = [
    *("runId", "agentName", "status", "messages", "command"),
    *("startTime", "endTime", "exitCode", "summary", "lastUpdated"),
]


def message(id_: str = "m1", state: str = "pending_parent_reply", **others: Any) -> Document:
    return {
        "messageId": id_,
        "questionContent": f"Which, {id_}?",
        "questionTimestamp": START.iso,
        "messageStatus": state,
        **others,
    }


def replied(id_: str = "m1", answer: str = "yes", state: str = "parent_replied") -> Document:
    return message(id_, state, answerContent=answer, answerTimestamp=later(5).iso)


def servers(**keys: Any) -> Document:
    """A document as the server makes it, with these keys changed or added."""
    return {
        "runId": RUN,
        "agentName": "worker",
        "command": "worker --go",
        "startTime": START.iso,
        "status": "running",
        "exitCode": None,
        "endTime": None,
        "summary": None,
        **keys,
    }


def changed(run: Run, **keys: Any) -> Document:
    """Our picture of the run after somebody has written these keys into it."""
    return {**project(run), **keys}


def states(run: Run) -> list[tuple[str, str]]:
    return [(question.id, question.state) for question in run.questions.values()]


def refused(run: Run, command: Reply) -> bool:
    before = repr(run)
    with pytest.raises((Refused, NotFound)):
        decide(run, command, START)
    return repr(run) == before


def copied(document: Document) -> Document:
    """The document after a way through JSON, so that nothing is shared with it."""
    another: Document = json.loads(json.dumps(document))
    return another


@pytest.mark.case("T-01")
def test_unknown_keys_do_not_disturb_the_reading() -> None:
    run = seen(NEW, servers(owner="ann", messages=[message(priority=2)], status="waiting_parent_reply"))
    assert (run.agent, run.status, states(run)) == ("worker", WAITING, [("m1", PENDING)])
    assert do(run, Reply("yes", "m1")).questions["m1"].answer == "yes"


@pytest.mark.case("T-02", "X2")
def test_unknown_keys_survive_every_change_of_ours() -> None:
    run = seen(asked("m1"), changed(asked("m1"), owner={"name": "ann"}, tags=[], messages=[message(priority=None)]))
    for command in (Reply("yes", "m1"), Acknowledge("m1"), Ask("m2", "And?"), Report(SUCCESS, "done")):
        run = do(run, command)
        picture = project(run)
        assert (picture["owner"], picture["tags"]) == ({"name": "ann"}, [])
        assert picture["messages"][0]["priority"] is None
    picture = project(fold(run, [Exited(later(9), 0, later(9).iso)]))
    assert picture["owner"] == {"name": "ann"}


def test_the_newest_value_of_an_unknown_key_is_kept() -> None:
    run = seen(asked("m1"), changed(asked("m1"), owner=1, messages=[message(priority=1)]))
    run = seen(run, changed(run, owner=True, messages=[message(priority=2.0)]))
    picture = project(run)
    assert (repr(picture["owner"]), repr(picture["messages"][0]["priority"])) == ("True", "2.0")


@pytest.mark.case("T-03", "T-04", "X2")
def test_the_servers_ask_may_drop_unknown_keys_and_reorder_the_rest() -> None:
    ours = seen(asked("m1"), changed(asked("m1"), owner="ann", messages=[message(priority=2)]))
    picture = project(do(ours, Report(RUNNING, "on my way")))
    picture["messages"] = [message("m1"), message("m2")]
    left = {key: picture[key] for key in ORDER}
    run = seen(ours, left)
    again = project(run)
    assert [key for key in again if key != "owner"] == list(project(do(asked("m1"), Report(RUNNING))))
    assert again["owner"] == "ann"
    assert again["messages"][0]["priority"] == 2
    assert states(run) == [("m1", PENDING), ("m2", PENDING)]


@pytest.mark.case("T-03")
@given(runs, st.randoms(use_true_random=False))
def test_the_order_of_keys_means_nothing(run: Run, chance: Any) -> None:
    picture = list(project(run).items())
    chance.shuffle(picture)
    assert absorb(run, dict(picture), START) == []


@pytest.mark.case("T-04", "X2")
@given(runs, st.sets(st.sampled_from([*ORDER, "questionContent", "answerContent", "answerTimestamp"])))
def test_a_key_that_has_vanished_is_not_a_key_that_was_deleted(run: Run, gone: set[str]) -> None:
    left = {key: value for key, value in project(run).items() if key not in gone}
    left["messages"] = [
        {key: value for key, value in item.items() if key not in gone} for item in left.get("messages", [])
    ]
    assert project(seen(run, left)) == project(run)


@pytest.mark.case("T-10", "T-11", "X8")
@pytest.mark.parametrize("word", ["expired", "stalled", "idle", "", 5, True, ["running"], {"is": "running"}])
def test_a_status_that_means_nothing_is_kept_aside_and_the_document_mended(word: object) -> None:
    run = seen(asked("m1"), changed(asked("m1"), status=word))
    assert run.odd == {"status": word}
    assert project(run) == project(asked("m1"))


@pytest.mark.case("T-11", "X8")
@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("cancelled", "cancelled"),
        ("canceled", "cancelled"),
        ("terminated", "cancelled"),
        ("timed_out", "timed_out"),
        ("lost", "lost"),
        ("failed", "sub_agent_error"),
        ("FAILED", "sub_agent_error"),
        ("error", "sub_agent_error"),
    ],
)
def test_every_word_for_a_failure_is_an_error_of_that_kind(word: str, kind: str) -> None:
    run = seen(begun(), changed(begun(), status=word, endTime=later(9).iso))
    assert (run.status, run.kind, run.ended_at) == (ERROR, kind, later(9).iso)
    assert project(run)["status"] == "error"


@pytest.mark.case("T-11")
def test_a_word_in_capitals_is_the_word() -> None:
    run = seen(NEW, servers(status="RUNNING"))
    assert (run.status, run.odd) == (RUNNING, {"status": "RUNNING"})


@pytest.mark.case("T-12", "C1-06", "X8")
@pytest.mark.parametrize("word", RUN_WORDS)
def test_the_seven_words_are_taken_and_without_questions_nothing_waits(word: str) -> None:
    run = seen(NEW, servers(status=word))
    assert run.status == (RUNNING if word in (WAITING, REPLIED) else word)
    assert not run.odd


@pytest.mark.case("T-12")
@pytest.mark.parametrize("word", ["pending", "running"])
def test_a_question_that_the_server_took_turns_either_word_into_waiting(word: str) -> None:
    run = seen(seen(NEW, servers(status=word)), servers(status="waiting_parent_reply", messages=[message()]))
    assert (run.status, states(run)) == (WAITING, [("m1", PENDING)])


@pytest.mark.case("T-13")
@pytest.mark.parametrize("word", ["expired", "EXPIRED", "cancelled", "whatever", ""])
def test_a_message_with_a_word_that_nobody_knows_is_closed_and_no_longer_blocks_the_run(word: str) -> None:
    run = seen(NEW, servers(messages=[message("m1", word), message("m2")]))
    assert states(run) == [("m1", EXPIRED), ("m2", PENDING)]
    assert run.odd == {"m1.messageStatus": word}
    assert refused(run, Reply("yes", "m1"))
    assert document_fits(project(run))
    assert project(run)["messages"][0]["messageStatus"] == "parent_acknowledged"


@pytest.mark.case("T-14")
def test_the_spare_word_stays_what_it_is() -> None:
    closed = message("m1", "parent_acknowledged", answerContent="[expired] Too late.", answerTimestamp=later(5).iso)
    run = seen(NEW, servers(messages=[closed]))
    assert refused(run, Reply("yes", "m1"))
    picture = project(do(run, Ask("m2", "And?")))
    assert picture["messages"][0] == closed
    assert not run.odd


@pytest.mark.case("T-15", "X1")
@pytest.mark.parametrize("word", ["parent_acknowledged", "expired"])
@pytest.mark.parametrize("text", [None, "", "Closed at midnight.", "[expired] Closed at midnight."])
def test_a_worker_that_polls_a_closed_message_reads_that_it_expired(word: str, text: str | None) -> None:
    item = message("m1", word) if text is None else message("m1", word, answerContent=text)
    shown = project(seen(NEW, servers(messages=[item])))["messages"][0]
    assert shown["messageStatus"] == "parent_acknowledged"
    assert shown["answerContent"].startswith(EXPIRED_MARK)
    assert (text or "") in shown["answerContent"]


@pytest.mark.case("T-15", "X1")
def test_an_expiry_of_ours_survives_a_server_that_still_shows_the_question() -> None:
    run = asked("m1")
    expired = fold(run, due(run, later(DAY + 1), DAY))
    assert project(seen(expired, project(run))) == project(expired)


@pytest.mark.case("T-20", "C1-05", "X7")
def test_null_answers_of_a_pending_message_are_read_and_left_out() -> None:
    run = seen(NEW, servers(messages=[message(answerContent=None, answerTimestamp=None)]))
    assert states(run) == [("m1", PENDING)]
    assert project(run)["messages"] == [message()]


@pytest.mark.case("T-20", "C1-05", "X7")
@pytest.mark.parametrize(("word", "state"), [("parent_replied", ANSWERED), ("acknowledged_by_subagent", RETRIEVED)])
def test_null_answers_of_a_replied_message_are_mended(word: str, state: str) -> None:
    run = seen(NEW, servers(messages=[message("m1", word, answerContent=None, answerTimestamp=None)]), later(9))
    shown = project(run)["messages"][0]
    assert states(run) == [("m1", state)]
    assert (shown["answerContent"], shown["answerTimestamp"]) == ("", later(9).iso)


@pytest.mark.case("T-20", "X7")
def test_a_null_does_not_wipe_out_an_answer_of_ours() -> None:
    run = do(asked("m1"), Reply("yes", "m1"))
    picture = copied(project(run))
    picture["messages"][0] |= {"answerContent": None, "answerTimestamp": None}
    assert project(seen(run, picture)) == project(run)


@pytest.mark.case("T-21")
def test_an_empty_document_is_a_run_that_has_not_begun() -> None:
    assert absorb(NEW, {}, START) == []
    assert project(seen(NEW, {})) == {
        "runId": RUN,
        "status": "pending",
        "exitCode": None,
        "endTime": None,
        "summary": None,
    }


@pytest.mark.case("T-21")
def test_an_empty_document_that_the_server_asked_on_has_a_question() -> None:
    run = seen(NEW, {"messages": [message()], "status": "waiting_parent_reply"})
    assert (run.status, states(run)) == (WAITING, [("m1", PENDING)])


@pytest.mark.case("T-22", "C1-07")
@pytest.mark.parametrize("key", ["startTime", "command", "agentName", "runId", "lastUpdated", "messages", "status"])
def test_null_in_a_key_that_may_not_be_null_is_mended(key: str) -> None:
    run = seen(begun(), changed(begun(), **{key: None}))
    assert project(run) == project(begun())
    alone = project(seen(NEW, servers(**{key: None})))
    assert document_fits(alone)
    assert alone.get(key, "left out") is not None


@pytest.mark.case("T-22")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("exitCode", "0"),
        ("exitCode", True),
        ("exitCode", float("inf")),
        ("summary", 5),
        ("messages", {"m1": "Which?"}),
        ("messages", "none"),
        ("startTime", 1_760_000_000_000),
        ("agentName", ["worker"]),
        ("command", ["worker", "--go"]),
        ("runId", 7),
        ("endTime", False),
        ("lastUpdated", 0),
    ],
)
def test_a_value_of_the_wrong_type_is_kept_aside_and_the_document_mended(key: str, value: object) -> None:
    run = seen(NEW, servers(**{key: value}))
    assert run.odd == {key: value}
    assert document_fits(project(run))
    assert not run.finished


@pytest.mark.case("T-23")
@pytest.mark.parametrize("lacking", ["messageId", "questionContent", "questionTimestamp", "messageStatus"])
@pytest.mark.parametrize("null", [False, True])
def test_an_incomplete_message_is_completed(lacking: str, null: bool) -> None:
    item = message()
    if null:
        item[lacking] = None
    else:
        del item[lacking]
    run = seen(NEW, servers(messages=[item]), later(9))
    picture = project(run)
    assert document_fits(picture)
    assert picture["status"] == "waiting_parent_reply"
    assert {**picture["messages"][0], lacking: None} == {**message(), lacking: None}
    assert do(run, Reply("yes")).status == REPLIED


@pytest.mark.case("T-23")
def test_a_message_without_an_id_gets_the_same_one_whenever_it_is_seen() -> None:
    item = {key: value for key, value in message().items() if key != "messageId"}
    reordered = dict(reversed(item.items()))
    (first,), (second,) = seen(NEW, {"messages": [item]}).questions, seen(NEW, {"messages": [reordered]}).questions
    assert first == second
    other = seen(NEW, {"messages": [{**item, "questionContent": "Another?"}]})
    assert set(other.questions) != {first}


@pytest.mark.case("T-23")
def test_an_answered_message_without_a_status_is_answered() -> None:
    item = replied()
    del item["messageStatus"]
    run = seen(NEW, servers(messages=[item]))
    assert (states(run), run.questions["m1"].answer) == ([("m1", ANSWERED)], "yes")


@pytest.mark.case("T-22", "T-23")
@pytest.mark.parametrize("item", [None, 5, "Which?", ["Which?"]])
def test_what_is_no_message_is_kept_aside_and_the_others_are_read(item: object) -> None:
    run = seen(NEW, servers(messages=[item, message()]))
    assert run.odd == {"messages[0]": item}
    assert project(run)["messages"] == [message()]


@pytest.mark.case("T-24")
def test_an_empty_answer_in_a_pending_message_is_no_answer() -> None:
    run = seen(NEW, servers(messages=[message(answerContent="", answerTimestamp="")]))
    assert (run.status, states(run)) == (WAITING, [("m1", PENDING)])
    assert do(run, Reply("yes", "m1")).questions["m1"].answer == "yes"


@pytest.mark.case("T-25")
def test_an_older_layout_is_kept_whole_under_its_own_key() -> None:
    run = seen(NEW, {"meta": servers(messages=[message()])})
    run = do(run, Ask("m2", "And?"))
    assert project(run)["meta"] == servers(messages=[message()])
    assert states(run) == [("m2", PENDING)]


@pytest.mark.case("T-26")
def test_a_document_that_names_another_run_keeps_that_name() -> None:
    run = seen(NEW, servers(runId="another"))
    assert (run.id, project(run)["runId"]) == (RUN, "another")
    assert project(do(run, Ask("m1", "Which?")))["runId"] == "another"


@pytest.mark.case("T-30", "C1-14", "C0-17")
def test_two_questions_of_the_server_are_both_kept_in_order() -> None:
    run = seen(NEW, servers(status="waiting_parent_reply", messages=[message("m2"), message("m1")]))
    assert [question.id for question in run.pending] == ["m2", "m1"]


@pytest.mark.case("T-31", "X9")
def test_a_reply_to_the_older_of_two_leaves_the_newer_pending() -> None:
    both = asked("m1", "m2")
    run = seen(both, changed(both, status="parent_replied", messages=[replied("m1"), message("m2")]))
    assert (run.status, states(run)) == (REPLIED, [("m1", ANSWERED), ("m2", PENDING)])
    assert run.questions["m1"].answer == "yes"


@pytest.mark.case("T-32", "C1-40", "X9")
def test_a_pending_question_is_not_hidden_behind_a_status_of_the_server() -> None:
    both = asked("m1", "m2")
    fetched = replied("m1", state="acknowledged_by_subagent")
    run = seen(both, changed(both, status="running", messages=[fetched, message("m2")]))
    assert states(run) == [("m1", RETRIEVED), ("m2", PENDING)]
    assert project(run)["status"] == "waiting_parent_reply"


@pytest.mark.case("T-33", "X9")
def test_a_third_question_does_not_hide_an_unread_reply() -> None:
    left = [replied("m1"), message("m3")]
    run = seen(asked("m1"), changed(asked("m1"), status="waiting_parent_reply", messages=left))
    assert project(run)["status"] == "parent_replied"
    left = [replied("m1", state="acknowledged_by_subagent"), message("m3")]
    run = seen(run, changed(run, status="running", messages=left))
    assert project(run)["status"] == "waiting_parent_reply"


@pytest.mark.case("T-34", "C1-19", "C1-20")
@pytest.mark.parametrize("word", ["parent_replied", "acknowledged_by_subagent"])
def test_what_the_server_has_answered_takes_no_second_reply(word: str) -> None:
    run = seen(asked("m1"), changed(asked("m1"), messages=[replied(state=word)]))
    assert refused(run, Reply("second", "m1"))
    assert refused(run, Reply("second", "m7"))


@pytest.mark.case("C1-23")
def test_a_document_without_messages_has_no_message_to_reply_to() -> None:
    assert refused(seen(NEW, servers(status="waiting_parent_reply")), Reply("yes", "m1"))


@pytest.mark.case("X2")
def test_messages_are_united_by_their_ids() -> None:
    theirs = [message("m3"), replied("m2"), message("m4")]
    run = seen(asked("m1", "m2"), servers(status="parent_replied", messages=theirs))
    assert states(run) == [("m1", PENDING), ("m2", ANSWERED), ("m3", PENDING), ("m4", PENDING)]


RANK = {PENDING: 0, ANSWERED: 1, RETRIEVED: 2}


@pytest.mark.case("X2", "C0-13")
@pytest.mark.parametrize("ours", RANK)
@pytest.mark.parametrize("theirs", RANK)
def test_the_further_state_wins(ours: str, theirs: str) -> None:
    story = [asked("m1")]
    story.append(do(story[-1], Reply("yes", "m1")))
    story.append(do(story[-1], Acknowledge("m1")))
    run = seen(story[RANK[ours]], project(story[RANK[theirs]]))
    assert states(run) == [("m1", max(ours, theirs, key=RANK.__getitem__))]


@pytest.mark.case("X2", "C0-09")
@pytest.mark.parametrize("word", ["parent_replied", "acknowledged_by_subagent"])
def test_the_first_answer_wins_and_the_other_is_kept_aside(word: str) -> None:
    ours = do(asked("m1"), Reply("ours", "m1"))
    run = seen(ours, changed(ours, messages=[replied("m1", "theirs", word)]))
    assert run.questions["m1"].answer == "ours"
    assert run.odd == {"m1.answerContent": "theirs"}
    assert run.questions["m1"].state == (ANSWERED if word == "parent_replied" else RETRIEVED)


@pytest.mark.case("X2")
def test_an_answer_that_comes_after_the_expiry_is_kept_aside() -> None:
    run = asked("m1")
    run = fold(run, due(run, later(DAY + 1), DAY))
    after = seen(run, changed(run, messages=[replied("m1", "late")]))
    assert after.questions == run.questions
    assert after.odd == {"m1.answerContent": "late"}


@pytest.mark.case("X2")
def test_an_answer_of_the_server_may_be_an_options_number() -> None:
    run = do(begun(), Ask("m1", "Which?", ("left", "right")))
    document = changed(run, status="parent_replied", messages=[replied("m1", "2")])
    run = seen(run, document)
    assert run.questions["m1"].answer == "right"
    assert absorb(run, document, later(9)) == []


@pytest.mark.parametrize("answer", ["0", "3", "1" * 5000])
def test_an_answer_of_the_server_that_is_no_option_is_taken_in_its_own_words(answer: str) -> None:
    run = do(begun(), Ask("m1", "Which?", ("left", "right")))
    assert seen(run, changed(run, messages=[replied("m1", answer)])).questions["m1"].answer == answer


def test_an_option_that_is_a_number_is_recognised_in_our_own_picture() -> None:
    run = do(begun(), Ask("m1", "Which?", ("2", "1")), Reply("1", "m1"))
    assert run.questions["m1"].answer == "2"
    assert absorb(run, project(run), later(9)) == []


@pytest.mark.case("X9")
@pytest.mark.parametrize("word", ["running", "waiting_parent_reply", "parent_replied", "pending"])
@pytest.mark.parametrize("commands", [(), (Reply("yes", "m1"),), (Reply("yes", "m1"), Acknowledge("m1"))])
def test_a_status_that_says_otherwise_is_restored(word: str, commands: tuple[Any, ...]) -> None:
    run = do(asked("m1"), *commands)
    assert project(seen(run, changed(run, status=word)))["status"] == run.status


@pytest.mark.case("C1-15", "X10")
@pytest.mark.parametrize("end", FINISHED)
def test_a_run_that_the_server_revived_stays_ended_and_its_question_can_be_answered(end: str) -> None:
    ended = do(begun(), Report(end, "done"))
    run = seen(ended, changed(ended, status="waiting_parent_reply", messages=[message()]))
    assert (run.status, states(run), run.active) == (end, [("m1", PENDING)], True)
    run = do(run, Reply("yes", "m1"), Acknowledge("m1"))
    assert (run.status, run.questions["m1"].answer, run.active) == (end, "yes", False)


@pytest.mark.case("C1-51", "X10")
@pytest.mark.parametrize("word", ["waiting_parent_reply", "parent_replied", "running"])
@pytest.mark.parametrize("before", [NEW, begun(), asked("m1")], ids=["unknown", "running", "waiting"])
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"exitCode": 0, "endTime": later(7).iso}, SUCCESS),
        ({"exitCode": 3, "endTime": later(7).iso}, ERROR),
        ({"exitCode": None, "endTime": later(7).iso}, COMPLETED),
        ({"exitCode": 0, "endTime": None}, SUCCESS),
    ],
    ids=["exit 0", "exit 3", "end time alone", "exit alone"],
)
def test_a_document_with_an_end_is_the_document_of_an_ended_run(
    before: Run, word: str, end: dict[str, Any], expected: str
) -> None:
    item = message() if word == "waiting_parent_reply" else replied()
    run = seen(before, servers(status=word, messages=[item], **end), later(9))
    assert run.finished
    assert run.status == expected
    assert project(run)["endTime"] == (end["endTime"] or later(9).iso)
    assert project(run)["exitCode"] == end["exitCode"]
    assert [id_ for id_, _ in states(run)] == ["m1"]


@pytest.mark.case("C1-45", "X10")
@pytest.mark.parametrize("before", [NEW, begun()], ids=["unknown", "running"])
def test_a_success_that_the_server_let_run_on_has_ended_all_the_same(before: Run) -> None:
    document = servers(status="running", endTime=later(3).iso, summary="done", lastUpdated=later(7).iso)
    run = seen(before, document, later(9))
    assert run.finished
    assert (run.ended_at, run.summary, run.updated_at) == (later(3).iso, "done", later(7).iso)


@pytest.mark.case("C1-45", "X10")
def test_an_ended_run_is_not_taken_back_by_a_newer_report() -> None:
    ended = do(begun(), Report(SUCCESS, "done"))
    run = seen(ended, changed(ended, status="running", lastUpdated=later(9).iso))
    assert (run.status, run.summary, run.ended_at) == (SUCCESS, "done", START.iso)


@pytest.mark.case("X10")
def test_another_finished_word_of_the_server_annotates_a_success() -> None:
    ended = do(begun(), Report(SUCCESS))
    run = seen(ended, changed(ended, status="completed", summary="two warnings", lastUpdated=later(9).iso))
    assert (run.status, run.summary, run.ended_at) == (COMPLETED, "two warnings", START.iso)


@pytest.mark.case("X10")
def test_a_failure_of_ours_is_not_talked_into_a_success() -> None:
    ended = do(begun(), Report(ERROR, "no"))
    assert seen(ended, changed(ended, status="success", lastUpdated=later(9).iso)).status == ERROR


@pytest.mark.case("X16", "C1-49")
@pytest.mark.parametrize("word", ["success", "error"])
@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_self_report_stands_above_the_exit_code_in_a_document_too(word: str, exit_code: int) -> None:
    document = servers(status=word, exitCode=exit_code, endTime=later(7).iso, summary="my words")
    run = seen(begun(), document, later(9))
    assert (run.status, run.exit_code, run.ended_at, run.summary) == (word, exit_code, later(7).iso, "my words")


@pytest.mark.case("C1-50", "X8", "X16")
@pytest.mark.parametrize(("word", "exit_code"), [("success", 0), ("error", 3)])
def test_an_exit_that_the_server_lays_over_completed_does_not_overturn_it(word: str, exit_code: int) -> None:
    done = do(begun(), Report(COMPLETED, "done"))
    run = seen(done, changed(done, status=word, exitCode=exit_code), later(9))
    assert (run.status, run.exit_code, run.ended_at) == (COMPLETED, exit_code, START.iso)


@pytest.mark.case("X16")
def test_an_exit_that_comes_after_the_end_is_still_written_down() -> None:
    done = do(begun(), Report(SUCCESS))
    run = seen(done, changed(done, exitCode=3, endTime=later(9).iso))
    assert (run.status, run.exit_code, run.ended_at) == (SUCCESS, 3, START.iso)


@pytest.mark.parametrize("word", [*RUN_WORDS, "idle", None])
@pytest.mark.parametrize("updated", [None, later(7).iso])
@pytest.mark.parametrize("exit_code", [None, 0, 3])
@pytest.mark.parametrize("before", [NEW, begun()], ids=["unknown", "running"])
def test_the_first_summary_is_taken_whatever_comes_with_it(
    before: Run, word: str | None, updated: str | None, exit_code: int | None
) -> None:
    document = servers(status=word, summary="half done", lastUpdated=updated, exitCode=exit_code)
    assert seen(before, document, later(9)).summary == "half done"


@pytest.mark.parametrize("word", [*RUN_WORDS, "idle"])
@pytest.mark.parametrize("exit_code", [None, 0, 3])
def test_a_newer_summary_is_taken_whatever_comes_with_it(word: str, exit_code: int | None) -> None:
    ours = do(begun(), Report(RUNNING, "half done"))
    document = changed(ours, status=word, summary="nearly done", lastUpdated=later(7).iso, exitCode=exit_code)
    run = seen(ours, document, later(9))
    assert (run.summary, run.updated_at) == ("nearly done", later(7).iso)


@pytest.mark.case("X2")
@pytest.mark.parametrize("word", RUN_WORDS)
@pytest.mark.parametrize("exit_code", [None, 0, 3])
def test_an_older_summary_and_its_time_never_replace_ours(word: str, exit_code: int | None) -> None:
    ours = do(begun(), Report(RUNNING, "half done"), now=later(7))
    document = changed(ours, status=word, summary="begun", lastUpdated=later(3).iso, exitCode=exit_code)
    run = seen(ours, document, later(9))
    assert (run.summary, run.updated_at) == ("half done", later(7).iso)


@pytest.mark.parametrize("updated", ["yesterday", "1969-12-31T00:00:00.000Z"])
def test_a_time_of_update_that_cannot_be_compared_does_not_replace_ours(updated: str) -> None:
    ours = do(begun(), Report(RUNNING))
    assert seen(ours, changed(ours, status="success", lastUpdated=updated)).updated_at == START.iso


@pytest.mark.case("X8")
@pytest.mark.parametrize("word", ["running", "waiting_parent_reply", "parent_replied"])
def test_a_run_of_ours_that_somebody_else_has_started_is_running(word: str) -> None:
    assert seen(begun(CREATED), changed(begun(CREATED), status=word)).phase == RUNNING


def test_a_running_run_is_not_set_back_to_pending() -> None:
    assert seen(begun(), changed(begun(), status="pending", lastUpdated=later(9).iso)).status == RUNNING


def test_our_own_name_command_and_start_stay_whatever_others_write() -> None:
    document = changed(begun(), agentName="other", command="rm", startTime=later(9).iso, runId="another")
    picture = project(seen(begun(), document))
    assert [picture[key] for key in ("agentName", "command", "startTime")] == ["worker", "worker --go", START.iso]


def kinds(run: Run, **keys: Any) -> list[str]:
    """What is made of our picture of a run, with these keys in it."""
    return [kind_of(event) for event in absorb(run, changed(run, **keys), START)]


@pytest.mark.parametrize("key", ["runId", "agentName", "command", "startTime", "status", "lastUpdated"])
def test_null_says_nothing_and_is_not_kept_aside(key: str) -> None:
    assert kinds(asked("m1"), **{key: None}) == []


def test_an_empty_end_is_no_end() -> None:
    assert kinds(begun(), endTime="") == []


def test_a_newer_report_of_others_is_a_report_and_nothing_beside_it() -> None:
    run = do(begun(), Report(RUNNING, "half done"))
    assert kinds(run, status="running", lastUpdated=later(5).iso, summary="almost done") == ["reported"]


def test_the_same_summary_at_a_later_time_is_no_news() -> None:
    run = do(begun(), Report(RUNNING, "half done"))
    [observed] = absorb(run, changed(run, status=None, lastUpdated=later(5).iso), START)
    assert isinstance(observed, Observed)
    assert observed.keys == {"lastUpdated": later(5).iso}


def test_an_ended_run_that_is_called_running_has_nothing_reported() -> None:
    assert "reported" not in kinds(do(begun(), Report(SUCCESS)), status="running", lastUpdated=later(5).iso)


def test_a_process_that_has_exited_reports_no_more() -> None:
    assert kinds(begun(), status="running", exitCode=0, lastUpdated=later(5).iso) == ["observed", "exited"]


def test_an_end_without_a_reason_is_no_failure() -> None:
    run = seen(begun(), changed(begun(), endTime=later(5).iso))
    assert (run.phase, run.kind, run.ended_at) == (COMPLETED, None, later(5).iso)


@pytest.mark.parametrize(("word", "kind"), [("success", None), ("completed", None), ("error", "sub_agent_error")])
def test_only_a_failure_has_a_kind(word: str, kind: str | None) -> None:
    assert seen(begun(), changed(begun(), status=word)).kind == kind


def test_an_empty_id_is_no_id_and_a_question_without_words_is_empty() -> None:
    [question] = seen(NEW, {"messages": [{"messageId": ""}]}).questions.values()
    assert (len(question.id), question.text) == (36, "")


@pytest.mark.parametrize(
    "twice",
    [
        [replied(), replied()],
        [message(state="parent_acknowledged", answerContent="[expired] No."), replied(answer="[expired] No.")],
    ],
)
def test_the_same_answer_twice_in_a_document_is_no_rival(twice: list[Document]) -> None:
    assert seen(asked("m1"), changed(asked("m1"), messages=twice)).odd == {}


@pytest.mark.parametrize(
    "theirs",
    [
        message(state="parent_replied"),
        replied(answer=""),
        message(state="parent_acknowledged"),
        message(state="parent_acknowledged", answerContent="Too late."),
    ],
)
def test_a_closed_message_without_an_answer_of_its_own_says_nothing_about_ours(theirs: Document) -> None:
    assert kinds(do(asked("m1"), Reply("yes", "m1")), messages=[theirs]) == []


def test_what_was_fetched_is_fetched_once_and_what_has_expired_never() -> None:
    answered = do(asked("m1"), Reply("yes", "m1"))
    expired = fold(asked("m1"), due(asked("m1"), later(DAY + 1), DAY))
    theirs = [replied(state="acknowledged_by_subagent")]
    assert kinds(answered, messages=theirs) == ["acknowledged"]
    assert kinds(do(answered, Acknowledge("m1")), messages=theirs) == []
    assert "acknowledged" not in kinds(expired, messages=theirs)


def test_a_message_that_another_program_closed_without_a_word_says_so() -> None:
    run = seen(asked("m1"), changed(asked("m1"), messages=[message(state="parent_acknowledged")]))
    assert run.questions["m1"].closing == "[expired] Closed by another program; go on without an answer."


@pytest.mark.parametrize("key", ["agentName", "command", "startTime"])
def test_what_is_not_known_of_a_run_is_taken_from_the_document(key: str) -> None:
    run = seen(NEW, {key: servers()[key]})
    assert project(run)[key] == servers()[key]
    assert absorb(run, {**project(run), key: "something else"}, START) == []


def test_a_late_document_adds_keys_of_others_and_changes_none() -> None:
    run = seen(asked("m1"), changed(asked("m1"), owner="ann", messages=[message(priority=1)]))
    late = changed(run, owner="bob", colour="red", messages=[message(priority=2), message("m2")])
    late_run = fold(run, absorb(run, late, START, late=True))
    assert (late_run.extras, states(late_run)) == (
        {"owner": "ann", "colour": "red"},
        [("m1", PENDING), ("m2", PENDING)],
    )
    assert late_run.questions["m1"].extras == {"priority": 1}
    assert seen(run, late).extras == {"owner": "bob", "colour": "red"}


def test_a_new_key_in_a_message_is_news_by_itself_and_stands_before_what_happened() -> None:
    run = asked("m1")
    [observed] = absorb(run, changed(run, messages=[message(priority=1)]), START)
    assert isinstance(observed, Observed)
    both = absorb(run, changed(run, messages=[message(priority=1), message("m2"), message("m3")]), START)
    assert [kind_of(event) for event in both] == ["observed", "asked", "asked"]


def test_a_message_that_stands_twice_in_a_document_keeps_the_keys_and_answers_of_both() -> None:
    twice = [{**replied("m1", "first"), "a": 1}, {**replied("m1", "second"), "b": 2}]
    run = seen(NEW, servers(messages=twice))
    assert (states(run), run.questions["m1"].answer) == ([("m1", ANSWERED)], "first")
    assert run.questions["m1"].extras == {"a": 1, "b": 2}
    assert run.odd == {"m1.answerContent": "second"}


@pytest.mark.case("X2", "X9")
@example([Ask("m1", "Which?", ("2", "1")), Reply("1", "m1")])
@given(steps)
def test_our_own_picture_says_nothing_new(taken: list[Step]) -> None:
    for run in lived(taken):
        assert absorb(run, copied(project(run)), later(9)) == []


@pytest.mark.case("X2")
@example(NEW, {"status": "running", "endTime": START.iso})
@example(NEW, {"status": "running", "summary": "half done"})
@example(NEW, {"messages": [{"messageId": "m1", "priority": 1}, {"messageId": "m1", "priority": 2}]})
@example(NEW, {"messages": [replied("m1", "first"), replied("m1", "second")]})
@example(begun(), {"status": "running", "endTime": START.iso, "lastUpdated": START.iso})
@given(st.just(NEW) | runs, documents)
def test_seeing_a_document_twice_adds_nothing(run: Run, document: Document) -> None:
    once = seen(run, document, later(DAY))
    assert absorb(once, document, later(DAY + 5)) == []


@pytest.mark.case("X2")
@given(st.just(NEW) | runs, documents)
def test_the_picture_of_what_was_absorbed_says_nothing_new_either(run: Run, document: Document) -> None:
    once = seen(run, document, later(DAY))
    assert absorb(once, project(once), later(DAY + 5)) == []


@pytest.mark.case("X2", "C0-13", "X10")
@given(lives)
def test_an_older_picture_of_ours_never_undoes_what_came_after_it(life: list[Run]) -> None:
    newest = life[-1]
    for older in life:
        after = seen(newest, project(older), later(1000 * DAY))
        assert after.questions == newest.questions
        assert project(after) == project(newest)


@pytest.mark.case("T-22", "T-23", "X2", "X7")
@given(st.just(NEW) | runs, documents)
def test_any_document_whatever_can_be_absorbed_and_is_mended(run: Run, document: Document) -> None:
    before = repr((run, document))
    after = seen(run, document, later(DAY))
    assert document_fits(project(after))
    assert repr((run, document)) == before
    assert document_fits(project(fold(after, due(after, later(2 * DAY), DAY))))


@pytest.mark.case("X2", "T-04", "C0-09", "C0-13", "X10")
@given(runs, documents)
def test_nothing_of_ours_disappears_whatever_is_absorbed(run: Run, document: Document) -> None:
    after = seen(run, document, later(DAY))
    assert list(after.questions)[: len(run.questions)] == list(run.questions)
    onward = {PENDING: {PENDING, ANSWERED, RETRIEVED, EXPIRED}, ANSWERED: {ANSWERED, RETRIEVED}}
    for id_, ours in run.questions.items():
        theirs = after.questions[id_]
        assert theirs.state in onward.get(ours.state, {ours.state})
        assert theirs[:4] == ours[:4]
        assert (theirs.options, theirs.default, theirs.deadline) == (ours.options, ours.default, ours.deadline)
        if ours.state != PENDING:
            assert (theirs.closing, theirs.closed_at) == (ours.closing, ours.closed_at)
    assert (after.notes, after.keys) == (run.notes, run.keys)
    assert (after.agent, after.command, after.started_at) == (run.agent, run.command, run.started_at)
    assert run.exit_code in (None, after.exit_code)
    assert run.ended_at in (None, after.ended_at)
    assert run.kind in (None, after.kind)
    assert (milliseconds(run.updated_at) or 0) <= (milliseconds(after.updated_at) or 0)
    assert run.summary is None or after.summary is not None
    if run.finished:
        assert after.finished
        assert (after.phase == ERROR) == (run.phase == ERROR)
    else:
        assert after.phase != CREATED


@pytest.mark.case("X2")
@given(runs, documents)
def test_every_unknown_key_of_others_is_in_the_next_picture(run: Run, document: Document) -> None:
    picture = project(seen(run, document, later(DAY)))
    ours = project(run)
    for key, value in document.items():
        if key not in ours and key not in ORDER:
            assert repr(picture[key]) == repr(value)


@pytest.mark.case("X2")
@given(runs, documents)
def test_every_message_with_an_id_is_in_the_next_picture(run: Run, document: Document) -> None:
    picture = project(seen(run, document, later(DAY)))
    there = {item["messageId"] for item in picture.get("messages", [])}
    found = document.get("messages")
    for item in found if isinstance(found, list) else []:
        if isinstance(item, dict) and isinstance(item.get("messageId"), str) and item["messageId"]:
            assert item["messageId"] in there

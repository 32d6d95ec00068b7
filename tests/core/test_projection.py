"""The picture of a run has the server's keys in the server's order, and nothing that the server would refuse."""

import json

import pytest
from hypothesis import given

from subagent_cli.core.command import Acknowledge, Ask, Reply, Report
from subagent_cli.core.document import MESSAGE_KEYS, RUN_KEYS, Document, document_fits
from subagent_cli.core.event import Exited, Observed
from subagent_cli.core.evolution import fold
from subagent_cli.core.projection import project
from subagent_cli.core.run import CREATED, RUNNING, Run
from tests.core.lives import DAY, RUN, START, asked, begun, do, documents, later, lives, runs, seen


@pytest.mark.case("C1-02")
def test_a_new_run_has_eight_keys_in_the_servers_order() -> None:
    assert list(project(begun()).items()) == [
        ("runId", RUN),
        ("agentName", "worker"),
        ("command", "worker --go"),
        ("startTime", START.iso),
        ("status", "running"),
        ("exitCode", None),
        ("endTime", None),
        ("summary", None),
    ]


@pytest.mark.case("X8")
@pytest.mark.parametrize(("phase", "word"), [(CREATED, "pending"), (RUNNING, "running")])
def test_a_run_without_a_process_is_pending(phase: str, word: str) -> None:
    assert project(begun(phase))["status"] == word


@pytest.mark.case("C1-02")
def test_there_is_no_messages_key_before_the_first_question() -> None:
    run = fold(do(begun(), Report(RUNNING, "on my way")), [Exited(later(5), 0, later(5).iso)])
    assert "messages" not in project(run)
    assert "messages" in project(do(begun(), Ask("m1", "Which?")))


@pytest.mark.case("C1-08", "C1-09", "X7")
def test_a_new_message_has_no_answer_keys() -> None:
    assert project(asked("m1"))["messages"] == [
        {
            "messageId": "m1",
            "questionContent": "Which, m1?",
            "questionTimestamp": START.iso,
            "messageStatus": "pending_parent_reply",
        }
    ]


@pytest.mark.case("C1-16")
def test_a_reply_fills_in_the_answer_and_moves_both_statuses() -> None:
    picture = project(do(asked("m1"), Reply("8080", "m1"), now=later(5)))
    assert picture["status"] == "parent_replied"
    assert picture["messages"] == [
        {
            "messageId": "m1",
            "questionContent": "Which, m1?",
            "questionTimestamp": START.iso,
            "answerContent": "8080",
            "answerTimestamp": later(5).iso,
            "messageStatus": "parent_replied",
        }
    ]


def test_an_acknowledged_answer_stays_in_the_picture() -> None:
    picture = project(do(asked("m1"), Reply("8080", "m1"), Acknowledge("m1")))
    assert picture["status"] == "running"
    assert picture["messages"][0]["answerContent"] == "8080"
    assert picture["messages"][0]["messageStatus"] == "acknowledged_by_subagent"


@pytest.mark.case("C1-02", "X2")
def test_all_ten_keys_stand_in_the_order_in_which_the_server_adds_them() -> None:
    run = fold(do(asked("m1"), Report("success", "done")), [Exited(later(5), 0, later(5).iso)])
    assert list(project(run)) == [
        "runId",
        "agentName",
        "command",
        "startTime",
        "status",
        "exitCode",
        "endTime",
        "summary",
        "messages",
        "lastUpdated",
    ]


@pytest.mark.case("C1-14")
def test_messages_stand_in_the_order_in_which_they_were_asked() -> None:
    picture = project(do(asked("m3", "m1", "m2"), Reply("yes", "m1")))
    assert [message["messageId"] for message in picture["messages"]] == ["m3", "m1", "m2"]


def test_a_run_of_another_program_is_not_given_keys_that_it_never_had() -> None:
    assert project(Run(RUN)) == {"runId": RUN, "status": "pending", "exitCode": None, "endTime": None, "summary": None}


@pytest.mark.case("X2")
def test_keys_of_others_stand_behind_ours() -> None:
    run = fold(asked("m1"), [Observed(START, {"owner": None, "tags": [1]}, {"m1": {"priority": 1}})])
    picture = project(run)
    assert list(picture)[-2:] == ["owner", "tags"]
    assert (picture["owner"], picture["tags"]) == (None, [1])
    assert list(picture["messages"][0])[-1] == "priority"


@pytest.mark.case("X2")
def test_what_the_server_would_refuse_is_kept_out_of_the_picture() -> None:
    run = fold(begun(), [Observed(START, odd={"status": "idle", "exitCode": "none", "m1.answerContent": 5})])
    assert project(run) == project(begun())


@pytest.mark.case("C1-04", "C1-05", "C1-06", "C1-07", "X7")
@given(lives)
def test_every_picture_of_ours_fits_and_holds_known_keys_only(life: list[Run]) -> None:
    for run in life:
        picture = project(run)
        assert document_fits(picture)
        assert set(picture) <= set(RUN_KEYS)
        for message in picture.get("messages", []):
            assert set(message) <= set(MESSAGE_KEYS)
            assert None not in message.values()


@pytest.mark.case("X2", "X7")
@given(runs, documents)
def test_every_picture_fits_when_others_have_had_their_hands_in_it(run: Run, document: Document) -> None:
    picture = project(seen(run, document, later(DAY)))
    assert document_fits(picture)
    for message in picture.get("messages", []):
        assert not any(message[key] is None for key in MESSAGE_KEYS if key in message)


@given(runs)
def test_a_picture_is_plain_json(run: Run) -> None:
    picture = project(run)
    assert json.loads(json.dumps(picture)) == picture


@given(runs)
def test_a_picture_can_be_painted_over_without_harm_to_the_run(run: Run) -> None:
    before = repr(run)
    picture = project(run)
    for message in picture.get("messages", []):
        message.clear()
    picture.clear()
    assert repr(run) == before

"""The published model of `.meta.json` gives the verdicts that the server gave when it was asked.

`meta_corpus.json` holds whole documents, each under the sentence that says what is special about it.
"""

import json
import math
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from subagent_cli.contracts.base import Contract
from subagent_cli.contracts.meta import MessageStatus, MetaDocument, MetaMessage, RunStatus
from subagent_cli.core.document import MESSAGE_WORDS, RUN_WORDS, document_fits

CORPUS = json.loads(Path(__file__).with_name("meta_corpus.json").read_text(encoding="utf-8"))
ACCEPTED = [pytest.param(document, id=sentence) for sentence, document in CORPUS["accepted"].items()]
REFUSED = [pytest.param(document, id=sentence) for sentence, document in CORPUS["refused"].items()]

RUN_STATUSES = [
    "pending",
    "running",
    "completed",
    "error",
    "success",
    "waiting_parent_reply",
    "parent_replied",
]
MESSAGE_STATUSES = [
    "pending_parent_reply",
    "parent_replied",
    "acknowledged_by_subagent",
    "parent_acknowledged",
]

NULLABLE = ("endTime", "exitCode", "summary")
NOT_NULLABLE = ("runId", "agentName", "status", "messages", "command", "startTime", "lastUpdated")


def message(**changes: Any) -> dict[str, Any]:
    return {
        "messageId": "01936f2e-0000-7000-8000-000000000001",
        "questionContent": "Which port?",
        "questionTimestamp": "2025-01-31T12:00:00.000Z",
        "messageStatus": "pending_parent_reply",
        **changes,
    }


def complaints(model: type[Contract], document: object) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(document)
    return [(error["loc"], error["msg"]) for error in caught.value.errors()]


@pytest.mark.parametrize("document", ACCEPTED)
def test_what_the_server_accepts_comes_back_unchanged(document: dict[str, Any]) -> None:
    assert MetaDocument.model_validate(document).model_dump(exclude_unset=True) == document


@pytest.mark.parametrize("document", REFUSED)
def test_what_blocks_the_server_is_refused(document: object) -> None:
    assert complaints(MetaDocument, document)


@pytest.mark.parametrize("document", [*ACCEPTED, *REFUSED])
def test_the_small_validator_of_the_core_gives_the_same_verdict(document: object) -> None:
    try:
        MetaDocument.model_validate(document)
    except ValidationError:
        assert not document_fits(document)
    else:
        assert document_fits(document)


def test_the_core_knows_the_same_words() -> None:
    def words(alias: Any) -> set[str]:
        return set(get_args(get_args(alias.__value__)[0]))

    assert words(RunStatus) == set(RUN_WORDS)
    assert words(MessageStatus) == set(MESSAGE_WORDS)


@pytest.mark.case("C1-06")
@pytest.mark.parametrize("status", RUN_STATUSES)
def test_each_of_the_seven_run_statuses_is_accepted(status: str) -> None:
    assert MetaDocument.model_validate({"status": status}).status == status


@pytest.mark.case("C1-06")
@pytest.mark.parametrize(
    "status",
    [
        "cancelled",
        "failed",
        "expired",
        "stalled",
        "timed_out",
        "idle",
        "terminated",
        "RUNNING",
        " running",
        "",
        5,
    ],
)
def test_any_other_run_status_is_refused(status: object) -> None:
    assert [where for where, _ in complaints(MetaDocument, {"status": status})] == [("status",)]


@pytest.mark.case("C1-06")
@pytest.mark.case("C1-07")
@pytest.mark.parametrize("key", [*NULLABLE, *NOT_NULLABLE])
def test_every_key_may_be_absent_and_is_not_invented(key: str) -> None:
    document = CORPUS["accepted"]["all ten keys"]
    rest = {name: value for name, value in document.items() if name != key}
    assert len(rest) == 9
    assert MetaDocument.model_validate(rest).model_dump(exclude_unset=True) == rest


@pytest.mark.case("C1-07")
@pytest.mark.parametrize("key", NULLABLE)
def test_what_is_known_only_at_the_end_may_be_null(key: str) -> None:
    assert MetaDocument.model_validate({key: None}).model_dump(exclude_unset=True) == {key: None}


@pytest.mark.case("C1-07")
@pytest.mark.parametrize("key", NOT_NULLABLE)
def test_the_other_keys_may_be_left_out_but_not_null(key: str) -> None:
    assert complaints(MetaDocument, {key: None}) == [
        ((key,), "This key may be left out, but it may not be null"),
    ]


@pytest.mark.case("C1-07")
@pytest.mark.parametrize("code", [0, 1, -15, 3221225786, 2**60, 1.5])
def test_an_exit_code_is_any_number_and_stays_as_it_was_written(code: float) -> None:
    kept = MetaDocument.model_validate({"exitCode": code}).model_dump(exclude_unset=True)["exitCode"]
    assert (kept, type(kept)) == (code, type(code))


@pytest.mark.parametrize("code", [math.nan, math.inf, -math.inf, True, "1"])
def test_what_json_cannot_write_as_a_number_is_no_exit_code(code: object) -> None:
    assert [where for where, _ in complaints(MetaDocument, {"exitCode": code})] == [("exitCode",)]


@pytest.mark.case("C1-04")
@pytest.mark.parametrize("status", MESSAGE_STATUSES)
def test_each_of_the_four_message_statuses_is_accepted(status: str) -> None:
    assert MetaMessage.model_validate(message(messageStatus=status)).messageStatus == status


@pytest.mark.case("C1-04")
@pytest.mark.parametrize("status", ["expired", "EXPIRED", "cancelled", "PENDING", "running", "", None, 5])
def test_any_other_message_status_is_refused(status: object) -> None:
    found = complaints(MetaMessage, message(messageStatus=status))
    assert [where for where, _ in found] == [("messageStatus",)]


@pytest.mark.case("C1-04")
@pytest.mark.parametrize("key", list(message()))
def test_a_message_needs_its_id_its_question_its_time_and_its_status(key: str) -> None:
    short = message()
    del short[key]
    assert complaints(MetaMessage, short) == [((key,), "Field required")]


@pytest.mark.case("C1-04")
def test_the_answer_and_its_time_may_be_left_out() -> None:
    assert MetaMessage.model_validate(message()).model_dump(exclude_unset=True) == message()


@pytest.mark.case("C1-05")
@pytest.mark.parametrize("key", ["answerContent", "answerTimestamp"])
def test_a_null_answer_is_never_published(key: str) -> None:
    assert complaints(MetaDocument, {"messages": [message(**{key: None})]}) == [
        (("messages", 0, key), "This key may be left out, but it may not be null"),
    ]


@pytest.mark.parametrize("key", ["status", "summary"])
def test_a_document_that_was_checked_cannot_be_changed_unchecked(key: str) -> None:
    document = MetaDocument.model_validate({"status": "running"})
    with pytest.raises(ValidationError, match="frozen"):
        setattr(document, key, 5)

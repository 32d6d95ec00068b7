"""What a refusal says, word for word: what is wrong, the word that callers test, and what may be done instead."""

from typing import Any, NamedTuple

import pytest

from subagent_cli.core.command import Acknowledge, Ask, Command, Grant, Reply, Report, Resume, Revoke, Submit, Tell
from subagent_cli.core.dispatch import (
    FIELDS,
    MODES,
    DispatchSubagentError,
    DispatchSubagentResult,
    ToolValidationError,
    delivered,
    requested,
)
from subagent_cli.core.errors import (
    Busy,
    Damaged,
    Denied,
    Failed,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    Refused,
    RunNotFound,
    Stalled,
    SubagentError,
)
from subagent_cli.core.event import Replied, event, record
from subagent_cli.core.evolution import fold
from subagent_cli.core.exchange import not_granted
from subagent_cli.core.grant import ADMINISTER, ANSWER, CAPABILITIES, REPORT, SEND, STOP, WORK
from subagent_cli.core.question import Question, chosen
from subagent_cli.core.run import ERROR, RUNNING, SUCCESS, Run
from subagent_cli.core.transition import KINDS, REPORTS, decide, due
from tests.core.lives import DAY, RUN, START, asked, begun, do, later

QUESTION = "0199c7d4-4c00-7abc-8def-0123456789ab"
LONG = "x" * 100


class Said(NamedTuple):
    """All that a refusal says."""

    message: str
    code: str
    hint: str | None = None
    candidates: tuple[str, ...] = ()
    next: str | None = None


def said(error: SubagentError) -> Said:
    assert str(error) == error.message
    return Said(error.message, error.code, error.hint, error.candidates, error.next)


def refused(run: Run, command: Command) -> Said:
    with pytest.raises(SubagentError) as caught:
        decide(run, command, START)
    return said(caught.value)


def open_question() -> Run:
    return do(begun(), Ask(QUESTION, "Which?"))


def ended(word: str = SUCCESS) -> Run:
    return do(begun(), Report(word))


def expired() -> Run:
    return fold(open_question(), due(open_question(), later(DAY + 1), DAY))


NOT_PENDING = "Message status is not 'pending_parent_reply': found "
FIRST_KEPT = "the first answer is kept"
NOBODY = "it has expired: nobody answered in time"
SAME_AGAIN = "a key belongs to one request: repeat that request exactly, or take another key"


@pytest.mark.parametrize(
    ("run", "command", "expected"),
    [
        (begun(), Ask("m1", ""), Said("Question cannot be empty", "empty_question")),
        (begun(), Ask("m1", "?", ("a",)), Said("a question has 2 to 4 options, not 1", "option_count")),
        (begun(), Ask("m1", "?", tuple("abcde")), Said("a question has 2 to 4 options, not 5", "option_count")),
        (
            open_question(),
            Ask("m1", "?", single=True),
            Said(
                "a question is still open: 456789ab",
                "question_open",
                "--single allows one at a time",
                next="subagent check 456789ab",
            ),
        ),
        (ended(), Ask("m1", "?"), Said("run 0000abcd has ended (success): it cannot ask", "run_finished")),
        (begun(), Tell(""), Said("the note is empty", "empty_text")),
        (ended(ERROR), Tell("hm"), Said("run 0000abcd has ended (error): it cannot tell", "run_finished")),
        (
            do(open_question(), Reply("yes", QUESTION)),
            Reply("no", QUESTION),
            Said(f"{NOT_PENDING}'parent_replied'", "not_pending", FIRST_KEPT),
        ),
        (
            do(open_question(), Reply("yes", QUESTION), Acknowledge()),
            Reply("no", QUESTION),
            Said(f"{NOT_PENDING}'acknowledged_by_subagent'", "not_pending", FIRST_KEPT),
        ),
        (
            expired(),
            Reply("yes", QUESTION),
            Said(f"{NOT_PENDING}'parent_acknowledged'", "not_pending", NOBODY),
        ),
        (begun(), Reply("yes"), Said("no question is waiting in run 0000abcd", "no_pending_question")),
        (
            asked("m1", "m2"),
            Reply("yes"),
            Said(
                "2 questions are waiting in run 0000abcd",
                "several_pending",
                "name one, or say --oldest, --latest or --all",
                ("m1 Which, m1?", "m2 Which, m2?"),
            ),
        ),
        (begun(), Reply("yes", LONG), Said(f"Message with ID {LONG[:64]} not found", "message_not_found")),
        (begun(), Acknowledge(LONG), Said(f"Message with ID {LONG[:64]} not found", "message_not_found")),
        (
            begun(),
            Report(LONG),
            Said(f"not a status that can be reported: {LONG[:40]!r}", "unknown_status", candidates=REPORTS),
        ),
        (
            ended(),
            Report(RUNNING),
            Said("run 0000abcd has ended (success): it cannot become running", "run_finished"),
        ),
        (begun(), Submit("result", ""), Said("the result is empty", "empty_text")),
        (begun(), Submit("error", ""), Said("the error is empty", "empty_text")),
        (
            begun(),
            Submit("error", "no", LONG),
            Said(f"there is no kind of error {LONG[:40]!r}", "unknown_kind", candidates=KINDS),
        ),
        (
            ended(),
            Submit("result", "more"),
            Said("run 0000abcd has ended (success): it cannot take another result", "run_finished"),
        ),
        (
            begun(),
            Resume("worker", "again", "hash"),
            Said("run 0000abcd was not started by `subagent run`: there is nothing to start again", "not_launched"),
        ),
        (
            do(begun(), Ask("m1", "?", key=LONG)),
            Ask("m1", "!", key=LONG),
            Said(f"the key {LONG[:40]!r} was used for something else in this run", "key_reused", SAME_AGAIN),
        ),
        (
            begun(),
            Grant(None, "a", LONG),
            Said(f"there is no capability {LONG[:40]!r}", "unknown_capability", candidates=CAPABILITIES),
        ),
        (
            begun(),
            Revoke("a", "b", SEND),
            Said(
                f"No permission to administer grants for agent {RUN}",
                "not_granted",
                "it takes administer_grants: whoever administers its grants can give it",
                next="subagent grants",
            ),
        ),
        (
            do(begun(), Grant(None, "a", ADMINISTER)),
            Revoke("a", "b", SEND, everything=True),
            Said("an agent takes back what it gave itself", "not_granted", "leave --all out"),
        ),
    ],
)
def test_a_command_that_may_not_be_is_told_why(run: Run, command: Command, expected: Said) -> None:
    assert refused(run, command) == expected


@pytest.mark.parametrize(
    ("right", "message", "grantable"),
    [
        (ADMINISTER, "No permission to administer grants for agent {}", ADMINISTER),
        (SEND, "No permission to send messages to agent {}", SEND),
        (ANSWER, "No permission to answer questions of agent {}", SEND),
        (WORK, "Only the worker of run {} itself, or the operator, may do this", None),
        (REPORT, "Only the worker of run {}, whoever started it, or the operator may report on it", None),
        (STOP, "Only whoever started run {}, or the operator, may end it", None),
    ],
)
def test_a_missing_right_is_named_with_who_can_give_it(right: str, message: str, grantable: str | None) -> None:
    hint = f"it takes {grantable}: whoever administers its grants can give it" if grantable else None
    next_ = "subagent grants" if grantable else None
    assert said(not_granted(right, LONG)) == Said(message.format(LONG[:64]), "not_granted", hint, (), next_)


def test_a_number_without_an_option_is_told_with_the_options() -> None:
    question = Question("m1", "Which?", START.iso, START, options=("left", "right"))
    with pytest.raises(InvalidInput) as caught:
        chosen(question, "3" * 100)
    assert said(caught.value) == Said(
        f"there is no option {'3' * 20}: the question has 2",
        "no_such_option",
        "answer with an option's number, or in words",
        ("1. left", "2. right"),
    )


def test_a_journal_of_a_newer_release_says_whose_it_is() -> None:
    with pytest.raises(Damaged) as caught:
        event({"type": LONG})
    assert said(caught.value) == Said(
        f"the journal holds an event of an unknown type: {LONG[:40]!r}",
        "newer_journal",
        "a newer subagent wrote it: upgrade this one",
    )


def test_a_record_that_lacks_a_field_is_called_incomplete() -> None:
    written = record(Replied(START, "m1", "yes", START.iso))
    del written["answer"]
    with pytest.raises(Damaged) as caught:
        event(written)
    assert caught.value.message.startswith("the journal holds an incomplete event: ")
    assert caught.value.code == "damaged"


@pytest.mark.parametrize(
    ("table", "field", "message", "candidates"),
    [
        ([], None, f"a dispatch is a table of {', '.join(FIELDS)}.", ()),
        ({LONG: 1}, LONG[:40], f"{LONG[:40]} is no field of a dispatch.", FIELDS),
        ({"mode": "ad_hoc"}, "instructions", "instructions is required.", ()),
        ({"\ud800": 1}, "\\ud800", "\\ud800 is no field of a dispatch.", FIELDS),
        (
            {"mode": "ad_hoc", "instructions": "x", "prompt_ns": "\ud800"},
            "prompt_ns",
            "prompt_ns must be valid text.",
            (),
        ),
        ({"mode": "other", "instructions": "x"}, "mode", "mode must be 'plan_step' or 'ad_hoc'.", MODES),
    ],
)
def test_a_dispatch_that_cannot_be_meant_is_told_by_its_field(
    table: object, field: str | None, message: str, candidates: tuple[str, ...]
) -> None:
    with pytest.raises(ToolValidationError) as caught:
        requested(table)
    assert said(caught.value) == Said(message, "invalid_dispatch", None, candidates)
    assert caught.value.field == field


@pytest.mark.parametrize("texts", [("a", 5), [5, "a"]])
def test_a_result_of_which_one_text_is_none_is_no_result(texts: Any) -> None:
    assert delivered(DispatchSubagentResult("done")) == DispatchSubagentResult("done")
    for given in (DispatchSubagentResult("done", texts, ("b",)), DispatchSubagentResult("done", ("b",), texts)):
        with pytest.raises(DispatchSubagentError) as caught:
            delivered(given)
        assert said(caught.value) == Said("invalid result payload", "dispatch_failed")


def test_a_dispatch_that_cannot_be_meant_may_carry_a_hint() -> None:
    error = ToolValidationError("no", field="mode", hint="say it otherwise")
    assert (error.field, error.hint) == ("mode", "say it otherwise")


CODES = {
    SubagentError: "failed",
    Failed: "failed",
    InvalidInput: "invalid_input",
    NotFound: "not_found",
    Refused: "refused",
    Denied: "denied",
    Busy: "busy",
    Stalled: "stalled",
    Damaged: "damaged",
    OutcomeUnknown: "outcome_unknown",
}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_an_error_has_the_code_of_its_kind_unless_it_has_its_own(kind: type[SubagentError], code: str) -> None:
    assert said(kind("no")) == Said("no", code)
    assert said(kind("no", code="own", hint="h", candidates=["a"], next="n")) == Said("no", "own", "h", ("a",), "n")


def test_a_run_that_is_not_found_is_remembered_by_what_was_asked_for() -> None:
    error = RunNotFound("abc", hint="look again", candidates=["abcd"])
    assert said(error) == Said("Run ID not found: abc", "run_not_found", "look again", ("abcd",))
    assert error.run_id == "abc"
    assert said(RunNotFound("abc")) == Said("Run ID not found: abc", "run_not_found")

"""What several processes were told at the same time can be true, killed ones included; and a history that cannot be
true is known for one."""

from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.event import Record
from tests.stress import checker, history
from tests.stress.history import OK, REFUSED, UNKNOWN, Call, Diary
from tests.stress.rounds import play

RUN, ONE, TWO = "run", "one", "two"
History = list[Call]


def call(at: float, verb: str, result: Any, outcome: str = OK, lasts: float = 1, **args: Any) -> Call:
    return Call(f"p{at}", verb, {"run": RUN, **args}, at, at + lasts, outcome, result)


def status(at: float, *messages: tuple[str, str, str | None], phase: str = "running", **shown: Any) -> Call:
    result: dict[str, Any] = {
        "phase": phase,
        "summary": None,
        "notes": [],
        "messages": list(messages),
        "warnings": [],
        **shown,
    }
    return call(at, "status", result, peek=True)


def check(at: float, message_id: str, state: str, answer: str | None = None, peek: bool = False) -> Call:
    result: dict[str, Any] = {"state": state, "answer": answer, "warnings": []}
    return call(at, "check", result, message=message_id, peek=peek)


ASK = call(0, "ask", ONE, text="One?")
ASK_TWO = call(2, "ask", TWO, text="Two?", deadline=5, default=None)
REPLY = call(10, "reply", [ONE], answer="Yes.", message=ONE)
LATE_REPLY = call(14, "reply", "not_pending", REFUSED, answer="No.", message=ONE)
TELL = call(20, "tell", True, text="Half done.")
UPDATE = call(30, "update", "running", status="running", text="Nearly.")
END = call(50, "update", "success", status="success", text="Done.")
LATE_ASK = call(60, "ask", "run_finished", REFUSED, text="Three?")
KILLED = Call("p70", "tell", {"run": RUN, "text": "Last words."}, 24)
PICKED_UP = check(22, ONE, "ANSWERED", "Yes.")
LAST = status(
    80, (ONE, "RETRIEVED", "Yes."), (TWO, "EXPIRED", None), phase="success", summary="Done.", notes=["Half done."]
)
TRUE = [
    ASK,
    ASK_TWO,
    status(4, (ONE, "PENDING", None), (TWO, "PENDING", None)),
    REPLY,
    LATE_REPLY,
    Call("p16", "pending", {}, 16, 17, OK, [(RUN, TWO)]),
    status(18, (ONE, "ANSWERED", "Yes."), (TWO, "PENDING", None)),
    TELL,
    PICKED_UP,
    KILLED,
    UPDATE,
    status(
        40, (ONE, "RETRIEVED", "Yes."), (TWO, "PENDING", None), summary="Nearly.", notes=["Half done.", "Last words."]
    ),
    END,
    LATE_ASK,
    LAST._replace(result={**LAST.result, "notes": ["Half done.", "Last words."]}),
]
JOURNAL: list[Record] = [
    {"seq": 1, "type": "created"},
    {"seq": 2, "type": "asked", "question": "One?", "messageId": ONE},
    {"seq": 3, "type": "asked", "question": "Two?", "messageId": TWO},
    {"seq": 4, "type": "replied", "answer": "Yes.", "messageId": ONE},
    {"seq": 5, "type": "told", "text": "Half done."},
    {"seq": 6, "type": "acknowledged"},
    {"seq": 7, "type": "told", "text": "Last words."},
    {"seq": 8, "type": "reported", "status": "running", "summary": "Nearly."},
    {"seq": 9, "type": "reported", "status": "success", "summary": "Done."},
    {"seq": 10, "type": "expired"},
]


def faults(calls: Sequence[Call], journal: Sequence[Record] = JOURNAL) -> str:
    return "\n".join(checker.faults(calls, {RUN: journal}))


def also(*calls: Call) -> Callable[[History], History]:
    return lambda before: sorted([*before, *calls])


def instead(old: Call, **new: Any) -> Callable[[History], History]:
    return lambda before: [each._replace(**new) if each == old else each for each in before]


FALSE: dict[str, tuple[Callable[[History], History], str]] = {
    "an acknowledged question is not shown": (also(status(6, (TWO, "PENDING", None))), "question one went back"),
    "a question that was seen is not shown": (
        lambda before: also(status(6, (TWO, "PENDING", None)))(instead(ASK, outcome=UNKNOWN, end=inf)(before)),
        "question one went back",
    ),
    "a pending question is not listed": (
        also(Call("x", "pending", {}, 6, 7, OK, [(RUN, TWO)])),
        "nothing had happened",
    ),
    "an answered question is listed": (also(Call("x", "pending", {}, 12, 13, OK, [(RUN, ONE)])), "went back"),
    "an answer changes": (also(check(42, ONE, "RETRIEVED", "No.")), "several answers"),
    "an answer is not there yet": (also(check(12, ONE, "PENDING")), "question one went back"),
    "an answer that was picked up is unread": (also(check(24, ONE, "ANSWERED", "Yes.", True)), "went back from 2 to 1"),
    "an answer is new to two": (also(check(20, ONE, "ANSWERED", "Yes.")), "new to several"),
    "an answer that nobody gave": (also(check(5, ONE, "ANSWERED", "Yes.")), "nobody had answered"),
    "an answer before it was picked up": (also(check(12, ONE, "RETRIEVED", "Yes.", True)), "nobody had picked up"),
    "two have answered": (instead(LATE_REPLY, outcome=OK, result=[ONE]), "answered by several"),
    "a refused answer is kept": (instead(REPLY, outcome=REFUSED, result="not_pending"), "nobody had answered"),
    "a question without a limit expires": (also(check(6, ONE, "EXPIRED")), "nothing had happened"),
    "an expired question is answered": (
        also(call(42, "reply", [TWO], answer="Late.", message=TWO), check(44, TWO, "ANSWERED", "Late.", True)),
        "expired, and was answered",
    ),
    "a note is lost": (also(status(41, (ONE, "RETRIEVED", "Yes."), summary="Nearly.")), "is not there any more"),
    "a note is left by nobody": (also(status(19, (ONE, "ANSWERED", "Yes."), notes=["Boo."])), "nobody had left"),
    "a summary goes back": (
        also(status(90, *LAST.result["messages"], phase="success", summary="Nearly.")),
        "a summary was lost",
    ),
    "a summary is lost": (also(status(44, *TRUE[11].result["messages"], notes=["Half done."])), "a summary was lost"),
    "a run goes on": (also(status(90, *LAST.result["messages"], summary="Done.")), "run run went back"),
    "a run ends in two ways": (
        also(call(90, "submit", "error", word="error", text="Failed.")),
        "ended in two ways",
    ),
    "an ended run takes a question": (instead(LATE_ASK, outcome=OK, result="three"), "run run went back"),
    "a call breaks": (instead(TELL, outcome="broken: KeyError()"), "it broke"),
}


def test_a_true_history_has_no_fault() -> None:
    assert faults(TRUE) == ""


@pytest.mark.parametrize("name", FALSE)
def test_a_false_history_is_known_for_one(name: str) -> None:
    falsify, fault = FALSE[name]
    assert fault in faults(falsify(TRUE))


@pytest.mark.parametrize(
    ("falsify", "fault"),
    [
        (lambda lines: lines[:4] + lines[5:], "without a gap"),
        (lambda lines: [each for each in lines if each.get("text") != "Half done."], "is not there: p20"),
        (
            lambda lines: [*lines, {"seq": 11, "type": "replied", "answer": "No.", "messageId": ONE}],
            "nobody did, or it was refused",
        ),
        (lambda lines: [*lines, {"seq": 11, "type": "told", "text": "Boo."}], "nobody did, or it was refused"),
        (lambda lines: [*lines, {"seq": 11, "type": "told", "text": "Half done."}], "behind the end"),
        (lambda lines: [*lines[:7], {**lines[6], "seq": 8}], "it is there 2 times"),
        (lambda lines: [*lines[:1], {**lines[2], "seq": 2}, {**lines[1], "seq": 3}, *lines[3:]], "went back"),
    ],
    ids=["a gap", "lost", "refused", "nobody", "late", "twice", "order"],
)
def test_a_journal_that_does_not_fit_the_calls_is_known_for_one(
    falsify: Callable[[list[Record]], list[Record]], fault: str
) -> None:
    assert fault in faults(TRUE, falsify(JOURNAL))


def test_what_a_killed_process_had_begun_may_be_there_or_not_but_not_both_in_turn() -> None:
    without = [line for line in JOURNAL if line.get("text") != "Last words."]
    counted = [{**line, "seq": place} for place, line in enumerate(without, 1)]
    unseen = [_forgetting(each) for each in TRUE]
    assert faults(unseen, counted) == ""
    assert "is not in the journal" in faults(TRUE, counted)
    # Seen by the first look, and then gone: with the journal of those who have seen it, and without.
    gone = [*TRUE[:-1], _forgetting(TRUE[-1])]
    assert "is not there any more" in faults(gone)


def _forgetting(each: Call) -> Call:
    """The same look without the killed one's note."""
    return each._replace(result={**each.result, "notes": each.result["notes"][:1]}) if each.verb == "status" else each


def test_a_diary_that_was_torn_ends_with_a_call_of_unknown_outcome(tmp_path: Path) -> None:
    diary = Diary(tmp_path)
    assert diary.call("tell", {"text": "a"}, lambda: "done") == "done"
    diary.call("tell", {"text": "b"}, lambda: None)
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for size in range(last, len(whole)):
        file.write_bytes(whole[:size])
        first, second = history.read(tmp_path)
        assert (first.outcome, first.result, second.outcome, second.end) == (OK, "done", UNKNOWN, inf)
    file.write_bytes(whole)
    assert [each.outcome for each in history.read(tmp_path)] == [OK, OK]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_several_processes_were_told_at_once_can_be_true(tmp_path: Path) -> None:
    played = play(tmp_path / "runs", tmp_path / "diaries", seconds=1.2, writers=3, readers=1, seed=1)
    assert checker.faults(played.calls, played.journals) == []
    assert {OK, REFUSED} <= {each.outcome for each in played.calls}
    assert played.kills > 0

"""Outcome and process end are two facts, and an attempt that has ended stays as it was."""

from itertools import pairwise

import pytest
from hypothesis import given

from subagent_cli.core.command import Ask, Command, Exit, Report, Resume, Stop, Submit
from subagent_cli.core.errors import InvalidInput, Refused
from subagent_cli.core.event import Created, Exited, Stopped
from subagent_cli.core.evolution import fold
from subagent_cli.core.projection import project
from subagent_cli.core.run import CREATED, ERROR, RUNNING, SUCCESS, Run
from subagent_cli.core.transition import KINDS, RETRYABLE, decide, lost
from tests.core.lives import RUN, START, begun, do, kept_lives, later

CANCEL = Stop("cancelled", "Cancelled", 5000)
AGAIN = Resume("worker --again", "go on", "new hash", "session-2")


def kept() -> Run:
    return begun(kept=True)


@pytest.mark.case("C2-14")
def test_a_submitted_result_is_the_outcome_at_once_while_the_process_lives() -> None:
    run = do(kept(), Submit("result", "12 notes", artifacts=("notes.md",), tools=("Bash",)))
    assert (run.phase, run.text, run.artifacts, run.tools) == (SUCCESS, "12 notes", ("notes.md",), ("Bash",))
    assert (run.alive, run.over, run.active) == (True, False, True)
    run = do(run, Exit(1, 0, output="noise"), now=later(10))
    assert (run.text, run.exit_code, run.alive, run.over, run.active) == ("12 notes", 0, False, True, False)


@pytest.mark.case("C2-15", "C2-23")
@pytest.mark.parametrize("kind", [None, *KINDS])
def test_a_submitted_error_has_a_kind_from_the_list(kind: str | None) -> None:
    run = do(kept(), Submit("error", "no disk", kind))
    assert (run.phase, run.kind, run.text) == (ERROR, kind or "sub_agent_error", "no disk")


@pytest.mark.case("C2-23")
def test_another_kind_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        decide(kept(), Submit("error", "no disk", "bad_luck"), START)
    assert (caught.value.code, caught.value.candidates) == ("unknown_kind", KINDS)
    assert set(RETRYABLE) < set(KINDS)


@pytest.mark.case("C2-35", "X22")
def test_the_first_outcome_stays_and_the_same_again_is_no_harm() -> None:
    first = Submit("result", "12 notes")
    run = do(kept(), first)
    assert decide(run, first, START) == ()
    for other in (
        Submit("result", "13 notes"),
        Submit("error", "12 notes"),
        Submit("result", "12 notes", tools=("x",)),
    ):
        with pytest.raises(Refused) as caught:
            decide(run, other, START)
        assert caught.value.code == "run_finished"


def test_a_result_has_no_kind_whatever_is_said_with_it() -> None:
    assert do(kept(), Submit("result", "12 notes", "network")).kind is None


def test_what_was_only_reported_was_not_submitted() -> None:
    run = do(kept(), Report(SUCCESS, "12 notes"))
    with pytest.raises(Refused):
        decide(run, Submit("result", "12 notes"), START)


@pytest.mark.case("C2-14")
@pytest.mark.parametrize("word", ["result", "error"])
def test_an_empty_outcome_is_none(word: str) -> None:
    with pytest.raises(InvalidInput):
        decide(kept(), Submit(word, ""), START)


@pytest.mark.case("C2-39", "C2-47", "X8", "X18")
@pytest.mark.parametrize(("kind", "text"), [("cancelled", "Cancelled"), ("timed_out", "Sub-agent timed out")])
@pytest.mark.parametrize("phase", [CREATED, RUNNING])
def test_a_run_that_is_stopped_is_an_error_whose_kind_heads_the_summary(phase: str, kind: str, text: str) -> None:
    run = do(begun(phase, kept=True), Stop(kind, text, 5000))
    assert (run.status, run.state, run.kind, run.text) == ("error", kind, kind, text)
    assert project(run)["summary"] == f"[{kind}] {text}"
    assert (run.alive, run.stop) == (True, 5000)


@pytest.mark.case("C2-36", "C2-40")
def test_stopping_a_run_with_an_outcome_stops_its_process_and_leaves_the_outcome() -> None:
    run = do(kept(), Submit("result", "12 notes"))
    stopped = do(run, CANCEL)
    assert (stopped.state, stopped.text, stopped.stop) == (SUCCESS, "12 notes", 5000)
    assert decide(do(stopped, Exit(1, 143)), CANCEL, START) == ()


@pytest.mark.case("C2-45")
def test_cancelling_twice_is_once_unless_the_second_is_in_more_of_a_hurry() -> None:
    run = do(kept(), CANCEL)
    assert decide(run, CANCEL, START) == ()
    assert decide(run, CANCEL._replace(grace=9000), START) == ()
    hurried = do(run, CANCEL._replace(grace=0, text="Now!"))
    assert (hurried.stop, hurried.text) == (0, "Cancelled")


def test_a_process_that_is_known_to_be_gone_is_written_down_however_long_it_was_given() -> None:
    run = do(kept(), CANCEL)
    assert (run.alive, do(run, CANCEL._replace(gone=True)).alive) == (True, False)
    [stopped] = decide(kept(), CANCEL, START)
    assert isinstance(stopped, Stopped)
    assert stopped.gone is None


def test_a_time_limit_has_nothing_to_say_to_a_run_with_an_outcome() -> None:
    run = do(kept(), Submit("result", "12 notes"))
    assert decide(run, Stop("timed_out", "Sub-agent timed out", 0), START) == ()


@pytest.mark.case("C2-36")
@pytest.mark.parametrize("status", ["success", "error", "completed"])
def test_an_ended_run_that_nobody_keeps_is_not_cancelled(status: str) -> None:
    assert decide(do(begun(), Report(status)), CANCEL, START) == ()


@pytest.mark.case("C2-41")
def test_cancelling_a_run_without_a_runtime_makes_up_its_failure() -> None:
    run = do(kept(), CANCEL._replace(gone=True))
    assert (run.text, run.kind, run.over) == ("Sub-agent runtime not found", "cancelled", True)


@pytest.mark.case("C2-51")
def test_a_result_after_the_time_limit_is_too_late() -> None:
    run = do(kept(), Stop("timed_out", "Sub-agent timed out", 0))
    with pytest.raises(Refused):
        decide(run, Submit("result", "12 notes"), START)


@pytest.mark.case("X11")
def test_a_keeper_that_is_gone_makes_a_lost_run_and_only_of_one_that_had_a_keeper() -> None:
    assert lost(begun(), START) == ()
    run = fold(kept(), lost(kept(), START))
    assert (run.state, run.kind, run.status, run.over) == ("lost", "lost", "error", True)
    assert lost(run, START) == ()


@pytest.mark.case("X11")
def test_a_keeper_that_is_gone_changes_no_outcome() -> None:
    run = do(kept(), Submit("result", "12 notes"))
    run = fold(run, lost(run, START))
    assert (run.state, run.text, run.over) == (SUCCESS, "12 notes", True)


@pytest.mark.case("C1-47", "C2-17")
def test_ending_well_without_a_word_is_a_success_with_the_last_output_and_no_summary() -> None:
    run = do(kept(), Exit(1, 0, output="All done."))
    assert (run.phase, run.text, run.exit_code) == (SUCCESS, "All done.", 0)
    assert project(run)["summary"] is None


def test_a_summary_that_was_reported_is_the_outcome_rather_than_the_output() -> None:
    run = do(kept(), Report("running", "nearly"), Exit(1, 0, output="noise"))
    assert (run.phase, run.text) == (SUCCESS, "nearly")


@pytest.mark.case("C1-48")
def test_ending_badly_without_a_word_is_an_error_with_the_end_of_the_log() -> None:
    run = do(kept(), Exit(1, 3, "last lines", "Process exited with code 3"))
    assert (run.phase, run.kind, run.summary, run.exit_code) == (ERROR, "sub_agent_error", "last lines", 3)
    assert run.text == "Process exited with code 3"


@pytest.mark.case("C1-49", "X16")
@pytest.mark.parametrize("status", ["success", "error", "completed"])
@pytest.mark.parametrize("code", [0, 3])
def test_what_the_worker_reported_stands_above_its_exit_code(status: str, code: int) -> None:
    run = do(kept(), Report(status, "my word"), Exit(1, code, "log"))
    assert (run.phase, run.summary, run.exit_code) == (status, "my word", code)


def test_an_exit_of_another_attempt_or_a_second_one_says_nothing() -> None:
    run = do(kept(), Exit(1, 0))
    assert decide(run, Exit(1, 3), START) == ()
    assert decide(kept(), Exit(2, 0), START) == ()


@pytest.mark.case("X10", "C3-06")
def test_a_new_attempt_is_running_and_the_old_outcome_stays() -> None:
    ended = do(kept(), Submit("error", "no disk", "network"), Exit(1, 1))
    run = do(ended, AGAIN, now=later(1000))
    assert (run.phase, run.attempt, run.exit_code, run.ended_at, run.text, run.kind) == (
        RUNNING,
        2,
        None,
        None,
        None,
        None,
    )
    assert (run.session, run.token_hash, run.command, run.submitted) == (
        "session-2",
        "new hash",
        "worker --again",
        False,
    )
    [first] = run.attempts
    assert (first.number, first.state, first.kind, first.outcome, first.exit_code) == (
        1,
        "error",
        "network",
        "no disk",
        1,
    )
    assert do(run, Submit("result", "done"), Exit(2, 0)).attempts == run.attempts


@pytest.mark.parametrize(
    "end",
    [
        (Submit("result", "12 notes", artifacts=("notes.md",), tools=("Bash",)), Exit(1, 0)),
        (CANCEL, Exit(1, 143)),
        (CANCEL._replace(gone=True),),
        (Report(SUCCESS, "12 notes"), Exit(1, 0)),
    ],
)
def test_nothing_of_the_attempt_before_is_that_of_the_next(end: tuple[Command, ...]) -> None:
    own = ("exit_code", "ended_at", "summary", "kind", "outcome", "artifacts", "tools", "gone", "stop", "submitted")
    ended, again = do(kept(), *end), do(do(kept(), *end), AGAIN, now=later(1000))
    fresh = Run(RUN)
    assert {field: getattr(again, field) for field in own} == {field: getattr(fresh, field) for field in own}
    assert any(getattr(ended, field) != getattr(fresh, field) for field in own)


@pytest.mark.case("C3-03")
def test_the_time_of_the_last_activity_moves_when_an_attempt_starts_and_when_it_stops() -> None:
    run = kept()
    assert run.active_at == START.iso
    run = do(run, Ask("m1", "Which?"), now=later(10))
    assert run.active_at == START.iso
    run = do(run, Exit(1, 0), now=later(20))
    assert run.active_at == later(20).iso
    assert do(run, AGAIN, now=later(30)).active_at == later(30).iso


def test_a_run_that_has_lost_its_keeper_is_settled_by_the_next_attempt() -> None:
    events = decide(kept(), AGAIN, START)
    run = fold(kept(), events)
    assert isinstance(events[0], Stopped)
    assert (run.attempt, run.attempts[0].state) == (2, "lost")


def test_only_what_was_launched_can_be_launched_again() -> None:
    with pytest.raises(Refused) as caught:
        decide(do(begun(), Report("success")), AGAIN, START)
    assert caught.value.code == "not_launched"


def test_a_key_starts_one_attempt() -> None:
    run = do(do(kept(), Exit(1, 0)), AGAIN._replace(key="k"))
    assert decide(run, AGAIN._replace(key="k"), START) == ()
    with pytest.raises(Refused) as caught:
        decide(run, AGAIN._replace(key="k", text="something else"), START)
    assert caught.value.code == "key_reused"


@pytest.mark.case("C2-35", "X10")
@given(kept_lives)
def test_whatever_is_tried_an_ended_attempt_keeps_its_outcome(life: list[Run]) -> None:
    for before, after in pairwise(life):
        assert after.attempts[: len(before.attempts)] == before.attempts
        if before.finished and after.attempt == before.attempt:
            assert (after.finished, after.kind) == (True, before.kind)
        if before.exit_code is not None and after.attempt == before.attempt:
            assert after.exit_code == before.exit_code
        if after.attempt > before.attempt:
            assert after.attempts[-1].number == before.attempt


def test_what_was_put_out_last_is_not_written_down_beside_an_outcome() -> None:
    for run, output in ((kept(), "noise"), (do(kept(), Submit("result", "12 notes")), None)):
        [exited] = decide(run, Exit(1, 0, output="noise"), START)
        assert isinstance(exited, Exited)
        assert exited.output == output


def test_a_run_that_ended_well_has_no_kind_of_failure() -> None:
    assert do(kept(), Exit(1, 0)).kind is None


def test_the_tools_that_the_worker_named_stand_above_those_that_were_seen() -> None:
    seen = Exit(1, 0, tools=("Bash",))
    assert do(kept(), seen).tools == ("Bash",)
    assert do(kept(), Submit("result", "12 notes", tools=("Read",)), seen).tools == ("Read",)


def test_an_attempt_without_a_key_leaves_none_behind() -> None:
    run = do(do(kept(), Exit(1, 0)), AGAIN._replace(key="None"), Exit(2, 0), AGAIN)
    assert (run.attempt, list(run.keys)) == (3, ["resume None"])


def test_a_run_begins_its_first_attempt_when_it_is_made() -> None:
    run = fold(Run(RUN), [Created(START, RUN, "worker", "worker --go", RUNNING, True, "session-1")])
    assert (run.attempt, run.session, run.kept) == (1, "session-1", True)
    assert (run.started_at, run.launched_at, run.active_at) == (START.iso, START.iso, START.iso)


def test_a_foreign_exit_code_is_no_keepers_word() -> None:
    run = fold(begun(), [Exited(START, 0, START.iso)])
    assert (run.alive, run.over) == (None, True)

"""What a run says of itself follows from what it holds: its word, its exact state, whether it is over."""

import pytest

from subagent_cli.core.command import Acknowledge, Exit, Reply, Report, Stop, Submit
from subagent_cli.core.projection import project
from subagent_cli.core.run import ERROR, RUNNING, SUCCESS, WAITING, Run
from tests.core.lives import RUN, asked, begun, do

CANCEL = Stop("cancelled", "Cancelled", 5000)


def test_what_another_program_says_of_waiting_counts_while_there_is_no_question() -> None:
    assert begun()._replace(claim=WAITING).status == WAITING
    closed = do(asked("m1"), Reply("yes", "m1"), Acknowledge("m1"))
    assert closed._replace(claim=WAITING).status == RUNNING
    assert do(begun(), Report(SUCCESS))._replace(claim=WAITING).status == SUCCESS


@pytest.mark.parametrize("kind", ["cancelled", "timed_out", "lost"])
def test_only_an_error_has_a_kind_for_its_state(kind: str) -> None:
    assert Run(RUN, ERROR, kind=kind).state == kind
    assert Run(RUN, RUNNING, kind=kind).state == RUNNING
    assert Run(RUN, ERROR, kind="network").state == ERROR


def test_a_run_is_over_when_its_outcome_is_decided_and_its_process_has_ended() -> None:
    going = begun(kept=True)
    assert (begun().over, going.over, do(going, Submit("result", "done")).over) == (False, False, False)
    assert do(going, Submit("result", "done"), Exit(1, 0)).over
    assert do(begun(), Report(SUCCESS)).over


def test_a_run_is_stopping_from_when_somebody_wants_it_to_until_it_is_over() -> None:
    going = begun(kept=True)
    assert not going.stopping
    assert not do(going, Submit("result", "done")).stopping
    assert not do(going, Stop("timed_out", "Sub-agent timed out", 5000)).stopping
    assert do(going, CANCEL).stopping
    assert do(going, Submit("result", "done"), CANCEL).stopping
    assert not do(going, CANCEL, Exit(1, 143)).stopping


def test_a_run_that_is_over_is_active_while_a_question_waits() -> None:
    over = do(asked("m1"), Report(SUCCESS))
    assert (over.over, over.active) == (True, True)
    assert not do(over, Reply("yes", "m1")).active


def test_messages_that_the_caller_has_already_stand_in_the_picture_as_they_are() -> None:
    assert project(asked("m1"), ["as written"])["messages"] == ["as written"]
    assert "messages" not in project(begun(), ["as written"])

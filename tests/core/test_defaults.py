"""What is left out is nothing: no value begins with more than it was given."""

from typing import Any, get_args

import pytest

from subagent_cli.core.command import ALL, LATEST, OLDEST, ONLY, Command, Reply
from subagent_cli.core.delivery import Delivery
from subagent_cli.core.event import Event
from subagent_cli.core.grant import CAPABILITIES, OPERATOR, Grant
from subagent_cli.core.moment import Moment
from subagent_cli.core.question import PENDING, Question
from subagent_cli.core.run import CREATED, Run
from subagent_cli.core.transition import (
    CANCELLED,
    CANCELLED_TEXT,
    FAILURE,
    KINDS,
    LOST,
    LOST_TEXT,
    RESULT,
    RETRYABLE,
    TIMED_OUT,
    TIMED_OUT_TEXT,
)
from tests.core.lives import RUN, START, later

VALUES: tuple[Any, ...] = (*get_args(Event), *get_args(Command), Run, Question, Grant, Delivery, Moment)
# The few that begin somewhere.
BEGIN: dict[tuple[Any, str], object] = {
    (Reply, "which"): ONLY,
    (Run, "phase"): CREATED,
    (Run, "attempt"): 1,
    (Question, "state"): PENDING,
    (Moment, "boot"): "",
    (Moment, "up"): 0,
    (Delivery, "told"): 0,
}


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_left_out_is_nothing(kind: Any) -> None:
    for field, value in kind._field_defaults.items():
        if (kind, field) in BEGIN:
            assert value == BEGIN[kind, field], field
        else:
            assert value is None or value is False or value == () or value == {}, field


def test_only_the_first_thing_of_a_run_has_to_be_said() -> None:
    assert set(Run._fields) - set(Run._field_defaults) == {"id"}
    assert Run(RUN).attempts == ()


def test_a_grant_without_an_end_holds_for_ever() -> None:
    assert Grant("a", "b", "read_transcript", START).holds(later(10**15))


def test_the_words_that_callers_type_and_read_are_these() -> None:
    assert (ONLY, OLDEST, LATEST, ALL) == ("only", "oldest", "latest", "all")
    assert CAPABILITIES == ("read_transcript", "send_messages", "administer_grants")
    assert OPERATOR == "operator"
    assert (RESULT, FAILURE) == ("result", "error")
    assert KINDS == (
        "auth",
        "rate_limit",
        "network",
        "invalid_request",
        "server_error",
        "timed_out",
        "cancelled",
        "sub_agent_error",
        "context_exhausted",
        "content_filter",
    )
    assert RETRYABLE == ("network", "rate_limit", "server_error", "timed_out")
    assert (CANCELLED, TIMED_OUT, LOST) == ("cancelled", "timed_out", "lost")
    assert (CANCELLED_TEXT, TIMED_OUT_TEXT) == ("Cancelled", "Sub-agent timed out")
    assert LOST_TEXT == "The keeper of the run ended without a word: it was killed, or the machine went down"

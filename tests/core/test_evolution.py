"""Events add up to one run, whether taken one by one or all at once, and what comes too late leaves no trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.command import Reply, Report
from subagent_cli.core.event import (
    Acknowledged,
    Asked,
    Created,
    Event,
    Exited,
    Expired,
    Observed,
    Replied,
    Reported,
    Resumed,
    Stopped,
    Submitted,
    Told,
)
from subagent_cli.core.evolution import NOTES_KEPT, evolve, fold
from subagent_cli.core.question import ANSWERED, PENDING
from subagent_cli.core.run import CREATED, FINISHED, RUNNING, SUCCESS, Run
from tests.core.lives import RUN, START, answers, asked, begun, do, later, message_ids, moments, stamps, texts

phases = st.sampled_from([CREATED, RUNNING])
perhaps = st.none() | texts
extras = st.dictionaries(st.sampled_from(["owner", "priority"]), st.integers(0, 2), max_size=2)
observed_keys = st.dictionaries(
    st.sampled_from(["runId", "agentName", "command", "startTime", "summary", "lastUpdated", "endTime", "owner"]),
    texts,
    max_size=3,
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Created, moments, st.just(RUN), texts, texts, phases),
    st.builds(Observed, moments, observed_keys, st.dictionaries(message_ids, extras, max_size=2), extras),
    st.builds(
        Asked,
        moments,
        message_ids,
        texts,
        stamps,
        st.sampled_from([(), ("a", "b")]),
        st.none() | answers,
        st.none() | st.integers(0, 5000),
        perhaps,
        extras,
    ),
    st.builds(Told, moments, texts),
    st.builds(Replied, moments, message_ids, answers, stamps, st.none(), perhaps),
    st.builds(Acknowledged, moments, st.lists(message_ids, max_size=2).map(tuple)),
    st.builds(Expired, moments, message_ids, texts, stamps),
    st.builds(Reported, moments, st.sampled_from([RUNNING, *FINISHED]), st.none() | stamps, perhaps, perhaps, perhaps),
    st.builds(Exited, moments, st.sampled_from([0, 3]), stamps, perhaps),
)
histories = st.lists(events, max_size=15)

LATE: list[Event] = [
    Told(later(9), "one more thing"),
    Reported(later(9), RUNNING, later(9).iso, "still here"),
    Reported(later(9), "error", later(9).iso, "no, it failed", "sub_agent_error"),
]


@given(histories)
def test_all_at_once_is_one_by_one(history: list[Event]) -> None:
    run = Run(RUN)
    for event in history:
        run = evolve(run, event)
    assert fold(Run(RUN), history) == run


@given(histories, histories)
def test_it_does_not_matter_where_a_history_is_cut(first: list[Event], second: list[Event]) -> None:
    assert fold(fold(Run(RUN), first), second) == fold(Run(RUN), first + second)


@given(histories, histories)
def test_neither_the_run_nor_the_events_are_touched(first: list[Event], second: list[Event]) -> None:
    run = fold(Run(RUN), first)
    before = repr((run, second))
    fold(run, second)
    assert repr((run, second)) == before


@given(histories)
def test_a_run_remembers_when_it_last_changed(history: list[Event]) -> None:
    assert fold(Run(RUN), history).changed == (history[-1].at if history else None)


@pytest.mark.case("C2-35", "X22")
@pytest.mark.parametrize("event", LATE)
def test_an_event_that_comes_late_to_an_ended_run_leaves_its_outcome_alone(event: Event) -> None:
    run = do(begun(), Report(SUCCESS, "done"))
    after = evolve(run, event)
    assert (after.phase, after.summary, after.ended_at, after.updated_at, after.kind) == (
        SUCCESS,
        "done",
        START.iso,
        START.iso,
        None,
    )


@pytest.mark.case("X16")
def test_a_second_exit_is_not_an_exit() -> None:
    run = fold(begun(), [Exited(later(1), 3, later(1).iso, "first"), Exited(later(2), 0, later(2).iso, "second")])
    assert (run.phase, run.exit_code, run.ended_at, run.summary) == ("error", 3, later(1).iso, "first")


@pytest.mark.case("X16")
def test_the_words_of_the_worker_stand_above_those_that_come_with_the_exit() -> None:
    run = fold(do(begun(), Report(RUNNING, "")), [Exited(later(1), 3, later(1).iso, "the last lines")])
    assert run.summary == ""


@given(message_ids)
def test_what_happens_to_a_message_that_nobody_asked_makes_no_question(message_id: str) -> None:
    run = fold(
        begun(),
        [
            Replied(START, message_id, "yes", START.iso),
            Acknowledged(START, (message_id,)),
            Expired(START, message_id, "[expired] late", START.iso),
            Observed(START, messages={message_id: {"priority": 1}}),
        ],
    )
    assert not run.questions


def test_the_newest_notes_are_kept() -> None:
    run = fold(begun(), [Told(START, str(number)) for number in range(NOTES_KEPT + 3)])
    assert [note.text for note in run.notes] == [str(number) for number in range(3, NOTES_KEPT + 3)]
    assert NOTES_KEPT == 10


def test_a_question_of_ours_is_as_old_as_its_event() -> None:
    run = fold(begun(), [Asked(later(5), "m1", "Why?", later(5).iso)])
    assert run.questions["m1"].asked == later(5)


def test_a_question_of_others_is_as_old_as_its_stamp_says() -> None:
    run = fold(begun(), [Asked(later(5000), "m1", "Why?", later(2000).iso)])
    assert run.questions["m1"].asked == later(2000)


def test_the_first_end_time_stays() -> None:
    run = fold(begun(), [Reported(later(1), SUCCESS, None, ended_at=later(-7).iso), Exited(later(9), 0, later(9).iso)])
    assert run.ended_at == later(-7).iso


@pytest.mark.parametrize(("timestamp", "ended_at"), [(later(-7).iso, later(-7).iso), (None, later(1).iso)])
def test_a_run_ends_when_its_report_says_or_else_when_it_came(timestamp: str | None, ended_at: str) -> None:
    assert fold(begun(), [Reported(later(1), SUCCESS, timestamp)]).ended_at == ended_at


@pytest.mark.parametrize(("kind", "summary"), [(None, "12 notes"), ("network", "[network] 12 notes")])
def test_a_submitted_outcome_is_the_summary_too_headed_by_its_kind(kind: str | None, summary: str) -> None:
    word = "error" if kind else "result"
    run = fold(begun(), [Submitted(later(1), word, "12 notes", later(2).iso, kind)])
    assert (run.outcome, run.summary, run.ended_at, run.updated_at) == (
        "12 notes",
        summary,
        later(2).iso,
        later(2).iso,
    )


def test_a_process_that_is_gone_stays_gone_and_was_active_until_then() -> None:
    stopped = Stopped(later(1), "cancelled", "Cancelled", later(1).iso, 5000)
    run = evolve(begun(kept=True), stopped)
    assert (run.gone, run.stop, run.active_at) == (False, 5000, START.iso)
    run = evolve(run, Stopped(later(2), "lost", "gone", later(2).iso, gone=True))
    assert (run.gone, run.stop, run.active_at) == (True, 5000, later(2).iso)
    run = evolve(run, stopped._replace(timestamp=later(3).iso))
    assert (run.gone, run.active_at) == (True, later(2).iso)


def test_another_attempt_of_a_run_that_goes_on_is_none() -> None:
    again = Resumed(later(1), 2, "worker --again", "go on", "hash", limit=60.5)
    assert evolve(begun(kept=True), again)._replace(changed=None) == begun(kept=True)._replace(changed=None)


def test_another_attempt_has_its_own_beginning_and_its_own_limit() -> None:
    again = Resumed(later(5), 2, "worker --again", "go on", "hash", "session-2", limit=60.5)
    run = evolve(do(begun(kept=True), Report(SUCCESS)), again)
    assert (run.started_at, run.launched_at, run.active_at) == (START.iso, later(5).iso, later(5).iso)
    assert (run.limit, run.session, run.token_hash, run.command) == (60.5, "session-2", "hash", "worker --again")


def test_an_end_that_was_observed_is_the_end() -> None:
    assert evolve(begun(), Observed(START, {"endTime": "yesterday"})).ended_at == "yesterday"


@pytest.mark.case("X8")
def test_the_first_kind_of_a_failure_stays() -> None:
    cancelled = Reported(START, "error", START.iso, "[cancelled] by the parent", "cancelled")
    run = fold(begun(), [cancelled, Reported(later(5), "error", later(5).iso, None, "sub_agent_error")])
    assert (run.kind, run.state) == ("cancelled", "cancelled")


def test_a_key_stays_bound_to_every_message_that_was_answered_with_it() -> None:
    run = do(asked("m1", "m2"), Reply("yes", which="all", key="k"))
    assert run.keys == {"reply k": ("m1", "m2")}


def test_what_was_observed_is_laid_over_what_was_known() -> None:
    seen = Observed(START, {"agentName": "other", "owner": 1}, {"m1": {"priority": 2}}, {"status": 5})
    run = fold(asked("m1"), [seen, Observed(START, {"owner": 2}, {"m1": {"colour": "red"}}, {"exitCode": "x"})])
    assert (run.agent, run.extras, run.odd) == ("other", {"owner": 2}, {"status": 5, "exitCode": "x"})
    assert run.questions["m1"].extras == {"priority": 2, "colour": "red"}
    assert run.questions["m1"].state == PENDING


def test_an_earlier_run_is_not_changed_by_what_follows_from_it() -> None:
    before = asked("m1")
    after = do(before, Reply("yes", "m1"))
    assert (before.questions["m1"].state, after.questions["m1"].state) == (PENDING, ANSWERED)

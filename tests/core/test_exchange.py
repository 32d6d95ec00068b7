"""Giving, taking back and sending: who may, what becomes of the rows, and that a refusal changes nothing."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.command import Command, Deliver, Grant, Resume, Revoke
from subagent_cli.core.delivery import Delivery
from subagent_cli.core.errors import Denied, InvalidInput, SubagentError
from subagent_cli.core.event import Created, Delivered, Event, Granted, Resumed, Revoked, event, record
from subagent_cli.core.evolution import fold
from subagent_cli.core.exchange import not_granted
from subagent_cli.core.grant import ADMINISTER, ANSWER, CAPABILITIES, OPERATOR, READ, REPORT, SEND, STOP, WORK, held
from subagent_cli.core.moment import Moment
from subagent_cli.core.projection import project
from subagent_cli.core.run import CREATED, ERROR, RUNNING, SUCCESS, Run
from subagent_cli.core.transition import decide
from tests.core.lives import DAY, RUN, START, begun, do, later, moments

A, B, C, D = (f"0199c7d4-4c00-7000-8000-00000000000{letter}" for letter in "abcd")
NO_ADMINISTER = f"No permission to administer grants for agent {RUN}"
NO_SEND = f"No permission to send messages to agent {RUN}"


def born() -> Run:
    """A run as it is when A has just started it."""
    return fold(begun(), [Granted(START, A, A, capability) for capability in CAPABILITIES])


def given_to(agent: str, *capabilities: str, run: Run | None = None) -> Run:
    return do(run or born(), *(Grant(A, agent, capability) for capability in capabilities))


def holds(run: Run, agent: str, now: Moment = START) -> set[str]:
    return held(run.grants, agent, now)


def refused(run: Run, command: Command, now: Moment = START) -> SubagentError:
    before = repr(run)
    with pytest.raises(SubagentError) as caught:
        decide(run, command, now)
    assert repr(run) == before
    return caught.value


def message(by: str | None = A, message_id: str = "m1", text: str = "Message received") -> Deliver:
    return Deliver(by, message_id, text, "5a" * 32)


@pytest.mark.case("C3-12")
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("verb", [Grant, Revoke])
@pytest.mark.parametrize(
    "agent", [RUN, B, C, D, "", OPERATOR], ids=["itself", "reader", "sender", "stranger", "nobody", "a word"]
)
def test_who_does_not_administer_gives_nothing_and_takes_nothing(
    agent: str, verb: type[Grant] | type[Revoke], capability: str
) -> None:
    run = given_to(C, SEND, run=given_to(B, READ))
    error = refused(run, verb(agent, D, capability))
    assert isinstance(error, Denied)
    assert (error.message, error.code) == (NO_ADMINISTER, "not_granted")


@pytest.mark.case("C3-12")
def test_who_started_a_run_and_was_taken_the_right_to_administer_has_it_no_more() -> None:
    run = do(born(), Revoke(None, A, ADMINISTER, everything=True))
    assert holds(run, A) == {READ, SEND}
    assert refused(run, Grant(A, B, READ)).message == NO_ADMINISTER


@pytest.mark.case("C3-12", "C3-15")
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_who_administers_gives_any_capability_on(capability: str) -> None:
    run = given_to(B, ADMINISTER)
    [granted] = decide(run, Grant(B, C, capability), later(5))
    assert granted == Granted(later(5), B, C, capability)
    after = fold(run, [granted])
    assert holds(after, C) == {capability}
    assert holds(after, B) == {ADMINISTER}
    if capability == ADMINISTER:
        assert holds(do(after, Grant(C, D, ADMINISTER)), D) == {ADMINISTER}
    else:
        assert refused(after, Grant(C, D, capability)).message == NO_ADMINISTER


@pytest.mark.case("C3-15")
def test_what_was_given_on_stays_when_its_giver_may_give_no_more() -> None:
    run = do(given_to(B, ADMINISTER), Grant(B, C, SEND), Revoke(A, B, ADMINISTER))
    assert (holds(run, B), holds(run, C)) == (set(), {SEND})
    assert refused(run, Revoke(B, C, SEND)).message == NO_ADMINISTER


@pytest.mark.case("C3-12")
def test_a_right_to_administer_that_has_run_out_is_none() -> None:
    run = do(born(), Grant(A, B, ADMINISTER, 1000))
    assert len(decide(run, Grant(B, C, READ), later(1000))) == 1
    for command in (Grant(B, C, READ), Revoke(B, C, READ), Grant(B, B, ADMINISTER)):
        assert refused(run, command, later(1001)).message == NO_ADMINISTER


@pytest.mark.case("C3-09")
@pytest.mark.parametrize("verb", [Grant, Revoke])
@pytest.mark.parametrize("by", [None, A])
@pytest.mark.parametrize(
    "word", ["", "read", "READ_TRANSCRIPT", "know", "stop", "answer", "*", "read_transcript ", "x" * 9999]
)
def test_another_word_is_no_capability(word: str, by: str | None, verb: type[Grant] | type[Revoke]) -> None:
    error = refused(born(), verb(by, B, word))
    assert isinstance(error, InvalidInput)
    assert (error.code, error.candidates) == ("unknown_capability", CAPABILITIES)
    assert len(error.message) < 100


@pytest.mark.case("C3-13")
@pytest.mark.parametrize("by", [None, A])
def test_granting_twice_is_one_row_and_the_second_time_nothing_happens(by: str | None) -> None:
    run = do(begun() if by is None else born(), Grant(by, B, READ))
    rows = [key for key in run.grants if key[1] == B]
    assert rows == [(by or OPERATOR, B, READ)]
    assert decide(run, Grant(by, B, READ), later(10)) == ()


def test_what_ends_is_given_anew_and_the_last_word_counts() -> None:
    run = do(born(), Grant(A, B, READ, 1000))
    again = do(run, Grant(A, B, READ, 1000), now=later(900))
    assert len(again.grants) == len(run.grants)
    assert (holds(again, B, later(1900)), holds(again, B, later(1901))) == ({READ}, set())
    for when in (later(900), later(DAY)):
        assert holds(do(run, Grant(A, B, READ), now=when), B, later(100 * DAY)) == {READ}
    shortened = do(run, Grant(A, B, READ), Grant(A, B, READ, 50), now=later(1))
    assert (holds(shortened, B, later(51)), holds(shortened, B, later(52))) == ({READ}, set())


@pytest.mark.case("C3-14", "C3-18")
def test_the_same_from_two_givers_is_two_rows_and_access_falls_with_the_last() -> None:
    run = do(given_to(B, ADMINISTER), Grant(A, C, SEND), Grant(B, C, SEND), Grant(None, C, SEND))
    assert {key for key in run.grants if key[1] == C} == {(by, C, SEND) for by in (A, B, OPERATOR)}
    for by, left in ((B, {SEND}), (None, {SEND}), (A, set())):
        [revoked] = decide(run, Revoke(by, C, SEND), later(3))
        assert revoked == Revoked(later(3), by or OPERATOR, C, SEND)
        run = fold(run, [revoked])
        assert holds(run, C) == left


@pytest.mark.case("C3-18")
def test_one_takes_back_only_what_one_gave() -> None:
    run = given_to(B, ADMINISTER, READ)
    assert decide(run, Revoke(B, A, ADMINISTER), START) == ()
    assert decide(run, Revoke(B, B, READ), START) == ()
    assert decide(run, Revoke(None, A, SEND), START) == ()
    assert decide(run, Revoke(A, B, SEND), START) == ()
    assert holds(do(run, Revoke(A, B, READ)), B) == {ADMINISTER}


@pytest.mark.case("C3-18")
def test_one_may_take_from_oneself_even_the_right_to_administer() -> None:
    run = do(born(), Revoke(A, A, ADMINISTER))
    assert holds(run, A) == {READ, SEND}
    assert refused(run, Revoke(A, A, READ)).message == NO_ADMINISTER


@pytest.mark.case("C3-12", "C3-18")
def test_the_operator_gives_without_a_row_and_takes_what_anybody_gave() -> None:
    run = do(begun(), Grant(None, B, SEND))
    assert set(run.grants) == {(OPERATOR, B, SEND)}
    run = do(given_to(B, ADMINISTER), Grant(B, C, READ), Grant(A, C, READ), Grant(None, C, READ), Grant(A, C, SEND))
    events = decide(run, Revoke(None, C, READ, everything=True), START)
    assert {happening[1:] for happening in events} == {(by, C, READ) for by in (A, B, OPERATOR)}
    after = fold(run, events)
    assert (holds(after, C), holds(after, B), holds(after, A)) == ({SEND}, {ADMINISTER}, set(CAPABILITIES))
    assert decide(after, Revoke(None, C, READ, everything=True), START) == ()


@pytest.mark.case("C3-18")
def test_an_agent_cannot_take_what_others_gave_though_it_administers() -> None:
    error = refused(given_to(B, ADMINISTER), Revoke(B, A, SEND, everything=True))
    assert isinstance(error, Denied)
    assert (error.code, error.hint) == ("not_granted", "leave --all out")


@pytest.mark.case("C3-13", "C3-33")
@pytest.mark.parametrize("phase", [CREATED, RUNNING, SUCCESS, ERROR])
def test_what_agents_give_and_send_is_no_step_in_the_life_of_a_run(phase: str) -> None:
    before = fold(Run(RUN, phase), [Granted(START, A, A, capability) for capability in CAPABILITIES])
    run = do(before, Grant(A, B, SEND), message(B), Revoke(A, B, SEND), now=later(7))
    assert (run.phase, run.status, run.state) == (before.phase, before.status, before.state)
    assert project(run) == project(before)
    assert list(run.inbox) == ["m1"]


@pytest.mark.case("C3-33", "C3-16")
@pytest.mark.parametrize(
    "agent", [RUN, B, C, D, "", OPERATOR], ids=["itself", "reader", "administrator", "stranger", "nobody", "a word"]
)
def test_who_may_not_send_delivers_nothing(agent: str) -> None:
    run = given_to(C, ADMINISTER, run=given_to(B, READ))
    error = refused(run, message(agent))
    assert isinstance(error, Denied)
    assert (error.message, error.code) == (NO_SEND, "not_granted")


@pytest.mark.case("C3-33")
def test_a_right_to_send_that_has_run_out_or_was_taken_back_is_none() -> None:
    run = do(born(), Grant(A, B, SEND, 1000))
    assert len(decide(run, message(B), later(1000))) == 1
    assert refused(run, message(B), later(1001)).message == NO_SEND
    assert refused(do(run, Revoke(A, B, SEND)), message(B)).message == NO_SEND


@pytest.mark.case("C3-33", "C3-37")
def test_messages_stand_in_the_inbox_in_the_order_in_which_they_came() -> None:
    run = do(born(), message(A, "m2"), now=later(1))
    run = do(run, message(None, "m1", "From the operator")._replace(in_reply_to="m0"), now=later(2))
    assert list(run.inbox.values()) == [
        Delivery("m2", A, later(1).iso, "Message received", "5a" * 32),
        Delivery("m1", OPERATOR, later(2).iso, "From the operator", "5a" * 32, "m0"),
    ]


@pytest.mark.parametrize(
    "again",
    [
        message(),
        message(None),
        message(text="other"),
        message()._replace(sha256="00" * 32),
        message()._replace(notice=True),
    ],
)
def test_a_message_that_is_there_is_not_delivered_again_whoever_sends_it(again: Deliver) -> None:
    run = do(born(), message())
    assert decide(run, again, later(9)) == ()
    # Not even where it was written down all the same.
    second = Delivered(later(9), again.message_id, D, again.text, again.sha256, notice=again.notice or None)
    assert fold(run, [second]).inbox == run.inbox


def test_who_may_not_send_is_not_told_that_a_message_is_there() -> None:
    assert refused(do(born(), message()), message(D)).message == NO_SEND


@pytest.mark.case("C3-38")
def test_of_a_reply_to_its_own_message_an_agent_is_told_by_whoever_wrote_it() -> None:
    told = message(D, "m7", "Reply received")._replace(in_reply_to="m1", notice=True)
    with pytest.raises(Denied):
        do(born(), told)
    run = do(born(), told._replace(owed=True))
    assert run.inbox["m7"] == Delivery("m7", D, START.iso, "Reply received", "5a" * 32, "m1", notice=True)
    assert holds(run, D) == set()


def test_a_message_that_an_agent_was_only_told_of_can_still_be_sent_to_it_and_then_wants_a_reply() -> None:
    run = do(born(), message()._replace(notice=True), message(text="Message received again"))
    assert (run.inbox["m1"].notice, run.inbox["m1"].text) == (False, "Message received again")
    late = Delivered(START, "m1", A, "Message received late", "5a" * 32)
    assert fold(run, [late]).inbox == run.inbox


def test_an_agent_is_told_once_of_a_reply_and_an_ordinary_message_is_marked_as_nothing_else() -> None:
    told = message()._replace(notice=True)
    assert decide(do(born(), told), told, START) == ()
    [delivered] = decide(born(), message(), START)
    assert isinstance(delivered, Delivered)
    assert delivered.notice is None


def test_what_an_attempt_was_started_for_is_counted_message_by_message() -> None:
    ended = fold(begun(SUCCESS, kept=True), [Delivered(START, name, A, "text", "00") for name in ("m1", "m2")])
    assert [delivery.told for delivery in ended.inbox.values()] == [0, 0]
    again = [Resumed(START, 2, "x", "", "hash", told=("m1", "gone")), Resumed(START, 3, "x", "", "h", told=("m1",))]
    assert {name: delivery.told for name, delivery in fold(ended, again).inbox.items()} == {"m1": 2, "m2": 0}
    [*_, resumed] = decide(ended, Resume("x", "", "hash", told=("m2",)), START)
    assert fold(ended, [resumed]).inbox["m2"].told == 1


@pytest.mark.parametrize(("right", "grantable"), [(ADMINISTER, ADMINISTER), (SEND, SEND), (ANSWER, SEND)])
def test_a_refusal_says_what_it_takes(right: str, grantable: str) -> None:
    error = not_granted(right, RUN)
    assert error.code == "not_granted"
    assert error.hint is not None
    assert grantable in error.hint
    assert error.next == "subagent grants"


@pytest.mark.parametrize("right", [WORK, REPORT, STOP])
def test_a_refusal_of_what_nobody_can_give_promises_nothing(right: str) -> None:
    error = not_granted(right, RUN)
    assert (error.code, error.hint, error.next) == ("not_granted", None, None)


class Pass(NamedTuple):
    """Time goes by."""

    ms: int


Step = Grant | Revoke | Pass
AGENTS = (A, B, C, D, RUN)
someone = st.none() | st.sampled_from(AGENTS)
capabilities = st.sampled_from([*CAPABILITIES, ADMINISTER])
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.builds(Grant, someone, st.sampled_from(AGENTS), capabilities, st.none() | st.sampled_from([0, 500, 5000])),
        st.builds(Revoke, someone, st.sampled_from(AGENTS), capabilities, st.booleans()),
        st.builds(Pass, st.sampled_from([1, 499, 500, 4999])),
    ),
    max_size=25,
)


class Rows:
    """The model: a set of rows, each with the time at which it ends."""

    def __init__(self) -> None:
        self.now = 0
        self.ends: dict[tuple[str, str, str], float] = {(A, A, name): float("inf") for name in CAPABILITIES}

    def held(self, agent: str) -> set[str]:
        return {key[2] for key, end in self.ends.items() if key[1] == agent and self.now <= end}

    def may(self, step: Grant | Revoke) -> bool:
        if step.by is None:
            return True
        everything = isinstance(step, Revoke) and step.everything
        return ADMINISTER in self.held(step.by) and not everything

    def take(self, step: Grant | Revoke) -> None:
        if isinstance(step, Grant):
            end = float("inf") if step.lasts is None else self.now + step.lasts
            self.ends[step.by or OPERATOR, step.grantee, step.capability] = end
        else:
            for by, grantee, name in list(self.ends):
                if (grantee, name) == step[1:3] and (step.everything or by == (step.by or OPERATOR)):
                    del self.ends[by, grantee, name]


def through_the_journal(events: Sequence[Event]) -> list[Event]:
    return [event(json.loads(json.dumps(record(happening)))) for happening in events]


@pytest.mark.case("C3-12", "C3-13", "C3-14", "C3-15", "C3-18")
@given(steps)
def test_whoever_gives_and_takes_in_whatever_order_what_is_held_is_a_set_of_rows(life: list[Step]) -> None:
    model, run = Rows(), born()
    story: list[Event] = [Created(START, RUN, "worker", "worker --go", RUNNING)]
    story += [Granted(START, A, A, capability) for capability in CAPABILITIES]
    for step in life:
        now = later(model.now)
        if isinstance(step, Pass):
            model.now += step.ms
        elif model.may(step):
            events = decide(run, step, now)
            model.take(step)
            run = fold(run, events)
            story += events
        else:
            assert isinstance(refused(run, step, now), Denied)
        assert set(run.grants) == set(model.ends)
        for agent in AGENTS:
            assert holds(run, agent, later(model.now)) == model.held(agent)
    again = fold(Run(RUN), through_the_journal(story))
    assert again == run
    assert {agent: holds(again, agent, later(model.now)) for agent in AGENTS} == {
        agent: model.held(agent) for agent in AGENTS
    }


@given(moments, st.none() | st.integers(0, DAY), st.booleans(), st.none() | st.text(max_size=4))
def test_a_row_and_a_message_survive_the_journal_with_their_clock(
    at: Moment, lasts: int | None, notice: bool, in_reply_to: str | None
) -> None:
    events: list[Event] = [
        Granted(at, A, B, READ, lasts),
        Delivered(at, "m1", B, "text", "00", in_reply_to, notice or None),
        Granted(at, A, C, READ),
        Revoked(at, A, C, READ),
    ]
    run = fold(Run(RUN), through_the_journal(events))
    assert run == fold(Run(RUN), events)
    assert run.grants[A, B, READ].granted == at
    assert run.inbox["m1"].notice is notice

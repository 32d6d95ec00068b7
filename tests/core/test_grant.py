"""What a capability allows, for whom and for how long, in the words of the requirements and not of the code."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.grant import (
    ADMINISTER,
    ANSWER,
    CAPABILITIES,
    HEAR,
    KNOW,
    READ,
    REPORT,
    SEND,
    STOP,
    WORK,
    Grant,
    allowed,
    held,
)
from subagent_cli.core.moment import Moment
from tests.core.lives import DAY, RUN, START, later, moments

PARENT, FRIEND, STRANGER = "parent", "friend", "stranger"
YEAR = 365 * DAY
CALLERS = {"the worker itself": RUN, "who started it": PARENT, "somebody else": STRANGER}
SUBSETS = [set(some) for size in range(4) for some in combinations(CAPABILITIES, size)]

# Who has a right without being given anything, and by which capabilities it comes to anybody.
BY_BIRTH: dict[str, set[str]] = {
    READ: {RUN},
    SEND: set(),
    ADMINISTER: set(),
    KNOW: {RUN, PARENT},
    HEAR: {RUN, PARENT},
    ANSWER: {PARENT},
    WORK: {RUN},
    REPORT: {RUN, PARENT},
    STOP: {PARENT},
}
BY_GRANT: dict[str, set[str]] = {
    READ: {READ},
    SEND: {SEND},
    ADMINISTER: {ADMINISTER},
    KNOW: {READ, SEND, ADMINISTER},
    HEAR: {READ, SEND},
    ANSWER: {SEND},
    WORK: set(),
    REPORT: set(),
    STOP: set(),
}


def row(capability: str = READ, grantee: str = FRIEND, grantor: str = PARENT, lasts: int | None = None) -> Grant:
    return Grant(grantor, grantee, capability, START, lasts)


def rows(*grants: Grant) -> dict[tuple[str, str, str], Grant]:
    return {(grant.grantor, grant.grantee, grant.capability): grant for grant in grants}


@pytest.mark.case("C3-09")
def test_there_are_three_capabilities() -> None:
    assert CAPABILITIES == ("read_transcript", "send_messages", "administer_grants")


@pytest.mark.case("C3-16", "C3-11", "X15")
@pytest.mark.parametrize("capabilities", SUBSETS, ids=lambda some: " ".join(sorted(some)) or "nothing")
@pytest.mark.parametrize("caller", CALLERS)
def test_a_right_follows_from_what_one_was_given_and_from_what_one_is(caller: str, capabilities: set[str]) -> None:
    agent = CALLERS[caller]
    found = {right for right in BY_GRANT if allowed(right, agent, RUN, PARENT, capabilities)}
    expected = {right for right in BY_GRANT if agent in BY_BIRTH[right] or BY_GRANT[right] & capabilities}
    assert found == expected


@pytest.mark.case("C3-11")
@pytest.mark.parametrize("right", [READ, SEND, ADMINISTER, HEAR, ANSWER, REPORT, STOP, WORK, KNOW])
def test_who_was_started_has_no_right_on_who_started_it(right: str) -> None:
    grandparent = "grandparent"
    assert not allowed(right, RUN, PARENT, grandparent, set())
    assert not allowed(right, RUN, PARENT, None, set())


@pytest.mark.parametrize(
    ("caller", "capabilities"),
    list(product(CALLERS.values(), SUBSETS)),
    ids=lambda each: each if isinstance(each, str) else " ".join(sorted(each)) or "nothing",
)
def test_a_right_that_nobody_knows_is_nobodys(caller: str, capabilities: set[str]) -> None:
    assert not allowed("delete", caller, RUN, PARENT, capabilities)
    assert allowed("", caller, RUN, PARENT, capabilities) is False


@pytest.mark.parametrize("parent", [None, 7, "", ["parent"]])
def test_a_parent_that_is_not_named_is_nobody(parent: object) -> None:
    assert not any(allowed(right, STRANGER, RUN, parent, set()) for right in BY_GRANT)


@pytest.mark.case("C3-16")
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_who_was_given_one_capability_holds_that_one_and_nobody_else_does(capability: str) -> None:
    grants = rows(row(capability))
    assert held(grants, FRIEND, START) == {capability}
    for other in (RUN, PARENT, STRANGER, "", "operator"):
        assert held(grants, other, START) == set()


@pytest.mark.case("C3-14")
def test_a_capability_is_held_as_long_as_one_of_its_givers_has_not_taken_it_back() -> None:
    grants = rows(row(SEND, grantor="one"), row(SEND, grantor="two"))
    assert len(grants) == 2
    for grantor in ("one", "two"):
        left = {key: grant for key, grant in grants.items() if key[0] != grantor}
        assert held(left, FRIEND, START) == {SEND}
    assert held({}, FRIEND, START) == set()


@pytest.mark.case("C3-14")
def test_of_two_givers_the_longer_gift_counts() -> None:
    grants = rows(row(SEND, grantor="one", lasts=1000), row(SEND, grantor="two", lasts=5000))
    assert held(grants, FRIEND, later(5000)) == {SEND}
    assert held(grants, FRIEND, later(5001)) == set()


def test_without_a_time_a_grant_does_not_end() -> None:
    assert row().holds(later(100 * YEAR))
    assert row().holds(Moment(0, "boot-z", 0))


@pytest.mark.parametrize("lasts", [0, 1, 1000, DAY, YEAR])
def test_a_grant_holds_to_the_millisecond_that_was_said_and_no_longer(lasts: int) -> None:
    grant = row(lasts=lasts)
    assert grant.holds(START)
    assert grant.holds(later(lasts))
    assert not grant.holds(later(lasts + 1))


@pytest.mark.parametrize("jump", [-10 * YEAR, -YEAR, -1, 0, 1, YEAR, 10 * YEAR])
def test_within_a_boot_a_clock_that_is_set_neither_ends_a_grant_nor_keeps_it(jump: int) -> None:
    grant = row(lasts=1000)
    assert grant.holds(later(1000)._replace(ms=START.ms + jump))
    assert not grant.holds(later(1001)._replace(ms=START.ms + jump))


@pytest.mark.parametrize("boot", ["boot-b", ""])
def test_after_a_boot_the_wall_clock_counts_whatever_the_time_since_boot_says(boot: str) -> None:
    grant = row(lasts=1000)
    for up in (0, START.up, START.up + 10 * YEAR):
        assert grant.holds(Moment(START.ms + 1000, boot, up))
        assert not grant.holds(Moment(START.ms + 1001, boot, up))


@pytest.mark.parametrize("back", [1, DAY, 10 * YEAR])
def test_a_clock_that_was_set_back_over_a_boot_does_not_end_a_grant(back: int) -> None:
    for lasts in (0, 1, 1000):
        assert row(lasts=lasts).holds(Moment(START.ms - back, "boot-b", 5))


@given(moments, moments, st.integers(0, 10 * YEAR))
def test_who_is_given_more_time_never_holds_it_for_less(granted: Moment, now: Moment, lasts: int) -> None:
    grant = Grant(PARENT, FRIEND, READ, granted, lasts)
    assert grant.holds(granted)
    assert not grant.holds(now) or grant._replace(lasts=lasts + 1).holds(now)
    assert grant._replace(lasts=None).holds(now)


@given(
    st.lists(
        st.builds(
            row,
            st.sampled_from(CAPABILITIES),
            st.sampled_from([FRIEND, STRANGER]),
            st.sampled_from([PARENT, RUN, "operator"]),
            st.none() | st.integers(0, 2000),
        ),
        max_size=12,
    ),
    st.integers(0, 3000),
)
def test_what_is_held_is_what_some_row_gives_and_that_has_not_ended(given_: list[Grant], passed: int) -> None:
    grants = rows(*given_)
    for agent in (FRIEND, STRANGER, PARENT):
        expected = set()
        for (_, grantee, capability), grant in grants.items():
            if grantee == agent and (grant.lasts is None or passed <= grant.lasts):
                expected.add(capability)
        assert held(grants, agent, later(passed)) == expected

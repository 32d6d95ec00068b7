"""Times are written as JavaScript writes them, read in any spelling, and measured by a clock that nobody can set."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.moment import Moment, ago, duration, earlier, elapsed, iso, milliseconds, moment, spelled
from tests.core.lives import DAY, START, later, moments

YEARS = 10 * 365 * DAY
FIRST = -62_135_596_800_000  # 0001-01-01, the first day that has a date here
LAST = 253_402_300_799_999  # the last millisecond of the year 9999


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_760_000_000_007, "2025-10-09T08:53:20.007Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
    ],
)
def test_a_time_is_written_as_javascript_writes_it(ms: int, text: str) -> None:
    assert iso(ms) == text


@given(st.integers(FIRST, LAST))
def test_every_time_is_written_with_the_same_number_of_digits(ms: int) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", iso(ms))


@given(st.integers(FIRST, LAST))
def test_a_time_that_is_written_is_read_back(ms: int) -> None:
    assert milliseconds(iso(ms)) == ms


@pytest.mark.parametrize(
    "text",
    [
        "2025-10-09T08:53:20.007Z",
        "2025-10-09T08:53:20.007+00:00",
        "2025-10-09T10:53:20.007+02:00",
        "2025-10-09 08:53:20.007",
        "20251009T085320.007",
        "2025-10-09T08:53:20.007999Z",
    ],
)
def test_a_stamp_is_read_in_any_spelling(text: str) -> None:
    assert milliseconds(text) == 1_760_000_000_007


@pytest.mark.parametrize("ms", [FIRST, LAST])
def test_the_first_and_the_last_time_of_all_are_read_back_too(ms: int) -> None:
    assert milliseconds(iso(ms)) == ms


@pytest.mark.parametrize(("beyond", "edge"), [(FIRST - 1, FIRST), (LAST + 1, LAST)])
def test_a_time_beyond_them_is_written_as_the_edge(beyond: int, edge: int) -> None:
    assert iso(beyond) == iso(edge)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"])
def test_a_stamp_whose_zone_carries_it_beyond_them_names_no_time(text: str) -> None:
    assert milliseconds(text) is None


@pytest.mark.parametrize(
    "text", [None, "", "yesterday", "2025-13-01T00:00:00Z", "+275760-09-13T00:00:00.000Z", "\ud800"]
)
def test_a_stamp_that_names_no_time_is_none(text: str | None) -> None:
    assert milliseconds(text) is None


@given(st.text(st.characters()))
def test_no_text_can_break_the_reading_of_stamps(text: str) -> None:
    ms = milliseconds(text)
    assert ms is None or FIRST - DAY < ms < LAST + DAY


@given(moments)
def test_a_moment_comes_back_from_its_two_texts(at: Moment) -> None:
    assert moment(at.iso, at.clock) == at


@pytest.mark.parametrize("clock", ["", "boot-a", "boot-a+", "boot-a+soon", "+", "boot-a+-5"])
def test_a_moment_without_a_readable_boot_clock_keeps_its_wall_time(clock: str) -> None:
    assert moment(START.iso, clock) == Moment(START.ms)


def test_a_moment_of_an_unknown_boot_writes_no_boot_clock() -> None:
    assert Moment(START.ms, "", 5).clock == ""


@pytest.mark.parametrize("clock", ["", "boot-a+5"])
def test_a_moment_whose_stamp_says_nothing_is_the_first_of_1970(clock: str) -> None:
    assert moment("yesterday", clock).ms == 0


@pytest.mark.parametrize(("digits", "up"), [("9" * 20, 10**20 - 1), ("9" * 21, 0), ("9" * 5000, 0)])
def test_a_boot_clock_of_more_digits_than_any_clock_has_is_none(digits: str, up: int) -> None:
    assert moment(START.iso, f"boot-a+{digits}").up == up


@given(st.integers(0, YEARS), st.sampled_from([-YEARS, -1, 0, 1, YEARS]))
def test_within_one_boot_a_clock_that_jumps_changes_no_length(ms: int, jump: int) -> None:
    now = later(ms)
    assert elapsed(START, now._replace(ms=now.ms + jump)) == ms


@given(st.integers(0, YEARS))
def test_after_a_reboot_the_wall_clock_is_all_there_is(ms: int) -> None:
    assert elapsed(START, Moment(START.ms + ms, "boot-b", 3)) == ms


@given(moments, moments)
def test_no_length_is_negative(since: Moment, now: Moment) -> None:
    assert elapsed(since, now) >= 0


@pytest.mark.parametrize("since", [later(1), later(DAY), Moment(START.ms + 1, "boot-b", 3)])
def test_since_a_moment_that_is_yet_to_come_no_time_has_passed(since: Moment) -> None:
    assert elapsed(since, START) == 0


def test_moments_of_unknown_boots_are_measured_by_the_wall() -> None:
    assert elapsed(Moment(100, "", 50), Moment(400, "", 60)) == 300


def test_somebody_elses_stamp_is_put_on_the_clocks_of_the_moment_it_was_seen() -> None:
    assert earlier(later(-500).iso, START) == later(-500)


@pytest.mark.parametrize("stamp", [later(1).iso, START.iso, "yesterday", ""])
def test_a_stamp_from_the_future_or_from_nowhere_counts_from_when_it_was_seen(stamp: str) -> None:
    assert earlier(stamp, START) == START


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90", 90_000),
        ("90s", 90_000),
        ("250ms", 250),
        ("1ms", 1),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", DAY),
        ("1.5h", 5_400_000),
        ("0.25", 250),
        (" 5 M ", 300_000),
    ],
)
def test_a_length_of_time_is_read_as_people_write_it(text: str, ms: int) -> None:
    assert duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-5", "5 minutes", "m", "1.2.3", ".", "nan", "inf", "1e3", "9" * 400, "5m5m", "0.0001"]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        duration(text)
    assert refused.value.hint


def test_the_refusal_of_a_length_quotes_its_beginning_and_shows_how_to_write_one() -> None:
    with pytest.raises(InvalidInput) as refused:
        duration("a while " * 10)
    assert refused.value.message == f"not a length of time: {('a while ' * 10)[:40]!r}"
    assert refused.value.hint == "write 90, 90s, 5m, 2h or 1d"


@pytest.mark.parametrize(
    ("ms", "text"), [(1, "1ms"), (1500, "1500ms"), (90_000, "90s"), (60_000, "1m"), (5_400_000, "90m"), (2 * DAY, "2d")]
)
def test_a_length_is_spelled_in_the_largest_unit_that_loses_nothing(ms: int, text: str) -> None:
    assert spelled(ms) == text


@given(st.integers(1, YEARS))
def test_a_length_that_is_spelled_is_read_back(ms: int) -> None:
    assert duration(spelled(ms)) == ms


@given(st.text() | st.from_regex(r"[0-9.]{1,4} ?(ms|s|m|h|d)", fullmatch=True))
def test_a_length_of_time_is_positive_or_refused(text: str) -> None:
    try:
        length = duration(text)
    except InvalidInput:
        return
    assert length > 0


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (999, "0s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (3_599_999, "59m"),
        (3_600_000, "1h"),
        (DAY - 1, "23h"),
        (DAY, "1d"),
    ],
)
def test_an_age_is_shown_in_its_largest_whole_unit(ms: int, text: str) -> None:
    assert ago(ms) == text

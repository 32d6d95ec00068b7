"""Ids have the shape that the server accepts, sort by time, and are found by either end; nothing else passes."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.ids import (
    are_timed,
    are_uuids,
    canonical,
    digits,
    is_label,
    is_timed,
    is_uuid,
    names,
    short,
    uuid7,
)

ID = "0199c7d4-4c00-7abc-8def-0123456789ab"

times = st.integers(0, 2**48 - 1)
noises = st.binary(min_size=10, max_size=10)


@pytest.mark.case("X25", "T-41")
@given(times, noises)
def test_our_ids_are_version_seven_with_the_right_variant(ms: int, noise: bytes) -> None:
    made = uuid.UUID(uuid7(ms, noise))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert str(made) == uuid7(ms, noise)


@given(times, noises)
def test_an_id_carries_its_time_in_the_first_digits(ms: int, noise: bytes) -> None:
    assert int(uuid7(ms, noise).replace("-", "")[:12], 16) == ms


@given(times, noises)
def test_an_id_carries_all_noise_that_version_and_variant_leave_room_for(ms: int, noise: bytes) -> None:
    number = uuid.UUID(uuid7(ms, noise)).int
    kept = (1 << 80) - 1 & ~(0xF << 76) & ~(0x3 << 62)
    assert number & kept == int.from_bytes(noise, "big") & kept


@given(times, noises)
def test_more_noise_than_fits_changes_nothing(ms: int, noise: bytes) -> None:
    assert uuid7(ms, noise + b"more") == uuid7(ms, noise)


@given(times, times, noises, noises)
def test_ids_sort_by_time(first: int, second: int, noise: bytes, other: bytes) -> None:
    if first < second:
        assert uuid7(first, noise) < uuid7(second, other)


@pytest.mark.case("T-40")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("c232ab00-9414-11ec-b3c8-9f6bdeced846", id="version 1"),
        pytest.param("919108f7-52d1-4320-9bac-f847db4148a8", id="version 4"),
        pytest.param("1ec9414c-232a-6b00-b3c8-9f6bdeced846", id="version 6"),
        pytest.param("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", id="version 7"),
        pytest.param("2489e9ad-2ee2-8e00-8ec9-32d5f69181c0", id="version 8"),
        pytest.param("00000000-0000-0000-0000-000000000000", id="nil"),
        pytest.param("ffffffff-ffff-ffff-ffff-ffffffffffff", id="max"),
        pytest.param("919108F7-52D1-4320-9BAC-F847DB4148A8", id="upper case"),
        pytest.param("919108f7-52d1-4320-1bac-f847db4148a8", id="wrong variant"),
    ],
)
def test_every_uuid_that_the_server_takes_is_taken(text: str) -> None:
    assert is_uuid(text)


@pytest.mark.case("T-40")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "919108f752d143209bacf847db4148a8",
        "{919108f7-52d1-4320-9bac-f847db4148a8}",
        "urn:uuid:919108f7-52d1-4320-9bac-f847db4148a8",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "my-run",
        "../../../outside/secret",
        "919108f7-52d1-4320-9bac-f847db4148a",
        "919108f7-52d1-4320-9bac-f847db4148a8\n",
        "919108f7-52d1-4320-9bac-f847db4148a/",
        "919108f7-52d1-4320-9bac-f847db4148ag",
        "919108f7-52d1-4320-9bac-f847db4148aX",
        "-19108f7-52d1-4320-9bac-f847db4148a8",
        "919108f7-52d1-43209-bac-f847db4148a8",
        "919108f7/52d1/4320/9bac/f847db4148a8",
        "٠١٢٣٤٥٦٧-52d1-4320-9bac-f847db4148a8",
    ],
)
def test_nothing_else_is_an_id(text: str) -> None:
    assert not is_uuid(text)


@given(st.text())
def test_only_hexadecimal_digits_and_dashes_in_their_places_are_an_id(text: str) -> None:
    assert not is_uuid(text) or str(uuid.UUID(text)) == text.lower()


@pytest.mark.parametrize("typed", [ID, ID.upper(), ID.replace("-", ""), ID.replace("-", "").upper()])
def test_a_whole_id_has_one_form_in_which_it_is_compared(typed: str) -> None:
    assert canonical(typed) == ID


@pytest.mark.parametrize("word", ["my-run", "operator", "", ID[:-1], "456789ab", "0" * 31, "0" * 33])
def test_any_other_word_is_compared_as_it_is(word: str) -> None:
    assert canonical(word) == word


@pytest.mark.parametrize(
    ("text", "timed"),
    [
        (ID, True),
        (ID.upper(), True),
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", True),
        ("017f22e2-79b0-7cc3-b8c4-dc0c0c07398f", True),
        ("017f22e2-79b0-7cc3-78c4-8c0c0c07398f", False),
        ("017f22e2-79b0-6cc3-98c4-dc0c0c07398f", False),
        ("017f22e2-79b0-7cc3-X8c4-dc0c0c07398f", False),
        ("017f22e7-7971-4cc7-98c4-dc0c0c07398f", False),
        ("017f22e7-7971-4cc7-18c4-dc0c0c07398f", False),
    ],
)
def test_an_id_begins_with_a_clock_where_version_and_variant_say_so(text: str, timed: bool) -> None:
    assert is_timed(text) is timed


def test_people_see_the_last_eight_digits() -> None:
    assert short(ID) == "456789ab"


def test_what_is_not_an_id_is_shown_whole() -> None:
    assert short("message-of-another-program") == "message-of-another-program"


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("89ab", "89ab"),
        ("0199C7D4-4C", "0199c7d44c"),
        (ID, ID.replace("-", "")),
        (ID.upper(), ID.replace("-", "")),
    ],
)
def test_a_part_of_an_id_is_read_without_dashes_and_in_lower_case(typed: str, read: str) -> None:
    assert digits(typed) == read


@pytest.mark.parametrize("typed", ["", "abc", "----", "a-b-c", "wxyz", "@last", "0" * 33, "../ab", "٠١٢٣"])
def test_what_is_too_short_too_long_or_not_hexadecimal_is_no_part_of_an_id(typed: str) -> None:
    assert digits(typed) is None


@given(times, noises, st.integers(4, 32))
def test_an_id_is_named_by_its_beginning_and_by_its_end(ms: int, noise: bytes, length: int) -> None:
    made = uuid7(ms, noise)
    whole = made.replace("-", "")
    assert names(whole[:length], made)
    assert names(whole[-length:], made.upper())


def test_the_middle_of_an_id_does_not_name_it() -> None:
    assert not names("4c007abc", ID)


@pytest.mark.parametrize("text", ["a", "X1", "_", "_-.", "build-2", "v1.0_final", "größe", "名前", "x" * 128])
def test_a_label_is_letters_digits_dot_dash_and_underscore(text: str) -> None:
    assert is_label(text)


@pytest.mark.parametrize(
    "text", ["", ".", "..", ".hidden", "-option", "a/b", "a\\b", "a b", "a\n", "a\0", "\ud800", "x" * 129, "ä" * 65]
)
def test_a_label_cannot_hide_climb_or_pass_for_an_option(text: str) -> None:
    assert not is_label(text)


NEARLY = st.sampled_from(
    [
        "019a7b35-92fb-7377-b5c3-8848225a7457",
        "019A7B35-92FB-7377-B5C3-8848225A7457",
        "019a7b35-92fb-4377-b5c3-8848225a7457",
        "019a7b35-92fb-7377-75c3-8848225a7457",
        "019a7b35-92fb-7377-b5c3-8848225a745",
        "019a7b35-92fb-7377-b5c3-8848225a74577",
        "019a7b3-592fb-7377-b5c3-8848225a7457",
        "019a7b35-92fb-7377-b5c3-8848225a-457",
        "019a7b35-92fb-7377-b5c3-8848225a745g",
        "019a7b35-92fb-7377-b5c3-8848225a745é",
        "------------------------------------",
        "",
    ]
)


@given(st.lists(NEARLY | st.text(max_size=40), max_size=6))
def test_many_words_are_told_from_ids_as_each_of_them_is(words: list[str]) -> None:
    assert are_uuids(words) == all(map(is_uuid, words))
    uuids = list(filter(is_uuid, words))
    assert are_timed(uuids) == all(map(is_timed, uuids))


@pytest.mark.parametrize("words", [[], [ID], [ID, ID.upper()], [ID] * 40])
def test_ids_are_ids_together_too(words: list[str]) -> None:
    assert are_uuids(words)
    assert are_timed(words)


@pytest.mark.parametrize(
    "word",
    [
        ID[:-1],
        ID + "a",
        "",
        "\ud800" * 36,
        "é" + ID[1:],
        "g" + ID[1:],
        ID[:8] + "0" + ID[9:],
        ID[:23] + "0" + ID[24:],
        "-" + ID[1:],
        # As many dashes as an id has, one of them in another place.
        ID[:8] + ID[9] + "-" + ID[10:],
    ],
)
def test_one_word_that_is_no_id_spoils_the_whole(word: str) -> None:
    assert not are_uuids([ID, word, ID])
    assert not are_uuids([word])


def test_words_that_only_together_have_the_length_of_ids_are_none() -> None:
    assert not are_uuids([ID[:-1], ID[-1] + ID])


@pytest.mark.parametrize("variant", "89abAB")
def test_all_variants_that_have_a_clock_may_stand_together(variant: str) -> None:
    uuids = [f"{ID[:19]}{letter}{ID[20:]}" for letter in "89abAB"]
    assert are_timed(uuids)
    assert are_timed([ID, uuids["89abAB".index(variant)]])


@pytest.mark.parametrize("place", [14, 19])
@pytest.mark.parametrize("letter", "06X")
def test_one_id_without_a_clock_spoils_the_whole(place: int, letter: str) -> None:
    assert not are_timed([ID, f"{ID[:place]}{letter}{ID[place + 1 :]}", ID])

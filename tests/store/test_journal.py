"""The journal keeps what was committed and nothing else: all of a change or none of it, whatever a crash tears off."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core import event as happened
from subagent_cli.core.command import Settle
from subagent_cli.core.errors import Damaged
from subagent_cli.core.event import Event
from subagent_cli.core.moment import Moment
from subagent_cli.core.run import Run
from subagent_cli.services import questions, runs
from subagent_cli.store import journal
from tests.store.world import (
    START,
    FakeClock,
    document,
    everything,
    index_holds_at_least,
    journal_of,
    meta,
    new_run,
    open_at,
    shows_the_truth,
    truth,
)

RUN = "0190a000-0000-7000-8000-000000000001"
NOW = Moment(START, "b0071d00", 1_000_000)
ISO = NOW.iso


def sealed(record: dict[str, Any]) -> bytes:
    """A line as a release of ours would write it, by the format and not by the code."""
    body = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()[:-1]
    return body + b',"crc":"%08x"}\n' % crc32(body)


def batch(seq: int, events: Sequence[Event], picture: str = "0" * 16) -> bytes:
    return journal.lines(seq, [(event, None) for event in events], picture)


def three_replies(root: Path) -> tuple[str, bytes, bytes, bytes]:
    """A run whose last change took three lines: its id, the journal before, the last change, the picture before."""
    context = open_at(root)
    run_id = new_run(context)
    for text in ("One?", "Two?", "Drei – ü?"):
        questions.ask(context, text, run=run_id)
    before = journal_of(root, run_id).read_bytes()
    picture = meta(root, run_id).read_bytes()
    questions.reply(context, run_id, "Ja, natürlich.", which="all")
    return run_id, before, journal_of(root, run_id).read_bytes()[len(before) :], picture


def test_a_line_is_json_that_ends_in_the_checksum_of_the_rest(tmp_path: Path) -> None:
    _, before, last, _ = three_replies(tmp_path / "runs")
    lines = (before + last).splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        record = json.loads(line)
        assert record["seq"] == number
        assert list(record)[-1] == "crc"
        del record["crc"]
        assert sealed(record) == line
    assert last.count(b"\n") == 3
    assert [("meta" in json.loads(line)) for line in last.splitlines()] == [False, False, True]


def test_a_change_torn_at_any_byte_did_not_happen(tmp_path: Path) -> None:
    root = tmp_path / "foreign" / "runs"
    run_id, before, last, picture = three_replies(root)
    replied = truth(root, run_id)
    meta(root, run_id).write_bytes(picture)
    journal_of(root, run_id).write_bytes(before)
    waiting = truth(root, run_id)
    for cut in range(len(last)):
        journal_of(root, run_id).write_bytes(before + last[:cut])
        assert truth(root, run_id) == waiting, cut
    journal_of(root, run_id).write_bytes(before + last)
    assert truth(root, run_id) == replied
    assert len(replied.unread) == 3


def test_the_change_after_a_torn_one_is_whole_and_what_was_torn_is_kept(tmp_path: Path) -> None:
    path, quarantine = tmp_path / "journal.jsonl", tmp_path / "quarantine"
    first = batch(0, [happened.Created(NOW, RUN, "worker", "worker", "running")])
    torn = batch(1, [happened.Asked(NOW, "m1", "One?", ISO), happened.Asked(NOW, "m2", "Two?", ISO)])
    kept = b""
    for cut in range(1, len(torn)):
        path.write_bytes(first + torn[:cut])
        folded = journal.read(str(path), RUN)
        journal.append(str(path), folded, folded.run, [(happened.Told(NOW, "On."), None)], "1" * 16, str(quarantine))
        assert path.read_bytes() == first + batch(1, [happened.Told(NOW, "On.")], "1" * 16), cut
        kept += torn[:cut] + b"\n"
        assert (quarantine / "journal.jsonl").read_bytes() == kept, cut


def test_a_run_with_a_torn_journal_is_mended_by_the_next_change(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    run_id, before, last, picture = three_replies(root)
    meta(root, run_id).write_bytes(picture)
    cut = last.index(b"\n") + 10
    journal_of(root, run_id).write_bytes(before + last[:cut])
    questions.ask(open_at(root), "Four?", run=run_id)
    assert [question.text for question in truth(root, run_id).pending] == ["One?", "Two?", "Drei – ü?", "Four?"]
    assert (root / run_id / "quarantine" / "journal.jsonl").read_bytes() == last[:cut] + b"\n"
    assert shows_the_truth(root, run_id)
    index_holds_at_least(root, run_id)


@pytest.mark.parametrize("verb", ["status", "ask", "reply", "update"])
def test_a_damaged_line_in_the_middle_is_reported_and_nothing_changes(tmp_path: Path, verb: str) -> None:
    root = tmp_path / "foreign" / "runs"
    run_id, before, last, _ = three_replies(root)
    whole = before + last
    start = whole.index(b"\n") + 1
    journal_of(root, run_id).write_bytes(whole[: start + 30] + b"#" + whole[start + 31 :])
    there = everything(root / run_id)
    context = open_at(root)
    verbs = {
        "status": lambda: runs.status(context, run_id),
        "ask": lambda: questions.ask(context, "Why?", run=run_id),
        "reply": lambda: questions.reply(context, run_id, "So.", which="all"),
        "update": lambda: runs.update(context, run_id, "success"),
    }
    with pytest.raises(Damaged, match="line 2 of the journal is damaged") as caught:
        verbs[verb]()
    assert caught.value.code == "damaged_journal"
    assert run_id in caught.value.message
    assert everything(root / run_id) == there


def test_no_flipped_bit_in_the_middle_goes_unnoticed(tmp_path: Path) -> None:
    data = b"".join(batch(seq, [happened.Told(NOW, f"note {seq}")]) for seq in range(4))
    second = data.index(b"\n") + 1
    third = data.index(b"\n", second) + 1
    for place in range(second, third):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(Damaged):
                journal.committed(bytes(flipped))


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_line_that_is_missing_is_reported(missing: int) -> None:
    lines = [batch(seq, [happened.Told(NOW, f"note {seq}")]) for seq in range(4)]
    assert len(journal.committed(b"".join(lines))[0]) == 4
    with pytest.raises(Damaged, match=f"line {missing + 1} of the journal is missing"):
        journal.committed(b"".join(lines[:missing] + lines[missing + 1 :]))


def test_lines_without_the_one_that_commits_them_do_not_count() -> None:
    first = batch(0, [happened.Told(NOW, "one")])
    half = batch(1, [happened.Told(NOW, "two"), happened.Told(NOW, "three")]).splitlines(keepends=True)[0]
    records, size = journal.committed(first + half)
    assert [record["text"] for record in records] == ["one"]
    assert size == len(first)


def test_an_event_of_an_unknown_type_is_not_passed_over(tmp_path: Path) -> None:
    root = tmp_path / "foreign" / "runs"
    context = open_at(root)
    run_id = new_run(context)
    with journal_of(root, run_id).open("ab") as file:
        file.write(sealed({"seq": 2, "at": ISO, "clock": "", "type": "teleported", "meta": "0" * 16}))
    there = everything(root / run_id)
    calls: list[Callable[[], object]] = [
        lambda: runs.status(context, run_id),
        lambda: questions.ask(context, "Which?", run=run_id),
    ]
    for call in calls:
        with pytest.raises(Damaged, match="unknown type: 'teleported'") as caught:
            call()
        assert caught.value.code == "newer_journal"
        assert caught.value.hint is not None
        assert "upgrade" in caught.value.hint
    assert everything(root / run_id) == there


def test_fields_of_a_newer_release_are_passed_over_and_stay_on_disk(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    newer = sealed({"seq": 2, "at": ISO, "clock": "", "type": "told", "text": "Hi.", "mood": "good", "meta": "0" * 16})
    with journal_of(root, run_id).open("ab") as file:
        file.write(newer)
    questions.ask(context, "Which?", run=run_id)
    assert newer in journal_of(root, run_id).read_bytes()
    found = truth(root, run_id)
    assert [note.text for note in found.notes] == ["Hi."]
    assert [question.text for question in found.pending] == ["Which?"]


def test_an_old_picture_of_our_own_is_not_taken_for_somebody_else_s_write(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    clock = FakeClock()
    context = open_at(root, clock)
    run_id = new_run(context)
    pictures = [meta(root, run_id).read_bytes()]
    for number in range(3):
        questions.ask(context, f"{number}?", run=run_id)
        pictures.append(meta(root, run_id).read_bytes())
    for old in pictures:
        meta(root, run_id).write_bytes(old)
        questions.ask(open_at(root, clock), "Again?", run=run_id)
        assert b'"origin":"meta"' not in journal_of(root, run_id).read_bytes()
        assert shows_the_truth(root, run_id)
    assert len(document(root, run_id)["messages"]) == 7


def test_a_value_that_another_program_sets_back_is_taken_over_though_the_picture_was_once_ours(tmp_path: Path) -> None:
    root = tmp_path / "foreign" / "runs"
    clock = FakeClock()
    run_id = new_run(open_at(root, clock))
    pictures = []
    for step in (1, 2, 1, 2):
        text = json.dumps({**document(root, run_id), "step": step}, indent=2)
        meta(root, run_id).write_text(text)
        open_at(root, clock).runs.change(run_id, Settle(), clock.now)
        pictures.append(meta(root, run_id).read_text())
        assert pictures[-1] == text
        assert truth(root, run_id).extras == {"step": step}
    assert pictures[:2] == pictures[2:]


MOMENTS = st.builds(Moment, st.integers(START, START + 10**9), st.sampled_from(["", "b0071d00"]), st.integers(0, 10**9))
IDS = st.sampled_from(["m1", "m2", "m3", "m4"])
TEXTS = st.text(max_size=6)


def made(kind: Callable[..., Event], *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    return st.tuples(MOMENTS, *parts).map(lambda values: kind(*values))


STAMPS = st.just(ISO)
EVENTS = st.one_of(
    made(happened.Asked, IDS, TEXTS, STAMPS, st.sampled_from([(), ("yes", "no")])),
    made(happened.Replied, IDS, TEXTS, STAMPS, st.none(), st.none() | st.sampled_from("kl")),
    made(happened.Acknowledged, st.lists(IDS, min_size=1, max_size=2).map(tuple)),
    made(happened.Expired, IDS, TEXTS, STAMPS),
    made(happened.Told, TEXTS),
    made(happened.Reported, st.sampled_from(["running", "success", "error"]), STAMPS, TEXTS),
    made(happened.Exited, st.integers(0, 3), STAMPS),
    made(happened.Observed, st.dictionaries(TEXTS, st.integers(), max_size=2)),
)


@given(batches=st.lists(st.lists(EVENTS, min_size=1, max_size=3), min_size=1, max_size=8), data=st.data())
def test_reading_on_gives_what_reading_anew_gives(
    batches: list[list[Event]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(tmp_path_factory.mktemp("journal") / "journal.jsonl")
    written = b""
    known = journal.Folded(Run(RUN))
    seq = 0
    for number, events in enumerate(batches):
        lines = batch(seq, events, f"{number:016x}")
        cut = data.draw(st.integers(0, len(lines) - 1), label="cut")
        for size in (cut, len(lines)):
            Path(path).write_bytes(written + lines[:size])
            anew = journal.read(path, RUN)
            known = journal.read(path, RUN, known)
            assert known == anew
            assert anew.seq == (seq if size == cut else seq + len(events))
        written += lines
        seq += len(events)


def test_a_journal_that_became_shorter_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first, second = (batch(seq, [happened.Told(NOW, f"note {seq}")]) for seq in range(2))
    path.write_bytes(first + second)
    known = journal.read(str(path), RUN)
    path.write_bytes(first)
    assert journal.read(str(path), RUN, known) == journal.read(str(path), RUN)


def test_another_file_under_the_same_name_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(batch(0, [happened.Told(NOW, "old")]))
    known = journal.read(str(path), RUN)
    (tmp_path / "other").write_bytes(batch(0, [happened.Told(NOW, "another"), happened.Told(NOW, "more")]))
    (tmp_path / "other").replace(path)
    assert [note.text for note in journal.read(str(path), RUN, known).run.notes] == ["another", "more"]

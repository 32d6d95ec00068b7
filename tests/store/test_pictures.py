"""What others leave in `.meta.json` is read if it can be, mended by our next change, and left alone if it cannot be
read; and whatever the name points to, nothing outside the runs directory is written."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.document import document_fits
from subagent_cli.core.errors import Damaged, Failed, Refused, SubagentError
from subagent_cli.core.moment import iso
from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context
from subagent_cli.store import atomic, codec
from tests.store.world import (
    START,
    FakeClock,
    children,
    document,
    everything,
    index_holds_at_least,
    journal_of,
    meta,
    new_run,
    open_at,
    ready,
    shows_the_truth,
    truth,
)

STRANGER = "0190a000-0000-4000-8000-0000000000aa"
BEFORE = iso(START - 1000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "foreign" / "runs"


@pytest.fixture
def context(root: Path) -> Context:
    return open_at(root, FakeClock())


@pytest.fixture
def run_id(context: Context) -> str:
    """A run with one question that waits."""
    run_id = new_run(context)
    questions.ask(context, "Which?", run=run_id)
    return run_id


def message(**changes: Any) -> dict[str, Any]:
    pending = {
        "messageId": STRANGER,
        "questionContent": "Asked elsewhere?",
        "questionTimestamp": BEFORE,
        "messageStatus": "pending_parent_reply",
    }
    return {**pending, **changes}


def put(root: Path, run_id: str, value: Any) -> None:
    """Writes in place, as a program that knows nothing of us does."""
    meta(root, run_id).write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")


VERBS: dict[str, Callable[[Context, str], Any]] = {
    "status": runs.status,
    "ask": lambda context, run_id: questions.ask(context, "And?", run=run_id),
    "reply": lambda context, run_id: questions.reply(context, run_id, "So."),
    "update": lambda context, run_id: runs.update(context, run_id, "success"),
    "check": lambda context, run_id: questions.check(context, context.runs.index.questions()[0], run=run_id),
}

UNREADABLE = [
    (b"", "is empty"),
    (b" \n\n", "is empty"),
    (b"{", "not valid JSON"),
    (b'{"status": "running"', "not valid JSON"),
    (b"\xef\xbb\xbf{}", "not valid JSON"),
    (b"status: running", "not valid JSON"),
    (b"\x00" * 300, "not valid JSON"),
    (b"\xff\xfe{\x00}\x00", "not valid JSON"),
    (b"[]", "does not match the schema"),
    (b"null", "does not match the schema"),
    (b"5", "does not match the schema"),
    (b'"running"', "does not match the schema"),
]


@pytest.mark.case("C1-13", "C1-35", "T-25")
@pytest.mark.parametrize(("content", "reason"), UNREADABLE)
def test_a_document_that_is_none_is_an_error_and_stays_as_it_is(
    root: Path, context: Context, run_id: str, content: bytes, reason: str
) -> None:
    meta(root, run_id).write_bytes(content)
    there = everything(root / run_id)
    for verb in ("status", "ask"):
        with pytest.raises(Damaged, match=f"Could not read meta file of run .*{reason}") as caught:
            VERBS[verb](context, run_id)
        assert caught.value.code == "damaged_meta"
        assert "left as it is" in str(caught.value.hint)
    assert everything(root / run_id) == there


@pytest.mark.case("C1-13")
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_works_on_a_corrupt_document_or_touches_it(
    root: Path, context: Context, run_id: str, verb: str
) -> None:
    meta(root, run_id).write_bytes(b'{"messages": [')
    there = everything(root / run_id)
    with pytest.raises(Damaged, match="not valid JSON"):
        VERBS[verb](context, run_id)
    assert everything(root / run_id) == there


def test_a_corrupt_document_names_the_doctor_and_may_be_moved_away(root: Path, context: Context, run_id: str) -> None:
    meta(root, run_id).write_bytes(b"{")
    with pytest.raises(Damaged) as caught:
        runs.status(context, run_id)
    assert f"subagent doctor {run_id} --fix" in str(caught.value.hint)
    meta(root, run_id).rename(root / run_id / "bad.json")
    questions.ask(context, "And?", run=run_id)
    assert [entry["questionContent"] for entry in document(root, run_id)["messages"]] == ["Which?", "And?"]


@pytest.mark.case("T-25")
@pytest.mark.parametrize(("before", "after"), [(b"", b"\n"), (b"", b"\n\n \t\r\n"), (b"\n ", b"")])
def test_white_space_around_the_document_is_fine(
    root: Path, context: Context, run_id: str, before: bytes, after: bytes
) -> None:
    meta(root, run_id).write_bytes(before + meta(root, run_id).read_bytes() + after)
    assert runs.status(context, run_id)["status"] == "waiting_parent_reply"
    questions.ask(context, "And?", run=run_id)
    assert shows_the_truth(root, run_id)


@pytest.mark.case("T-25")
def test_an_older_layout_is_kept_and_not_wiped(root: Path, context: Context, run_id: str) -> None:
    put(root, run_id, {"meta": {"status": "running", "note": "old"}})
    questions.ask(context, "And?", run=run_id)
    found = document(root, run_id)
    assert found["meta"] == {"status": "running", "note": "old"}
    assert [entry["questionContent"] for entry in found["messages"]] == ["Which?", "And?"]


@pytest.mark.case("T-62")
@pytest.mark.parametrize("tail", [b"}", b'ummary": null\n}', b'"\n    }\n  ]\n}', b"\xc3", b'{"status": "error"}'])
def test_a_document_with_the_tail_of_an_older_longer_one_is_read(
    root: Path, context: Context, run_id: str, tail: bytes
) -> None:
    shorter = {**document(root, run_id), "messages": [message()]}
    meta(root, run_id).write_bytes(codec.document(shorter) + tail)
    found = runs.status(context, run_id, peek=True)
    assert [entry["questionContent"] for entry in found["messages"]] == ["Which?", "Asked elsewhere?"]
    questions.ask(context, "And?", run=run_id)
    assert shows_the_truth(root, run_id)
    assert len(document(root, run_id)["messages"]) == 3


@pytest.mark.case("T-63", "C1-35")
@pytest.mark.parametrize("size", [1, 400])
def test_a_reader_beside_a_writer_that_truncates_in_place_meets_no_error(
    root: Path, context: Context, run_id: str, size: int
) -> None:
    entries = [message(messageId=f"0190a000-0000-4000-8000-{number:012d}") for number in range(size)]
    put(root, run_id, {**document(root, run_id), "messages": [*document(root, run_id)["messages"], *entries]})
    torn = 0
    with children(("rewrite", meta(root, run_id))) as [writer]:
        ready(writer)
        for _ in range(300):
            found = context.runs.read(run_id, context.clock.now())
            assert len(found.questions) == size + 1
            torn += not is_whole(meta(root, run_id))
    assert torn > 0, "the writer was never met in the middle, so nothing was shown"


def is_whole(path: Path) -> bool:
    try:
        codec.load(path.read_bytes())
    except ValueError:
        return False
    return True


@pytest.mark.case("C1-27")
@pytest.mark.parametrize("verb", ["status", "check"])
def test_an_acknowledgement_that_could_not_be_saved_does_not_consume_the_answer(
    root: Path, context: Context, run_id: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions.reply(context, run_id, "That.")
    there = everything(root / run_id)

    def full(fd: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write_all", full)
        if verb == "check":
            with pytest.raises(Failed, match="No space left"):
                VERBS[verb](context, run_id)
        else:
            # The answer may be shown, but then not as delivered.
            found = VERBS[verb](context, run_id)
            assert found["messages"][0]["messageStatus"] == "parent_replied"
            assert any("stays unread" in warning for warning in found["warnings"])
    assert everything(root / run_id) == there
    assert truth(root, run_id).status == "parent_replied"

    found = VERBS[verb](context, run_id)
    answer = found["messages"][0]["answerContent"] if verb == "status" else found["answer"]
    assert answer == "That."
    assert document(root, run_id)["messages"][0]["messageStatus"] == "acknowledged_by_subagent"


@pytest.mark.case("C1-27")
def test_an_acknowledgement_that_nobody_confirmed_leaves_the_answer_readable(
    root: Path, context: Context, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions.reply(context, run_id, "That.")

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "_datasync", broken)
        with pytest.raises(SubagentError):
            VERBS["check"](context, run_id)
    assert VERBS["check"](context, run_id)["answer"] == "That."


@pytest.mark.case("X2")
def test_what_another_program_wrote_is_merged_and_kept(root: Path, context: Context, run_id: str) -> None:
    found = document(root, run_id)
    found["messages"][0].update(
        answerContent="By the other.", answerTimestamp=BEFORE, messageStatus="parent_replied", colour="red"
    )
    found["messages"].append(message())
    found["plan"] = {"step": 1}
    put(root, run_id, found)
    questions.ask(context, "And?", run=run_id)
    merged = document(root, run_id)
    assert [entry["messageStatus"] for entry in merged["messages"]] == [
        "parent_replied",
        "pending_parent_reply",
        "pending_parent_reply",
    ]
    assert merged["messages"][0]["answerContent"] == "By the other."
    assert merged["messages"][0]["colour"] == "red"
    assert merged["plan"] == {"step": 1}
    assert merged["status"] == "parent_replied"
    assert shows_the_truth(root, run_id)
    index_holds_at_least(root, run_id)


@pytest.mark.case("X2")
def test_what_another_program_dropped_is_put_back(root: Path, context: Context, run_id: str) -> None:
    put(root, run_id, {**document(root, run_id), "plan": 1})
    questions.reply(context, run_id, "That.")
    put(root, run_id, {"runId": run_id, "status": "waiting_parent_reply", "messages": [message()]})
    questions.ask(context, "And?", run=run_id)
    merged = document(root, run_id)
    assert merged["plan"] == 1
    assert merged["agentName"] == "worker"
    assert [entry["questionContent"] for entry in merged["messages"]] == ["Which?", "Asked elsewhere?", "And?"]
    assert merged["messages"][0]["answerContent"] == "That."


@pytest.mark.case("X2")
def test_the_first_answer_and_the_further_state_win(root: Path, context: Context, run_id: str) -> None:
    older = document(root, run_id)
    [asked] = truth_of(context, run_id)
    questions.reply(context, run_id, "Ours, first.")
    questions.check(context, asked)
    older["messages"][0].update(answerContent="Theirs, late.", answerTimestamp=BEFORE, messageStatus="parent_replied")
    put(root, run_id, older)
    questions.ask(context, "And?", run=run_id)
    entry = document(root, run_id)["messages"][0]
    assert entry["answerContent"] == "Ours, first."
    assert entry["messageStatus"] == "acknowledged_by_subagent"
    with pytest.raises(Refused):
        questions.reply(context, asked, "Again.")


def truth_of(context: Context, run_id: str) -> list[str]:
    return list(context.runs.read(run_id, context.clock.now()).questions)


@pytest.mark.case("X2")
def test_a_document_of_ours_has_the_known_keys_only(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    questions.ask(context, "Which?", run=run_id, options=["a", "b"], default="a", deadline=10**6, key="k")
    questions.reply(context, run_id, "1", key="k")
    runs.status(context, run_id)
    questions.tell(context, "A note.", run=run_id)
    runs.update(context, run_id, "error", "It broke.")
    found = document(root, run_id)
    assert list(found) == [
        "runId",
        "agentName",
        "command",
        "startTime",
        "status",
        "exitCode",
        "endTime",
        "summary",
        "messages",
        "lastUpdated",
    ]
    assert document_fits(found)


@pytest.mark.parametrize(
    "value", ["1e400", "-1e400", "9007199254740993", "1.0", '"\\ud800"', '{"a": {"b": []}}', '{"9": 1, "b": 2, "1": 3}']
)
@pytest.mark.parametrize("key", ["extra", "exitCode", "summary", "status"])
def test_no_value_of_another_program_makes_a_run_unusable(
    root: Path, context: Context, run_id: str, key: str, value: str
) -> None:
    text = json.dumps(document(root, run_id))
    found = text.replace('"exitCode": null', f'"exitCode": {value}') if key == "exitCode" else text
    if key != "exitCode":
        found = f'{text[:-1]}, "{key}": {value}}}'
    meta(root, run_id).write_text(found)
    before = runs.status(context, run_id, peek=True)["messages"]
    questions.reply(context, run_id, "That.")
    again = runs.status(open_at(root, context.clock), run_id, peek=True)
    assert len(again["messages"]) == len(before)
    assert document_fits(document(root, run_id))
    assert shows_the_truth(root, run_id)


def test_a_missing_document_is_made_anew_from_the_journal(root: Path, context: Context, run_id: str) -> None:
    picture = meta(root, run_id).read_bytes()
    meta(root, run_id).unlink()
    assert runs.status(context, run_id)["status"] == "waiting_parent_reply"
    assert not meta(root, run_id).exists()
    with pytest.raises(Refused):
        questions.ask(context, "And?", run=run_id, single=True)
    assert not meta(root, run_id).exists()
    questions.ask(context, "And?", run=run_id)
    assert shows_the_truth(root, run_id)
    assert [entry["questionContent"] for entry in document(root, run_id)["messages"]] == ["Which?", "And?"]
    assert codec.load(picture)["messages"][0] == document(root, run_id)["messages"][0]


def test_a_run_that_another_program_made_is_read_in_place_and_gets_a_journal_at_the_first_write(root: Path) -> None:
    run_id = "0190a000-0000-4000-8000-000000000001"
    (root / run_id).mkdir(parents=True)
    theirs = {
        "status": "waiting_parent_reply",
        "agentName": "theirs",
        "messages": [message()],
        "plan": [1, 2],
        "exitCode": None,
    }
    put(root, run_id, theirs)
    context = open_at(root, FakeClock())
    there = everything(root)
    found = runs.status(context, run_id)
    assert (found["status"], found["agentName"]) == ("waiting_parent_reply", "theirs")
    assert everything(root) == there
    questions.reply(context, run_id, "From us.", message=STRANGER)
    assert document(root, run_id)["messages"][0]["answerContent"] == "From us."
    assert document(root, run_id)["plan"] == [1, 2]
    assert shows_the_truth(root, run_id)
    index_holds_at_least(root, run_id)
    # From now on the journal is the truth, and what another program drops is put back.
    put(root, run_id, {})
    questions.ask(context, "And?", run=run_id)
    assert [entry["questionContent"] for entry in document(root, run_id)["messages"]] == ["Asked elsewhere?", "And?"]
    assert document(root, run_id)["agentName"] == "theirs"


def test_a_folder_with_neither_journal_nor_document_is_damaged(root: Path) -> None:
    run_id = "0190a000-0000-4000-8000-000000000001"
    (root / run_id).mkdir(parents=True)
    for verb in ("status", "ask"):
        with pytest.raises(Damaged, match="neither a journal nor"):
            VERBS[verb](open_at(root), run_id)
    assert everything(root / run_id) == {}


def test_a_link_inside_the_runs_directory_stays_and_what_it_points_to_is_replaced(
    root: Path, context: Context, run_id: str
) -> None:
    flat = root / f"{run_id}.meta.json"
    meta(root, run_id).rename(flat)
    meta(root, run_id).symlink_to(f"../{flat.name}")
    questions.ask(context, "And?", run=run_id)
    assert meta(root, run_id).is_symlink()
    assert not flat.is_symlink()
    assert shows_the_truth(root, run_id)
    assert len(codec.load(flat.read_bytes())["messages"]) == 2


def test_a_link_to_our_document_stays_a_link_and_shows_each_change(root: Path, context: Context, run_id: str) -> None:
    link = root / f"{run_id}.meta.json"
    link.symlink_to(f"{run_id}/.meta.json")
    questions.ask(context, "And?", run=run_id)
    assert link.is_symlink()
    assert len(codec.load(link.read_bytes())["messages"]) == 2


def loop(place: Path) -> None:
    place.symlink_to(place.name)


def dangling(place: Path) -> None:
    place.symlink_to("nowhere.json")


def folder(place: Path) -> None:
    place.mkdir()


@pytest.mark.parametrize("put_there", [loop, dangling, folder])
@pytest.mark.parametrize("verb", VERBS)
def test_a_name_that_leads_to_no_document_is_an_error_and_stays(
    root: Path, context: Context, run_id: str, verb: str, put_there: Callable[[Path], None]
) -> None:
    meta(root, run_id).unlink()
    put_there(meta(root, run_id))
    names = sorted(os.listdir(root / run_id))
    journal = journal_of(root, run_id).read_bytes()
    with pytest.raises(Damaged, match="Could not read meta file"):
        VERBS[verb](context, run_id)
    assert sorted(os.listdir(root / run_id)) == names
    assert journal_of(root, run_id).read_bytes() == journal


@pytest.mark.parametrize("name", [".meta.json", "journal.jsonl", "log", "run folder"])
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_through_a_link_that_leaves_the_runs_directory_nothing_is_written(
    tmp_path: Path, root: Path, context: Context, run_id: str, name: str, relative: bool
) -> None:
    outside = tmp_path / "foreign" / "outside"
    outside.mkdir()
    inside = root / run_id if name == "run folder" else root / run_id / name
    away = outside / (run_id if name == "run folder" else "secret.json")
    inside.rename(away)
    inside.symlink_to(os.path.relpath(away, inside.parent) if relative else away)
    there = everything(outside)
    for verb in ("ask", "reply", "update"):
        try:
            found = VERBS[verb](context, run_id)
        except SubagentError:
            continue
        # Only the log is no part of the change itself.
        assert name == "log"
        assert verb != "update" or found["warnings"]
    assert everything(outside) == there
    assert inside.is_symlink()


def test_a_whole_runs_directory_behind_a_link_works(tmp_path: Path) -> None:
    root = tmp_path / "linked"
    (tmp_path / "real").mkdir()
    root.symlink_to("real")
    context = open_at(root)
    run_id = new_run(context)
    questions.ask(context, "Which?", run=run_id)
    assert shows_the_truth(tmp_path / "real", run_id)

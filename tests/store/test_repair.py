"""Mending a run's files: what is in order stays byte for byte, what is not is kept aside first, and a crash in between
leaves the old or the new."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import pytest

from subagent_cli.core.event import Told, event
from subagent_cli.services import questions
from subagent_cli.services.context import Context
from subagent_cli.store import atomic, codec, journal, repair
from subagent_cli.store.lock import held
from subagent_cli.store.runs import Runs
from tests.store.world import FakeClock, journal_of, meta, new_run, open_at, shows_the_truth, truth


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "foreign" / "runs"


@pytest.fixture
def context(root: Path) -> Context:
    return open_at(root, FakeClock())


@pytest.fixture
def run_id(context: Context) -> str:
    """A run with three questions and three answers, in five changes."""
    run_id = new_run(context)
    for text in ("One?", "Two?", "Three?"):
        questions.ask(context, text, run=run_id)
    questions.reply(context, run_id, "Yes.", which="all")
    return run_id


def found(root: Path, run_id: str) -> list[str]:
    return [finding.code for finding in repair.findings(Runs(str(root)), run_id, ours=True)]


def mend(root: Path, run_id: str) -> None:
    runs = Runs(str(root))
    with held(runs.layout.lock(run_id), 1, "the run", queue=runs.layout.run(run_id)):
        codes = [finding.code for finding in repair.findings(runs, run_id, ours=True) if finding.fix]
        repair.mend(runs, run_id, codes, FakeClock().now)


def quarantine(root: Path, run_id: str) -> dict[str, bytes]:
    folder = root / run_id / "quarantine"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def test_lines_before_the_damage_stay_byte_for_byte_and_later_ones_are_numbered_anew(root: Path, run_id: str) -> None:
    file = journal_of(root, run_id)
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:2], b"garbage\n", *lines[3:]])
    file.write_bytes(damaged)
    meta(root, run_id).unlink()
    assert found(root, run_id) == ["damaged_journal", "missing_meta"]
    mend(root, run_id)
    mended = file.read_bytes()
    assert mended.startswith(b"".join(lines[:2]))
    records, size = journal.committed(mended)
    assert size == len(mended)
    assert [record["seq"] for record in records] == list(range(1, len(lines)))
    assert [record["type"] for record in records] == ["created", "asked", "asked", "replied", "replied", "replied"]
    assert quarantine(root, run_id) == {"journal.jsonl.1": damaged}
    assert found(root, run_id) == []
    assert shows_the_truth(root, run_id)


def test_a_picture_that_a_later_line_named_is_taken_over_where_lines_before_it_are_lost(
    root: Path, run_id: str
) -> None:
    before = truth(root, run_id)
    file = journal_of(root, run_id)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    mend(root, run_id)
    assert {q.id: (q.text, q.closing) for q in truth(root, run_id).questions.values()} == {
        q.id: (q.text, q.closing) for q in before.questions.values()
    }


def test_what_was_absorbed_stays_marked_so(root: Path, run_id: str) -> None:
    file = journal_of(root, run_id)
    whole = file.read_bytes()
    last = journal.lines(len(whole.splitlines()), [(Told(FakeClock().now(), "seen"), "meta")], "0-0")
    file.write_bytes(b"\n" + whole + last)
    mend(root, run_id)
    assert [record["origin"] for record in journal.committed(file.read_bytes())[0] if "origin" in record] == ["meta"]


def test_an_event_that_lacks_something_is_a_damaged_line_wherever_it_stands(root: Path, run_id: str) -> None:
    file = journal_of(root, run_id)
    whole = file.read_bytes()
    lacking = journal.lines(0, [(Told(FakeClock().now(), None), None)], "0-0")  # type: ignore[arg-type]
    renumbered = journal.lines(len(whole.splitlines()), [(Told(FakeClock().now(), None), None)], "0-0")  # type: ignore[arg-type]
    for damaged in (lacking + whole, whole + renumbered):
        file.write_bytes(damaged)
        assert found(root, run_id) == ["damaged_journal"]
        mend(root, run_id)
        assert found(root, run_id) == []
        assert damaged in quarantine(root, run_id).values()
        assert [record["type"] for record in journal.committed(file.read_bytes())[0]].count("told") == 0


@pytest.mark.parametrize(
    "body", [b'{"seq":1,x', b'{"seq":1,"type":"asked","messageId":"a","question":"b","timestamp":5']
)
def test_a_line_with_a_right_checksum_that_says_nothing_is_a_damaged_line(root: Path, run_id: str, body: bytes) -> None:
    file = journal_of(root, run_id)
    whole = file.read_bytes()
    file.write_bytes(body + b',"crc":"%08x"}\n' % crc32(body) + whole)
    assert found(root, run_id) == ["damaged_journal"]
    mend(root, run_id)
    assert found(root, run_id) == []
    assert len(journal.committed(file.read_bytes())[0]) >= len(whole.splitlines())


def test_a_torn_tail_is_cut_off_and_kept(root: Path, run_id: str) -> None:
    file = journal_of(root, run_id)
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"seq":8,"at":"20')
    assert found(root, run_id) == ["torn_journal"]
    mend(root, run_id)
    assert file.read_bytes() == whole
    assert quarantine(root, run_id) == {"journal.jsonl.1": b'{"seq":8,"at":"20'}


@pytest.mark.parametrize("step", ["create", "appear", "sync_folder", "replace"])
def test_mending_that_breaks_off_leaves_the_old_or_the_new_and_can_be_done_again(
    root: Path, run_id: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = journal_of(root, run_id)
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:3], b"#\n", *lines[4:]])
    for turn in range(1, 4):
        file.write_bytes(damaged)
        meta(root, run_id).write_bytes(b"{}")
        with monkeypatch.context() as patch:
            patch.setattr(atomic, step, breaking(getattr(atomic, step), turn))
            try:
                mend(root, run_id)
            except OSError:
                assert damaged in (file.read_bytes(), *quarantine(root, run_id).values())
        for _ in range(2):
            mend(root, run_id)
        assert found(root, run_id) == []
        assert damaged in quarantine(root, run_id).values()
        assert {question.text for question in truth(root, run_id).questions.values()} == {"One?", "Two?"}


def breaking(function: Callable[..., None], turn: int) -> Callable[..., None]:
    calls: list[Sequence[object]] = []

    def broken(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == turn:
            raise OSError(5, "Input/output error")
        function(*arguments)

    return broken


def test_a_flat_document_that_the_picture_links_to_is_mended_in_its_place(root: Path, run_id: str) -> None:
    flat = root / f"{run_id}.meta.json"
    whole = meta(root, run_id).read_bytes()
    meta(root, run_id).unlink()
    meta(root, run_id).symlink_to(f"../{flat.name}")
    flat.write_bytes(b"{")
    assert found(root, run_id) == ["damaged_meta"]
    mend(root, run_id)
    assert meta(root, run_id).is_symlink()
    assert flat.read_bytes() == whole
    assert quarantine(root, run_id) == {".meta.json.1": b"{"}


def test_a_picture_that_is_spelled_right_but_not_in_the_journal_is_in_order(root: Path, run_id: str) -> None:
    file = journal_of(root, run_id)
    records = journal.committed(file.read_bytes())[0]
    events = [(event(record), record.get("origin")) for record in records]
    file.write_bytes(journal.lines(0, events, "0-0"))
    assert found(root, run_id) == []


def test_a_journal_that_is_a_folder_is_said_and_left(root: Path, run_id: str) -> None:
    journal_of(root, run_id).unlink()
    journal_of(root, run_id).mkdir(0o700)
    assert found(root, run_id) == ["unreadable"]


def test_modes_are_looked_at_all_the_way_down_but_not_through_links(root: Path, run_id: str) -> None:
    outside = root.parent / "outside"
    outside.touch()
    outside.chmod(0o644)
    folder = root / run_id
    (folder / "link").symlink_to(outside)
    deep = folder / "quarantine" / "deep"
    deep.mkdir(0o700, parents=True)
    (folder / "quarantine").chmod(0o750)
    (deep / "file").touch()
    (deep / "file").chmod(0o204)
    os.mkfifo(folder / "pipe", 0o666)
    assert [os.path.relpath(path, folder) for path in repair.exposed(str(folder))] == [
        "quarantine",
        "quarantine/deep/file",
    ]
    mend(root, run_id)
    assert list(repair.exposed(str(folder))) == []
    assert (deep / "file").stat().st_mode & 0o777 == 0o600
    assert outside.stat().st_mode & 0o777 == 0o644


def test_other_bytes_are_put_in_a_files_place_only_after_its_own_are_safe(root: Path, run_id: str) -> None:
    layout = Runs(str(root)).layout
    asked = Path(layout.spec(run_id)).read_bytes()
    repair.rewrite(layout, run_id, layout.spec(run_id), b"{}")
    repair.rewrite(layout, run_id, layout.spec(run_id), codec.document({"a": 1}))
    assert quarantine(root, run_id) == {"run.json.1": asked, "run.json.2": b"{}"}
    assert Path(layout.spec(run_id)).read_bytes() == b'{\n  "a": 1\n}'

"""The doctor says what is wrong, mends what can be mended, keeps every byte it takes away, and then finds nothing."""

import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pytest

from subagent_cli.core.errors import InvalidInput, NotFound
from subagent_cli.core.run import Run
from subagent_cli.services import doctor, questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.store import atomic, codec, journal, picture
from subagent_cli.store.runs import Runs
from subagent_cli.store.watch import Watch
from tests.services.desk import StillClock, foreign_message, snapshot, write_foreign
from tests.store.world import children, ended, go, ready

FILES = ["journal.jsonl", ".meta.json", "run.json", "prompt.md", "log"]
DAY = 86_400_000


class Patient(NamedTuple):
    """A run with all that a run can have, as it was before anything happened to it."""

    desk: Context
    root: Path
    run_id: str
    waiting: str
    copy: Path
    well: Run

    @property
    def folder(self) -> Path:
        return self.root / self.run_id

    def again(self) -> Path:
        """The run as it was; its folder."""
        shutil.rmtree(self.folder / "quarantine", ignore_errors=True)
        for file in self.copy.iterdir():
            place = self.folder / file.name
            if place.is_symlink() or not place.is_file():
                shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
                place.touch(0o600)
            place.write_bytes(file.read_bytes())
        return self.folder

    def now(self) -> Run:
        """The run as somebody sees it who has just come."""
        return Runs(str(self.root)).read(self.run_id, self.desk.clock.now())

    def keeps(self, damaged: bytes) -> bool:
        """Whether every line of a damaged file is still to be found in some file of the run."""
        kept = b"\n".join(path.read_bytes() for path in self.folder.rglob("*") if path.is_file())
        return all(line in kept for line in damaged.split(b"\n"))


@pytest.fixture
def clock() -> StillClock:
    """As late as the files that the tests write."""
    return StillClock(int(time.time() * 1000))


@pytest.fixture
def patient(foreign_desk: Context, foreign_runs: Path, clock: StillClock, tmp_path: Path) -> Patient:
    os.chmod(foreign_runs, 0o700)
    desk = foreign_desk
    run_id = runs.create(desk, "helper", "Do it", name="tidy")["runId"]
    first = questions.ask(desk, "Ä?", run=run_id, options=("x", "y"))["messageId"]
    second = questions.ask(desk, "B?", run=run_id)["messageId"]
    questions.tell(desk, "note 1", run=run_id)
    questions.reply(desk, run_id, "2", which="all")
    questions.check(desk, first, run=run_id)
    waiting = questions.ask(desk, "C?", run=run_id)["messageId"]
    questions.tell(desk, "note 2", run=run_id)
    runs.update(desk, run_id, "completed", "done")
    assert first != second
    copy = tmp_path / "foreign" / "copy"
    shutil.copytree(foreign_runs / run_id, copy)
    well = Runs(str(foreign_runs)).read(run_id, clock.now())
    return Patient(desk, foreign_runs, run_id, waiting, copy, well)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-written picture is not waited for: nobody is writing."""
    monkeypatch.setattr(picture, "_RETRIES", ())


@pytest.fixture
def powered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody cuts the power, so thousands of rounds need not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(atomic, "commit", lambda _: None)


def codes(found: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in found["findings"]]


def healed(patient: Patient, *expected: str) -> dict[str, Any]:
    """Looks without touching, mends, and looks again: what was found the first time, all of it mended."""
    before = snapshot(patient.root, locks=False)
    seen = doctor.check(patient.desk)
    assert snapshot(patient.root, locks=False) == before
    assert set(expected) <= set(codes(seen)), seen
    assert not any(finding["fixed"] for finding in seen["findings"])
    mended = doctor.check(patient.desk, fix=True)
    assert set(codes(seen)) <= set(codes(mended))
    assert all(finding["fixed"] for finding in mended["findings"]), mended
    nothing_left(patient)
    return seen


def nothing_left(patient: Patient) -> None:
    assert doctor.check(patient.desk) == {"checked": len(patient.desk.runs.all()), "findings": []}


def answers(patient: Patient) -> None:
    """The run can be written to: the question that waits takes its answer."""
    fresh = patient.desk._replace(runs=Runs(str(patient.root)))
    questions.reply(fresh, patient.run_id, "yes", message=patient.waiting)
    assert patient.now().questions[patient.waiting].closing == "yes"


def same_conversation(found: Run, well: Run) -> None:
    """Every question, answer and end is there; options are part of the question for those who read the picture."""
    assert {q.id: (q.content, q.state, q.closing) for q in found.questions.values()} == {
        q.id: (q.content, q.state, q.closing) for q in well.questions.values()
    }
    assert (found.phase, found.summary, found.ended_at) == (well.phase, well.summary, well.ended_at)


def test_a_run_in_order_gives_no_finding_and_is_not_touched(patient: Patient) -> None:
    before = snapshot(patient.root, locks=False)
    assert doctor.check(patient.desk) == {"checked": 1, "findings": []}
    assert doctor.check(patient.desk, fix=True) == {"checked": 1, "findings": []}
    assert doctor.check(patient.desk, ["tidy", patient.run_id, patient.run_id[-8:]]) == {"checked": 1, "findings": []}
    assert snapshot(patient.root, locks=False) == before


@pytest.mark.usefixtures("hasty", "powered")
@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_off_at_any_byte_leaves_a_run_that_can_be_read_and_written(patient: Patient, name: str) -> None:
    whole = (patient.copy / name).read_bytes()
    for size in range(len(whole)):
        file = patient.again() / name
        file.write_bytes(whole[:size])
        still = journal.committed(whole[:size])[0] if name == "journal.jsonl" else None
        mended = doctor.check(patient.desk, [patient.run_id], fix=True)
        assert all(finding["fixed"] for finding in mended["findings"]), (size, mended)
        found = patient.now()
        same_conversation(found, patient.well)
        if still is None:
            assert (found.notes, found.questions) == (patient.well.notes, patient.well.questions), size
        else:
            kept = journal.committed(file.read_bytes())[0]
            assert kept[: len(still)] == still, size
            # Cut off between two changes a journal looks whole; then the picture says more than it does, or as much.
            assert codes(mended) or whole[:size].endswith(b"\n"), size
        assert patient.keeps(whole[:size]), size
        assert doctor.check(patient.desk, [patient.run_id])["findings"] == [], size
        answers(patient)


@pytest.mark.usefixtures("hasty")
def test_a_flipped_byte_in_any_line_of_the_journal_costs_at_most_what_only_that_line_knew(patient: Patient) -> None:
    whole = (patient.copy / "journal.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    start = 0
    for number, line in enumerate(lines):
        for place in (0, 5, len(line) // 2, len(line) - 4, len(line) - 1):
            file = patient.again() / "journal.jsonl"
            damaged = bytearray(whole)
            damaged[start + place] ^= 0x04
            file.write_bytes(damaged)
            mended = doctor.check(patient.desk, [patient.run_id], fix=True)
            assert codes(mended), (number, place)
            assert all(finding["fixed"] for finding in mended["findings"]), (number, place, mended)
            same_conversation(patient.now(), patient.well)
            told = [record["text"] for record in journal.committed(file.read_bytes())[0] if record["type"] == "told"]
            unhurt = lines[:number] + lines[number + 1 + (place == len(line) - 1) :]
            assert told == [json.loads(other)["text"] for other in unhurt if b'"told"' in other]
            assert patient.keeps(bytes(damaged)), (number, place)
            assert doctor.check(patient.desk, [patient.run_id])["findings"] == [], (number, place)
            answers(patient)
        start += len(line)


def test_a_line_taken_out_of_the_journal_is_missed_and_the_picture_gives_it_back(patient: Patient) -> None:
    file = patient.folder / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if b'"B?"' in line)
    file.write_bytes(b"".join(lines[:place] + lines[place + 1 :]))
    [finding] = healed(patient, "damaged_journal")["findings"]
    assert "1 line lost" in finding["message"]
    same_conversation(patient.now(), patient.well)
    assert [note.text for note in patient.now().notes] == ["note 1", "note 2"]
    answers(patient)


def test_what_the_picture_alone_still_shows_comes_back_into_a_mended_journal(patient: Patient) -> None:
    file = patient.folder / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    hurt = [b"#" * len(line) if b'"type":"replied"' in line else line for line in lines]
    file.write_bytes(b"\n".join(line.rstrip(b"\n") for line in hurt) + b"\n")
    healed(patient, "damaged_journal")
    same_conversation(patient.now(), patient.well)
    origins = [record.get("origin") for record in journal.committed(file.read_bytes())[0]]
    assert "meta" in origins


@pytest.mark.usefixtures("hasty")
def test_a_journal_hurt_in_the_middle_is_salvaged_without_a_picture_too(patient: Patient) -> None:
    file = patient.folder / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if b"note 1" in line)
    file.write_bytes(b"".join(lines[:place]) + b"\xff\xfe\n" + b"".join(lines[place + 1 :]))
    (patient.folder / ".meta.json").write_bytes(b'{"runId": "')
    healed(patient, "damaged_journal", "damaged_meta")
    same_conversation(patient.now(), patient.well)
    assert [note.text for note in patient.now().notes] == ["note 2"]
    kept = {path.name: path.read_bytes() for path in (patient.folder / "quarantine").iterdir()}
    assert kept[".meta.json.1"] == b'{"runId": "'
    assert b"\xff\xfe" in kept["journal.jsonl.1"]
    answers(patient)


def test_a_journal_that_is_gone_is_begun_anew_from_the_picture(patient: Patient) -> None:
    (patient.folder / "journal.jsonl").unlink()
    healed(patient, "missing_journal")
    same_conversation(patient.now(), patient.well)
    records = journal.committed((patient.folder / "journal.jsonl").read_bytes())[0]
    assert {record.get("origin") for record in records} == {"meta"}
    answers(patient)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("broken", [None, b"", b"{", b"[]"])
def test_without_journal_and_picture_the_run_is_lost_and_left_as_it_is(patient: Patient, broken: bytes | None) -> None:
    (patient.folder / "journal.jsonl").unlink()
    (patient.folder / ".meta.json").unlink()
    if broken is not None:
        (patient.folder / ".meta.json").write_bytes(broken)
    before = snapshot(patient.root, locks=False)
    found = doctor.check(patient.desk, fix=True)
    assert [(finding["code"], finding["fix"], finding["fixed"]) for finding in found["findings"]] == [
        ("lost", None, False)
    ]
    assert doctor.damaged(found)
    assert snapshot(patient.root, locks=False) == before


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("broken", [b"", b"{", b"\xef\xbb\xbf{}", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_picture_that_cannot_be_read_is_kept_and_painted_anew(patient: Patient, broken: bytes) -> None:
    file = patient.folder / ".meta.json"
    file.write_bytes(broken)
    healed(patient, "damaged_meta")
    assert file.read_bytes() == (patient.copy / ".meta.json").read_bytes()
    assert (patient.folder / "quarantine" / ".meta.json.1").read_bytes() == broken
    answers(patient)


@pytest.mark.usefixtures("hasty")
def test_each_thing_put_aside_keeps_its_name_and_takes_no_place_of_another(patient: Patient) -> None:
    for number, broken in enumerate((b"{1", b"{2", b"{3"), 1):
        (patient.folder / ".meta.json").write_bytes(broken)
        assert not doctor.damaged(doctor.check(patient.desk, fix=True))
        assert (patient.folder / "quarantine" / f".meta.json.{number}").read_bytes() == broken


def test_a_picture_that_is_gone_is_painted_anew(patient: Patient) -> None:
    (patient.folder / ".meta.json").unlink()
    healed(patient, "missing_meta")
    assert (patient.folder / ".meta.json").read_bytes() == (patient.copy / ".meta.json").read_bytes()


@pytest.mark.usefixtures("hasty")
def test_a_picture_that_is_a_folder_or_a_link_to_nothing_is_put_aside_and_painted_anew(patient: Patient) -> None:
    for folder in (True, False):
        file = patient.again() / ".meta.json"
        file.unlink()
        if folder:
            file.mkdir()
        else:
            file.symlink_to("nothing")
        healed(patient, "damaged_meta")
        assert file.is_file()
        assert not file.is_symlink()
        assert os.path.lexists(patient.folder / "quarantine" / ".meta.json.1")


def test_an_old_picture_of_our_own_is_a_warning_and_is_painted_anew(patient: Patient, clock: StillClock) -> None:
    old = (patient.folder / ".meta.json").read_bytes()
    answers(patient)
    (patient.folder / ".meta.json").write_bytes(old)
    [finding] = healed(patient, "stale_meta")["findings"]
    assert finding["severity"] == "warning"
    assert patient.now().questions[patient.waiting].closing == "yes"


@pytest.mark.usefixtures("hasty")
def test_the_rest_of_an_older_document_behind_a_new_one_is_kept_and_the_new_one_taken_over(patient: Patient) -> None:
    file = patient.folder / ".meta.json"
    document = json.loads(file.read_bytes())
    document["messages"].append(foreign_message())
    written = json.dumps(document).encode() + b'rest"}'
    file.write_bytes(written)
    healed(patient, "overlong_meta")
    assert len(patient.now().questions) == 4
    assert (patient.folder / "quarantine" / ".meta.json.1").read_bytes() == written


def test_what_another_program_wrote_is_a_note_and_is_taken_over(patient: Patient) -> None:
    file = patient.folder / ".meta.json"
    document = json.loads(file.read_bytes())
    document["messages"].append(foreign_message())
    file.write_text(json.dumps(document))
    seen = healed(patient, "foreign_meta")
    [finding] = [finding for finding in seen["findings"] if finding["code"] == "foreign_meta"]
    assert finding["severity"] == "note"
    assert not doctor.damaged(seen)
    assert len(patient.now().questions) == 4
    assert not (patient.folder / "quarantine").exists()


def test_a_run_of_another_program_is_no_damage_and_is_taken_over(patient: Patient) -> None:
    file = write_foreign(patient.root, messages=[foreign_message()])
    for path in (file, file.parent):
        os.chmod(path, 0o700 if path.is_dir() else 0o600)
    seen = healed(patient, "foreign_meta", "missing_entries")
    assert {finding["severity"] for finding in seen["findings"]} == {"note", "warning"}
    assert patient.desk.runs.index.asker(foreign_message()["messageId"]) == file.parent.name


def test_a_journal_of_a_newer_release_is_left_alone_even_where_it_is_damaged(patient: Patient) -> None:
    file = patient.folder / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    record = {key: value for key, value in json.loads(lines[3]).items() if key != "crc"} | {"type": "teleported"}
    newer = codec.line(record)[:-1]
    lines[3] = newer + b',"crc":"%08x"}\n' % crc32(newer)
    for damaged in (lines, [lines[0], b"#\n", *lines[2:]]):
        file.write_bytes(b"".join(damaged))
        before = snapshot(patient.root, locks=False)
        found = doctor.check(patient.desk, fix=True)
        assert [(finding["code"], finding["fix"]) for finding in found["findings"]] == [("newer_journal", None)]
        assert "upgrade" in found["findings"][0]["message"]
        assert doctor.damaged(found)
        assert snapshot(patient.root, locks=False) == before


def test_a_damaged_run_json_keeps_what_fits_and_gets_the_rest_from_elsewhere(patient: Patient) -> None:
    file = patient.folder / "run.json"
    asked = json.loads(file.read_bytes())
    hurt = asked | {"name": 7, "labels": None, "extra": "kept"}
    del hurt["task"]
    file.write_text(json.dumps(hurt))
    seen = healed(patient, "damaged_run_json")
    assert "lost with it: labels" in seen["findings"][0]["message"]
    assert json.loads(file.read_bytes()) == asked | {"extra": "kept"}
    assert json.loads((patient.folder / "quarantine" / "run.json.1").read_bytes()) == hurt


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff"])
def test_a_run_json_that_is_gone_is_put_together_and_lets_nobody_in(patient: Patient, content: bytes | None) -> None:
    file = patient.folder / "run.json"
    asked = json.loads(file.read_bytes())
    file.unlink()
    if content is not None:
        file.touch(0o600)
        file.write_bytes(content)
    seen = healed(patient, "missing_run_json" if content is None else "damaged_run_json")
    assert "tokenHash" in seen["findings"][0]["message"]
    found = json.loads(file.read_bytes())
    assert {key: found[key] for key in ("runId", "agentName", "task", "name", "createdAt")} == {
        key: asked[key] for key in ("runId", "agentName", "task", "name", "createdAt")
    }
    assert (found["tokenHash"], found["cwd"]) == ("", "")


def test_a_run_json_of_a_newer_release_or_with_a_folder_that_is_not_utf8_is_left_alone(patient: Patient) -> None:
    file = patient.folder / "run.json"
    asked = json.loads(file.read_bytes())
    file.write_bytes(codec.document(asked | {"cwd": "/tmp/\udcff"}))
    nothing_left(patient)
    file.write_bytes(codec.document(asked | {"version": 2}))
    before = file.read_bytes()
    found = doctor.check(patient.desk, fix=True)
    assert [(finding["code"], finding["severity"]) for finding in found["findings"]] == [("newer_run_json", "warning")]
    assert file.read_bytes() == before


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("name", [*FILES, "quarantine"])
def test_a_link_that_leads_out_is_put_aside_and_what_it_leads_to_is_not_touched(patient: Patient, name: str) -> None:
    outside = patient.root.parent / "outside"
    outside.write_bytes(b"{}")
    path = patient.folder / name
    path.unlink(missing_ok=True)
    path.symlink_to(outside)
    if name == "quarantine":
        found = doctor.check(patient.desk, fix=True)
        assert [(finding["code"], finding["fix"]) for finding in found["findings"]] == [("leads_out", None)]
        assert doctor.damaged(found)
    else:
        healed(patient, "leads_out")
        assert os.readlink(patient.folder / "quarantine" / f"{name}.1") == str(outside)
        same_conversation(patient.now(), patient.well)
    assert outside.read_bytes() == b"{}"


def test_a_run_that_is_a_link_out_of_the_directory_is_said_and_not_followed(patient: Patient) -> None:
    other = "0190a000-0000-7000-8000-00000000beef"
    (patient.root / other).symlink_to(patient.copy)
    before = snapshot(patient.copy)
    found = doctor.check(patient.desk, fix=True)
    assert [(finding["runId"], finding["code"]) for finding in found["findings"]] == [(other, "leads_out")]
    assert doctor.damaged(found)
    assert snapshot(patient.copy) == before


def test_modes_that_let_others_in_are_warned_of_and_set_right(patient: Patient) -> None:
    opened = [patient.root, patient.root / ".index" / "active", patient.folder, patient.folder / ".meta.json"]
    for path in opened:
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    (patient.root / ".locks" / f"{patient.run_id}.lock").chmod(0o666)
    seen = healed(patient, "open_modes")
    assert [(finding["runId"], finding["severity"]) for finding in seen["findings"]] == [
        (None, "warning"),
        (patient.run_id, "warning"),
    ]
    assert [oct(path.stat().st_mode & 0o777) for path in opened] == ["0o700", "0o700", "0o700", "0o600"]


def test_what_crashes_left_behind_is_removed_once_it_is_old(patient: Patient) -> None:
    unborn = patient.root / ".new-0190a000-0000-7000-8000-00000000dead"
    unborn.mkdir(mode=0o700)
    (unborn / "quarantine").mkdir()
    leftovers = [patient.root / "x.1.tmp", patient.root / ".index" / "seen.2.tmp", patient.folder / ".meta.json.3.tmp"]
    for path in leftovers:
        path.touch(0o600)
    assert codes(doctor.check(patient.desk, fix=True)) == ["temporary_files"]
    assert [path.exists() for path in (unborn, *leftovers)] == [True, True, True, False]
    for path in (unborn, *leftovers[:2]):
        os.utime(path, (1, 1))
    healed(patient, "unborn_runs", "temporary_files")
    assert not any(path.exists() for path in (unborn, *leftovers))


def test_a_removal_that_was_cut_off_is_finished(patient: Patient) -> None:
    gone = "0190a000-0000-7000-8000-00000000dead"
    shutil.copytree(patient.folder, patient.root / f".trash-{gone}")
    (patient.root / ".index" / "active" / gone).touch(0o600)
    healed(patient, "trash", "stale_entries")
    assert patient.desk.runs.all() == patient.desk.runs.index.active() == [patient.run_id]


def test_strangers_in_the_directory_are_noted_and_left_alone(patient: Patient) -> None:
    (patient.root / "notes.txt").write_text("mine")
    (patient.root / "0190a000-0000-7000-8000-00000000feed").write_text("a file")
    (patient.root / f"{patient.run_id}.meta.json").symlink_to(patient.folder / ".meta.json")
    found = doctor.check(patient.desk, fix=True)
    assert [(finding["code"], finding["severity"]) for finding in found["findings"]] == [("stray", "note")] * 2
    assert not doctor.damaged(found)
    assert (patient.root / "notes.txt").read_text() == "mine"


def test_index_entries_that_lead_to_no_run_are_removed(patient: Patient) -> None:
    gone = "0190a000-0000-7000-8000-00000000dead"
    index = patient.root / ".index"
    entries = [
        index / "active" / gone,
        index / "names" / "tidy" / gone,
        index / "children" / gone / gone,
        index / "questions" / "q1",
        index / "keys" / "0123",
    ]
    for path in entries:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.write_text(gone if path.parent.name in ("questions", "keys") else "")
        path.chmod(0o600)
    (patient.root / f".new-{gone}").mkdir(0o700)
    (index / "children").chmod(0o700)
    # As long as the run is being made, its entries are there for it.
    nothing_left(patient)
    (patient.root / f".new-{gone}").rmdir()
    healed(patient, "stale_entries")
    assert not any(path.exists() for path in entries)


def test_a_run_that_the_index_does_not_know_is_entered(patient: Patient) -> None:
    shutil.rmtree(patient.root / ".index")
    healed(patient, "missing_entries")
    index = patient.desk.runs.index
    assert index.active() == index.named("tidy") == [patient.run_id]
    assert {index.asker(message_id) for message_id in patient.well.questions} == {patient.run_id}


def test_look_ups_that_name_the_wrong_run_are_set_right(patient: Patient, clock: StillClock) -> None:
    clock.wait()
    other = runs.create(patient.desk, "helper", "Other")["runId"]
    clock.wait()
    last = runs.create(patient.desk, "helper", "Last", name="last")["runId"]
    index = patient.root / ".index"
    (index / "questions" / patient.waiting).write_text(other)
    for path in (index / "names" / "tidy" / last, index / "questions" / "q9"):
        path.write_text(last if path.name == "q9" else "")
        path.chmod(0o600)
    runs.update(patient.desk, other, "success")
    (index / "active" / other).touch(0o600)
    healed(patient, "wrong_entries", "missing_entries")
    assert patient.desk.runs.index.asker(patient.waiting) == patient.run_id
    assert patient.desk.runs.index.named("tidy") == [patient.run_id]
    assert other not in patient.desk.runs.index.active()


def test_a_copy_of_a_run_may_share_its_questions(patient: Patient) -> None:
    copy = patient.root / "0190a000-0000-7000-8000-00000000c0c0"
    shutil.copytree(patient.folder, copy)
    assert not doctor.damaged(doctor.check(patient.desk, fix=True))
    nothing_left(patient)


@pytest.mark.usefixtures("hasty")
def test_a_busy_run_is_a_warning_and_does_not_keep_the_others_waiting(patient: Patient, clock: StillClock) -> None:
    (patient.folder / ".meta.json").write_bytes(b"{")
    hasty_desk = open_context({"runs_dir": str(patient.root), "lock_timeout": "20ms"}, clock)
    with open(patient.root / ".locks" / f"{patient.run_id}.lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = doctor.check(hasty_desk, fix=True)
    assert [(finding["code"], finding["severity"]) for finding in found["findings"]] == [("busy", "warning")]
    assert (patient.folder / ".meta.json").read_bytes() == b"{"
    assert not doctor.damaged(doctor.check(hasty_desk, fix=True))


@pytest.mark.usefixtures("hasty")
def test_a_place_that_cannot_be_written_is_said_together_with_what_can_be_seen(patient: Patient) -> None:
    shutil.rmtree(patient.root / ".locks")
    (patient.root / ".locks").touch(0o600)
    (patient.folder / ".meta.json").write_bytes(b"{")
    # A lock file that was opened before would still do, so this is another spelling of the same place.
    desk = open_context({"runs_dir": f"{patient.root}/."}, patient.desk.clock)
    found = doctor.check(desk, fix=True)
    assert codes(found) == ["not_writable", "damaged_meta"]
    assert doctor.damaged(found)


def test_beside_busy_writers_nothing_is_taken_for_damage_and_nothing_is_lost(runs_dir: Path) -> None:
    desk = open_context({"runs_dir": str(runs_dir)})
    run_id = runs.create(desk, "helper", "Do it")["runId"]
    with children(*[("asks", runs_dir, run_id, 100)] * 2) as writers:
        ready(*writers)
        go(*writers)
        while any(writer.poll() is None for writer in writers):
            assert doctor.check(desk, fix=True)["findings"] == []
        told = [message_id for writer in writers for message_id in ended(writer)]
    assert len(told) == 200
    assert set(told) == set(Runs(str(runs_dir)).read(run_id, desk.clock.now()).questions)
    assert doctor.check(desk) == {"checked": 1, "findings": []}


@pytest.mark.usefixtures("hasty")
def test_mending_that_fails_is_said_and_what_is_damaged_stays_so(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (patient.folder / ".meta.json").write_bytes(b"{")
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "create", full)
        found = doctor.check(patient.desk, fix=True)
    assert [(finding["code"], finding["fixed"]) for finding in found["findings"]] == [
        ("damaged_meta", False),
        ("not_mended", False),
    ]
    assert "No space left" in found["findings"][1]["message"]
    assert doctor.damaged(found)
    healed(patient, "damaged_meta")


def test_a_run_that_vanishes_while_it_is_looked_at_is_not_called_lost(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists, asked = Runs.exists, list[str]()

    def removed(runs: Runs, run_id: str) -> bool:
        found = exists(runs, run_id)
        asked.append(run_id)
        shutil.rmtree(patient.folder, ignore_errors=True)
        return found

    monkeypatch.setattr(Runs, "exists", removed)
    assert [code for code in codes(doctor.check(patient.desk)) if code != "stale_entries"] == []
    assert asked


def test_a_file_system_without_locks_is_damage(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    found = doctor.check(patient.desk)
    assert codes(found) == ["no_locks"]
    assert doctor.damaged(found)


def test_what_the_machine_lacks_is_a_note(patient: Patient, clock: StillClock, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now._replace(boot=""))
    monkeypatch.setattr(Watch, "polling", property(lambda _: True))
    found = doctor.check(patient.desk)
    assert [(finding["code"], finding["severity"]) for finding in found["findings"]] == [
        ("no_boot_id", "note"),
        ("no_inotify", "note"),
    ]


@pytest.mark.parametrize("days", [-2, 2])
def test_a_clock_that_is_days_off_is_a_warning(patient: Patient, clock: StillClock, days: int) -> None:
    clock.ms += days * DAY
    found = doctor.check(patient.desk)
    assert [(finding["code"], finding["severity"]) for finding in found["findings"]] == [("clock", "warning")]


def test_a_run_from_the_day_after_tomorrow_is_a_warning(patient: Patient, clock: StillClock) -> None:
    clock.ms += 2 * DAY
    runs.create(patient.desk, "helper", "Later")
    clock.ms -= 2 * DAY
    assert codes(doctor.check(patient.desk)) == ["clock"]


@pytest.mark.parametrize(("names", "kind"), [(["none"], NotFound), (["../x"], InvalidInput)])
def test_a_run_that_is_not_there_is_refused(patient: Patient, names: list[str], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        doctor.check(patient.desk, names)


def test_a_directory_that_is_no_folder_or_not_there_is_refused(tmp_path: Path, clock: StillClock) -> None:
    (tmp_path / "file").touch()
    for name, kind in (("file", InvalidInput), ("nothing", NotFound)):
        with pytest.raises(kind):
            doctor.check(open_context({"runs_dir": str(tmp_path / name)}, clock))

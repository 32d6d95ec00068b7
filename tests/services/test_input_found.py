"""What the long tests of damaged and hostile input have found, each with the input that showed it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from subagent_cli.core.errors import Damaged, InvalidInput
from subagent_cli.core.moment import Moment, moment
from subagent_cli.process import stop, verdict
from subagent_cli.services import dispatches, doctor, events, groups, listing, runs, settings, specs
from subagent_cli.services.context import Context
from subagent_cli.store import codec
from subagent_cli.store.alive import Claim
from subagent_cli.store.groups import Groups
from subagent_cli.store.runs import Runs
from tests.services.desk import StillClock, create, snapshot

GROUP = "0190a000-0000-7000-8000-00000000aaaa"


def fresh(desk: Context) -> Context:
    return desk._replace(runs=Runs(desk.runs.layout.root))


def resealed(desk: Context, run_id: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Other lines in the journal of a run, with checksums that are right."""
    file = Path(desk.runs.layout.journal(run_id))
    records = [json.loads(line) for line in file.read_bytes().splitlines()]
    change(records)
    bodies = [codec.line({key: value for key, value in record.items() if key != "crc"})[:-1] for record in records]
    file.write_bytes(b"".join(body + b',"crc":"%08x"}\n' % crc32(body) for body in bodies))


WRONG: dict[str, dict[str, Any]] = {
    "a moment that is a number": {"at": 5},
    "no moment": {"at": None},
    "a clock that is a list": {"clock": []},
    "a note that is none": {"text": False},
    "a note that is a list": {"text": ["a"]},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_line_that_checks_and_makes_no_sense_is_damage_of_its_run_alone(
    foreign_desk: Context, foreign_runs: Path, what: str
) -> None:
    foreign_runs.chmod(0o700)
    good, bad = create(foreign_desk), create(foreign_desk)
    runs.update(foreign_desk, bad, "running", "Half way.")
    resealed(foreign_desk, bad, lambda records: records.append({"seq": 3, **TOLD, **WRONG[what]}))
    desk = fresh(foreign_desk)
    for look in (runs.status, events.read):
        with pytest.raises(Damaged, match=bad):
            look(desk, bad)
    rows, faults = listing.find(desk)
    assert [row["runId"] for row in rows] == [good]
    assert [bad in fault.message for fault in faults] == [True]
    assert all(finding["fixed"] for finding in doctor.check(fresh(foreign_desk), [bad], fix=True)["findings"])
    assert runs.status(fresh(foreign_desk), bad)["summary"] == "Half way."


TOLD = {"at": "2026-01-02T03:04:05.678Z", "clock": "", "type": "told", "text": "A note.", "meta": "1-0"}


@pytest.mark.parametrize("change", [{"seq": "2"}, {"seq": None}, {"meta": ["x"]}, {"origin": {}}], ids=repr)
def test_what_stands_about_an_event_is_checked_before_it_is_saved(
    foreign_desk: Context, foreign_runs: Path, change: dict[str, Any]
) -> None:
    foreign_runs.chmod(0o700)
    run_id = create(foreign_desk)
    runs.update(foreign_desk, run_id, "running", "Half way.")
    resealed(foreign_desk, run_id, lambda records: records[1].update(change))
    found = doctor.check(fresh(foreign_desk), [run_id], fix=True)["findings"]
    assert all(finding["fixed"] for finding in found), found
    assert doctor.check(fresh(foreign_desk), [run_id])["findings"] == []
    assert runs.status(fresh(foreign_desk), run_id)["summary"] == "Half way."


def test_a_clock_of_thousands_of_digits_is_no_clock() -> None:
    assert moment("2026-01-02T03:04:05.678Z", "b0071d00+" + "9" * 5000) == Moment(1_767_323_045_678)


def test_a_field_with_half_a_character_is_named_in_words_that_can_be_printed() -> None:
    with pytest.raises(InvalidInput) as caught:
        dispatches.request_from({"mode": "ad_hoc", "instructions": "x", "\ud800": 1})
    assert "\\ud800 is no field" in caught.value.message.encode().decode()


@pytest.mark.parametrize("text", ["0" * 8 + "1" + "9" * 5000, "0" * 8 + "199999"])
def test_a_number_of_many_digits_is_no_small_one_because_it_begins_like_one(text: str) -> None:
    with pytest.raises(InvalidInput):
        settings.load({"max_depth": text})


def test_a_key_with_half_a_character_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        specs.key_digest("create", "\ud800", None)
    assert caught.value.code == "not_utf8"


@pytest.mark.parametrize("line", ["9" * 5000 + " 1", "\u00b2 1", "-1 1", "1e3 1", "", "\0 \0"], ids=ascii)
def test_a_keeper_is_not_ended_by_what_a_child_says_of_its_own(desk: Context, line: str) -> None:
    parent = create(desk)
    child, claim = create(desk), Claim()
    desk.runs.index.enter(child, name=None, parent_id=parent, key_digest=None)
    assert claim.take(desk.runs.layout.alive(child))
    orders = {"root": desk.runs.layout.root, "run": parent, "ttl": 1000}
    own = (os.getpid(), stop.start_of(os.getpid()))
    os.write(claim.fd, f"{line}\n".encode())
    assert verdict.other_keepers(orders) == []
    os.write(claim.fd, f"{own[0]} {own[1]}\n".encode())
    assert verdict.other_keepers(orders) == [own]
    claim.drop()


def keyed(desk: Context) -> str:
    run_id: str = runs.create(desk, "helper", "Do it", key="once")["runId"]
    return run_id


@pytest.mark.parametrize("left", [b"\0" * 36, b"0190", b"\xff"])
def test_a_retry_over_a_damaged_entry_of_its_key_is_refused_until_the_doctor_has_been(
    desk: Context, runs_dir: Path, left: bytes
) -> None:
    run_id = keyed(desk)
    [entry] = (runs_dir / ".index" / "keys").iterdir()
    entry.write_bytes(left)
    with pytest.raises(Damaged) as caught:
        keyed(desk)
    assert caught.value.code == "damaged_index"
    found = doctor.check(desk, [run_id], fix=True)["findings"]
    assert [(finding["code"], finding["fixed"]) for finding in found] == [("missing_entries", True)]
    assert keyed(desk) == run_id
    assert desk.runs.all() == [run_id]


def test_an_empty_entry_of_a_key_is_written_anew_by_the_doctor(desk: Context, runs_dir: Path) -> None:
    run_id = keyed(desk)
    [entry] = (runs_dir / ".index" / "keys").iterdir()
    entry.write_bytes(b"")
    doctor.check(desk, [run_id], fix=True)
    assert entry.read_text() == keyed(desk) == run_id


def test_the_entry_of_a_key_lasts_before_its_run_appears(
    desk: Context, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    keyed(desk)
    keys = runs_dir / ".index" / "keys"
    [entry] = keys.iterdir()
    assert synced.index(str(entry)) < synced.index(str(keys)) < synced.index(str(runs_dir), synced.index(str(keys)))


def grouped(desk: Context) -> str:
    """A run that belongs to a group."""
    spec = {**specs.new_spec(desk, "helper", "Be one", "0" * 64, cwd="/", name=None), "groupId": GROUP}
    desk.runs.create(spec, "Be one", "running", desk.clock.now())
    child = {"runId": spec["runId"], "agentName": "helper", "task": "Be one"}
    record = {"version": 1, "groupId": GROUP, "parentId": None, "deadlineSeconds": 5.0, "children": [child]}
    Groups(desk.runs.layout).create({**record, "createdAt": spec["createdAt"], "keyDigest": "0" * 32})
    run_id: str = spec["runId"]
    return run_id


@pytest.mark.parametrize("damaged", [b"", b'{"version": 1, "chi', b"[]", b"\0" * 300, b'{"children": [{"runId": 5}]}'])
def test_a_damaged_record_of_a_group_is_put_together_from_its_runs(
    desk: Context, runs_dir: Path, clock: StillClock, damaged: bytes
) -> None:
    run_id = grouped(desk)
    before = groups.status(desk, GROUP)
    file = runs_dir / ".groups" / f"{GROUP}.json"
    file.write_bytes(damaged)
    with pytest.raises(Damaged):
        groups.status(desk, GROUP)
    unchanged = snapshot(runs_dir, locks=False)
    seen = [finding for finding in doctor.check(desk)["findings"] if finding["code"] == "damaged_group"]
    assert [(finding["severity"], finding["fixed"]) for finding in seen] == [("damage", False)]
    assert snapshot(runs_dir, locks=False) == unchanged
    mended = doctor.check(desk, fix=True)["findings"]
    assert ("damaged_group", True) in [(finding["code"], finding["fixed"]) for finding in mended]
    assert {**groups.status(desk, GROUP), "deadline_seconds": 5.0} == before
    assert before["pending"] == [run_id]
    keyed_group = Groups(desk.runs.layout).keyed("0" * 32)
    assert keyed_group is not None
    assert keyed_group["groupId"] == GROUP
    assert (runs_dir / ".groups" / f"{GROUP}.json.damaged-1").read_bytes() == damaged
    assert not [finding for finding in doctor.check(desk)["findings"] if finding["code"] == "damaged_group"]


def test_a_damaged_record_of_a_group_that_has_no_run_is_left_as_it_is(desk: Context, runs_dir: Path) -> None:
    create(desk)
    file = runs_dir / ".groups" / f"{GROUP}.json"
    file.parent.mkdir(0o700)
    file.touch(0o600)
    found = [finding for finding in doctor.check(desk, fix=True)["findings"] if finding["code"] == "damaged_group"]
    assert [(finding["fix"], finding["fixed"]) for finding in found] == [(None, False)]
    assert file.read_bytes() == b""


@pytest.mark.parametrize("kind", ["questions", "keys"])
def test_an_entry_that_leads_to_itself_keeps_the_doctor_from_nothing(desk: Context, runs_dir: Path, kind: str) -> None:
    create(desk)
    folder = runs_dir / ".index" / kind
    folder.mkdir(0o700, exist_ok=True)
    (folder / "loop").symlink_to("loop")
    assert doctor.check(desk, fix=True)["checked"] == 1

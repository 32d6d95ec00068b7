"""The doctor and what agents give and write each other: tampering is said and never mended, the index is brought in
order, and runs that go or come take their grants along."""

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pytest

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import Damaged, NotFound
from subagent_cli.core.grant import CAPABILITIES, OPERATOR, READ, SEND, held
from subagent_cli.services import archives, clean, deliveries, doctor, grants, inboxes, messages, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.settings import Caller
from subagent_cli.store import codec, journal
from subagent_cli.store.archive import Writer
from subagent_cli.store.layout import Layout
from subagent_cli.store.runs import Runs
from tests.command import Command
from tests.services.desk import StillClock, snapshot

TEXT = "Words that only a message holds."
HOUR = 3600


class Family(NamedTuple):
    """A parent, its child and a friend, who have given each other capabilities and written to each other."""

    desk: Context
    root: Path
    parent: str
    child: str
    friend: str
    message: str
    reply: str

    @property
    def layout(self) -> Layout:
        return self.desk.runs.layout

    def acting(self, run_id: str) -> Context:
        return self.desk._replace(caller=Caller(run_id, "its token"))

    def file(self, message_id: str) -> Path:
        return Path(self.layout.message(message_id))

    def end(self) -> None:
        for run_id in (self.child, self.friend, self.parent):
            runs.update(self.desk, run_id, "success", "Done.")


@pytest.fixture
def clock() -> StillClock:
    """As late as the files that the tests write."""
    return StillClock(int(time.time() * 1000))


@pytest.fixture
def family(desk: Context, runs_dir: Path) -> Family:
    parent = runs.create(desk, "helper", "All of it")["runId"]
    as_parent = desk._replace(caller=Caller(parent, "its token"))
    child = runs.create(as_parent, "helper", "A part")["runId"]
    friend = runs.create(desk, "helper", "Another part")["runId"]
    grants.grant(as_parent, child, friend, SEND)
    grants.grant(desk, parent, child, READ, lasts=5000)
    sent = deliveries.send(as_parent, child, schema="plaintext", content=json.dumps({"text": TEXT}))["message_id"]
    as_child = desk._replace(caller=Caller(child, "its token"))
    runs.update(desk, parent, "success", "Idle.")
    reply = messages.put(as_child, "plaintext", '{"text": "I see."}', in_reply_to=sent)["message_id"]
    return Family(desk, runs_dir, parent, child, friend, sent, reply)


def codes(found: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in found["findings"]]


def checked(family: Family, *, fix: bool = False) -> dict[str, Any]:
    """The doctor with a store that remembers nothing."""
    return doctor.check(family.desk._replace(runs=Runs(str(family.root))), fix=fix)


def healed(family: Family, *expected: str) -> list[dict[str, Any]]:
    """Looks without touching, mends, and looks again; what was found the first time."""
    before = snapshot(family.root, locks=False)
    seen = checked(family)
    assert snapshot(family.root, locks=False) == before
    assert sorted(codes(seen)) == sorted(expected), seen
    assert not any(finding["fixed"] for finding in seen["findings"])
    mended = checked(family, fix=True)
    assert sorted(codes(mended)) == sorted(expected)
    assert all(finding["fixed"] for finding in mended["findings"]), mended
    assert not doctor.damaged(mended)
    nothing_left(family)
    found: list[dict[str, Any]] = seen["findings"]
    return found


def nothing_left(family: Family) -> None:
    assert checked(family) == {"checked": len(family.desk.runs.all()), "findings": []}


def test_what_agents_give_and_write_each_other_is_in_order(family: Family) -> None:
    before = snapshot(family.root, locks=False)
    nothing_left(family)
    assert checked(family, fix=True)["findings"] == []
    assert snapshot(family.root, locks=False) == before


def test_what_has_run_out_is_no_fault(family: Family, clock: StillClock) -> None:
    clock.wait(60_000)
    assert grants.listed(family.desk, family.parent) == []
    nothing_left(family)


@pytest.mark.case("C3-18")
def test_what_was_taken_back_is_no_fault(family: Family) -> None:
    grants.revoke(family.acting(family.parent), family.child, family.friend, SEND)
    nothing_left(family)


def edited(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"Words", b"Wards"))


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def longer(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")


def sealed_under_another_name(file: Path) -> None:
    other = next(path for path in file.parent.iterdir() if path != file)
    file.write_bytes(other.read_bytes())


def linked(file: Path) -> None:
    copy = file.parent.parent.parent / "copy"
    copy.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(copy)


def made_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir(0o700)


def made_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


TAMPERINGS = [edited, cut_off, emptied, longer, sealed_under_another_name, linked, made_a_folder, made_a_pipe]


@pytest.mark.case("C3-25")
@pytest.mark.limit(5)
@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_a_message_that_somebody_changed_is_damage_that_nothing_mends(
    family: Family, tamper: Callable[[Path], None]
) -> None:
    file = family.file(family.message)
    file.chmod(0o600)
    tamper(file)
    left = snapshot(family.root, locks=False) if not file.is_fifo() else None
    for fix in (False, True, False):
        found = checked(family, fix=fix)
        [finding] = found["findings"]
        assert (finding["runId"], finding["code"], finding["severity"]) == (None, "tampered_messages", "damage")
        assert (finding["fix"], finding["fixed"]) == (None, False)
        assert f".messages/{file.name}" in finding["message"]
        assert family.reply not in finding["message"]
        assert doctor.damaged(found)
    assert left is None or snapshot(family.root, locks=False) == left


@pytest.mark.case("C3-25")
def test_the_doctor_ends_as_for_any_damage(family: Family, cli: Command) -> None:
    family.file(family.message).chmod(0o600)
    edited(family.file(family.message))
    done = cli("doctor", "--fix")
    assert (done.code, done.err) == (8, "3 runs checked: 1 damaged\n")
    assert family.message in done.out


def test_of_many_messages_that_were_changed_some_are_named_and_all_are_counted(family: Family) -> None:
    made = [messages.put(family.desk, "plaintext", '{"text": "x"}')["message_id"] for _ in range(15)]
    for message_id in made:
        family.file(message_id).chmod(0o600)
        family.file(message_id).write_bytes(b"{}")
    [finding] = checked(family)["findings"]
    assert sum(message_id in finding["message"] for message_id in made) == 10
    assert finding["message"].endswith(" and 5 more")


@pytest.mark.case("C3-28")
def test_a_reply_that_the_index_does_not_know_is_entered(family: Family) -> None:
    Path(family.layout.reply_mark(family.message, family.reply)).unlink()
    assert messages.listed(family.desk, in_reply_to=family.message) == ([], [])
    assert [item["replied"] for item in inboxes.listed(family.desk, family.child)] == [False]
    [finding] = healed(family, "missing_replies")
    assert (finding["severity"], finding["fix"]) == ("warning", "entered")
    assert [found["id"] for found in messages.listed(family.desk, in_reply_to=family.message)[0]] == [family.reply]
    assert [item["replied"] for item in inboxes.listed(family.desk, family.child)] == [True]


@pytest.mark.parametrize("folder", [".messages", ".groups"])
def test_a_temporary_file_is_removed_when_it_is_an_hour_old(family: Family, folder: str) -> None:
    (family.root / folder).mkdir(0o700, exist_ok=True)
    file = family.root / folder / f"{family.desk.clock.new_id()}.json.tmp"
    file.write_bytes(b"{")
    file.chmod(0o600)
    now = time.time()
    os.utime(file, (now - HOUR + 60,) * 2)
    assert checked(family, fix=True)["findings"] == []
    assert file.exists()
    os.utime(file, (now - HOUR - 60,) * 2)
    [finding] = healed(family, "temporary_files")
    assert (finding["severity"], finding["fix"]) == ("note", "removed")
    assert f"{folder}/{file.name}" in finding["message"]
    assert not file.exists()
    assert messages.show(family.desk, family.message)["content"] == {"text": TEXT}


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o500])
def test_a_folder_of_messages_that_lets_others_in_is_closed_and_its_files_stay_as_they_are(
    family: Family, mode: int
) -> None:
    folder = family.root / ".messages"
    folder.chmod(mode)
    [finding] = healed(family, "open_modes")
    assert ".messages" in finding["message"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o400}


def test_entries_of_grants_that_let_others_in_are_closed(family: Family) -> None:
    opened = [
        Path(family.layout.grant_marks(family.parent)),
        Path(family.layout.grant_mark(family.parent, family.child)),
        Path(family.layout.reply_mark(family.message, family.reply)),
    ]
    for path in opened:
        path.chmod(0o755 if path.is_dir() else 0o644)
    healed(family, "open_modes")
    assert [path.stat().st_mode & 0o777 for path in opened] == [0o700, 0o600, 0o600]


def test_a_grant_that_the_index_does_not_know_is_entered(family: Family) -> None:
    marks = [(family.parent, family.child), (family.friend, family.child), (family.child, family.parent)]
    for grantee, run_id in marks:
        Path(family.layout.grant_mark(grantee, run_id)).unlink()
    assert grants.listed(family.acting(family.friend)) == []
    found = healed(family, "missing_entries", "missing_entries")
    assert {finding["runId"] for finding in found} == {family.child, family.parent}
    for grantee, run_id in marks:
        assert family.desk.runs.index.granted(grantee) == [run_id]
    assert [row["target"] for row in grants.listed(family.acting(family.friend))] == [family.child]


def test_an_entry_for_a_grant_that_nobody_gave_gives_nothing(family: Family) -> None:
    Path(family.layout.grant_mark(family.friend, family.parent)).touch(0o600)
    nothing_left(family)
    friend = family.acting(family.friend)
    assert [row["target"] for row in grants.listed(friend)] == [family.child]
    with pytest.raises(NotFound):
        runs.status(friend, family.parent)


def test_entries_for_grants_on_a_run_that_is_gone_are_removed(family: Family) -> None:
    gone = family.desk.clock.new_id()
    Path(family.layout.grant_mark(family.friend, gone)).touch(0o600)
    healed(family, "stale_entries")
    assert family.desk.runs.index.granted(family.friend) == [family.child]


ORDERS = {
    "child first": ["child", "parent", "friend"],
    "friend first": ["friend", "child", "parent"],
    "family first": ["parent", "friend"],
}


def entered(family: Family) -> set[str]:
    """Everything in the index that has to do with grants, folders too."""
    folder = Path(family.layout.grants)
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("order", ORDERS)
def test_a_run_that_is_removed_takes_the_entries_for_its_grants_along(family: Family, order: str) -> None:
    family.end()
    for who in ORDERS[order]:
        run_id = getattr(family, who)
        assert any(entry.endswith(f"/{run_id}") for entry in entered(family)) == (who != "friend")
        clean.delete(family.desk, clean.plan(family.desk, [run_id]))
        assert not any(entry.endswith(f"/{run_id}") for entry in entered(family))
        nothing_left(family)
    assert family.desk.runs.all() == []
    # What was written stays.
    assert messages.show(family.desk, family.message)["content"] == {"text": TEXT}


@pytest.mark.parametrize("order", ORDERS)
def test_when_all_runs_are_gone_no_folder_for_their_grants_is_left(family: Family, order: str) -> None:
    family.end()
    for who in ORDERS[order]:
        clean.delete(family.desk, clean.plan(family.desk, [getattr(family, who)]))
    assert entered(family) == set()


def exported(desk: Context, *names: str) -> io.BytesIO:
    file = io.BytesIO()
    archives.export(desk, names, file)
    file.seek(0)
    return file


def table(desk: Context, run_id: str) -> set[tuple[str, str, str, int | None]]:
    rows = desk.runs.read(run_id, desk.clock.now()).grants.values()
    return {(row.grantor, row.grantee, row.capability, row.lasts) for row in rows}


def same_under_new_ids(desk: Context, old: str, new: str, ids: dict[str, str]) -> None:
    """Every grant and every delivery of a run that has come in, as it was, under the ids that are new."""
    expected = {(ids.get(by, by), ids.get(to, to), *rest) for by, to, *rest in table(desk, old)}
    assert table(desk, new) == expected
    before, after = (list(desk.runs.read(one, desk.clock.now()).inbox.values()) for one in (old, new))
    for was, now in ids.items():
        before = [item._replace(text=item.text.replace(was, now)) for item in before]
    assert [item._replace(sender=ids.get(item.sender, item.sender)) for item in before] == after


def test_a_parent_and_its_child_that_come_in_anew_have_their_grants_on_each_other(
    family: Family, clock: StillClock
) -> None:
    desk, was = family.desk, [table(family.desk, run_id) for run_id in (family.parent, family.child)]
    data = exported(desk, family.parent, family.child)
    # They have gone on since, and so are not the same any more.
    for run_id in (family.parent, family.child):
        desk.runs.change(run_id, wanted.Report("completed", "Later."), clock.now)
    ids = {item["from"]: item["runId"] for item in archives.take_in(desk, data, renew=True)["imported"]}
    parent, child = ids[family.parent], ids[family.child]
    assert len({parent, child, family.parent, family.child}) == 4
    same_under_new_ids(desk, family.parent, parent, ids)
    same_under_new_ids(desk, family.child, child, ids)
    assert {(row[0], row[1]) for row in table(desk, child)} == {(parent, parent), (parent, family.friend)}
    assert {(row[0], row[1], row[3]) for row in table(desk, parent)} == {(OPERATOR, child, 5000)}
    assert [table(desk, run_id) for run_id in (family.parent, family.child)] == was
    now, rows = clock.now(), desk.runs.read(child, clock.now()).grants
    assert (held(rows, parent, now), held(rows, family.parent, now)) == (set(CAPABILITIES), set())
    assert desk.runs.index.granted(parent) == [child]
    assert desk.runs.index.granted(child) == [parent]
    assert set(desk.runs.index.granted(family.friend)) == {family.child, child}
    for agent, target in ((family.parent, family.child), (parent, child)):
        assert {row["target"] for row in grants.listed(family.acting(agent)) if row["grantee"] == agent} == {target}
    nothing_left(family)


def test_the_journals_of_renewed_runs_name_none_of_the_old_ids(family: Family, runs_dir: Path) -> None:
    data = exported(family.desk, family.parent, family.child)
    grants.revoke(family.desk, family.child, family.friend, SEND, everything=True)
    runs.update(family.desk, family.parent, "completed")
    done = archives.take_in(family.desk, data, renew=True)["imported"]
    ids = {item["from"]: item["runId"] for item in done}
    for run_id in ids.values():
        for line in (runs_dir / run_id / "journal.jsonl").read_bytes().splitlines():
            named = {key: value for key, value in json.loads(line).items() if key != "text"}
            assert not set(ids) & set(map(str, named.values())), named
        assert not set(ids) & set(map(str, family.desk.runs.spec(run_id).values()))


def test_runs_follow_one_that_is_renewed_alone(family: Family, tmp_path: Path, clock: StillClock) -> None:
    desk, as_parent = family.desk, family.acting(family.parent)
    # One on which it has rows and nothing came from it, and one to which it wrote and has no rows any more.
    quiet = runs.create(as_parent, "helper", "In silence")["runId"]
    grants.grant(desk, family.friend, family.parent, SEND)
    deliveries.send(as_parent, family.friend, family.message)
    grants.revoke(desk, family.friend, family.parent, SEND)
    elsewhere = open_context({"runs_dir": str(tmp_path / "elsewhere")}, clock)
    archives.take_in(elsewhere, exported(desk, family.parent))
    runs.update(desk, family.parent, "completed")
    done = archives.take_in(elsewhere, exported(desk, *desk.runs.all()), renew=True)["imported"]
    ids = {item["from"]: item["runId"] for item in done}
    assert [old for old, new in ids.items() if old != new] == [family.parent]
    parent, now = ids[family.parent], clock.now()
    for child in (family.child, quiet):
        rows = elsewhere.runs.read(child, now).grants
        assert (held(rows, parent, now), held(rows, family.parent, now)) == (set(CAPABILITIES), set())
    assert set(elsewhere.runs.index.granted(parent)) == {family.child, quiet}
    assert elsewhere.runs.read(family.friend, now).grants == {}
    for receiver in (family.child, family.friend):
        [delivery] = elsewhere.runs.read(receiver, now).inbox.values()
        assert (delivery.message_id, delivery.sender) == (family.message, parent)
    assert doctor.check(elsewhere)["findings"] == []


def test_what_was_taken_back_does_not_come_in_again(family: Family, tmp_path: Path, clock: StillClock) -> None:
    grants.revoke(family.acting(family.parent), family.child, family.friend, SEND)
    elsewhere = open_context({"runs_dir": str(tmp_path / "elsewhere")}, clock)
    archives.take_in(elsewhere, exported(family.desk, family.child))
    assert table(elsewhere, family.child) == {(family.parent, family.parent, name, None) for name in CAPABILITIES}
    assert elsewhere.runs.index.granted(family.friend) == []


HOSTILE: dict[str, list[object]] = {
    "granted grantee": [7, ["x"], {"x": 1}],
    "granted grantor": [None, 7],
    "granted capability": [7, [READ]],
    "granted lasts": ["soon", [1]],
    "delivered messageId": [7, {"x": 1}],
    "delivered sender": [7, ["x"]],
    "delivered text": [7, {"x": 1}],
    "delivered sha256": [7],
    "delivered inReplyTo": [7],
}


@pytest.mark.parametrize(("where", "value"), [(where, value) for where, some in HOSTILE.items() for value in some])
def test_an_archive_with_grants_or_messages_that_are_none_is_refused(
    family: Family, tmp_path: Path, clock: StillClock, where: str, value: object
) -> None:
    kind, key = where.split()
    file = family.root / family.child / "journal.jsonl"
    records = journal.committed(file.read_bytes())[0]
    assert {record["type"] for record in records} == {"created", "granted", "delivered"}
    file.write_bytes(sealed_lines(records))
    here = open_context({"runs_dir": str(tmp_path / "here")}, clock)
    assert archives.take_in(here, packed(family, family.child))["imported"]
    file.write_bytes(sealed_lines([{**record, key: value} if record["type"] == kind else record for record in records]))
    elsewhere = open_context({"runs_dir": str(tmp_path / "elsewhere")}, clock)
    with pytest.raises(Damaged):
        archives.take_in(elsewhere, packed(family, family.child))
    assert elsewhere.runs.all() == []


def packed(family: Family, run_id: str) -> io.BytesIO:
    """An archive of a run as it lies there, whatever is in it."""
    file = io.BytesIO()
    with Writer(file) as writer:
        writer.add(family.layout, run_id)
        writer.finish(family.desk.clock.now().iso)
    file.seek(0)
    return file


def sealed_lines(records: list[dict[str, Any]]) -> bytes:
    """Journal lines as our own, whatever stands in them."""
    lines = []
    for record in records:
        text = codec.line({key: value for key, value in record.items() if key != "crc"})[:-1]
        lines.append(text + b',"crc":"%08x"}\n' % crc32(text))
    return b"".join(lines)

"""Archives: what comes from outside is believed in nothing, and what it holds appears whole or not at all."""

import errno
import io
import json
import os
import random
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Damaged, Failed, InvalidInput, Refused, SubagentError
from subagent_cli.services import archives, questions
from subagent_cli.services.context import Context
from subagent_cli.store import archive, atomic
from tests.store.world import DAY, PATIENCE, START, FakeClock, everything, new_run, open_at

RUN = "0190a000-0000-7000-8000-00000000f0f0"
OTHER = "0190a000-0000-7000-8000-00000000f0f1"
BLANK = b'{"runId":"' + RUN.encode() + b'","status":"running"}'

KILLED = """
import os, signal, sys
from subagent_cli.services import archives
from subagent_cli.services.context import open_context
from subagent_cli.store import runs as store
root, file, place = sys.argv[1:]
store.reached = lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == place else None
archives.take_in(open_context({"runs_dir": root}), file)
"""

Entry = tuple[str | zipfile.ZipInfo, bytes]


def manifest(*runs: str, **changes: Any) -> Entry:
    about = {"format": "subagent-archive", "version": 1, "runs": list(runs or (RUN,)), "exportedAt": "now"} | changes
    return "manifest.json", json.dumps(about).encode()


def packed(*entries: Entry, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        for name, data in entries:
            target.writestr(name, data)
    return file.getvalue()


def meta(run_id: str = RUN) -> Entry:
    return f"{run_id}/.meta.json", BLANK


def with_name(name: str) -> bytes:
    return packed(manifest(), meta(), (name, b"x"))


def with_mode(mode: int) -> bytes:
    entry = zipfile.ZipInfo(f"{RUN}/log")
    entry.external_attr = mode << 16
    return packed(manifest(), meta(), (entry, b"/etc/passwd"))


def doubled(*entries: Entry) -> bytes:
    with pytest.warns(UserWarning, match="Duplicate"):
        return packed(*entries)


def patched(field: int, size: str, value: int, *, name: bytes = b"log") -> bytes:
    """A sound archive whose list of entries says something else of one of them."""
    data = bytearray(packed(manifest(), meta(), (f"{RUN}/log", b"some text\n" * 100)))
    place = data.rindex(name) - len(RUN) - 1 - 46
    struct.pack_into(size, data, place + field, value)
    return bytes(data)


def raw_name(name: bytes) -> bytes:
    placeholder = b"q" * len(name)
    return with_name(placeholder.decode()).replace(placeholder, name)


def sound() -> bytes:
    return packed(manifest(), meta())


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "a text": lambda: b"hello\n" * 100,
    "half an archive": lambda: sound()[:-30],
    "an archive without its end": lambda: sound()[:60],
    "a zip of something else": lambda: packed(("notes.txt", b"x")),
    "no manifest": lambda: packed(meta()),
    "a manifest that is no JSON": lambda: packed(("manifest.json", b"{"), meta()),
    "a manifest that is a list": lambda: packed(("manifest.json", b"[]"), meta()),
    "a manifest nested without end": lambda: packed(("manifest.json", b"[" * 200_000), meta()),
    "a manifest of another format": lambda: packed(manifest(format="tar"), meta()),
    "a manifest of a later version": lambda: packed(manifest(version=2), meta()),
    "a version that is true": lambda: packed(manifest(version="1"), meta()),
    "a manifest without runs": lambda: packed(manifest(runs=None), meta()),
    "runs that are numbers": lambda: packed(manifest(runs=[1]), meta()),
    "runs that are no ids": lambda: packed(manifest(runs=["../../etc"]), meta()),
    "a run that the manifest does not name": lambda: packed(manifest(), meta(), meta(OTHER)),
    "a run that only the manifest names": lambda: packed(manifest(RUN, OTHER), meta()),
    "a run named twice": lambda: packed(manifest(RUN, RUN), meta()),
    "a run of only a log": lambda: packed(manifest(), (f"{RUN}/log", b"")),
    "an absolute name": lambda: with_name("/etc/passwd"),
    "a way up": lambda: with_name("../evil"),
    "a way up from a run": lambda: with_name(f"{RUN}/../evil"),
    "a way up from quarantine": lambda: with_name(f"{RUN}/quarantine/../../evil"),
    "quarantine itself": lambda: with_name(f"{RUN}/quarantine/.."),
    "a file below a file of quarantine": lambda: with_name(f"{RUN}/quarantine/a/b"),
    "a backslash": lambda: with_name(f"{RUN}/quarantine/..\\evil"),
    "a control character": lambda: with_name(f"{RUN}/quarantine/a\x1b[2J"),
    "an endless name": lambda: with_name(f"{RUN}/quarantine/{'a' * 200}"),
    "an empty name in quarantine": lambda: with_name(f"{RUN}/quarantine/"),
    "a file that a run does not have": lambda: with_name(f"{RUN}/.alive"),
    "a file beside the runs": lambda: with_name("README.md"),
    "the index": lambda: with_name(".index/active/x"),
    "a folder that is no id": lambda: with_name("abc/log"),
    "a doubled slash": lambda: with_name(f"{RUN}//log"),
    "a folder": lambda: packed(manifest(), meta(), (f"{RUN}/", b"")),
    "a name that is cut off by a zero": lambda: raw_name(f"{RUN}/log\0.txt".encode()),
    "a drive": lambda: with_name("C:/log"),
    "a link": lambda: with_mode(stat.S_IFLNK | 0o777),
    "a device": lambda: with_mode(stat.S_IFCHR | 0o600),
    "a pipe": lambda: with_mode(stat.S_IFIFO | 0o600),
    "a folder by its mode": lambda: with_mode(stat.S_IFDIR | 0o700),
    "a file twice": lambda: doubled(manifest(), meta(), meta()),
    "two manifests": lambda: doubled(manifest(), meta(), manifest()),
    "ids that differ in case": lambda: packed(manifest(RUN, RUN.upper()), meta(), meta(RUN.upper())),
    "another packing": lambda: packed(manifest(), meta(), method=zipfile.ZIP_LZMA),
    "an encrypted file": lambda: patched(8, "<H", 1),
    "a packing that nobody knows": lambda: patched(10, "<H", 99),
    "a checksum that is wrong": lambda: patched(16, "<I", 12345),
    "a size that is too small": lambda: patched(24, "<I", 10),
    "a size that is too large": lambda: patched(24, "<I", 100_000),
    "a size beyond all files": lambda: patched(24, "<I", 0xFFFF_FFF0),
    "a packed size that is too small": lambda: patched(20, "<I", 3),
    "a place outside the file": lambda: patched(42, "<I", 0x7FFF_FFFF),
    "the place of another file": lambda: patched(42, "<I", 0),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "foreign" / "runs"


@pytest.fixture
def context(root: Path) -> Context:
    return open_at(root, FakeClock())


def exported(context: Context, *names: str) -> bytes:
    file = io.BytesIO()
    archives.export(context, names, file, everything=not names)
    return file.getvalue()


def other(tmp_path: Path) -> Context:
    return open_at(tmp_path / "foreign" / "elsewhere", FakeClock(START + DAY))


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_and_creates_nothing(context: Context, tmp_path: Path, kind: str) -> None:
    data = HOSTILE[kind]()
    with pytest.raises(InvalidInput) as caught:
        archives.take_in(context, io.BytesIO(data))
    assert caught.value.code in ("bad_archive", "unknown_version")
    assert list(tmp_path.rglob("*")) == []


def test_a_sound_archive_made_by_hand_is_taken(context: Context) -> None:
    assert archives.take_in(context, io.BytesIO(sound()))["imported"] == [{"runId": RUN, "from": RUN}]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_bomb_is_refused_while_it_is_read(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1_000_000)
    bombs = [(f"{RUN}/{name}", b"\0" * 600_000) for name in ("log", "prompt.md")]
    with pytest.raises(InvalidInput, match="1000000 bytes"):
        archives.take_in(context, io.BytesIO(packed(manifest(), meta(), *bombs, method=method)))
    assert list(tmp_path.rglob("*")) == []


def test_the_limits_are_a_gibibyte_and_a_hundred_thousand_entries() -> None:
    assert (archive.MOST_BYTES, archive.MOST_ENTRIES) == (1 << 30, 100_000)


def test_too_many_entries_are_refused_before_they_are_listed(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_ENTRIES", 3)
    monkeypatch.setattr(archive, "ZipFile", lambda _: pytest.fail("listed"))
    entries = [(f"{RUN}/quarantine/{number}", b"") for number in range(5)]
    with pytest.raises(InvalidInput, match="more than 3 entries"):
        archives.take_in(context, io.BytesIO(packed(manifest(), meta(), *entries)))


def test_too_many_entries_are_counted_across_the_parts_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_CHUNK", 7)
    monkeypatch.setattr(archive, "MOST_ENTRIES", 1)
    with pytest.raises(InvalidInput, match="more than 1 entries"):
        archive.Archive(io.BytesIO(sound()))


def test_what_could_not_come_in_again_does_not_go_out(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    new_run(context)
    monkeypatch.setattr(archive, "MOST_BYTES", 100)
    with pytest.raises(InvalidInput, match="too large"):
        exported(context)


def test_archives_with_random_faults_are_taken_whole_or_refused(tmp_path: Path, context: Context) -> None:
    questions.ask(context, "Which?", run=new_run(context))
    whole = exported(context)
    chance = random.Random(7)
    here = other(tmp_path)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            archives.take_in(here, io.BytesIO(data))
        except (InvalidInput, Damaged):
            assert here.runs.all() == []
        else:
            break
    assert set(here.runs.all()) <= set(context.runs.all())


@pytest.mark.parametrize(
    "line",
    [
        {"type": "asked", "messageId": 5, "question": "Which?", "timestamp": "now"},
        {"type": "asked", "messageId": "m", "question": ["Which?"], "timestamp": "now"},
        {"type": "asked", "messageId": "m", "question": "Which?", "timestamp": "now", "options": [1, 2]},
        {"type": "asked", "messageId": "m", "question": "Which?", "timestamp": "now", "deadline": "soon"},
        {"type": "asked", "question": "Which?"},
        {"type": "reported", "status": "success", "summary": 7},
        {"type": "exited", "exitCode": "none", "timestamp": "now"},
        {"type": "observed", "keys": ["a"]},
        {"type": "observed", "keys": {"status": "exploded"}},
        {"type": "told", "text": {"a": 1}},
        {"type": "invented"},
        {"type": None},
    ],
)
def test_a_journal_that_checks_and_makes_no_sense_is_damage(
    context: Context, tmp_path: Path, line: dict[str, Any]
) -> None:
    from zlib import crc32

    body = json.dumps({"seq": 1, "at": "2026-01-02T03:04:05.678Z", **line, "meta": "1-2"}).encode()[:-1]
    data = body + b',"crc":"%08x"}\n' % crc32(body)
    with pytest.raises(Damaged):
        archives.take_in(context, io.BytesIO(packed(manifest(), (f"{RUN}/journal.jsonl", data))))
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("name", "data"),
    [("run.json", b"{"), ("run.json", b"[]"), (".meta.json", b"[]"), (".meta.json", b""), (".meta.json", b"\xff")],
)
def test_a_document_that_is_none_is_damage(context: Context, tmp_path: Path, name: str, data: bytes) -> None:
    entries = dict([meta()]) | {f"{RUN}/{name}": data}
    with pytest.raises(Damaged):
        archives.take_in(context, io.BytesIO(packed(manifest(), *entries.items())))
    assert list(tmp_path.rglob("*")) == []


def test_a_damaged_journal_keeps_all_runs_of_the_archive_out(context: Context, tmp_path: Path) -> None:
    fine, broken = new_run(context), new_run(context)
    questions.ask(context, "Which?", run=broken)
    with zipfile.ZipFile(io.BytesIO(exported(context))) as source:
        entries = {name: source.read(name) for name in source.namelist()}
    path = f"{broken}/journal.jsonl"
    entries[path] = entries[path].replace(b"created", b"crEated", 1)
    here = other(tmp_path)
    with pytest.raises(Damaged, match=broken):
        archives.take_in(here, io.BytesIO(packed(*entries.items())))
    assert fine in context.runs.all()
    assert not Path(here.runs.layout.root).exists()


@pytest.mark.parametrize("place", ["prepared", "appeared"])
def test_after_a_crash_the_same_import_works(context: Context, tmp_path: Path, place: str) -> None:
    for _ in range(3):
        questions.ask(context, "Which?", run=new_run(context))
    (Path(context.runs.layout.quarantine(context.runs.all()[0]))).mkdir()
    (Path(context.runs.layout.quarantine(context.runs.all()[0])) / "journal.jsonl").write_bytes(b"torn")
    file = tmp_path / "runs.zip"
    archives.export(context, (), str(file), everything=True)
    here = other(tmp_path)
    words = [sys.executable, "-P", "-c", KILLED, here.runs.layout.root, str(file), place]
    assert subprocess.run(words, timeout=PATIENCE, check=False).returncode == -9
    assert len(here.runs.all()) == (0 if place == "prepared" else 1)
    archives.take_in(here, str(file))
    assert here.runs.all() == context.runs.all()
    assert [name for name in os.listdir(here.runs.layout.root) if name.startswith(".new-")] == []


def test_a_failure_in_the_middle_takes_all_back(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        questions.ask(context, "Which?", run=new_run(context))
    data = exported(context)
    here = other(tmp_path)
    new_run(here)
    before = everything(Path(here.runs.layout.root))
    real, count = atomic.appear, iter(range(10))

    def failing(prepared: str, path: str) -> None:
        if next(count) == 1:
            raise OSError(28, "No space left on device")
        real(prepared, path)

    monkeypatch.setattr(atomic, "appear", failing)
    with pytest.raises(Failed, match="No space"):
        archives.take_in(here, io.BytesIO(data))
    after = everything(Path(here.runs.layout.root))
    assert {name: text for name, text in after.items() if not name.startswith(".locks")} == {
        name: text for name, text in before.items() if not name.startswith(".locks")
    }


def test_a_run_that_appears_meanwhile_keeps_the_archive_out(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(context)
    data = exported(context)
    here = other(tmp_path)
    monkeypatch.setattr(here.runs, "exists", lambda _: False)
    Path(here.runs.layout.run(run_id)).mkdir(parents=True)
    with pytest.raises(Refused) as caught:
        archives.take_in(here, io.BytesIO(data))
    assert caught.value.code == "exists"
    assert os.listdir(here.runs.layout.run(run_id)) == []


def test_everything_that_comes_in_is_only_the_users(context: Context, tmp_path: Path) -> None:
    run_id = new_run(context)
    quarantine = Path(context.runs.layout.quarantine(run_id))
    quarantine.mkdir(0o755)
    (quarantine / "journal.jsonl").write_bytes(b"torn")
    data = exported(context)
    here = other(tmp_path)
    archives.take_in(here, io.BytesIO(data))
    for path in Path(here.runs.layout.root).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_links_and_pipes_in_a_run_do_not_go_out(context: Context, tmp_path: Path, root: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    run_id = new_run(context)
    (root / run_id / "log").unlink()
    (root / run_id / "log").symlink_to(secret)
    with pytest.raises(Damaged, match="link"):
        exported(context, run_id)
    (root / run_id / "log").unlink()
    os.mkfifo(root / run_id / "log")
    (root / run_id / "quarantine").symlink_to(tmp_path)
    assert b"secret" not in exported(context, run_id)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "out.zip"
    with pytest.raises(TypeError), archive.whole(str(file), force=False) as target:
        target.writelines([b"half", 7])  # type: ignore[list-item]
    assert list(tmp_path.iterdir()) == []
    with archive.whole(str(file), force=False) as target:
        target.write(b"all")
        assert not file.exists()
    assert file.read_bytes() == b"all"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_comes_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.zip"
    for with_links in (True, False):
        file.unlink(missing_ok=True)
        if not with_links:
            monkeypatch.delattr(os, "link")
            monkeypatch.setattr(os, "link", _no_links, raising=False)
        with pytest.raises(Refused), archive.whole(str(file), force=False):
            file.write_bytes(b"theirs")
        assert file.read_bytes() == b"theirs"
    file.unlink()
    with archive.whole(str(file), force=False) as target:
        target.write(b"ours")
    assert file.read_bytes() == b"ours"


def _no_links(*_: str) -> None:
    raise OSError(1, "Operation not permitted")


def test_force_replaces_a_file_and_follows_a_link_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "out.zip", tmp_path / "link.zip"
    file.write_bytes(b"old")
    link.symlink_to(file)
    with archive.whole(str(link), force=True) as target:
        target.write(b"new")
    assert file.read_bytes() == b"new"
    assert link.is_symlink()


@pytest.mark.parametrize("place", [".", "/dev/null", "missing/out.zip", "a" * 256, "a" * 5000, "a/" * 200 + "b"])
def test_what_is_no_place_for_a_file_is_refused_also_by_force(tmp_path: Path, place: str) -> None:
    with pytest.raises(SubagentError) as caught, archive.whole(place, force=True):
        pass
    assert isinstance(caught.value, InvalidInput)
    assert list(tmp_path.iterdir()) == []


def test_where_no_file_can_be_made_another_one_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkstemp", read_only)
    with pytest.raises(Failed) as caught, archive.whole(str(tmp_path / "out.zip"), force=False):
        pass
    assert caught.value.hint == "the file system is read-only: choose another FILE"

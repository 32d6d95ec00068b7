"""A child gets a folder of its own that looks like its caller's, and nothing that it does there reaches that one."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from subagent_cli.core.errors import Failed, InvalidInput
from subagent_cli.process import clone, copying, disposal, workspace
from subagent_cli.process.inventory import Inventory
from subagent_cli.store import atomic
from tests.process.originals import (
    PATIENCE,
    Original,
    a_repository,
    contents,
    everything,
    isolate,
    without_git,
)

__all__ = ["a_repository"]

KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
from subagent_cli.process import clone, copying, workspace
count = 0
def dying(original):
    def instead(*words):
        global count
        count += 1
        if count == {at}:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*words)
    return instead
copying.copy_file = clone.copy_file = dying(copying.copy_file)
clone._point = dying(clone._point)
workspace.isolate(
    {source!r}, {target!r}, limit_bytes=1 << 30, limit_files=1000, environment=dict(os.environ)
)
"""


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A folder that is no repository."""
    folder = tmp_path / "plain"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "letter.txt").write_text("dear")
    (folder / "deep" / "deeper" / "script").write_text("#!/bin/sh\n")
    (folder / "deep" / "deeper" / "script").chmod(0o750)
    (folder / "deep" / "locked").write_text("read only")
    (folder / "deep" / "locked").chmod(0o440)
    (folder / "link").symlink_to("letter.txt")
    (folder / "deep").chmod(0o755)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def used(folder: Path) -> int:
    """Blocks that a folder and all below it take on the disk."""
    return sum(
        os.lstat(os.path.join(above, name)).st_blocks for above, dirs, files in os.walk(folder) for name in dirs + files
    )


@pytest.mark.case("C4-18", "X23")
def test_a_copy_looks_like_its_original_and_the_original_stays_as_it_is(plain: Path, target: Path) -> None:
    before = everything(plain)
    made = isolate(plain, target)
    assert contents(target) == contents(plain)
    assert everything(plain) == before
    assert made == (str(target), str(target), "copy", None, 7, len("dear#!/bin/sh\nread only"), ())
    times = {name: thing.changed for name, thing in everything(target).items() if thing.kind == stat.S_IFREG}
    assert times == {name: before[name].changed for name in times}


@pytest.mark.case("C4-18", "X23")
def test_whatever_is_done_in_a_copy_the_original_stays_as_it_is(plain: Path, target: Path) -> None:
    before = everything(plain)
    isolate(plain, target)
    (target / "letter.txt").write_text("changed")
    (target / "link").write_text("changed through a link")
    with (target / "deep" / "deeper" / "script").open("a") as file:
        file.write("exit 1\n")
    (target / "deep" / "locked").chmod(0o777)
    (target / "empty" / "new").touch()
    assert disposal.discard(str(target))
    assert everything(plain) == before


def test_a_copy_is_only_the_users(plain: Path, target: Path) -> None:
    plain.chmod(0o777)
    isolate(plain, target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


def test_no_file_of_a_copy_is_a_second_name_of_the_same(plain: Path, target: Path) -> None:
    os.link(plain / "letter.txt", plain / "twin.txt")
    isolate(plain, target)
    files = [path for path in target.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {path.stat().st_nlink for path in files} == {1}
    assert len(files) == 4


def test_sockets_pipes_and_devices_are_left_out(plain: Path, target: Path) -> None:
    os.mkfifo(plain / "pipe")
    os.mknod(plain / "socket", stat.S_IFSOCK | 0o600)
    made = isolate(plain, target)
    assert not {"pipe", "socket"} & set(os.listdir(target))
    assert made.files == 7


def test_a_runs_directory_inside_is_left_out_and_so_is_the_copy_itself(plain: Path) -> None:
    runs = plain / "runs"
    (runs / "one").mkdir(parents=True)
    (runs / "one" / "log").write_text("said")
    (plain / "runs-of-mine").touch()
    target = runs / "one" / "work"
    isolate(plain, target, without=[str(runs)])
    assert set(os.listdir(target)) == {"deep", "empty", "letter.txt", "link", "runs-of-mine"}
    again = plain / "again"
    isolate(plain, again)
    assert contents(again / "runs") == contents(runs)
    assert not (again / "again").exists()


def test_a_runs_directory_that_is_a_link_is_left_out_with_what_it_leads_to(plain: Path, tmp_path: Path) -> None:
    (plain / "data" / "runs").mkdir(parents=True)
    (plain / "runs").symlink_to(plain / "data" / "runs")
    alias = tmp_path / "alias"
    alias.symlink_to(plain)
    isolate(alias, tmp_path / "copy", without=[str(alias / "runs")])
    assert not (tmp_path / "copy" / "runs").is_symlink()
    assert os.listdir(tmp_path / "copy" / "data") == []


def test_a_workspace_inside_a_runs_directory_can_be_copied_like_any_folder(plain: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    isolate(plain, runs / "first", without=[str(runs)])
    isolate(runs / "first", runs / "second", without=[str(runs)])
    assert contents(runs / "second") == contents(plain)


@pytest.mark.parametrize("what", ["a", "bytes", "holes"])
def test_what_is_too_much_is_refused_before_anything_is_written(
    plain: Path, target: Path, tmp_path: Path, what: str
) -> None:
    limits = {"limit_bytes": 1 << 29, "limit_files": 10}
    if what == "a":
        for number in range(50):
            (plain / f"file-{number}").touch()
    elif what == "bytes":
        limits["limit_bytes"] = 5
    else:
        (plain / "disk.img").touch()
        os.truncate(plain / "disk.img", 1 << 30)
    before, blocks = everything(tmp_path.joinpath("plain", "deep")), used(tmp_path)
    changed = tmp_path.stat().st_mtime_ns
    with pytest.raises(InvalidInput) as refusal:
        isolate(plain, target, **limits)
    assert refusal.value.code == "workspace_too_large"
    assert "max_workspace" in (refusal.value.hint or "")
    assert not target.exists()
    assert (tmp_path.stat().st_mtime_ns, used(tmp_path)) == (changed, blocks)
    assert everything(plain / "deep") == before


def test_a_refusal_says_how_much_it_is_and_how_much_it_may_be(plain: Path, target: Path) -> None:
    (plain / "disk.img").touch()
    os.truncate(plain / "disk.img", 3_200_000_000)
    with pytest.raises(InvalidInput) as refusal:
        isolate(plain, target, limit_bytes=1_000_000_000, limit_files=20_000)
    assert "8 files, 3.2 GB; at most 20000 and 1 GB are allowed" in refusal.value.message


def test_what_fits_exactly_is_not_refused(plain: Path, target: Path) -> None:
    made = isolate(plain, target)
    disposal.discard(str(target))
    assert isolate(plain, target, limit_bytes=made.bytes, limit_files=made.files) == made
    disposal.discard(str(target))
    for limits in ({"limit_bytes": made.bytes - 1}, {"limit_files": made.files - 1}):
        with pytest.raises(InvalidInput):
            isolate(plain, target, **limits)


def test_counting_ends_when_it_is_clear_that_there_are_too_many(
    plain: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (plain / "deep" / f"{number}").mkdir()
        (plain / "deep" / f"{number}" / "file").touch()
    listed: list[int] = []
    real = os.listdir

    def listing(fd: int) -> list[str]:
        listed.append(fd)
        return real(fd)

    monkeypatch.setattr(os, "listdir", listing)
    with pytest.raises(InvalidInput, match="at least"):
        isolate(plain, target, limit_files=3)
    assert len(listed) < 20


def disk(blocks: int, free: int, inodes: int = 0, left: int = 0) -> Callable[[str], os.statvfs_result]:
    return lambda _: os.statvfs_result((4096, 4096, blocks, free, free, inodes, left, left, 0, 255))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        # A twentieth of a small disk is kept free, and 256 MB of a large one.
        (disk(1000, 60), "room for 41 kB"),
        (disk(1_000_000_000, 62_500), "room for 0 bytes"),
        (disk(1_000_000_000, 62_505), "room for 20.5 kB"),
        (disk(1_000_000_000, 500_000_000, 1000, 6), "room for 6"),
    ],
)
def test_what_the_disk_has_no_room_for_is_refused(
    plain: Path, target: Path, monkeypatch: pytest.MonkeyPatch, found: Callable[[str], os.statvfs_result], reason: str
) -> None:
    (plain / "letter.txt").write_bytes(b"x" * 50_000)
    monkeypatch.setattr(os, "statvfs", found)
    with pytest.raises(InvalidInput, match=reason) as refusal:
        isolate(plain, target)
    assert refusal.value.code == "workspace_too_large"
    assert not target.exists()


def test_holes_take_no_room_on_the_disk(plain: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain / "disk.img").touch()
    os.truncate(plain / "disk.img", 1 << 30)
    monkeypatch.setattr(os, "statvfs", disk(1_000_000_000, 62_510))
    isolate(plain, target)
    assert (target / "disk.img").stat().st_size == 1 << 30
    assert used(target) < 1000


def test_a_disk_that_is_full_after_all_leaves_nothing_behind(
    plain: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    before = everything(plain)
    monkeypatch.setattr(atomic, "write_all", full)
    with pytest.raises(Failed) as failure:
        isolate(plain, target)
    assert failure.value.code == "disk_full"
    assert not target.exists()
    assert everything(plain) == before


def test_what_stands_in_the_place_of_the_copy_is_left_alone(plain: Path, target: Path) -> None:
    target.mkdir()
    (target / "mine").write_text("mine")
    with pytest.raises(Failed):
        isolate(plain, target)
    assert (target / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["nothing", "letter.txt"])
def test_only_a_folder_can_be_copied(plain: Path, target: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        isolate(plain / name, target)
    assert refusal.value.code == "bad_cwd"
    assert not target.exists()


@pytest.mark.parametrize("becomes", ["nothing", "a folder", "a pipe", "a link"])
def test_files_that_change_while_they_are_copied_are_no_crash(
    plain: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    real = copying.copy
    (tmp_path / "secret").write_text("secret")

    def late(found: Inventory, into: str) -> None:
        (plain / "letter.txt").unlink()
        (plain / "link").unlink()
        if becomes == "a folder":
            (plain / "letter.txt").mkdir()
            (plain / "link").mkdir()
        elif becomes == "a pipe":
            os.mkfifo(plain / "letter.txt")
        elif becomes == "a link":
            (plain / "letter.txt").symlink_to(tmp_path / "secret")
            (plain / "deep").rename(tmp_path / "elsewhere")
            (plain / "deep").symlink_to(tmp_path / "elsewhere")
        real(found, into)

    monkeypatch.setattr(copying, "copy", late)
    made = isolate(plain, target)
    assert made.unread == ()
    assert not {"letter.txt", "link"} & set(os.listdir(target))
    assert (target / "deep" / "deeper" / "script").exists() is (becomes != "a link")


def test_a_file_that_grows_is_copied_as_far_as_it_went(
    plain: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain / "log").write_bytes(b"a" * 10)
    real = os.read

    def reading(fd: int, size: int) -> bytes:
        # Whoever writes is always faster than who reads.
        with (plain / "log").open("ab") as file:
            file.write(b"b" * 4096)
        return real(fd, size)

    monkeypatch.setattr(os, "read", reading)
    isolate(plain, target)
    copied, all_of_it = (target / "log").read_bytes(), (plain / "log").read_bytes()
    assert copied.startswith(b"a" * 10)
    assert all_of_it.startswith(copied)
    assert len(copied) < len(all_of_it)


def test_what_may_not_be_read_is_named_and_all_else_is_copied(plain: Path, target: Path, tmp_path: Path) -> None:
    (plain / "secret").write_text("secret")
    (plain / "secret").chmod(0)
    (plain / "deep" / "closed").mkdir(0)
    script = (
        f"import os, sys; sys.path[:0] = {sys.path!r}\n"
        "from subagent_cli.process import workspace\n"
        f"print(workspace.isolate({str(plain)!r}, {str(target)!r}, limit_bytes=1 << 30, limit_files=99,"
        " environment={'PATH': '/nowhere'}).unread)"
    )
    # Without its privileges root is bound by permissions like everybody.
    words = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*words, sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout, done.stderr) == ("('deep/closed', 'secret')\n", "")
    assert set(os.listdir(target)) == {"deep", "empty", "letter.txt", "link"}


@pytest.mark.case("C4-23")
@pytest.mark.parametrize("at", [1, 3, 5, 6])
def test_a_crash_in_the_middle_leaves_what_can_be_removed(repo: Original, target: Path, at: int) -> None:
    before = everything(repo.root)
    script = KILLED.format(path=sys.path, at=at, source=str(repo.root), target=str(target))
    done = subprocess.run([sys.executable, "-c", script], timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.exists()
    assert disposal.discard(str(target))
    assert not target.exists()
    assert everything(repo.root) == before
    assert isolate(repo.root, target).kind == "git"


def test_a_copy_that_git_does_not_finish_is_removed(
    repo: Original, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(clone, "establish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        isolate(repo.root, target)
    assert not target.exists()


def test_limits_hold_for_a_work_tree_too_but_not_for_what_git_ignores(repo: Original, target: Path) -> None:
    repo.write("ignored/bulk", "x" * 100_000)
    assert isolate(repo.root, target, limit_bytes=1000).bytes < 1000
    disposal.discard(str(target))
    repo.write("new", "x" * 100_000)
    before = everything(repo.root)
    for limits in ({"limit_bytes": 1000}, {"limit_files": 3}):
        with pytest.raises(InvalidInput) as refusal:
            isolate(repo.root, target, **limits)
        assert refusal.value.code == "workspace_too_large"
    assert not target.exists()
    assert everything(repo.root) == before


def test_a_runs_directory_in_a_work_tree_is_left_out_with_the_workspaces_in_it(repo: Original) -> None:
    runs = repo.root / "runs"
    repo.write("runs/one/log", "said")
    repo.write("runs/tracked", "even if git knows it")
    repo.git("add", "-f", "runs/tracked")
    first, second = runs / "one" / "work", runs / "two"
    for target in (first, second):
        isolate(repo.root, target, without=[str(runs)])
        assert set(os.listdir(target)) == {".git", ".gitignore", "kept.txt", "src"}


def test_git_finds_nothing_above_a_workspace(repo: Original) -> None:
    """A plain copy that lies in somebody's work tree, as runs/ does by default, is not a part of it."""
    repo.write("ignored/data", "data")
    before = everything(repo.root)
    made = isolate(repo.root / "ignored", repo.root / "copy", environment=dict(os.environ))
    outside = {"GIT_DIR": str(repo.root / ".git"), "GIT_INDEX_FILE": str(repo.root / ".git" / "index")}
    env = workspace.confined({**os.environ, **outside, "GIT_AUTHOR_NAME": "Eve"}, made)
    for words in (["add", "-A"], ["commit", "-m", "mine"], ["status"]):
        done = subprocess.run(["git", *words], cwd=made.folder, env=env, capture_output=True, check=False)
        assert b"not a git repository" in done.stderr
    assert env["GIT_AUTHOR_NAME"] == "Eve"
    assert disposal.discard(made.root)
    assert {**everything(repo.root), b".": before[b"."]} == before


def test_a_ceiling_that_was_there_stays(plain: Path, target: Path) -> None:
    made = isolate(plain, target, environment=without_git())
    env = workspace.confined({"GIT_CEILING_DIRECTORIES": "/home", "PATH": "/bin"}, made)
    assert env == {"GIT_CEILING_DIRECTORIES": f"{target.parent}:/home", "PATH": "/bin", "PWD": str(target)}


def test_no_variable_names_the_folder_of_the_caller_as_the_one_to_work_in(plain: Path, target: Path) -> None:
    made = isolate(plain, target, environment=without_git())
    env = workspace.confined({"PWD": str(plain), "OLDPWD": str(plain), "HOME": "/root"}, made)
    assert str(plain) not in env.values()
    assert (env["PWD"], env["HOME"]) == (str(target), "/root")

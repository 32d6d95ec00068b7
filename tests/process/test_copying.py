"""Copies of files and folders are what they are copies of, and share nothing with it."""

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subagent_cli.process import copying
from subagent_cli.process.disposal import discard
from tests.process.originals import ROOMY, contents, everything, isolate, walk_down, without_git

MEGABYTE = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def copy(source: Path, target: Path) -> None:
    isolate(source, target, environment=without_git())


@pytest.mark.parametrize(
    "pieces",
    [
        {0: b"start", 8 * MEGABYTE: b"end"},
        {3 * MEGABYTE: b"in the middle"},
        {0: b"x" * 3 * MEGABYTE, 5 * MEGABYTE: b"y"},
        {},
    ],
)
def test_holes_stay_holes(source: Path, target: Path, pieces: dict[int, bytes]) -> None:
    with (source / "file").open("wb") as file:
        for start, piece in pieces.items():
            file.seek(start)
            file.write(piece)
        file.truncate(16 * MEGABYTE)
    copy(source, target)
    assert contents(target) == contents(source)
    assert (target / "file").stat().st_blocks <= (source / "file").stat().st_blocks < 8 * MEGABYTE // 512


def test_a_file_system_that_does_not_tell_of_holes_is_no_obstacle(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "file").write_bytes(b"some")
    os.truncate(source / "file", 3 * MEGABYTE)
    real = os.lseek

    def seeking(fd: int, at: int, how: int) -> int:
        if how == os.SEEK_DATA:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(fd, at, how)

    monkeypatch.setattr(os, "lseek", seeking)
    copy(source, target)
    assert contents(target) == contents(source)


def test_a_file_is_shared_until_it_is_written_to_where_the_file_system_can(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such file system is to be had in a test, so this one says what the kernel is asked for."""
    (source / "file").write_bytes(b"shared")
    (source / "file").chmod(0o640)
    os.utime(source / "file", (1, 2))
    asked: list[int] = []

    def sharing(fd: int, request: int, other: int) -> int:
        asked.append(request)
        os.write(fd, os.pread(other, 100, 0).upper())
        return 0

    monkeypatch.setattr(fcntl, "ioctl", sharing)
    copy(source, target)
    assert asked == [0x40049409]
    assert (target / "file").read_bytes() == b"SHARED"
    assert (target / "file").stat().st_mtime == 2
    assert stat.S_IMODE((target / "file").stat().st_mode) == 0o640


def test_who_is_anothers_by_its_mode_is_not_so_in_a_copy(source: Path, target: Path) -> None:
    (source / "file").touch()
    (source / "file").chmod(0o6755)
    (source / "folder").mkdir()
    (source / "folder").chmod(0o3777)
    copy(source, target)
    assert stat.S_IMODE((target / "file").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "folder").stat().st_mode) == 0o777


def test_folders_that_may_not_be_written_to_are_copied_with_what_is_in_them(source: Path, target: Path) -> None:
    (source / "locked" / "inner").mkdir(parents=True)
    (source / "locked" / "inner" / "file").write_text("there")
    (source / "locked" / "inner").chmod(0o500)
    (source / "locked").chmod(0o555)
    copy(source, target)
    assert contents(target) == contents(source)


@pytest.mark.case("C4-18")
@pytest.mark.parametrize(
    ("link", "leads", "becomes"),
    [
        ("link", "{source}/file", "file"),
        ("deep/er/link", "{source}/file", "../../file"),
        ("deep/link", "{source}", ".."),
        ("link", "{source}/nothing/yet", "nothing/yet"),
        ("link", "../source/file", "file"),
        ("link", "{alias}/file", "file"),
        ("link", "{hop}", "file"),
    ],
)
def test_a_link_that_leads_back_into_the_original_leads_into_the_copy(
    source: Path, target: Path, tmp_path: Path, link: str, leads: str, becomes: str
) -> None:
    (source / "file").write_text("the original")
    (source / "deep" / "er").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(source)
    (tmp_path / "hop").symlink_to(source / "file")
    leads = leads.format(source=source, alias=tmp_path / "alias", hop=tmp_path / "hop")
    (source / link).symlink_to(leads)
    copy(source, target)
    assert os.readlink(target / link) == becomes
    assert not os.path.realpath(target / link).startswith(str(source))
    assert os.readlink(source / link) == leads


@pytest.mark.parametrize(
    "leads", ["file", "deep/../file", "..file", "nothing", "/etc/passwd", "../outside", ".", "../sourcelike", "/"]
)
def test_any_other_link_stays_as_it_is(source: Path, target: Path, tmp_path: Path, leads: str) -> None:
    (tmp_path / "sourcelike").mkdir()
    (source / "deep").mkdir()
    (source / "link").symlink_to(leads)
    copy(source, target)
    assert os.readlink(target / "link") == leads


def test_links_that_lead_in_circles_are_copied(source: Path, target: Path) -> None:
    (source / "one").symlink_to(source / "two")
    (source / "two").symlink_to(source / "one")
    copy(source, target)
    assert {"one", "two"} == set(os.listdir(target))


@pytest.mark.case("C4-18")
@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_would_lead_git_back_to_the_original_is_left_out(
    source: Path, target: Path, tmp_path: Path, kind: str
) -> None:
    (source / "linked").mkdir()
    (source / "linked" / "file").touch()
    if kind == "file":
        (source / "linked" / ".git").write_text(f"gitdir: {source}/repo/.git/worktrees/linked\n")
    else:
        (source / "linked" / ".git").symlink_to(tmp_path)
    (source / "repo" / ".git").mkdir(parents=True)
    (source / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    copy(source, target)
    assert os.listdir(target / "linked") == ["file"]
    assert (target / "repo" / ".git" / "HEAD").exists()


def test_no_path_is_too_long(source: Path, target: Path) -> None:
    def last(top: Path) -> bytes:
        here = os.open(top, os.O_RDONLY)
        for _ in range(450):
            step = os.open("d" * 10, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = step
        fd = os.open("file", os.O_RDONLY, dir_fd=here)
        try:
            return os.read(fd, 10)
        finally:
            os.close(fd)
            os.close(here)

    for number, here in enumerate(walk_down(source, 450, "d" * 10)):
        if number == 449:
            fd = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here)
            os.write(fd, b"deep")
            os.close(fd)
    copy(source, target)
    assert last(target) == b"deep"
    # Others could not clear them away.
    assert discard(str(source))
    assert discard(str(target))


def test_copying_leaves_no_open_files(source: Path, target: Path) -> None:
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "file").write_text("file")
    os.mkfifo(source / "a" / "pipe")
    before = os.listdir("/proc/self/fd")
    copy(source, target)
    here = os.open(source / "a", os.O_RDONLY)
    with copying.reading(here, "pipe") as pipe, copying.reading(here, "b") as folder:
        assert (pipe, folder) == (None, None)
    os.close(here)
    assert len(os.listdir("/proc/self/fd")) == len(before)


NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: b"/" not in name and b"\0" not in name).map(os.fsdecode)
MODES = st.sampled_from([0o600, 0o644, 0o755, 0o444, 0o400])
FILES = st.tuples(st.binary(max_size=50), MODES)
LINKS = NAMES | st.just("../..") | st.just("/etc")
TREES = st.recursive(
    st.dictionaries(NAMES, FILES | LINKS, max_size=4),
    lambda inner: st.dictionaries(NAMES, FILES | LINKS | inner, max_size=4),
    max_leaves=12,
)


def build(folder: Path, tree: object) -> None:
    """A file is its bytes and mode, a link the text that it leads to, a folder what is in it."""
    if isinstance(tree, tuple):
        folder.write_bytes(tree[0])
        folder.chmod(tree[1])
    elif isinstance(tree, str):
        folder.symlink_to(tree)
    else:
        assert isinstance(tree, dict)
        folder.mkdir()
        for name, inner in tree.items():
            if name not in (".", "..", ".git"):
                build(folder / name, inner)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(tree=TREES)
def test_any_folder_is_copied_as_it_is(tmp_path_factory: pytest.TempPathFactory, tree: object) -> None:
    place = tmp_path_factory.mktemp("any")
    build(place / "source", tree)
    before = everything(place / "source")
    made = isolate(place / "source", place / "copy", environment=without_git(), limit_bytes=ROOMY)
    assert contents(place / "copy") == contents(place / "source")
    assert everything(place / "source") == before
    assert made.files == len(before) - 1

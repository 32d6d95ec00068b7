"""A workspace goes whatever a child has made in it, and nothing else goes with it."""

import fcntl
import os
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subagent_cli.process.disposal import discard
from tests.process.originals import PATIENCE, everything, walk_down

IMMUTABLE, APPEND_ONLY = 0x10, 0x20
# Makes files in a folder as fast as it can, until the folder has gone or it has made enough.
BUSY = """
import os, sys
os.chdir(sys.argv[1])
print("up", flush=True)
for number in range(20_000):
    try:
        os.makedirs(f"new-{number % 7}", exist_ok=True)
        os.close(os.open(f"new-{number % 7}/{number}", os.O_CREAT | os.O_WRONLY))
    except OSError:
        if not os.path.exists(sys.argv[1]):
            break
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """What lies outside and must stay."""
    folder = tmp_path / "precious"
    (folder / "inner").mkdir(parents=True)
    (folder / "letter").write_text("keep me")
    (folder / "inner" / "letter").write_text("me too")
    return folder


def gone(target: Path) -> bool:
    return discard(str(target)) and not os.path.lexists(target)


@pytest.mark.case("C4-23", "X23")
def test_a_folder_goes_with_all_that_is_in_it(target: Path) -> None:
    (target / "a" / "b").mkdir(parents=True)
    (target / "a" / "file").write_text("file")
    (target / "a" / "b" / "empty").touch()
    os.mkfifo(target / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(target / "socket"))
    (target / "dangling").symlink_to("nowhere")
    assert gone(target)


def test_what_is_gone_already_is_gone(target: Path) -> None:
    assert gone(target)
    assert gone(target)
    assert gone(target / "never" / "there")


def test_a_file_or_a_link_in_the_place_of_a_folder_goes(tmp_path: Path, precious: Path) -> None:
    before = everything(precious)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(precious)
    assert gone(tmp_path / "file")
    assert gone(tmp_path / "link")
    assert everything(precious) == before


def test_links_are_removed_and_never_followed(target: Path, precious: Path) -> None:
    before = everything(precious)
    (target / "deep").mkdir()
    for name in ("folder", "deep/folder"):
        (target / name).symlink_to(precious)
    (target / "file").symlink_to(precious / "letter")
    (target / "up").symlink_to("..")
    (target / "circle").symlink_to("circle")
    os.link(precious / "letter", target / "second name")
    assert gone(target)
    assert everything(precious) == before


def test_a_folder_in_a_linked_place_goes(tmp_path: Path, target: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path)
    assert discard(str(tmp_path / "alias" / "work") + "/")
    assert not target.exists()


@pytest.mark.parametrize("name", [b"\xff\xfe", b"new\nline", b"-rf", b"*", b" ", b"\xf0\x9f\x98\x80", b"x" * 255])
def test_names_of_any_bytes_go(target: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(target), name)
    os.mkdir(path)
    os.close(os.open(os.path.join(path, name), os.O_CREAT))
    assert gone(target)


@pytest.mark.parametrize("name", ["d", "d" * 200])
def test_folders_in_folders_go_however_deep_they_are(target: Path, name: str) -> None:
    for here in walk_down(target, 3000, name):
        os.close(os.open("file", os.O_CREAT, dir_fd=here))
    assert gone(target)


def test_a_folder_of_many_folders_goes(target: Path) -> None:
    for number in range(2000):
        (target / f"folder-{number}").mkdir()
        (target / f"folder-{number}" / "file").touch()
    assert gone(target)


@pytest.mark.case("C4-23")
@pytest.mark.parametrize("mode", [0o500, 0o400, 0o300, 0o200, 0o100, 0o000])
def test_folders_without_permissions_go(target: Path, precious: Path, mode: int) -> None:
    before = everything(precious)
    for name in ("one", "two/three", "two"):
        (target / name).mkdir(parents=True, exist_ok=True)
        (target / name / "file").touch()
        (target / name / "link").symlink_to(precious)
        (target / name).chmod(mode)
    target.chmod(mode)
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from subagent_cli.process.disposal import discard\n"
        f"print(discard({str(target)!r}))"
    )
    # Without its privileges root is bound by permissions like everybody.
    words = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    done = subprocess.run([*words, sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert not target.exists()
    assert everything(precious) == before


def marked(path: Path, mark: int) -> bool:
    """Whether a file could be marked, which takes privileges and a file system that knows marks."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, 0x40086602, mark.to_bytes(4, sys.byteorder) + bytes(4))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.mark.parametrize("mark", [IMMUTABLE, APPEND_ONLY])
def test_what_was_made_immutable_goes_where_the_user_may_do_that(target: Path, mark: int) -> None:
    (target / "a" / "b").mkdir(parents=True)
    (target / "a" / "b" / "file").touch()
    (target / "a" / "empty").mkdir()
    paths = [target / "a" / "b" / "file", target / "a" / "empty", target / "a" / "b", target / "a", target]
    assert len({marked(path, mark) for path in paths}) == 1
    assert gone(target)


def test_what_is_mounted_inside_is_not_emptied(target: Path, precious: Path) -> None:
    """In namespaces of its own, so that nothing is left of it; where there are none, nothing can be mounted either."""
    before = everything(precious)
    (target / "mounted").mkdir()
    (target / "file").touch()
    script = (
        f"import subprocess, sys; sys.path[:0] = {sys.path!r}\n"
        f"done = subprocess.run(['mount', '--bind', {str(precious)!r}, {str(target / 'mounted')!r}])\n"
        "from subagent_cli.process.disposal import discard\n"
        f"print(discard({str(target)!r}) is (done.returncode != 0))"
    )
    words = ["unshare", "--mount", "--map-root-user", sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0 or done.stdout == "True\n"
    assert everything(precious) == before
    assert gone(target)


def test_a_folder_in_which_somebody_still_makes_files_goes_in_the_end(target: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY, str(target)], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            assert busy.stdout.readline() == b"up\n"
            # Somebody who is faster for ever cannot be beaten, but told of.
            assert discard(str(target)) is not target.exists()
            busy.wait(PATIENCE)
        finally:
            busy.kill()
    assert gone(target)


def test_a_folder_that_is_moved_away_meanwhile_leads_nobody_astray(
    target: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: thing._replace(changed=0) for name, thing in everything(precious).items()}
    (target / "a" / "b").mkdir(parents=True)
    (target / "a" / "b" / "file").touch()
    (target / "inner").mkdir()
    real = os.unlink

    def unlinking(name: str, *, dir_fd: int | None = None) -> None:
        real(name, dir_fd=dir_fd)
        if name == "file":
            # Now ".." of this folder is the precious one.
            (target / "a" / "b").rename(precious / "b")

    monkeypatch.setattr(os, "unlink", unlinking)
    assert gone(target)
    (precious / "b").rmdir()
    assert {name: thing._replace(changed=0) for name, thing in everything(precious).items()} == before


def test_what_cannot_be_removed_is_told_and_all_else_goes(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (target / "a").mkdir()
    (target / "a" / "stays").touch()
    (target / "a" / "goes").touch()
    (target / "b").mkdir()
    real = os.unlink

    def unlinking(name: str, *, dir_fd: int | None = None) -> None:
        if name == "stays":
            raise PermissionError(1, "Operation not permitted")
        real(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlinking)
        assert not discard(str(target))
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == ["a", "a/stays"]
    assert gone(target)


def test_removing_leaves_no_open_files(target: Path) -> None:
    (target / "a" / "b").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    assert gone(target)
    assert not discard("/proc/self/fd")
    assert len(os.listdir("/proc/self/fd")) == before


STEPS = st.tuples(
    st.sampled_from(["folder", "file", "link", "outward link", "pipe", "lock", "hide"]),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=15))
def test_any_folder_goes(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[str]]]) -> None:
    place = tmp_path_factory.mktemp("any")
    (place / "outside").mkdir()
    (place / "outside" / "letter").write_text("keep me")
    target = place / "work"
    target.mkdir()
    for word, parts in steps:
        path = target.joinpath(*parts)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if word == "folder":
                path.mkdir()
            elif word == "file":
                path.touch()
            elif word.endswith("link"):
                path.symlink_to("../b" if word == "link" else place / "outside")
            elif word == "pipe":
                os.mkfifo(path)
            elif not path.is_symlink():
                path.chmod(stat.S_IRUSR if word == "lock" else 0)
    before = everything(place / "outside")
    assert gone(target)
    assert everything(place / "outside") == before

"""Folders and git repositories from which copies are made, and how to see that nothing happened to them."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from subagent_cli.process import workspace
from subagent_cli.process.workspace import Workspace

PATIENCE = 60.0
ROOMY = 1 << 40
OBJECTS = b".git/objects/"


class Thing(NamedTuple):
    """What stands under a name; of a file or link also what it holds."""

    kind: int
    mode: int
    changed: int
    content: bytes


def missing() -> str:
    """What git tests need and is not there; empty when everything is. This alone judges it."""
    return "" if shutil.which("git") else "no git"


@pytest.fixture(name="repo")
def a_repository(tmp_path: Path) -> "Original":
    """Modules that want it import it under this name; without git the test is left out."""
    return Original.of(tmp_path / "project")


def everything(folder: Path) -> dict[bytes, Thing]:
    """Every name below a folder, and itself, byte for byte and with its times."""
    top = os.fsencode(folder)
    found = {b".": _thing(top)}
    for above, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = os.path.join(above, name)
            found[os.path.relpath(path, top)] = _thing(path)
    return found


def contents(folder: Path) -> dict[bytes, tuple[int, int, bytes]]:
    """What a copy has in common with its original, which is everything but `.git` and when folders were changed."""
    return {
        name: (thing.kind, thing.mode, thing.content)
        for name, thing in everything(folder).items()
        if name != b"." and b".git" not in name.split(b"/")
    }


def apart_from_borrowing(things: dict[bytes, Thing]) -> dict[bytes, Thing]:
    """Without the times of objects: who writes one that it can borrow may touch it (see clone.py)."""
    return {
        name: thing._replace(changed=0) if name.startswith(OBJECTS) and thing.kind == stat.S_IFREG else thing
        for name, thing in things.items()
    }


def isolate(source: Path, target: Path, **how: object) -> Workspace:
    given = {"limit_bytes": ROOMY, "limit_files": 1 << 30, "environment": dict(os.environ), **how}
    return workspace.isolate(str(source), str(target), **given)  # type: ignore[arg-type]


def without_git() -> dict[str, str]:
    """An environment in which there is none."""
    return {**os.environ, "PATH": "/nowhere"}


class Original:
    """A git repository with a commit in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of(cls, root: Path) -> "Original":
        absent = missing()
        if absent:
            pytest.skip(f"needs git: {absent}")
        self = cls(root)
        self.git("init", "-q", "-b", "main", str(root), at=root.parent)
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@example.org")
        self.write(".gitignore", "ignored/\n*.log\n")
        self.write("kept.txt", "kept\n")
        self.write("src/main.py", "print()\n")
        self.commit("first")
        return self

    def git(self, *words: str, at: Path | None = None, good: bool = True) -> str:
        """What git says about the repository, or at another place."""
        done = subprocess.run(
            ["git", *words], cwd=at or self.root, capture_output=True, timeout=PATIENCE, check=False, env=_environment()
        )
        assert not good or done.returncode == 0, (words, done)
        return os.fsdecode(done.stdout)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def status(self, at: Path | None = None) -> str:
        """What is changed and how, with what is staged and what is not; the index is left as it is."""
        return self.git("--no-optional-locks", "status", "--porcelain=v1", "-z", "--untracked-files=all", at=at)


def walk_down(folder: Path, depth: int, name: str = "d") -> Iterator[int]:
    """Makes folders in folders, and gives each of them open; no path is too long for that."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        step = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = step
        yield here
    os.close(here)


def _thing(path: bytes) -> Thing:
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    content = b""
    if kind == stat.S_IFLNK:
        content = os.readlink(path)
    elif kind == stat.S_IFREG:
        content = Path(os.fsdecode(path)).read_bytes()
    return Thing(kind, stat.S_IMODE(status.st_mode), status.st_mtime_ns, content)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

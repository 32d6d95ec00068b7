"""A disk of its own that is soon full: a tmpfs that only the one who holds it has mounted.

Promise: it goes with its holder, however the test ends, and nobody else's mounts are touched.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.store.world import PATIENCE

# As root a mount needs no more than a name space; others become root in one of their own.
_SPACES: Sequence[Sequence[str]] = (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount"))
_MOUNTED = "mounted\n"


@cache
def missing() -> str:
    """Why there can be no such disk here, in a few words; empty where there can."""
    return "" if _space() else "no leave to mount one"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk that is mounted on a folder, by a path at which everybody can reach it."""
    folder.mkdir()
    space = _space()
    assert space is not None
    # It holds the mount until its standard input ends, which it does at the latest with us.
    words = [*space, "sh", "-c", _mounting(size) + " && echo mounted && cat", "sh", str(folder)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == _MOUNTED
        yield Path(f"/proc/{holder.pid}/root{folder}")
    finally:
        holder.communicate(timeout=PATIENCE)


@cache
def _space() -> Sequence[str] | None:
    """How a place for a mount is made here, if it can be."""
    for words in _SPACES:
        try:
            trial = [*words, "sh", "-c", _mounting("64k"), "sh", "/mnt"]
            done = subprocess.run(trial, capture_output=True, timeout=PATIENCE, check=False)
        except OSError:
            return None
        if done.returncode == 0:
            return words
    return None


def _mounting(size: str) -> str:
    return f'mount -t tmpfs -o size={size},mode=700 tmpfs "$1"'

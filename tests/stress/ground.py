"""The same prepared runs again and again, for one trial of a verb after the other."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store.world import everything, open_at
from tests.stress.aftermath import AT_ONCE, Toll, hold
from tests.stress.deeds import DEEDS, Errand
from tests.stress.line import typed

BUSY = 7
MEMORY = "/dev/shm"


@contextmanager
def quick_folder(otherwise: Path) -> Iterator[Path]:
    """A folder in memory, where there is such a thing: whom the system outlives has no need of a disk, and syncing to
    one would take most of the time."""
    usable = os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="subagent-", dir=MEMORY if usable else otherwise) as folder:
        yield Path(folder)


def had(root: Path) -> dict[str, dict[str, bytes]]:
    """All that counts: what only leads there, and the locks, may be there or not."""
    folders = [path for path in root.iterdir() if path.is_dir() and path.name not in (".index", ".locks")]
    return {path.name: files for path in folders if (files := everything(path))}


class Ground:
    """A copy of the same prepared runs for each trial of a deed."""

    def __init__(self, folder: Path, verb: str) -> None:
        self.verb, self.deed = verb, DEEDS[verb]
        self._folder = folder / verb.replace(" ", "-")
        self._number = 0
        self.errand: Errand = self.deed.prepare(open_at(self._folder / "as-it-was"))

    def fresh(self) -> Path:
        self._number += 1
        root = self._folder / str(self._number)
        shutil.copytree(self._folder / "as-it-was", root, symlinks=True)
        return root

    def once_more(self, root: Path, toll: Toll, where: str, most: int) -> None:
        """Whatever came of a call, the same call works now, and has happened once."""
        said = typed(str(root), ["--set", f"lock_timeout={AT_ONCE}", *self.errand.words], self.errand.env)
        if said.code:
            (toll.stuck if said.code == BUSY else toll.wrong).append(f"{where}: again it ended with {said}")
            return
        count = self.deed.count(open_at(root))
        if not 1 <= count <= most:
            toll.wrong.append(f"{where}: it has happened {count} times")
        hold(root, toll, where)

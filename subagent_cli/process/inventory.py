"""What of a folder is to be copied, and what it comes to, found without touching anything.

Files, links and folders are; sockets, named pipes and devices are not. Nor is a `.git` that is no folder: it would
lead git from the copy back to where it came from.
"""

import os
import stat
from collections.abc import Collection, Iterable

from subagent_cli.core.value import Value
from subagent_cli.process.descent import GONE, below, opened

_BLOCK = 512


class Folder(Value):
    mode: int
    files: list[str]
    links: list[str]


class Inventory:
    """Folders by their path below the top, those above first.

    `entries` counts files, links and folders, `size` is how long the files are, `space` what they take on the disk;
    `unread` names what may not be read.
    """

    def __init__(self, top: str, without: Collection[str]) -> None:
        self.top = top
        self.folders: dict[str, Folder] = {}
        self.entries = self.size = self.space = 0
        self.unread: list[str] = []
        self._without = without

    def enter(self, top: int, path: str, names: Iterable[str] | None = None) -> list[str]:
        """Takes in a folder with what is in it, or with these names of it; gives the folders among them."""
        try:
            with below(top, path) as here:
                self.folders[path] = Folder(os.fstat(here).st_mode, [], [])
                self.entries += bool(path)
                return self._look(here, path, os.listdir(here) if names is None else names)
        except PermissionError:
            self.unread.append(path)
        except OSError as error:
            if error.errno not in GONE:
                raise
        return []

    def _look(self, here: int, path: str, names: Iterable[str]) -> list[str]:
        folder, found = self.folders[path], list[str]()
        for name in names:
            whole = f"{path}/{name}" if path else name
            if spared(whole, self._without):
                continue
            try:
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(status.st_mode):
                found.append(whole)
            elif name != ".git":
                self._count(folder, name, status)
        return found

    def _count(self, folder: Folder, name: str, status: os.stat_result) -> None:
        if stat.S_ISREG(status.st_mode):
            folder.files.append(name)
            self.size += status.st_size
            self.space += min(status.st_size, status.st_blocks * _BLOCK)
        elif stat.S_ISLNK(status.st_mode):
            folder.links.append(name)
        else:
            return
        self.entries += 1


def spared(path: str, without: Collection[str]) -> bool:
    """Whether a path is one of those that are left out, or below one."""
    return any(path == one or path.startswith(f"{one}/") for one in without)


def of_all(top: str, without: Collection[str], most: int) -> Inventory:
    """Everything below a folder. Counting ends when it is clear that there are more than `most`."""
    found, left = Inventory(top, without), [""]
    with opened(top) as fd:
        while left and found.entries <= most:
            left += found.enter(fd, left.pop())
    return found


def of_these(top: str, without: Collection[str], names: Iterable[str]) -> Inventory:
    """Those of the names that are there. Where one is a folder, it is one without anything in it."""
    found = Inventory(top, without)
    wanted: dict[str, dict[str, None]] = {"": {}}
    for path in names:
        folder, _, name = path.rpartition("/")
        wanted.setdefault(folder, {})[name] = None
    for folder in list(wanted):
        while folder:
            folder = folder.rpartition("/")[0]
            wanted.setdefault(folder, {})
    with opened(top) as fd:
        for folder in sorted(wanted):
            for path in found.enter(fd, folder, wanted[folder]):
                if path not in wanted:
                    found.enter(fd, path, ())
    return found

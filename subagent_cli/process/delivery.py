"""Bringing what a child has made out of the folder in which it worked.

The child is not trusted. A name that leads out of the workspace, by "..", by a path of its own or through links, is
as good as missing, and so is what is neither file nor folder, what is called `.git`, and what lies deeper than 64
folders. A link that stays inside is followed where the child names it; those in a folder that it names are left
behind. What stands in the way, be it a link to a folder, is neither removed nor written through; only a file, or a
link where a file arrives, is replaced as a whole.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from subagent_cli.process.copying import pour, reading
from subagent_cli.process.descent import GONE, below, inside, opened, resolved
from subagent_cli.process.workspace import Workspace
from subagent_cli.store import atomic

_DEEPEST = 64
_NOT_THERE = (*GONE, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


def deliver(workspace: Workspace, names: Sequence[str], into: str) -> tuple[list[str], list[str]]:
    """Copies files and folders into a folder, which is made if it is missing, under the names that they have below
    the folder in which the child works, or else below the root of the workspace.

    Gives what has arrived, by its name below `into`, and what has not: as the child named it, or by that name where
    it was left behind of a folder that has arrived.
    """
    delivered, missing = dict[str, None](), dict[str, None]()
    with atomic.io("bring back what was delivered"), ExitStack() as both:
        atomic.make_folders(os.path.abspath(into))
        there = both.enter_context(opened(os.path.realpath(into)))
        here = _root(both, workspace)
        for name in names:
            found = None if here is None else _found(workspace, name)
            if here is None or found is None:
                missing[name] = None
                continue
            left_behind = list(_bring(here, there, *found))
            if found[1] in left_behind:
                missing[name] = None
            else:
                delivered[found[1]] = None
                missing |= dict.fromkeys(left_behind)
    return list(delivered), list(missing)


def _root(both: ExitStack, workspace: Workspace) -> int | None:
    try:
        return both.enter_context(opened(workspace.root))
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise


def _found(workspace: Workspace, name: str) -> tuple[str, str] | None:
    """Where something lies below the root, behind all links, and what it is to be called; None where it may not."""
    if not _sayable(name) or ".." in name.split("/"):
        return None
    path = os.path.join(workspace.folder, name)
    called: str | None = os.path.normpath(name)
    if os.path.isabs(name):
        above, last = os.path.split(os.path.normpath(name))
        path = os.path.join(resolved(above) or above, last)
        called = inside(path, workspace.folder)
        called = inside(path, workspace.root) if called is None else called
    source = inside(resolved(path), workspace.root)
    return (source, called) if source and called not in (None, "", ".") else None


def _bring(here: int, there: int, source: str, called: str) -> Iterator[str]:
    """Copies a file, or a folder with what is in it; gives the names of what did not arrive."""
    left = [(source, called)]
    while left:
        source, called = left.pop()
        inner = None
        if called.count("/") < _DEEPEST and not _forbidden(called):
            inner = _step(here, there, source, called)
        if inner is None:
            yield called
        else:
            left += [(f"{source}/{name}", f"{called}/{name}") for name in inner]


def _step(here: int, there: int, source: str, called: str) -> list[str] | None:
    """Copies a file, or makes a folder and gives the names in the other; None where there is no way."""
    above, _, name = called.rpartition("/")
    with _made(here, source) as fd:
        if fd is None:
            return None
        mode = os.fstat(fd).st_mode
        try:
            if stat.S_ISDIR(mode):
                with below(there, called, make=True):
                    return os.listdir(fd)
            with (
                below(there, above, make=True) as into,
                atomic.arriving(into, name, 0o600 | mode & stat.S_IXUSR) as new,
            ):
                pour(fd, new)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                return None
            raise
    return []


@contextmanager
def _made(here: int, path: str) -> Iterator[int | None]:
    """A file or folder of the child's, open for reading; None where there is none that may be read."""
    above, _, name = path.rpartition("/")
    with ExitStack() as opened_ones:
        found = None
        try:
            folder = opened_ones.enter_context(below(here, above))
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                found = opened_ones.enter_context(below(folder, name))
            elif stat.S_ISREG(mode):
                found = opened_ones.enter_context(reading(folder, name))
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
        yield found


def _sayable(name: str) -> bool:
    """Whether it can be the name of anything."""
    try:
        return bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def _forbidden(called: str) -> bool:
    return ".git" in called.lower().split("/")

"""A throwaway copy of the folder in which somebody works, for a child that must not change the original.

In a git work tree it is the whole work tree that is copied, with whatever was changed and not yet committed and with
new files, but without ignored ones, and it has a repository of its own (see `clone`). Elsewhere, and for a folder that
git ignores, it is every file of the folder (see `copying` for links); a repository in there comes with it, and what
its configuration says of places outside still holds.

What would be copied is counted first, and nothing is written when it is too much: for the limits, or for the disk,
of which a twentieth, at most 256 MB, is left free. The limits speak of lengths, so holes count. The disk must have
room for all of it even where the copy can share blocks with the original, for who works there may change every file.

A crash leaves a half-made folder, which `disposal.discard` removes like a whole one.
"""

import os
from collections.abc import Mapping, Sequence

from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.value import Value
from subagent_cli.process import clone, copying, git, inventory
from subagent_cli.process.clone import Repository
from subagent_cli.process.descent import inside
from subagent_cli.process.disposal import discard
from subagent_cli.process.inventory import Inventory
from subagent_cli.store import atomic

_RESERVE = 256_000_000
_HINT = "raise max_workspace, name a smaller folder with --cwd, or work in a git repository that ignores the bulk"
_CEILING = "GIT_CEILING_DIRECTORIES"
# Who somebody is and how git talks to him; all others may tell git where a repository is.
_KEPT = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSH", "GIT_ASKPASS", "GIT_TERMINAL_", "GIT_EDITOR", "GIT_PAGER")


class Workspace(Value):
    """`root` is the copy, `folder` where the child is to work in it, and `commit` what HEAD is there.

    `files` counts files, links and folders, `bytes` is how long the files are, and `unread` names what is missing
    because it may not be read.
    """

    root: str
    folder: str
    kind: str
    commit: str | None
    files: int
    bytes: int
    unread: tuple[str, ...]


def isolate(
    source: str,
    target: str,
    *,
    limit_bytes: int,
    limit_files: int,
    environment: Mapping[str, str],
    without: Sequence[str] = (),
) -> Workspace:
    """Makes `target` a copy of the folder `source`, or of the work tree around it.

    What is `without`, and the target itself, is left out. `environment` is that of the caller, in which git is found.
    """
    if not os.path.isdir(source):
        raise InvalidInput(f"the working folder is not a folder: {source!r}", code="bad_cwd")
    source, target = os.path.realpath(source), _without_links_above(target)
    with atomic.io("copy the folder"):
        program = git.installed(environment)
        repository = clone.find(source, program) if program else None
        found = _counted(repository, source, limit_files, (*without, target))
        _afford(found, os.path.dirname(target), limit_bytes, limit_files)
        os.mkdir(target, 0o700)
        try:
            return _copied(repository, found, source, target)
        except BaseException:
            discard(target)
            raise


def confined(environment: Mapping[str, str], workspace: Workspace) -> dict[str, str]:
    """An environment for who works in a workspace: git finds its repository and none above, and no variable names
    the folder of the caller as the one to work in."""
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_") or name.startswith(_KEPT)}
    ceilings = (os.path.dirname(workspace.root), environment.get(_CEILING))
    kept.pop("OLDPWD", None)
    return kept | {_CEILING: os.pathsep.join(filter(None, ceilings)), "PWD": workspace.folder}


def _counted(repository: Repository | None, source: str, most: int, without: Sequence[str]) -> Inventory:
    top = repository.top if repository else source
    places = (inside(place(path), top) for path in without for place in (os.path.realpath, _without_links_above))
    spared = set(filter(None, places))
    if repository:
        return inventory.of_these(top, spared, clone.names(repository, spared))
    return inventory.of_all(top, spared, most)


def _afford(found: Inventory, room: str, limit_bytes: int, limit_files: int) -> None:
    """Refuses what is too much, before anything is written."""
    reason = ""
    disk = os.statvfs(room)
    free = disk.f_bavail * disk.f_frsize - min(_RESERVE, disk.f_blocks * disk.f_frsize // 20)
    if found.entries > limit_files or found.size > limit_bytes:
        reason = f"at most {limit_files} and {_spelled(limit_bytes)} are allowed"
    elif found.space > free:
        reason = f"the disk has room for {_spelled(max(0, free))}"
    elif disk.f_files and found.entries > disk.f_favail:
        reason = f"the disk has room for {disk.f_favail}"
    if reason:
        # Counting may have ended early.
        about = "at least " if found.entries > limit_files else ""
        amount = f"{about}{found.entries} files, {_spelled(found.size)}"
        raise InvalidInput(
            f"{found.top} is too large to work in a copy of it: {amount}; {reason}",
            code="workspace_too_large",
            hint=_HINT,
        )


def _copied(repository: Repository | None, found: Inventory, source: str, target: str) -> Workspace:
    copying.copy(found, target)
    commit = clone.establish(repository, target) if repository else None
    folder = os.path.join(target, inside(source, found.top) or "").rstrip("/")
    # git knows no empty folders, but somebody may work in one.
    os.makedirs(folder, 0o700, exist_ok=True)
    kind = "git" if repository else "copy"
    return Workspace(target, folder, kind, commit, found.entries, found.size, tuple(found.unread))


def _without_links_above(path: str) -> str:
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)


def _spelled(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"

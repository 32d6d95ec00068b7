"""A repository of its own for a copy of a git work tree.

Nothing that git does in the copy reaches the original: the copy has its own HEAD, branches, tags, stash, index,
configuration and work tree, no remote, and no hooks. It borrows the objects of the original, as `git clone --shared`
does: they are read there, so they must stay there as long as the copy does, and new ones are written here. (Where git
would write an object that it can borrow, it sets the time of that one to now, so that it is not cleared away; the
bytes are never touched.) In the original nothing is written, not even objects or the index. (Where it has a split
index, git notes with a time that its shared part is in use, as each of its commands does.)

The index is that of the original, so what was staged is, but a merge or rebase under way is not. Besides the branches
and tags come those that the original remembers of its remotes, the user's name and what git needs to read files as
the original does. What the original fetches only on demand is not fetched. A folder that has a repository of its own,
a submodule or not, comes without it: its files are plain files.
"""

import os
from collections.abc import Collection
from contextlib import suppress

from subagent_cli.core.value import Value
from subagent_cli.process.copying import copy_file
from subagent_cli.process.descent import inside, opened
from subagent_cli.process.git import Git, refused
from subagent_cli.process.inventory import spared
from subagent_cli.store import atomic

_QUESTIONS = ("--is-inside-work-tree", "--is-inside-git-dir", "--show-object-format", "--show-toplevel")
_NOWHERE = b"not a git repository (or any "
_KEPT = r"^(user\.(name|email)|core\.(autocrlf|eol|safecrlf|filemode|symlinks|ignorecase|precomposeunicode))$"
# A collection of garbage in the background would outlive who works there. No push goes to a path, whoever names it.
_OWN = {"gc.auto": "0", "maintenance.auto": "false", "protocol.file.allow": "never"}


class Repository(Value):
    git: Git
    top: str
    object_format: str


def find(folder: str, git: Git) -> Repository | None:
    """The repository in whose work tree a folder lies; None where it lies in none, or is ignored there."""
    code, out, err = git.tried(folder, "rev-parse", *_QUESTIONS)
    in_tree, in_git, object_format, top = (*os.fsdecode(out).removesuffix("\n").split("\n", 3), "", "", "", "")[:4]
    if in_git == "true" or _NOWHERE in err:
        return None
    below = inside(folder, top)
    if code or in_tree != "true" or below is None or not os.path.lexists(os.path.join(top, ".git")):
        raise refused(folder, err or b"the work tree of its repository lies elsewhere")
    # Before a name that begins with a colon git must see that it is one.
    if below and git(top, "check-ignore", f"./{below}", good=(0, 1)):
        return None
    return Repository(git, top, object_format)


def names(repository: Repository, without: Collection[str]) -> list[str]:
    """The files of a work tree that git knows or would take, also in repositories below it, and these as folders."""
    found, left = list[str](), [""]
    while left:
        folder = left.pop()
        listed = repository.git(
            os.path.join(repository.top, folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"
        )
        for name in filter(None, listed.split(b"\0")):
            path = os.path.join(folder, os.fsdecode(name).rstrip("/"))
            if _proper(path) and not spared(path, without):
                found.append(path)
                if _has_its_own(os.path.join(repository.top, path)):
                    left.append(path)
    return found


def establish(repository: Repository, target: str) -> str | None:
    """Makes the copy of a work tree a repository; gives the commit that it is at."""
    git, top = repository.git, repository.top
    git(target, "init", "--quiet", "--template=", f"--object-format={repository.object_format}", alone=True)
    own = os.path.join(target, ".git")
    here = git.line(top, "rev-parse", "--absolute-git-dir")
    common = os.path.realpath(os.path.join(top, git.line(top, "rev-parse", "--git-common-dir")))
    borrowed = _quoted(os.path.join(common, "objects"))
    atomic.create(os.path.join(own, "objects", "info", "alternates"), borrowed, lasting=False)
    _take(common, own, ["shallow"])
    _take(os.path.join(common, "info"), os.path.join(own, "info"), ["exclude", "attributes"])
    _take(here, own, ["index", *(name for name in os.listdir(here) if name.startswith("sharedindex."))])
    _point(repository, own)
    _configure(repository, own)
    if os.path.exists(os.path.join(own, "index")):
        # The files are the same, but git knows them by their number and times: it looks at them once, here and now.
        apart = ("--no-untracked-cache", "--no-split-index", "--no-fsmonitor")
        git(target, "update-index", "-q", *apart, "--refresh", good=(0, 1), alone=True)
    return git.line(target, "rev-parse", "--quiet", "--verify", "HEAD", good=(0, 1)) or None


def _point(repository: Repository, own: str) -> None:
    """HEAD, branches and tags as they are in the original."""
    git, top = repository.git, repository.top
    kinds = ("refs/heads", "refs/tags", "refs/remotes")
    refs = git(top, "for-each-ref", "--format=%(objectname) %(refname)", *kinds)
    commit = git.line(top, "rev-parse", "--quiet", "--verify", "HEAD", good=(0, 1))
    branch = git.line(top, "symbolic-ref", "--quiet", "HEAD", good=(0, 1))
    follows = branch.startswith("refs/heads/") or not commit
    atomic.create(os.path.join(own, "packed-refs"), refs, lasting=False)
    atomic.replace(os.path.join(own, "HEAD"), os.fsencode(f"ref: {branch}\n" if follows else f"{commit}\n"))


def _configure(repository: Repository, own: str) -> None:
    said = os.fsdecode(repository.git(repository.top, "config", "-z", "--get-regexp", _KEPT, good=(0, 1)))
    kept = (entry.partition("\n") for entry in said.split("\0") if entry)
    settings = {name: value if there else "true" for name, there, value in kept}
    for name, value in (settings | _OWN).items():
        repository.git(own, "config", "--file", "config", name, value)


def _take(source: str, target: str, names: Collection[str]) -> None:
    with suppress(FileExistsError):
        os.mkdir(target)
    with suppress(FileNotFoundError, NotADirectoryError), opened(source) as here, opened(target) as there:
        for name in names:
            copy_file(here, name, there)


def _proper(path: str) -> bool:
    """Whether a name can be one of a file below the top; what an index says is not to be trusted."""
    return not any(part in ("", ".", "..") or part.lower() == ".git" for part in path.split("/"))


def _has_its_own(path: str) -> bool:
    """Whether a folder has a repository of its own, and is reached through no link, of which some lead in circles."""
    return os.path.lexists(os.path.join(path, ".git")) and os.path.isdir(path) and os.path.realpath(path) == path


def _quoted(path: str) -> bytes:
    """As git reads a path that may have anything in it."""
    plain = range(0x20, 0x7F)
    return b'"%s"\n' % b"".join(
        b"%c" % byte if byte in plain and byte not in b'"\\' else b"\\%03o" % byte for byte in os.fsencode(path)
    )

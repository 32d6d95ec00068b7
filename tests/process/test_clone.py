"""A copy of a git work tree says the same as the original, and nothing that git does in it reaches the original."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subagent_cli.core.errors import Failed
from subagent_cli.process import disposal, git, workspace
from tests.process.originals import (
    Original,
    a_repository,
    apart_from_borrowing,
    contents,
    everything,
    isolate,
)

__all__ = ["a_repository"]

# Says that it was run, and passes on what it gets.
TRAP = """#!/bin/sh
echo "$0 $*" >> {marks}
cat
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def change_everything(repo: Original) -> None:
    """Every kind of change that is not committed."""
    for name in ("staged", "both", "gone", "removed", "made executable", "now a link", "now a folder", "renamed"):
        repo.write(f"old/{name}", f"{name}\n")
    repo.commit("second")
    repo.write("kept.txt", "modified\n")
    repo.write("old/staged", "staged\n")
    repo.write("old/both", "first\n")
    repo.write("old/added", "added\n")
    repo.git("add", "old")
    repo.write("old/both", "second\n")
    (repo.root / "old" / "gone").unlink()
    repo.git("rm", "-q", "old/removed")
    repo.git("mv", "old/renamed", "old/with a new name")
    (repo.root / "old" / "made executable").chmod(0o755)
    (repo.root / "old" / "now a link").unlink()
    (repo.root / "old" / "now a link").symlink_to("added")
    (repo.root / "old" / "now a folder").unlink()
    repo.write("old/now a folder/inside", "inside\n")
    repo.write("untracked/file", "new\n")
    repo.write("ignored/file", "ignored\n")
    repo.write("old/noise.log", "ignored\n")


@pytest.mark.case("C4-18", "X23")
def test_a_copy_has_what_is_committed_staged_changed_and_new_but_not_what_is_ignored(
    repo: Original, target: Path
) -> None:
    change_everything(repo)
    head, before = repo.git("rev-parse", "HEAD").strip(), everything(repo.root)
    made = isolate(repo.root, target)
    assert everything(repo.root) == before
    assert (made.kind, made.commit, made.unread) == ("git", head, ())
    wanted = contents(repo.root)
    for name in (b"ignored", b"ignored/file", b"old/noise.log"):
        del wanted[name]
    assert contents(target) == wanted
    assert made.files == len(wanted)
    assert repo.status(at=target) == repo.status() != ""
    assert repo.git("diff", "--cached", at=target) == repo.git("diff", "--cached") != ""
    assert repo.git("branch", "--show-current", at=target) == "main\n"
    assert repo.git("log", "--format=%H %an %s", at=target) == repo.git("log", "--format=%H %an %s")


@pytest.mark.case("C4-18", "X23")
def test_whatever_git_does_in_a_copy_the_original_stays_as_it_is(repo: Original, target: Path) -> None:
    change_everything(repo)
    repo.git("branch", "other", "HEAD~1")
    repo.git("tag", "-a", "v1", "-m", "first")
    (repo.root / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (repo.root / ".git" / "hooks" / "pre-commit").chmod(0o755)
    stashed = repo.write("kept.txt", "to be stashed\n")
    repo.git("stash", "push", "-q", str(stashed))
    before = everything(repo.root)
    isolate(repo.root, target)
    assert everything(repo.root) == before
    for words in (
        ["stash", "list"],
        ["stash", "push", "-q"],
        ["stash", "pop", "-q", "--index"],
        ["add", "-A"],
        ["commit", "-q", "-m", "the child's"],
        ["commit", "-q", "--amend", "--allow-empty", "-m", "again"],
        ["checkout", "-q", "other"],
        ["checkout", "-q", "-b", "topic"],
        ["commit", "-q", "--allow-empty", "-m", "the child's"],
        ["merge", "-q", "-s", "ours", "main", "-m", "merged"],
        ["branch", "-D", "main"],
        ["tag", "-d", "v1"],
        ["reset", "-q", "--hard", "HEAD~1"],
        ["clean", "-ffdxq"],
        ["config", "user.name", "Eve"],
        ["config", "core.worktree", str(target)],
        ["reflog", "expire", "--expire=now", "--all"],
        ["gc", "-q", "--prune=now"],
        ["repack", "-q", "-a", "-d"],
        ["prune", "--expire=now"],
        ["worktree", "prune"],
        ["pack-refs", "--all"],
        ["update-ref", "-d", "refs/heads/topic"],
    ):
        said = repo.git(*words, at=target)
        assert said == "" or words[0] not in ("stash",), words
    assert apart_from_borrowing(everything(repo.root)) == apart_from_borrowing(before)
    assert repo.git("stash", "list").count("\n") == 1
    assert disposal.discard(str(target))
    assert apart_from_borrowing(everything(repo.root)) == apart_from_borrowing(before)
    repo.git("fsck", "--strict")


@pytest.mark.case("C4-18")
def test_nothing_can_be_pushed_back(repo: Original, target: Path) -> None:
    repo.git("remote", "add", "origin", str(repo.root))
    before = everything(repo.root)
    isolate(repo.root, target)
    repo.git("commit", "-q", "--allow-empty", "-m", "the child's", at=target)
    assert repo.git("remote", at=target) == ""
    for words in (["push"], ["push", str(repo.root), "HEAD:refs/heads/theirs"], ["push", "--mirror", str(repo.root)]):
        done = subprocess.run(["git", *words], cwd=target, capture_output=True, check=False)
        assert done.returncode != 0
    assert apart_from_borrowing(everything(repo.root)) == apart_from_borrowing(before)


@pytest.mark.case("C4-27")
def test_a_copy_borrows_the_objects_and_has_none_of_its_own(repo: Original, target: Path) -> None:
    isolate(repo.root, target)
    assert repo.git("count-objects", "-v", at=target).startswith("count: 0\n")
    assert [path for path in (target / ".git" / "objects").rglob("*") if path.is_file()] == [
        target / ".git" / "objects" / "info" / "alternates"
    ]
    repo.git("fsck", "--strict", at=target)


def test_a_copy_can_be_copied(repo: Original, target: Path, tmp_path: Path) -> None:
    """As when a child has children of its own."""
    isolate(repo.root, target)
    repo.git("commit", "-q", "--allow-empty", "-m", "the child's", at=target)
    made = isolate(target, tmp_path / "second")
    assert repo.git("log", "--format=%s", at=Path(made.root)) == "the child's\nfirst\n"
    repo.git("fsck", "--strict", at=Path(made.root))


def test_a_commit_is_made_in_the_callers_name_without_the_callers_hooks(repo: Original, target: Path) -> None:
    repo.git("config", "core.hooksPath", ".husky")
    repo.write(".husky/pre-commit", "#!/bin/sh\nexit 1\n").chmod(0o755)
    isolate(repo.root, target)
    (target / "new").touch()
    repo.git("add", "-A", at=target)
    repo.git("commit", "-q", "-m", "the child's", at=target)
    assert repo.git("log", "-1", "--format=%an <%ae>", at=target) == "Ada <ada@example.org>\n"
    assert not (target / ".git" / "hooks").exists()


def test_a_name_that_is_set_only_for_the_place_of_the_original_is_carried_over(repo: Original, target: Path) -> None:
    repo.git("config", "--unset", "user.name")
    home = Path(os.environ["HOME"])
    (home / "work").write_text("[user]\n\tname = At Work\n")
    (home / ".gitconfig").write_text(f'[includeIf "gitdir:{repo.root}/"]\n\tpath = work\n')
    isolate(repo.root, target)
    repo.git("commit", "-q", "--allow-empty", "-m", "mine", at=target)
    assert repo.git("log", "-1", "--format=%an", at=target) == "At Work\n"


def test_a_child_of_a_subfolder_works_in_that_folder_of_the_whole_copy(repo: Original, target: Path) -> None:
    repo.write("src/deep/er/file", "deep\n")
    made = isolate(repo.root / "src" / "deep", target)
    assert (made.root, made.folder) == (str(target), str(target / "src" / "deep"))
    assert contents(target) == contents(repo.root)


def test_a_folder_that_git_does_not_know_is_there_all_the_same(repo: Original, target: Path) -> None:
    (repo.root / "empty" / "still").mkdir(parents=True)
    made = isolate(repo.root / "empty" / "still", target)
    assert (made.kind, os.listdir(made.folder)) == ("git", [])


@pytest.mark.parametrize("name", ["ignored", "ignored/deeper", "ignored/:(top)x"])
def test_a_folder_that_git_ignores_is_copied_as_a_plain_one(repo: Original, target: Path, name: str) -> None:
    repo.write(f"{name}/file", "here\n")
    made = isolate(repo.root / name, target)
    assert (made.kind, made.commit, os.listdir(target)) == ("copy", None, ["file"])


def test_a_repository_without_a_commit_can_be_copied(tmp_path: Path, target: Path, repo: Original) -> None:
    empty = Original(tmp_path / "empty")
    repo.git("init", "-q", "-b", "trunk", str(empty.root), at=tmp_path)
    assert isolate(empty.root, target).commit is None
    assert repo.git("status", "--porcelain", "--branch", at=target) == "## No commits yet on trunk\n"
    disposal.discard(str(target))
    empty.write("staged", "staged\n")
    empty.write("new", "new\n")
    empty.git("add", "staged")
    before = everything(empty.root)
    made = isolate(empty.root, target)
    assert (made.kind, made.commit) == ("git", None)
    assert empty.status(at=target) == "A  staged\0?? new\0"
    assert everything(empty.root) == before


def test_a_detached_head_stays_one(repo: Original, target: Path) -> None:
    first = repo.git("rev-parse", "HEAD").strip()
    repo.write("kept.txt", "second\n")
    repo.commit("second")
    repo.git("checkout", "-q", first)
    assert isolate(repo.root, target).commit == first
    assert repo.git("status", "--porcelain", "--branch", at=target) == "## HEAD (no branch)\n"


def test_branches_and_tags_can_be_named_in_a_copy(repo: Original, target: Path, tmp_path: Path) -> None:
    repo.git("tag", "-a", "v1", "-m", "first")
    repo.git("clone", "-q", str(repo.root), "clone", at=tmp_path)
    clone = Original(tmp_path / "clone")
    clone.git("checkout", "-q", "-b", "feature/one")
    before = everything(clone.root)
    isolate(clone.root, target)
    kinds = ("for-each-ref", "--format=%(objectname) %(refname) %(*objectname)")
    assert clone.git(*kinds, at=target) == clone.git(*kinds)
    assert repo.git("rev-parse", "origin/main", "v1^{commit}", at=target) == repo.git("rev-parse", "main", "main")
    assert everything(clone.root) == before


@pytest.mark.parametrize("name", ["ümläut", "\udcff", "with/slash", 'quo"te', "-", "HEAD-like"])
def test_a_branch_may_have_any_name(repo: Original, target: Path, name: str) -> None:
    repo.git("symbolic-ref", "HEAD", f"refs/heads/{name}")
    repo.git("commit", "-q", "--allow-empty", "-m", "second")
    isolate(repo.root, target)
    for words in (["symbolic-ref", "HEAD"], ["for-each-ref"]):
        assert repo.git(*words, at=target) == repo.git(*words)


def test_a_branch_that_is_broken_is_left_behind(repo: Original, target: Path) -> None:
    (repo.root / ".git" / "refs" / "heads" / "broken").write_text("nonsense")
    (repo.root / ".git" / "refs" / "heads" / "lost").write_text("1" * 40 + "\n")
    isolate(repo.root, target)
    assert repo.git("branch", "--list", "broken", at=target) == ""
    assert repo.git("log", "--format=%s", at=target) == "first\n"


def test_a_linked_work_tree_is_copied_as_a_whole_repository(repo: Original, target: Path, tmp_path: Path) -> None:
    """Its `.git` is a file, which must not come along: it would lead git back."""
    linked = tmp_path / "linked"
    repo.git("worktree", "add", "-q", "-b", "topic", str(linked))
    (linked / "new").write_text("new\n")
    (linked / "kept.txt").write_text("modified\n")
    before = everything(repo.root), everything(linked)
    made = isolate(linked, target)
    assert (target / ".git").is_dir()
    assert made.kind == "git"
    assert repo.status(at=target) == " M kept.txt\0?? new\0"
    repo.git("add", "-A", at=target)
    repo.git("commit", "-q", "-m", "the child's", at=target)
    repo.git("worktree", "prune", at=target)
    assert repo.git("branch", "--show-current", at=target) == "topic\n"
    assert apart_from_borrowing(everything(repo.root)) == apart_from_borrowing(before[0])
    assert everything(linked) == before[1]


@pytest.mark.parametrize("name", [b"new\nline", b'quo"te', b"back\\slash", b"\xff\xfe", b" ", b"-n", b":(x", b"a\tb"])
def test_any_name_of_a_file_or_folder_is_copied(repo: Original, target: Path, name: bytes) -> None:
    top = os.fsencode(repo.root)
    for folder in (b"tracked", b"untracked"):
        os.makedirs(os.path.join(top, folder, name))
        for path in (os.path.join(top, folder, name, name), os.path.join(top, folder, b"x" + name)):
            Path(os.fsdecode(path)).write_text("here\n")
        repo.git("add", "-A") if folder == b"tracked" else None
    isolate(repo.root, target)
    assert contents(target) == contents(repo.root)
    assert repo.status(at=target) == repo.status()


@pytest.mark.parametrize("name", ["new\nline", 'quo"te', "back\\slash", "#hash", "s p", "ümläut", "\udcff", "a:b", "'"])
def test_a_repository_may_lie_below_any_name(repo: Original, tmp_path: Path, name: str) -> None:
    moved = Original(tmp_path / name / "project")
    moved.root.parent.mkdir()
    repo.root.rename(moved.root)
    moved.write("kept.txt", "modified\n")
    made = isolate(moved.root / "src", tmp_path / name / "copy")
    assert made.folder == str(tmp_path / name / "copy" / "src")
    assert moved.status(at=Path(made.root)) == " M kept.txt\0"
    moved.git("fsck", "--strict", at=Path(made.root))


@pytest.fixture
def nested(repo: Original, tmp_path: Path) -> Original:
    """A repository with a submodule, with another that is not initialised, and with a repository that it ignores to
    be one, all of which ignore something."""
    library = Original.of(tmp_path / "library")
    allowed = ("-c", "protocol.file.allow=always")
    for name in ("libs/one", "libs/two"):
        repo.git(*allowed, "submodule", "add", "-q", str(library.root), name)
    repo.commit("libraries")
    repo.git("submodule", "deinit", "-f", "-q", "libs/two")
    own = Original.of(repo.root / "own")
    for inner in (Original(repo.root / "libs" / "one"), own):
        inner.write("new.txt", "new\n")
        inner.write("src/main.py", "modified\n")
        inner.write("ignored/bulk", "x" * 1000)
    return repo


def test_repositories_in_a_work_tree_are_copied_as_plain_files(nested: Original, target: Path) -> None:
    before = everything(nested.root)
    made = isolate(nested.root, target)
    assert made.kind == "git"
    for name in ("libs/one", "own"):
        inner = target / name
        assert sorted(os.listdir(inner)) == [".gitignore", "kept.txt", "new.txt", "src"]
        assert (inner / "src" / "main.py").read_text() == "modified\n"
    assert os.listdir(target / "libs" / "two") == []
    assert "libs" not in nested.status(at=target)
    (target / "libs" / "one" / "kept.txt").write_text("the child's\n")
    nested.git("commit", "-q", "--allow-empty", "-a", "-m", "the child's", at=target)
    assert apart_from_borrowing(everything(nested.root)) == apart_from_borrowing(before)


def test_a_submodule_is_a_repository_like_any_other(nested: Original, target: Path) -> None:
    before = everything(nested.root)
    made = isolate(nested.root / "libs" / "one" / "src", target)
    assert (made.kind, made.folder) == ("git", str(target / "src"))
    assert nested.status(at=target) == " M src/main.py\0?? new.txt\0"
    assert everything(nested.root) == before


def test_variables_that_name_another_repository_do_not_mislead(repo: Original, target: Path, tmp_path: Path) -> None:
    other = Original.of(tmp_path / "other")
    other.write("theirs", "theirs\n")
    other.commit("theirs")
    theirs = str(other.root / ".git")
    misleading = {
        "GIT_DIR": theirs,
        "GIT_WORK_TREE": str(other.root),
        "GIT_INDEX_FILE": f"{theirs}/index",
        "GIT_OBJECT_DIRECTORY": f"{theirs}/objects",
        "GIT_COMMON_DIR": theirs,
        "GIT_TEMPLATE_DIR": str(other.root),
        "GIT_CEILING_DIRECTORIES": str(repo.root),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.worktree",
        "GIT_CONFIG_VALUE_0": str(other.root),
        "GIT_TRACE": str(tmp_path / "trace"),
    }
    before = everything(other.root), everything(repo.root)
    isolate(repo.root / "src", target, environment={**os.environ, **misleading})
    assert contents(target) == contents(repo.root)
    assert (everything(other.root), everything(repo.root)) == before
    assert not (tmp_path / "trace").exists()


def test_nothing_that_a_repository_names_is_run(repo: Original, target: Path, tmp_path: Path) -> None:
    """Copying it must not be enough for a repository that was prepared to run programs."""
    marks, trap = tmp_path / "marks", tmp_path / "trap"
    trap.write_text(TRAP.format(marks=marks))
    trap.chmod(0o755)
    repo.write(".gitattributes", "* filter=trap diff=trap merge=trap\n")
    repo.commit("attributes")
    for name in ("filter.trap.clean", "filter.trap.smudge", "diff.trap.textconv", "diff.external"):
        repo.git("config", name, str(trap))
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "alias.ls-files"):
        repo.git("config", name, f"!{trap}" if name.startswith("alias") else str(trap))
    repo.git("config", "core.hooksPath", str(tmp_path / "hooks"))
    for folder in (tmp_path / "hooks", repo.root / ".git" / "hooks"):
        folder.mkdir(exist_ok=True)
        for hook in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
            shutil.copy2(trap, folder / hook)
    # Same length, so that only its content tells that it was changed.
    repo.write("kept.txt", "tpek\n")
    repo.git("status")
    assert marks.exists(), "the trap must work where it is meant to"
    marks.unlink()
    isolate(repo.root, target)
    repo.git("status", at=target)
    repo.git("commit", "-q", "-a", "-m", "the child's", at=target)
    assert not marks.exists()


def test_nothing_is_fetched_for_a_repository_that_lacks_objects(repo: Original, target: Path, tmp_path: Path) -> None:
    marks, trap = tmp_path / "marks", tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho fetched >> {marks}\nexit 1\n")
    trap.chmod(0o755)
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "trap"),
        ("remote.trap.url", f"ext::{trap}"),
        ("remote.trap.promisor", "true"),
        ("protocol.ext.allow", "always"),
        ("protocol.allow", "always"),
    ):
        repo.git("config", name, value)
    commit, blob = repo.git("rev-parse", "HEAD", "HEAD:kept.txt").split()
    for name in (commit, blob):
        (repo.root / ".git" / "objects" / name[:2] / name[2:]).unlink()
    repo.git("cat-file", "-p", commit, good=False)
    assert marks.exists(), "the trap must work where it is meant to"
    marks.unlink()
    isolate(repo.root, target)
    repo.git("cat-file", "-p", commit, at=target, good=False)
    assert not marks.exists()


def test_an_index_that_names_what_lies_outside_copies_nothing_from_there(
    repo: Original, target: Path, tmp_path: Path
) -> None:
    """What an index says is not to be trusted; git itself only writes better ones."""
    (tmp_path / "beside").write_text("secret")
    (repo.root / ".git" / "foo").write_text("secret")
    repo.write("a/b/file", "mine\n")
    repo.commit("folders")
    index = repo.root / ".git" / "index"
    names = index.read_bytes().replace(b"src/main.py", b"src/../../b").replace(b"kept.txt", b".git/foo")
    index.write_bytes(names.replace(b"a/b/file", b"../besid"))
    (tmp_path / "besid").write_text("secret")
    assert ".git/foo" in repo.git("ls-files")
    isolate(repo.root, target)
    assert b"secret" not in b"".join(thing.content for thing in everything(target).values())


def test_a_tracked_folder_that_is_a_link_by_now_is_copied_as_the_link(
    repo: Original, target: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.py").write_text("secret")
    shutil.rmtree(repo.root / "src")
    (repo.root / "src").symlink_to(outside)
    isolate(repo.root, target)
    assert os.readlink(target / "src") == str(outside)
    assert repo.status(at=target) == repo.status() == " D src/main.py\0?? src\0"


def test_a_sparse_checkout_stays_one(repo: Original, target: Path) -> None:
    repo.write("other/file", "elsewhere\n")
    repo.commit("other")
    repo.git("sparse-checkout", "set", "src")
    assert not (repo.root / "other").exists()
    isolate(repo.root, target)
    assert repo.status(at=target) == ""
    assert not (target / "other").exists()


@pytest.mark.parametrize("config", ["core.splitIndex", "core.untrackedCache", "core.fsmonitor", "index.sparse"])
def test_an_index_of_any_form_is_taken_over(repo: Original, target: Path, config: str) -> None:
    repo.git("config", config, "true")
    if config == "core.splitIndex":
        repo.git("update-index", "--split-index")
        repo.write("more", "more\n")
        repo.git("add", "more")
        assert [name for name in os.listdir(repo.root / ".git") if name.startswith("sharedindex.")]
    repo.write("kept.txt", "changed\n")
    repo.git("status")
    repo.git("fsmonitor--daemon", "stop", good=False)
    before = everything(repo.root)
    isolate(repo.root, target)
    # Each reading of a split index notes the time at its shared part.
    after = {name: before[name] if b"/sharedindex." in name else thing for name, thing in everything(repo.root).items()}
    assert after == before
    done = subprocess.run(["git", "status", "--porcelain"], cwd=target, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (repo.git("-c", "core.fsmonitor=false", "status", "--porcelain"), "")


def test_a_conflict_comes_along(repo: Original, target: Path) -> None:
    repo.git("checkout", "-q", "-b", "other")
    repo.write("kept.txt", "theirs\n")
    repo.commit("theirs")
    repo.git("checkout", "-q", "main")
    repo.write("kept.txt", "ours\n")
    repo.commit("ours")
    repo.git("merge", "other", good=False)
    isolate(repo.root, target)
    assert repo.status(at=target) == repo.status() == "UU kept.txt\0"
    assert "<<<<<<<" in (target / "kept.txt").read_text()


def test_a_shallow_repository_can_be_copied(repo: Original, target: Path, tmp_path: Path) -> None:
    repo.git("commit", "-q", "--allow-empty", "-m", "second")
    repo.git("clone", "-q", "--depth=1", f"file://{repo.root}", "shallow", at=tmp_path)
    isolate(tmp_path / "shallow", target)
    assert repo.git("log", "--format=%s", at=target) == "second\n"
    repo.git("fsck", "--strict", at=target)


def test_a_repository_of_another_object_format_can_be_copied(repo: Original, target: Path, tmp_path: Path) -> None:
    other = Original(tmp_path / "other")
    repo.git("init", "-q", "--object-format=sha256", str(other.root), at=tmp_path)
    for name in ("name", "email"):
        other.git("config", f"user.{name}", "Ada")
    other.write("file", "file\n")
    commit = other.commit("first")
    assert isolate(other.root, target).commit == commit
    assert len(commit) == 64
    assert other.status(at=target) == ""


def test_what_is_ignored_only_in_the_original_is_ignored_in_the_copy(repo: Original, target: Path) -> None:
    (repo.root / ".git" / "info" / "exclude").write_text("*.tmp\n")
    repo.write("a.tmp", "ignored\n")
    isolate(repo.root, target)
    assert not (target / "a.tmp").exists()
    (target / "b.tmp").touch()
    assert repo.status(at=target) == ""


def test_line_ends_are_read_as_in_the_original(repo: Original, target: Path) -> None:
    repo.git("config", "core.autocrlf", "true")
    repo.git("rm", "-q", "--cached", "-r", ".")
    repo.git("reset", "-q", "--hard")
    assert b"\r\n" in (repo.root / "kept.txt").read_bytes()
    isolate(repo.root, target)
    assert contents(target) == contents(repo.root)
    assert repo.status(at=target) == repo.status() == ""


def test_scripts_that_trust_the_index_find_it_fresh(repo: Original, target: Path) -> None:
    isolate(repo.root, target)
    repo.git("diff-index", "--quiet", "HEAD", at=target)
    repo.git("diff-files", "--quiet", at=target)


def test_a_repository_of_somebody_else_is_refused_as_git_refuses_it(repo: Original, target: Path) -> None:
    if os.geteuid() != 0:
        return
    os.chown(repo.root, 12345, 12345)
    with pytest.raises(Failed) as refusal:
        isolate(repo.root, target)
    assert refusal.value.code == "git_failed"
    assert "dubious ownership" in refusal.value.message
    assert "\n" not in refusal.value.message
    assert not target.exists()
    (Path(os.environ["HOME"]) / ".gitconfig").write_text(f"[safe]\n\tdirectory = {repo.root}\n")
    assert isolate(repo.root, target).kind == "git"


@pytest.mark.parametrize("damage", ["config", "index", "elsewhere", "above", "gitfile"])
def test_what_git_cannot_read_is_a_failure_of_one_line(
    repo: Original, target: Path, tmp_path: Path, damage: str
) -> None:
    source = repo.root
    if damage == "config":
        (source / ".git" / "config").write_text("[core\n")
    elif damage == "index":
        (source / ".git" / "index").write_text("nonsense")
    elif damage in ("elsewhere", "above"):
        # A repository may claim a work tree that is none of its business.
        repo.git("config", "core.worktree", str(tmp_path / "elsewhere" if damage == "elsewhere" else tmp_path))
    else:
        source = tmp_path / "moved"
        source.mkdir()
        (source / ".git").write_text("gitdir: /nowhere/.git/worktrees/x\n")
    with pytest.raises(Failed) as failure:
        isolate(source, target)
    assert failure.value.code == "git_failed"
    assert "\n" not in failure.value.message
    assert not target.exists()


@pytest.mark.parametrize("name", ["project/.git", "project/.git/refs", "bare", "bare/refs"])
def test_inside_the_repository_itself_or_a_bare_one_is_no_work_tree(
    repo: Original, target: Path, tmp_path: Path, name: str
) -> None:
    repo.git("clone", "-q", "--bare", str(repo.root), "bare", at=tmp_path)
    assert isolate(tmp_path / name, target).kind == "copy"
    assert contents(target).keys() == contents(tmp_path / name).keys()


def test_a_git_that_does_not_come_back_is_a_failure(
    repo: Original, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(git, "_PATIENCE", 0.2)
    with pytest.raises(Failed, match="longer than"):
        isolate(repo.root, target, environment={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"})
    assert not target.exists()


def test_a_git_that_lies_in_the_current_folder_is_not_run(
    repo: Original, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = repo.write("git", TRAP.format(marks=tmp_path / "marks"))
    trap.chmod(0o755)
    monkeypatch.chdir(repo.root)
    isolate(repo.root, target, environment={**os.environ, "PATH": f".::{os.environ['PATH']}"})
    assert not (tmp_path / "marks").exists()


def test_a_git_that_cannot_be_started_is_a_failure(repo: Original, target: Path, tmp_path: Path) -> None:
    (tmp_path / "git").write_text("\0\0\0")
    (tmp_path / "git").chmod(0o755)
    with pytest.raises(Failed) as failure:
        isolate(repo.root, target, environment={"PATH": str(tmp_path)})
    assert failure.value.code == "git_failed"


def test_a_child_finds_its_repository_whatever_its_callers_variables_say(repo: Original, target: Path) -> None:
    """As when a hook of the original dispatches: git tells its hooks where the repository is."""
    made = isolate(repo.root, target)
    before = everything(repo.root)
    caller = {**os.environ, "GIT_DIR": str(repo.root / ".git"), "GIT_INDEX_FILE": str(repo.root / ".git" / "index")}
    (target / "new").write_text("new\n")
    for words in (["add", "-A"], ["commit", "-q", "-m", "the child's"]):
        subprocess.run(["git", *words], cwd=made.folder, env=workspace.confined(caller, made), check=True)
    assert apart_from_borrowing(everything(repo.root)) == apart_from_borrowing(before)


NAMES = st.sampled_from(["a", "b", "c d", 'q"', "n\nl", "\udcfe"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
WORDS = st.sampled_from(["write", "write more", "stage", "remove", "chmod", "link", "ignore"])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(st.tuples(WORDS, PATHS), min_size=1, max_size=12))
def test_any_state_of_a_work_tree_is_copied_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, tuple[str, ...]]]
) -> None:
    place = tmp_path_factory.mktemp("any")
    repo = Original.of(place / "project")
    for word, parts in steps:
        do(repo, word, repo.root.joinpath(*parts))
    before, ignored = everything(repo.root), repo.git("ls-files", "-zoi", "--exclude-standard").split("\0")
    isolate(repo.root, place / "copy")
    assert repo.status(at=place / "copy") == repo.status()
    wanted = {
        name: thing
        for name, thing in contents(repo.root).items()
        # git knows no folders.
        if thing[0] != stat.S_IFDIR and os.fsdecode(name) not in ignored
    }
    assert {name: thing for name, thing in contents(place / "copy").items() if thing[0] != stat.S_IFDIR} == wanted
    assert everything(repo.root) == before


def do(repo: Original, word: str, path: Path) -> None:
    """One step of somebody's work, where it is possible."""
    try:
        if word.startswith("write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{word}\n")
        elif word == "stage":
            repo.git("add", "-A", "--", str(path), good=False)
        elif word == "remove":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif word == "chmod":
            path.chmod(0o755)
        elif word == "link":
            path.symlink_to("a")
        else:
            with (repo.root / ".gitignore").open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{path.name}\n")
    except OSError:
        return

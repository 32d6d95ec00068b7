"""What a child has made comes out of its workspace, and nothing comes with it, whatever the child names."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subagent_cli.core.errors import Failed
from subagent_cli.process.delivery import deliver
from subagent_cli.process.disposal import discard
from subagent_cli.process.workspace import Workspace
from subagent_cli.store import atomic
from tests.process.originals import contents, everything, walk_down

SECRET = "root:x:0:0"


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    """A workspace whose child works in a subfolder of it."""
    folder = tmp_path / "work" / "sub"
    folder.mkdir(parents=True)
    (folder / "report.md").write_text("done")
    (folder / "out" / "deep").mkdir(parents=True)
    (folder / "out" / "a.txt").write_text("a")
    (folder / "out" / "deep" / "b.txt").write_text("b")
    (tmp_path / "work" / "beside.md").write_text("beside")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "passwd").write_text(SECRET)
    return Workspace(str(tmp_path / "work"), str(folder), "copy", None, 0, 0, ())


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "artifacts" / "run"


def bring(work: Workspace, into: Path, *names: str) -> tuple[list[str], list[str]]:
    return deliver(work, names, str(into))


@pytest.mark.case("X23")
def test_files_arrive_under_the_names_that_the_child_gave_them(work: Workspace, into: Path) -> None:
    assert bring(work, into, "report.md", "out/deep/b.txt") == (["report.md", "out/deep/b.txt"], [])
    assert (into / "report.md").read_text() == "done"
    assert (into / "out" / "deep" / "b.txt").read_text() == "b"
    assert sorted(contents(into)) == [b"out", b"out/deep", b"out/deep/b.txt", b"report.md"]


def test_folders_arrive_with_all_that_is_in_them(work: Workspace, into: Path) -> None:
    (Path(work.folder) / "out" / "empty").mkdir()
    assert bring(work, into, "out/") == (["out"], [])
    assert sorted(contents(into)) == [
        b"out",
        b"out/a.txt",
        b"out/deep",
        b"out/deep/b.txt",
        b"out/empty",
    ]


def test_a_name_may_be_absolute_as_long_as_it_stays_inside(work: Workspace, into: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path)
    names = (f"{work.folder}/report.md", f"{tmp_path}/alias/work/sub/out/a.txt", f"{work.root}/beside.md")
    assert bring(work, into, *names) == (["report.md", "out/a.txt", "beside.md"], [])
    assert (into / "beside.md").read_text() == "beside"


def test_the_same_thing_by_many_names_arrives_once(work: Workspace, into: Path) -> None:
    names = ("report.md", "./report.md", ".//report.md", f"{work.folder}/report.md", "report.md")
    assert bring(work, into, *names) == (["report.md"], [])


def test_what_is_missing_is_told_and_all_else_arrives(work: Workspace, into: Path) -> None:
    assert bring(work, into, "draft.md", "report.md", "out/none") == (["report.md"], ["draft.md", "out/none"])


def test_nothing_to_bring_makes_a_folder_all_the_same(work: Workspace, into: Path) -> None:
    assert bring(work, into) == ([], [])
    assert into.is_dir()


@pytest.fixture
def trapped(work: Workspace, tmp_path: Path) -> Workspace:
    """A workspace in which every kind of thing lies that must not come out."""
    here, secret = Path(work.folder), tmp_path / "secret"
    for name, leads in (
        ("file link", secret / "passwd"),
        ("folder link", secret),
        ("climbing", "../../secret"),
        ("step", secret),
        ("two steps", "step/passwd"),
        ("dangling", "nowhere"),
        ("circle", "circle"),
        ("whole", ".."),
        ("zero", "/dev/zero"),
    ):
        (here / name).symlink_to(leads)
    os.mkfifo(here / "pipe")
    os.mknod(here / "socket", stat.S_IFSOCK | 0o600)
    for name in (".git", ".Git"):
        (here / name).mkdir()
        (here / name / "config").touch()
    return work


HOSTILE = (
    *("", ".", "./", "/", "..", "../beside.md", "../../secret/passwd", "out/../../../secret/passwd"),
    *("out/../report.md", "/etc/passwd", "//etc/passwd", "~/x", "nul\0l", "\ud800", "x" * 5000, "x/" * 2500),
    *("file link", "folder link", "folder link/passwd", "climbing/passwd", "two steps", "dangling", "circle"),
    *("whole", "zero", "pipe", "socket", ".git", ".git/config", ".Git"),
)


@pytest.mark.case("C4-18")
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:30]))
def test_no_name_leads_out_of_the_workspace(trapped: Workspace, into: Path, tmp_path: Path, name: str) -> None:
    before = everything(tmp_path / "secret"), everything(Path(trapped.root))
    assert bring(trapped, into, name, "report.md") == (["report.md"], [name])
    assert os.listdir(into) == ["report.md"]
    assert set(os.listdir(tmp_path)) == {"work", "secret", "artifacts"}
    assert (everything(tmp_path / "secret"), everything(Path(trapped.root))) == before


def test_a_chain_of_links_without_end_is_missing(work: Workspace, into: Path) -> None:
    for number in range(3000):
        (Path(work.folder) / f"link-{number}").symlink_to(f"link-{number + 1}")
    (Path(work.folder) / "link-3000").write_text("the end")
    assert bring(work, into, "link-0", f"{work.folder}/link-0/x", "link-2999") == (
        ["link-2999"],
        ["link-0", f"{work.folder}/link-0/x"],
    )


def test_a_link_that_stays_inside_is_followed(work: Workspace, into: Path) -> None:
    folder = Path(work.folder)
    (folder / "latest.md").symlink_to("report.md")
    (folder / "results").symlink_to(f"{work.folder}/out")
    (folder / "outer").symlink_to("../beside.md")
    names = ["latest.md", "results/deep", "outer"]
    assert bring(work, into, *names) == (names, [])
    assert (into / "latest.md").read_text() == "done"
    assert (into / "results" / "deep" / "b.txt").read_text() == "b"
    assert (into / "outer").read_text() == "beside"
    assert not any(path.is_symlink() for path in into.rglob("*"))


def test_of_a_folder_only_files_and_folders_arrive(work: Workspace, into: Path, tmp_path: Path) -> None:
    out = Path(work.folder) / "out"
    (out / "link").symlink_to(tmp_path / "secret")
    (out / "inner link").symlink_to("a.txt")
    (out / "deep" / ".git").mkdir()
    os.mkfifo(out / "deep" / "pipe")
    delivered, missing = bring(work, into, "out")
    assert delivered == ["out"]
    assert sorted(missing) == ["out/deep/.git", "out/deep/pipe", "out/inner link", "out/link"]
    assert sorted(contents(into)) == [b"out", b"out/a.txt", b"out/deep", b"out/deep/b.txt"]


def test_a_workspace_that_was_replaced_by_a_link_brings_nothing(work: Workspace, into: Path, tmp_path: Path) -> None:
    (tmp_path / "secret" / "sub").mkdir()
    (tmp_path / "secret" / "sub" / "report.md").write_text(SECRET)
    os.rename(work.root, tmp_path / "moved")
    os.symlink(tmp_path / "secret", work.root)
    assert bring(work, into, "report.md", f"{work.folder}/report.md")[0] == []
    os.unlink(work.root)
    assert bring(work, into, "report.md") == ([], ["report.md"])


def test_a_folder_that_becomes_a_link_at_the_last_moment_is_not_entered(
    work: Workspace, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.path.realpath
    (tmp_path / "secret" / "a.txt").write_text(SECRET)

    def looking(path: str) -> str:
        found = real(path)
        if found.endswith("a.txt"):
            (Path(work.folder) / "out").rename(tmp_path / "work" / "moved")
            (Path(work.folder) / "out").symlink_to(tmp_path / "secret")
        return found

    monkeypatch.setattr(os.path, "realpath", looking)
    assert bring(work, into, "out/a.txt") == ([], ["out/a.txt"])


def test_what_is_deeper_than_anybody_looks_is_left_behind(work: Workspace, into: Path) -> None:
    for _ in walk_down(Path(work.folder) / "out", 2000):
        pass
    delivered, missing = bring(work, into, "out")
    assert (delivered, missing) == (["out"], ["out/" + "/".join(["d"] * 64)])
    assert discard(work.root)


def test_what_is_there_is_replaced_as_a_whole_and_links_are_not_written_through(
    work: Workspace, into: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "secret" / "passwd"
    into.mkdir(parents=True)
    (into / "out").mkdir()
    (into / "report.md").symlink_to(precious)
    (into / "out" / "a.txt").write_text("older and longer")
    os.link(into / "out" / "a.txt", tmp_path / "second name")
    assert bring(work, into, "report.md", "out") == (["report.md", "out"], [])
    assert precious.read_text() == SECRET
    assert not (into / "report.md").is_symlink()
    assert (into / "out" / "a.txt").read_text() == "a"
    assert (tmp_path / "second name").read_text() == "older and longer"


def test_what_stands_in_the_way_stays_and_is_told(work: Workspace, into: Path, tmp_path: Path) -> None:
    into.mkdir(parents=True)
    (into / "report.md").mkdir()
    (into / "report.md" / "mine").touch()
    (into / "out").symlink_to(tmp_path / "secret")
    before = everything(tmp_path / "secret")
    assert bring(work, into, "report.md", "out", "out/deep/b.txt") == ([], ["report.md", "out", "out/deep/b.txt"])
    (into / "out").unlink()
    (into / "out").mkdir()
    (into / "out" / "deep").write_text("a file")
    (into / "out" / "a.txt").mkdir()
    delivered, missing = bring(work, into, "out")
    assert (delivered, sorted(missing)) == (["out"], ["out/a.txt", "out/deep"])
    assert (into / "report.md" / "mine").exists()
    assert (into / "out" / "deep").read_text() == "a file"
    assert everything(tmp_path / "secret") == before


def test_the_folder_itself_may_be_a_link_of_the_users(work: Workspace, into: Path, tmp_path: Path) -> None:
    into.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    into.symlink_to(tmp_path / "elsewhere")
    assert bring(work, into, "report.md") == (["report.md"], [])
    assert (tmp_path / "elsewhere" / "report.md").read_text() == "done"


def test_what_arrives_is_only_the_users_and_runs_if_it_ran(work: Workspace, into: Path) -> None:
    (Path(work.folder) / "report.md").chmod(0o666)
    (Path(work.folder) / "script").touch()
    (Path(work.folder) / "script").chmod(0o6777)
    bring(work, into, "report.md", "script", "out")
    modes = {name: stat.S_IMODE((into / name).stat().st_mode) for name in ("report.md", "script", "out")}
    assert modes == {"report.md": 0o600, "script": 0o700, "out": 0o700}


def test_holes_arrive_as_holes(work: Workspace, into: Path) -> None:
    os.truncate(Path(work.folder) / "report.md", 1 << 40)
    assert bring(work, into, "report.md") == (["report.md"], [])
    assert (into / "report.md").stat().st_size == 1 << 40
    assert (into / "report.md").stat().st_blocks < 1000


def test_a_full_disk_is_a_failure_and_leaves_what_was_there(
    work: Workspace, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    bring(work, into, "report.md")
    (Path(work.folder) / "report.md").write_text("new")
    monkeypatch.setattr(atomic, "write_all", full)
    with pytest.raises(Failed) as failure:
        bring(work, into, "report.md")
    assert failure.value.code == "disk_full"
    assert {name: thing[2] for name, thing in contents(into).items()} == {b"report.md": b"done"}


def test_a_file_in_the_place_of_the_folder_is_a_failure(work: Workspace, into: Path) -> None:
    into.parent.mkdir()
    into.touch()
    with pytest.raises(Failed):
        bring(work, into, "report.md")


def test_what_a_crash_left_is_no_obstacle(work: Workspace, into: Path) -> None:
    into.mkdir(parents=True)
    for number in range(500):
        (into / f".{os.getpid()}-{number}.tmp").symlink_to("/nowhere")
    assert bring(work, into, "report.md") == (["report.md"], [])


def test_bringing_leaves_no_open_files(work: Workspace, into: Path) -> None:
    os.mkfifo(Path(work.folder) / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    bring(work, into, "report.md", "out", "pipe", "../x", "nothing")
    assert len(os.listdir("/proc/self/fd")) == before


PARTS = st.sampled_from(["a", "b", "file", "..", ".", "", "up", "out", "self", "~", "\0", ".git", "pipe"])
NAMES = st.lists(PARTS, min_size=1, max_size=6).map("/".join)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(names=st.lists(NAMES | st.text(max_size=8), max_size=6), links=st.lists(st.tuples(PARTS, NAMES), max_size=4))
def test_whatever_links_a_child_makes_and_names_nothing_outside_is_read_or_written(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], links: list[tuple[str, str]]
) -> None:
    place = tmp_path_factory.mktemp("any")
    for folder in ("work/a/b", "work/b", "secret/a"):
        (place / folder).mkdir(parents=True)
        (place / folder / "file").write_text("mine" if folder.startswith("work") else SECRET)
    (place / "secret" / "b").write_text(SECRET)
    os.mkfifo(place / "work" / "pipe")
    for name, leads in (("up", ".."), ("out", "../secret"), ("self", "."), *links):
        with suppress(OSError, ValueError):
            (place / "work" / name).symlink_to(leads)
    work = Workspace(str(place / "work"), str(place / "work"), "copy", None, 0, 0, ())
    before = everything(place / "secret"), everything(place / "work"), set(os.listdir(place))
    delivered, _ = deliver(work, names, str(place / "into"))
    after = everything(place / "into")
    assert SECRET.encode() not in b"".join(thing.content for thing in after.values())
    assert (everything(place / "secret"), everything(place / "work")) == before[:2]
    assert set(os.listdir(place)) == before[2] | {"into"}
    assert all(os.path.lexists(place / "into" / name) for name in delivered)
    assert len(set(names)) >= len(delivered)

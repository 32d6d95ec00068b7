"""Removing a run: gone in one step, nothing left in the end, and a crash at any point is made good later."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from subagent_cli.core.errors import Busy, Refused, RunNotFound
from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context
from subagent_cli.store import removal
from subagent_cli.store import runs as run_store
from subagent_cli.store.reconcile import reconcile
from subagent_cli.store.runs import Runs
from tests.store.world import PATIENCE, FakeClock, children, everything, new_run, open_at, ready

KILLED = """
import os, signal, sys
from subagent_cli.store import removal
from subagent_cli.store import runs as store
root, run_id, place = sys.argv[1:]
store.reached = lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == place else None
here = store.Runs(root)
removal.remove(here, run_id, removal.entries_of(here.layout, [run_id]), lambda: None)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def context(root: Path) -> Context:
    return open_at(root, FakeClock())


def ended_run(context: Context, key: str | None = None) -> str:
    run_id: str = runs.create(context, "worker", "do it", name="tidy", key=key)["runId"]
    questions.ask(context, "Which?", run=run_id)
    questions.reply(context, run_id, "That.")
    runs.update(context, run_id, "success")
    return run_id


def remove(context: Context, run_id: str) -> list[str]:
    entries = removal.entries_of(context.runs.layout, [run_id])
    return removal.remove(context.runs, run_id, entries, lambda: None)


def left_of(root: Path, run_id: str) -> list[str]:
    """Every file whose name or content still speaks of the run."""
    return [name for name, data in everything(root).items() if run_id in name or run_id.encode() in data]


def test_a_removed_run_leaves_nothing_behind(context: Context, root: Path) -> None:
    other, run_id = ended_run(context, key="other"), ended_run(context, key="mine")
    assert remove(context, run_id) == []
    assert left_of(root, run_id) == []
    assert context.runs.all() == [other]
    assert context.runs.index.named("tidy") == [other]
    assert runs.create(context, "worker", "do it", name="tidy", key="other")["runId"] == other
    assert runs.create(context, "worker", "do it", name="tidy", key="mine")["runId"] not in (other, run_id)


@pytest.mark.parametrize("place", ["trashed", "forgotten", "deleted"])
def test_a_crash_between_the_steps_is_made_good_by_the_next_emptying(root: Path, context: Context, place: str) -> None:
    run_id = ended_run(context, key="mine")
    done = subprocess.run([sys.executable, "-P", "-c", KILLED, str(root), run_id, place], timeout=PATIENCE, check=False)
    assert done.returncode == -9
    assert context.runs.all() == []
    emptied = removal.empty_trash(context.runs.layout)
    assert emptied == ([] if place == "deleted" else [run_id])
    assert [name for name in left_of(root, run_id) if not name.endswith(".lock")] == []
    assert removal.empty_trash(context.runs.layout) == []


def test_a_check_that_refuses_leaves_the_run_as_it_is(context: Context, root: Path) -> None:
    run_id = ended_run(context)
    before = everything(root)

    def check() -> None:
        raise Refused("not now")

    with pytest.raises(Refused):
        removal.remove(context.runs, run_id, {}, check)
    assert everything(root) == before


def test_the_check_is_made_under_the_lock_of_the_run(context: Context, root: Path) -> None:
    run_id = ended_run(context)
    with children(("hold", root, run_id)) as [holder]:
        ready(holder)
        impatient = Runs(str(root), lock_timeout=0.05)
        with pytest.raises(Busy):
            removal.remove(impatient, run_id, {}, lambda: pytest.fail("called without the lock"))
    assert context.runs.exists(run_id)


def test_a_run_that_is_gone_is_not_found(context: Context) -> None:
    run_id = ended_run(context)
    remove(context, run_id)
    with pytest.raises(RunNotFound):
        remove(context, run_id)


def test_a_run_that_goes_while_its_lock_is_waited_for_is_not_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = ended_run(context)
    exists = iter([True, False, False])
    monkeypatch.setattr(context.runs, "exists", lambda _: next(exists))
    with pytest.raises(RunNotFound):
        remove(context, run_id)


def test_links_are_removed_and_never_followed(context: Context, root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("keep me")
    run_id = ended_run(context)
    (root / run_id / "folder").symlink_to(precious)
    (root / run_id / "file").symlink_to(precious / "letter")
    (root / run_id / "quarantine").symlink_to(precious)
    remove(context, run_id)
    assert (precious / "letter").read_text() == "keep me"
    assert left_of(root, run_id) == []


def test_a_trash_name_that_is_a_link_is_removed_as_one(context: Context, root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("keep me")
    run_id = new_run(context)
    trash = root / f".trash-{run_id}"
    trash.symlink_to(precious)
    removal.empty_trash(context.runs.layout)
    assert (precious / "letter").read_text() == "keep me"
    assert not trash.is_symlink()


def test_a_run_that_came_back_keeps_its_entries_when_the_trash_is_emptied(context: Context, root: Path) -> None:
    run_id = new_run(context)
    (root / f".trash-{run_id}").mkdir()
    assert removal.empty_trash(context.runs.layout) == [run_id]
    assert context.runs.index.active() == [run_id]
    assert context.runs.exists(run_id)


def test_trash_of_the_same_name_is_no_obstacle(context: Context, root: Path) -> None:
    run_id = ended_run(context)
    (root / f".trash-{run_id}" / "deep").mkdir(parents=True)
    assert remove(context, run_id) == []
    assert left_of(root, run_id) == []


def test_folders_that_only_look_like_trash_stay(context: Context, root: Path) -> None:
    new_run(context)
    (root / ".trash-not-an-id").mkdir()
    assert removal.empty_trash(context.runs.layout) == []
    assert (root / ".trash-not-an-id").is_dir()


def test_what_cannot_be_deleted_is_a_warning_and_goes_next_time(
    context: Context, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = ended_run(context)
    with monkeypatch.context() as patch:
        real = removal.delete

        def failing(path: str) -> None:
            if os.path.isdir(path):
                raise PermissionError(13, "Permission denied")
            real(path)

        patch.setattr(removal, "delete", failing)
        [warning] = remove(context, run_id)
    assert "Permission denied" in warning
    assert not context.runs.exists(run_id)
    assert removal.empty_trash(context.runs.layout) == [run_id]
    assert left_of(root, run_id) == []


def test_the_trash_name_is_only_the_users(context: Context, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = ended_run(context)
    seen: list[int] = []

    def look(point: str) -> None:
        if point == "trashed":
            seen.append(stat.S_IMODE((root / f".trash-{run_id}").stat().st_mode))

    monkeypatch.setattr(run_store, "reached", look)
    remove(context, run_id)
    assert seen == [0o700]


def test_children_are_what_the_runs_themselves_say(context: Context, root: Path) -> None:
    parent, stranger = new_run(context), new_run(context)
    (root / ".index" / "children" / parent).mkdir(parents=True)
    (root / ".index" / "children" / parent / stranger).touch()
    (root / ".index" / "children" / parent / parent).touch()
    assert removal.children(context.runs, parent) == []


def test_the_index_is_in_order_after_a_removal(context: Context) -> None:
    now = context.clock.now()
    kept = ended_run(context)
    reconcile(context.runs, lambda run_id: context.runs.read(run_id, now))
    remove(context, ended_run(context))
    healed = reconcile(context.runs, lambda run_id: context.runs.read(run_id, now))
    assert (healed.entered, healed.removed, healed.faults) == ([], [], [])
    assert context.runs.all() == [kept]

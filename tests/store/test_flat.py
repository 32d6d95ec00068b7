"""A run that another program works on under its flat name is one run: nothing that either side writes is lost."""

import json
import os
from pathlib import Path

import pytest

from subagent_cli.core.command import Ask, Report, Tell
from subagent_cli.core.errors import Refused
from subagent_cli.core.run import RUNNING
from subagent_cli.store import flat
from subagent_cli.store.runs import Runs
from tests.store.world import STAMP, START, FakeClock, new_run, open_at, shows_the_truth, truth

OLD = "919108f7-52d1-4320-9bac-f847db4148a8"
OLDER = "c232ab00-9414-11ec-b3c8-9f6bdeced846"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def servers(root: Path, run_id: str, seconds: int = START // 1000, **keys: object) -> Path:
    """A run as the server leaves it, made at this time."""
    root.mkdir(exist_ok=True)
    path = root / f"{run_id}.meta.json"
    made = {"runId": run_id, "agentName": "worker", "command": "worker --go", "startTime": STAMP, "status": "running"}
    path.write_text(json.dumps({**made, "exitCode": None, "endTime": None, "summary": None, **keys}))
    (root / f"{run_id}.log").write_text("at work\n")
    os.utime(path, (seconds, seconds))
    return path


def linked(root: Path) -> tuple[Runs, str, Path]:
    """A run of ours that the server can find, and the name under which it does."""
    context = open_at(root, FakeClock())
    run_id = new_run(context)
    assert flat.link(context.runs.layout, run_id)
    return context.runs, run_id, root / f"{run_id}.meta.json"


def test_a_run_is_linked_once_and_unlinking_takes_nothing_else_away(root: Path) -> None:
    runs, run_id, path = linked(root)
    assert path.is_symlink()
    assert path.samefile(root / run_id / ".meta.json")
    assert flat.is_shared(runs.layout, run_id)
    assert flat.link(runs.layout, run_id) == []
    assert str(path) in flat.unlink(runs.layout, run_id)
    assert flat.unlink(runs.layout, run_id) == []
    assert not flat.is_shared(runs.layout, run_id)
    assert shows_the_truth(root, run_id)


def test_what_stands_where_a_link_belongs_is_left_alone(root: Path) -> None:
    context = open_at(root, FakeClock())
    run_id = new_run(context)
    in_the_way = root / f"{run_id}.prompt.md"
    in_the_way.write_text("mine")
    with pytest.raises(Refused) as refused:
        flat.link(context.runs.layout, run_id)
    assert refused.value.code == "exists"
    assert str(in_the_way) in refused.value.message
    assert in_the_way.read_text() == "mine"
    assert not flat.is_shared(context.runs.layout, run_id)


def test_the_first_change_to_a_run_of_the_server_gives_it_a_folder_and_moves_no_file(root: Path) -> None:
    path = servers(root, OLD)
    clock = FakeClock()
    runs = open_at(root, clock).runs
    assert flat.lies_flat(runs.layout, OLD)
    runs.change(OLD, Tell("half done"), clock.now)
    assert not flat.lies_flat(runs.layout, OLD)
    assert not path.is_symlink()
    assert path.samefile(root / OLD / ".meta.json")
    assert Path(runs.layout.log(OLD)).samefile(root / f"{OLD}.log")
    assert [note.text for note in truth(root, OLD).notes] == ["half done"]


def test_a_folder_that_a_crash_left_half_made_is_made_anew(root: Path) -> None:
    servers(root, OLD)
    clock = FakeClock()
    runs = open_at(root, clock).runs
    left = Path(runs.layout.new_run(OLD))
    left.mkdir(parents=True)
    (left / "half").write_text("")
    runs.change(OLD, Tell("half done"), clock.now)
    assert not (root / OLD / "half").exists()
    assert not left.exists()


def test_a_document_that_was_saved_by_renaming_is_taken_over_and_linked_again(root: Path) -> None:
    runs, run_id, path = linked(root)
    theirs = {**json.loads(path.read_text()), "summary": "from beside"}
    saved = path.with_name("saved")
    saved.write_text(json.dumps(theirs))
    saved.rename(path)
    assert flat.is_split(runs.layout, run_id)
    assert truth(root, run_id).summary == "from beside"
    runs.change(run_id, Tell("and on"), FakeClock().now)
    assert path.is_symlink()
    assert not flat.is_split(runs.layout, run_id)
    assert truth(root, run_id).summary == "from beside"
    assert shows_the_truth(root, run_id)


def test_what_was_written_into_a_document_that_we_had_just_replaced_is_not_lost(root: Path) -> None:
    runs, run_id, path = linked(root)
    clock = FakeClock()
    with path.open("r+") as theirs:
        document = json.load(theirs)
        runs.change(run_id, Ask(OLD, "Which?"), clock.now)
        theirs.seek(0)
        theirs.write(json.dumps({**document, "summary": "too late"}, indent=2))
        theirs.truncate()
    run = truth(root, run_id)
    assert (run.summary, list(run.questions)) == ("too late", [OLD])
    runs.change(run_id, Tell("and on"), clock.now)
    assert shows_the_truth(root, run_id)
    assert truth(root, run_id).summary == "too late"


def test_what_was_replaced_long_ago_is_let_go(root: Path) -> None:
    clock = FakeClock()
    context = open_at(root, clock)
    run_id = new_run(context)
    flat.link(context.runs.layout, run_id)
    context.runs.change(run_id, Report(RUNNING, "one"), clock.now)
    ring = Path(context.runs.layout.ring(run_id))
    first = set(os.listdir(ring))
    assert first
    clock.advance(60_000)
    context.runs.change(run_id, Report(RUNNING, "two"), clock.now)
    assert not first & set(os.listdir(ring))


def test_runs_whose_ids_hold_no_time_stand_where_their_files_say(root: Path) -> None:
    context = open_at(root, FakeClock())
    ours = new_run(context)
    servers(root, OLD, START // 1000 + 100)
    servers(root, OLDER, START // 1000 - 100)
    assert Runs(str(root)).all() == [OLD, ours, OLDER]

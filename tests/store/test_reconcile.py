"""The index finds back to the runs directory: what others put there is entered, what is gone is forgotten, what is
being made is left alone; and as long as no name has changed, nothing is looked at."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from subagent_cli.core.run import Run
from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context
from subagent_cli.services.settings import Caller
from subagent_cli.store import atomic
from subagent_cli.store import runs as store
from subagent_cli.store.reconcile import Healed, reconcile
from tests.services.desk import FOREIGN_MESSAGE, FOREIGN_RUN, foreign_message, snapshot, write_foreign
from tests.store.world import FakeClock, index_holds_at_least, meta, new_run, open_at

HOUR = 3600


def heal(context: Context, *, dry_run: bool = False) -> Healed:
    return reconcile(context.runs, lambda run_id: context.runs.read(run_id, context.clock.now()), dry_run=dry_run)


def looked_at(context: Context) -> list[str]:
    """The runs that are read while the index is healed."""
    seen: list[str] = []

    def read(run_id: str) -> Run:
        seen.append(run_id)
        return context.runs.read(run_id, context.clock.now())

    reconcile(context.runs, read)
    return seen


def entries(root: Path) -> set[str]:
    """Every entry of the index, by its path in there."""
    index = root / ".index"
    return {str(path.relative_to(index)) for path in index.rglob("*") if path.is_file()} - {"seen"}


def age(path: Path, seconds: float) -> None:
    """Makes a file or folder as old as that, as the file system counts."""
    then = path.lstat().st_mtime - seconds
    os.utime(path, (then, then), follow_symlinks=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def here(root: Path) -> Context:
    return open_at(root, FakeClock())


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A runs directory that holds documents which are not ours."""
    folder = tmp_path / "foreign" / "runs"
    folder.mkdir(parents=True)
    return folder


def elsewhere(tmp_path: Path) -> tuple[Path, str, str]:
    """A run in another runs directory, with a name, a parent and a question."""
    root = tmp_path / "elsewhere"
    there = open_at(root, FakeClock())
    parent = new_run(there)
    worker = there._replace(caller=Caller(parent, "0" * 64))
    run_id: str = runs.create(worker, "helper", "Do it", name="tidy", key="once")["runId"]
    message_id: str = questions.ask(there, "Which?", run=run_id)["messageId"]
    shutil.rmtree(root / parent)
    return root, run_id, message_id


def test_a_run_that_was_copied_in_gets_all_its_entries(tmp_path: Path, root: Path, here: Context) -> None:
    new_run(here)
    heal(here)
    there, run_id, message_id = elsewhere(tmp_path)
    shutil.copytree(there / run_id, root / run_id)
    assert questions.pending(here)[0] == []
    assert heal(here) == Healed([run_id], [], [])
    index_holds_at_least(root, run_id)
    assert [item["message_id"] for item in questions.pending(here)[0]] == [message_id]
    assert here.runs.index.named("tidy") == [run_id]
    parent = here.runs.spec(run_id)["parentId"]
    assert (root / ".index" / "children" / parent / run_id).exists()


def test_a_folder_that_holds_only_a_document_is_entered_too(foreign: Path) -> None:
    context = open_at(foreign, FakeClock())
    write_foreign(foreign, status="waiting_parent_reply", messages=[foreign_message()])
    assert heal(context).entered == [FOREIGN_RUN]
    assert context.runs.index.active() == [FOREIGN_RUN]
    assert context.runs.index.asker(FOREIGN_MESSAGE) == FOREIGN_RUN


def test_a_run_that_has_ended_elsewhere_is_not_made_active(tmp_path: Path, root: Path, here: Context) -> None:
    new_run(here)
    there, run_id, message_id = elsewhere(tmp_path)
    context = open_at(there, FakeClock())
    questions.reply(context, message_id, "That.")
    runs.update(context, run_id, "success")
    shutil.copytree(there / run_id, root / run_id)
    assert heal(here) == Healed([], [], [])
    assert run_id not in here.runs.index.active()
    assert here.runs.index.asker(message_id) == run_id


def test_a_lost_index_is_made_anew(root: Path, here: Context) -> None:
    made = [runs.create(here, "helper", "Do it", name=f"run-{number}")["runId"] for number in range(5)]
    asked = [questions.ask(here, "Which?", run=run_id)["messageId"] for run_id in made]
    runs.update(here, made[0], "success")
    before = entries(root)
    shutil.rmtree(root / ".index")
    heal(here)
    assert entries(root) == before
    assert {item["message_id"] for item in questions.pending(here)[0]} == set(asked)


def test_nothing_is_looked_at_as_long_as_no_name_has_changed(root: Path, here: Context) -> None:
    made = {new_run(here) for _ in range(5)}
    assert set(looked_at(here)) == made
    assert looked_at(here) == []
    questions.ask(here, "Which?", run=min(made))
    assert looked_at(here) == []
    new = new_run(here)
    assert looked_at(here) == [new]
    assert looked_at(here) == []
    shutil.rmtree(root / new)
    assert looked_at(here) == []


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\x00 nonsense", b"123\n\n\n", b"123\n../../README.md\nx/y"])
def test_a_damaged_memory_of_what_was_seen_only_costs_a_look(root: Path, here: Context, content: bytes) -> None:
    made = {new_run(here) for _ in range(3)}
    heal(here)
    (root / ".index" / "seen").write_bytes(content)
    assert set(looked_at(here)) == made
    assert set(here.runs.index.active()) == made
    assert (root / "README.md").exists()


def test_entries_of_a_run_that_is_gone_are_removed_and_no_others(root: Path, here: Context) -> None:
    parent = new_run(here)
    worker = here._replace(caller=Caller(parent, "0" * 64))
    for number in range(3):
        run_id: str = runs.create(worker, "helper", "Do it", name=f"run-{number}", key=f"key-{number}")["runId"]
        questions.ask(here, "Which?", run=run_id)
        if number == 0:
            heal(here)
            before = entries(root)
    heal(here)
    for run_id in here.runs.index.active()[2:]:
        shutil.rmtree(root / run_id)
    healed = heal(here)
    assert entries(root) == before
    assert (len(healed.removed), healed.entered, healed.faults) == (2 * 6, [], [])


def test_entries_of_a_run_that_came_and_went_between_two_looks_are_removed(root: Path, here: Context) -> None:
    kept = new_run(here)
    questions.ask(here, "Which?", run=kept)
    heal(here)
    before = entries(root)
    run_id: str = runs.create(here, "helper", "Do it", name="tidy", key="once")["runId"]
    questions.ask(here, "And which?", run=run_id)
    shutil.rmtree(root / run_id)
    heal(here)
    assert entries(root) == before


def test_a_run_that_is_just_being_made_keeps_its_entries(
    root: Path, here: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_run(here)
    heal(here)
    healed: list[Healed] = []

    def reached(point: str) -> None:
        if point in ("prepared", "entered"):
            healed.append(heal(open_at(root, here.clock)))

    monkeypatch.setattr(store, "reached", reached)
    run_id = new_run(here)
    assert healed == [Healed([], [], [])] * 2
    index_holds_at_least(root, run_id)


@pytest.mark.parametrize("left", ["prepared", "trashed"])
def test_a_run_that_is_prepared_anew_beside_what_was_left_is_no_reason_to_remove_it(
    root: Path, here: Context, left: str
) -> None:
    """Whatever stands beside a run, its own entries stay while it is there."""
    run_id = new_run(here)
    beside = root / (f".new-{run_id}" if left == "prepared" else f".trash-{run_id}")
    beside.mkdir()
    heal(here)
    index_holds_at_least(root, run_id)


def test_what_a_crash_left_while_it_prepared_a_run_goes_after_an_hour(root: Path, here: Context) -> None:
    new_run(here)
    for name, seconds in (("old", HOUR + 60), ("young", HOUR - 60), ("fresh", 0)):
        folder = root / f".new-{name}"
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(b"")
        age(folder, seconds)
    assert heal(here).removed == [".new-old"]
    assert {path.name for path in root.glob(".new-*")} == {".new-young", ".new-fresh"}
    age(root / ".new-young", 120)
    assert heal(here).removed == [".new-young"]
    assert {path.name for path in root.glob(".new-*")} == {".new-fresh"}


def test_a_clock_that_is_years_off_does_not_make_what_is_prepared_old(root: Path) -> None:
    clock = FakeClock()
    context = open_at(root, clock)
    new_run(context)
    (root / ".new-fresh").mkdir()
    for years in (10, -20):
        clock.ms += years * 365 * 86_400_000
        assert heal(context) == Healed([], [], [])
    assert (root / ".new-fresh").is_dir()


def test_a_link_that_poses_as_a_prepared_run_costs_nothing_that_it_leads_to(
    tmp_path: Path, root: Path, here: Context
) -> None:
    new_run(here)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("dear")
    (root / ".new-evil").symlink_to(precious)
    age(root / ".new-evil", 2 * HOUR)
    age(precious, 2 * HOUR)
    heal(here)
    assert (precious / "letter").read_text() == "dear"


@pytest.mark.case("C1-35")
def test_a_damaged_run_is_told_each_time_and_entered_when_it_is_mended(foreign: Path) -> None:
    context = open_at(foreign, FakeClock())
    file = write_foreign(foreign, content=b"{ torn")
    other = new_run(context)
    for _ in range(3):
        healed = heal(context)
        assert [FOREIGN_RUN in fault.message for fault in healed.faults] == [True]
    assert context.runs.index.active() == [other]
    write_foreign(foreign, status="waiting_parent_reply", messages=[foreign_message()])
    assert heal(context) == Healed([FOREIGN_RUN], [], [])
    assert json.loads(file.read_bytes())["messages"]
    assert looked_at(context) == []


def test_a_file_or_a_link_that_is_named_like_a_run_is_none(tmp_path: Path, root: Path, here: Context) -> None:
    new_run(here)
    (root / FOREIGN_RUN).write_text("not a run")
    outside = tmp_path / "foreign" / "outside"
    outside.mkdir(parents=True)
    (root / FOREIGN_MESSAGE).symlink_to(outside)
    assert heal(here) == Healed([], [], [])
    assert (root / FOREIGN_RUN).exists()
    assert (root / FOREIGN_MESSAGE).is_symlink()


def test_a_run_that_goes_while_it_is_looked_at_is_no_fault(root: Path, here: Context) -> None:
    kept, gone = new_run(here), new_run(here)

    def read(run_id: str) -> Run:
        if run_id == gone:
            shutil.rmtree(root / run_id)
        return here.runs.read(run_id, here.clock.now())

    assert reconcile(here.runs, read).faults == []
    heal(here)
    assert here.runs.index.active() == [kept]


def test_entries_that_go_while_they_are_looked_at_are_no_fault(
    root: Path, here: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else sweeps at the same time."""
    made = [new_run(here) for _ in range(3)]
    for run_id in made:
        questions.ask(here, "Which?", run=run_id)
    heal(here)
    for run_id in made:
        shutil.rmtree(root / run_id)
    real: Callable[[str], None] = atomic.unmark

    def unmark(path: str) -> None:
        if os.path.dirname(path) != str(root / ".index"):
            for folder in ("questions", "active"):
                shutil.rmtree(root / ".index" / folder, ignore_errors=True)
        real(path)

    monkeypatch.setattr(atomic, "unmark", unmark)
    assert heal(here).faults == []
    assert entries(root) == set()


@pytest.mark.parametrize("made", [False, True], ids=["missing", "empty"])
def test_where_there_are_no_runs_there_is_nothing_to_heal(root: Path, here: Context, made: bool) -> None:
    if made:
        root.mkdir()
    assert heal(here, dry_run=True) == Healed([], [], [])
    assert heal(here) == Healed([], [], [])
    assert root.exists() == made


def test_a_dry_run_tells_the_same_and_leaves_every_byte(tmp_path: Path, foreign: Path) -> None:
    context = open_at(foreign, FakeClock())
    gone, kept = new_run(context), new_run(context)
    questions.ask(context, "Which?", run=gone)
    heal(context)
    shutil.rmtree(foreign / gone)
    write_foreign(foreign, status="waiting_parent_reply", messages=[foreign_message()])
    write_foreign(foreign, run_id=FOREIGN_MESSAGE, content=b"{ torn")
    (foreign / ".new-old").mkdir()
    (foreign / ".new-fresh").mkdir()
    age(foreign / ".new-old", 2 * HOUR)
    (foreign / ".index" / "active" / kept).unlink()
    before = snapshot(foreign)
    told = heal(context, dry_run=True)
    assert snapshot(foreign) == before
    done = heal(context)
    assert (told.entered, sorted(told.removed)) == (done.entered, sorted(done.removed))
    assert [fault.message for fault in told.faults] == [fault.message for fault in done.faults]
    assert len(done.removed) == 3
    assert meta(foreign, FOREIGN_RUN).exists()


def test_a_dry_run_makes_no_index_where_there_was_none(foreign: Path) -> None:
    context = open_at(foreign, FakeClock())
    write_foreign(foreign)
    (foreign / ".new-old").mkdir()
    age(foreign / ".new-old", 2 * HOUR)
    before = snapshot(foreign)
    told = heal(context, dry_run=True)
    assert (told.entered, told.removed) == ([FOREIGN_RUN], [".new-old"])
    assert snapshot(foreign) == before

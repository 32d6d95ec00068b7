"""Trees: every run once below the run that made it, whatever is missing, damaged or in a circle."""

import json
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Damaged, RunNotFound
from subagent_cli.services import listing, questions, runs, trees
from subagent_cli.services.context import Context
from subagent_cli.services.settings import Caller
from tests.services.desk import FOREIGN_RUN, create, refused, snapshot, write_foreign

NOWHERE = "0190a000-0000-7000-8000-0000000000ff"

Shape = dict[str, Any]


def child(desk: Context, parent_id: str, name: str | None = None) -> str:
    return create(desk._replace(caller=Caller(parent_id, "token")), name)


def shape(desk: Context, run: str | None = None, **options: Any) -> tuple[Shape, list[str]]:
    """Ids within ids, and what could not be read."""
    found, faults = trees.tree(desk, run, **options)
    assert all(isinstance(fault, Damaged) for fault in faults)
    return ids(found), [fault.message for fault in faults]


def ids(found: list[Any]) -> Shape:
    return {row["runId"]: ids(row["children"]) for row in found}


def adopt(runs_dir: Path, run_id: str, parent_id: object) -> None:
    """Makes a run say that another one made it, and the index agree where that is an id."""
    file = runs_dir / run_id / "run.json"
    spec = json.loads(file.read_bytes()) if file.exists() else {}
    file.write_text(json.dumps(spec | {"parentId": parent_id}))
    if isinstance(parent_id, str):
        marks = runs_dir / ".index" / "children" / parent_id
        marks.mkdir(parents=True, exist_ok=True)
        (marks / run_id).touch()


def test_runs_stand_below_the_runs_that_made_them(desk: Context) -> None:
    old = create(desk)
    first, second = child(desk, old), child(desk, old)
    below = child(desk, first)
    new = create(desk)
    whole: Shape = {new: {}, old: {first: {below: {}}, second: {}}}
    assert shape(desk) == (whole, [])
    found, _ = trees.tree(desk)
    assert [row["runId"] for row in found] == [new, old]
    assert [row["runId"] for row in found[1]["children"]] == [first, second]
    assert shape(desk, first) == ({first: {below: {}}}, [])


def test_a_row_is_as_in_a_list_with_the_children_beside_it(desk: Context) -> None:
    parent = create(desk, "boss")
    made = child(desk, parent, "part")
    questions.ask(desk, "Which?", run=made)
    (top,), _ = trees.tree(desk)
    (below,) = top.pop("children")
    assert below.pop("children") == []
    assert [below, top] == listing.find(desk, children=True)[0]
    assert (below["pendingQuestions"], below["name"]) == (1, "part")


def test_a_finished_tree_is_left_out_unless_all_or_it_is_asked_for(desk: Context) -> None:
    done, half = create(desk), create(desk)
    part, open_part = child(desk, half), child(desk, half)
    for run_id in (done, half, part):
        runs.update(desk, run_id, "success")
    kept: Shape = {half: {part: {}, open_part: {}}}
    assert shape(desk) == (kept, [])
    assert shape(desk, everything=True) == ({**kept, done: {}}, [])
    assert shape(desk, done) == ({done: {}}, [])
    runs.update(desk, open_part, "error")
    assert shape(desk) == ({}, [])


def test_an_ended_run_with_a_waiting_question_still_has_its_tree_shown(desk: Context) -> None:
    top = create(desk)
    part = child(desk, top)
    questions.ask(desk, "Which?", run=part)
    for run_id in (top, part):
        runs.update(desk, run_id, "success")
    assert shape(desk) == ({top: {part: {}}}, [])


def test_a_tree_of_few_is_not_looked_for_among_all(desk: Context, runs_dir: Path) -> None:
    """Folders with nothing in them stand for runs: whoever reads one meets damage."""
    top = create(desk)
    part = child(desk, top)
    empty = [f"0190a000-0000-7000-8000-{number:012x}" for number in range(50)]
    for run_id in empty:
        (runs_dir / run_id).mkdir()
    assert shape(desk) == shape(desk, top) == ({top: {part: {}}}, [])
    assert len(shape(desk, everything=True)[1]) == len(empty)


def test_looking_changes_nothing(desk: Context, runs_dir: Path) -> None:
    part = child(desk, create(desk))
    questions.reply(desk, questions.ask(desk, "Which?", run=part)["messageId"], "That.")
    before = snapshot(runs_dir)
    for run in (None, part):
        for everything in (False, True):
            trees.tree(desk, run, everything=everything)
    assert snapshot(runs_dir) == before


def test_a_run_that_is_not_there_has_no_tree(desk: Context, runs_dir: Path) -> None:
    create(desk)
    with refused(runs_dir, RunNotFound, "run_not_found"):
        trees.tree(desk, NOWHERE)


@pytest.mark.parametrize("parent", [NOWHERE, "../../etc", "", 7, ["x"], {}, None], ids=repr)
@pytest.mark.parametrize("everything", [False, True])
def test_a_child_whose_parent_is_nowhere_stands_at_the_margin(
    foreign_desk: Context, foreign_runs: Path, parent: object, everything: bool
) -> None:
    run_id = create(foreign_desk)
    part = child(foreign_desk, run_id)
    file = foreign_runs / run_id / "run.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"parentId": parent}))
    assert shape(foreign_desk, everything=everything) == ({run_id: {part: {}}}, [])


@pytest.mark.parametrize("everything", [False, True])
def test_a_circle_begins_with_its_oldest_and_shows_each_run_once(
    foreign_desk: Context, foreign_runs: Path, everything: bool
) -> None:
    a, b, c = (create(foreign_desk) for _ in range(3))
    tail = child(foreign_desk, c)
    alone = create(foreign_desk)
    for run_id, parent in ((b, a), (c, b), (a, c), (alone, alone)):
        adopt(foreign_runs, run_id, parent)
    assert shape(foreign_desk, everything=everything) == ({alone: {}, a: {b: {c: {tail: {}}}}}, [])
    assert shape(foreign_desk, b, everything=everything) == ({b: {c: {a: {}, tail: {}}}}, [])


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("file", ["journal.jsonl", ".meta.json", "run.json"])
def test_a_damaged_run_is_told_once_and_its_children_move_up(
    foreign_desk: Context, foreign_runs: Path, file: str, everything: bool
) -> None:
    top = create(foreign_desk)
    bad, good = child(foreign_desk, top), child(foreign_desk, top)
    part = child(foreign_desk, bad)
    content = (foreign_runs / bad / file).read_bytes()
    (foreign_runs / bad / file).write_bytes(b"x" + content + content)
    found, faults = shape(foreign_desk, everything=everything)
    # Without its run.json nobody knows whose child it was.
    assert found == ({part: {}, top: {good: {}}} if file == "run.json" else {top: {part: {}, good: {}}})
    assert len(faults) == 1
    assert bad in faults[0]


def test_a_damaged_run_that_is_asked_for_gives_what_is_below_it(foreign_desk: Context, foreign_runs: Path) -> None:
    bad = create(foreign_desk)
    part = child(foreign_desk, bad)
    (foreign_runs / bad / ".meta.json").write_bytes(b"[]")
    found, faults = shape(foreign_desk, bad)
    assert found == {part: {}}
    assert len(faults) == 1


def test_entries_that_outlived_their_runs_do_no_harm(desk: Context, runs_dir: Path) -> None:
    top, other = create(desk), create(desk)
    marks = runs_dir / ".index" / "children" / top
    marks.mkdir(parents=True)
    for folder in (marks, runs_dir / ".index" / "active"):
        for name in (NOWHERE, "not-a-run", other):
            (folder / name).touch()
    assert shape(desk) == ({top: {}, other: {}}, [])


def test_with_all_no_run_is_missed_though_the_index_is_gone(desk: Context, runs_dir: Path) -> None:
    top = create(desk)
    part = child(desk, top)
    for mark in (runs_dir / ".index").rglob("*"):
        if mark.is_file():
            mark.unlink()
    assert shape(desk, everything=True) == ({top: {part: {}}}, [])


def test_runs_of_other_programs_are_trees_of_one(foreign_desk: Context, foreign_runs: Path) -> None:
    write_foreign(foreign_runs)
    assert shape(foreign_desk, FOREIGN_RUN) == shape(foreign_desk, everything=True) == ({FOREIGN_RUN: {}}, [])


@pytest.mark.parametrize("everything", [False, True])
def test_what_is_nested_too_deeply_goes_on_at_the_margin(
    foreign_desk: Context, foreign_runs: Path, everything: bool
) -> None:
    line = [f"0190a000-0000-7000-8000-{number:012x}" for number in range(2 * trees.DEEPEST + 1)]
    for number, run_id in enumerate(line):
        write_foreign(foreign_runs, run_id)
        adopt(foreign_runs, run_id, line[number - 1] if number else None)
    found, faults = trees.tree(foreign_desk, None if everything else line[0], everything=everything)
    assert faults == []
    assert [row["runId"] for row in found] == line[:: trees.DEEPEST]
    assert json.dumps(found).count('"runId"') == len(line)

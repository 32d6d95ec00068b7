"""Lists of runs: what each filter lets through, what is read for it, and the labels that runs can carry."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Damaged, InvalidInput, Refused, RunNotFound
from subagent_cli.core.ids import uuid7
from subagent_cli.services import listing, questions, runs
from subagent_cli.services.context import Context
from subagent_cli.services.settings import Caller
from tests.services.desk import StillClock, create, refused, snapshot, write_foreign

V4 = "919108f7-52d1-4320-9bac-f847db4148a8"
HOUR = 3_600_000


def child(desk: Context, parent_id: str, name: str | None = None) -> str:
    return create(desk._replace(caller=Caller(parent_id, "token")), name)


def labelled(desk: Context, **labels: str) -> str:
    assert isinstance(desk.clock, StillClock)
    desk.clock.wait()
    run_id: str = runs.create(desk, "helper", "Do it", labels=labels)["runId"]
    return run_id


def listed(desk: Context, **filters: Any) -> list[str]:
    rows, faults = listing.find(desk, **filters)
    assert faults == []
    return [row["runId"] for row in rows]


@pytest.fixture
def reads(desk: Context, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose state was read."""
    seen: list[str] = []
    read: Callable[..., Any] = desk.runs.read

    def counted(run_id: str, now: Any) -> Any:
        seen.append(run_id)
        return read(run_id, now)

    monkeypatch.setattr(desk.runs, "read", counted)
    return seen


def test_children_stay_out_unless_they_or_all_are_asked_for(desk: Context) -> None:
    parent = create(desk)
    first, second = child(desk, parent), child(desk, parent)
    grandchild = child(desk, first)
    other = create(desk)
    assert listed(desk) == [other, parent]
    assert listed(desk, children=True) == [other, grandchild, second, first, parent]
    assert listed(desk, parent=parent) == [second, first]
    assert listed(desk, parent=other) == []


def test_the_table_of_active_runs_has_the_children_too(desk: Context) -> None:
    parent = create(desk)
    made = child(desk, parent)
    assert listed(desk, active=True) == [made, parent]


def test_the_children_of_a_run_are_found_without_looking_at_any_other(
    desk: Context, runs_dir: Path, reads: list[str]
) -> None:
    parent = create(desk, "boss")
    made = child(desk, parent)
    for number in range(100):
        (runs_dir / uuid7(number, bytes(10))).mkdir()
    assert listed(desk, parent="boss") == [made]
    assert reads == [made]


def test_the_parent_must_be_there(desk: Context, runs_dir: Path) -> None:
    create(desk)
    with refused(runs_dir, RunNotFound, "run_not_found"):
        listing.find(desk, parent=V4)


def test_an_entry_that_calls_a_run_somebody_elses_child_is_not_believed(desk: Context, runs_dir: Path) -> None:
    parent, other = create(desk), create(desk)
    marks = runs_dir / ".index" / "children" / parent
    marks.mkdir(parents=True)
    for name in (other, V4, "not-a-run"):
        (marks / name).touch()
    assert listed(desk, parent=parent) == []
    assert desk.runs.index.children("../names") == []


def test_a_name_is_met_exactly_and_by_its_index_alone(desk: Context, reads: list[str]) -> None:
    first, _, second = create(desk, "tidy"), create(desk, "tidy-up"), create(desk, "tidy")
    assert listed(desk, name="tidy") == [second, first]
    assert reads == [second, first]
    assert listed(desk, name="Tidy") == []


@pytest.mark.parametrize("name", ["", "../active", ".index", "a b", "x" * 129, "/etc"])
def test_what_cannot_be_a_name_is_refused(desk: Context, runs_dir: Path, name: str) -> None:
    create(desk)
    with refused(runs_dir, InvalidInput, "invalid_name"):
        listing.find(desk, name=name)


def test_labels_are_met_by_key_or_by_value_and_all_of_them_count(desk: Context, reads: list[str]) -> None:
    docs = labelled(desk, team="docs", ticket="17")
    code = labelled(desk, team="code")
    create(desk)
    assert listed(desk, labels=[("team", None)]) == [code, docs]
    assert listed(desk, labels=[("team", "docs")]) == [docs]
    assert listed(desk, labels=[("team", None), ("ticket", "17")]) == [docs]
    assert listed(desk, labels=[("team", "docs"), ("team", "code")]) == []
    assert listed(desk, labels=[("Team", None)]) == []
    assert set(reads) == {docs, code}


def test_filters_combine(desk: Context, clock: StillClock) -> None:
    parent = create(desk)
    old = child(desk, parent, "part")
    clock.wait(HOUR)
    waiting, idle = child(desk, parent, "part"), child(desk, parent, "part")
    questions.ask(desk, "Which?", run=waiting)
    since = clock.ms - HOUR // 2
    assert listed(desk, parent=parent, name="part") == [idle, waiting, old]
    assert listed(desk, parent=parent, name="part", since=since) == [idle, waiting]
    assert listed(desk, parent=parent, since=since, status="waiting_parent_reply") == [waiting]
    assert listed(desk, name="part", since=since, children=True, limit=1) == [idle]
    assert listed(desk, name="part") == []


def test_since_counts_from_the_very_millisecond(desk: Context, clock: StillClock) -> None:
    run_id = create(desk)
    assert listed(desk, since=clock.ms) == [run_id]
    assert listed(desk, since=clock.ms + 1) == []
    assert listed(desk, since=-1) == [run_id]


def test_runs_whose_ids_are_too_old_are_not_read(desk: Context, clock: StillClock, reads: list[str]) -> None:
    for _ in range(3):
        create(desk)
    clock.wait(HOUR)
    new = create(desk)
    assert listed(desk, since=clock.ms - HOUR // 2) == [new]
    assert reads == [new]


def test_ids_that_are_no_clock_never_cut_a_list_short(
    foreign_desk: Context, foreign_runs: Path, clock: StillClock
) -> None:
    """They sort anywhere: only what the run itself says counts."""
    new = create(foreign_desk)
    stamp = clock.now().iso
    ids = {
        "v4": V4,
        "v1": "00000000-9414-11ec-b3c8-9f6bdeced846",
        "no variant of ours": "00000000-0000-7000-0bac-f847db4148a8",
    }
    for run_id in ids.values():
        write_foreign(foreign_runs, run_id, startTime=stamp)
    write_foreign(foreign_runs, "00000000-9414-41ec-b3c8-9f6bdeced847", startTime="2020-01-01T00:00:00.000Z")
    write_foreign(foreign_runs, "00000000-9414-41ec-b3c8-9f6bdeced848", startTime="yesterday")
    assert set(listed(foreign_desk, since=clock.ms)) == {new, *ids.values()}


def test_a_run_that_waited_long_for_its_key_is_counted_by_its_start(desk: Context, clock: StillClock) -> None:
    early = clock.new_id()
    clock.wait(30_000)
    start = clock.ms
    clock.new_id = lambda: early  # type: ignore[method-assign]
    assert runs.create(desk, "helper", "Do it")["runId"] == early
    assert listed(desk, since=start) == [early]


def test_the_newest_of_very_many_cost_no_more_than_they_are(desk: Context, runs_dir: Path, reads: list[str]) -> None:
    """Folders with nothing in them stand for runs: whoever reads one meets damage."""
    runs_dir.mkdir()
    for number in range(2000):
        (runs_dir / uuid7(number, bytes(10))).mkdir()
    parent = create(desk)
    children = [child(desk, parent) for _ in range(10)]
    new = [create(desk) for _ in range(3)]
    assert listed(desk, limit=4) == [*new[::-1], parent]
    assert reads == [*new[::-1], parent]
    assert not set(reads) & set(children)


def test_looking_changes_nothing(desk: Context, runs_dir: Path) -> None:
    parent = create(desk, "boss")
    questions.reply(desk, questions.ask(desk, "Which?", run=child(desk, parent))["messageId"], "That.")
    before = snapshot(runs_dir)
    for filters in ({"parent": parent}, {"name": "boss"}, {"labels": [("a", None)]}, {"since": 0}, {"children": True}):
        listed(desk, **filters)
    assert snapshot(runs_dir) == before


def test_one_damaged_run_does_not_hide_the_others(foreign_desk: Context, foreign_runs: Path) -> None:
    parent = create(foreign_desk)
    good, bad = child(foreign_desk, parent), child(foreign_desk, parent)
    (foreign_runs / bad / "run.json").write_bytes(b"{")
    rows, faults = listing.find(foreign_desk, parent=parent)
    assert [row["runId"] for row in rows] == [good]
    assert [type(fault) for fault in faults] == [Damaged]
    assert bad in faults[0].message


def test_a_spec_of_the_wrong_shape_says_nothing(foreign_desk: Context, foreign_runs: Path) -> None:
    run_id = create(foreign_desk)
    shapes: list[Any] = [[], {"name": 5, "parentId": [], "labels": [1]}, {"name": {}, "labels": {"a": 1, "b": "x"}}]
    for odd in shapes:
        (foreign_runs / run_id / "run.json").write_text(json.dumps(odd))
        (row,), _ = listing.find(foreign_desk)
        assert (row["name"], row["parentId"]) == (None, None)
        assert row["labels"] in ({}, {"b": "x"})


def test_labels_are_written_once_and_shown_by_list_and_status(desk: Context) -> None:
    run_id = labelled(desk, team="docs", **{"größe": "", "a.b-c_1": "x=y, z"})
    wanted = {"team": "docs", "größe": "", "a.b-c_1": "x=y, z"}
    assert desk.runs.spec(run_id)["labels"] == wanted
    (row,), _ = listing.find(desk)
    assert row["labels"] == wanted
    assert runs.status(desk, run_id)["labels"] == wanted
    assert runs.status(desk, create(desk))["labels"] == {}


def test_a_run_that_another_program_made_has_no_labels(foreign_desk: Context, foreign_runs: Path) -> None:
    write_foreign(foreign_runs, V4)
    (row,), _ = listing.find(foreign_desk)
    assert row["labels"] == runs.status(foreign_desk, V4)["labels"] == {}


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("", "x", "invalid_label"),
        ("a b", "x", "invalid_label"),
        ("../x", "x", "invalid_label"),
        ("-x", "x", "invalid_label"),
        ("k" * 129, "x", "invalid_label"),
        ("k", "x" * 257, "invalid_label"),
        ("k", "é" * 129, "invalid_label"),
        ("k", "two\nlines", "invalid_label"),
        ("k", "end\n", "invalid_label"),
        ("k", "\r", "invalid_label"),
        ("k", "a\u2028b", "invalid_label"),
        ("k", "\udcff", "not_utf8"),
    ],
)
def test_a_label_that_cannot_be_kept_makes_no_run(
    desk: Context, tmp_path: Path, key: str, value: str, code: str
) -> None:
    with refused(tmp_path, InvalidInput, code):
        runs.create(desk, "helper", "Do it", labels={key: value})


def test_the_longest_label_is_kept_whole(desk: Context) -> None:
    run_id = labelled(desk, k="é" * 128)
    assert listed(desk, labels=[("k", "é" * 128)]) == [run_id]


def test_a_key_with_other_labels_is_another_request(desk: Context, runs_dir: Path) -> None:
    made = runs.create(desk, "helper", "Do it", labels={"a": "1", "b": "2"}, key="k")
    again = runs.create(desk, "helper", "Do it", labels={"b": "2", "a": "1"}, key="k")
    assert again["runId"] == made["runId"]
    with refused(runs_dir, Refused, "key_reused"):
        runs.create(desk, "helper", "Do it", labels={"a": "1"}, key="k")

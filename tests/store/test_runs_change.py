"""A change is there or it is not, wherever its process is killed: nothing torn, nothing acknowledged lost, no lock
left behind, and the next change mends what is left to mend."""

import builtins
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import NotFound, Refused, RunNotFound
from subagent_cli.core.run import Run
from subagent_cli.services import listing, questions, runs
from subagent_cli.store import codec
from subagent_cli.store.runs import Runs
from tests.store.world import (
    PATIENCE,
    children,
    document,
    ended,
    everything,
    index_holds_at_least,
    journal_of,
    meta,
    new_run,
    open_at,
    shows_the_truth,
    truth,
)

POINTS = ("locked", "folded", "decided", "indexed", "committed", "replaced", "released")
COMMITTED = ("committed", "replaced", "released")
FILES = {".meta.json", "journal.jsonl", "run.json", "prompt.md", "log"}

# What the run looks like after the verb: its status, and the state of the question it means.
AFTER = {
    "ask": ("waiting_parent_reply", "PENDING"),
    "reply": ("parent_replied", "ANSWERED"),
    "check": ("running", "RETRIEVED"),
    "update": ("success", "PENDING"),
}


def killed(root: Path, point: str, verb: str, run_id: str = "") -> None:
    with children(("die_at", root, point, verb, run_id)) as [process]:
        assert ended(process) == []
        assert process.returncode == -signal.SIGKILL


def prepared(root: Path, verb: str) -> str:
    """A run with one question, in the state in which the verb has something to do."""
    context = open_at(root)
    run_id = new_run(context)
    questions.ask(context, "Which?", run=run_id)
    if verb == "check":
        questions.reply(context, run_id, "This.")
    return run_id


def latest(run: Run) -> tuple[str, str]:
    return run.status, list(run.questions.values())[-1].state


@pytest.mark.parametrize("verb", AFTER)
@pytest.mark.parametrize("point", POINTS)
def test_a_change_whose_process_is_killed_happened_whole_or_not_at_all(tmp_path: Path, point: str, verb: str) -> None:
    root = tmp_path / "runs"
    run_id = prepared(root, verb)
    before = truth(root, run_id)
    old_picture, old_journal = meta(root, run_id).read_bytes(), journal_of(root, run_id).read_bytes()

    killed(root, point, verb, run_id)

    after = truth(root, run_id)
    if point in COMMITTED:
        assert latest(after) == AFTER[verb]
        assert after != before
    else:
        assert after == before
        assert journal_of(root, run_id).read_bytes() == old_journal
    if point in ("replaced", "released"):
        assert shows_the_truth(root, run_id)
    else:
        assert meta(root, run_id).read_bytes() == old_picture
    index_holds_at_least(root, run_id)


@pytest.mark.parametrize("verb", AFTER)
@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill_the_lock_is_free_and_the_next_change_mends_the_document(
    tmp_path: Path, point: str, verb: str
) -> None:
    root = tmp_path / "runs"
    run_id = prepared(root, verb)
    killed(root, point, verb, run_id)
    # One attempt at the lock, no waiting.
    context = open_at(root, lock_timeout="1ms")
    known = list(truth(root, run_id).questions)
    if truth(root, run_id).finished:
        runs.update(context, run_id, "success", "Done again.")
    else:
        known.append(questions.ask(context, "And then?", run=run_id)["messageId"])
    assert list(truth(root, run_id).questions) == known
    assert shows_the_truth(root, run_id)
    assert b'"origin":"meta"' not in journal_of(root, run_id).read_bytes()
    index_holds_at_least(root, run_id)


def test_a_question_that_only_the_index_knows_of_was_never_asked(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    run_id = prepared(root, "ask")
    killed(root, "indexed", "ask", run_id)
    context = open_at(root)
    [orphan] = set(context.runs.index.questions()) - set(truth(root, run_id).questions)
    with pytest.raises(NotFound, match="not found"):
        questions.check(context, orphan)
    with pytest.raises(NotFound, match="not found"):
        questions.reply(context, orphan, "To nobody.")
    waiting, faults = questions.pending(context)
    assert [item["question"] for item in waiting] == ["Which?"]
    assert faults == []


@pytest.mark.parametrize("point", ["prepared", "entered"])
def test_a_run_whose_maker_is_killed_before_it_appears_is_not_there(tmp_path: Path, point: str) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    other = new_run(context)
    killed(root, point, "create")
    assert context.runs.all() == [other]
    rows, faults = listing.find(context, active=True)
    assert ([row["runId"] for row in rows], faults) == ([other], [])
    assert questions.pending(context) == ([], [])
    for leftover in set(context.runs.index.active()) - {other}:
        with pytest.raises(RunNotFound):
            runs.status(context, leftover)
    assert new_run(context) in context.runs.all()


def test_a_run_whose_maker_is_killed_after_it_appeared_is_whole(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    killed(root, "appeared", "create")
    [run_id] = Runs(str(root)).all()
    assert {path.name for path in (root / run_id).iterdir()} == FILES
    assert document(root, run_id)["status"] == "pending"
    assert shows_the_truth(root, run_id)
    index_holds_at_least(root, run_id)
    assert questions.ask(open_at(root), "Which?", run=run_id)["warnings"] == []


@pytest.mark.parametrize("verb", ["ask", "reply", "update"])
def test_a_refused_change_leaves_no_trace(tmp_path: Path, verb: str) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    runs.update(context, run_id, "error", "It broke.")
    there = everything(root)
    calls = {
        "ask": lambda: questions.ask(context, "Which?", run=run_id),
        "reply": lambda: questions.reply(context, run_id, "That."),
        "update": lambda: runs.update(context, run_id, "running"),
    }
    with pytest.raises(Refused):
        calls[verb]()
    assert everything(root) == there


def test_files_of_a_run_are_for_its_user_alone(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    questions.ask(context, "Which?", run=run_id)
    for path in (root, *root.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_change_between_the_two_looks_of_a_reader_is_not_taken_for_somebody_else_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    writer, reader = open_at(root), open_at(root)
    run_id = new_run(writer)
    looked: list[str] = []
    writing = False

    def after_a_change(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal writing
            name = os.path.basename(file) if isinstance(file, str) else ""
            if name in (".meta.json", "journal.jsonl") and not writing:
                writing = True
                questions.ask(writer, f"Before {name}?", run=run_id, options=["yes", "no"])
                writing = False
                looked.append(name)
            return real(file, *args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", after_a_change(os.open))
        patch.setattr(builtins, "open", after_a_change(open))
        seen = reader.runs.read(run_id, reader.clock.now())
    assert sorted(looked) == [".meta.json", "journal.jsonl"]
    assert [question.text for question in seen.pending] == [f"Before {name}?" for name in looked]
    assert [question.options for question in seen.pending] == [("yes", "no")] * 2


@pytest.mark.limit(300)
def test_nothing_acknowledged_is_lost_when_writers_are_killed_at_random(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    kills, nurseries = 100, 4
    with children(*[("nursery", root, run_id, kills // nurseries, seed) for seed in range(nurseries)]) as processes:
        told = [message_id for process in processes for message_id in ended(process, 5 * PATIENCE)]
        assert [process.returncode for process in processes] == [0] * nurseries
    assert len(told) >= kills
    kept = truth(root, run_id).questions
    assert set(told) <= set(kept)
    assert len(set(told)) == len(told)
    # Each of the killed may have committed one more than it lived to tell.
    assert len(kept) <= len(told) + kills
    questions.ask(open_at(root, lock_timeout="1ms"), "Is it free?", run=run_id)
    assert shows_the_truth(root, run_id)
    assert codec.load(meta(root, run_id).read_bytes())["status"] == "waiting_parent_reply"
    index_holds_at_least(root, run_id)


def test_a_note_that_somebody_else_left_in_the_runs_directory_stays_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    (root / "README.md").write_text("Mine.\n")
    new_run(open_at(root))
    assert (root / "README.md").read_text() == "Mine.\n"

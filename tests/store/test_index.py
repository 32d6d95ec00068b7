"""The index finds what is there without reading it all, and what it says too much does no harm."""

from pathlib import Path

import pytest

from subagent_cli.core.errors import NotFound
from subagent_cli.services import listing, questions, runs
from subagent_cli.store.index import Index
from subagent_cli.store.layout import Layout
from tests.store.world import FakeClock, index_holds_at_least, new_run, open_at

NOWHERE = "0190a000-0000-7000-8000-0000000000ff"


def test_an_empty_runs_directory_has_an_empty_index(tmp_path: Path) -> None:
    index = Index(Layout(str(tmp_path / "nothing")))
    assert (index.active(), index.questions(), index.names(), index.named("x")) == ([], [], [], [])
    assert index.asker(NOWHERE) is None
    assert index.keyed("0" * 32) is None


def test_a_run_is_active_until_it_has_ended_and_no_question_waits(tmp_path: Path) -> None:
    context = open_at(tmp_path / "runs")
    run_id = new_run(context)
    index = context.runs.index
    assert index.active() == [run_id]
    questions.ask(context, "Which?", run=run_id)
    runs.update(context, run_id, "success")
    assert index.active() == [run_id]
    questions.reply(context, run_id, "That.")
    assert index.active() == []
    assert index.questions() != []


def test_active_runs_come_oldest_first_and_runs_of_a_name_newest_first(tmp_path: Path) -> None:
    clock = FakeClock()
    context = open_at(tmp_path / "runs", clock)
    made = []
    for _ in range(4):
        made.append(runs.create(context, "worker", "do it", name="twin")["runId"])
        clock.advance(1)
    assert context.runs.index.active() == made
    assert context.runs.index.named("twin") == made[::-1]
    assert context.runs.index.names() == ["twin"]


def test_a_question_leads_to_its_run(tmp_path: Path) -> None:
    context = open_at(tmp_path / "runs")
    first, second = new_run(context), new_run(context)
    asked = {questions.ask(context, "Which?", run=run_id)["messageId"]: run_id for run_id in (first, second)}
    assert {message_id: context.runs.index.asker(message_id) for message_id in asked} == asked
    for message_id, run_id in asked.items():
        assert questions.check(context, message_id)["runId"] == run_id


@pytest.mark.parametrize("message_id", ["..", "../active", "/etc/passwd", "", "a/b", "-x", ".hidden", "x" * 200, "\0"])
def test_a_message_id_never_becomes_a_path_out_of_the_index(tmp_path: Path, message_id: str) -> None:
    context = open_at(tmp_path / "runs")
    new_run(context)
    assert context.runs.index.asker(message_id) is None


def test_entries_that_outlived_what_they_name_do_no_harm(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    message_id = questions.ask(context, "Which?", run=run_id)["messageId"]
    (root / ".index" / "active" / NOWHERE).touch()
    (root / ".index" / "active" / "not-a-run").touch()
    (root / ".index" / "questions" / NOWHERE).write_text(NOWHERE)
    (root / ".index" / "questions" / "0190a000-0000-7000-8000-0000000000fe").write_text("../../etc")
    waiting, faults = questions.pending(context)
    assert ([item["message_id"] for item in waiting], faults) == ([message_id], [])
    rows, faults = listing.find(context, active=True)
    assert ([row["runId"] for row in rows], faults) == ([run_id], [])
    for lost in (NOWHERE, "0190a000-0000-7000-8000-0000000000fe"):
        with pytest.raises(NotFound):
            questions.check(context, lost)


def test_the_next_change_puts_back_what_the_index_has_lost_of_an_active_run(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    (root / ".index" / "active" / run_id).unlink()
    assert context.runs.index.active() == []
    questions.ask(context, "Which?", run=run_id)
    index_holds_at_least(root, run_id)


def test_one_key_makes_one_run(tmp_path: Path) -> None:
    context = open_at(tmp_path / "runs")
    first = runs.create(context, "worker", "do it", key="k")["runId"]
    assert runs.create(context, "worker", "do it", key="k")["runId"] == first
    assert runs.create(context, "worker", "do it", key="other")["runId"] != first
    assert len(context.runs.all()) == 2


def test_a_key_whose_run_never_appeared_is_free(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    first = runs.create(context, "worker", "do it", key="k")["runId"]
    (root / first).rename(root / ".gone")
    second = runs.create(context, "worker", "do it", key="k")["runId"]
    assert second != first
    assert runs.create(context, "worker", "do it", key="k")["runId"] == second

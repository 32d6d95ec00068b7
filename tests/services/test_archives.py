"""Export and import: runs leave as they are, come in as they left, and never in the place of others."""

import io
import json
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Damaged, InvalidInput, NotFound, Refused, RunNotFound
from subagent_cli.services import archives, outcomes, questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.settings import Caller
from tests.services.desk import (
    FOREIGN_MESSAGE,
    FOREIGN_RUN,
    StillClock,
    create,
    document,
    foreign_message,
    journal,
    refused,
    snapshot,
    write_foreign,
)
from tests.store.world import PATIENCE, children, ended, go, ready


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "runs.zip")


@pytest.fixture
def elsewhere(tmp_path: Path, clock: StillClock) -> Context:
    return open_context({"runs_dir": str(tmp_path / "elsewhere")}, clock)


def busy_run(desk: Context) -> str:
    """A run with something in each of its files."""
    run_id = create(desk, "busy", "Tidy the notes: ä, 字, 🙂")
    questions.ask(desk, "Delete?", run=run_id, options=["yes", "no"])
    questions.reply(desk, run_id, "2")
    questions.ask(desk, "And now?", run=run_id)
    runs.update(desk, run_id, "running", "Half way.")
    folder = Path(desk.runs.layout.run(run_id))
    (folder / "quarantine").mkdir(0o700)
    (folder / "quarantine" / "journal.jsonl").write_bytes(b'{"torn\n')
    return run_id


def exported(desk: Context, *names: str) -> io.BytesIO:
    file = io.BytesIO()
    archives.export(desk, names, file, everything=not names)
    file.seek(0)
    return file


def files_of(desk: Context, *run_ids: str) -> dict[str, Any]:
    return {run_id: snapshot(Path(desk.runs.layout.run(run_id))) for run_id in run_ids}


def test_runs_come_in_byte_for_byte_as_they_left(desk: Context, elsewhere: Context, file: str) -> None:
    first, second = busy_run(desk), create(desk)
    done, faults = archives.export(desk, ["busy", second, first], file)
    assert done == {"file": file, "runs": [first, second], "bytes": os.path.getsize(file)}
    assert faults == []
    assert archives.take_in(elsewhere, file) == {
        "imported": [{"runId": first, "from": first}, {"runId": second, "from": second}],
        "skipped": [],
    }
    assert files_of(elsewhere, first, second) == files_of(desk, first, second)
    here, there = (snapshot(Path(one.runs.layout.root, ".index")) for one in (desk, elsewhere))
    assert there == here


def test_the_run_goes_on_where_it_was_taken(desk: Context, elsewhere: Context) -> None:
    run_id = busy_run(desk)
    archives.take_in(elsewhere, exported(desk))
    assert [item["question"] for item in questions.pending(elsewhere)[0]] == ["And now?"]
    questions.reply(elsewhere, run_id, "Go on.")
    runs.update(elsewhere, run_id, "success")
    assert outcomes.result(elsewhere, "busy")["status"] == "success"


def test_the_archive_says_what_it_is(desk: Context) -> None:
    run_id = busy_run(desk)
    with zipfile.ZipFile(exported(desk)) as source:
        about = json.loads(source.read("manifest.json"))
        assert about == {
            "format": "subagent-archive",
            "version": 1,
            "runs": [run_id],
            "exportedAt": desk.clock.now().iso,
        }
        names = ("run.json", "prompt.md", "journal.jsonl", ".meta.json", "log", "quarantine/journal.jsonl")
        assert set(source.namelist()) == {"manifest.json", *(f"{run_id}/{name}" for name in names)}
        assert {entry.external_attr >> 16 for entry in source.infolist()} == {0o100600}


def test_the_same_runs_make_the_same_archive(desk: Context) -> None:
    busy_run(desk)
    assert exported(desk).getvalue() == exported(desk).getvalue()


def test_exporting_changes_nothing(desk: Context, runs_dir: Path, file: str) -> None:
    busy_run(desk)
    before = snapshot(runs_dir, locks=False)
    archives.export(desk, (), file, everything=True)
    assert snapshot(runs_dir, locks=False) == before


def test_no_runs_are_an_archive_too(desk: Context, elsewhere: Context, runs_dir: Path) -> None:
    runs_dir.mkdir()
    assert archives.take_in(elsewhere, exported(desk)) == {"imported": [], "skipped": []}


def test_a_file_that_is_there_is_only_replaced_by_force(desk: Context, runs_dir: Path, file: str) -> None:
    create(desk)
    Path(file).write_bytes(b"precious")
    with refused(runs_dir, Refused, "exists"):
        archives.export(desk, (), file, everything=True)
    assert Path(file).read_bytes() == b"precious"
    archives.export(desk, (), file, everything=True, force=True)
    assert zipfile.is_zipfile(file)


def test_a_run_that_nobody_knows_is_not_found_and_leaves_no_file(desk: Context, file: str) -> None:
    create(desk)
    with pytest.raises(RunNotFound):
        archives.export(desk, ["nobody"], file)
    assert not Path(file).exists()


def test_a_damaged_run_does_not_go_out(foreign_desk: Context, foreign_runs: Path, file: str) -> None:
    fine, broken = create(foreign_desk), create(foreign_desk)
    (foreign_runs / broken / ".meta.json").write_bytes(b"{")
    with pytest.raises(Damaged):
        archives.export(foreign_desk, [broken], file)
    assert not Path(file).exists()
    done, faults = archives.export(foreign_desk, (), file, everything=True)
    assert done["runs"] == [fine]
    assert [fault.code for fault in faults] == ["damaged_meta"]


def test_a_file_that_is_not_there_is_not_found(desk: Context, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        archives.take_in(desk, str(tmp_path / "missing.zip"))
    with pytest.raises(InvalidInput):
        archives.take_in(desk, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_here_already_is_passed_over(desk: Context, runs_dir: Path) -> None:
    run_id = busy_run(desk)
    before = snapshot(runs_dir, locks=False)
    for renew in (False, True):
        done = archives.take_in(desk, exported(desk), renew=renew)
        assert done == {"imported": [], "skipped": [run_id]}
        assert snapshot(runs_dir, locks=False) == before


def test_a_run_that_has_gone_on_is_not_overwritten_and_keeps_the_others_out(
    desk: Context, elsewhere: Context, runs_dir: Path
) -> None:
    run_id = busy_run(desk)
    archives.take_in(elsewhere, exported(desk))
    create(elsewhere)
    runs.update(desk, run_id, "success")
    with refused(runs_dir, Refused, "exists"):
        archives.take_in(desk, exported(elsewhere))


def test_a_renewed_run_has_its_own_ids_and_the_same_story(desk: Context, runs_dir: Path) -> None:
    old = busy_run(desk)
    data = exported(desk)
    before = files_of(desk, old)
    questions.ask(desk, "One more?", run=old)
    changed = files_of(desk, old)
    [item] = archives.take_in(desk, data, renew=True)["imported"]
    new = item["runId"]
    assert (item["from"], new != old) == (old, True)
    assert files_of(desk, old) == changed
    was, now = before[old], snapshot(runs_dir / new)
    assert now["prompt.md"] == was["prompt.md"]
    assert now["quarantine/journal.jsonl"] == was["quarantine/journal.jsonl"]
    spec = json.loads(now["run.json"] or b"")
    assert spec == json.loads(was["run.json"] or b"") | {"runId": new}
    shown, original = document(runs_dir, new), json.loads(was[".meta.json"] or b"")
    assert shown["runId"] == new
    renewed = [message.pop("messageId") for message in shown["messages"]]
    taken = [message.pop("messageId") for message in original["messages"]]
    assert shown == original | {"runId": new}
    assert not set(renewed) & set(taken)
    lines = journal(runs_dir, new)
    assert lines[0]["runId"] == new
    assert old not in json.dumps(lines)
    assert [line["type"] for line in lines][:4] == ["created", "asked", "replied", "asked"]
    assert [desk.runs.index.asker(message_id) for message_id in (*renewed, *taken)] == [new, new, old, old]


def test_a_renewed_run_goes_on(desk: Context, runs_dir: Path) -> None:
    old = busy_run(desk)
    data = exported(desk)
    runs.update(desk, old, "success")
    new = archives.take_in(desk, data, renew=True)["imported"][0]["runId"]
    questions.reply(desk, new, "Go on.")
    assert document(runs_dir, new)["messages"][1]["answerContent"] == "Go on."
    assert document(runs_dir, old)["messages"][1]["messageStatus"] == "pending_parent_reply"


def test_a_question_whose_id_is_free_keeps_it(desk: Context, elsewhere: Context) -> None:
    run_id = busy_run(desk)
    data = exported(desk)
    archives.take_in(elsewhere, data)
    message_id = questions.ask(desk, "New?", run=run_id)["messageId"]
    new = archives.take_in(elsewhere, exported(desk), renew=True)["imported"][0]["runId"]
    kept = elsewhere.runs.read(new, elsewhere.clock.now()).questions
    assert message_id in kept
    assert len(kept) == 3
    assert elsewhere.runs.index.asker(message_id) == new


def test_a_parent_is_followed_to_its_new_id(desk: Context, elsewhere: Context) -> None:
    parent = create(desk)
    child = runs.create(desk._replace(caller=Caller(parent, "token")), "helper", "A part")["runId"]
    archives.take_in(elsewhere, exported(desk, parent))
    runs.update(desk, parent, "running")
    done = archives.take_in(elsewhere, exported(desk), renew=True)["imported"]
    new = {item["from"]: item["runId"] for item in done}
    assert new[child] == child
    assert new[parent] != parent
    assert elsewhere.runs.spec(child)["parentId"] == new[parent]
    assert elsewhere.runs.index.children(new[parent]) == [child]


def test_two_runs_of_an_archive_with_the_same_question_are_told_apart(
    foreign_desk: Context, foreign_runs: Path, tmp_path: Path, clock: StillClock
) -> None:
    other = FOREIGN_RUN[:-1] + "1"
    for run_id in (FOREIGN_RUN, other):
        write_foreign(foreign_runs, run_id, messages=[foreign_message(questionTimestamp=clock.now().iso)])
    here = open_context({"runs_dir": str(tmp_path / "foreign" / "elsewhere")}, clock)
    with pytest.raises(Refused):
        archives.take_in(here, exported(foreign_desk))
    assert here.runs.all() == []
    archives.take_in(here, exported(foreign_desk), renew=True)
    found = [next(iter(here.runs.read(run_id, clock.now()).questions)) for run_id in (FOREIGN_RUN, other)]
    assert FOREIGN_MESSAGE in found
    assert len(set(found)) == 2


def test_what_another_program_wrote_comes_along_and_is_renewed(
    foreign_desk: Context, foreign_runs: Path, tmp_path: Path, clock: StillClock
) -> None:
    message = foreign_message(questionTimestamp=clock.now().iso, note="theirs")
    path = write_foreign(foreign_runs, messages=[message], theirs=7)
    data = exported(foreign_desk)
    here = open_context({"runs_dir": str(tmp_path / "foreign" / "elsewhere")}, clock)
    archives.take_in(here, data)
    copy = tmp_path / "foreign" / "elsewhere" / FOREIGN_RUN / ".meta.json"
    assert copy.read_bytes() == path.read_bytes()
    assert questions.pending(here)[0][0]["message_id"] == FOREIGN_MESSAGE
    assert archives.take_in(here, exported(foreign_desk))["skipped"] == [FOREIGN_RUN]
    write_foreign(foreign_runs, messages=[message], theirs=8)
    [item] = archives.take_in(here, exported(foreign_desk), renew=True)["imported"]
    shown = json.loads((tmp_path / "foreign" / "elsewhere" / item["runId"] / ".meta.json").read_bytes())
    assert (shown["runId"], shown["theirs"]) == (item["runId"], 8)
    assert shown["messages"][0]["note"] == "theirs"
    assert shown["messages"][0]["messageId"] != FOREIGN_MESSAGE


def test_an_entry_of_a_run_that_is_gone_is_no_obstacle(desk: Context, elsewhere: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = questions.ask(desk, "Which?", run=run_id)["messageId"]
    create(elsewhere)
    mark = Path(elsewhere.runs.layout.question_mark(message_id))
    mark.parent.mkdir(exist_ok=True)
    mark.write_text(FOREIGN_RUN)
    archives.take_in(elsewhere, exported(desk))
    assert elsewhere.runs.index.asker(message_id) == run_id


def test_an_archive_comes_through_a_named_pipe(desk: Context, elsewhere: Context, tmp_path: Path) -> None:
    run_id = busy_run(desk)
    data = exported(desk).getvalue()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    archives.take_in(elsewhere, str(pipe))
    writer.join(PATIENCE)
    assert elsewhere.runs.all() == [run_id]


def test_what_goes_out_beside_writers_is_consistent(runs_dir: Path, tmp_path: Path) -> None:
    desk = open_context({"runs_dir": str(runs_dir)})
    run_id = runs.create(desk, "helper", "Do it")["runId"]
    taken = []
    with children(("asks", runs_dir, run_id, 60), ("asks", runs_dir, run_id, 60)) as workers:
        ready(*workers)
        go(*workers)
        for number in range(8):
            here = open_context({"runs_dir": str(tmp_path / f"copy{number}")})
            archives.take_in(here, exported(desk))
            found = here.runs.read(run_id, here.clock.now())
            taken.append(len(found.questions))
            assert len(document(tmp_path / f"copy{number}", run_id).get("messages", [])) == len(found.questions)
        assert [len(ended(worker)) for worker in workers] == [60, 60]
    assert taken == sorted(taken)

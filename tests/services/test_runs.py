"""Runs: what a new one looks like, what status shows and picks up, what a report changes, and what ends for good."""

import functools
import os.path
import re
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import InvalidInput, Refused, RunNotFound
from subagent_cli.core.ids import short
from subagent_cli.services import listing, outcomes, questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.settings import Caller
from tests.services.desk import (
    FOREIGN_RUN,
    STAMP,
    StillClock,
    create,
    document,
    foreign_message,
    journal,
    refused,
    snapshot,
    words,
    write_foreign,
)

NOBODY = "0190a000-0000-7000-8000-000000000000"
NEW_KEYS = ["runId", "agentName", "command", "startTime", "status", "exitCode", "endTime", "summary"]
ENDINGS = ["success", "error", "completed"]


def ask(desk: Context, run_id: str, text: str = "Which?") -> str:
    message_id: str = questions.ask(desk, text, run=run_id)["messageId"]
    return message_id


@pytest.mark.case("C1-02", "X8")
def test_a_new_run_has_the_eight_keys_in_order_and_is_pending(desk: Context, runs_dir: Path, clock: StillClock) -> None:
    run_id = create(desk)
    found = document(runs_dir, run_id)
    assert list(found) == NEW_KEYS
    assert (found["runId"], found["agentName"], found["startTime"]) == (run_id, "helper", clock.now().iso)
    assert found["status"] == "pending"
    assert found["command"]
    assert found["exitCode"] is found["endTime"] is found["summary"] is None


@pytest.mark.case("C1-02")
def test_messages_appear_with_the_first_question(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    ask(desk, run_id)
    assert list(document(runs_dir, run_id)) == [*NEW_KEYS, "messages"]


def test_what_was_asked_of_a_run_is_written_beside_it(desk: Context, runs_dir: Path) -> None:
    made = runs.create(desk, "helper", "Tidy\nthe notes", name="tidy")
    folder = runs_dir / made["runId"]
    assert made["runDirectory"] == str(folder)
    assert (folder / "prompt.md").read_text() == "Tidy\nthe notes"
    assert desk.runs.spec(made["runId"])["name"] == "tidy"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"agent": ""}, "invalid_agent"),
        ({"agent": "two\nlines"}, "invalid_agent"),
        ({"task": ""}, "empty_text"),
        ({"name": ""}, "invalid_name"),
        ({"name": "../up"}, "invalid_name"),
        ({"name": ".index"}, "invalid_name"),
        ({"name": "-x"}, "invalid_name"),
        ({"name": "a b"}, "invalid_name"),
        ({"name": "x" * 129}, "invalid_name"),
        ({"name": NOBODY}, "invalid_name"),
        ({"cwd": "/nowhere/at/all"}, "bad_cwd"),
        ({"cwd": ""}, "bad_cwd"),
    ],
    ids=str,
)
def test_a_run_that_cannot_be_made_is_not_begun(
    desk: Context, tmp_path: Path, given: dict[str, str], code: str
) -> None:
    wanted: dict[str, Any] = {"agent": "helper", "task": "Do it"} | given
    with refused(tmp_path, InvalidInput, code):
        runs.create(desk, wanted.pop("agent"), wanted.pop("task"), **wanted)


def test_everything_below_the_runs_directory_belongs_to_its_user_alone(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk, "tidy")
    ask(desk, run_id)
    runs.update(desk, run_id, "success", "Done.")
    below = [runs_dir, *runs_dir.rglob("*")]
    others = {str(path.relative_to(runs_dir.parent)): oct(path.stat().st_mode & 0o777) for path in below}
    assert {name: mode for name, mode in others.items() if int(mode, 8) & 0o077} == {}


def test_a_key_makes_one_run_and_shows_its_token_once(desk: Context, runs_dir: Path) -> None:
    made = runs.create(desk, "helper", "Do it", key="k")
    before = snapshot(runs_dir, locks=False)
    again = runs.create(desk, "helper", "Do it", key="k")
    assert again["runId"] == made["runId"]
    assert "env" in made
    assert "env" not in again
    assert snapshot(runs_dir, locks=False) == before
    with refused(runs_dir, Refused, "key_reused"):
        runs.create(desk, "helper", "Do something else", key="k")


@pytest.mark.case("C1-24", "X5")
def test_a_waiting_run_is_shown_with_its_questions_and_how_to_answer_them(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    asked = [ask(desk, run_id), ask(desk, run_id)]
    before = snapshot(runs_dir)
    shown = runs.status(desk, run_id)
    assert snapshot(runs_dir) == before
    assert shown["status"] == "waiting_parent_reply"
    assert [message["messageId"] for message in shown["messages"]] == asked
    assert shown["instructions"]
    assert shown["next"] == [desk.spelled("reply", short(message_id), "ANSWER") for message_id in asked]


@pytest.mark.case("C1-25", "X5")
def test_status_delivers_all_replies_in_one_step_and_reports_the_state_before(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    asked = [ask(desk, run_id), ask(desk, run_id), ask(desk, run_id)]
    questions.reply(desk, asked[0], "One.")
    questions.reply(desk, asked[2], "Three.")
    shown = runs.status(desk, run_id)
    assert shown["status"] == "parent_replied"
    assert [message["answerContent"] for message in shown["messages"]] == ["One.", None, "Three."]
    assert [message["state"] for message in shown["messages"]] == ["ANSWERED", "PENDING", "ANSWERED"]
    acknowledgements = [line for line in journal(runs_dir, run_id) if line["type"] == "acknowledged"]
    assert [line["messageIds"] for line in acknowledgements] == [[asked[0], asked[2]]]
    delivered = "acknowledged_by_subagent"
    assert words(runs_dir, run_id) == ("waiting_parent_reply", [delivered, "pending_parent_reply", delivered])


@pytest.mark.case("C1-25")
def test_with_one_question_a_delivered_reply_sets_the_run_running(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    questions.reply(desk, ask(desk, run_id), "That.")
    assert runs.status(desk, run_id)["status"] == "parent_replied"
    assert words(runs_dir, run_id) == ("running", ["acknowledged_by_subagent"])


@pytest.mark.case("C1-26", "X5", "X6")
def test_a_second_status_shows_a_running_run_and_still_its_answer(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    questions.reply(desk, ask(desk, run_id), "That.")
    runs.status(desk, run_id)
    before = snapshot(runs_dir)
    shown = runs.status(desk, run_id)
    assert snapshot(runs_dir) == before
    assert shown["status"] == "running"
    (message,) = shown["messages"]
    assert (message["answerContent"], message["state"]) == ("That.", "RETRIEVED")


@pytest.mark.case("X5")
def test_a_peeking_status_shows_the_answer_and_leaves_it_unread(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    questions.reply(desk, ask(desk, run_id), "That.")
    before = snapshot(runs_dir)
    shown = runs.status(desk, run_id, peek=True)
    assert snapshot(runs_dir) == before
    assert (shown["status"], shown["messages"][0]["answerContent"]) == ("parent_replied", "That.")


@pytest.mark.case("X5")
def test_another_runs_worker_does_not_pick_up_a_reply(desk: Context, runs_dir: Path) -> None:
    run_id, other = create(desk, "mine"), create(desk, "other")
    questions.reply(desk, ask(desk, run_id), "That.")
    before = snapshot(runs_dir)
    for caller in (other, "other", short(other), "@last", NOBODY, "gone"):
        shown = runs.status(desk._replace(caller=Caller(caller)), run_id)
        assert shown["messages"][0]["answerContent"] == "That."
        assert snapshot(runs_dir) == before, caller


@pytest.mark.case("X5")
@pytest.mark.parametrize("spelling", ["whole", "capitals", "end", "name", "@last"])
def test_the_runs_own_worker_picks_up_its_reply_however_its_environment_spells_the_run(
    desk: Context, runs_dir: Path, spelling: str
) -> None:
    run_id = create(desk, "mine")
    questions.reply(desk, ask(desk, run_id), "That.")
    spelled = {"whole": run_id, "capitals": run_id.upper(), "end": short(run_id), "name": "mine", "@last": "@last"}
    assert runs.status(desk._replace(caller=Caller(spelled[spelling])), None)["status"] == "parent_replied"
    assert words(runs_dir, run_id)[0] == "running"


@pytest.mark.case("X5")
@pytest.mark.parametrize("active", [False, True])
def test_neither_the_table_nor_the_list_picks_up_a_reply(desk: Context, runs_dir: Path, active: bool) -> None:
    run_id = create(desk)
    questions.reply(desk, ask(desk, run_id), "That.")
    before = snapshot(runs_dir)
    rows, faults = listing.find(desk, active=active)
    assert snapshot(runs_dir) == before
    assert [(row["runId"], row["status"]) for row in rows] == [(run_id, "parent_replied")]
    assert faults == []


@pytest.mark.case("C1-28")
def test_the_status_of_a_run_that_is_not_there_touches_nothing(desk: Context, runs_dir: Path) -> None:
    create(desk)
    with refused(runs_dir, RunNotFound, "run_not_found"):
        runs.status(desk, NOBODY)


@pytest.mark.case("C1-29")
@pytest.mark.parametrize("word", ["waiting_parent_reply", "parent_replied"])
def test_a_run_that_is_said_to_wait_has_a_list_of_messages_even_where_the_document_has_none(
    foreign_desk: Context, foreign_runs: Path, word: str
) -> None:
    write_foreign(foreign_runs, status=word)
    shown = runs.status(foreign_desk, FOREIGN_RUN)
    assert shown["messages"] == []


@pytest.mark.case("C1-29")
@pytest.mark.parametrize("word", ["pending", "running", "success", "error", "completed"])
def test_no_other_status_adds_messages(foreign_desk: Context, foreign_runs: Path, word: str) -> None:
    write_foreign(foreign_runs, status=word)
    assert "messages" not in runs.status(foreign_desk, FOREIGN_RUN)


@pytest.mark.case("C1-30")
def test_status_has_the_documents_keys_and_where_the_log_lies(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    shown = runs.status(desk, run_id)
    assert document(runs_dir, run_id).items() <= shown.items()
    assert shown["logFile"] == str(runs_dir / run_id / "log")
    assert shown["logDirectory"] == str(runs_dir / run_id)
    assert shown["alive"] is None
    assert {"state", "kind", "instructions", "next"} <= shown.keys()


@pytest.mark.case("C1-34")
def test_only_a_running_run_asks_to_be_left_alone_for_30_seconds(desk: Context) -> None:
    run_id = create(desk)
    assert runs.status(desk, run_id)["instructions"] is None
    runs.update(desk, run_id, "running")
    assert re.search(r"\b30 s", runs.status(desk, run_id)["instructions"])
    runs.update(desk, run_id, "success")
    assert runs.status(desk, run_id)["instructions"] is None


@pytest.mark.case("C1-41")
@pytest.mark.parametrize("word", ["success", "error", "running", "completed"])
def test_four_words_can_be_reported(desk: Context, runs_dir: Path, word: str) -> None:
    run_id = create(desk)
    assert runs.update(desk, run_id, word)["status"] == word
    assert document(runs_dir, run_id)["status"] == word


@pytest.mark.case("C1-41")
@pytest.mark.parametrize("word", ["waiting_parent_reply", "parent_replied", "pending", "cancelled", "", "done"])
def test_no_other_word_can_be_reported(desk: Context, runs_dir: Path, word: str) -> None:
    run_id = create(desk)
    with refused(runs_dir, InvalidInput, "unknown_status"):
        runs.update(desk, run_id, word)


@pytest.mark.case("C1-42")
def test_a_report_sets_status_summary_and_times_and_keeps_what_is_not_given(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    run_id = create(desk)
    clock.wait()
    runs.update(desk, run_id, "running", "Half.")
    found = document(runs_dir, run_id)
    assert (found["status"], found["summary"], found["endTime"]) == ("running", "Half.", None)
    assert found["lastUpdated"] == clock.now().iso
    clock.wait()
    ended_at = clock.now().iso
    runs.update(desk, run_id, "success")
    found = document(runs_dir, run_id)
    assert (found["status"], found["summary"], found["endTime"]) == ("success", "Half.", ended_at)
    clock.wait()
    runs.update(desk, run_id, "completed", "All.")
    found = document(runs_dir, run_id)
    assert (found["status"], found["summary"], found["endTime"]) == ("completed", "All.", ended_at)
    assert found["lastUpdated"] == clock.now().iso


@pytest.mark.case("C1-43")
def test_a_report_leaves_its_lines_in_the_log(desk: Context, runs_dir: Path, clock: StillClock) -> None:
    run_id = create(desk)
    runs.update(desk, run_id, "running")
    first = clock.now().iso
    clock.wait()
    runs.update(desk, run_id, "success", "Done.")
    second = clock.now().iso
    assert (runs_dir / run_id / "log").read_text().splitlines() == [
        f"[{first}] Status updated to: running",
        f"[{second}] Status updated to: success",
        f"[{second}] Summary: Done.",
    ]


@pytest.mark.case("C1-44")
def test_a_report_on_an_unknown_run_makes_nothing(desk: Context, runs_dir: Path) -> None:
    create(desk)
    with refused(runs_dir, RunNotFound, "run_not_found"):
        runs.update(desk, NOBODY, "success", "Done.")


@pytest.mark.case("C1-45", "X22", "X10")
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ended_run_does_not_run_again(desk: Context, runs_dir: Path, ending: str) -> None:
    run_id = create(desk)
    runs.update(desk, run_id, ending, "That is all.")
    with refused(runs_dir, Refused, "run_finished"):
        runs.update(desk, run_id, "running")
    opposite = "success" if ending == "error" else "error"
    with refused(runs_dir, Refused, "run_finished"):
        runs.update(desk, run_id, opposite)


@pytest.mark.case("X22")
@pytest.mark.parametrize("summary", ["That is all.", None])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_report_again_is_a_success_that_changes_nothing(
    desk: Context, runs_dir: Path, clock: StillClock, ending: str, summary: str | None
) -> None:
    run_id = create(desk)
    first = runs.update(desk, run_id, ending, "That is all.")
    clock.wait()
    before = snapshot(runs_dir, locks=False)
    assert runs.update(desk, run_id, ending, summary) == first
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C1-58")
def test_after_it_is_made_a_run_is_addressed_by_its_id_alone(desk: Context) -> None:
    """The same calls serve runs of any agent."""
    for agent in ("helper", "other-agent"):
        run_id = runs.create(desk, agent, "Do it")["runId"]
        message_id = ask(desk, run_id)
        questions.reply(desk, run_id, "That.")
        assert questions.check(desk, message_id, run=run_id)["answer"] == "That."
        runs.update(desk, run_id, "success", "Done.")
        assert runs.status(desk, run_id)["agentName"] == agent
        assert outcomes.result(desk, run_id)["result"] == "Done."


@pytest.mark.case("X26")
def test_names_in_json_are_camel_case_but_where_a_seed_fixes_them(desk: Context) -> None:
    run_id = create(desk)
    asked = questions.ask(desk, "Which?", run=run_id)
    (waiting,), _ = questions.pending(desk)
    told = questions.tell(desk, "Note.", run=run_id)
    replied = questions.reply(desk, run_id, "That.")
    checked = questions.check(desk, asked["messageId"])
    updated = runs.update(desk, run_id, "success")
    shown = runs.status(desk, run_id)
    (row,), _ = listing.find(desk)
    fixed = {"message_id"}
    for answer in (asked, told, replied, checked, updated, shown, row, outcomes.result(desk, run_id)):
        assert [key for key in _keys(answer) - fixed if not re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", key)] == []
    assert [key for key in _keys(waiting) if not re.fullmatch(r"[a-z]+(_[a-z]+)*", key)] == []


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


def test_the_result_of_an_unfinished_run_is_refused_with_the_next_command(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    with pytest.raises(Refused) as caught:
        outcomes.result(desk, run_id)
    assert caught.value.code == "not_finished"
    assert caught.value.next == desk.spelled("wait", short(run_id))


def test_the_result_of_a_failed_run_is_its_error_and_kind(desk: Context) -> None:
    run_id = create(desk)
    runs.update(desk, run_id, "error", "No disk.")
    outcome = outcomes.result(desk, run_id)
    assert (outcome["error"], outcome["kind"], outcome["status"]) == ("No disk.", "sub_agent_error", "error")
    assert "result" not in outcome


def test_runs_are_listed_newest_first_by_status_and_number(desk: Context) -> None:
    made = [create(desk) for _ in range(4)]
    runs.update(desk, made[1], "success")
    ask(desk, made[2])
    assert [row["runId"] for row in listing.find(desk)[0]] == made[::-1]
    assert [row["runId"] for row in listing.find(desk, limit=2)[0]] == [made[3], made[2]]
    assert [row["runId"] for row in listing.find(desk, status="success")[0]] == [made[1]]
    assert [row["runId"] for row in listing.find(desk, status="waiting_parent_reply")[0]] == [made[2]]
    assert [row["runId"] for row in listing.find(desk, active=True)[0]] == [made[3], made[2], made[0]]


def test_an_ended_run_stays_active_while_its_question_waits(desk: Context) -> None:
    run_id = create(desk)
    message_id = ask(desk, run_id)
    runs.update(desk, run_id, "success")
    assert [row["runId"] for row in listing.find(desk, active=True)[0]] == [run_id]
    questions.reply(desk, message_id, "That.")
    assert listing.find(desk, active=True)[0] == []


def test_a_run_that_another_program_made_is_shown_as_it_stands(foreign_desk: Context, foreign_runs: Path) -> None:
    write_foreign(foreign_runs, status="error", exitCode=3, endTime=STAMP, summary="No.", startTime=None)
    before = snapshot(foreign_runs)
    shown = runs.status(foreign_desk, FOREIGN_RUN)
    assert (shown["status"], shown["exitCode"], shown["endTime"], shown["summary"]) == ("error", 3, STAMP, "No.")
    assert outcomes.result(foreign_desk, FOREIGN_RUN)["error"] == "No."
    assert snapshot(foreign_runs) == before


@pytest.mark.case("X2")
def test_a_summary_that_another_program_gave_a_running_run_is_shown_and_kept(
    foreign_desk: Context, foreign_runs: Path
) -> None:
    write_foreign(foreign_runs, summary="Half of it.")
    assert runs.status(foreign_desk, FOREIGN_RUN)["summary"] == "Half of it."
    ask(foreign_desk, FOREIGN_RUN)
    assert document(foreign_runs, FOREIGN_RUN)["summary"] == "Half of it."


@pytest.mark.parametrize(
    "content",
    [
        b'{"status":"running","x":1e999}',
        b'{"status":"running","exitCode":-1e999}',
        b'{"status":"running","messages":[{"messageId":"m","questionContent":"q","x":1e999}]}',
        b'{"status":"running","x":' + b"9" * 4000 + b"}",
        b'{"status":"running","\\ud800":"\\udfff"}',
        b'{"status":"running","startTime":"0001-01-01T00:00:00+23:59"}',
    ],
    ids=["infinity", "minus infinity", "infinity in a message", "huge number", "half characters", "before time"],
)
def test_values_that_only_javascript_can_hold_do_not_make_the_run_unreadable(
    foreign_runs: Path, clock: StillClock, content: bytes
) -> None:
    """What is absorbed into the journal must be read back from it, for this run and for every list it stands in."""
    write_foreign(foreign_runs, content=content)
    options = {"runs_dir": str(foreign_runs)}
    ask(open_context(options, clock), FOREIGN_RUN)
    later = open_context(options, clock)
    assert runs.status(later, FOREIGN_RUN)["status"] == "waiting_parent_reply"
    rows, faults = listing.find(later)
    assert ([row["runId"] for row in rows], faults) == ([FOREIGN_RUN], [])


@pytest.mark.parametrize("ms", [-62_135_596_800_000, -1, 0, 253_402_300_799_999])
def test_a_question_of_any_age_can_be_shown(foreign_runs: Path, clock: StillClock, ms: int) -> None:
    stamps = {-62_135_596_800_000: "0001-01-01T00:00:00.000Z", -1: "1969-12-31T23:59:59.999Z"}
    stamps |= {0: "1970-01-01T00:00:00.000Z", 253_402_300_799_999: "9999-12-31T23:59:59.999Z"}
    message = foreign_message(questionTimestamp=stamps[ms])
    write_foreign(foreign_runs, status="waiting_parent_reply", messages=[message])
    desk = open_context({"runs_dir": str(foreign_runs), "question_ttl": "1ms"}, clock)
    assert runs.status(desk, FOREIGN_RUN)["messages"][0]["questionTimestamp"] == stamps[ms]
    questions.pending(desk, FOREIGN_RUN)


def test_a_runs_directory_that_somebody_else_makes_just_now_is_taken_for_a_folder(
    desk: Context, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = {"lexists": os.path.lexists, "isdir": os.path.isdir}

    def looked(name: str, path: str) -> bool:
        found = looks[name](path)
        if path == str(runs_dir):
            runs_dir.mkdir(exist_ok=True)
        return found

    for name in looks:
        monkeypatch.setattr(os.path, name, functools.partial(looked, name))
    assert document(runs_dir, create(desk))["status"] == "pending"

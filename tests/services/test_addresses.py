"""Names of runs and questions: every form that is accepted, what is ambiguous, and what is no name at all."""

from pathlib import Path

import pytest

from subagent_cli.core.errors import InvalidInput, NotFound, RunNotFound, SubagentError
from subagent_cli.core.ids import is_uuid, short
from subagent_cli.services import addresses, listing, questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.settings import Caller
from tests.services.desk import StillClock, create, refused, snapshot, write_foreign

SHAPES = {
    "v1": "c232ab00-9414-11ec-b3c8-9f6bdeced846",
    "v4": "919108f7-52d1-4320-9bac-f847db4148a8",
    "v6": "1ec9414c-232a-6b00-b3c8-9f6bdeced846",
    "v7": "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
    "v8": "2489e9ad-2ee2-8e00-8ec9-32d5f69181c0",
    "nil": "00000000-0000-0000-0000-000000000000",
    "max": "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "capitals": "919108F7-52D1-4320-9BAC-F847DB4148A9",
    "wrong variant": "919108f7-52d1-4320-cbac-f847db4148a8",
}
V4 = SHAPES["v4"]
NOT_FOUND = {"ULID": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "slug": "tidy-the-notes"}
NOT_AN_ID = {"braces": f"{{{V4}}}", "urn": f"urn:uuid:{V4}", "spaces": f" {V4} ", "dotted": f"./{V4}"}


@pytest.mark.case("T-40", "T-41")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_folder_named_by_any_uuid_is_a_run(foreign_desk: Context, foreign_runs: Path, shape: str) -> None:
    for run_id in SHAPES.values():
        write_foreign(foreign_runs, run_id)
    run_id = SHAPES[shape]
    for spelling in (run_id, run_id.lower(), run_id.upper()):
        assert addresses.run(foreign_desk, spelling) == run_id
    assert runs.status(foreign_desk, run_id)["runId"] == run_id
    message_id = questions.ask(foreign_desk, "Which?", run=run_id)["messageId"]
    assert questions.reply(foreign_desk, run_id, "That.")["messageIds"] == [message_id]
    assert run_id in [row["runId"] for row in listing.find(foreign_desk)[0]]


@pytest.mark.case("T-40")
@pytest.mark.parametrize("text", [V4.replace("-", ""), V4.replace("-", "").upper(), V4[:18], V4[-12:], V4[9:][-4:]])
def test_the_digits_of_an_id_name_it_with_or_without_dashes(
    foreign_desk: Context, foreign_runs: Path, text: str
) -> None:
    write_foreign(foreign_runs, V4)
    write_foreign(foreign_runs, SHAPES["v1"])
    assert addresses.run(foreign_desk, text) == V4


@pytest.mark.case("T-40")
@pytest.mark.parametrize("shape", [*NOT_FOUND, *NOT_AN_ID])
def test_shapes_that_are_no_uuid_name_no_run(foreign_desk: Context, foreign_runs: Path, shape: str) -> None:
    """Not even where a folder of that name lies there."""
    write_foreign(foreign_runs, V4)
    text = (NOT_FOUND | NOT_AN_ID)[shape]
    if shape != "dotted":
        write_foreign(foreign_runs, text)
    kind, code = (RunNotFound, "run_not_found") if shape in NOT_FOUND else (InvalidInput, "invalid_run_id")
    with refused(foreign_runs, kind, code):
        questions.ask(foreign_desk, "Which?", run=text)
    with refused(foreign_runs, kind, code):
        questions.reply(foreign_desk, text, "That.", message="0190a000-0000-7000-8000-00000000abcd")
    assert [row["runId"] for row in listing.find(foreign_desk)[0]] == [V4]


@pytest.mark.case("X25", "T-41")
def test_ids_of_ours_are_version_7_and_sort_by_time(desk: Context) -> None:
    made = [create(desk) for _ in range(5)]
    asked = questions.ask(desk, "Which?", run=made[0])["messageId"]
    assert made == sorted(made)
    assert all(is_uuid(text) and text[14] == "7" and text[19] in "89ab" for text in (*made, asked))


def test_any_unique_beginning_or_end_of_four_digits_or_more_names_a_run(
    foreign_desk: Context, foreign_runs: Path
) -> None:
    write_foreign(foreign_runs, V4)
    bare = V4.replace("-", "")
    for length in range(4, 33):
        assert addresses.run(foreign_desk, bare[:length]) == V4
        assert addresses.run(foreign_desk, bare[-length:]) == V4
    for text in (bare[:3], bare[-3:], bare[5:15]):
        with pytest.raises(RunNotFound):
            addresses.run(foreign_desk, text)


def test_a_part_that_several_runs_share_is_ambiguous_and_names_them(foreign_desk: Context, foreign_runs: Path) -> None:
    both = ["abcd0000-0000-4000-8000-000000000001", "abcd0000-0000-4000-8000-000000000002"]
    for run_id in both:
        write_foreign(foreign_runs, run_id)
    before = snapshot(foreign_runs)
    with pytest.raises(InvalidInput) as caught:
        questions.ask(foreign_desk, "Which?", run="abcd")
    assert caught.value.code == "ambiguous"
    assert sorted(caught.value.candidates) == both
    assert snapshot(foreign_runs) == before


def test_a_run_is_named_by_its_name_and_the_newest_of_that_name_is_meant(desk: Context) -> None:
    old, other, new = create(desk, "tidy"), create(desk, "other"), create(desk, "tidy")
    assert addresses.run(desk, "tidy") == new
    assert addresses.run(desk, "other") == other
    assert addresses.run(desk, short(old)) == old


def test_last_is_the_newest_run(desk: Context, runs_dir: Path) -> None:
    runs_dir.mkdir()
    with refused(runs_dir, RunNotFound, "run_not_found"):
        addresses.run(desk, "@last")
    create(desk)
    newest = create(desk)
    assert addresses.run(desk, "@last") == newest
    questions.ask(desk, "Which?", run=newest)
    assert questions.reply(desk, "@last", "That.")["runId"] == newest


def test_a_name_that_is_almost_right_is_answered_with_what_may_be_meant(desk: Context) -> None:
    create(desk, "tidy-notes")
    run_id = create(desk)
    with pytest.raises(RunNotFound) as caught:
        addresses.run(desk, "tidy-note")
    assert "tidy-notes" in caught.value.candidates
    typo = short(run_id)[:-1] + ("0" if run_id[-1] != "0" else "1")
    with pytest.raises(NotFound) as found:
        questions.reply(desk, typo, "That.")
    assert short(run_id) in found.value.candidates


def test_a_question_is_found_by_a_part_of_its_id_wherever_it_was_asked(desk: Context) -> None:
    run_id = create(desk)
    message_id = questions.ask(desk, "Which?", run=run_id)["messageId"]
    questions.ask(desk, "Or which?", run=create(desk))
    for text in (message_id, message_id.upper(), short(message_id), message_id.replace("-", "")):
        assert addresses.message(desk, text) == (run_id, message_id)
        assert addresses.message(desk, text, run_id) == (run_id, message_id)


def test_a_part_that_several_questions_share_is_ambiguous(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    asked = [questions.ask(desk, "Which?", run=run_id)["messageId"] for _ in range(2)]
    shared = asked[0][:13]
    for run in (None, run_id):
        with pytest.raises(InvalidInput) as caught:
            questions.check(desk, shared, run=run)
        assert caught.value.code == "ambiguous"
        assert set(caught.value.candidates) == set(asked)


def test_a_part_that_a_run_and_a_question_share_is_ambiguous_for_a_reply(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = questions.ask(desk, "Which?", run=run_id)["messageId"]
    before = snapshot(runs_dir)
    with pytest.raises(InvalidInput) as caught:
        questions.reply(desk, run_id[:13], "That.")
    assert caught.value.code == "ambiguous"
    assert set(caught.value.candidates) == {run_id, message_id}
    assert snapshot(runs_dir) == before


def test_a_named_run_goes_before_the_callers_own(desk: Context) -> None:
    mine, other = create(desk), create(desk)
    worker = desk._replace(caller=Caller(mine))
    assert addresses.run(worker, None) == mine
    assert addresses.run(worker, other) == other


def test_an_index_entry_that_names_nothing_is_not_believed(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk, "tidy")
    message_id = questions.ask(desk, "Which?", run=run_id)["messageId"]
    gone = "0190a000-0000-7000-8000-000000000000"
    (runs_dir / ".index" / "names" / "tidy" / gone).touch()
    (runs_dir / ".index" / "active" / gone).touch()
    (runs_dir / ".index" / "questions" / gone).write_text(gone)
    (runs_dir / ".index" / "questions" / "evil").write_text("../../outside")
    assert addresses.run(desk, "tidy") == run_id
    assert [item["message_id"] for item in questions.pending(desk)[0]] == [message_id]
    assert [row["runId"] for row in listing.find(desk, active=True)[0]] == [run_id]
    for text in (gone, "evil"):
        with pytest.raises(NotFound):
            questions.check(desk, text)


def test_a_runs_directory_that_was_named_must_be_there(runs_dir: Path, clock: StillClock) -> None:
    desk = open_context({"runs_dir": str(runs_dir)}, clock)
    for look in (questions.pending, listing.find):
        with pytest.raises(NotFound) as caught:
            look(desk)
        assert caught.value.code == "runs_dir_not_found"
    assert not runs_dir.exists()


@pytest.mark.case("C1-22", "T-42")
def test_a_run_folder_that_is_a_link_may_not_lead_out_of_the_runs_directory(
    foreign_desk: Context, foreign_runs: Path
) -> None:
    outside = foreign_runs.parent / "outside"
    write_foreign(outside, V4)
    (foreign_runs / V4).symlink_to(outside / V4)
    before = snapshot(outside)
    with pytest.raises(SubagentError):
        questions.ask(foreign_desk, "Which?", run=V4)
    assert snapshot(outside) == before

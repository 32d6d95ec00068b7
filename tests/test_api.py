"""The Python API on real runs with real processes: what it starts, gives, answers, ends and refuses."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from subagent_cli import api
from subagent_cli.api import Group, Question, Result, Run, Store, SubagentError, Task
from tests.cli.living import QUICK, SOON, Gate, all_ended, eventually, keeper_of, processes
from tests.command import Command

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "api.md"
ENDLESS = ["sh", "-c", "while :; do sleep 100; done"]
ASKS = ["sh", "-c", 'subagent submit result "$(subagent ask "Which?" --option a --option b --wait)"']
PASSES_ON = ["sh", "-c", "tail -n 1"]
NOBODY = "0190a000-0000-7000-8000-000000000000"


@pytest.fixture(autouse=True)
def _all_ended(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    with all_ended(runs_dir):
        yield


@pytest.fixture
def store(runs_dir: Path) -> Store:
    return Store(str(runs_dir))


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.close()


def at(gate: Gate, then: str) -> list[str]:
    """A command that goes on when it is let through."""
    return ["sh", "-c", f'read word < "{gate.word}"; {then}']


def ended(run: Run, answer: Callable[[Question], str | None] | None = None) -> Result:
    result = run.wait(answer=answer, timeout=SOON)
    assert result is not None
    return result


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(SubagentError) as caught:
        call()
    assert caught.value.message
    return caught.value.code


def test_what_is_public_is_what_the_document_speaks_of() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert api.__all__ == ["Group", "Question", "Result", "Run", "Store", "SubagentError", "Task"]
    for name in api.__all__:
        assert f"**`{name}" in text
    for kind in (Store, Group, Run):
        for method in (name for name in dir(kind) if not name.startswith("_")):
            assert f"`{method}(" in text
    for field in (*Result._fields, *Question._fields, *Task._fields):
        assert f"`{field}`" in text


def test_every_block_of_the_document_runs(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_RUNS_DIR", str(runs_dir))
    blocks = DOCUMENT.read_text(encoding="utf-8").split("```python\n")[1:]
    told: list[str] = []
    names: dict[str, object] = {"print": lambda *words: told.append(" ".join(words))}
    for block in blocks:
        exec(compile(block.partition("```")[0], str(DOCUMENT), "exec"), names)
    assert sorted(told) == [
        "Review the docs -> Nothing to object to about safety",
        "Review the tests -> Nothing to object to about safety",
    ]
    assert len(blocks) == 3


def test_opening_one_makes_nothing(runs_dir: Path) -> None:
    Store(str(runs_dir))
    assert not runs_dir.exists()


def test_without_a_directory_it_is_the_one_that_the_command_finds(
    runs_dir: Path, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBAGENT_RUNS_DIR", str(runs_dir))
    run = Store().run("Do it", command=["true"], name="it")
    assert cli("wait", "it").code == 0
    assert cli("status", "it", "--json").json["runId"] == run.id


def test_its_settings_hold_for_what_it_does(runs_dir: Path) -> None:
    few = Store(str(runs_dir), max_children="1")
    assert refused(lambda: few.spawn(["One", "Two"], command=["true"])) == "too_many_tasks"
    hasty = Store(str(runs_dir), run_timeout="100ms")
    assert ended(hasty.run("Do it", command=ENDLESS)).state == "timed_out"


def test_settings_go_before_the_environment(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_MAX_CHILDREN", "1")
    group = Store(str(runs_dir), max_children="2").spawn(["One", "Two"], command=["true"])
    assert len(list(group.results(timeout=SOON))) == 2


def test_a_setting_that_cannot_be_meant_is_refused(runs_dir: Path) -> None:
    assert refused(lambda: Store(str(runs_dir), max_children="many")) == "invalid_setting"


def test_a_setting_that_there_is_not_is_refused(runs_dir: Path) -> None:
    assert refused(lambda: Store(str(runs_dir), max_childs="20")) == "invalid_setting"


def test_a_directory_that_is_a_file_is_refused(runs_dir: Path) -> None:
    runs_dir.write_text("a file")
    assert refused(lambda: Store(str(runs_dir)).run("Do it", command=["true"])) == "bad_runs_dir"


def test_a_wrong_token_is_denied(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_RUN_ID", NOBODY)
    monkeypatch.setenv("SUBAGENT_TOKEN", "wrong")
    assert refused(lambda: Store(str(runs_dir))) == "denied"


@pytest.mark.case("C2-17")
def test_what_a_command_puts_out_is_its_result(store: Store) -> None:
    run = store.run("Do it", command=PASSES_ON)
    assert ended(run) == Result(run.id, "Do it", "success", "Do it", None, (), None, 0)
    assert ended(run).ok


@pytest.mark.case("C2-14")
def test_what_is_submitted_is_its_result_with_artifacts(store: Store) -> None:
    script = 'subagent submit result "Done" --artifact notes.md --artifact log.txt'
    result = ended(store.run("Do it", command=["sh", "-c", script]))
    assert (result.state, result.text, result.artifacts) == ("success", "Done", ("notes.md", "log.txt"))


def test_it_has_its_name_its_folder_and_its_variables(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    command = ["sh", "-c", 'echo "$PWD $COLOUR"']
    run = store.run("Do it", command=command, name="it", cwd=str(folder), env={"COLOUR": "blue"})
    assert ended(run).text == f"{folder} blue"
    assert run.status()["name"] == "it"


def test_an_agent_is_found_by_its_name(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agents.toml"
    file.write_text('[agents.echoes]\ncommand = ["tail", "-n", "1"]\n')
    result = ended(Store(str(tmp_path / "runs"), agents=str(file)).run("Do it", agent="echoes"))
    assert (result.ok, result.text) == (True, "Do it")


@pytest.mark.case("C2-15")
@pytest.mark.parametrize(
    ("script", "text", "kind"),
    [
        ("exit 3", "Process exited with code 3", "sub_agent_error"),
        ("subagent submit error 'No way' --kind network", "No way", "network"),
        ("subagent update error --summary 'No luck'", "No luck", "sub_agent_error"),
    ],
)
def test_a_run_that_fails_is_a_result_that_says_so(store: Store, script: str, text: str, kind: str) -> None:
    result = ended(store.run("Do it", command=["sh", "-c", script]))
    assert (result.ok, result.state, result.text, result.kind) == (False, "error", text, kind)


@pytest.mark.case("C2-47")
def test_a_run_that_takes_too_long_has_timed_out(store: Store) -> None:
    result = ended(store.run("Do it", command=ENDLESS, timeout=0.1))
    assert (result.ok, result.state, result.text) == (False, "timed_out", "Sub-agent timed out")


def test_a_run_whose_keeper_was_killed_is_lost(store: Store, runs_dir: Path, gate: Gate) -> None:
    run = store.run("Do it", command=["sh", "-c", f'echo there > "{gate.said}"; {ENDLESS[2]}'])
    gate.heard()
    os.kill(keeper_of(runs_dir, run.id), signal.SIGKILL)
    result = ended(run)
    assert (result.ok, result.state) == (False, "lost")
    run.cancel()
    eventually(lambda: not processes(runs_dir))


@pytest.mark.case("X32")
def test_waiting_ends_when_its_time_is_up_and_the_run_goes_on(store: Store) -> None:
    run = store.run("Do it", command=ENDLESS)
    assert run.wait(timeout=0) is None
    assert run.wait(timeout=0.05) is None
    assert run.status()["alive"] is True
    run.cancel(grace=0)


@pytest.mark.case("C2-39", "C2-45")
def test_cancelling_ends_its_processes_and_twice_does_no_harm(store: Store, runs_dir: Path) -> None:
    run = store.run("Do it", command=ENDLESS)
    run.cancel("No longer wanted", grace=0)
    assert processes(runs_dir) == []
    run.cancel()
    result = ended(run)
    assert (result.state, result.text, result.kind) == ("cancelled", "No longer wanted", "cancelled")


@pytest.mark.case("C2-36")
def test_cancelling_leaves_an_outcome_alone(store: Store) -> None:
    run = store.run("Do it", command=["echo", "done"])
    assert ended(run).ok
    run.cancel()
    assert ended(run).state == "success"


def test_going_on_with_it_is_another_attempt_with_a_result_of_its_own(store: Store) -> None:
    run = store.run("Do it", command=PASSES_ON)
    assert ended(run).text == "Do it"
    run.resume("And now this")
    second = ended(run)
    assert (second.ok, second.task, second.text) == (True, "Do it", "And now this")
    assert run.status()["attempt"] == 2


def test_going_on_with_one_that_has_not_ended_is_refused(store: Store) -> None:
    run = store.run("Do it", command=ENDLESS)
    assert refused(lambda: run.resume("Faster")) == "run_alive"
    run.cancel(grace=0)
    assert refused(lambda: run.resume("")) == "empty_text"


def test_its_status_leaves_replies_unread(store: Store, gate: Gate) -> None:
    run = store.run("Do it", command=["sh", "-c", f'subagent ask Which?; echo > "{gate.said}"; {ENDLESS[2]}'])
    gate.heard()
    store.reply(store.questions()[0], "This")
    for _ in range(2):
        assert [message["state"] for message in run.status()["messages"]] == ["ANSWERED"]
    run.cancel(grace=0)


def test_one_that_is_there_is_opened_by_its_id_a_part_of_it_its_name_or_as_the_last(store: Store) -> None:
    run = store.run("Do it", command=["true"], name="it")
    for name in (run.id, run.id[-8:], "it", "@last"):
        opened = store.open(name)
        assert (opened.id, opened.run_ids) == (run.id, (run.id,))
    assert ended(store.open("it")).ok


def test_one_that_the_command_line_started_can_be_waited_for(store: Store, cli: Command) -> None:
    cli("run", "Do it", "--name", "theirs", "--", *ASKS)
    assert ended(store.open("theirs"), lambda _: "2").text == "b"


@pytest.mark.case("X12")
def test_a_worker_that_may_not_nest_cannot_start_one(
    store: Store, runs_dir: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.run("Do it", command=["sh", "-c", f'echo "$SUBAGENT_TOKEN" > "{gate.said}"; {ENDLESS[2]}'])
    monkeypatch.setenv("SUBAGENT_TOKEN", gate.heard())
    monkeypatch.setenv("SUBAGENT_RUN_ID", run.id)
    worker = Store(str(runs_dir))
    assert refused(lambda: worker.run("Help", command=["true"])) == "depth_exceeded"
    assert refused(lambda: worker.spawn(["Help"], command=["true"])) == "depth_exceeded"
    run.cancel(grace=0)


BAD: dict[str, Callable[[Store], object]] = {
    "no_command": lambda store: store.run("Do it"),
    "program_not_found": lambda store: store.run("Do it", command=["no-such-program"]),
    "unknown_agent": lambda store: store.run("Do it", agent="no-such-agent"),
    "no_tasks": lambda store: store.spawn([], command=["true"]),
    "too_many_tasks": lambda store: store.spawn(["Do it"] * 11, command=["true"]),
}


@pytest.mark.case("C2-01", "C2-08")
@pytest.mark.parametrize("code", BAD)
def test_what_cannot_be_started_is_refused_and_leaves_nothing(store: Store, runs_dir: Path, code: str) -> None:
    assert refused(lambda: BAD[code](store)) == code
    assert not runs_dir.exists() or not list(runs_dir.glob("*/run.json"))


@pytest.mark.case("C2-07")
def test_a_bad_folder_or_an_empty_task_starts_none_of_them(store: Store, runs_dir: Path) -> None:
    assert refused(lambda: store.spawn(["One", "Two"], command=["true"], cwd="/no/such/folder"))
    assert refused(lambda: store.spawn(["One", ""], command=["true"]))
    assert not runs_dir.exists() or not list(runs_dir.glob("*/run.json"))


@pytest.mark.case("C2-03", "C2-24")
def test_every_task_has_a_run_and_every_run_a_result(store: Store, cli: Command) -> None:
    group = store.spawn(["One", "Two", "Three"], command=PASSES_ON)
    results = {result.run_id: result for result in group.results(timeout=SOON)}
    assert [results[run_id].text for run_id in group.run_ids] == ["One", "Two", "Three"]
    assert [results[run_id].task for run_id in group.run_ids] == ["One", "Two", "Three"]
    theirs = cli("wait", group.id, "--json").json["sub_agent_results"]
    assert [item["agent_id"] for item in theirs] == list(group.run_ids)


@pytest.mark.case("C2-29")
def test_results_that_came_before_anybody_waited_are_given_and_given_again(store: Store) -> None:
    group = store.spawn(["One", "Two"], command=PASSES_ON)
    for run_id in group.run_ids:
        ended(store.open(run_id))
    for _ in range(2):
        assert [result.text for result in group.results(timeout=0)] == ["One", "Two"]


@pytest.mark.case("C2-26", "C2-32")
def test_a_result_is_given_as_soon_as_its_run_is_over(store: Store, gate: Gate) -> None:
    script = f'case $(tail -n 1) in One) read word < "{gate.word}";; esac; echo done'
    group = store.spawn(["One", "Two"], command=["sh", "-c", script])
    coming = group.results(timeout=SOON)
    assert next(coming).task == "Two"
    gate.open()
    assert [result.task for result in coming] == ["One"]


@pytest.mark.case("C2-33")
def test_failures_are_results_and_the_others_go_on(store: Store, runs_dir: Path, gate: Gate) -> None:
    stays = f'echo there > "{gate.said}"; {ENDLESS[2]}'
    script = f"case $(tail -n 1) in Well) echo well;; Badly) exit 3;; *) {stays};; esac"
    group = store.spawn(["Well", "Badly", "Gone", "Ended"], command=["sh", "-c", script])
    assert [gate.heard(), gate.heard()] == ["there", "there"]
    gone, unwanted = group.run_ids[2:]
    os.kill(keeper_of(runs_dir, gone), signal.SIGKILL)
    store.open(unwanted).cancel(grace=0)
    states = {result.task: (result.state, result.ok) for result in group.results(timeout=SOON)}
    assert states == {
        "Well": ("success", True),
        "Badly": ("error", False),
        "Gone": ("lost", False),
        "Ended": ("cancelled", False),
    }
    group.cancel(grace=0)


@pytest.mark.case("X32")
def test_when_the_time_is_up_it_gives_what_there_is_and_cancels_nothing(store: Store, gate: Gate) -> None:
    group = store.spawn(["One", "Two"], command=at(gate, "echo done"))
    gate.open()
    first = next(group.results(timeout=SOON))
    assert list(group.results(timeout=0.05)) == [first]
    gate.open()
    assert [result.ok for result in group.results(timeout=SOON)] == [True, True]


@pytest.mark.case("C2-48")
def test_a_deadline_ends_what_is_left_and_every_result_is_there(store: Store, runs_dir: Path) -> None:
    script = f"case $(tail -n 1) in One) echo done;; *) {ENDLESS[2]};; esac"
    group = store.spawn(["One", "Two"], command=["sh", "-c", script], deadline=1.5)
    states = {result.task: (result.state, result.text) for result in group.results(timeout=SOON)}
    assert states["One"] == ("success", "done")
    assert states["Two"] == ("timed_out", "Timed out: sub-agent exceeded its time limit")
    eventually(lambda: not processes(runs_dir))


def test_a_time_limit_holds_for_each(store: Store) -> None:
    group = store.spawn(["One", "Two"], command=ENDLESS, timeout=0.1)
    assert [result.text for result in group.results(timeout=SOON)] == ["Sub-agent timed out"] * 2


@pytest.mark.case("C2-37")
def test_cancelling_ends_all_of_them(store: Store, runs_dir: Path) -> None:
    group = store.spawn(["One", "Two"], command=ENDLESS)
    group.cancel("Enough", grace=0)
    assert processes(runs_dir) == []
    assert [(result.state, result.text) for result in group.results(timeout=0)] == [("cancelled", "Enough")] * 2


def test_one_can_stop_looking_and_nothing_is_cancelled(store: Store, gate: Gate) -> None:
    group = store.spawn(["One", "Two"], command=at(gate, "echo done"))
    gate.open()
    for _ in group.results(timeout=SOON):
        break
    gate.open()
    assert [result.state for result in group.results(timeout=SOON)] == ["success", "success"]


def test_a_child_that_was_cleaned_away_does_not_hold_up_the_others(store: Store, cli: Command) -> None:
    group = store.spawn(["One", "Two"], command=PASSES_ON)
    ended(store.open(group.run_ids[0]))
    assert len(list(group.results(timeout=SOON))) == 2
    assert cli("clean", group.run_ids[0], "--yes").code == 0
    assert [result.text for result in group.results(timeout=SOON)] == ["Two"]
    group.cancel()


def test_each_is_answered_once_by_what_answer_returns(store: Store) -> None:
    group = store.spawn(["One", "Two", "Three"], command=ASKS)
    asked: list[Question] = []

    def answer(question: Question) -> str:
        asked.append(question)
        return "2"

    assert [result.text for result in group.results(answer=answer, timeout=SOON)] == ["b", "b", "b"]
    assert sorted(question.run_id for question in asked) == sorted(group.run_ids)
    assert {(question.text, question.options) for question in asked} == {("Which?", ("a", "b"))}


def test_several_of_one_run_are_answered_in_turn(store: Store) -> None:
    script = "for n in 1 2 3; do subagent ask $n --wait || exit 9; done"
    run = store.run("Do it", command=["sh", "-c", script])
    asked: list[str] = []

    def answer(question: Question) -> str:
        asked.append(question.text)
        return f"answer to {question.text}"

    assert ended(run, answer).text is not None
    assert asked == ["1", "2", "3"]


def test_one_that_waits_already_when_one_begins_to_look_is_answered(store: Store) -> None:
    run = store.run("Do it", command=ASKS)
    eventually(lambda: store.questions())
    assert ended(run, lambda _: "1").text == "a"


def test_one_that_waits_when_another_run_ends_is_answered_afterwards(store: Store, gate: Gate) -> None:
    script = f'case $(tail -n 1) in Ends) read word < "{gate.word}"; echo over;; *) {ASKS[2]};; esac'
    group = store.spawn(["Ends", "Asks"], command=["sh", "-c", script])
    eventually(lambda: store.questions())
    gate.open()
    ended(store.open(group.run_ids[0]))
    coming = group.results(answer=lambda _: "1", timeout=SOON)
    assert [(result.task, result.text) for result in coming] == [("Ends", "over"), ("Asks", "a")]


def test_one_that_comes_while_a_result_is_looked_at_is_answered_afterwards(store: Store, gate: Gate) -> None:
    script = f'case $(tail -n 1) in Ends) echo over;; *) read word < "{gate.word}"; {ASKS[2]};; esac'
    group = store.spawn(["Ends", "Asks"], command=["sh", "-c", script])
    coming = group.results(answer=lambda _: "1", timeout=SOON)
    assert next(coming).task == "Ends"
    gate.open()
    eventually(lambda: store.questions())
    assert [result.text for result in coming] == ["a"]


def test_without_an_answer_nobody_is_woken_and_the_question_is_left_to_others(store: Store) -> None:
    run = store.run("Do it", command=ASKS)
    eventually(lambda: store.questions())
    assert run.wait(timeout=0.05) is None
    (question,) = store.questions()
    assert (question.run_id, question.text, question.options) == (run.id, "Which?", ("a", "b"))
    store.reply(question, "1")
    assert store.questions() == []
    assert ended(run).text == "a"


def test_none_leaves_it_to_others(store: Store) -> None:
    run = store.run("Do it", command=ASKS)
    eventually(lambda: store.questions())
    seen: list[Question] = []

    def leave(question: Question) -> None:
        seen.append(question)

    assert run.wait(answer=leave, timeout=0.05) is None
    assert seen == store.questions()
    store.reply(seen[0].id, "2")
    assert ended(run).text == "b"


def test_what_was_left_to_others_is_not_put_again_when_another_question_comes(store: Store, gate: Gate) -> None:
    script = f'case $(tail -n 1) in Hard) {ASKS[2]};; *) read word < "{gate.word}"; {ASKS[2]};; esac'
    group = store.spawn(["Hard", "Easy"], command=["sh", "-c", script])
    hard, _ = group.run_ids
    seen: list[str] = []

    def answer(question: Question) -> str | None:
        seen.append(question.run_id)
        gate.open()
        return None if question.run_id == hard else "1"

    assert next(group.results(answer=answer, timeout=SOON)).task == "Easy"
    assert seen == list(group.run_ids)
    group.cancel(grace=0)


def test_one_that_somebody_else_was_quicker_to_answer_does_not_end_the_wait(store: Store, cli: Command) -> None:
    run = store.run("Do it", command=ASKS)

    def slow(question: Question) -> str:
        assert cli("reply", question.id, "2").code == 0
        return "1"

    assert ended(run, slow).text == "b"


def test_one_whose_run_ended_over_the_answer_does_not_end_the_wait(store: Store) -> None:
    group = store.spawn(["One", "Two"], command=ASKS)
    first, _ = group.run_ids

    def answer(question: Question) -> str:
        if question.run_id == first:
            store.open(first).cancel(grace=0)
        return "1"

    states = {result.run_id: result.state for result in group.results(answer=answer, timeout=SOON)}
    assert states == dict(zip(group.run_ids, ("cancelled", "success"), strict=True))


def test_what_answer_raises_reaches_the_caller_and_the_runs_go_on(store: Store) -> None:
    run = store.run("Do it", command=ASKS)

    def fail(_: Question) -> str:
        raise LookupError("I do not know")

    with pytest.raises(LookupError):
        ended(run, fail)
    assert ended(run, lambda _: "1").text == "a"


def test_one_of_a_run_that_a_run_started_is_answered_too(runs_dir: Path) -> None:
    deep = Store(str(runs_dir), max_depth="2")
    inner = 'subagent submit result "$(subagent ask Deep? --wait)"'
    outer = f"run=$(subagent run Inner -- sh -c '{inner}'); subagent wait $run --no-questions; subagent result $run"
    run = deep.run("Outer", command=["sh", "-c", outer])
    seen: list[Question] = []

    def answer(question: Question) -> str:
        seen.append(question)
        return "Deeper"

    assert (ended(run, answer).text or "").splitlines()[-1] == "Deeper"
    assert [(question.text, question.run_id != run.id) for question in seen] == [("Deep?", True)]


def test_those_of_all_runs_are_listed_oldest_first(store: Store) -> None:
    first = store.run("One", command=ASKS)
    eventually(lambda: len(store.questions()) == 1)
    second = store.run("Two", command=ASKS)
    eventually(lambda: len(store.questions()) == 2)
    assert [question.run_id for question in store.questions()] == [first.id, second.id]
    for question in store.questions():
        store.reply(question, "1")
    assert (ended(first).text, ended(second).text) == ("a", "a")


def test_there_are_none_where_nothing_was_started_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Store().questions() == []


@pytest.mark.case("C0-08")
def test_a_second_answer_and_one_to_nobody_are_refused(store: Store) -> None:
    run = store.run("Do it", command=ASKS)
    eventually(lambda: store.questions())
    (question,) = store.questions()
    store.reply(question, "1")
    assert refused(lambda: store.reply(question, "2")) == "not_pending"
    assert refused(lambda: store.reply(NOBODY, "2")) == "not_found"
    assert ended(run).text == "a"


def test_two_threads_can_look_after_two_groups(store: Store, runs_dir: Path) -> None:
    found: dict[str, list[str | None]] = {}

    def look(answer: str) -> None:
        group = Store(str(runs_dir)).spawn(["One", "Two"], command=ASKS)
        found[answer] = [result.text for result in group.results(answer=lambda _: answer, timeout=SOON)]

    threads = [threading.Thread(target=look, args=(answer,)) for answer in ("1", "2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert found == {"1": ["a", "a"], "2": ["b", "b"]}


def test_names_that_mean_no_run_or_not_one_run_are_refused(store: Store) -> None:
    group = store.spawn(["One", "Two"], command=["true"])
    list(group.results(timeout=SOON))
    assert refused(lambda: store.open(NOBODY)) == "run_not_found"
    assert refused(lambda: store.open("../etc")) == "invalid_run_id"
    assert refused(lambda: store.open(group.id)) == "is_a_group"


def test_an_error_says_what_to_do_about_it(store: Store) -> None:
    store.run("Do it", command=["true"], name="painter").wait(timeout=SOON)
    with pytest.raises(SubagentError) as caught:
        store.open("paimter")
    error = caught.value
    assert (str(error), error.message) == ("Run ID not found: paimter",) * 2
    assert error.candidates == ("painter",)
    assert error.hint
    assert error.next is None


def test_a_task_of_its_own_differs_where_it_says_so(store: Store, tmp_path: Path) -> None:
    tasks: list[str | Task] = ["One", Task("Two", cwd=str(tmp_path), name="two"), Task("Three", timeout=0.2)]
    script = 'task=$(tail -n 1); [ "$task" = Three ] && exec sleep 60; pwd'
    group = store.spawn(tasks, command=["sh", "-c", script], cwd="/")
    found = {result.task: result for result in group.results(timeout=30)}
    assert (found["One"].text, found["Two"].text) == ("/", str(tmp_path))
    assert (found["Two"].name, found["Two"].exit_code, found["Three"].state) == ("two", 0, "timed_out")


def test_a_group_is_found_again_and_says_how_it_stands(store: Store) -> None:
    group = store.spawn(["One", "Two"], command=["true"])
    assert len(list(group.results(timeout=30))) == 2
    again = store.group(group.id[-8:])
    assert (again.id, set(again.run_ids)) == (group.id, set(group.run_ids))
    assert again.status()["state"] == "done"
    assert refused(lambda: store.group("0000")) == "group_not_found"


def test_a_key_starts_one_run_and_one_group(store: Store) -> None:
    assert len({store.run("Do it", command=["true"], key="k").id for _ in range(2)}) == 1
    assert len({store.spawn(["Do it"], command=["true"], key="k").id for _ in range(2)}) == 1


def test_a_retry_from_python_needs_no_words(store: Store) -> None:
    run = store.run("Do it", command=["sh", "-c", "exit 3"])
    assert run.wait(timeout=30) is not None
    run.resume(timeout=30)
    assert run.wait(timeout=30) is not None
    assert run.status()["attempt"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        lambda store: store.spawn("ab", command=["true"]),
        lambda store: store.run("Do it", command="true"),
        lambda store: store.run("Do it", command=["true"], timeout=float("nan")),
        lambda store: store.run("Do it", command=["true"], timeout=-1),
    ],
)
def test_what_cannot_be_meant_is_refused(store: Store, runs_dir: Path, wrong: Callable[[Store], object]) -> None:
    assert refused(lambda: wrong(store)) == "invalid_input"
    assert not runs_dir.exists()


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"": "x"}, {"A": "\0"}])
def test_a_variable_that_cannot_be_one_is_refused(store: Store, runs_dir: Path, env: dict[str, str]) -> None:
    assert refused(lambda: store.run("Do it", command=["true"], env=env)) == "invalid_env"
    assert not runs_dir.exists()


def test_no_limit_is_no_limit(store: Store) -> None:
    result = store.run("Do it", command=["true"], timeout=float("inf")).wait(timeout=float("inf"))
    assert result is not None
    assert result.ok

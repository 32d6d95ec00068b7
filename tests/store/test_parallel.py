"""Many processes at one run: every change that was acknowledged is there, each question is answered by one of those
who tried, and readers never see an error or a state that goes backwards."""

import os
import threading
from pathlib import Path

import pytest

from subagent_cli.services import questions, runs
from tests.store.world import (
    PATIENCE,
    all_kept,
    ask_in_parallel,
    children,
    document,
    ended,
    go,
    new_run,
    open_at,
    ready,
    shows_the_truth,
    truth,
)


@pytest.mark.case("C0-34", "C1-14", "T-60")
def test_eight_processes_that_ask_two_hundred_times_each_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    told = ask_in_parallel(root, 8, 200, patience=100)
    all_kept(root, told, 200)


def test_sixty_four_processes_at_once_all_get_their_turn_in_time(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    told = ask_in_parallel(root, 64, 10, patience=100)
    all_kept(root, told, 10)


def test_of_several_who_answer_a_question_exactly_one_wins(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    asked = [questions.ask(context, f"Question {number}?", run=run_id)["messageId"] for number in range(60)]
    with children(*[("answers", root, run_id, *asked)] * 3) as processes:
        ready(*processes)
        go(*processes)
        won = {process.pid: ended(process) for process in processes}
    assert sorted(message_id for mine in won.values() for message_id in mine) == sorted(asked)
    found = truth(root, run_id).questions
    for pid, mine in won.items():
        assert {found[message_id].answer for message_id in mine} <= {f"by {pid}"}
    assert shows_the_truth(root, run_id)


def test_readers_beside_writers_see_no_error_and_nothing_that_goes_backwards(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    readers = [("reads", root, run_id)] * 4
    with children(*readers, *[("asks", root, run_id, 60)] * 2) as processes:
        ready(*processes)
        go(*processes)
        writers = processes[4:]
        told: list[str] = []
        for writer in writers:
            told += ended(writer)
        for message_id in told[::2]:
            questions.reply(context, message_id, "Yes.")
        for message_id in told[::4]:
            questions.check(context, message_id)
        runs.update(context, run_id, "success")
        said = [ended(reader, PATIENCE) for reader in processes[:4]]
        assert [process.returncode for process in processes] == [0] * 6
    assert [word for lines in said for word in lines[0].split()[:1]] == ["looked"] * 4
    assert all(int(lines[0].split()[1]) > 10 for lines in said)


def test_threads_of_one_process_that_share_a_context_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    told: list[str] = []

    def ask() -> None:
        for number in range(40):
            told.append(questions.ask(context, f"Question {number}?", run=run_id)["messageId"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(told) == 160
    assert {entry["messageId"] for entry in document(root, run_id)["messages"]} == set(told)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_was_forked_after_a_change_can_change_the_run_too(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    questions.ask(context, "From the parent?", run=run_id)
    pid = os.fork()
    if pid == 0:
        try:
            questions.ask(context, "From the child?", run=run_id)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    questions.ask(context, "From the parent again?", run=run_id)
    texts = [question.text for question in truth(root, run_id).pending]
    assert texts == ["From the parent?", "From the child?", "From the parent again?"]

"""Ours and a double of the TypeScript server on the same run: whatever either of them was told is safe is there in the
end, links stay links, and neither ever reads half a document because of us. The double is ours, and shows what the
server is known to do."""

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.command import Settle
from subagent_cli.core.errors import InvalidInput, Refused
from subagent_cli.services import clean, links, listing, outcomes, questions, runs
from subagent_cli.services.context import Context
from subagent_cli.services.sweep import sweep
from subagent_cli.services.waiting import for_answer
from subagent_cli.store.clock import Clock
from tests.compat.server import Server
from tests.store.world import open_at, shows_the_truth, truth

MAKERS = ["linked", "adopted"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def shared_run(root: Path, maker: str, server: Server) -> str:
    """A run that both of us know: made here and linked, or made by the server."""
    context = open_at(root)
    if maker == "linked":
        made: str = runs.create(context, "worker", "do it", link=True)["runId"]
        return made
    run_id: str = server.call("run_agent", agentName="worker", input="do it", cwd=str(root.parent))["runId"]
    return run_id


def settle(root: Path, run_id: str) -> None:
    open_at(root).runs.change(run_id, Settle(), Clock().now)


def names(root: Path, run_id: str) -> set[str]:
    return {path.name.removeprefix(run_id) for path in root.iterdir() if path.name.startswith(run_id)}


def all_there(root: Path, run_id: str, told: dict[str, str]) -> None:
    """Every acknowledged question is in the truth and in the document, each with its own text."""
    found = {question.id: question.text for question in truth(root, run_id).questions.values()}
    assert found == told
    document = json.loads((root / f"{run_id}.meta.json").read_bytes())
    assert {entry["messageId"]: entry["questionContent"] for entry in document["messages"]} == told


def interleave(root: Path, run_id: str, server: Server, each: int) -> tuple[dict[str, str], list[str]]:
    """Both sides ask as fast as they can; what each was told, and what went wrong for the server."""
    texts = [f"theirs {number} " + "x" * (number * 37 % 200) for number in range(each)]
    server.send([("ask_parent", {"runId": run_id, "question": text}) for text in texts])
    told: dict[str, str] = {}
    context = open_at(root)
    for number in range(each):
        text = f"ours {number} " + "y" * (number * 53 % 200)
        told[questions.ask(context, text, run=run_id)["messageId"]] = text
    answers = server.collect()
    errors = [answer["error"] for answer in answers if not answer["ok"]]
    for text, answer in zip(texts, answers, strict=True):
        if answer["ok"]:
            told[answer["result"]["messageId"]] = text
    return told, errors


def nothing_is_lost(root: Path, maker: str, each: int) -> None:
    """One run on which both sides ask, each so many times."""
    root.mkdir(exist_ok=True)
    with Server(root) as server:
        run_id = shared_run(root, maker, server)
        told, errors = interleave(root, run_id, server, each)
    settle(root, run_id)
    # Replacing never shows half a document, so every ask of the server's goes through.
    assert errors == []
    assert len(told) == 2 * each
    all_there(root, run_id, told)
    assert shows_the_truth(root, run_id)
    linked = root / f"{run_id}.meta.json" if maker == "linked" else root / run_id / ".meta.json"
    assert linked.is_symlink()
    assert names(root, run_id) == {"", ".meta.json", ".log", ".prompt.md"}


@pytest.mark.case("T-64", "T-65", "X29")
@pytest.mark.parametrize("maker", MAKERS)
def test_asks_of_both_sides_at_once_are_all_kept(root: Path, node: Callable[[str], list[str]], maker: str) -> None:
    for _ in range(3):
        nothing_is_lost(root, maker, 200)


@pytest.mark.case("T-64", "T-61")
@pytest.mark.parametrize("maker", MAKERS)
def test_answers_of_both_sides_at_once_are_all_kept(root: Path, node: Callable[[str], list[str]], maker: str) -> None:
    root.mkdir()
    with Server(root) as server:
        run_id = shared_run(root, maker, server)
        context = open_at(root)
        asked = [questions.ask(context, f"{number}?", run=run_id)["messageId"] for number in range(100)]
        theirs, ours = asked[::2], asked[1::2]
        server.send(
            [("reply_subagent", {"runId": run_id, "messageId": each, "answer": f"theirs {each}"}) for each in theirs]
        )
        for each in ours:
            questions.reply(context, each, f"ours {each}")
        answers = server.collect()
    settle(root, run_id)
    wanted = {each: f"ours {each}" for each in ours}
    wanted |= {each: f"theirs {each}" for each, told in zip(theirs, answers, strict=True) if told["ok"]}
    assert len(wanted) == 100
    found = truth(root, run_id)
    assert {question.id: question.answer for question in found.questions.values()} == wanted
    document = json.loads((root / f"{run_id}.meta.json").read_bytes())
    assert {entry["messageId"]: entry["answerContent"] for entry in document["messages"]} == wanted


@pytest.fixture
def server(root: Path, node: Callable[[str], list[str]]) -> Any:
    root.mkdir()
    with Server(root) as server:
        yield server


@pytest.fixture
def context(root: Path) -> Context:
    return open_at(root)


@pytest.mark.case("X3", "T-70")
def test_the_server_reads_and_writes_a_linked_run(root: Path, server: Server, context: Context) -> None:
    run_id = shared_run(root, "linked", server)
    assert "Status: pending" in server.call("check_subagent_status", runId=run_id)["text"]
    asked = server.call("ask_parent", runId=run_id, question="Which?")["messageId"]
    assert [item["message_id"] for item in questions.pending(context)[0]] == [asked]
    questions.reply(context, asked, "This.")
    found = server.call("check_message_status", runId=run_id, messageId=asked)
    assert found["answerContent"] == "This."
    assert questions.check(context, asked, run=run_id)["state"] == "RETRIEVED"
    for suffix, inside in ((".meta.json", ".meta.json"), (".log", "log"), (".prompt.md", "prompt.md")):
        assert os.readlink(root / f"{run_id}{suffix}") == f"{run_id}/{inside}"


@pytest.mark.case("X3", "C1-01")
def test_a_run_of_the_server_is_shown_and_answered_and_adopted_at_the_first_change(
    root: Path, server: Server, context: Context
) -> None:
    run_id = shared_run(root, "adopted", server)
    asked = server.call("ask_parent", runId=run_id, question="Which?")["messageId"]
    before = {path.name for path in root.iterdir()}
    found = runs.status(context, run_id[:8], peek=True)
    assert (found["status"], found["logFile"]) == ("waiting_parent_reply", str(root / f"{run_id}.log"))
    assert questions.check(context, asked, run=run_id)["state"] == "PENDING"
    assert questions.check(context, asked)["runId"] == run_id
    assert [item["message_id"] for item in questions.pending(context, run_id)[0]] == [asked]
    assert {path.name for path in root.iterdir()} == before

    questions.reply(context, run_id, "This.")
    for inside, suffix in ((".meta.json", ".meta.json"), ("log", ".log"), ("prompt.md", ".prompt.md")):
        assert os.readlink(root / run_id / inside) == f"../{run_id}{suffix}"
        assert not (root / f"{run_id}{suffix}").is_symlink()
    assert server.call("check_message_status", runId=run_id, messageId=asked)["answerContent"] == "This."


@pytest.mark.case("X3")
def test_a_refused_change_does_not_adopt(root: Path, server: Server, context: Context) -> None:
    run_id = shared_run(root, "adopted", server)
    with pytest.raises(Exception, match="no question is waiting"):
        questions.reply(context, run_id, "This.")
    assert not (root / run_id).exists()


@pytest.mark.case("T-71", "T-74")
def test_our_change_is_seen_by_the_server_at_once_and_the_link_stays(
    root: Path, server: Server, context: Context
) -> None:
    run_id = shared_run(root, "linked", server)
    link = root / f"{run_id}.meta.json"
    twin = root / "twin.json"
    os.link(root / run_id / ".meta.json", twin)
    asked = questions.ask(context, "Which?", run=run_id)["messageId"]
    assert link.is_symlink()
    assert server.call("check_message_status", runId=run_id, messageId=asked)["questionContent"] == "Which?"
    assert asked not in twin.read_text()


@pytest.mark.case("T-72")
def test_a_link_to_nothing_is_no_run_and_nothing_is_made(root: Path, server: Server, context: Context) -> None:
    run_id = "0190a000-0000-4000-8000-0000000000aa"
    os.symlink("nowhere", root / f"{run_id}.meta.json")
    assert not context.runs.exists(run_id)
    assert server.call("check_subagent_status", runId=run_id)["status"] == "not_found"
    assert {path.name for path in root.iterdir()} == {f"{run_id}.meta.json"}


@pytest.mark.case("T-73")
def test_the_log_is_one_for_both_and_the_folder_itself_may_be_a_link(
    root: Path, server: Server, context: Context, tmp_path: Path
) -> None:
    run_id = shared_run(root, "linked", server)
    runs.update(context, run_id, "running", "Half way")
    (tmp_path / "elsewhere").symlink_to(root)
    with Server(tmp_path / "elsewhere") as other:
        other.call("update_subagent_status", runId=run_id, status="success", summary="Done")
    log = (root / run_id / "log").read_text()
    assert re.findall(r"Summary: (.*)", log) == ["Half way", "Done"]
    assert (root / f"{run_id}.log").is_symlink()
    assert outcomes.result(context, run_id)["result"] == "Done"


@pytest.mark.case("X3")
@pytest.mark.parametrize("finder", ["list", "sweep"])
def test_list_and_sweep_enter_runs_of_the_server_so_that_pending_sees_them(
    root: Path, server: Server, context: Context, finder: str
) -> None:
    run_id = shared_run(root, "adopted", server)
    asked = server.call("ask_parent", runId=run_id, question="Which?")["messageId"]
    assert questions.pending(context)[0] == []
    if finder == "list":
        assert [row["runId"] for row in listing.find(context)[0]] == [run_id]
    else:
        assert sweep(context)[0]["entered"] == [run_id]
    assert [item["message_id"] for item in questions.pending(context)[0]] == [asked]
    assert not (root / run_id).exists()


@pytest.mark.case("X3")
def test_a_run_of_the_server_that_is_over_leaves_the_index_and_is_cleaned_with_its_files(
    root: Path, server: Server, context: Context
) -> None:
    run_id = shared_run(root, "adopted", server)
    sweep(context)
    server.call("exit", runId=run_id, code=0)
    sweep(context)
    assert context.runs.index.active() == []
    assert clean.delete(context, clean.plan(context, [run_id]))["deleted"] == [run_id]
    assert names(root, run_id) == set()
    assert not context.runs.exists(run_id)


@pytest.mark.case("T-71")
def test_a_link_that_a_program_replaced_by_a_file_is_taken_over_and_put_back(
    root: Path, server: Server, context: Context
) -> None:
    run_id = shared_run(root, "linked", server)
    link = root / f"{run_id}.meta.json"
    saved = root / "saved"
    saved.write_bytes(link.read_bytes())
    saved.replace(link)
    asked = server.call("ask_parent", runId=run_id, question="Which?")["messageId"]
    assert [item["message_id"] for item in questions.pending(context, run_id)[0]] == [asked]
    questions.reply(context, run_id, "This.", message=asked)
    assert os.readlink(link) == f"{run_id}/.meta.json"
    assert server.call("check_message_status", runId=run_id, messageId=asked)["answerContent"] == "This."


@pytest.mark.case("T-64")
@pytest.mark.parametrize("maker", MAKERS)
def test_a_write_into_a_document_that_was_replaced_is_seen_by_readers_and_taken_over_once(
    root: Path, server: Server, context: Context, maker: str
) -> None:
    run_id = shared_run(root, maker, server)
    questions.ask(context, "First?", run=run_id)
    # As the server does it: the file is opened, and written when we have put another one in its place.
    with open(root / f"{run_id}.meta.json", "r+b") as opened:
        document = json.loads(opened.read())
        questions.ask(context, "Second?", run=run_id)
        late = {**document["messages"][0], "messageId": "0190a000-0000-4000-8000-0000000000aa"}
        document["messages"].append({**late, "questionContent": "Late?"})
        opened.seek(0)
        opened.write(json.dumps(document, indent=2).encode())
    texts = ["First?", "Second?", "Late?"]
    assert [question.text for question in truth(root, run_id).questions.values()] == texts
    settle(root, run_id)
    size = (root / run_id / "journal.jsonl").stat().st_size
    settle(root, run_id)
    assert (root / run_id / "journal.jsonl").stat().st_size == size
    assert [
        entry["questionContent"] for entry in json.loads((root / f"{run_id}.meta.json").read_bytes())["messages"]
    ] == texts


@pytest.mark.parametrize("maker", MAKERS)
def test_who_waits_is_woken_by_the_server(root: Path, server: Server, context: Context, maker: str) -> None:
    run_id = shared_run(root, maker, server)
    asked = questions.ask(context, "Which?", run=run_id)["messageId"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(for_answer, open_at(root), asked, run=run_id, timeout=30_000)
        server.call("reply_subagent", runId=run_id, messageId=asked, answer="This.")
        assert waiting.result(30)["answer"] == "This."


@pytest.mark.case("T-80")
def test_a_long_question_and_many_messages_of_the_server_are_read_and_answered(
    root: Path, server: Server, context: Context
) -> None:
    run_id = shared_run(root, "adopted", server)
    path = root / f"{run_id}.meta.json"
    old = {"questionTimestamp": "2026-01-02T03:04:05.678Z", "messageStatus": "acknowledged_by_subagent"}
    old |= {"answerContent": "a", "answerTimestamp": "2026-01-02T03:04:05.678Z", "questionContent": "q"}
    ids = [f"0190a000-0000-4000-8000-{number:012x}" for number in range(10_000)]
    messages = [{"messageId": each, **old} for each in ids]
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "messages": messages}))
    asked = server.call("ask_parent", runId=run_id, question="x" * 5_000_000)["messageId"]
    questions.reply(context, run_id, "This.")
    found = truth(root, run_id)
    assert len(found.questions) == 10_001
    assert found.questions[asked].answer == "This."


@pytest.mark.case("X3")
def test_links_are_made_once_and_taken_away_again(root: Path, server: Server, context: Context) -> None:
    run_id = shared_run(root, "linked", server)
    assert links.link(context, [run_id]) == [{"runId": run_id, "links": []}]
    assert len(links.link(context, [], active=True, remove=True)[0]["links"]) == 3
    assert names(root, run_id) == {""}
    (root / f"{run_id}.log").write_text("another program's")
    with pytest.raises(Refused, match="something else stands"):
        links.link(context, [run_id])
    assert names(root, run_id) == {"", ".log"}
    with pytest.raises(InvalidInput):
        links.link(context, [])


@pytest.mark.case("C1-01")
def test_the_folder_that_the_server_chooses_works_as_a_runs_directory(
    tmp_path: Path, node: Callable[[str], list[str]]
) -> None:
    with Server(env={**os.environ, "HOME": str(tmp_path)}) as server:
        root = tmp_path / ".config" / "mcp-server-subagent" / "logs"
        assert server.log_directory == str(root)
        run_id = shared_run(root, "adopted", server)
        context = open_at(root)
        assert runs.status(context, "@last")["runId"] == run_id
        asked = questions.ask(context, "Which?", run=run_id)["messageId"]
        assert server.call("check_message_status", runId=run_id, messageId=asked)["questionContent"] == "Which?"

"""Deliveries: who may send to whom, what the target is told, whom it starts and how often, and who is told of a reply.
Agents here are real processes with real keepers wherever it matters whether they run."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Refused
from subagent_cli.core.grant import ADMINISTER, READ, SEND
from subagent_cli.core.ids import short
from subagent_cli.services import (
    cancellation,
    deliveries,
    events,
    grants,
    inboxes,
    launches,
    logs,
    messages,
    resumption,
    runs,
)
from subagent_cli.services.context import Context, Payload, open_context
from subagent_cli.services.launches import Request
from subagent_cli.services.starts import Start
from tests.cli.living import Gate, eventually, keeper_of, processes, program
from tests.command import PATIENCE
from tests.services.desk import document, journal, snapshot
from tests.services.test_grants import FORMS, agent, denied

NOBODY = "0190a000-0000-7000-8000-000000000000"
SECRET = "the word is swordfish"

AGENTS = """
[agents.talker]
command = ["./talk", "--session-id", "{session}"]
resume = ["./talk", "--resume", "{session}"]
session = "own"
"""
# Counts its calls, keeps what it was told, and then does what a test wants it to.
TALK = 'echo "$*" >> calls; number=$(wc -l < calls); cat > told-$number\n'
REPLIES = """
for id in $(subagent inbox --unreplied --json | tr , '\\n' | sed -n 's/.*"message_id":"\\([^"]*\\)".*/\\1/p'); do
    subagent message put --in-reply-to $id --text "Reply of attempt $number" > /dev/null
done
"""


def busy(runs_dir: Path) -> list[int]:
    """Processes that belong to these runs, and those that are about to start one of them."""
    mark, called = os.fsencode(runs_dir), list[int]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            called += [int(name)] if mark in Path(f"/proc/{name}/cmdline").read_bytes() else []
    return [*called, *processes(runs_dir)]


def quiet(desk: Context) -> None:
    """Waits until nobody is at work and nobody will start anything. It looks twice, since one hands over to another."""
    root = Path(desk.runs.layout.root)
    eventually(lambda: not busy(root) and not busy(root), PATIENCE)


def end_all(runs_dir: Path) -> None:
    """Kills every process that has to do with these runs, and those that would start more of them."""

    def ended() -> bool:
        for pid in busy(runs_dir):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not busy(runs_dir) and not busy(runs_dir)

    eventually(ended, PATIENCE)


@pytest.fixture
def house(runs_dir: Path, tmp_path: Path) -> Iterator[Context]:
    """The operator, whose agents can all be resumed, and are started for a message twice at most."""
    (tmp_path / "agents.toml").write_text(AGENTS)
    yield open_context({"runs_dir": str(runs_dir), "max_wakes": "2", "stop_grace": "300ms"})
    end_all(runs_dir)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.close()


def begun(by: Context, script: str = "", **more: Any) -> str:
    """A run of an agent that does this whenever it is started."""
    program(Path("talk"), TALK + script)
    run_id: str = launches.run(by, Request("Do it", agent="talker", **more))["runId"]
    return run_id


def idle(by: Context, script: str = "", **more: Any) -> str:
    """A run of such an agent that has ended."""
    run_id = begun(by, script, **more)
    quiet(by)
    return run_id


def put(desk: Context, text: str = SECRET, in_reply_to: str | None = None) -> str:
    made: str = messages.put(desk, "plaintext", messages.as_content(text), in_reply_to=in_reply_to)["message_id"]
    return made


def send(desk: Context, target: str, text: str = SECRET) -> Payload:
    return deliveries.send(desk, target, schema="plaintext", content=messages.as_content(text))


def attempts(runs_dir: Path, run_id: str) -> int:
    return 1 + [event["type"] for event in journal(runs_dir, run_id)].count("resumed")


def delivered(runs_dir: Path, run_id: str) -> list[dict[str, Any]]:
    return [event for event in journal(runs_dir, run_id) if event["type"] == "delivered"]


def replies(desk: Context, message_id: str) -> list[str]:
    return [found["content"]["text"] for found in messages.listed(desk, in_reply_to=message_id)[0]]


@pytest.mark.case("C3-33", "C3-16")
@pytest.mark.parametrize("who", ["stranger", "itself", "child", "reader", "administrator", "recipient", "former"])
def test_without_the_right_to_send_nothing_is_delivered(desk: Context, runs_dir: Path, who: str) -> None:
    target, other = agent(desk), agent(desk)
    caller = {"itself": target, "child": agent(target.desk)}.get(who, other)
    right = {"reader": READ, "administrator": ADMINISTER, "former": SEND}.get(who)
    if right:
        grants.grant(desk, target.id, caller.id, right)
    if who == "former":
        grants.revoke(desk, target.id, caller.id, SEND)
    if who == "recipient":
        send(desk, caller.id)
    stored = put(caller.desk)
    for words in ({"message": stored}, {"schema": "plaintext", "content": messages.as_content(SECRET)}):
        for run_id, form in ((target.id, "as it is"), (target.id, "upper case"), (NOBODY, "without dashes")):
            told = denied(runs_dir, deliveries.send, caller.desk, FORMS[form](run_id), **words)
            assert told == f"No permission to send messages to agent {run_id}"


@pytest.mark.case("C3-32", "C3-34", "C3-35", "C3-41")
@pytest.mark.parametrize("by", ["operator", "parent", "granted"])
@pytest.mark.parametrize("way", ["stored", "in one step"])
def test_a_delivery_is_an_event_that_says_everything_but_the_content(
    desk: Context, runs_dir: Path, by: str, way: str
) -> None:
    parent, other = agent(desk), agent(desk)
    target = agent(parent.desk)
    grants.grant(parent.desk, target.id, other.id, SEND)
    sender = {"operator": desk, "parent": parent.desk, "granted": other.desk}[by]
    done = deliveries.send(sender, target.id, put(sender)) if way == "stored" else send(sender, target.id)
    message_id = done["message_id"]
    assert (done["status"], done["agent_id"], done["attempt"]) == ("delivered", target.id, None)
    stored = messages.show(desk, message_id)
    name = sender.caller.run_id or "the operator"
    text = (
        f"Message received\nID: {message_id}\nFrom: {name}\nRead: subagent message show {message_id}\n"
        f'Reply: subagent message put --in-reply-to {message_id} --text "REPLY"'
        " (or --schema SCHEMA --content JSON; subagent schemas lists them)\n"
    )
    [event] = [event for event in events.read(target.desk, target.id)[0] if event["type"] == "delivered"]
    assert (event["messageId"], event["text"], event["sha256"]) == (message_id, text, stored["sha256"])
    assert event["sender"] == (sender.caller.run_id or "operator")
    # The content is in the message and nowhere else.
    held = [name for name, data in snapshot(runs_dir).items() if isinstance(data, bytes) and SECRET.encode() in data]
    assert held == [f".messages/{message_id}.json"]
    assert messages.show(target.desk, message_id) == stored
    [item] = inboxes.listed(target.desk)
    assert (item["message_id"], item["wants_reply"], item["replied"]) == (message_id, True, False)


@pytest.mark.case("C3-36", "C3-34")
@pytest.mark.parametrize("status", ["running", "success", "error", None])
def test_a_run_that_others_start_is_only_delivered_to(desk: Context, runs_dir: Path, status: str | None) -> None:
    target = agent(desk)
    if status:
        runs.update(target.desk, target.id, status)
    shown = document(runs_dir, target.id)
    done = send(desk, target.id)
    assert (done["status"], done["attempt"], done["warnings"]) == ("delivered", None, [])
    assert document(runs_dir, target.id) == shown
    if status in ("success", "error"):
        with pytest.raises(Refused) as caught:
            deliveries.wake(desk, target.id)
        assert caught.value.code == "not_launched"
    else:
        assert deliveries.wake(desk, target.id)["attempt"] is None
    assert attempts(runs_dir, target.id) == 1


@pytest.mark.case("C3-38")
@pytest.mark.parametrize(
    ("status", "is_told"), [(None, True), ("running", False), ("success", True), ("error", True)], ids=str
)
@pytest.mark.parametrize("by", ["operator", "recipient"])
def test_a_reply_is_told_to_whom_it_answers_if_that_one_is_idle(
    desk: Context, runs_dir: Path, status: str | None, is_told: bool, by: str
) -> None:
    author = agent(desk)
    target = agent(author.desk)
    question = put(author.desk)
    deliveries.send(author.desk, target.id, question)
    if status:
        runs.update(author.desk, author.id, status)
    reply = put(desk if by == "operator" else target.desk, "Done.", question)
    told = [(event["text"], event["sender"], event["notice"]) for event in delivered(runs_dir, author.id)]
    text = f"Reply received\nYour message: {question}\nReply ID: {reply}\nRead: subagent message show {reply}\n"
    assert told == ([(text, target.id if by == "recipient" else "operator", True)] if is_told else [])
    assert replies(author.desk, question) == ["Done."]
    assert inboxes.listed(author.desk, unreplied=True) == []
    [item] = inboxes.listed(target.desk)
    assert item["replied"] is (by == "recipient")


def test_of_ones_own_reply_one_is_not_told(desk: Context, runs_dir: Path) -> None:
    author = agent(desk)
    before = journal(runs_dir, author.id)
    put(author.desk, "And this.", put(author.desk))
    put(desk, "Yes.", put(desk))
    assert journal(runs_dir, author.id) == before


def test_a_reply_is_there_though_its_author_cannot_be_told(desk: Context, runs_dir: Path) -> None:
    author = agent(desk)
    question = put(author.desk)
    (runs_dir / author.id / "journal.jsonl").unlink()
    (runs_dir / author.id / "journal.jsonl").mkdir()
    done = messages.put(desk, "plaintext", messages.as_content("Done."), in_reply_to=question)
    [warning] = done["warnings"]
    assert warning.startswith("the author of the message could not be told: ")
    assert messages.listed(desk, in_reply_to=question)[0][0]["id"] == done["message_id"]


@pytest.mark.case("C3-36", "C3-35", "C3-03")
def test_an_idle_agent_is_started_once_with_its_memory_and_the_notice_as_its_prompt(
    house: Context, runs_dir: Path
) -> None:
    target = idle(house, REPLIES)
    before = runs.status(house, target)
    done = send(house, target)
    assert (done["status"], done["attempt"]) == ("delivered", 2)
    quiet(house)
    session = house.runs.spec(target)["sessionId"]
    assert Path("calls").read_text().splitlines() == [f"--session-id {session}", f"--resume {session}"]
    told = Path("told-2").read_text()
    [event] = delivered(runs_dir, target)
    assert told.endswith(f"\n\n{event['text']}")
    assert SECRET not in told
    found = runs.status(house, target)
    assert (found["attempt"], found["state"], found["alive"]) == (2, "success", False)
    assert found["lastActiveAt"] > before["lastActiveAt"]
    assert [event["type"] for event in journal(runs_dir, target)][-3:] == ["delivered", "resumed", "exited"]
    assert replies(house, done["message_id"]) == ["Reply of attempt 2"]


@pytest.mark.case("C3-36", "C3-37", "C3-39")
def test_a_running_agent_is_not_started_twice_and_hears_of_all_that_came_when_it_ends(
    house: Context, runs_dir: Path, gate: Gate
) -> None:
    target = begun(
        house, f"[ $number = 1 ] && {{ echo here > {gate.said}; read word < {gate.word}; exit 3; }}{REPLIES}"
    )
    gate.heard()
    sent = [send(house, target) for _ in range(3)]
    assert [done["attempt"] for done in sent] == [None] * 3
    assert deliveries.wake(house, target)["attempt"] is None
    assert attempts(runs_dir, target) == 1
    gate.open()
    quiet(house)
    assert attempts(runs_dir, target) == 2
    told = Path("told-2").read_text()
    places = [told.index(event["text"]) for event in delivered(runs_dir, target)]
    assert len(places) == 3
    assert places == sorted(places)
    for done in sent:
        assert replies(house, done["message_id"]) == ["Reply of attempt 2"]
    assert inboxes.listed(house, target, unreplied=True) == []


@pytest.mark.case("C3-36")
def test_of_many_that_send_at_once_one_starts_the_agent(house: Context, runs_dir: Path, gate: Gate) -> None:
    target = begun(house, f"[ $number = 1 ] || {{ echo here > {gate.said}; read word < {gate.word}; }}{REPLIES}")
    quiet(house)
    barrier = threading.Barrier(4)

    def sends(_number: int) -> int | None:
        mine = open_context({"runs_dir": str(runs_dir), "max_wakes": "2"})
        barrier.wait(PATIENCE)
        attempt: int | None = send(mine, target)["attempt"]
        return attempt

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(sends, range(4)), key=str) == [2, None, None, None]
    assert gate.heard() == "here"
    assert (attempts(runs_dir, target), len(delivered(runs_dir, target))) == (2, 4)
    gate.open()
    quiet(house)
    # What came when the attempt had begun is in the inbox, and the agent has looked there.
    assert attempts(runs_dir, target) == 2
    assert all(item["replied"] for item in inboxes.listed(house, target))


@pytest.mark.case("C3-39")
@pytest.mark.parametrize(("replies_at", "tries"), [(2, 2), (3, 3), (9, 3)], ids=["at once", "at second", "never"])
def test_an_agent_is_started_until_it_has_replied_or_was_started_often_enough(
    house: Context, runs_dir: Path, replies_at: int, tries: int
) -> None:
    target = idle(house, f"[ $number -ge {replies_at} ] || exit 0{REPLIES}")
    message_id = send(house, target)["message_id"]
    quiet(house)
    assert attempts(runs_dir, target) == tries
    [item] = inboxes.listed(house, target)
    assert (item["replied"], item["told"]) == (replies_at <= 3, tries - 1)
    log = [line["text"] for line in logs.tail(house, target)]
    in_vain = f"run {short(target)} was started 2 times for its 1 unreplied messages in vain"
    if replies_at <= 3:
        assert replies(house, message_id) == [f"Reply of attempt {replies_at}"]
        assert not any("Not started again" in line for line in log)
        assert deliveries.wake(house, target) == {"runId": target, "attempt": None, "unreplied": []}
        return
    assert f"Not started again: {in_vain}" in log
    with pytest.raises(Refused) as caught:
        deliveries.wake(house, target)
    assert (caught.value.code, caught.value.message) == ("woken_in_vain", in_vain)
    # A new message is a new reason; the old one is not told of again.
    send(house, target, "Another.")
    quiet(house)
    assert attempts(runs_dir, target) == 5
    assert message_id not in Path("told-4").read_text()
    assert [item["told"] for item in inboxes.listed(house, target)] == [2, 2]


@pytest.mark.case("C3-39")
def test_whoever_replies_while_it_runs_is_not_started_again(house: Context, runs_dir: Path, gate: Gate) -> None:
    target = begun(house, f"echo here > {gate.said}; read word < {gate.word}{REPLIES}")
    gate.heard()
    message_id = send(house, target)["message_id"]
    gate.open()
    quiet(house)
    assert attempts(runs_dir, target) == 1
    assert replies(house, message_id) == ["Reply of attempt 1"]


@pytest.mark.case("C3-39", "X10")
@pytest.mark.parametrize("end", ["cancelled", "timed_out", "error", "submitted"])
def test_a_run_that_somebody_or_its_time_has_ended_is_not_started_again_by_its_keeper(
    house: Context, runs_dir: Path, gate: Gate, end: str
) -> None:
    ways = {"error": "exit 3", "submitted": "subagent submit result That.; exit"}
    way = ways.get(end, f"echo here > {gate.said}; exec sleep 600")
    target = idle(house, f"[ $number = 1 ] && exit; [ $number = 2 ] && {{ {way}; }}{REPLIES}")
    message_id = put(house)
    inboxes.deliver(house, target, messages.show(house, message_id))
    resumption.resume(house, target, "Go on.", start=Start(timeout=300 if end == "timed_out" else None))
    if end == "cancelled":
        gate.heard()
        cancellation.cancel(house, [target])
    quiet(house)
    if end in ways:
        assert (attempts(runs_dir, target), replies(house, message_id)) == (3, ["Reply of attempt 3"])
        return
    assert (attempts(runs_dir, target), replies(house, message_id)) == (2, [])
    # Whoever wants it to go on says so.
    assert deliveries.wake(house, target)["attempt"] == 3
    quiet(house)
    assert replies(house, message_id) == ["Reply of attempt 3"]
    assert runs.status(house, target)["attempts"][1]["state"] == end


@pytest.mark.case("C3-05")
def test_after_a_crash_an_agent_is_started_for_what_is_left_unanswered(
    house: Context, runs_dir: Path, gate: Gate
) -> None:
    target = begun(house, f"[ $number = 1 ] && {{ echo $$ > {gate.said}; exec sleep 600; }}{REPLIES}")
    child = int(gate.heard())
    message_id = send(house, target)["message_id"]
    for pid in (keeper_of(runs_dir, target), child):
        os.kill(pid, signal.SIGKILL)
    quiet(house)
    assert runs.status(house, target)["state"] == "lost"
    assert deliveries.wake(house, target)["attempt"] == 2
    quiet(house)
    assert replies(house, message_id) == ["Reply of attempt 2"]


@pytest.mark.case("C3-34")
def test_what_cannot_be_started_is_delivered_all_the_same(house: Context, runs_dir: Path) -> None:
    target = idle(house)
    Path("talk").unlink()
    done = send(house, target)
    assert (done["status"], done["attempt"], len(delivered(runs_dir, target))) == ("delivered", None, 1)
    [warning] = done["warnings"]
    assert warning.startswith("it is delivered, but its agent could not be started: there is no program")
    program(Path("talk"), TALK + REPLIES)
    assert deliveries.wake(house, target)["attempt"] == 2
    quiet(house)
    assert replies(house, done["message_id"]) == ["Reply of attempt 2"]


@pytest.mark.case("C3-38")
def test_an_idle_author_is_not_started_for_a_reply_but_told_of_it_at_its_next_attempt(
    house: Context, runs_dir: Path
) -> None:
    author = idle(house, f"[ $number = 1 ] && subagent message put --text '{SECRET}' > asked")
    question = Path("asked").read_text().strip()
    given = [put(house, text, question) for text in ("One.", "Two.")]
    assert deliveries.wake(house, author)["attempt"] is None
    quiet(house)
    assert attempts(runs_dir, author) == 1
    for number in (2, 3):
        resumption.resume(house, author, "Go on.")
        quiet(house)
        told = Path(f"told-{number}").read_text()
        for reply in given:
            line = f"Reply received\nYour message: {question}\nReply ID: {reply}\n"
            assert told.count(line) == (1 if number == 2 else 0)


@pytest.mark.case("C3-36", "C3-39")
def test_whoever_is_sent_an_answer_to_its_reply_is_to_answer_that_too(house: Context, runs_dir: Path) -> None:
    """A conversation has more than two turns, and each message names the one before."""
    target = idle(house, REPLIES)
    first = send(house, target)["message_id"]
    quiet(house)
    [reply] = messages.listed(house, in_reply_to=first)[0]
    more = deliveries.send(
        house, target, schema="plaintext", content=messages.as_content("And?"), in_reply_to=reply["id"]
    )
    quiet(house)
    assert more["attempt"] == 3
    assert replies(house, more["message_id"]) == ["Reply of attempt 3"]

"""Typed messages: checked before they are stored, never changed, read by whoever may, not there for anybody else."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Damaged, InvalidInput, NotFound, Stalled, SubagentError
from subagent_cli.core.grant import ADMINISTER, READ, SEND
from subagent_cli.core.ids import is_uuid, short
from subagent_cli.services import deliveries, grants, messages, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.settings import Caller
from subagent_cli.store.messages import sealed
from subagent_cli.store.watch import Watch
from tests.cli.living import eventually
from tests.command import Command
from tests.services.desk import StillClock, refused, snapshot
from tests.services.test_grants import FORMS, agent

NOBODY = "0190a000-0000-7000-8000-000000000000"
PATIENCE = 20.0

Waits = list[float]

CRITIQUE = {"issues": [{"where": "parser.py:7", "what": "off by one"}], "notes_md": "# Notes"}
GRADE = {"recall": 0.25, "precision": 0.5, "notes_md": "fair"}


def put(desk: Context, text: str = "Look at this", in_reply_to: str | None = None) -> str:
    """A new plaintext message, a moment later than whatever was before it."""
    assert isinstance(desk.clock, StillClock)
    desk.clock.wait()
    content = json.dumps({"text": text})
    made: str = messages.put(desk, "plaintext", content, in_reply_to=in_reply_to)["message_id"]
    return made


def listed(desk: Context, **options: Any) -> list[str]:
    found, faults = messages.listed(desk, **options)
    assert faults == []
    return [message["id"] for message in found]


def files(runs_dir: Path) -> list[str]:
    """The ids of the messages that lie on disk."""
    folder = runs_dir / ".messages"
    return sorted(path.stem for path in folder.iterdir()) if folder.exists() else []


def told(call: Callable[..., object], *words: object, **options: Any) -> tuple[Any, ...]:
    """All that an error says."""
    with pytest.raises(SubagentError) as caught:
        call(*words, **options)
    error = caught.value
    return type(error), error.code, error.message, error.hint, error.candidates, error.next


@pytest.mark.case("C3-21", "C3-26")
def test_a_message_is_stored_as_it_is_shown(desk: Context, runs_dir: Path) -> None:
    author = agent(desk)
    original = put(desk)
    message_id = put(author.desk, "žluť 🦊\n", None)
    found = messages.show(desk, message_id)
    assert found == json.loads((runs_dir / ".messages" / f"{message_id}.json").read_bytes())
    assert (found["id"], found["schema_type"], found["content"]) == (message_id, "plaintext", {"text": "žluť 🦊\n"})
    assert (found["created_by_agent_id"], found["in_reply_to"]) == (author.id, None)
    assert found["created_at"] == desk.clock.now().iso
    assert is_uuid(message_id)
    assert message_id not in (original, put(author.desk, "žluť 🦊\n"))
    assert messages.show(desk, original)["created_by_agent_id"] is None
    # To name a run is not to be its worker.
    assert messages.show(desk, put(desk._replace(caller=Caller(author.id))))["created_by_agent_id"] is None


BAD = [
    ("memo", "{}", "there is no schema 'memo'"),
    ("plaintext", "Look at this", "the content is not valid JSON"),
    ("plaintext", "null", "content: "),
    ("plaintext", "{}", "text: field required"),
    ("plaintext", '{"text": 7}', "text: "),
    ("plaintext", '{"text": "x", "more": 7}', "more: "),
    ("structured_critique", '{"issues": [{}, "x"], "notes_md": ""}', "issues.1: "),
    ("structured_critique", '{"issues": []}', "notes_md: field required"),
    ("structured_grade", '{"recall": "most", "precision": 1}', "recall: "),
    ("structured_grade", '{"recall": 1, "precision": 1e999}', "precision: "),
]


@pytest.mark.case("C3-22", "C3-23")
@pytest.mark.parametrize(("schema", "content", "says"), BAD, ids=[f"{schema} {text[:40]}" for schema, text, _ in BAD])
def test_what_is_not_of_its_schema_is_refused_by_name_and_not_stored(
    desk: Context, runs_dir: Path, schema: str, content: str, says: str
) -> None:
    code = "unknown_schema" if says.startswith("there is no schema") else "invalid_content"
    target = agent(desk)
    for desk_of in (desk, target.desk):
        with refused(runs_dir, InvalidInput, code):
            messages.put(desk_of, schema, content)
    with refused(runs_dir, InvalidInput, code):
        deliveries.send(desk, target.id, schema=schema, content=content)
    _, _, message, hint, candidates, _ = told(messages.put, desk, schema, content)
    assert message.startswith(says)
    assert candidates == (messages.NAMES if code == "unknown_schema" else ())
    if not says.startswith("the"):
        assert hint == f"subagent schemas {schema} shows its form"


GOOD: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("plaintext", {"text": ""}, {"text": ""}),
    ("structured_critique", CRITIQUE, CRITIQUE),
    ("structured_grade", {"recall": 1.0, "precision": "0.5"}, {"recall": 1, "precision": 0.5, "notes_md": ""}),
    ("structured_grade", {**GRADE, "f1": 1 / 3}, {**GRADE, "f1": 1 / 3}),
]


@pytest.mark.case("C3-22", "C3-24")
@pytest.mark.parametrize(("schema", "given", "kept"), GOOD, ids=[f"{schema} {given}" for schema, given, _ in GOOD])
def test_what_is_stored_is_the_validated_form(
    desk: Context, runs_dir: Path, schema: str, given: dict[str, Any], kept: dict[str, Any]
) -> None:
    reader = agent(desk)
    message_id = messages.put(desk, schema, json.dumps(given))["message_id"]
    assert messages.show(desk, message_id)["content"] == kept
    assert json.loads((runs_dir / ".messages" / f"{message_id}.json").read_bytes())["content"] == kept
    deliveries.send(desk, reader.id, message_id)
    assert messages.show(reader.desk, message_id)["content"] == kept


@pytest.mark.case("C3-25", "X14")
def test_nothing_that_happens_later_changes_a_message(desk: Context, runs_dir: Path) -> None:
    author, target = agent(desk), agent(desk)
    first = put(author.desk)
    path = runs_dir / ".messages" / f"{first}.json"
    before, mode = path.read_bytes(), path.stat().st_mode & 0o777
    assert mode == 0o400
    deliveries.send(desk, target.id, first)
    put(target.desk, "Done.", first)
    messages.for_reply(author.desk, first)
    runs.update(desk, author.id, "success")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, mode)
    for run_id in (author.id, target.id):
        assert "messages" not in json.loads((runs_dir / run_id / ".meta.json").read_bytes())


@pytest.mark.case("C3-25", "X14")
def test_a_message_that_was_changed_with_a_hash_that_fits_is_not_what_was_sent(desk: Context, runs_dir: Path) -> None:
    author, target = agent(desk), agent(desk)
    message_id = put(author.desk, "Keep it.")
    deliveries.send(desk, target.id, message_id)
    found = messages.show(desk, message_id)
    del found["sha256"]
    path = runs_dir / ".messages" / f"{message_id}.json"
    path.chmod(0o600)
    path.write_bytes(json.dumps(sealed({**found, "content": {"text": "Drop it."}}), indent=2).encode())
    assert messages.show(desk, message_id)["content"] == {"text": "Drop it."}
    with refused(runs_dir, Damaged, "tampered"):
        messages.show(target.desk, message_id)
    with refused(runs_dir, Damaged, "tampered"):
        messages.put(target.desk, "plaintext", '{"text": "Done."}', in_reply_to=message_id)


@pytest.mark.case("C3-29")
def test_a_changed_message_is_not_there_for_whom_the_right_one_was_not(desk: Context, runs_dir: Path) -> None:
    author, stranger = agent(desk), agent(desk)
    message_id = put(author.desk, "Keep it.")
    path = runs_dir / ".messages" / f"{message_id}.json"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"Keep", b"Drop"))
    for word in (message_id, short(message_id)):
        assert told(messages.show, stranger.desk, word)[1] == "message_not_found"


@pytest.mark.case("C3-27")
@pytest.mark.parametrize("original", [NOBODY, NOBODY.replace("-", ""), "dead", "deadbeef"])
def test_a_reply_needs_an_original(desk: Context, runs_dir: Path, original: str) -> None:
    target = agent(desk)
    content = json.dumps({"text": "Yes."})
    with refused(runs_dir, NotFound, "message_not_found"):
        messages.put(desk, "plaintext", content, in_reply_to=original)
    with refused(runs_dir, NotFound, "message_not_found"):
        deliveries.send(desk, target.id, schema="plaintext", content=content, in_reply_to=original)
    for word in ("", "..", "../x", "nope", "x" * 50, "0" * 33):
        with refused(runs_dir, InvalidInput, "invalid_message_id"):
            messages.put(desk, "plaintext", content, in_reply_to=word)


@pytest.mark.case("C3-28")
def test_a_message_has_any_number_of_replies_in_any_order(desk: Context) -> None:
    first, second = put(desk, "first"), put(desk, "second")
    replies = [put(desk, f"reply {number}", (second, first)[number % 2]) for number in range(6)]
    assert listed(desk, in_reply_to=second) == replies[::2]
    assert listed(desk, in_reply_to=first) == replies[1::2]
    deeper = put(desk, "to a reply", replies[0])
    assert listed(desk, in_reply_to=replies[0]) == [deeper]
    assert listed(desk, in_reply_to=deeper) == []


ALLOWED = ("the author", "its parent", "who may read its transcript", "who it was sent to", "whose message it answers")
OTHERS = ("who may send to it", "who administers it", "its child", "who may read what it was sent to", "a stranger")


@pytest.mark.case("C3-29", "C3-30")
@pytest.mark.parametrize("who", ["the operator", *ALLOWED, *OTHERS])
def test_who_reads_a_message(desk: Context, runs_dir: Path, who: str) -> None:
    parent, target, asker, other = (agent(desk) for _ in range(4))
    author = agent(parent.desk)
    # Somebody who works is not told of a reply, and reads it all the same.
    runs.update(asker.desk, asker.id, "running")
    question = put(asker.desk)
    deliveries.send(desk, author.id, question)
    message_id = put(author.desk, "That.", question)
    deliveries.send(desk, target.id, message_id)
    right = {"who may read its transcript": READ, "who may send to it": SEND, "who administers it": ADMINISTER}.get(who)
    if right:
        grants.grant(parent.desk, author.id, other.id, right)
    if who == "who may read what it was sent to":
        grants.grant(desk, target.id, other.id, READ)
    family = {"the author": author, "its parent": parent, "its child": agent(author.desk)}
    meant = {**family, "who it was sent to": target, "whose message it answers": asker}.get(who, other)
    reader = desk if who == "the operator" else meant.desk
    before = snapshot(runs_dir, locks=False)
    assert (message_id in listed(reader)) is (who not in OTHERS)
    if who not in OTHERS:
        assert messages.show(reader, message_id)["content"] == {"text": "That."}
    else:
        assert told(messages.show, reader, message_id)[1] == "message_not_found"
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C3-29")
@pytest.mark.parametrize("end", ["revoked", "run out"])
def test_the_right_to_read_goes_with_the_grant_and_what_was_sent_stays(
    desk: Context, clock: StillClock, end: str
) -> None:
    author, reader = agent(desk), agent(desk)
    seen, sent = put(author.desk), put(author.desk)
    grants.grant(desk, author.id, reader.id, READ, lasts=None if end == "revoked" else 1000_000)
    deliveries.send(desk, reader.id, sent)
    assert listed(reader.desk) == [seen, sent]
    if end == "revoked":
        grants.revoke(desk, author.id, reader.id, READ)
    else:
        clock.wait(1000_001)
    assert listed(reader.desk) == [sent]


USES: dict[str, Callable[[Context, str, str], object]] = {
    "show": lambda desk, message, _: messages.show(desk, message),
    "list": lambda desk, message, _: messages.listed(desk, in_reply_to=message),
    "wait": lambda desk, message, _: messages.for_reply(desk, message, timeout=0),
    "put": lambda desk, message, _: messages.put(desk, "plaintext", '{"text": "x"}', in_reply_to=message),
    "send": lambda desk, message, target: deliveries.send(desk, target, message),
    "send a reply": lambda desk, message, target: deliveries.send(
        desk, target, schema="plaintext", content='{"text": "x"}', in_reply_to=message
    ),
}


@pytest.mark.case("C3-29")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("form", ["as it is", "upper case without dashes", "its end", "its beginning"])
def test_what_one_may_not_read_is_not_there(desk: Context, runs_dir: Path, use: str, form: str) -> None:
    author, stranger = agent(desk), agent(desk)
    child = agent(stranger.desk)
    message_id = put(author.desk)
    parts = {"its end": short, "its beginning": lambda message_id: message_id[:20]}
    typed = FORMS.get(form) or parts[form]
    before = snapshot(runs_dir, locks=False)
    hidden = told(USES[use], stranger.desk, typed(message_id), child.id)
    absent = told(USES[use], stranger.desk, typed(NOBODY), child.id)
    assert absent[:2] == (NotFound, "message_not_found")
    assert [str(word).replace(typed(message_id), typed(NOBODY)) for word in hidden] == list(map(str, absent))
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C3-47")
@pytest.mark.parametrize("form", FORMS)
def test_a_message_is_named_by_its_id_in_any_form(desk: Context, form: str) -> None:
    author = agent(desk)
    typed = FORMS[form]
    message_id = put(author.desk)
    for reader in (desk, author.desk):
        assert messages.show(reader, typed(message_id))["id"] == message_id
        reply = put(reader, "Yes.", typed(message_id))
        assert messages.show(reader, reply)["in_reply_to"] == message_id
        assert reply in listed(reader, in_reply_to=typed(message_id))


def test_a_part_of_an_id_names_a_message_if_it_names_one_that_may_be_read(desk: Context, runs_dir: Path) -> None:
    author, stranger = agent(desk), agent(desk)
    content = json.dumps({"text": "x"})
    # In one moment, so that their ids begin alike.
    [mine, yours] = [messages.put(who.desk, "plaintext", content)["message_id"] for who in (author, stranger)]
    assert mine[:13] == yours[:13]
    for part in (mine[:13], mine[:8], mine[:4].upper()):
        with refused(runs_dir, InvalidInput, "ambiguous"):
            messages.show(desk, part)
        assert sorted(told(messages.show, desk, part)[4]) == sorted([mine, yours])
        assert messages.show(author.desk, part)["id"] == mine
        assert messages.show(stranger.desk, part)["id"] == yours
    for message_id in (mine, yours):
        assert messages.show(desk, message_id[-8:])["id"] == message_id


@pytest.mark.parametrize("form", ["an escape", "a byte", "a word of the command line"])
def test_broken_characters_are_no_text(desk: Context, runs_dir: Path, form: str) -> None:
    broken = {"an escape": '{"text": "\\ud800"}', "a byte": '{"text": "\udcff"}'}
    before = snapshot(runs_dir)
    with pytest.raises(InvalidInput):
        messages.put(desk, "plaintext", broken.get(form) or messages.as_content("a\udcffb"))
    assert snapshot(runs_dir) == before


@pytest.mark.case("X24")
@pytest.mark.parametrize("letter", ["x", "ж", "🦊"])
def test_a_message_is_as_long_as_is_allowed_and_no_longer(runs_dir: Path, clock: StillClock, letter: str) -> None:
    desk = open_context({"runs_dir": str(runs_dir), "max_text": "1000"}, clock)
    target = agent(desk)
    count = 900 // len(letter.encode())
    for content in (json.dumps({"text": letter * count}, ensure_ascii=False), messages.as_content(letter * count)):
        assert messages.show(desk, messages.put(desk, "plaintext", content)["message_id"])
    long = json.dumps({"text": "x" * 989})
    assert len(long) == 1001
    with refused(runs_dir, InvalidInput, "too_long"):
        messages.put(desk, "plaintext", long)
    with refused(runs_dir, InvalidInput, "too_long"):
        deliveries.send(desk, target.id, schema="plaintext", content=long)
    messages.put(desk, "plaintext", long.replace("xx", "x", 1))


def test_a_key_makes_one_message_however_often_and_by_whom_it_is_used(desk: Context, runs_dir: Path) -> None:
    author, other = agent(desk), agent(desk)

    def keyed(desk: Context, text: str = "x", key: str = "k") -> str:
        made: str = messages.put(desk, "plaintext", json.dumps({"text": text}), key=key)["message_id"]
        return made

    first = keyed(author.desk)
    before = snapshot(runs_dir, locks=False)
    assert keyed(author.desk) == first
    # A number is the same number however it is written, and so is a text.
    assert messages.put(author.desk, "plaintext", '{ "text": "\\u0078" }', key="k")["message_id"] == first
    assert snapshot(runs_dir, locks=False) == before
    assert len({first, keyed(other.desk), keyed(desk), keyed(author.desk, key="l")}) == 4


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """How long each wait would have taken at most."""
    taken: Waits = []
    real = Watch.wait

    def wait(self: Watch, seconds: float | None) -> bool:
        taken.append(seconds or 0)
        return real(self, seconds)

    monkeypatch.setattr(Watch, "wait", wait)
    return taken


@pytest.mark.case("C3-40")
@pytest.mark.parametrize("schema", [None, "structured_grade"])
def test_a_wait_wakes_when_another_process_replies_and_does_not_look_before(
    cli: Command, runs_dir: Path, waits: Waits, schema: str | None
) -> None:
    original = cli("message", "put", "--text", "How good is it?").out.strip()
    with ThreadPoolExecutor(1) as pool:
        desk = open_context({"runs_dir": str(runs_dir)})
        waiter = pool.submit(messages.for_reply, desk, original, schema=schema, timeout=int(PATIENCE * 1000))
        eventually(lambda: waits)
        assert cli("message", "put", "--text", "No reply.").code == 0
        if schema:
            assert cli("message", "put", "--text", "Wait.", "--in-reply-to", original).code == 0
        words = ["--schema", "structured_grade", "--content", json.dumps(GRADE)]
        reply = cli("message", "put", "--in-reply-to", original, *words).out.strip()
        found, faults = waiter.result(PATIENCE)
    assert ([message["id"] for message in found], faults) == ([reply], [])
    assert found[0]["content"] == GRADE
    # Each message wakes it a few times, and nothing else does.
    assert len(waits) <= 15
    assert min(waits) > PATIENCE / 2


@pytest.mark.case("C3-40")
def test_a_reply_that_comes_between_look_and_wait_is_not_missed(
    desk: Context, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, real = put(desk), Watch.wait
    woken: list[bool] = []

    def wait(self: Watch, seconds: float | None) -> bool:
        if not woken:
            put(desk, "Yes.", original)
        woken.append(real(self, PATIENCE))
        return woken[-1]

    monkeypatch.setattr(Watch, "wait", wait)
    found, _ = messages.for_reply(open_context({"runs_dir": str(runs_dir)}), original)
    assert (found[0]["content"], woken) == ({"text": "Yes."}, [True])


@pytest.mark.case("C3-40", "C3-30")
def test_a_reply_that_one_may_read_only_since_it_was_sent_wakes_too(
    desk: Context, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two agents get the same message, and one of them lets the other have its answer."""
    first, second = agent(desk), agent(desk)
    original, real = put(desk), Watch.wait
    for receiver in (first, second):
        deliveries.send(desk, receiver.id, original)
    grants.grant(desk, first.id, second.id, SEND)
    replies: list[str] = []
    woken: list[bool] = []

    def wait(self: Watch, seconds: float | None) -> bool:
        if not replies:
            replies.append(put(second.desk, "Yes.", original))
        else:
            deliveries.send(second.desk, first.id, replies[0])
        woken.append(real(self, 1.0))
        return woken[-1]

    monkeypatch.setattr(Watch, "wait", wait)
    found, _ = messages.for_reply(first.desk, original)
    assert [message["id"] for message in found] == replies
    assert all(woken)


@pytest.mark.case("C3-40")
@pytest.mark.parametrize(("timeout", "seconds"), [(None, 300), (1_500, 1.5), (0, 0)])
def test_a_wait_without_a_reply_stalls_when_its_time_is_up(
    desk: Context,
    runs_dir: Path,
    clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
    timeout: int | None,
    seconds: float,
) -> None:
    original = put(desk)
    put(desk)
    taken: Waits = []

    def wait(_self: Watch, seconds: float | None) -> None:
        taken.append(seconds or 0)
        clock.wait(round(taken[-1] * 1000))

    monkeypatch.setattr(Watch, "wait", wait)
    with refused(runs_dir, Stalled, "no_reply"):
        messages.for_reply(desk, original, timeout=timeout)
    assert sum(taken) == seconds
    _, _, message, _, _, next_ = told(messages.for_reply, desk, original, timeout=timeout)
    assert (message, next_) == (
        "no reply came in time",
        desk.spelled("message", "list", "--in-reply-to", short(original), "--wait"),
    )
    reply = put(desk, "Late.", original)
    assert [found["id"] for found in messages.for_reply(desk, original, timeout=0)[0]] == [reply]

"""Forgeries: files that somebody has written, changed or spoilt, keys, names, programs and tokens that are not his own.

Nothing of that is a right, and nothing of it tells what a right would.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import pytest

from subagent_cli.core.errors import Damaged, Denied, SubagentError
from subagent_cli.core.grant import CAPABILITIES, READ, SEND
from subagent_cli.services import (
    cancellation,
    deliveries,
    events,
    grants,
    identity,
    launches,
    listing,
    logs,
    messages,
    questions,
    resumption,
    runs,
    spawns,
    trees,
    waiting,
)
from subagent_cli.services.context import Payload, open_context, token_hash
from subagent_cli.services.launches import Request
from subagent_cli.services.starts import Start
from tests.cli.living import all_ended, program
from tests.command import Command
from tests.services.hostile import SECRET, Act, Place, Places, changes, folder, on, places, plain, said, unharmed
from tests.services.hostile_verbs import FANS, LETTERS, LISTS, NIL, SPELLINGS, TEXT, VERBS

__all__ = ["folder", "places"]

HOW = ("whole", "last 8", "first 4", "last 4")
MINE = Request("Mine", command=("true",), cwd="/")


@pytest.mark.parametrize(("who", "verb"), [("sender", "reply"), ("sender", "wake"), ("estranged", "update")])
def test_whoever_may_change_something_is_not_shown_the_transcript(places: Places, who: str, verb: str) -> None:
    told, _ = places.told(who, on(VERBS[verb], "runaway" if who == "estranged" else "victim"))
    assert told.refused is None
    # What is still to be answered one may hear.
    assert [word for word in ("answer", "summary", "closed") if f"{SECRET} {word}" in told.text] == []
    assert [name for name, message_id in places.place.facts.messages.items() if message_id in told.text] == []


@pytest.mark.case("C3-19")
def test_whoever_reads_a_run_sees_no_grants_of_others(places: Places) -> None:
    told = events.read(places.place.seen_by("reader"), places.place.id("victim"))[0]
    rows = [event for event in told if event["type"] in ("granted", "revoked")]
    assert {row["grantee"] for row in rows} <= {places.place.id("reader")}


@pytest.mark.case("C3-16", "C3-33")
def test_whoever_only_reads_an_agent_cannot_tell_it_anything(places: Places, tmp_path: Path) -> None:
    place, _ = places.copies(tmp_path)
    before = place.state()
    messages.put(place.seen_by("reader"), "plaintext", TEXT, in_reply_to=place.id("response"))
    assert [name for name in changes(before, place.state()) if place.id("bystander") in name.split("/")[0]] == []


THEIRS = MINE._replace(task=SECRET)
KEYED: dict[str, Act] = {
    "create": lambda _, c: runs.create(c, "helper", "Mine", key="key of victim"),
    "create the same": lambda _, c: runs.create(
        c, "helper", f"{SECRET} task of victim", name="victim", labels={"team": "victim"}, key="key of victim"
    ),
    "create --link": lambda _, c: runs.create(c, "helper", "Mine", key="key of victim", link=True),
    "run": lambda _, c: launches.run(c, MINE, key="key of victim"),
    "spawn": lambda _, c: spawns.spawn(c, [MINE], key="key of group"),
    "spawn the same": lambda _, c: spawns.spawn(c, [THEIRS, THEIRS], key="key of group"),
    "put": lambda _, c: messages.put(c, "plaintext", TEXT, key="key of request"),
    "put the same": lambda _, c: messages.put(
        c, "plaintext", messages.as_content(f"{SECRET} request"), key="key of request"
    ),
}


@pytest.mark.parametrize("verb", KEYED)
def test_anothers_key_leads_to_nothing_of_its(places: Places, tmp_path: Path, verb: str) -> None:
    place, absent = places.copies(tmp_path)
    before = place.state()
    with all_ended(place.root), all_ended(absent.root):
        told = said(place, place.seen_by("stranger"), KEYED[verb])
        assert told == said(absent, absent.seen_by("stranger"), KEYED[verb])
    unharmed(place, before)


@pytest.mark.case("C3-11")
def test_a_name_that_a_stranger_lends_does_not_stand_before_ones_own(places: Places, tmp_path: Path) -> None:
    place, _ = places.copies(tmp_path)
    stranger = place.seen_by("stranger")
    trap = runs.create(stranger, "helper", "Listen", name="first")["runId"]
    for capability in CAPABILITIES:
        grants.grant(stranger, trap, place.id("parent"), capability)
    told = said(place, place.seen_by("parent"), lambda _, c: VERBS["send"](c, "first"))
    assert told.refused == "ambiguous" or f'"agent_id": "{place.id("first")}"' in told.text, told


def written(*words: str, content: str = "") -> Callable[[Place], None]:
    """A file that somebody puts there by hand; ids are named by their words."""

    def write(place: Place) -> None:
        path = place.root.joinpath(*map(place.id, words))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(place.id(content))

    return write


def record(place: Place) -> None:
    children = [{"runId": place.id("victim"), "agentName": "helper", "task": "Mine"}]
    made = {"version": 1, "groupId": NIL, "parentId": place.id("stranger"), "children": children}
    (place.root / ".groups" / f"{NIL}.json").write_text(json.dumps(made))


FORGED: dict[str, Callable[[Place], None]] = {
    "a grant": written(".index", "grants", "stranger", "victim"),
    "a child": written(".index", "children", "stranger", "victim"),
    "a grandchild": written(".index", "children", "owned", "victim"),
    "a name": written(".index", "names", "stranger", "victim"),
    "a question": written(".index", "questions", "stranger open", content="victim"),
    "a reply": written(".index", "replies", "own", "request"),
    "a group": record,
}
TRIED: dict[str, Act] = {
    **{f"{verb} victim": on(VERBS[verb], "victim") for verb in ("status", "wait", "reply", "cancel", "send", "update")},
    **{verb: plain(LISTS[verb]) for verb in ("list --all", "tree --all", "pending", "events", "wait", "grants")},
    **{f"{verb} group": on(FANS[verb], NIL) for verb in FANS},
    "message list": plain(messages.listed),
    "show request": on(LETTERS["show"], "request"),
    "replies to one's own": on(LETTERS["list --in-reply-to"], "own"),
    "check one's own": on(questions.check, "stranger open"),
    "status": lambda _, c: runs.status(c, None),
    "status stranger": lambda _, c: runs.status(c, "stranger"),
    "tree stranger": lambda _, c: trees.tree(c, "stranger"),
    "list --parent stranger": lambda _, c: listing.find(c, parent="stranger"),
    "wait owned": lambda _, c: waiting.for_runs(c, ["owned"], timeout=0),
    "cancel owned": lambda _, c: cancellation.cancel(c, ["owned"], grace=0),
    "cancel --all": lambda _, c: cancellation.cancel(c, [], everything=True, grace=0),
}


@pytest.mark.parametrize("forged", FORGED)
def test_an_entry_of_the_index_is_no_right(places: Places, tmp_path: Path, forged: str) -> None:
    place, absent = places.copies(tmp_path)
    for there in (place, absent):
        FORGED[forged](there)
    before = place.state()
    wrong = [
        verb
        for verb, act in TRIED.items()
        if said(place, place.seen_by("stranger"), act) != said(absent, absent.seen_by("stranger"), act)
    ]
    assert wrong == []
    unharmed(place, before)


def cut(*words: str) -> Callable[[Place], None]:
    """A file that is not as it was written."""

    def spoil(place: Place) -> None:
        path = place.root.joinpath(*map(place.id, words))
        content = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(content[: len(content) // 3] + content[len(content) // 3 + 2 :])

    return spoil


def message_file(word: str) -> Callable[[Place], None]:
    return lambda place: cut(".messages", f"{place.id(word)}.json")(place)


DAMAGED: dict[str, Callable[[Place], None]] = {
    "a message": message_file("request"),
    "a message that replies to another": message_file("response"),
    "a journal": cut("victim", "journal.jsonl"),
    "a document": cut("victim", ".meta.json"),
    "a task": cut("victim", "run.json"),
    "a group": lambda place: cut(".groups", f"{place.id('group')}.json")(place),
}


@pytest.mark.parametrize("damaged", DAMAGED)
def test_what_is_damaged_is_not_there_either(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    place, absent = places.copies(tmp_path / "foreign")
    DAMAGED[damaged](place)
    tried: dict[str, Act] = {
        **TRIED,
        **{
            f"show {word}, {how}": on(messages.show, word, SPELLINGS[how])
            for word in ("request", "response")
            for how in HOW
        },
        **{f"group, {how}": on(FANS[verb], "group", SPELLINGS[how]) for verb in FANS for how in HOW},
        "claim": lambda p, _: claimed(monkeypatch, p, p.id("victim"), "x"),
    }
    wrong = [
        what
        for what, act in tried.items()
        if said(place, place.seen_by("stranger"), act) != said(absent, absent.seen_by("stranger"), act)
    ]
    assert wrong == []


def row(place: Place, committed: bool) -> bytes:
    """A line that gives somebody a right: of a change that was committed, but with a wrong sum, or the other way."""
    last = json.loads((place.root / place.id("victim") / "journal.jsonl").read_bytes().splitlines()[-1])
    made = {"seq": last["seq"] + 1, "at": last["at"], "clock": last["clock"], "type": "granted", "grantor": "operator"}
    made |= {"grantee": place.id("stranger"), "capability": READ, **({"meta": last["meta"]} if committed else {})}
    body = json.dumps(made, separators=(",", ":")).encode()[:-1]
    return body + b',"crc":"%08x"}\n' % (crc32(body) ^ committed)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("behind_all", [True, False])
def test_a_row_that_somebody_adds_to_a_journal_is_no_right(
    places: Places, tmp_path: Path, committed: bool, behind_all: bool
) -> None:
    place, absent = places.copies(tmp_path / "foreign")
    path = place.root / place.id("victim") / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = len(lines) if behind_all else len(lines) - 1
    path.write_bytes(b"".join([*lines[:at], row(place, committed), *lines[at:]]))
    with_entry = FORGED["a grant"]
    for there in (place, absent):
        with_entry(there)
    tried = {verb: act for verb, act in TRIED.items() if not verb.startswith("cancel ")}
    for _ in range(2):
        for verb, act in tried.items():
            told = said(place, place.seen_by("stranger"), act)
            assert told == said(absent, absent.seen_by("stranger"), act), verb
        # What others write behind it does not make it good.
        with suppress(Damaged):
            runs.update(place.seen_by(None), place.id("victim"), "running", "On")


@pytest.mark.parametrize("mine", [False, True])
def test_a_document_gives_no_right_whatever_it_claims(places: Places, tmp_path: Path, mine: bool) -> None:
    place, _ = places.copies(tmp_path / "foreign")
    who, question = place.id("stranger"), place.id("victim open")
    path = place.root / (who if mine else place.id("victim")) / ".meta.json"
    document = json.loads(path.read_bytes())
    claimed_ = {"messageId": question, "questionContent": "Mine?", "questionTimestamp": document["startTime"]}
    document["messages"] = [*document.get("messages", []), {**claimed_, "messageStatus": "pending_parent_reply"}]
    more = {"parentId": who, "grantee": who, "grants": [[who, who, one] for one in CAPABILITIES]}
    path.write_text(json.dumps({**document, **more, "runId": place.id("victim")}))
    stranger, operator = place.seen_by("stranger"), place.seen_by(None)
    runs.update(operator, "stranger" if mine else "victim", "running", "On")
    for verb in ("status", "wait", "reply", "cancel", "send", "update", "pending", "events"):
        told = said(place, stranger, on(VERBS[verb], "victim"))
        assert told.refused in ("run_not_found", "not_granted", "not_found"), verb
    assert questions.reply(operator, question, "That")["runId"] == place.id("victim")


@pytest.mark.parametrize("verb", ["put", "create"])
def test_an_entry_for_a_key_makes_nothing_ones_own(places: Places, tmp_path: Path, verb: str) -> None:
    place, _ = places.copies(tmp_path)
    folder, word = {"put": ("sends", "request"), "create": ("keys", "victim")}[verb]
    act: Act = {
        "put": lambda _, c: messages.put(c, "plaintext", messages.as_content(f"{SECRET} request"), key="k"),
        "create": lambda _, c: runs.create(c, "helper", "Mine", key="k"),
    }[verb]
    before = place.state()
    own = said(place, place.seen_by("stranger"), act)
    [entry] = [name for name in changes(before, place.state()) if name.startswith(f".index/{folder}/")]
    assert own.refused is None
    written(entry, content=word)(place)
    assert place.id(word)[-8:] not in said(place, place.seen_by("stranger"), act).text


@pytest.mark.case("C3-18", "C3-42")
@pytest.mark.parametrize("how", ["events RUN", "events", "logs"])
def test_following_ends_when_the_right_to_read_does(places: Places, tmp_path: Path, how: str) -> None:
    place, _ = places.copies(tmp_path)
    operator, reader, target = place.seen_by(None), place.seen_by("reader"), place.id("second")
    grants.grant(operator, target, place.id("reader"), READ)
    followed = {
        "events RUN": lambda: events.follow(reader, target),
        "events": lambda: events.follow(reader),
        "logs": lambda: logs.follow(reader, target),
    }[how]()
    seen = {
        "events RUN": lambda: events.read(reader, target)[0],
        "events": lambda: events.read(reader)[0],
        "logs": lambda: logs.tail(reader, target),
    }[how]()
    assert [next(followed) for _ in seen] == seen
    grants.revoke(operator, target, place.id("reader"), READ)
    runs.update(operator, target, "success", SECRET)
    questions.tell(place.seen_by("reader", earlier=-1000), "Mine")
    with suppress(SubagentError):
        told = next(followed, None)
        assert told is None or told.get("runId") == place.id("reader"), told


@pytest.mark.case("C3-43")
@pytest.mark.parametrize("verb", ["send", "resume", "resume --env"])
def test_whoever_may_only_send_does_not_get_to_act_as_the_agent(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Its token goes to the program that it was made with, wherever the caller has programs of that name."""
    place, _ = places.copies(tmp_path)
    operator, sender, stolen = place.seen_by(None), place.seen_by("sender"), tmp_path / "stolen"
    trap = program(tmp_path / "trap" / "true", f'echo "$SUBAGENT_RUN_ID $SUBAGENT_TOKEN" > {stolen}')
    path = f"{trap.parent}{os.pathsep}{os.environ['PATH']}"
    with all_ended(place.root):
        run_id = launches.run(operator, MINE)["runId"]
        waiting.for_runs(operator, [run_id], timeout=20_000)
        grants.grant(operator, run_id, place.id("sender"), SEND)
        if "--env" not in verb:
            monkeypatch.setenv("PATH", path)
        with suppress(SubagentError):
            if verb == "send":
                deliveries.send(sender, run_id, schema="plaintext", content=TEXT)
            else:
                start = Start(env={"PATH": path} if "--env" in verb else {})
                resumption.resume(sender, run_id, "Go on", start=start)
        waiting.for_runs(operator, [run_id], timeout=20_000)
    assert not stolen.exists()


def claimed(monkeypatch: pytest.MonkeyPatch, place: Place, run_id: str, token: str, **more: str) -> Payload:
    """Who somebody is, who says so in his environment."""
    given = {"SUBAGENT_RUN_ID": run_id, "SUBAGENT_TOKEN": token, **more}
    with monkeypatch.context() as patched:
        for name, value in given.items():
            patched.setenv(name, value)
        return identity.whoami(open_context({"runs_dir": str(place.root)}))


def stored(place: Place, name: str) -> str:
    found: str = json.loads((place.root / place.id(name) / "run.json").read_bytes())["tokenHash"]
    return found


CLAIMS: dict[str, Callable[[Place, Mapping[str, str]], tuple[str, str]]] = {
    "another's run": lambda p, tokens: (p.id("victim"), tokens["stranger"]),
    "another's token": lambda p, tokens: (p.id("stranger"), tokens["victim"]),
    "a child's run": lambda p, tokens: (p.id("first"), tokens["parent"]),
    "a parent's run": lambda p, tokens: (p.id("parent"), tokens["first"]),
    "the token of an earlier attempt": lambda p, tokens: (p.id("again"), tokens["old again"]),
    "a run that was removed": lambda p, tokens: (p.id("gone"), tokens["gone"]),
    "the token of a run that was removed": lambda p, tokens: (p.id("victim"), tokens["gone"]),
    "the hash of the token": lambda p, _: (p.id("victim"), stored(p, "victim")),
    "the hash of an earlier token": lambda p, _: (p.id("again"), stored(p, "again")),
    "the hash of the hash": lambda p, _: (p.id("victim"), token_hash(stored(p, "victim"))),
    "a token in capitals": lambda p, tokens: (p.id("stranger"), tokens["stranger"].upper()),
    "a token and a line feed": lambda p, tokens: (p.id("stranger"), tokens["stranger"] + "\n"),
    "half a token": lambda p, tokens: (p.id("stranger"), tokens["stranger"][:32]),
    "both tokens": lambda p, tokens: (p.id("victim"), f"{tokens['stranger']} {tokens['victim']}"),
    "a blank": lambda p, _: (p.id("victim"), " "),
    "no token": lambda p, _: (p.id("victim"), "None"),
    "the id": lambda p, _: (p.id("victim"), p.id("victim")),
    "the nil run": lambda _, tokens: (NIL, tokens["stranger"]),
    "no run": lambda _, tokens: ("", tokens["stranger"]),
    "the run by a part of it": lambda p, tokens: (p.id("stranger")[-8:], tokens["stranger"]),
    "the run by a path": lambda p, tokens: (f"../place/{p.id('stranger')}", tokens["stranger"]),
    "the run as an urn": lambda p, tokens: (f"urn:uuid:{p.id('stranger')}", tokens["stranger"]),
    "the run by its name": lambda _, tokens: ("stranger", tokens["stranger"]),
    "the newest": lambda _, tokens: ("@last", tokens["stranger"]),
    "the operator": lambda _, tokens: ("operator", tokens["stranger"]),
}


@pytest.mark.case("C3-43")
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_without_its_token_is_denied_in_the_same_words_as_one_to_nothing(
    places: Places, monkeypatch: pytest.MonkeyPatch, claim: str
) -> None:
    place = places.place
    run_id, token = CLAIMS[claim](place, place.facts.tokens)
    before = place.state()
    words = [said(place, place.seen_by(None), lambda p, _: claimed(monkeypatch, p, run_id, token))]
    if run_id:
        words.append(said(place, place.seen_by(None), lambda p, _: claimed(monkeypatch, p, NIL, token)))
    assert {word.refused for word in words} == {"denied"}
    assert len(set(words)) == 1
    assert place.state() == before


@pytest.mark.case("C3-43")
@pytest.mark.parametrize(
    "file", ["nothing", "a folder", "another's token", "an empty file", "blanks", "a task", "a hash"]
)
def test_a_file_that_does_not_hold_the_token_is_denied(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    place, path = places.place, tmp_path / "token"
    contents = {"another's token": place.facts.tokens["stranger"], "an empty file": "", "blanks": " \n"}
    contents |= {
        "a task": (place.root / place.id("victim") / "run.json").read_text(),
        "a hash": stored(place, "victim"),
    }
    if file == "a folder":
        path.mkdir()
    elif file != "nothing":
        path.write_text(contents[file])
    for name, value in (("RUN_ID", place.id("victim")), ("TOKEN_FILE", str(path))):
        monkeypatch.setenv(f"SUBAGENT_{name}", value)
    with pytest.raises(Denied):
        open_context({"runs_dir": str(place.root)})


@pytest.mark.case("C3-43", "C3-47")
@pytest.mark.parametrize("who", ["stranger", "again", "leaf"])
def test_with_its_own_token_an_agent_is_itself_whatever_else_it_says(
    places: Places, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    place = places.place
    run_id, token = place.id(who), place.facts.tokens[who]
    lies = {"SUBAGENT_PARENT": place.id("victim"), "SUBAGENT_DEPTH": "0", "SUBAGENT_TOKEN_FILE": "/dev/null"}
    expected = claimed(monkeypatch, place, run_id, token)
    assert (expected["role"], expected["runId"]) == ("worker", run_id)
    assert expected["parentId"] == (place.id("first") if who == "leaf" else None)
    for spelled in (run_id.upper(), run_id.replace("-", "")):
        assert claimed(monkeypatch, place, spelled, token, **lies) == expected


TYPED = (
    "status {victim}",
    "logs {victim}",
    "events {victim} --json",
    "tree {victim}",
    "wait {victim} --timeout 1s",
    "pending {victim} --json",
    "inbox {victim}",
    "export {victim} -",
    "message show {request}",
    "message list --in-reply-to {request} --wait --timeout 1s",
    "check {victim open}",
    "reply {victim} Mine",
    "send {victim} --text Mine",
    "grant {victim} {stranger} read_transcript --json",
    "cancel victin",
    "sweep --json",
)


@pytest.mark.case("C3-29", "C3-42")
@pytest.mark.parametrize("typed", TYPED)
def test_the_command_line_says_no_more(places: Places, cli: Command, typed: str) -> None:
    place, absent = places.place, places.twin("stranger")
    env = {"SUBAGENT_RUN_ID": place.id("stranger"), "SUBAGENT_TOKEN": place.facts.tokens["stranger"]}
    words = [place.id(word.strip("{}")) if "{" in word else word for word in typed.replace("m o", "m_o").split()]
    before = place.state()
    told, other = (cli(*words, env=env, runs_dir=where.root) for where in (place, absent))
    assert told.code in (3, 5), told
    assert [told.code, *(text.replace(str(place.root), "RUNS") for text in (told.out, told.err))] == [
        other.code,
        *(text.replace(str(absent.root), "RUNS") for text in (other.out, other.err)),
    ]
    assert place.state() == before


def test_a_shell_completes_nothing_that_is_not_ones_own(places: Places, cli: Command) -> None:
    place = places.place
    asked = {"_SUBAGENT_COMPLETE": "bash_complete", "COMP_WORDS": "subagent status ", "COMP_CWORD": "2"}
    agent = {"SUBAGENT_RUN_ID": place.id("stranger"), "SUBAGENT_TOKEN": place.facts.tokens["stranger"]}
    own = {place.id(word)[-8:] for word in ("stranger", "owned")}
    assert {line.split(",")[1] for line in cli(env={**asked, **agent}, runs_dir=place.root).out.split()} == own
    everybody = {line.split(",")[1] for line in cli(env=asked, runs_dir=place.root).out.split()}
    assert everybody > {*own, place.id("victim")[-8:], "victim"}

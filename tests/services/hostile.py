"""A place full of runs, messages and grants that are not the attacker's own, and the same place without them.

Promise: the twin of a place, as far as one agent is concerned, lacks every run, message, group, question, key and index
entry that this agent may not know of. So whatever it tries has to be answered in both with the same words.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import SubagentError
from subagent_cli.core.grant import ADMINISTER, CAPABILITIES, READ, SEND
from subagent_cli.core.ids import uuid7
from subagent_cli.core.run import RUNNING
from subagent_cli.services import clean, grants, inboxes, messages, questions, runs, specs
from subagent_cli.services.context import Context, open_context, token_hash
from subagent_cli.services.settings import Caller
from subagent_cli.store.alive import Claim
from subagent_cli.store.groups import Groups
from tests.services.desk import StillClock, snapshot

SECRET = "SECRET"
NO_WORK = ["true"]
LASTED = 1000
START = 1_767_323_045_678

# What each attacker may know of: its own run, what it started, what was granted to it, what was written for it. Of
# those to whom something was granted on the victim everything is taken back by now, or over.
RUNS: dict[str, set[str]] = {
    "stranger": {"stranger", "owned"},
    "owned": {"owned"},
    "parent": {"parent", "first", "second"},
    "first": {"first", "leaf"},
    "second": {"second"},
    "leaf": {"leaf"},
    "spawner": {"spawner", "left", "right"},
    "left": {"left"},
    "victim": {"victim"},
    "former": {"former"},
    "late": {"late"},
    "heir": {"heir"},
    # Without the runs on which they have one capability each.
    "reader": {"reader", "victim", "bystander"},
    "sender": {"sender"},
    "keeper": {"keeper"},
    "estranged": {"estranged"},
}
MESSAGES: dict[str, set[str]] = {
    "stranger": {"own"},
    "parent": {"order", "report", "critique"},
    "first": {"order", "report"},
    "second": {"critique"},
    "spawner": {"aside"},
    "left": {"aside"},
    "victim": {"request", "response", "letter"},
    "reader": {"request", "response"},
}


class CountingClock(StillClock):
    """Time that stands still, and ids and tokens that only depend on how many were drawn."""

    def __init__(self, made: int = 0, ms: int = START) -> None:
        super().__init__(ms)
        self.up += ms - START
        self.made = made

    def new_id(self) -> str:
        return uuid7(self.ms, self._noise())

    def new_token(self) -> str:
        return self._noise().hex()

    def _noise(self) -> bytes:
        self.made += 1
        return sha256(f"number {self.made}".encode()).digest()


class Facts(NamedTuple):
    """Who is there, by the names that the tests call them."""

    runs: Mapping[str, str]
    tokens: Mapping[str, str]
    messages: Mapping[str, str]
    questions: Mapping[str, str]
    groups: Mapping[str, str]
    ms: int

    def id(self, word: str) -> str:
        """The id of a run, a message, a question or a group; any other word as it is."""
        for named in (self.runs, self.messages, self.questions, self.groups):
            if word in named:
                return named[word]
        return word


class Place(NamedTuple):
    """A runs directory and what is known of it."""

    root: Path
    facts: Facts

    def seen_by(self, who: str | None, earlier: int = 0) -> Context:
        """The context of an agent's worker, or of the operator; each time that of a process that has just begun."""
        # What is drawn now was not drawn when the place was made.
        clock = CountingClock(5000, self.facts.ms - earlier)
        desk = open_context({"runs_dir": str(self.root), "max_depth": "3"}, clock)
        return desk if who is None else desk._replace(caller=Caller(self.facts.runs[who], self.facts.tokens[who]))

    def id(self, word: str) -> str:
        return self.facts.id(word)

    def copy(self, root: Path) -> "Place":
        shutil.copytree(self.root, root, symlinks=True)
        return self._replace(root=root)

    def state(self) -> dict[str, bytes | str | None]:
        return snapshot(self.root, locks=False)

    def stamps(self) -> dict[str, tuple[int, ...]]:
        """What the system knows of each file. It cannot be kept from noticing a change, so where it noticed none, no
        file has to be read."""
        found: dict[str, tuple[int, ...]] = {}
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name != ".locks"]
            for name in (*names, *folders):
                path = os.path.join(folder, name)
                known = os.lstat(path)
                found[path] = (known.st_ino, known.st_mode, known.st_size, known.st_mtime_ns, known.st_ctime_ns)
        return found


Act = Callable[[Place, Context], object]


class Attempt(NamedTuple):
    """Somebody does something to what is not its own."""

    name: str
    who: str
    act: Act


class Said(NamedTuple):
    """What somebody was told: an answer, or a refusal with its code and all that helps."""

    refused: str | None
    text: str


def said(place: Place, context: Context, act: Act) -> Said:
    """What an attempt comes to, in words that do not say where the runs directory is."""
    try:
        told, refused = json.dumps(act(place, context), default=_plain, sort_keys=True, ensure_ascii=False), None
    except SubagentError as error:
        refused = error.code
        told = "\n".join(map(str, (type(error).__name__, error.message, error.hint, error.candidates, error.next)))
    return Said(refused, told.replace(str(place.root), "RUNS"))


def _plain(value: object) -> object:
    if isinstance(value, SubagentError):
        return [type(value).__name__, value.code, value.message, value.hint, value.candidates, value.next]
    return list(value) if isinstance(value, Iterable) else repr(value)


def on(verb: Callable[..., object], target: str, spelled: Callable[[str], str] = str) -> Act:
    """A verb on something that is named by its id, in some spelling of it."""
    return lambda place, context: verb(context, spelled(place.id(target)))


def plain(verb: Callable[..., object]) -> Act:
    return lambda _, context: verb(context)


def unharmed(place: Place, before: Mapping[str, object], who: str = "stranger") -> None:
    """Nothing has happened to any run but those of which an agent may know."""
    hidden = [run_id for name, run_id in place.facts.runs.items() if name not in RUNS[who]]
    changed = changes(before, place.state())
    assert [name for name in changed if any(run_id in name for run_id in hidden)] == []


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The files that are not as they were."""
    return sorted(name for name in {**before, **after} if before.get(name, "-") != after.get(name, "-"))


def twin(place: Place, who: str, root: Path) -> Place:
    """The same place, but nothing is there of which this agent may not know."""
    facts = place.facts
    hidden = {facts.runs[name] for name in facts.runs.keys() - RUNS[who]}
    hidden |= {facts.messages[name] for name in facts.messages.keys() - MESSAGES.get(who, set())}
    hidden |= {facts.groups[name] for name in facts.groups if who != "spawner"}
    hidden |= {facts.questions[name] for name in facts.questions if name.split()[0] not in RUNS[who]}
    made = place.copy(root)
    for path in sorted(root.rglob("*"), reverse=True):
        about = str(path.relative_to(root))
        entry = path.read_text() if about.startswith(".index") and path.is_file() else ""
        if any(one in about or one == entry for one in hidden):
            path.rmdir() if path.is_dir() else path.unlink()
        elif path.is_dir() and path.parent.parent.name == ".index" and not any(path.iterdir()):
            path.rmdir()
    return made


class Places:
    """The place, and its twins as they are wanted; the place is put in order when an attempt has changed it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self._pristine = make(folder / "pristine")
        self._twins: dict[str, Place] = {}
        self._renew()

    def _renew(self) -> None:
        self._made += 1
        self.place = self._pristine.copy(self._folder / f"place {self._made}")
        self._state, self._stamps = self.place.state(), self.place.stamps()

    def twin(self, who: str) -> Place:
        if who not in self._twins:
            self._twins[who] = twin(self._pristine, who, self._folder / f"without {who}")
        return self._twins[who]

    def copies(self, folder: Path, who: str = "stranger") -> tuple[Place, Place]:
        """The place and its twin, for what changes something."""
        return self._pristine.copy(folder / "place"), self.twin(who).copy(folder / "twin")

    def told(self, who: str | None, act: Act, earlier: int = 0) -> tuple[Said, list[str]]:
        """What somebody is told, and what has changed by it."""
        told = said(self.place, self.place.seen_by(who, earlier), act)
        if self.place.stamps() == self._stamps:
            return told, []
        changed = changes(self._state, self.place.state())
        self._renew()
        return told, changed


_KNOWN: dict[Path, Places] = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture
def places(folder: Path) -> Places:
    """Made in the first test and not before it, since only a test has a home of its own."""
    if folder not in _KNOWN:
        _KNOWN[folder] = Places(folder)
    return _KNOWN[folder]


class _Maker:
    """Puts the place together."""

    def __init__(self, root: Path) -> None:
        self.clock = CountingClock()
        self.desk = open_context({"runs_dir": str(root), "max_depth": "3"}, self.clock)
        self.runs: dict[str, str] = {}
        self.tokens: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.questions: dict[str, str] = {}

    def by(self, who: str | None) -> Context:
        return self.desk if who is None else self.desk._replace(caller=Caller(self.runs[who], self.tokens[who]))

    def agent(self, name: str, parent: str | None = None) -> None:
        """A run whose process somebody else has started."""
        self.clock.wait()
        task, labels = f"{SECRET} task of {name}", {"team": name}
        made = runs.create(self.by(parent), "helper", task, cwd="/", name=name, labels=labels, key=f"key of {name}")
        self.runs[name], self.tokens[name] = made["runId"], made["env"]["SUBAGENT_TOKEN"]
        runs.update(self.desk, made["runId"], "running", f"{SECRET} summary of {name}")
        questions.tell(self.by(name), f"{SECRET} note of {name}")

    def kept(self, name: str, parent: str | None = None, group_id: str | None = None) -> None:
        """A run that had a keeper, and has ended."""
        self.clock.wait()
        token, claim = self.clock.new_token(), Claim()
        spec = specs.new_spec(self.by(parent), "true", f"{SECRET} task of {name}", token, cwd="/", name=name)
        spec = {**spec, "argv": NO_WORK, "groupId": group_id}
        self.desk.runs.create(spec, f"{SECRET} task of {name}", RUNNING, self.clock.now(), None, claim)
        self.runs[name], self.tokens[name] = spec["runId"], token
        self.desk.runs.log(spec["runId"], f"{SECRET} log of {name}", now=self.clock.now())
        change = self.desk.runs.change
        change(spec["runId"], wanted.Exit(1, 0, output=f"{SECRET} outcome of {name}"), self.clock.now)
        claim.drop()

    def again(self, name: str) -> None:
        """Another attempt at a run, with another token than the first."""
        token = self.clock.new_token()
        self.tokens[f"old {name}"], self.tokens[name] = self.tokens[name], token
        order = wanted.Resume("true", "Go on", token_hash(token))
        self.desk.runs.change(self.runs[name], order, self.clock.now)

    def asked(self, who: str, word: str, answer: str | None = None) -> None:
        self.clock.wait()
        made = questions.ask(self.by(who), f"{SECRET} {word} question of {who}")
        self.questions[f"{who} {word}"] = made["messageId"]
        if answer is not None:
            questions.reply(self.desk, made["messageId"], answer)

    def wrote(self, who: str | None, word: str, *, to: str | None = None, reply_to: str | None = None) -> None:
        """A message, which the operator sees delivered."""
        self.clock.wait()
        content = messages.as_content(f"{SECRET} {word}")
        original = self.messages[reply_to] if reply_to else None
        made = messages.write(self.by(who), "plaintext", content, in_reply_to=original, key=f"put key of {word}")
        self.messages[word] = made["id"]
        if to is not None:
            inboxes.deliver(self.desk, self.runs[to], made)

    def granted(self, target: str, grantee: str, *capabilities: str, by: str | None = None, **lasting: int) -> None:
        for capability in capabilities:
            grants.grant(self.by(by), self.runs[target], self.runs[grantee], capability, **lasting)

    def revoked(self, target: str, grantee: str, *, by: str | None = None, everything: bool = False) -> None:
        for capability in CAPABILITIES:
            grants.revoke(self.by(by), self.runs[target], self.runs[grantee], capability, everything=everything)


def make(root: Path) -> Place:
    """Runs of the operator and of agents, who have asked, written, been granted something and lost it again."""
    made = _Maker(root)
    for name in ("stranger", "victim", "parent", "spawner", "reader", "sender", "keeper", "former", "late", "heir"):
        made.agent(name)
    made.agent("owned", "stranger")
    made.agent("first", "parent")
    made.agent("second", "parent")
    made.agent("leaf", "first")
    made.agent("estranged")
    made.agent("runaway", "estranged")
    made.kept("bystander")
    made.kept("again")
    made.again("again")
    group_id = made.clock.new_id()
    for name in ("left", "right"):
        made.kept(name, "spawner", group_id)
    _group(made, group_id)
    made.agent("gone")
    runs.update(made.desk, made.runs["gone"], "success")
    clean.delete(made.desk, clean.plan(made.desk, [made.runs["gone"]]))
    for who in ("victim", "first", "leaf", "runaway", "stranger"):
        made.asked(who, "open")
    for who in ("victim", "runaway"):
        made.asked(who, "closed", f"{SECRET} answer")
    made.wrote("stranger", "own")
    made.wrote("victim", "request", to="bystander")
    made.wrote("parent", "order", to="first")
    made.wrote("first", "report", to="parent", reply_to="order")
    made.wrote("second", "critique")
    made.wrote("left", "aside")
    made.wrote(None, "letter", to="victim")
    made.granted("victim", "bystander", READ)
    made.wrote("bystander", "response", to="victim", reply_to="request")
    _given_and_taken(made)
    groups = {"group": group_id}
    return Place(root, Facts(made.runs, made.tokens, made.messages, made.questions, groups, made.clock.ms))


def _group(made: _Maker, group_id: str) -> None:
    children = [{"runId": made.runs[name], "agentName": "true", "task": SECRET} for name in ("left", "right")]
    record: dict[str, Any] = {"version": 1, "groupId": group_id, "parentId": made.runs["spawner"], "children": children}
    record |= {"deadlineSeconds": None, "createdAt": made.clock.now().iso}
    Groups(made.desk.runs.layout).create({**record, "keyDigest": token_hash("spawn key of group")[:32]})


def _given_and_taken(made: _Maker) -> None:
    """`former` had everything on the victim, and gave `heir` what it had; both have lost it. What `late` had is over.
    `reader`, `sender` and `keeper` have one capability each; `estranged` has none on the run that it started."""
    made.granted("victim", "former", *CAPABILITIES)
    made.granted("victim", "heir", *CAPABILITIES, by="former")
    made.revoked("victim", "heir", by="former")
    made.revoked("victim", "former")
    made.granted("victim", "late", *CAPABILITIES, lasts=LASTED)
    made.clock.wait(2 * LASTED)
    for grantee, capability in (("reader", READ), ("sender", SEND), ("keeper", ADMINISTER)):
        made.granted("victim", grantee, capability)
        made.granted("bystander", grantee, capability)
    made.revoked("runaway", "estranged", everything=True)

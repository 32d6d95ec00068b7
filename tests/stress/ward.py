"""A small runs directory in which there is a file of every kind that we write, and which is soon well again.

Promise: `again()` puts back every file that is not as it was, so a test can damage one file after another and need not
make the place anew each time.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import SubagentError
from subagent_cli.core.grant import READ
from subagent_cli.core.run import RUNNING, Run
from subagent_cli.services import (
    events,
    grants,
    groups,
    inboxes,
    listing,
    logs,
    messages,
    outcomes,
    questions,
    runs,
    specs,
    sweep,
    trees,
)
from subagent_cli.services.context import Context, open_context, token_hash
from subagent_cli.services.settings import Caller
from subagent_cli.store.alive import Claim
from subagent_cli.store.groups import Groups
from subagent_cli.store.runs import Runs
from tests.services.desk import StillClock

KEY = "once"
Stamps = dict[str, tuple[int, ...]]


class Names(NamedTuple):
    """Who is there: a parent, its child that asks, and a run that had a keeper and ended as one of a group; then what
    is there of them, and by what the parent proves who it is."""

    parent: str
    child: str
    kept: str
    group: str
    letter: str
    answer: str
    fetched: str
    unread: str
    waiting: str
    token: str


class Ward:
    """The place, its files by kind, and what everybody saw while it was well."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "foreign" / "runs"
        # As late as the files that are written.
        self.clock = StillClock(int(time.time() * 1000))
        self.desk = open_context({"runs_dir": str(self.root), "max_depth": "3"}, self.clock)
        self.names = _made(self.desk, self.clock)
        self._copy = folder / "foreign" / "copy"
        shutil.copytree(self.root, self._copy, symlinks=True)
        self.files = _kinds(self.root, self.names)
        self.well = {run_id: self.now(run_id) for run_id in self.names[:3]}
        self.seen = {name: tell(self) for name, tell in READING.items()}
        self._stamps = self._look()

    def fresh(self) -> Context:
        """The operator who has just come and remembers nothing."""
        return self.desk._replace(runs=Runs(str(self.root)))

    def now(self, run_id: str) -> Run:
        return Runs(str(self.root)).read(run_id, self.clock.now())

    def again(self) -> None:
        """Everything as it was: what was changed is written anew, what was made is removed."""
        now = self._look()
        for path in sorted(now.keys() - self._stamps.keys(), reverse=True):
            os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        for path in sorted(path for path, stamp in self._stamps.items() if now.get(path) != stamp):
            self._put_back(Path(path))
        self._stamps = self._look()

    def put_back(self, path: Path) -> None:
        """One file as it was, for when nothing else can have changed."""
        self._put_back(path)
        self._stamps[str(path)] = _stamp(path)

    def _put_back(self, path: Path) -> None:
        old = self._copy / path.relative_to(self.root)
        if old.is_dir() and not old.is_symlink():
            path.mkdir(0o700, exist_ok=True)
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if old.is_symlink():
            path.symlink_to(os.readlink(old))
        else:
            shutil.copyfile(old, path)
            path.chmod(old.stat().st_mode & 0o777)

    def _look(self) -> Stamps:
        """What the system knows of each file; of a folder only that it is there."""
        found: Stamps = {}
        for folder, folders, names in os.walk(self.root):
            for name in (*names, *folders):
                path = os.path.join(folder, name)
                found[path] = () if name in folders else _stamp(path)
        return found


def _stamp(path: str | Path) -> tuple[int, ...]:
    known = os.lstat(path)
    return known.st_ino, known.st_mode, known.st_size, known.st_mtime_ns, known.st_ctime_ns


def _made(desk: Context, clock: StillClock) -> Names:
    clock.wait()
    boss = runs.create(desk, "helper", "See to it", name="boss")
    token = boss["env"]["SUBAGENT_TOKEN"]
    parent = desk._replace(caller=Caller(boss["runId"], token))
    made = runs.create(parent, "helper", "Do it: ä", name="tidy", key=KEY, labels={"team": "a"}, link=True)
    child: str = made["runId"]
    fetched = questions.ask(desk, "Ä?", run=child, options=("x", "y"))["messageId"]
    unread = questions.ask(desk, "B?", run=child, default="no")["messageId"]
    questions.tell(desk, "A note.", run=child)
    questions.reply(desk, fetched, "2")
    questions.check(desk, fetched, run=child)
    questions.reply(desk, unread, "yes")
    waiting = questions.ask(desk, "C?", run=child)["messageId"]
    group, kept = _ended(desk, clock, boss["runId"])
    letter = messages.write(parent, "plaintext", messages.as_content("Look."), key="letter")
    inboxes.deliver(desk, child, letter)
    answer = messages.put(desk, "plaintext", messages.as_content("Seen."), in_reply_to=letter["id"])["message_id"]
    grants.grant(desk, child, kept, READ)
    runs.update(desk, child, "running", "Half way.")
    sweep.sweep(desk)
    return Names(boss["runId"], child, kept, group, letter["id"], answer, fetched, unread, waiting, token)


def _ended(desk: Context, clock: StillClock, parent_id: str) -> tuple[str, str]:
    """A run of two attempts whose keeper has left its line, and the group that it belongs to."""
    group_id, claim = clock.new_id(), Claim()
    spec = specs.new_spec(desk, "true", "Be one of many", clock.new_token(), cwd="/", name=None)
    spec = {**spec, "argv": ["true"], "groupId": group_id}
    run_id: str = spec["runId"]
    desk.runs.create(spec, "Be one of many", RUNNING, clock.now(), None, claim)
    os.write(claim.fd, b"2 1\n")
    desk.runs.log(run_id, "Something was done.", now=clock.now())
    again = wanted.Resume("true", "Go on", token_hash("new"))
    for order in (wanted.Exit(1, 1, output="Broken."), again, wanted.Exit(2, 0, output="Well.")):
        desk.runs.change(run_id, order, clock.now)
    claim.drop()
    prompt = Path(desk.runs.layout.prompt_of(run_id, 2))
    prompt.touch(0o600)
    prompt.write_bytes(b"Go on\n")
    record: dict[str, Any] = {"version": 1, "groupId": group_id, "parentId": parent_id, "deadlineSeconds": None}
    record |= {"children": [{"runId": run_id, "agentName": "true", "task": "Be one of many"}]}
    Groups(desk.runs.layout).create({**record, "createdAt": clock.now().iso, "keyDigest": token_hash("spawn")[:32]})
    return group_id, run_id


def _kinds(root: Path, names: Names) -> Mapping[str, Path]:
    """One file of each kind, by what it is."""
    layout = Runs(str(root)).layout
    child, kept, index = root / names.child, root / names.kept, root / ".index"
    found = {"picture": child / ".meta.json", "journal": child / "journal.jsonl", "spec": child / "run.json"}
    found |= {"prompt": child / "prompt.md", "log": kept / "log", "alive": kept / ".alive"}
    found |= {"later prompt": kept / "prompt-2.md", "journal of two attempts": kept / "journal.jsonl"}
    found |= {"group": Path(layout.group(names.group)), "message": Path(layout.message(names.letter))}
    found |= {"reply": Path(layout.message(names.answer)), "question entry": Path(layout.question_mark(names.waiting))}
    for kind in ("keys", "spawns", "sends"):
        found[f"{kind} entry"] = next((index / kind).iterdir())
    found |= {"active entry": index / "active" / names.child, "what was seen": index / "seen"}
    for kind in ("names", "children", "grants", "replies"):
        found[f"{kind} entry"] = next(path for path in sorted((index / kind).rglob("*")) if path.is_file())
    found |= {"lock": Path(layout.lock(names.child)), "readme": root / "README.md"}
    found["ring"] = next((child / ".ring").iterdir())
    return found


def _plain(value: object) -> object:
    """What a verb says; what it could not read stands beside its answer."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list):
        faults = [fault for fault in value[1] if isinstance(fault, SubagentError)]
        return faults[0] if faults else value[0]
    return list(value) if isinstance(value, Iterator) else value


Reading = Callable[[Ward], object]

_VERBS: Mapping[str, Callable[[Context, Names], object]] = {
    "status": lambda desk, n: runs.status(desk, n.child, peek=True),
    "status by name": lambda desk, _: runs.status(desk, "tidy", peek=True),
    "status of the ended": lambda desk, n: runs.status(desk, n.kept, peek=True),
    "status of a group": lambda desk, n: groups.status(desk, n.group),
    "check": lambda desk, n: questions.check(desk, n.waiting, peek=True),
    "check in a run": lambda desk, n: questions.check(desk, n.unread, run=n.child, peek=True),
    "pending": lambda desk, _: questions.pending(desk),
    "pending of a run": lambda desk, n: questions.pending(desk, n.child),
    "list": lambda desk, _: listing.find(desk, children=True),
    "list of a group": lambda desk, n: listing.find(desk, group=n.group),
    "tree": lambda desk, _: trees.tree(desk, everything=True),
    "logs": lambda desk, n: logs.tail(desk, n.kept),
    "events": lambda desk, n: events.read(desk, n.child),
    "events of all": lambda desk, _: events.read(desk),
    "result": lambda desk, n: outcomes.result(desk, n.kept),
    "inbox": lambda desk, n: inboxes.listed(desk, n.child),
    "message show": lambda desk, n: messages.show(desk, n.letter),
    "message list": lambda desk, n: messages.listed(desk, in_reply_to=n.letter),
    "grants": lambda desk, n: grants.listed(desk, n.child),
}


def _reading(verb: Callable[[Context, Names], object]) -> Reading:
    def tell(ward: Ward) -> object:
        """What it answers, or the error of ours with which it refuses; any other goes through."""
        try:
            return _plain(verb(ward.fresh(), ward.names))
        except SubagentError as error:
            return error

    return tell


READING: Mapping[str, Reading] = {name: _reading(verb) for name, verb in _VERBS.items()}

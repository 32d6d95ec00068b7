"""A writer that uses all verbs without end, and says of each call what it was told is safe.

It works on runs that others write to as well; those that it ends are its own. A line that it has said is a promise
that somebody else can hold against what is on disk.
"""

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.stress.line import typed

NOBODY: Mapping[str, str] = {}
# A refusal in this state, and somebody who has the run for the moment, are answers like any other.
GOOD = (0, 4)


class Writer:
    def __init__(self, root: str, seed: str, run_ids: Sequence[str], fd: int) -> None:
        self._root, self._seed, self._run_ids, self._fd = root, seed, run_ids, fd
        self._chance = random.Random(seed)
        self._said = 0

    def turn(self) -> None:
        """One verb, or a few that belong together."""
        self._chance.choice(self._verbs())()

    def work_through(self) -> None:
        """Every verb once."""
        for verb in self._verbs():
            verb()

    def _verbs(self) -> Sequence[Callable[[], None]]:
        brief = (self.ask, self.reply, self.tell, self.update, self.grant, self.put)
        # Of what takes longer more are killed in the midst of it.
        return (*brief, self.converse, self.converse, self.send, self.hand_in, self.spawn, self.sweep)

    def ask(self) -> None:
        text, run_id = self._text("question"), self._run()
        if made := self._call("ask", text, "--run", run_id):
            self._say("ask", run_id, text, made["messageId"])

    def reply(self) -> None:
        text, run_id = self._text("answer"), self._run()
        made = self._call("reply", run_id, text, "--oldest")
        for message_id in made["messageIds"] if made else ():
            self._say("reply", run_id, text, message_id)

    def converse(self) -> None:
        """A question, its answer, and the worker who picks it up."""
        text, run_id = self._text("answer"), self._run()
        if not (asked := self._call("ask", "And now?", "--run", run_id)):
            return
        message_id = asked["messageId"]
        self._say("ask", run_id, "And now?", message_id)
        if self._call("reply", message_id, text):
            self._say("reply", run_id, text, message_id)
        if (found := self._call("check", message_id)) and found["answer"]:
            self._say("check", run_id, found["answer"], message_id)

    def tell(self) -> None:
        text, run_id = self._text("note"), self._run()
        if self._call("tell", text, "--run", run_id):
            self._say("tell", run_id, text)

    def update(self) -> None:
        text, run_id = self._text("summary"), self._run()
        if self._call("update", run_id, "running", "--summary", text):
            self._say("update", run_id, text)

    def grant(self) -> None:
        target, grantee = self._run(), self._run()
        if self._call("grant", target, grantee, "send_messages"):
            self._say("grant", target, grantee)

    def put(self) -> None:
        text = self._text("message")
        if made := self._call("message", "put", "--text", text):
            self._say("put", "", text, made["message_id"])

    def send(self) -> None:
        text, run_id = self._text("message"), self._run()
        if made := self._call("send", run_id, "--text", text):
            self._say("put", "", text, made["message_id"])
            self._say("send", run_id, "", made["message_id"])

    def hand_in(self) -> None:
        """A run of the writer's own, from its beginning to its end."""
        task, text = self._text("task"), self._text("outcome")
        if made := self._call("create", "worker", task):
            self._say("create", made["runId"], task)
            if self._call("submit", "result", text, env=made["env"]):
                self._say("submit", made["runId"], text)

    def spawn(self) -> None:
        task = self._text("task")
        if made := self._call("spawn", "--task", task, "--task", task, "--", "true"):
            self._say("spawn", "", task, made["group_id"])

    def sweep(self) -> None:
        if self._call("sweep"):
            self._say("sweep", "", "")

    def _run(self) -> str:
        return self._chance.choice(self._run_ids)

    def _text(self, what: str) -> str:
        self._said += 1
        return f"{what} {self._seed}-{self._said}"

    def _call(self, *words: str, env: Mapping[str, str] = NOBODY) -> Any:
        """What the call says, if it was acknowledged; a failure that nothing has caused is said as a fault."""
        said = typed(self._root, words, env)
        if said.code not in GOOD:
            self._say("fault", "", f"{words[0]} ended with {said.code}: {said.out} {said.err}")
        return json.loads(said.out) if said.code == 0 else None

    def _say(self, verb: str, run_id: str, text: str, other: str = "") -> None:
        os.write(self._fd, json.dumps([verb, run_id, text, other]).encode() + b"\n")


def chat(root: str, seed: str, run_ids: Sequence[str], fd: int) -> None:
    """Goes on until it is killed."""
    writer = Writer(root, seed, run_ids, fd)
    while True:
        writer.turn()

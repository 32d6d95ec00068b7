"""One who does at random what parents, workers and onlookers do, on a few runs at once, and writes it all down."""

import os
import random
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from subagent_cli.core.errors import SubagentError
from subagent_cli.services import outcomes, questions, runs
from subagent_cli.services.context import Context
from subagent_cli.services.settings import Caller
from subagent_cli.services.sweep import sweep
from tests.store.world import open_at
from tests.stress.history import Diary

ENDING = 0.04
FIRST = 0.05


class Player:
    """One process. Every text that it writes is written once only, by nobody else."""

    def __init__(self, root: Path, tokens: dict[str, str], diary: Diary, chance: random.Random) -> None:
        self.root, self.tokens, self.diary, self.chance = root, tokens, diary, chance
        self.context = open_at(root)
        self.numbers = count()
        self.known: dict[str, list[str]] = {run_id: [] for run_id in tokens}

    def play(self, weights: Mapping[str, float], until: float) -> int:
        verbs = self.chance.choices(list(weights), list(weights.values()), k=100_000)
        done = 0
        while time.monotonic() < until:
            if self.chance.random() < FIRST:
                self.context = open_at(self.root)
            act: Callable[[str], None] = getattr(self, f"_{verbs[done]}")
            act(self.chance.choice(list(self.tokens)))
            done += 1
        return done

    def _text(self, kind: str) -> str:
        return f"{kind} {next(self.numbers)} of {os.getpid()}"

    def _ask(self, run_id: str) -> None:
        args: dict[str, Any] = {"text": self._text("question")}
        if self.chance.random() < 0.1:
            args["deadline"] = self.chance.randrange(1, 200)
            args["default"] = self.chance.choice([None, self._text("default")])

        def ask() -> Any:
            words = {key: value for key, value in args.items() if key not in ("text", "run")}
            return questions.ask(self.context, args["text"], run=run_id, **words)["messageId"]

        if message_id := self.diary.call("ask", {"run": run_id, **args}, ask):
            self.known[run_id].append(message_id)

    def _reply(self, run_id: str) -> None:
        answer = self._text("answer")
        if self.chance.random() < 0.2 or not self.known[run_id]:
            which = self.chance.choice(["oldest", "latest", "all"])
            args = {"run": run_id, "answer": answer, "which": which}
            self.diary.call(
                "reply", args, lambda: questions.reply(self.context, run_id, answer, which=which)["messageIds"]
            )
            return
        message_id = self._pick(run_id)
        args = {"run": run_id, "answer": answer, "message": message_id}
        self.diary.call(
            "reply", args, lambda: questions.reply(self.context, run_id, answer, message=message_id)["messageIds"]
        )

    def _pick(self, run_id: str) -> str:
        """One of the newest: those have not all been answered yet."""
        return self.chance.choice(self.known[run_id][-8:])

    def _check(self, run_id: str) -> None:
        if not self.known[run_id]:
            return
        message_id, peek = self._pick(run_id), self.peeks()

        def check() -> Any:
            found = questions.check(self.context, message_id, run=run_id, peek=peek)
            return {"state": found["state"], "answer": found["answer"], "warnings": found["warnings"]}

        self.diary.call("check", {"run": run_id, "message": message_id, "peek": peek}, check)

    def _status(self, run_id: str) -> None:
        peek = self.peeks()

        def status() -> Any:
            found = runs.status(self.context, run_id, peek=peek)
            entries = found.get("messages", [])
            self.known[run_id] = [entry["messageId"] for entry in entries]
            return {
                "phase": found["status"],
                "summary": found["summary"],
                "notes": [note["text"] for note in found["notes"]],
                "messages": [[entry["messageId"], entry["state"], _answer(entry)] for entry in entries],
                "warnings": found["warnings"],
            }

        self.diary.call("status", {"run": run_id, "peek": peek}, status)

    def peeks(self) -> bool:
        return self.chance.random() < 0.5

    def _pending(self, _run_id: str) -> None:
        def pending() -> Any:
            found, faults = questions.pending(self.context)
            if faults:
                raise faults[0]
            return [[item["run_id"], item["message_id"]] for item in found]

        self.diary.call("pending", {}, pending)

    def _tell(self, run_id: str) -> None:
        text = self._text("note")
        self.diary.call(
            "tell", {"run": run_id, "text": text}, lambda: bool(questions.tell(self.context, text, run=run_id))
        )

    def _update(self, run_id: str) -> None:
        status, text = "running", self._text("summary")
        if self.chance.random() < ENDING:
            status = self.chance.choice(["success", "completed", "error"])
        self.diary.call(
            "update",
            {"run": run_id, "status": status, "text": text},
            lambda: runs.update(self.context, run_id, status, text)["status"],
        )

    def _submit(self, run_id: str) -> None:
        word, text = self.chance.choice(["result", "error"]), self._text("outcome")
        worker: Context = self.context._replace(caller=Caller(run_id, self.tokens[run_id]))
        self.diary.call(
            "submit",
            {"run": run_id, "word": word, "text": text},
            lambda: outcomes.submit(worker, word, text)["status"],
        )

    def _sweep(self, _run_id: str) -> None:
        def swept() -> Any:
            faults: list[SubagentError] = sweep(self.context)[1]
            if faults:
                raise faults[0]

        self.diary.call("sweep", {}, swept)


class Onlooker(Player):
    """One that only ever looks."""

    def peeks(self) -> bool:
        return True


def _answer(entry: dict[str, Any]) -> str | None:
    answer: str | None = entry["answerContent"] if entry["state"] in ("ANSWERED", "RETRIEVED") else None
    return answer

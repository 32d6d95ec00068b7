"""What writers were told is safe, held against what is on disk.

A promise is what `chatter` says of an acknowledged call: the verb, the run, the text, and what else it is known by.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subagent_cli.core.errors import SubagentError
from subagent_cli.core.question import RETRIEVED
from subagent_cli.core.run import Run
from subagent_cli.store.groups import Groups
from subagent_cli.store.messages import Messages
from tests.store.world import open_at, truth

Line = Sequence[str]


class Promises:
    """What writers were told, held against what is on disk."""

    def __init__(self, root: Path) -> None:
        self._root, self._context = root, open_at(root)
        self._known: dict[str, Run] = {}

    def kept(self, line: Line) -> bool:
        verb, run_id, text, other = line
        try:
            return self._kept(verb, run_id, text, other)
        except (SubagentError, KeyError, TypeError):
            return False

    def _kept(self, verb: str, run_id: str, text: str, other: str) -> bool:
        match verb:
            case "ask":
                return self._run(run_id).questions[other].text == text
            case "reply":
                return self._run(run_id).questions[other].answer == text
            case "check":
                question = self._run(run_id).questions[other]
                return (question.answer, question.state) == (text, RETRIEVED)
            case "grant":
                return any(row.grantee == text for row in self._run(run_id).grants.values())
            case "put":
                return bool(self._message(other)["content"] == {"text": text})
            case "send":
                return other in self._run(run_id).inbox
            case "create":
                return bool(self._context.runs.spec(run_id)["task"] == text)
            case "submit":
                return self._run(run_id).text == text
            case "spawn":
                return self._spawned(other, text)
            case "sweep":
                return True
        return any(text in str(record) for record in self._context.runs.records(run_id))

    def _run(self, run_id: str) -> Run:
        if run_id not in self._known:
            self._known[run_id] = truth(self._root, run_id)
        return self._known[run_id]

    def _message(self, message_id: str) -> dict[str, Any]:
        return Messages(self._context.runs.layout).read(message_id) or {}

    def _spawned(self, group_id: str, task: str) -> bool:
        group = Groups(self._context.runs.layout).read(group_id)
        children = [child["runId"] for child in group["children"]] if group else []
        return len(children) == 2 and all(self._context.runs.spec(child)["task"] == task for child in children)


def broken(root: Path, lines: Sequence[Line]) -> list[Line]:
    """The promises that are not kept."""
    promises = Promises(root)
    return [line for line in lines if not promises.kept(line)]

"""What the tests of the services share: a clock that stands still until it is moved, and eyes for what lies on disk."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import SubagentError
from subagent_cli.core.ids import uuid7
from subagent_cli.core.moment import Moment
from subagent_cli.services import runs
from subagent_cli.services.context import Context
from subagent_cli.store.clock import Clock

FOREIGN_RUN = "0190a000-0000-7000-8000-00000000f0f0"
FOREIGN_MESSAGE = "0190a000-0000-7000-8000-00000000abcd"
STAMP = "2026-01-02T03:00:00.000Z"


class StillClock(Clock):
    """Time that passes only when a test says so; ids are as random as ever."""

    def __init__(self, ms: int = 1_767_323_045_678) -> None:
        super().__init__()
        self.ms = ms
        self.up = 90_000_000_000

    def now(self) -> Moment:
        return Moment(self.ms, "0b00b00b", self.up)

    def new_id(self) -> str:
        return uuid7(self.ms, os.urandom(10))

    def wait(self, ms: int = 1000) -> None:
        self.ms += ms
        self.up += ms


def create(desk: Context, name: str | None = None, task: str = "Do it") -> str:
    """A new run, a moment later than whatever was before it."""
    assert isinstance(desk.clock, StillClock)
    desk.clock.wait()
    run_id: str = runs.create(desk, "helper", task, name=name)["runId"]
    return run_id


def document(runs_dir: Path, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((runs_dir / run_id / ".meta.json").read_bytes())
    return found


def words(runs_dir: Path, run_id: str) -> tuple[str, list[str]]:
    """The run's status and the status of each of its messages, as they stand on disk."""
    found = document(runs_dir, run_id)
    return found["status"], [message["messageStatus"] for message in found.get("messages", [])]


def journal(runs_dir: Path, run_id: str) -> list[dict[str, Any]]:
    lines = (runs_dir / run_id / "journal.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def foreign_document(run_id: str = FOREIGN_RUN, **changes: Any) -> dict[str, Any]:
    new = {
        "runId": run_id,
        "agentName": "typescript",
        "command": "agent --go",
        "startTime": STAMP,
        "status": "running",
        "exitCode": None,
        "endTime": None,
        "summary": None,
    }
    return new | changes


def foreign_message(message_id: str = FOREIGN_MESSAGE, **changes: Any) -> dict[str, Any]:
    new = {
        "messageId": message_id,
        "questionContent": "Which?",
        "questionTimestamp": STAMP,
        "messageStatus": "pending_parent_reply",
    }
    return new | changes


def write_foreign(runs_dir: Path, run_id: str = FOREIGN_RUN, content: bytes | None = None, **changes: Any) -> Path:
    """A run as another program leaves it: a folder with a document, and nothing else of ours."""
    folder = runs_dir / run_id
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / ".meta.json"
    file.write_bytes(content if content is not None else json.dumps(foreign_document(run_id, **changes)).encode())
    return file


def snapshot(root: Path, *, locks: bool = True) -> dict[str, bytes | str | None]:
    """Everything below a folder: contents of files, targets of links. Lock files are no state and can be left out."""
    found: dict[str, bytes | str | None] = {}
    for path in root.rglob("*"):
        if not locks and ".locks" in path.parts:
            continue
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


@contextmanager
def refused(root: Path, kind: type[SubagentError], code: str) -> Iterator[None]:
    """What happens inside is refused with this code, and leaves no trace."""
    before = snapshot(root, locks=False)
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.code == code
    assert snapshot(root, locks=False) == before

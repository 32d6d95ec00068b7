"""A conversation between a worker and its parent, held in several ways: ours, in SQLite, in files.

Promises: a cycle is ask → reply → check with the same texts everywhere, three durable steps where anything is durable,
and an answer that did not arrive fails the measuring. `begin` makes a new conversation that has so many messages.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from typing import Protocol

from scripts.bench_rounds import new_run, opened
from subagent_cli.core.event import Acknowledged, Asked, Event, Replied
from subagent_cli.core.evolution import fold
from subagent_cli.core.projection import project
from subagent_cli.services import questions
from subagent_cli.store import codec, journal
from subagent_cli.store.clock import Clock

QUESTION, ANSWER = "Delete the old ones?", "yes"
LINE = 250


class Bus(Protocol):
    def begin(self, messages: int) -> None: ...

    def ask(self) -> str: ...

    def reply(self, message_id: str) -> None: ...

    def check(self, message_id: str) -> object: ...


def cycle(bus: Bus) -> None:
    message_id = bus.ask()
    bus.reply(message_id)
    if bus.check(message_id) != ANSWER:
        raise RuntimeError("the answer did not arrive")


def exchanges(clock: Clock, count: int) -> Iterator[Event]:
    """What so many cycles leave behind."""
    for _ in range(count):
        now, message_id = clock.now(), clock.new_id()
        yield Asked(now, message_id, QUESTION, now.iso)
        yield Replied(now, message_id, ANSWER, now.iso)
        yield Acknowledged(now, (message_id,))


class OurBus:
    """Through our services, in one process."""

    def __init__(self, folder: str) -> None:
        self.context = opened(os.path.join(folder, "runs"))
        self.run_id = ""

    def begin(self, messages: int) -> None:
        """The messages are there as if they had been exchanged, but in one commit: thousands would take minutes."""
        self.run_id = new_run(self.context)
        if not messages:
            return
        layout = self.context.runs.layout
        known = journal.read(layout.journal(self.run_id), self.run_id)
        events = list(exchanges(self.context.clock, messages))
        after = fold(known.run, events)
        picture = codec.document(project(after))
        said = [(event, None) for event in events]
        quarantine = layout.quarantine(self.run_id)
        journal.append(layout.journal(self.run_id), known, after, said, journal.digest(picture), quarantine)
        with open(layout.meta(self.run_id), "wb") as file:
            file.write(picture)

    def size(self) -> int:
        """How large the document is that every change writes anew."""
        return os.path.getsize(self.context.runs.layout.meta(self.run_id))

    def ask(self) -> str:
        message_id: str = questions.ask(self.context, QUESTION, run=self.run_id)["messageId"]
        return message_id

    def reply(self, message_id: str) -> None:
        questions.reply(self.context, message_id, ANSWER)

    def check(self, message_id: str) -> object:
        return questions.check(self.context, message_id)["answer"]


class SqliteBus:
    """In SQLite, which acknowledges nothing that a power cut could take away (WAL, FULL)."""

    def __init__(self, folder: str) -> None:
        self.clock = Clock()
        self.run_id = ""
        self.db = sqlite3.connect(os.path.join(folder, "bus.db"), isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute(
            "CREATE TABLE message (id TEXT PRIMARY KEY, run TEXT, question TEXT, asked TEXT, answer TEXT,"
            " answered TEXT, state TEXT)"
        )

    def begin(self, messages: int) -> None:
        self.run_id, at = self.clock.new_id(), self.clock.now().iso
        self.db.execute("BEGIN")
        self.db.executemany(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, 'RETRIEVED')",
            ((self.clock.new_id(), self.run_id, QUESTION, at, ANSWER, at) for _ in range(messages)),
        )
        self.db.execute("COMMIT")

    def ask(self) -> str:
        message_id = self.clock.new_id()
        self.db.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, NULL, NULL, 'PENDING')",
            (message_id, self.run_id, QUESTION, self.clock.now().iso),
        )
        return message_id

    def reply(self, message_id: str) -> None:
        self.db.execute(
            "UPDATE message SET answer = ?, answered = ?, state = 'ANSWERED' WHERE id = ? AND state = 'PENDING'",
            (ANSWER, self.clock.now().iso, message_id),
        )

    def check(self, message_id: str) -> object:
        found = self.db.execute("SELECT answer FROM message WHERE id = ?", (message_id,)).fetchone()
        self.db.execute("UPDATE message SET state = 'RETRIEVED' WHERE id = ? AND state = 'ANSWERED'", (message_id,))
        return found[0]


class FileBus:
    """With one JSON file that is replaced durably at every step: temporary, fsync, rename, fsync folder."""

    def __init__(self, folder: str) -> None:
        self.clock = Clock()
        self.folder = folder
        self.path = os.path.join(folder, "bus.json")
        self.messages: dict[str, dict[str, str]] = {}

    def begin(self, messages: int) -> None:
        at = self.clock.now().iso
        done = {"question": QUESTION, "asked": at, "answer": ANSWER, "answered": at, "state": "RETRIEVED"}
        self.messages = {self.clock.new_id(): dict(done) for _ in range(messages)}

    def ask(self) -> str:
        message_id = self.clock.new_id()
        self.messages[message_id] = {"question": QUESTION, "asked": self.clock.now().iso, "state": "PENDING"}
        self._save()
        return message_id

    def reply(self, message_id: str) -> None:
        self.messages[message_id].update(answer=ANSWER, answered=self.clock.now().iso, state="ANSWERED")
        self._save()

    def check(self, message_id: str) -> object:
        self.messages[message_id]["state"] = "RETRIEVED"
        self._save()
        return self.messages[message_id]["answer"]

    def _save(self) -> None:
        temporary = f"{self.path}.tmp"
        with open(temporary, "wb") as file:
            file.write(json.dumps(self.messages).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


class JournalBus(FileBus):
    """With the same file behind a journal: a line is appended and synced, then the file is replaced without a sync. So
    much each of our changes asks of the disk too."""

    def _save(self) -> None:
        # A line as long as one of ours.
        with open(os.path.join(self.folder, "journal"), "ab") as file:
            file.write(b"." * LINE + b"\n")
            file.flush()
            os.fdatasync(file.fileno())
        temporary = f"{self.path}.tmp"
        with open(temporary, "wb") as file:
            file.write(json.dumps(self.messages).encode())
        os.replace(temporary, self.path)

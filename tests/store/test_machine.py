"""The question loop against a model of it: whatever is called in whatever order, with other programs writing into the
document in between and days passing, nothing is lost, nothing goes backwards, and every look shows what the model
holds."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from subagent_cli.core.command import Settle
from subagent_cli.core.document import document_fits
from subagent_cli.core.errors import NotFound, Refused
from subagent_cli.core.moment import iso
from subagent_cli.core.projection import project
from subagent_cli.services import questions, runs
from subagent_cli.store import codec
from subagent_cli.store.runs import Runs
from tests.store.world import DAY, FakeClock, index_holds_at_least, journal_of, meta, new_run, open_at

FINISHED = {"success", "completed", "error"}
MAY_FOLLOW = {"success": {"success", "completed"}, "completed": {"success", "completed"}, "error": {"error"}}
WORDS = {
    "PENDING": "pending_parent_reply",
    "ANSWERED": "parent_replied",
    "RETRIEVED": "acknowledged_by_subagent",
    "EXPIRED": "parent_acknowledged",
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PICK = st.integers(0, 1_000_000)


class Conversation(RuleBasedStateMachine):
    """One run. `known` is the model: questions as dicts, their state as the journal must hold it.

    Whoever has been here all along looks after every step; somebody who has just come, and reads everything from its
    beginning, after every so many steps (`stranger_every`) and at the end.
    """

    home: Path
    stranger_every = 1
    begun = 0
    completed = 0
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).begun += 1
        self.step = 0
        self.folder = self.home / str(self.begun)
        self.clock = FakeClock()
        self.context = open_at(self.folder, self.clock)
        self.known: dict[str, dict[str, Any]] = {}
        self.phase = "pending"
        self.summary: str | None = None
        self.notes: list[str] = []
        self.extras: dict[str, Any] = {}
        self.older: list[Any] = []

    @initialize()
    def begin(self) -> None:
        self.run_id = new_run(self.context)

    def teardown(self) -> None:
        try:
            # After a failure there is one thing to say already.
            if sys.exc_info()[0] is None:
                self.somebody_who_has_just_come_sees_it_too()
                type(self).completed += 1
                type(self).steps += self.step
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def overdue(self, question: dict[str, Any]) -> bool:
        limit: int = DAY if question["deadline"] is None else question["deadline"]
        age: int = self.clock.ms - question["asked"]
        return question["state"] == "PENDING" and age > limit

    def shown(self, question: dict[str, Any]) -> tuple[str, str | None]:
        """State and answer as a look must show them now."""
        if not self.overdue(question):
            return question["state"], question["answer"]
        return ("EXPIRED", None) if question["default"] is None else ("ANSWERED", question["default"])

    def states(self) -> dict[str, str]:
        return {message_id: self.shown(question)[0] for message_id, question in self.known.items()}

    def status(self) -> str:
        states = self.states().values()
        if self.phase in FINISHED:
            return self.phase
        if "ANSWERED" in states:
            return "parent_replied"
        return "waiting_parent_reply" if "PENDING" in states else self.phase

    def committed(self) -> None:
        """A change of ours has gone through, so what time had brought about stands for good."""
        for question in self.known.values():
            question["state"], question["answer"] = self.shown(question)

    def new_question(self, message_id: str, text: str, **others: Any) -> None:
        self.known[message_id] = {
            "text": text,
            "state": "PENDING",
            "answer": None,
            "asked": self.clock.ms,
            "deadline": None,
            "default": None,
            **others,
        }
        if self.phase == "pending":
            self.phase = "running"

    def pick(self, place: int) -> str:
        return list(self.known)[place % len(self.known)]

    def refused(self, call: Callable[[], object]) -> None:
        files = (journal_of(self.folder, self.run_id), meta(self.folder, self.run_id))
        before = [file.read_bytes() for file in files]
        with pytest.raises(Refused):
            call()
        assert [file.read_bytes() for file in files] == before

    @rule(
        text=TEXTS,
        deadline=st.none() | st.integers(1, 2 * DAY),
        default=st.none() | TEXTS,
        single=st.sampled_from([False, False, False, True]),
    )
    def ask(self, text: str, deadline: int | None, default: str | None, single: bool) -> None:
        def call() -> Any:
            return questions.ask(self.context, text, run=self.run_id, deadline=deadline, default=default, single=single)

        still_open = {"PENDING", "ANSWERED"} & set(self.states().values())
        if self.phase in FINISHED or (single and still_open):
            self.refused(call)
            return
        made = call()
        assert made["warnings"] == []
        self.committed()
        self.new_question(made["messageId"], text, deadline=deadline, default=default)

    @precondition(lambda self: self.known)
    @rule(place=PICK, answer=st.text(st.characters(exclude_categories=["Cs"]), max_size=8), short=st.booleans())
    def reply(self, place: int, answer: str, short: bool) -> None:
        message_id = self.pick(place)

        def call() -> Any:
            if short:
                return questions.reply(self.context, self.run_id, answer, message=message_id)
            return questions.reply(self.context, message_id, answer)

        known_by_id = short or self.known[message_id].get("indexed", True)
        if not known_by_id:
            return
        if self.states()[message_id] != "PENDING":
            self.refused(call)
            return
        made = call()
        self.committed()
        self.known[message_id].update(state="ANSWERED", answer=answer)
        assert made["messageIds"] == [message_id]
        assert made["updatedMetadata"]["status"] == self.status()

    @rule(answer=TEXTS, which=st.sampled_from(["only", "oldest", "latest", "all"]))
    def reply_to_the_run(self, answer: str, which: str) -> None:
        def call() -> Any:
            return questions.reply(self.context, self.run_id, answer, which=which)

        pending = [message_id for message_id, state in self.states().items() if state == "PENDING"]
        if not pending or (which == "only" and len(pending) > 1):
            self.refused(call)
            return
        meant = {"only": pending, "oldest": pending[:1], "latest": pending[-1:], "all": pending}[which]
        assert call()["messageIds"] == meant
        self.committed()
        for message_id in meant:
            self.known[message_id].update(state="ANSWERED", answer=answer)

    @precondition(lambda self: self.known)
    @rule(place=PICK, peek=st.booleans())
    def check(self, place: int, peek: bool) -> None:
        message_id = self.pick(place)
        state, answer = self.shown(self.known[message_id])
        found = questions.check(self.context, message_id, run=self.run_id, peek=peek)
        assert (found["state"], found["answer"]) == (state, answer)
        assert found["messageStatus"] == WORDS[state]
        if state == "ANSWERED" and not peek:
            self.committed()
            self.known[message_id]["state"] = "RETRIEVED"

    @rule(peek=st.booleans())
    def look(self, peek: bool) -> None:
        unread = [message_id for message_id, state in self.states().items() if state == "ANSWERED"]
        found = runs.status(self.context, self.run_id, peek=peek)
        assert found["status"] == self.status()
        assert [message["state"] for message in found.get("messages", [])] == list(self.states().values())
        if unread and not peek:
            self.committed()
            for message_id in unread:
                self.known[message_id]["state"] = "RETRIEVED"

    @rule(
        status=st.sampled_from(["running", "running", "running", "success", "completed", "error"]),
        summary=st.none() | TEXTS,
    )
    def update(self, status: str, summary: str | None) -> None:
        if self.phase in FINISHED and status not in MAY_FOLLOW[self.phase]:
            self.refused(lambda: runs.update(self.context, self.run_id, status, summary))
            return
        found = runs.update(self.context, self.run_id, status, summary)
        self.committed()
        self.phase = status
        self.summary = self.summary if summary is None else summary
        assert (found["status"], found["summary"]) == (self.status(), self.summary)
        assert (found["endTime"] is not None) == (status in FINISHED)

    @rule(text=TEXTS)
    def tell(self, text: str) -> None:
        if self.phase in FINISHED:
            self.refused(lambda: questions.tell(self.context, text, run=self.run_id))
            return
        questions.tell(self.context, text, run=self.run_id)
        self.committed()
        self.notes.append(text)
        self.phase = "running"

    @rule()
    def somebody_new_looks(self) -> None:
        self.context = open_at(self.folder, self.clock)

    @rule()
    def a_question_that_was_never_asked_is_not_found(self) -> None:
        with pytest.raises(NotFound):
            questions.check(self.context, "0190a000-0000-7000-8000-0000000000ff", run=self.run_id)

    @rule(ms=st.sampled_from([1, 1000, DAY // 3, DAY - 1, DAY, DAY + 1, 3 * DAY]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    def theirs(self) -> Any:
        return json.loads(meta(self.folder, self.run_id).read_bytes())

    def write(self, found: Any) -> None:
        """In place, as a program does that knows nothing of the journal."""
        meta(self.folder, self.run_id).write_text(json.dumps(found, indent=2), encoding="utf-8")

    def pending_there(self, found: Any) -> list[Any]:
        return [entry for entry in found.get("messages", []) if entry["messageStatus"] == "pending_parent_reply"]

    @rule(place=PICK, answer=TEXTS)
    def another_program_replies(self, place: int, answer: str) -> None:
        found = self.theirs()
        if not (waiting := self.pending_there(found)):
            return
        entry = waiting[place % len(waiting)]
        entry.update(answerContent=answer, answerTimestamp=iso(self.clock.ms), messageStatus="parent_replied")
        found["status"] = "parent_replied"
        self.write(found)
        question = self.known[entry["messageId"]]
        if question["state"] == "PENDING":
            question.update(state="ANSWERED", answer=answer)

    @rule()
    def another_program_fetches_the_answers(self) -> None:
        found = self.theirs()
        for entry in found.get("messages", []):
            if entry["messageStatus"] == "parent_replied":
                entry["messageStatus"] = "acknowledged_by_subagent"
                question = self.known[entry["messageId"]]
                if question["state"] == "ANSWERED":
                    question["state"] = "RETRIEVED"
        found["status"] = "running"
        self.write(found)
        if self.phase == "pending":
            self.phase = "running"

    @rule(text=TEXTS)
    def another_program_asks(self, text: str) -> None:
        self.settle()
        found = self.theirs()
        message_id = self.clock.new_id()
        entry = {
            "messageId": message_id,
            "questionContent": text,
            "questionTimestamp": iso(self.clock.ms),
            "messageStatus": "pending_parent_reply",
        }
        # As the server does it: what it does not know of is gone.
        kept = ("runId", "agentName", "status", "messages", "command", "startTime", "endTime", "exitCode", "summary")
        found = {key: found[key] for key in kept if key in found}
        found["messages"] = [*found.get("messages", []), entry]
        found["status"] = "waiting_parent_reply"
        self.write(found)
        self.new_question(message_id, text, indexed=False)

    @rule(key=st.sampled_from(["plan", "7", "Über"]), value=st.integers(0, 3) | TEXTS)
    def another_program_adds_a_key(self, key: str, value: object) -> None:
        self.write({**self.theirs(), key: value})
        self.extras[key] = value

    @rule(keys=st.sets(st.sampled_from(["runId", "status", "summary", "plan", "messages", "exitCode", "startTime"])))
    def another_program_drops_keys(self, keys: set[str]) -> None:
        self.settle()
        self.write({key: value for key, value in self.theirs().items() if key not in keys})

    @rule()
    def another_program_begins_to_edit(self) -> None:
        self.settle()
        self.older.append(self.theirs())

    @precondition(lambda self: self.older)
    @rule(answer=TEXTS)
    def another_program_saves_what_it_read_long_ago(self, answer: str) -> None:
        self.settle()
        found = self.older.pop()
        for entry in self.pending_there(found)[:1]:
            entry.update(answerContent=answer, answerTimestamp=iso(self.clock.ms), messageStatus="parent_replied")
            question = self.known[entry["messageId"]]
            if question["state"] == "PENDING":
                question.update(state="ANSWERED", answer=answer)
        for key in set(found) & set(self.extras):
            self.extras[key] = found[key]
        self.write(found)

    def settle(self) -> None:
        """What others wrote is seen by a writer of ours before it can be overwritten."""
        self.context.runs.change(self.run_id, Settle(), self.clock.now)
        self.committed()
        for question in self.known.values():
            question.pop("indexed", None)
        found = self.theirs()
        assert document_fits(found)
        assert meta(self.folder, self.run_id).read_bytes() == codec.document(
            project(open_at(self.folder, self.clock).runs.read(self.run_id, self.clock.now()))
        )
        assert {key: found.get(key) for key in self.extras} == self.extras

    @invariant()
    def everybody_sees_what_the_model_holds(self) -> None:
        if not hasattr(self, "run_id"):
            return
        self.step += 1
        self.as_the_model_says(self.context.runs)
        if self.step % self.stranger_every == 0:
            self.somebody_who_has_just_come_sees_it_too()

    def as_the_model_says(self, store: Runs) -> None:
        found = store.read(self.run_id, self.clock.now())
        assert {each.id: (each.text, each.state, each.answer) for each in found.questions.values()} == {
            message_id: (question["text"], *self.shown(question)) for message_id, question in self.known.items()
        }
        assert found.status == self.status()
        assert found.summary == self.summary
        assert [note.text for note in found.notes] == self.notes[-10:]

    def somebody_who_has_just_come_sees_it_too(self) -> None:
        self.as_the_model_says(Runs(str(self.folder)))
        # The index misses nothing that a writer of ours has seen.
        if self.known and all(question.get("indexed", True) for question in self.known.values()):
            index_holds_at_least(self.folder, self.run_id)


def converse(machine: type[Conversation], examples: int, steps: int) -> None:
    """So many conversations of so many steps; the first that goes otherwise than the model says is made short."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


@pytest.mark.case("X2")
def test_a_conversation_goes_as_the_model_says(tmp_path: Path) -> None:
    class Here(Conversation):
        home = tmp_path / "foreign"

    converse(Here, 200, 30)
    assert Here.completed >= 200

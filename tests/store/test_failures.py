"""Whatever the system refuses, and wherever: an error of ours comes out, nothing is half done, a change that is safe
is a success, and the same call works when the cause is gone."""

import builtins
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from subagent_cli.core.command import Settle
from subagent_cli.core.errors import Busy, Failed, OutcomeUnknown, SubagentError
from subagent_cli.core.run import Run
from subagent_cli.services import listing, outcomes, questions, runs
from subagent_cli.services.context import Context
from subagent_cli.store import atomic, codec
from tests.store.world import (
    STAMP,
    children,
    document,
    ended,
    everything,
    index_holds_at_least,
    journal_of,
    meta,
    new_run,
    open_at,
    pipe,
    ready,
    shows_the_truth,
    truth,
)

ERRORS = [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES]
CALLS = ("open", "write", "fsync", "replace", "rename", "mkdir", "unlink", "ftruncate", "pwrite", "listdir")
RUN_FILES = {".meta.json", "journal.jsonl", "run.json", "prompt.md", "log"}
ROOT_FILES = {".index", ".locks", "README.md"}
MOST_CALLS = 200


class Fault:
    """An error at the n-th call that the store makes, or at that one and all that write after it."""

    def __init__(self, number: int, code: int, *, lasting: bool = False) -> None:
        self.left = number
        self.code = code
        self.lasting = lasting
        self.hit: str | None = None

    def wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            writes = name in ("open", "write", "mkdir", "pwrite")
            if self.left == 0 or (self.lasting and self.left < 0 and writes):
                self.hit = self.hit or name
                raise OSError(self.code, os.strerror(self.code))
            return real(*args, **kwargs)

        return call

    def reading(self, root: Path, real: Callable[..., Any]) -> Callable[..., Any]:
        """`open` as a reader uses it; files that are not the store's are none of our business."""
        counted = self.wrapped("reading", real)

        def call(file: Any, *args: Any, **kwargs: Any) -> Any:
            ours = isinstance(file, str) and file.startswith(str(root))
            return (counted if ours else real)(file, *args, **kwargs)

        return call


@contextmanager
def injected(fault: Fault, root: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, fault.wrapped(name, getattr(os, name)))
        patch.setattr(atomic, "_datasync", fault.wrapped("fdatasync", os.fdatasync))
        patch.setattr(builtins, "open", fault.reading(root, open))
        yield


class Verb(NamedTuple):
    """`call` is safe to repeat; `count` tells how much of it has happened."""

    prepare: Callable[[Context], str]
    call: Callable[[Context, str], Any]
    count: Callable[[Run], int]


def asked(context: Context) -> str:
    run_id = new_run(context)
    questions.ask(context, "Which?", run=run_id)
    return run_id


def answered(context: Context) -> str:
    run_id = asked(context)
    questions.reply(context, run_id, "This.")
    return run_id


VERBS = {
    "ask": Verb(
        new_run,
        lambda context, run_id: questions.ask(context, "Which?", run=run_id, key="k"),
        lambda run: len(run.questions),
    ),
    "reply": Verb(
        asked,
        lambda context, run_id: questions.reply(context, run_id, "That.", key="k"),
        lambda run: len(run.unread),
    ),
    "check": Verb(
        answered,
        lambda context, run_id: questions.check(context, context.runs.index.questions()[0], run=run_id),
        lambda run: sum(question.state == "RETRIEVED" for question in run.questions.values()),
    ),
    "update": Verb(
        asked,
        lambda context, run_id: runs.update(context, run_id, "success", "Done."),
        lambda run: int(run.status == "success"),
    ),
}


def tidy(root: Path, run_id: str) -> bool:
    """Whether nothing lies about that does not belong there."""
    in_run = {path.name for path in (root / run_id).iterdir()}
    in_root = {path.name for path in root.iterdir()} - set(open_at(root).runs.all())
    return in_run == RUN_FILES and in_root <= ROOT_FILES


def changed_under(fault: Fault, root: Path, verb: Verb) -> bool:
    """Does a change under a fault and holds the outcome against what is on disk; whether the fault was met."""
    run_id = verb.prepare(open_at(root))
    before = truth(root, run_id)
    files = everything(root / run_id)
    context = open_at(root)
    outcome: SubagentError | None = None
    made: Any = None
    try:
        with injected(fault, root):
            made = verb.call(context, run_id)
    except SubagentError as error:
        outcome = error
    after = truth(root, run_id)
    where = (fault.hit, outcome)
    if outcome is None:
        assert verb.count(after) == 1, where
        assert shows_the_truth(root, run_id) or made["warnings"], where
    elif isinstance(outcome, OutcomeUnknown):
        assert fault.hit == "fdatasync", where
        assert verb.count(after) in (0, 1), where
    else:
        assert after == before, where
        assert everything(root / run_id) == files, where
    index_holds_at_least(root, run_id)
    assert fault.lasting or tidy(root, run_id), where

    verb.call(context, run_id)
    assert verb.count(truth(root, run_id)) == 1, where
    # A call that finds nothing left to do may leave the mending to the next change.
    context.runs.change(run_id, Settle(), context.clock.now)
    assert shows_the_truth(root, run_id), where
    index_holds_at_least(root, run_id)
    assert tidy(root, run_id), where
    return fault.hit is not None


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("verb", VERBS)
def test_a_change_survives_an_error_at_any_of_its_calls(tmp_path: Path, verb: str, code: int, lasting: bool) -> None:
    number = 1
    while changed_under(Fault(number, code, lasting=lasting), tmp_path / str(number), VERBS[verb]):
        number += 1
        assert number < MOST_CALLS
    assert number > 8


@pytest.mark.parametrize("first", [True, False], ids=["first run", "later run"])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_run_is_there_or_not_whatever_call_of_its_making_fails(tmp_path: Path, code: int, first: bool) -> None:
    number, hit = 1, True
    while hit:
        root = tmp_path / str(number)
        others = [] if first else [new_run(open_at(root))]
        context = open_at(root)
        fault = Fault(number, code)
        made: Any = None
        outcome: SubagentError | None = None
        try:
            with injected(fault, root):
                made = runs.create(context, "worker", "do it", name="it")
        except SubagentError as error:
            outcome = error
        where = (number, fault.hit, outcome)
        new = [run_id for run_id in open_at(root).runs.all() if run_id not in others]
        if made is not None:
            assert new == [made["runId"]], where
        elif not isinstance(outcome, OutcomeUnknown):
            assert new == [], where
        for run_id in new:
            assert tidy(root, run_id), where
            assert shows_the_truth(root, run_id), where
            index_holds_at_least(root, run_id)
        if root.exists():
            leftovers = {path.name for path in root.iterdir()} - set(others) - set(new)
            assert leftovers <= ROOT_FILES, where

        again = runs.create(context, "worker", "do it", name="it")["runId"]
        assert tidy(root, again), where
        index_holds_at_least(root, again)
        hit = fault.hit is not None
        number += 1
        assert number < MOST_CALLS
    assert number > 20


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_key_makes_one_run_whatever_call_fails(tmp_path: Path, code: int) -> None:
    number, hit = 1, True
    while hit:
        root = tmp_path / str(number)
        context = open_at(root)
        fault = Fault(number, code)
        try:
            with injected(fault, root):
                runs.create(context, "worker", "do it", key="k")
        except SubagentError:
            pass
        made = runs.create(context, "worker", "do it", key="k")["runId"]
        assert context.runs.all() == [made], (number, fault.hit)
        hit = fault.hit is not None
        number += 1
        assert number < MOST_CALLS


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    "look",
    [
        lambda context: runs.status(context, "it", peek=True),
        lambda context: listing.find(context),
        lambda context: listing.find(context, active=True),
        lambda context: questions.pending(context),
        lambda context: questions.check(context, context.runs.index.questions()[0], peek=True),
        lambda context: outcomes.result(context, "@last"),
    ],
    ids=["status", "list", "active", "pending", "check", "result"],
)
def test_whoever_only_looks_meets_no_other_error_than_ours(
    tmp_path: Path, code: int, look: Callable[[Context], Any]
) -> None:
    root = tmp_path / "runs"
    run_id = runs.create(open_at(root), "worker", "do it", name="it")["runId"]
    questions.ask(open_at(root), "Which?", run=run_id)
    runs.update(open_at(root), run_id, "success")
    there = everything(root)
    number, hit = 1, True
    while hit:
        fault = Fault(number, code)
        context = open_at(root)
        try:
            with injected(fault, root):
                look(context)
        except SubagentError:
            pass
        hit = fault.hit is not None
        number += 1
        assert number < MOST_CALLS
    assert everything(root) == there


def test_an_error_that_is_not_damage_is_not_called_damage(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = asked(context)
    for number in (1, 2):
        fault = Fault(number, errno.EMFILE)
        with pytest.raises(Failed, match=os.strerror(errno.EMFILE)) as caught, injected(fault, root):
            context.runs.read(run_id, context.clock.now())
        assert caught.value.hint is not None
        assert "too many open files" in caught.value.hint


def test_a_failed_sync_is_an_outcome_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = new_run(context)
    syncs = []

    def broken(fd: int) -> None:
        syncs.append(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "_datasync", broken)
        with pytest.raises(OutcomeUnknown) as caught:
            questions.ask(context, "Which?", run=run_id, key="k")
    assert caught.value.code == "outcome_unknown"
    assert caught.value.hint is not None
    assert "--key" in caught.value.hint
    # The kernel forgets a failed sync: a second one would succeed and prove nothing.
    assert len(syncs) == 1
    questions.ask(context, "Which?", run=run_id, key="k")
    assert len(truth(root, run_id).questions) == 1


def test_an_entry_of_the_index_that_could_not_be_written_is_written_by_the_next_change(tmp_path: Path) -> None:
    root = tmp_path / "foreign" / "runs"
    run_id = new_run(open_at(root))
    stranger = "0190a000-0000-7000-8000-0000000000aa"
    entry = {
        "messageId": stranger,
        "questionContent": "Asked through another program?",
        "questionTimestamp": STAMP.replace("2026", "2999"),
        "messageStatus": "pending_parent_reply",
    }
    meta(root, run_id).write_bytes(codec.document({"runId": run_id, "messages": [entry]}))
    number, hit = 1, True
    while hit:
        copy = tmp_path / "foreign" / str(number)
        fault = Fault(number, errno.ENOSPC)
        shutil.copytree(root, copy)
        try:
            with injected(fault, copy):
                questions.ask(open_at(copy), "Which?", run=run_id)
        except SubagentError:
            questions.ask(open_at(copy), "Which?", run=run_id)
        index_holds_at_least(copy, run_id)
        assert questions.check(open_at(copy), stranger)["state"] == "PENDING"
        hit = fault.hit is not None
        number += 1


@pytest.mark.parametrize("verb", ["ask", "reply", "check", "update"])
def test_on_a_full_disk_a_change_fails_whole_and_works_when_there_is_room(tmp_path: Path, verb: str) -> None:
    root = tmp_path / "runs"
    context = open_at(root)
    run_id = answered(context) if verb == "check" else asked(context)
    size = journal_of(root, run_id).stat().st_size
    files = everything(root / run_id)
    before = truth(root, run_id)
    for room in (0, 1, 50, 150):
        with children(("full_disk", root, size + room, verb, run_id)) as [process]:
            assert ended(process) == ["Failed io_error"], room
        assert everything(root / run_id) == files, room
        assert truth(root, run_id) == before
    with children(("full_disk", root, 1 << 20, verb, run_id)) as [process]:
        assert ended(process) == ["done"]
    assert truth(root, run_id) != before
    assert shows_the_truth(root, run_id)
    assert tidy(root, run_id)


def test_on_a_full_disk_a_change_that_is_in_the_journal_is_a_success(tmp_path: Path) -> None:
    root = tmp_path / "foreign" / "runs"
    run_id = new_run(open_at(root))
    # Somebody's numbers take a line each in the document and two letters each in the journal.
    meta(root, run_id).write_bytes(codec.document({**document(root, run_id), "numbers": [1] * 2000}))
    questions.ask(open_at(root), "Which?", run=run_id)
    journal, picture = journal_of(root, run_id).stat().st_size, meta(root, run_id).stat().st_size
    assert journal + 1000 < picture, "there must be room for the one and none for the other"
    with children(("full_disk", root, picture, "ask", run_id)) as [process]:
        assert ended(process) == ["done"]
    assert meta(root, run_id).stat().st_size == picture
    assert truth(root, run_id).pending[-1].text == "And now?"
    assert tidy(root, run_id)
    questions.ask(open_at(root), "Is there room?", run=run_id)
    assert shows_the_truth(root, run_id)


def test_a_run_does_not_appear_on_a_full_disk(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    new_run(open_at(root))
    there = {path.name for path in root.iterdir()}
    for room in (0, 20, 100, 200):
        with children(("full_disk", root, room, "create", "")) as [process]:
            assert ended(process) == ["Failed io_error"], room
        assert {path.name for path in root.iterdir()} == there


def test_a_busy_run_says_who_holds_it_and_is_free_when_the_holder_lets_go(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    run_id = new_run(open_at(root))
    files = everything(root)
    context = open_at(root, lock_timeout="200ms")
    with children(("hold", root, run_id)) as [holder]:
        ready(holder)
        began = time.monotonic()
        with pytest.raises(Busy, match=f"process {holder.pid} .*has held it for more than 0.2 s") as caught:
            questions.ask(context, "Which?", run=run_id)
        assert 0.2 <= time.monotonic() - began < 5
        assert caught.value.code == "busy"
        assert everything(root / run_id) == {
            name.removeprefix(f"{run_id}/"): data for name, data in files.items() if name.startswith(run_id)
        }
        assert runs.status(context, run_id)["status"] == "pending"
        pipe(holder.stdin).close()
        assert holder.wait(10) == 0
        questions.ask(context, "Which?", run=run_id)
    assert document(root, run_id)["status"] == "waiting_parent_reply"

"""Groups: whatever happens to the children and in whatever order, what is pending and what is completed add up, nothing
that has come is lost or changed, and a wait ends with the last of them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import Damaged, Denied, InvalidInput, NotFound, Refused
from subagent_cli.core.run import RUNNING
from subagent_cli.core.transition import LOST_TEXT
from subagent_cli.services import clean, groups, listing, outcomes, questions, runs, specs, sweep, waiting
from subagent_cli.services.context import Context, Payload, open_context
from subagent_cli.services.settings import Caller
from subagent_cli.store.alive import Claim
from subagent_cli.store.groups import Groups
from tests.services.desk import StillClock, create, journal, refused, snapshot

LOST = {"failure": {"error": LOST_TEXT, "error_kind": "lost"}}
NOBODY = "0190a000-0000-7000-8000-000000000000"


class Child:
    """A run whose keeper is this test: it lives as long as the claim is held."""

    def __init__(self, desk: Context, task: str, group_id: str) -> None:
        assert isinstance(desk.clock, StillClock)
        desk.clock.wait(1)
        self._desk = desk
        self.token = desk.clock.new_token()
        spec = specs.new_spec(desk, "helper", task, self.token)
        self.spec = {**spec, "groupId": group_id, "argv": ["helper"]}
        self.id: str = spec["runId"]
        self.claim = Claim()
        desk.runs.create(self.spec, task, RUNNING, desk.clock.now(), None, self.claim)
        self.keeper = True
        self.outcome: dict[str, Any] | None = None
        self.cancelled = False
        self.written = True

    @property
    def over(self) -> bool:
        return self.outcome is not None and not self.keeper

    def worker(self) -> Context:
        return self._desk._replace(caller=Caller(self.id, self.token))

    @property
    def decided(self) -> bool:
        """That a keeper is dead is no outcome before somebody writes it down: until then the worker and whoever
        cancels have their say."""
        return self.outcome is not None and self.written

    def _decide(self, outcome: dict[str, Any]) -> bool:
        first = not self.decided
        if first:
            self.outcome, self.written = outcome, True
        return first

    def submits(self, word: str, text: str) -> None:
        """The first outcome stands; another one is refused, the same one again is no harm."""
        outcome = {"success": {"result": text}} if word == "result" else failure(text, "sub_agent_error")
        if not self.decided or (self.outcome == outcome and self.submitted):
            outcomes.submit(self.worker(), word, text)
            self._decide(outcome)
        else:
            with pytest.raises(Refused) as caught:
                outcomes.submit(self.worker(), word, text)
            assert caught.value.code == "run_finished"

    @property
    def submitted(self) -> bool:
        return self._desk.runs.read(self.id, self._desk.clock.now()).submitted

    def stops(self, kind: str) -> None:
        if kind == "timed_out" and not self.keeper:
            # Nobody is there who would look at the clock.
            return
        gone = self._desk.runs.read(self.id, self._desk.clock.now()).gone
        self._desk.runs.change(self.id, wanted.Stop(kind, f"it was {kind}", 0, gone), self._desk.clock.now)
        late = self.over
        self._decide(failure("Sub-agent runtime not found" if gone else f"it was {kind}", kind))
        # Whoever has an outcome of its own is stopped too, but not for having been out of time.
        timed_out = (self.outcome or {}).get("failure", {}).get("error_kind") == "timed_out"
        self.cancelled = self.cancelled or (kind == "cancelled" and not late and not timed_out)

    def exits(self, code: int) -> None:
        if not self.keeper:
            return
        self._desk.runs.change(self.id, wanted.Exit(1, code, output=f"exit {code}"), self._desk.clock.now)
        self._decide({"success": {"result": "exit 0"}} if code == 0 else failure(f"exit {code}", "sub_agent_error"))
        self.claim.drop()
        self.keeper = False

    def keeper_dies(self) -> None:
        self.claim.drop()
        if self.keeper and self._decide(LOST):
            self.written = False
        self.keeper = False

    def asks(self) -> None:
        if self.outcome is None:
            questions.ask(self.worker(), "Which?")

    def is_answered(self) -> None:
        if questions.pending(self._desk, self.id)[0] and self.outcome is None:
            questions.reply(self._desk, self.id, "That", which="oldest")

    def is_taken_for_another(self) -> None:
        """Somebody without the right token: refused, and nothing changes."""
        before = journal(Path(self._desk.runs.layout.root), self.id)
        with pytest.raises(Denied):
            outcomes.submit(self._desk, "result", "from a stranger")
        assert journal(Path(self._desk.runs.layout.root), self.id) == before


def failure(text: str, kind: str) -> dict[str, Any]:
    return {"failure": {"error": text, "error_kind": kind}}


class Family:
    """A group of children, and what was seen of it so far."""

    def __init__(self, desk: Context, size: int) -> None:
        self._desk = desk
        self.id = desk.clock.new_id()
        self.children = [Child(desk, f"task {number}", self.id) for number in range(size)]
        record(desk, self.id, [child.id for child in self.children])
        self.ids = [child.id for child in self.children]
        self._seen = groups.status(desk, self.id)
        assert (self._seen["state"], self._seen["pending"], self._seen["completed"]) == (groups.AWAITING, self.ids, [])

    def check(self) -> None:
        before, found = self._seen, groups.status(self._desk, self.id)
        pending, completed = found["pending"], found["completed"]
        # Conservation.
        assert len(pending) + len(completed) == len(self.ids)
        assert sorted([*pending, *completed]) == sorted(self.ids)
        # Monotonicity.
        assert set(pending) <= set(before["pending"])
        assert set(completed) >= set(before["completed"])
        # What is known of each.
        assert completed == [child.id for child in self.children if child.over]
        results = {item["agent_id"]: item for item in found["sub_agent_results"]}
        assert list(results) == completed
        for item in before["sub_agent_results"]:
            assert results[item["agent_id"]] == item or item["outcome"] == LOST
        for number, child in enumerate(self.children):
            if child.over:
                assert results[child.id]["task"] == f"task {number}"
                assert results[child.id]["outcome"] == child.outcome
        self._state(found)
        self._waits(found)
        self._seen = found

    def sweep(self) -> None:
        sweep.sweep(self._desk)
        for child in self.children:
            child.written = True

    def _state(self, found: Payload) -> None:
        pending = [child for child in self.children if not child.over]
        cancelling = any(child.cancelled for child in pending)
        assert found["state"] == (groups.CANCELLING if cancelling else groups.AWAITING if pending else groups.DONE)

    def _waits(self, found: Payload) -> None:
        """The wait ends with the last outcome, exactly then; a quorum with as many as were wanted."""
        done = len(found["completed"])
        for count in (None, 1, len(self.ids)):
            woke = waiting.for_runs(self._desk, [self.id], count=count, timeout=0, questions_too=False)
            assert woke["woke"] == ("done" if done >= (count or len(self.ids)) else "timeout")
            assert woke["sub_agent_results"] == found["sub_agent_results"]
            assert woke["pending"] == ([] if done == len(self.ids) else [self.id])

    def close(self) -> None:
        for child in self.children:
            child.claim.drop()


def record(desk: Context, group_id: str, run_ids: list[str]) -> None:
    children = [{"runId": run_id, "agentName": "helper", "task": "Do it"} for run_id in run_ids]
    made = {"version": 1, "groupId": group_id, "parentId": None, "deadlineSeconds": None, "children": children}
    Groups(desk.runs.layout).create({**made, "createdAt": desk.clock.now().iso, "keyDigest": None})


def removed(desk: Context, *run_ids: str) -> None:
    clean.delete(desk, clean.plan(desk, run_ids))


@contextmanager
def family(size: int) -> Iterator[Family]:
    """In a store of its own, so that no example knows of another."""
    with tempfile.TemporaryDirectory() as folder:
        made = Family(open_context({"runs_dir": f"{folder}/runs"}, StillClock()), size)
        try:
            yield made
        finally:
            made.close()


WORDS = ("submits result", "submits error", "exits 0", "exits 1", "stops cancelled", "stops timed_out")
OTHERS = ("asks", "is_answered", "is_taken_for_another", "sweep", "look")


def happens(group: Family, number: int, word: str) -> None:
    verb, _, rest = word.partition(" ")
    child = group.children[number % len(group.children)]
    if verb == "sweep":
        group.sweep()
    elif verb == "submits":
        child.submits(rest, "it")
    elif verb == "exits":
        child.exits(int(rest))
    elif verb == "stops":
        child.stops(rest)
    elif verb != "look":
        getattr(child, verb)()


def steps(*words: str) -> st.SearchStrategy[list[tuple[int, str]]]:
    return st.lists(st.tuples(st.integers(0, 3), st.sampled_from(words)), max_size=14)


@pytest.mark.case("C2-24", "C2-25", "C2-26", "C2-28", "C2-29")
@given(st.integers(1, 4), steps(*WORDS, *OTHERS))
def test_pending_and_completed_add_up_whatever_happens(size: int, life: list[tuple[int, str]]) -> None:
    with family(size) as group:
        for number, word in life:
            happens(group, number, word)
            group.check()
        for child in group.children:
            child.exits(0)
            group.check()


@pytest.mark.case("C2-24", "C2-25", "C2-26")
@given(st.integers(1, 4), steps(*WORDS, "keeper_dies", "sweep", "look"))
def test_pending_and_completed_add_up_though_keepers_die(size: int, life: list[tuple[int, str]]) -> None:
    with family(size) as group:
        for number, word in life:
            happens(group, number, word)
            group.check()
        for child in group.children:
            child.keeper_dies()
            group.check()


@pytest.mark.case("C2-25", "C2-28")
@given(st.permutations(range(4)), st.lists(st.sampled_from(WORDS), min_size=4, max_size=4))
def test_all_orders_of_ends_come_to_the_same(order: list[int], words: list[str]) -> None:
    with family(4) as group:
        for number in order:
            happens(group, number, words[number])
            group.check()
            group.children[number].exits(1)
            group.check()


@pytest.mark.case("C2-29")
@given(st.lists(st.sampled_from(["submits result", "submits error", "exits 0", "exits 3"]), min_size=1, max_size=4))
def test_outcomes_that_came_early_end_a_wait_at_once(words: list[str]) -> None:
    with family(len(words)) as group:
        for number, word in enumerate(words):
            happens(group, number, word)
            group.children[number].exits(0)
        group.check()


def test_a_lost_child_stays_lost_once_that_is_written_down(desk: Context) -> None:
    group = Family(desk, 2)
    first, second = group.children
    for child in group.children:
        child.keeper_dies()
    assert waiting.for_runs(desk, [group.id])["woke"] == "done"
    # Its worker lives on without a keeper: what it has to say before anybody settles the matter is not thrown away.
    first.submits("result", "after all")
    group.sweep()
    with pytest.raises(Refused):
        outcomes.submit(second.worker(), "result", "too late")
    came = [item["outcome"] for item in waiting.for_runs(desk, [group.id])["sub_agent_results"]]
    assert came == [{"success": {"result": "after all"}}, LOST]


@pytest.mark.case("C2-27")
def test_a_strangers_outcome_changes_nothing_in_the_group(desk: Context) -> None:
    group, other = Family(desk, 2), Family(desk, 1)
    before = groups.status(desk, group.id)
    other.children[0].submits("result", "mine")
    other.children[0].exits(0)
    assert groups.status(desk, group.id) == before
    with pytest.raises(Denied):
        outcomes.submit(desk, "result", "no identity")
    with pytest.raises(Denied):
        outcomes.submit(desk._replace(caller=Caller(group.ids[0], None)), "result", "no proof")
    assert groups.status(desk, group.id) == before
    group.close()


@pytest.mark.case("C2-27")
def test_a_token_of_another_child_proves_nothing(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Family(desk, 2)
    monkeypatch.setenv("SUBAGENT_RUN_ID", group.ids[0])
    monkeypatch.setenv("SUBAGENT_TOKEN", group.children[1].token)
    with refused(runs_dir, Denied, "denied"):
        outcomes.submit(open_context({"runs_dir": str(runs_dir)}, clock), "result", "not mine")
    monkeypatch.undo()
    group.check()
    group.close()


@pytest.mark.case("C2-37", "C2-38")
def test_a_group_is_cancelling_while_one_of_the_cancelled_has_not_ended(desk: Context) -> None:
    group = Family(desk, 3)
    first, second, third = group.children
    second.submits("result", "in time")
    second.exits(0)
    for child in (first, third):
        child.stops("cancelled")
        group.check()
    found = groups.status(desk, group.id)
    assert (found["state"], found["pending"], found["completed"]) == (
        groups.CANCELLING,
        [first.id, third.id],
        [second.id],
    )
    first.exits(143)
    group.check()
    third.exits(0)
    group.check()
    kinds = [next(iter(item["outcome"])) for item in groups.status(desk, group.id)["sub_agent_results"]]
    assert kinds == ["failure", "success", "failure"]


def test_a_worker_that_calls_itself_cancelled_makes_no_group_look_cancelled(desk: Context) -> None:
    group = Family(desk, 2)
    outcomes.submit(group.children[0].worker(), "error", "I gave up", kind="cancelled")
    assert groups.status(desk, group.id)["state"] == groups.AWAITING
    group.close()


@pytest.mark.case("C2-31", "C2-32", "X19")
def test_an_outcome_has_the_form_of_the_seed(desk: Context) -> None:
    group = Family(desk, 2)
    first, second = group.children
    first.submits("result", "well done")
    outcomes.submit(second.worker(), "error", "slow down", kind="rate_limit")
    for child in group.children:
        desk.runs.change(child.id, wanted.Exit(1, 0), desk.clock.now)
    assert groups.status(desk, group.id)["sub_agent_results"] == [
        {"agent_id": first.id, "task": "task 0", "outcome": {"success": {"result": "well done"}}},
        {"agent_id": second.id, "task": "task 1", "outcome": failure("slow down", "rate_limit")},
    ]
    group.close()


@pytest.mark.case("C2-34")
def test_a_group_none_of_whose_children_is_left_is_no_wait(desk: Context, clock: StillClock) -> None:
    run_id = create(desk)
    group_id = desk.clock.new_id()
    record(desk, group_id, [run_id])
    runs.update(desk, run_id, "success")
    Path(desk.runs.layout.run(run_id)).rename(Path(desk.runs.layout.root).parent / "away")
    woke = waiting.for_runs(desk, [group_id])
    assert (woke["woke"], woke["runs"], woke["sub_agent_results"]) == ("done", [], [])
    assert groups.status(desk, group_id)["state"] == groups.DONE


@pytest.mark.case("C2-05", "C2-06")
def test_the_record_of_a_group_goes_with_the_last_of_its_runs(desk: Context, runs_dir: Path) -> None:
    group = Family(desk, 2)
    group_id, run_ids = group.id, group.ids
    for child in group.children:
        child.exits(0)
    removed(desk, run_ids[0])
    assert Groups(desk.runs.layout).all() == [group_id]
    assert groups.status(desk, group_id)["completed"] == run_ids[1:]
    assert [run["runId"] for run in listing.find(desk, group=group_id)[0]] == run_ids[1:]
    removed(desk, run_ids[1])
    assert Groups(desk.runs.layout).all() == []
    with refused(runs_dir, NotFound, "group_not_found"):
        groups.status(desk, group_id)


def test_a_group_is_named_by_a_part_of_its_id(desk: Context) -> None:
    run_id = create(desk)
    group_id = desk.clock.new_id()
    record(desk, group_id, [run_id])
    for name in (group_id, group_id.upper(), group_id[-4:], group_id[-8:]):
        assert groups.status(desk, name)["group_id"] == group_id
    assert waiting.for_runs(desk, [group_id[-6:]], timeout=0)["pending"] == [group_id]


def test_digits_that_fit_a_run_and_a_group_are_refused(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    record(desk, desk.clock.new_id()[:-4] + run_id[-4:], [run_id])
    with refused(runs_dir, InvalidInput, "ambiguous"):
        waiting.for_runs(desk, [run_id[-4:]], timeout=0)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "x" * 300, "\0", NOBODY, "zzzz"])
def test_what_is_no_group_is_refused(desk: Context, runs_dir: Path, name: str) -> None:
    create(desk)
    before = snapshot(runs_dir)
    with pytest.raises((NotFound, InvalidInput)):
        groups.status(desk, name)
    with pytest.raises((NotFound, InvalidInput)):
        listing.find(desk, group=name)
    assert snapshot(runs_dir) == before


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b'{"children": 7}', b'{"children": [7]}', b'{"children": [{}]}', b"\xff"]
)
def test_a_broken_record_is_damaged_and_nothing_else_breaks(desk: Context, runs_dir: Path, content: bytes) -> None:
    run_id = create(desk)
    group_id = desk.clock.new_id()
    record(desk, group_id, [run_id])
    (runs_dir / ".groups" / f"{group_id}.json").write_bytes(content)
    with pytest.raises(Damaged):
        groups.status(desk, group_id)
    with pytest.raises(Damaged):
        waiting.for_runs(desk, [group_id], timeout=0)
    # Those that do not ask for it do not stumble over it, and it is not thrown away.
    assert runs.status(desk, run_id)["runId"] == run_id
    sweep.sweep(desk)
    runs.update(desk, run_id, "success")
    removed(desk, run_id)
    assert (runs_dir / ".groups" / f"{group_id}.json").read_bytes() == content

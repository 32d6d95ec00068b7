"""A session keeps data by its type; its snapshots and clones share nothing with it that could be changed."""

import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from subagent_cli.core.errors import Refused, SubagentError
from subagent_cli.dispatch import EventBus, Session, SessionClosed, Snapshot, SnapshotError, SnapshotRestoreError
from tests.dispatch.notes import (
    CREATED_AT,
    SESSION_ID,
    AddNote,
    Held,
    Mount,
    Note,
    Step,
    Stubborn,
    a_session,
    appended,
    replaced,
    state,
)


@pytest.fixture
def session() -> Session:
    return a_session()


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns so often that whatever is not held together comes apart."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def empty() -> Session:
    return Session(SESSION_ID, CREATED_AT)


def test_data_goes_through_its_reducers_into_their_slices() -> None:
    session = empty()
    session.register(AddNote, appended, Note)
    session.register(AddNote, lambda mounts, added: (*mounts, Mount(added.text)), Mount)
    session.register(AddNote, lambda notes, _: notes[-1:], Note)
    for text in ("one", "two"):
        session.apply(AddNote(text))
    assert session.select(Note) == (Note("two"),)
    assert session.select(Mount) == (Mount("one"), Mount("two"))


def test_without_a_slice_type_data_goes_into_the_slice_of_its_own_type() -> None:
    session = empty()
    session.register(Note, replaced)
    assert (session.slice_types(), session.select(Note)) == ((Note,), ())
    session.apply(Note("one"))
    session.apply(Note("two"))
    assert session.select(Note) == (Note("two"),)


def test_data_that_nobody_reduces_changes_nothing(session: Session) -> None:
    before = state(session)
    session.apply(Note("there is a slice of it, and no reducer"))
    session.apply("nobody knows texts")
    assert state(session) == before
    assert session.select(str) == ()


def test_a_reducer_that_fails_leaves_every_slice_as_it_was(session: Session) -> None:
    def fails(_: tuple[Note, ...], __: AddNote) -> tuple[Note, ...]:
        raise ValueError("no")

    session.register(AddNote, fails, Note)
    before = state(session)
    with pytest.raises(ValueError, match="no"):
        session.apply(AddNote("half"))
    assert state(session) == before


@pytest.mark.parametrize("given", [None, [Note("a list")], "text", (Note("one"), "no note"), Note("bare")])
def test_a_slice_is_a_tuple_of_items_of_its_type(session: Session, given: Any) -> None:
    session.register(str, lambda _, __: given, Note)
    before = state(session)
    with pytest.raises(TypeError):
        session.apply("now")
    with pytest.raises(TypeError):
        session.seed(Note, [*session.select(Note), "no note"])
    assert state(session) == before


def test_seeding_replaces_what_was_there_and_resetting_empties_all(session: Session) -> None:
    session.seed(Note, iter([Note("a"), Note("b")]))
    assert session.select(Note) == (Note("a"), Note("b"))
    kinds = session.slice_types()
    session.reset()
    assert state(session) == dict.fromkeys(kinds, ())
    session.apply(AddNote("still reduced"))
    assert session.select(Note) == (Note("still reduced"),)


def test_what_is_published_on_its_bus_is_reduced_once(session: Session) -> None:
    session.register(AddNote, lambda mounts, added: (*mounts, Mount(added.text)), Mount)
    assert session.bus.publish(AddNote("heard")) == ()
    assert session.select(Note) == (Note("from the parent"), Note("heard"))
    assert session.select(Mount) == (Mount("heard"),)


@pytest.mark.case("C4-17")
def test_a_rollback_brings_back_what_was_there(session: Session) -> None:
    before, snapshot = state(session), session.snapshot()
    session.apply(AddNote("later"))
    session.seed(Step)
    session.seed(str, ["a slice that came later"])
    for _ in range(2):
        session.rollback(snapshot)
        assert state(session) == {**before, str: ()}
        session.select(Step)[0].done.clear()


@pytest.mark.case("C4-15", "C4-18")
def test_a_snapshot_is_out_of_reach_of_whoever_changes_the_items(session: Session) -> None:
    done = session.select(Step)[0].done
    snapshot = session.snapshot()
    done["files"].append("b.md")
    clone = session.clone()
    clone.rollback(snapshot)
    assert clone.select(Step) == (Step("S1", {"files": ["a.md"]}),)
    clone.select(Step)[0].done["files"].clear()
    assert session.select(Step) == (Step("S1", {"files": ["a.md", "b.md"]}),)
    session.rollback(snapshot)
    assert session.select(Step) == (Step("S1", {"files": ["a.md"]}),)


def test_what_two_slices_share_is_shared_in_the_copy_too(session: Session) -> None:
    shared: dict[str, list[str]] = {}
    session.seed(Step, [Step("S1", shared), Step("S2", shared)])
    session.rollback(session.snapshot())
    first, second = session.select(Step)
    first.done["files"] = []
    assert "files" in second.done
    assert shared == {}


def test_a_snapshot_cannot_be_changed_and_survives_being_written_down(session: Session) -> None:
    snapshot = session.snapshot()
    with pytest.raises(FrozenInstanceError):
        snapshot.state = b""  # type: ignore[misc]
    session.reset()
    session.rollback(pickle.loads(pickle.dumps(snapshot)))
    assert session.select(Note) == (Note("from the parent"),)


@pytest.mark.case("C4-25")
def test_what_cannot_be_captured_is_told_and_not_shared(session: Session) -> None:
    class OfThisFunction:
        pass

    items: list[Any] = [Held(), Step("S1", {"files": [lambda: None]}), OfThisFunction()]  # type: ignore[list-item]
    for item in items:
        session.seed(type(item), [item])
        with pytest.raises(SnapshotError) as caught:
            session.snapshot()
        assert (caught.value.code, isinstance(caught.value, SubagentError)) == ("snapshot_failed", True)
        assert session.select(type(item)) == (item,)
        session.seed(type(item))
    session.snapshot()


@pytest.mark.case("C4-26")
def test_a_snapshot_of_slices_that_there_are_not_changes_nothing(session: Session) -> None:
    snapshot = session.snapshot()
    other = empty()
    other.seed(Note, [Note("mine")])
    with pytest.raises(SnapshotRestoreError) as caught:
        other.rollback(snapshot)
    assert caught.value.code == "restore_failed"
    assert "Step" in caught.value.message
    assert state(other) == {Note: (Note("mine"),)}


@pytest.mark.case("C4-26")
def test_a_snapshot_that_cannot_be_read_changes_nothing(session: Session) -> None:
    session.seed(Stubborn, [Stubborn()])
    before = state(session)
    stubborn = session.snapshot()
    damaged = [replace(stubborn, state=state) for state in (b"", b"x", pickle.dumps(None), pickle.dumps(((),)))]
    for snapshot in (stubborn, *damaged):
        with pytest.raises(SnapshotRestoreError):
            session.rollback(snapshot)
        assert state(session) == before


@pytest.mark.case("C4-19", "C4-20")
def test_a_clone_has_the_structure_and_the_names_and_none_of_the_data(session: Session) -> None:
    twin = session.clone()
    assert (twin.session_id, twin.created_at) == (SESSION_ID, CREATED_AT)
    assert set(twin.slice_types()) == set(session.slice_types()) == {Step, Mount, Note, Held}
    assert state(twin) == dict.fromkeys(twin.slice_types(), ())
    twin.apply(AddNote("by the same reducer"))
    assert twin.select(Note) == (Note("by the same reducer"),)
    assert session.select(Note) == (Note("from the parent"),)


@pytest.mark.case("C4-20")
def test_reducers_that_come_later_are_not_the_others(session: Session) -> None:
    twin = session.clone()
    session.register(str, lambda notes, text: (*notes, Note(text)), Note)
    twin.register(int, lambda notes, number: (*notes, Note(str(number))), Note)
    twin.apply("unknown")
    session.apply(5)
    assert (session.select(Note), twin.select(Note)) == ((Note("from the parent"),), ())


@pytest.mark.case("C4-22")
def test_a_clone_listens_on_a_bus_of_its_own(session: Session) -> None:
    bus = EventBus()
    twin, other = session.clone(bus), session.clone()
    assert twin.bus is bus
    assert len({session.bus, twin.bus, other.bus}) == 3
    bus.publish(AddNote("in the clone"))
    assert twin.select(Note) == (Note("in the clone"),)
    assert (session.select(Note), other.select(Note)) == ((Note("from the parent"),), ())


@pytest.mark.case("C4-23", "C4-24")
def test_a_closed_session_is_empty_and_refuses_everything(session: Session) -> None:
    step = session.select(Step)[0]
    gone, snapshot, bus = weakref.ref(step), session.snapshot(), session.bus
    del step
    session.close()
    session.close()
    gc.collect()
    assert (gone(), bus.listeners()) == (None, 0)
    for call in (
        lambda: session.select(Note),
        session.slice_types,
        lambda: session.seed(Note),
        lambda: session.register(Note, replaced),
        lambda: session.apply(AddNote("late")),
        session.reset,
        session.snapshot,
        lambda: session.rollback(snapshot),
        session.clone,
    ):
        with pytest.raises(SessionClosed) as caught:
            call()
        assert (caught.value.code, isinstance(caught.value, Refused)) == ("session_closed", True)
    assert session.session_id == SESSION_ID


def test_threads_lose_no_change(session: Session, often: None) -> None:
    def note() -> None:
        for number in range(250):
            session.apply(AddNote(str(number)))

    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session.select(Note)) == 1001


Model = dict[type, tuple[Any, ...]]
WORDS = st.sampled_from(["a", "b", "c"])


class Isolation(RuleBasedStateMachine):
    """Sessions beside plain models of them. A change to one shows in its own model alone."""

    sessions: Bundle[Session] = Bundle("sessions")
    snapshots: Bundle[tuple[Snapshot, Model]] = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.models: list[tuple[Session, Model]] = []

    def model(self, session: Session) -> Model:
        return next(model for known, model in self.models if known is session)

    @rule(target=sessions)
    def begin(self) -> Session:
        session = empty()
        session.register(AddNote, appended, Note)
        session.seed(Step)
        self.models.append((session, {Note: (), Step: ()}))
        return session

    @rule(session=sessions, text=WORDS)
    def apply(self, session: Session, text: str) -> None:
        session.apply(AddNote(text))
        model = self.model(session)
        model[Note] = (*model[Note], Note(text))

    @rule(session=sessions, name=WORDS)
    def seed(self, session: Session, name: str) -> None:
        session.seed(Step, [Step(name, {"files": []})])
        self.model(session)[Step] = (Step(name, {"files": []}),)

    @rule(session=sessions, file=WORDS)
    def change_an_item_in_place(self, session: Session, file: str) -> None:
        model = self.model(session)
        for step in session.select(Step):
            step.done["files"].append(file)
        model[Step] = tuple(Step(step.name, {"files": [*step.done["files"], file]}) for step in model[Step])

    @rule(session=sessions)
    def reset(self, session: Session) -> None:
        session.reset()
        self.model(session).update({Note: (), Step: ()})

    @rule(target=snapshots, session=sessions)
    def snapshot(self, session: Session) -> tuple[Snapshot, Model]:
        return session.snapshot(), dict(self.model(session))

    @rule(session=sessions, taken=snapshots)
    def rollback(self, session: Session, taken: tuple[Snapshot, Model]) -> None:
        session.rollback(taken[0])
        self.model(session).update(taken[1])

    @rule(target=sessions, session=sessions)
    def clone(self, session: Session) -> Session:
        twin = session.clone()
        self.models.append((twin, {Note: (), Step: ()}))
        return twin

    @rule(session=consumes(sessions))
    def close(self, session: Session) -> None:
        session.close()
        self.models = [(known, model) for known, model in self.models if known is not session]

    @invariant()
    def each_session_is_as_its_model(self) -> None:
        for session, model in self.models:
            assert state(session) == model


@pytest.mark.case("C4-17", "C4-18", "C4-20")
def test_whatever_happens_to_one_session_shows_in_no_other(amount: Callable[[int, int], int]) -> None:
    run_state_machine_as_test(
        Isolation, settings=settings(max_examples=amount(60, 1000), stateful_step_count=amount(30, 100))
    )

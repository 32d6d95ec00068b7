"""Spawning: whole or not at all, wherever it is interrupted, and what each child is asked."""

import errno
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Denied, Failed, InvalidInput, Refused, SubagentError
from subagent_cli.core.ids import is_uuid
from subagent_cli.services import cancellation, runs, spawns, specs, sweep, waiting
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.launches import Request
from subagent_cli.services.settings import Caller
from subagent_cli.services.starts import Start
from subagent_cli.store import atomic
from subagent_cli.store import runs as store
from subagent_cli.store.clock import Clock
from subagent_cli.store.groups import Groups
from tests.process.living import Living, seen, until
from tests.process.living import a_place_to_live as a_place_to_live
from tests.services.desk import refused, snapshot

DISK = ("make_folders", "create", "mark", "appear", "sync_folder")
FAILED = "Failed to spawn sub-agents: "
PAIR = (Request("one", command=("true",)), Request("two", command=("true",), name="second"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_SUBMIT_GRACE", "300ms")


@pytest.fixture
def house(runs_dir: Path) -> Context:
    """The operator's context with the clock of the machine, since keepers have no other."""
    return open_context({"runs_dir": str(runs_dir)}, Clock())


@pytest.fixture
def parent(house: Context, living: Living) -> Context:
    """A worker that may start others."""
    token = house.clock.new_token()
    spec = specs.may_nest(specs.new_spec(house, "helper", "Do it", token), 3)
    house.runs.create(spec, "Do it", "running", house.clock.now())
    return house._replace(caller=Caller(spec["runId"], token))


class Trouble:
    """Something goes wrong at the n-th thing that is done to the disk, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, error: Callable[[], BaseException]) -> None:
        self.count, self._at, self._error = 0, at, error
        for name in DISK:
            monkeypatch.setattr(atomic, name, self._troubled(getattr(atomic, name)))

    def _troubled(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def troubled(*args: Any, **more: Any) -> Any:
            self.count += 1
            if self.count == self._at:
                raise self._error()
            return real(*args, **more)

        return troubled


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def files(root: Path) -> set[str]:
    """All files except those that are no state. A folder that stays empty is no trace."""
    return {name for name, content in snapshot(root, locks=False).items() if content is not None}


def troubled(parent: Context, error: Callable[[], BaseException]) -> dict[int, set[str]]:
    """Spawns with something going wrong at each thing that is done to the disk, in turn; what each attempt left."""
    root = Path(parent.runs.layout.root)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(spawns, "_started", lambda _launch: None)
        spawns.spawn(parent, PAIR)
        before, left, said = files(root), dict[int, set[str]](), list[str]()
        for at in range(1, 60):
            with pytest.MonkeyPatch.context() as broken:
                trouble = Trouble(broken, at, error)
                try:
                    spawns.spawn(parent, PAIR)
                except KeyboardInterrupt:
                    pass
                except SubagentError as caught:
                    said.append(caught.message)
                else:
                    assert trouble.count < at
                    assert at > 15
                    assert [message for message in said if not message.startswith(FAILED)] == []
                    return left
            if new := files(root) - before:
                left[at] = new
                before |= new
    raise AssertionError("it never went well")


@pytest.mark.case("C2-07", "X21")
def test_a_full_disk_before_the_first_child_starts_takes_everything_back(living: Living, parent: Context) -> None:
    left = troubled(parent, no_space)
    assert {name for names in left.values() for name in names if not name.startswith(".index/")} == set()
    assert left == {}
    assert living.keepers() == []


@pytest.mark.case("C2-07", "X21")
def test_an_interrupt_before_the_first_child_starts_takes_everything_back(living: Living, parent: Context) -> None:
    """What is being prepared just then is no run, and is taken away when it is old."""
    left = troubled(parent, KeyboardInterrupt)
    prepared = (".new-", ".index/")
    assert {name for names in left.values() for name in names if not name.startswith(prepared)} == set()
    assert living.keepers() == []
    heal(parent._replace(caller=Caller()))
    assert {name for names in left.values() for name in names} & files(living.runs) == set()


def heal(context: Context) -> None:
    """As if whatever is being prepared had been begun long ago: what leads to it goes once it is gone itself."""
    for path in Path(context.runs.layout.root).glob(".new-*"):
        os.utime(path, (1, 1))
    for _ in range(2):
        sweep.sweep(context)


def test_whoever_is_killed_while_it_spawns_leaves_nothing_that_does_not_heal(living: Living, house: Context) -> None:
    """Killed at each point of making the runs: what has appeared is lost, and nobody waits for it."""
    for at in range(1, 7):
        pid = os.fork()
        if pid == 0:
            _spawn_until(house, at)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert living.keepers() == []
    heal(house)
    names = os.listdir(living.runs)
    assert [name for name in names if name.startswith(".new-")] == []
    now = house.clock.now()
    assert [house.runs.read(name, now).state for name in names if is_uuid(name)] == ["lost"] * 5
    assert Groups(house.runs.layout).all() == []
    assert house.runs.index.active() == []


def _spawn_until(house: Context, at: int) -> None:
    """Ends this process at a point of its way."""
    count = 0

    def reached(point: str) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    store.reached = reached
    try:
        spawns.spawn(house, PAIR)
    finally:
        os._exit(1)


@pytest.mark.case("C2-03")
def test_what_is_told_names_the_count_and_the_ids(living: Living, house: Context) -> None:
    made = spawns.spawn(house, PAIR)
    assert made["output"] == f"Spawning 2 sub-agents: {', '.join(made['agent_ids'])}"
    assert made["warnings"] == []
    woke = waiting.for_runs(house, [made["group_id"]])
    assert [item["task"] for item in woke["sub_agent_results"]] == ["one", "two"]


@pytest.mark.case("C2-04", "C2-10")
def test_children_of_several_calls_stand_in_the_order_in_which_they_were_asked_for(
    living: Living, parent: Context
) -> None:
    first = spawns.spawn(parent, PAIR[:1])["agent_ids"]
    second = spawns.spawn(parent, PAIR)["agent_ids"]
    assert parent.runs.index.children(parent.caller.run_id or "") == [*first, *second]
    woke = waiting.for_runs(parent, [])
    assert [item["agent_id"] for item in woke["sub_agent_results"]] == [*first, *second]
    assert [parent.runs.spec(run_id)["parentId"] for run_id in first + second] == [parent.caller.run_id] * 3
    shown = runs.status(parent, parent.caller.run_id, peek=True)
    assert shown["subAgents"] == {"pending": [], "completed": [*first, *second]}


@pytest.mark.case("C2-10", "C2-42")
def test_spawns_at_the_same_time_do_not_lose_each_other(living: Living, parent: Context) -> None:
    barrier = threading.Barrier(4)

    def spawn(_number: int) -> list[str]:
        barrier.wait(20)
        ids: list[str] = spawns.spawn(parent, PAIR)["agent_ids"]
        return ids

    with ThreadPoolExecutor(4) as pool:
        ids = [run_id for found in pool.map(spawn, range(4)) for run_id in found]
    assert len(set(ids)) == 8
    assert {item["agent_id"] for item in waiting.for_runs(parent, [])["sub_agent_results"]} == set(ids)


@pytest.mark.case("C2-48")
@pytest.mark.parametrize(
    ("timeout", "deadline", "seconds", "text"),
    [
        (None, None, None, "Sub-agent timed out"),
        (None, 5_000, 5, spawns.DEADLINE_TEXT),
        (3_000, 5_000, 3, "Sub-agent timed out"),
        (5_000, 5_000, 5, "Sub-agent timed out"),
        (9_000, 5_000, 5, spawns.DEADLINE_TEXT),
    ],
)
def test_the_shorter_of_deadline_and_limit_counts(
    timeout: int | None, deadline: int | None, seconds: float | None, text: str, living: Living, house: Context
) -> None:
    request = PAIR[0]._replace(start=Start(timeout))
    made = spawns.spawn(house, [request], deadline=deadline)
    assert house.runs.spec(made["agent_ids"][0])["timeoutSeconds"] == seconds
    bounded = spawns._by(deadline, request, None) if deadline else request
    assert bounded.start.timeout_text == text
    waiting.for_runs(house, [made["group_id"]])


@pytest.mark.case("C2-48")
def test_the_setting_for_all_runs_is_shorter_than_the_deadline(
    living: Living, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that holds for every run holds for children of a group with a later deadline."""
    monkeypatch.setenv("SUBAGENT_RUN_TIMEOUT", "2s")
    context = open_context({"runs_dir": str(runs_dir)}, Clock())
    made = spawns.spawn(context, PAIR[:1], deadline=3_600_000)
    assert context.runs.spec(made["agent_ids"][0])["timeoutSeconds"] == 2
    waiting.for_runs(context, [made["group_id"]])


@pytest.mark.case("C2-01", "C2-08")
def test_none_and_too_many_are_refused(house: Context, living: Living, tmp_path: Path) -> None:
    with refused(tmp_path, InvalidInput, "no_tasks"):
        spawns.spawn(house, [])
    with refused(tmp_path, InvalidInput, "too_many_tasks"):
        spawns.spawn(house, [PAIR[0]] * 11)


@pytest.mark.case("C2-09")
def test_one_child_of_a_parent_works_at_a_time(living: Living, parent: Context) -> None:
    stays = Request("work", command=("sleep", "60"), mode="work")
    looks = Request("look", command=("true",), mode="explore")
    with refused(living.runs, InvalidInput, "several_workers"):
        spawns.spawn(parent, [stays, stays])
    made = spawns.spawn(parent, [looks, stays])
    waiting.for_runs(parent, made["agent_ids"][:1])
    until(lambda: house_is_quiet(parent, made["agent_ids"][0]), "the end of the first keeper")
    with refused(living.runs, Refused, "several_workers"):
        spawns.spawn(parent, [stays])
    again = spawns.spawn(parent, [looks])
    cancellation.cancel(parent, [made["group_id"], again["group_id"]])
    waiting.for_runs(parent, [spawns.spawn(parent, [stays._replace(command=("true",))])["group_id"]])


def house_is_quiet(context: Context, run_id: str) -> bool:
    """Whether the keeper of a run has written its last word."""
    word = Path(context.runs.layout.alive(run_id)).read_text().splitlines()[-1].partition(" ")
    found = seen(int(word[0]))
    return found is None or found.start != word[2] or not found.there


@pytest.mark.case("C2-11", "X12")
def test_a_tree_is_as_deep_as_its_beginning_says(living: Living, parent: Context) -> None:
    deep = parent
    for depth in (2, 3):
        token = deep.clock.new_token()
        spec = specs.may_nest(specs.new_spec(deep, "helper", "Do it", token), None)
        assert (spec["depth"], spec["maxDepth"]) == (depth, 3)
        deep.runs.create(spec, "Do it", "running", deep.clock.now())
        with refused(living.runs, Denied, "denied"):
            spawns.spawn(deep, PAIR, max_depth=5)
        deep = deep._replace(caller=Caller(spec["runId"], token))
    with refused(living.runs, Refused, "depth_exceeded"):
        spawns.spawn(deep, PAIR)


def test_a_key_spawns_one_group_however_many_ask_at_once(living: Living, house: Context) -> None:
    barrier = threading.Barrier(4)

    def spawn(_number: int) -> tuple[str, list[str]]:
        barrier.wait(20)
        made = spawns.spawn(house, PAIR, key="k")
        return made["group_id"], made["agent_ids"]

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(spawn, range(4)))
    assert len({group_id for group_id, _ in made}) == 1
    assert all(ids == made[0][1] for _, ids in made)
    waiting.for_runs(house, [made[0][0]])
    assert len([name for name in os.listdir(living.runs) if is_uuid(name)]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"task": "another"},
        {"command": ("false",)},
        {"name": "another"},
        {"cwd": "/"},
        {"mode": "work"},
        {"labels": {"a": "b"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_key_belongs_to_one_request(living: Living, house: Context, change: dict[str, Any]) -> None:
    made = spawns.spawn(house, PAIR, key="k")
    waiting.for_runs(house, [made["group_id"]])
    for run_id in made["agent_ids"]:
        until(partial(house_is_quiet, house, run_id), "the end of a keeper")
    with refused(living.runs, Refused, "key_reused"):
        spawns.spawn(house, [PAIR[0]._replace(**change), PAIR[1]], key="k")
    with refused(living.runs, Refused, "key_reused"):
        spawns.spawn(house, PAIR[:1], key="k")


def test_a_key_is_free_again_when_the_spawn_failed(living: Living, house: Context, parent: Context) -> None:
    (living.runs / ".groups").write_text("in the way")
    with pytest.raises(Failed):
        spawns.spawn(house, PAIR, key="k")
    (living.runs / ".groups").unlink()
    made = spawns.spawn(house, PAIR, key="k")
    assert waiting.for_runs(house, [made["group_id"]])["woke"] == "done"

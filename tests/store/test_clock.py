"""The door to time and chance: ids that sort by time, stamps as JavaScript writes them, and ages that nobody can
change by setting the clock."""

import time
import uuid
from pathlib import Path

import pytest

from subagent_cli.core.moment import milliseconds
from subagent_cli.services import questions, runs
from subagent_cli.store.clock import Clock
from tests.store.world import DAY, FakeClock, document, new_run, open_at

YEARS = 3 * 365 * DAY


@pytest.mark.case("X25")
def test_an_id_is_a_version_seven_uuid_that_carries_its_time() -> None:
    before = time.time_ns() // 1_000_000
    made = [Clock().new_id() for _ in range(200)]
    after = time.time_ns() // 1_000_000
    for text in made:
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, text)
        assert before <= parsed.int >> 80 <= after
    assert len(set(made)) == len(made)


@pytest.mark.case("X25")
def test_runs_and_questions_have_ids_that_sort_by_time(tmp_path: Path) -> None:
    clock = FakeClock()
    context = open_at(tmp_path / "runs", clock)
    made, asked = [], []
    for _ in range(5):
        made.append(new_run(context))
        clock.advance(1)
        asked.append(questions.ask(context, "Which?", run=made[0])["messageId"])
        clock.advance(1)
    assert made == sorted(made)
    assert asked == sorted(asked)
    assert context.runs.all() == made[::-1]
    assert {uuid.UUID(text).version for text in made + asked} == {7}


def test_a_moment_is_now_on_both_clocks() -> None:
    clock = Clock()
    first, second = clock.now(), clock.now()
    assert abs(first.ms - time.time_ns() // 1_000_000) < 10_000
    assert first.up <= second.up
    assert first.boot == second.boot
    assert milliseconds(first.iso) == first.ms


def test_a_token_is_long_and_never_the_same() -> None:
    tokens = {Clock().new_token() for _ in range(50)}
    assert len(tokens) == 50
    assert {len(token) for token in tokens} == {64}


def state(root: Path, clock: FakeClock, run_id: str) -> str:
    found: str = runs.status(open_at(root, clock), run_id, peek=True)["messages"][0]["state"]
    return found


@pytest.mark.parametrize("jump", [YEARS, -YEARS])
def test_a_clock_that_is_set_by_years_expires_nothing_and_keeps_nothing_alive(tmp_path: Path, jump: int) -> None:
    root = tmp_path / "runs"
    clock = FakeClock()
    context = open_at(root, clock)
    run_id = new_run(context)
    questions.ask(context, "Which?", run=run_id)
    clock.ms += jump
    assert state(root, clock, run_id) == "PENDING"
    clock.advance(DAY)
    assert state(root, clock, run_id) == "PENDING"
    clock.advance(1)
    assert state(root, clock, run_id) == "EXPIRED"
    runs.update(context, run_id, "running")
    assert document(root, run_id)["messages"][0]["messageStatus"] == "parent_acknowledged"


def test_after_a_new_start_of_the_machine_the_wall_clock_counts(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    clock = FakeClock()
    run_id = new_run(open_at(root, clock))
    questions.ask(open_at(root, clock), "Which?", run=run_id)
    clock.boot, clock.up = "c0ffee00", 5
    clock.ms += DAY
    assert state(root, clock, run_id) == "PENDING"
    clock.ms += 1
    assert state(root, clock, run_id) == "EXPIRED"


def test_where_the_system_does_not_name_its_boot_the_wall_clock_counts(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    clock = FakeClock()
    clock.boot = ""
    run_id = new_run(open_at(root, clock))
    questions.ask(open_at(root, clock), "Which?", run=run_id)
    clock.ms += DAY + 1
    assert state(root, clock, run_id) == "EXPIRED"

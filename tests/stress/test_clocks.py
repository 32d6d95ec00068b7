"""Clocks that are set back and forward by years while a conversation goes on, on one boot and over several.

Promise: nothing expires before its time on the clock that nobody can set, and nothing lives on after it; no answer is
lost; every id is new, and questions stay in the order in which they were asked.
"""

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from subagent_cli.core.errors import Refused
from subagent_cli.services import events, questions, runs, sweep
from subagent_cli.store.clock import Clock
from tests.services.test_doctor import powered as powered
from tests.store.world import DAY, FakeClock, new_run, open_at
from tests.stress.conftest import Told
from tests.stress.seed import new_seed

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures("powered")]

YEAR = 365 * DAY
WALKS, STEPS = 50, 60
JUMPS = [-30 * YEAR, -3 * YEAR, -YEAR, -DAY, -1, 0, 0, 1, DAY, YEAR, 3 * YEAR, 30 * YEAR]
PASSES = [0, 1, 1000, DAY // 3, DAY - 1, DAY, DAY + 1]


class Asked(NamedTuple):
    """A question as it must be: when it was asked on both clocks, how long it waits, and what it has come to."""

    ms: int
    boot: str
    up: int
    limit: int
    default: str | None
    state: str = "PENDING"
    answer: str | None = None


class Walk:
    """One conversation, and the model that it is held against. The model knows of one boot or of another by its name,
    and of an age within a boot by the clock since then alone."""

    def __init__(self, root: Path, chance: random.Random, *, boots: bool) -> None:
        self.clock, self.chance, self.boots = FakeClock(), chance, boots
        self.root = root
        self.run_id = new_run(open_at(root, self.clock))
        self.known: dict[str, Asked] = {}
        self.wrong: dict[str, list[str]] = {
            "wrong expiries": [],
            "answers lost": [],
            "ids twice": [],
            "out of order": [],
        }

    def shown(self, asked: Asked) -> tuple[str, str | None]:
        if asked.state != "PENDING":
            return asked.state, asked.answer
        same = asked.boot == self.clock.boot
        age = self.clock.up - asked.up if same else self.clock.ms - asked.ms
        if age <= asked.limit:
            return "PENDING", None
        return ("EXPIRED", None) if asked.default is None else ("ANSWERED", asked.default)

    def committed(self) -> None:
        """A change of ours writes down what time has brought about, and that stands whatever the clock says then."""
        for message_id, asked in self.known.items():
            state, answer = self.shown(asked)
            self.known[message_id] = asked._replace(state=state, answer=answer)

    def step(self) -> None:
        self.chance.choice([self.ask, self.ask, self.reply, self.check, self.tell, self.swept])()
        passed = self.chance.choice(PASSES)
        self.clock.advance(passed)
        self.clock.ms += self.chance.choice(JUMPS)
        self.clock.ms = max(self.clock.ms, 0)
        if self.boots and self.chance.random() < 0.1:
            # A machine that has just started counts from nothing.
            self.clock.boot, self.clock.up = f"{self.chance.randrange(1 << 32):08x}", self.chance.randrange(100_000)
        self.compared()

    def ask(self) -> None:
        limit = self.chance.choice([None, None, 1, 1000, DAY // 2, 3 * DAY])
        default = self.chance.choice([None, None, "as usual"])
        desk = open_at(self.root, self.clock)
        made = questions.ask(desk, f"Question {len(self.known)}?", run=self.run_id, deadline=limit, default=default)
        self.committed()
        if made["messageId"] in self.known:
            self.wrong["ids twice"].append(made["messageId"])
        wait = DAY if limit is None else limit
        self.known[made["messageId"]] = Asked(self.clock.ms, self.clock.boot, self.clock.up, wait, default)

    def reply(self) -> None:
        if not self.known:
            return
        message_id = self.chance.choice(list(self.known))
        open_still = self.shown(self.known[message_id])[0] == "PENDING"
        try:
            questions.reply(open_at(self.root, self.clock), self.run_id, "yes", message=message_id)
        except Refused:
            if open_still:
                self.wrong["wrong expiries"].append(f"refused: {self.known[message_id]}")
            return
        if not open_still:
            self.wrong["wrong expiries"].append(f"taken: {self.known[message_id]}")
        self.committed()
        self.known[message_id] = self.known[message_id]._replace(state="ANSWERED", answer="yes")

    def check(self) -> None:
        if not self.known:
            return
        message_id = self.chance.choice(list(self.known))
        found = questions.check(open_at(self.root, self.clock), message_id, run=self.run_id)
        state, answer = self.shown(self.known[message_id])
        if found["answer"] != answer:
            self.wrong["answers lost"].append(f"{found} {self.known[message_id]}")
        if state == "ANSWERED":
            self.committed()
            self.known[message_id] = self.known[message_id]._replace(state="RETRIEVED")

    def tell(self) -> None:
        questions.tell(open_at(self.root, self.clock), "A note.", run=self.run_id)
        self.committed()

    def swept(self) -> None:
        due = any(self.shown(asked)[0] != asked.state for asked in self.known.values())
        sweep.sweep(open_at(self.root, self.clock))
        if due:
            self.committed()

    def compared(self) -> None:
        found = open_at(self.root, self.clock).runs.read(self.run_id, self.clock.now())
        for message_id, asked in self.known.items():
            state, answer = self.shown(asked)
            seen = found.questions.get(message_id)
            if seen is None or (asked.answer is not None and seen.answer != asked.answer):
                self.wrong["answers lost"].append(f"{seen} {asked}")
            elif (seen.state, seen.answer) != (state, answer):
                self.wrong["wrong expiries"].append(f"{seen} instead of {state}: {asked} at {self.clock.now()}")
        if list(found.questions) != list(self.known):
            self.wrong["out of order"].append(f"{list(found.questions)} {list(self.known)}")

    def ended(self) -> None:
        """Everything can still be read and told in its order."""
        runs.update(open_at(self.root, self.clock), self.run_id, "success", "Done.")
        told: list[dict[str, Any]] = events.read(open_at(self.root, self.clock), self.run_id)[0]
        if [event["seq"] for event in told] != list(range(1, len(told) + 1)):
            self.wrong["out of order"].append("the events")


@pytest.mark.parametrize("boots", [False, True], ids=["one boot", "several boots"])
def test_no_question_expires_too_early_or_too_late_however_the_clock_is_set(
    tmp_path: Path, told: Told, boots: bool
) -> None:
    seed = new_seed()
    wrong: dict[str, list[str]] = {}
    asked = 0
    for number in range(WALKS):
        walk = Walk(tmp_path / str(number) / "runs", random.Random(f"{seed} {number}"), boots=boots)
        for _ in range(STEPS):
            walk.step()
        walk.ended()
        asked += len(walk.known)
        for what, found in walk.wrong.items():
            wrong.setdefault(what, []).extend(f"walk {number} of seed {seed}: {text}" for text in found)
    tried = f"{WALKS} walks of {STEPS} steps, {asked:,} questions"
    told(f"clock set by years, {'several boots' if boots else 'one boot'}", tried, summary(wrong))
    assert not any(wrong.values()), {what: found[:3] for what, found in wrong.items()}


def summary(wrong: dict[str, list[str]]) -> str:
    return ", ".join(f"{len(found)} {what}" for what, found in wrong.items())


def test_ids_stay_new_and_go_on_while_the_clock_jumps(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    """Those of one process go on; those of another may come before them, and are others all the same."""
    chance, at = random.Random(), [1_800_000_000_000 * 1_000_000]
    monkeypatch.setattr("time.time_ns", lambda: at[0])
    clock, made, back = Clock(), list[str](), 0
    for number in range(50_000):
        at[0] = max(0, at[0] + chance.choice(JUMPS) * 1_000_000)
        if number % 100 == 0:
            clock, latest = Clock(), ""
        made.append(clock.new_id())
        back += made[-1] <= latest
        latest = made[-1]
    twice = len(made) - len(set(made))
    told("ids while the clock jumps", f"{len(made):,} ids of 500 processes", f"{twice} twice, {back} out of order")
    assert (twice, back) == (0, 0)

"""On a disk that is really full each call is acknowledged and there, or fails in one line and has changed nothing; who
only looks sees what there is; and when there is room again everything goes on and nothing is lost.

It takes about a quarter of a minute.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command
from tests.process.living import MARK, Living
from tests.store.world import new_run, open_at, truth
from tests.stress import small_disk
from tests.stress.aftermath import Toll, hold, no_toll
from tests.stress.chatter import Writer
from tests.stress.conftest import Told
from tests.stress.ground import had
from tests.stress.line import Said, typed
from tests.stress.promises import broken

DISK, BALLAST = "1m", 256 << 10
REFUSALS, VERBS_REFUSED, MOST_CALLS = 40, 9, 3000
REFUSED_IN_THIS_STATE = 4
# Of a message that is sent the message itself stays, and a sweep does what it can.
OF_STEPS = ("send", "sweep")
# A text that does not fit into what a page of the disk has left.
PADDING = " of some length" * 100

LOOKS: Sequence[Sequence[str]] = (
    ("list", "--all"),
    ("status", "@last", "--peek"),
    ("pending",),
    ("events",),
    ("logs", "@last"),
    ("message", "list"),
    ("inbox", "@last"),
    ("grants",),
    ("tree",),
    ("sweep", "--dry-run"),
    ("config",),
    ("whoami",),
)

Door = Callable[[str, Sequence[str], Mapping[str, str]], Said]


@pytest.fixture(autouse=True)
def _no_keepers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subagent_cli.process.launch.start", lambda *_: None)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk with something on it that can be thrown away."""
    if absent := small_disk.missing():
        pytest.skip(f"needs tmpfs: {absent}")
    with small_disk.small_disk(tmp_path / "disk", DISK) as disk:
        (disk / "ballast").write_bytes(bytes(BALLAST))
        yield disk


class Filler(Writer):
    """A writer of long texts who knows that the disk may be full, and looks what a refused call has changed."""

    def __init__(self, root: Path, run_ids: Sequence[str], toll: Toll, doors: Sequence[Door]) -> None:
        super().__init__(str(root), "full", run_ids, -1)
        self._place, self._toll, self._doors = root, toll, doors
        self.lines: list[Sequence[str]] = []
        self.refused: Counter[str] = Counter()
        self.calls = 0
        # Folders into which others write meanwhile.
        self.apart: set[str] = set()

    def _text(self, what: str) -> str:
        return super()._text(what) + PADDING

    def _say(self, verb: str, run_id: str, text: str, other: str = "") -> None:
        self.lines.append((verb, run_id, text, other))

    def _call(self, *words: str, env: Mapping[str, str] = {}) -> Any:
        self.calls += 1
        before = self._had()
        # What a process of its own spawns would have keepers, who go on writing when the call is over.
        door = typed if words[0] == "spawn" else self._chance.choice(self._doors)
        said = door(str(self._place), words, env)
        if said.code == 0:
            return json.loads(said.out)
        if said.code != REFUSED_IN_THIS_STATE:
            self.refused[words[0]] += 1
            self._judge(words, said, changed=self._had() != before)
        return None

    def _had(self) -> Mapping[str, Mapping[str, bytes]]:
        return {name: files for name, files in had(self._place).items() if name not in self.apart}

    def _judge(self, words: Sequence[str], said: Said, *, changed: bool) -> None:
        lines = said.out.splitlines()
        error = json.loads(lines[0]).get("error", {}) if lines else {}
        clear = len(lines) == 1 and said.code == 1 and error.get("code") == "disk_full" and not said.err
        if not clear and words[0] not in OF_STEPS:
            self._toll.wrong.append(f"{' '.join(words[:2])} says {said}")
        if changed and words[0] not in OF_STEPS:
            self._toll.torn.append(f"{' '.join(words[:2])} failed and has changed something: {said}")


def real_process(cli: Command) -> Door:
    def call(root: str, words: Sequence[str], env: Mapping[str, str]) -> Said:
        done = cli("--json", *words, runs_dir=root, env=env)
        return Said(done.code, done.out, done.err)

    return call


def filled(filler: Filler) -> None:
    """Writes until the disk has refused every verb that needs room, many times."""
    while sum(filler.refused.values()) < REFUSALS or len(filler.refused) < VERBS_REFUSED:
        filler.turn()
        assert filler.calls < MOST_CALLS, filler.refused


def looked(root: Path, toll: Toll, doors: Sequence[Door]) -> int:
    """Has everything looked at that there is; nothing changes by it."""
    before = had(root)
    for words in LOOKS:
        for door in doors:
            said = door(str(root), words, {})
            if said.code or said.err:
                toll.wrong.append(f"{' '.join(words)} on the full disk says {said}")
    if had(root) != before:
        toll.wrong.append("looking has changed something")
    return len(LOOKS) * len(doors)


@pytest.mark.stress
def test_a_full_disk_refuses_in_one_line_and_when_there_is_room_everything_goes_on(
    disk: Path, cli: Command, told: Told
) -> None:
    root, toll = disk / "runs", no_toll()
    context = open_at(root)
    run_ids = [new_run(context) for _ in range(3)]
    doors = (typed, typed, real_process(cli))
    filler = Filler(root, run_ids, toll, doors)
    filled(filler)
    refused, safe = filler.refused.copy(), len(filler.lines)
    looks = looked(root, toll, doors[1:])
    lost = broken(root, filler.lines)

    (disk / "ballast").unlink()
    filler.refused.clear()
    filler.work_through()
    lost += broken(root, filler.lines)
    toll.lost.extend(map(str, lost))
    hold(root, toll, "when there is room again")
    told(
        "a full disk of 1 MB",
        f"{safe} promises, {refused.total()} refusals of {len(refused)} verbs, {looks} looks,"
        f" then {len(filler.lines) - safe} promises and {filler.refused.total()} refusals",
        str(toll),
    )
    assert not any(toll), toll.shown
    assert not filler.refused
    assert len(filler.lines) > safe


FLOOD = 3_000_000


@pytest.mark.stress
def test_a_log_that_fills_the_disk_costs_no_answer_and_no_outcome(
    disk: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, toll = disk / "runs", no_toll()
    run_id = new_run(open_at(root))
    command = Command(root)
    living = Living(command, disk)
    monkeypatch.setenv(MARK, living.mark)
    filler = Filler(root, [run_id], toll, (typed,))
    try:
        said, told_to_go = living.pipe(), living.pipe()
        flood = f"head -c {FLOOD} /dev/zero | tr '\\0' x; echo full > {said.path}"
        script = f"{flood}; read go < {told_to_go.path}; echo done"
        filler.work_through()
        flooding = living.shell(script)
        filler.apart.add(flooding)
        while not said.said():
            filler.ask()
        while filler.refused["ask"] < REFUSALS:
            filler.ask()
            assert filler.calls < MOST_CALLS
        refused, safe = filler.refused.copy(), len(filler.lines)
        logged = (root / flooding / "log").stat().st_size
        told_to_go.tell()
        (disk / "ballast").unlink()
        outcome = living.wait(flooding)
        filler.refused.clear()
        filler.work_through()
    finally:
        living.close()
        command.close()
    toll.lost.extend(map(str, broken(root, filler.lines)))
    hold(root, toll, "when there is room again")
    told(
        "a full disk beside a flooding log",
        f"{logged:,} of {FLOOD:,} bytes of log, {safe} promises, {refused.total()} refusals; the run ended as"
        f" {outcome['status']}",
        str(toll),
    )
    assert not any(toll), toll.shown
    assert not filler.refused
    assert truth(root, flooding).status == "success"
    assert logged < FLOOD

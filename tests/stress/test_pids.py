"""Process numbers that belong to somebody else by now.

Promise: no verb signals a process because a file names its number, or because a process of a run once had it; and none
takes a run for alive because of one. Alive is what holds the lock.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from subagent_cli.core.errors import SubagentError
from subagent_cli.core.run import RUNNING
from subagent_cli.services import cancellation, clean, doctor, listing, runs, specs, sweep, trees, waiting
from subagent_cli.services.context import Context, open_context
from subagent_cli.store.alive import Claim
from tests.services.desk import StillClock
from tests.services.test_doctor import powered as powered
from tests.stress.bystander import Bystander
from tests.stress.conftest import Told
from tests.stress.seed import new_seed

pytestmark = [pytest.mark.stress]

REPOSITORY = Path(__file__).parents[2]
ROUNDS = 10
NEVER = "0" * 64


class Kept(Mapping[str, str]):
    """What a process of a run carries, which is how its orphans are told."""

    def __init__(self, run_id: str, token: str, root: Path) -> None:
        self._words = {"SUBAGENT_RUN_ID": run_id, "SUBAGENT_TOKEN": token, "SUBAGENT_RUNS_DIR": str(root)}

    def __getitem__(self, name: str) -> str:
        return self._words[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)


# Whose process it is: somebody's who is not there, or who only looks.
CARRIED: Mapping[str, Callable[[Kept, Path], dict[str, str]]] = {
    "nobody's": lambda _, __: {},
    "of a shell that knows the id": lambda kept, _: {**kept, "SUBAGENT_TOKEN": ""},
    "with another token": lambda kept, _: {**kept, "SUBAGENT_TOKEN": NEVER},
    "of a copy elsewhere": lambda kept, elsewhere: {**kept, "SUBAGENT_RUNS_DIR": str(elsewhere)},
    "of another run": lambda kept, _: {**kept, "SUBAGENT_RUN_ID": "0190a000-0000-7000-8000-00000000beef"},
    "with its token in no file": lambda kept, _: {**kept, "SUBAGENT_TOKEN": "", "SUBAGENT_TOKEN_FILE": "/dev/null"},
}
# What stands in `.alive`, of a process and its start.
LINES: Mapping[str, Callable[[int, str], bytes]] = {
    "its number and start": lambda pid, start: f"{pid} {start}\n".encode(),
    "its number and an earlier start": lambda pid, start: f"{pid} {int(start) - 1}\n".encode(),
    "its number alone": lambda pid, _: f"{pid}\n".encode(),
    "no line feed": lambda pid, start: f"{pid} {start}".encode(),
    "many lines": lambda pid, start: f"{pid} {start}\n".encode() * 1000,
    "everybody": lambda _, __: b"-1 1\n",
    "our own group": lambda _, __: b"0 0\n",
    "process 1": lambda _, __: b"1 0\n",
    "no number": lambda pid, _: b"\0\xff" + str(pid).encode() + b" x\n",
    "more than a number": lambda _, __: b"9" * 5000 + b" 1\n",
    "nothing": lambda _, __: b"",
}
VERBS: Mapping[str, Callable[[Context, str], object]] = {
    "status": lambda desk, run_id: runs.status(desk, run_id),
    "list": lambda desk, _: listing.find(desk),
    "tree": lambda desk, run_id: trees.tree(desk, run_id),
    "wait": lambda desk, run_id: waiting.for_runs(desk, [run_id], timeout=0),
    "sweep": lambda desk, _: sweep.sweep(desk),
    "doctor": lambda desk, run_id: doctor.check(desk, [run_id], fix=True),
    "cancel": lambda desk, run_id: cancellation.cancel(desk, [run_id], grace=1),
    "cancel --all": lambda desk, _: cancellation.cancel(desk, [], everything=True, grace=1),
    "clean": lambda desk, run_id: clean.delete(desk, clean.plan(desk, [run_id])),
}


def kept_run(desk: Context, line: Callable[[int, str], bytes], other: Bystander) -> tuple[str, str, Claim]:
    """A run whose keeper has just started, as far as anybody can see; who it is stands in `.alive`."""
    claim, token = Claim(), desk.clock.new_token()
    spec = {**specs.new_spec(desk, "true", "Do it", token, cwd="/", name=None), "argv": ["true"]}
    desk.runs.create(spec, "Do it", RUNNING, desk.clock.now(), None, claim)
    os.write(claim.fd, line(other.pid, other.start))
    return spec["runId"], token, claim


@pytest.mark.usefixtures("powered")
def test_no_line_in_a_file_makes_a_run_alive_or_costs_a_process_its_life(tmp_path: Path, told: Told) -> None:
    chance, root, harm, lies, tried = random.Random(), tmp_path / "runs", list[str](), list[str](), 0
    for whose, carried in CARRIED.items():
        for what, line in LINES.items():
            desk = open_context({"runs_dir": str(root)}, StillClock())
            named = Bystander()
            run_id, token, claim = kept_run(desk, line, named)
            beside = Bystander(carried(Kept(run_id, token, root), tmp_path))
            lies += [f"{what}: dead although its lock is held"] * (not runs.status(desk, run_id)["alive"])
            claim.drop()
            if chance.random() < 0.3:
                # As a dispatch leaves it that was killed; the next sweep clears it away.
                os.makedirs(Path(desk.runs.layout.workspace(run_id), "tree"))
            for verb in chance.sample(list(VERBS), len(VERBS)):
                tried += 1
                # A run that is gone by then is nobody's.
                with suppress(SubagentError):
                    lies += [f"{verb}, {what}: alive"] * bool(runs.status(desk, run_id)["alive"])
                    VERBS[verb](desk, run_id)
                harm += [f"{verb}, {what}, {whose}: {one.harm}" for one in (named, beside) if one.harm]
            for one in (named, beside):
                one.close()
            shutil.rmtree(root)
    told(
        "numbers of others in .alive", f"{tried} verbs", f"{len(harm)} wrong signals, {len(lies)} wrongly alive or dead"
    )
    assert (harm, lies) == ([], [])


@pytest.mark.usefixtures("powered")
def test_what_does_belong_to_a_run_that_lost_its_keeper_is_ended_and_nothing_else(tmp_path: Path) -> None:
    """Else the one above could not fail."""
    desk = open_context({"runs_dir": str(tmp_path / "runs")}, StillClock())
    other = Bystander()
    run_id, token, claim = kept_run(desk, LINES["its number and start"], other)
    own = Bystander(dict(Kept(run_id, token, tmp_path / "runs")))
    claim.drop()
    sweep.sweep(desk)
    assert (own.harm, other.harm) == ("", "")
    assert cancellation.cancel(desk, [run_id], grace=1)["orphans"] == [own.pid]
    assert "it was ended" in own.harm
    assert other.harm == ""
    for one in (own, other):
        one.close()


def test_numbers_that_the_system_has_given_to_others_are_theirs(tmp_path: Path, told: Told) -> None:
    seed = new_seed()
    apart = ["unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--pid", "--fork", "--kill-child"]
    words = [*apart, "--mount-proc", sys.executable, "-m", "tests.stress.reuse", str(tmp_path / "runs")]
    possible = subprocess.run([*apart, "--mount-proc", "true"], capture_output=True, check=False).returncode == 0
    if not (possible and shutil.which("unshare") and os.access("/proc/sys/kernel/ns_last_pid", os.F_OK)):
        told("numbers really given to others", "none: no namespace for processes here", "-")
        return
    done = subprocess.run(
        [*words, str(ROUNDS), str(seed)], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    lost = ", ".join(f"{len(found[key])} {word}" for key, word in NAMED.items())
    told("numbers really given to others", f"{found['reused']} numbers of {ROUNDS} runs, seed {seed}", lost)
    assert {key: found[key] for key in NAMED} == {key: [] for key in NAMED}
    assert found["reused"] >= ROUNDS


NAMED = {"harmed": "wrong signals", "alive": "wrongly alive", "left": "orphans left", "faults": "faults"}

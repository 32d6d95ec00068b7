"""Whatever call of the system a verb dies at, and whichever of them fails: what was acknowledged is there, what failed
has changed nothing, nothing stays locked, and the same call works the next time.

It takes about a minute and a half: some 600 kills and 1,400 errors.
"""

import json
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.store.world import open_at
from tests.stress import tracing
from tests.stress.aftermath import Toll, cleared, no_toll
from tests.stress.conftest import Told
from tests.stress.deeds import DEEDS
from tests.stress.ground import Ground, had, quick_folder
from tests.stress.line import Said
from tests.stress.nursing import Nursery, nursery

NEW = ("open", "mkdir", "rename", "link", "symlink", "mkfifo")
# Which calls an error can meet. A stat that fails is left out: the system has no such error for a path of ours.
ERRORS: Mapping[str, tuple[str, ...]] = {
    "EIO": (*NEW, "read", "write", "pwrite", "fsync", "fdatasync", "ftruncate", "unlink", "unlinkat", "rmdir", "flock"),
    "ENOSPC": (*NEW, "write", "pwrite", "fsync", "fdatasync"),
    "EMFILE": ("open",),
    "EACCES": (*NEW, "unlink", "unlinkat", "rmdir"),
}
# At each of these a death leaves something else on disk, or a file open, or a lock held.
DEADLY = (*NEW, "write", "pwrite", "fsync", "fdatasync", "ftruncate", "unlink", "unlinkat", "rmdir", "flock", "close")
# What a disk is asked to confirm with: a folder has to be opened for it.
CONFIRMING = ("fsync", "fdatasync", "open")
DAMAGED, UNKNOWN = 8, 9

# Verbs that commit more than once: a failure leaves what came before it, and the next call does the rest.
OF_STEPS = ("send", "sweep", "clean")
# What could not be looked at is told by these as an exit code of its own.
EXPECTED = {False: (0, 1, UNKNOWN), True: (0, 1, DAMAGED, UNKNOWN)}


Trials = Mapping[str, tuple[Ground, Counter[str]]]


@pytest.fixture(autouse=True)
def _strace() -> None:
    if absent := tracing.missing():
        pytest.skip(f"needs strace: {absent}")


@pytest.fixture(autouse=True)
def _no_keepers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subagent_cli.process.launch.start", lambda *_: None)


@pytest.fixture
def counted(tmp_path: Path, _strace: None) -> Iterator[Trials]:
    """For each verb how many calls of each kind it makes."""
    found = {}
    file = tmp_path / "counted"
    with quick_folder(tmp_path) as folder:
        with nursery() as warm, tracing.traced(warm.pid, file):
            for verb in DEEDS:
                ground = Ground(folder, verb)
                end = warm.call(ground.fresh(), ground.errand)
                assert end.said is not None
                assert end.said.code == 0, end.said
                found[verb] = ground, tracing.calls(file, end.pid)
        yield found


def places(calls: Counter[str], kinds: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Each call of these kinds that there is."""
    return ((kind, number) for kind in kinds for number in range(1, calls[kind] + 1))


def killed(ground: Ground, warm: Nursery, kind: str, number: int, toll: Toll) -> tuple[bool, int]:
    """Kills a deed at one of its calls; whether it died, and how many temporary files it left."""
    root, where = ground.fresh(), f"{ground.verb} killed at {kind} {number}"
    end = warm.call(root, ground.errand, idle=(kind, tracing.FAR - number))
    count = ground.deed.count(open_at(root))
    if end.said is not None and end.said.code == 0 and count != 1:
        toll.lost.append(where)
    if not 0 <= count <= 1 and ground.verb != "spawn":
        toll.torn.append(f"{where}: it has happened {count} times")
    # A group whose making is killed leaves children that no group has; the retry makes all of it anew.
    ground.once_more(root, toll, where, most=1 if ground.deed.repeatable else 2)
    left = cleared(root, toll, where)
    shutil.rmtree(root)
    return end.status == -signal.SIGKILL, left


@pytest.mark.stress
def test_a_verb_that_is_killed_at_any_of_its_calls_happened_whole_or_not_at_all(
    tmp_path: Path, counted: Trials, told: Told
) -> None:
    toll, left, kills, survivors = no_toll(), 0, 0, list[str]()
    with nursery() as warm, tracing.traced(warm.pid, tmp_path / "trace", "signal=SIGKILL", DEADLY):
        for ground, calls in counted.values():
            for kind, number in places(calls, DEADLY):
                died, files = killed(ground, warm, kind, number, toll)
                kills, left = kills + died, left + files
                survivors += [] if died else [f"{ground.verb} at {kind} {number} of {calls[kind]}"]
    told(
        "kill -9 at every system call",
        f"{kills:,} kills in {len(counted)} verbs",
        f"{toll}; {left} temporary files left, all swept",
    )
    assert not any(toll), toll.shown
    assert survivors == []
    assert kills > 300


def failed(ground: Ground, warm: Nursery, kind: str, number: int, error: str, toll: Toll) -> int:
    """Lets one call of a deed fail and holds the outcome against what is on disk; gives the exit code."""
    root, where = ground.fresh(), f"{ground.verb} with {error} at {kind} {number}"
    before = had(root)
    said = warm.call(root, ground.errand, idle=(kind, tracing.FAR - number)).said
    if said is None:
        toll.wrong.append(f"{where}: it never ended")
        return -1
    count = ground.deed.count(open_at(root))
    if "Traceback" in said.err or said.code not in EXPECTED[ground.verb in OF_STEPS] or _is_strange(said):
        toll.wrong.append(f"{where}: it ended with {said}")
    if said.code == 0 and count != 1:
        toll.lost.append(f"{where}: {said}")
    if said.code == UNKNOWN and kind not in CONFIRMING:
        toll.wrong.append(f"{where}: nobody knows what came of it: {said}")
    if said.code not in (0, UNKNOWN) and ground.verb not in OF_STEPS and had(root) != before:
        toll.torn.append(f"{where}: it failed and has changed something: {said}")
    ground.once_more(root, toll, where, most=1 if ground.deed.repeatable or said.code not in (0, UNKNOWN) else 2)
    shutil.rmtree(root)
    return said.code


def _is_strange(said: Said) -> bool:
    """Whether the error is none that we have a word for."""
    if said.code in (0, DAMAGED):
        return False
    # Who does several things says in the result which of them could not be done.
    error = json.loads(said.out).get("error", {"code": "io_error"})
    return error["code"] not in ("io_error", "disk_full", "outcome_unknown")


@pytest.mark.stress
@pytest.mark.parametrize("error", ERRORS)
def test_a_verb_whose_call_fails_says_so_and_has_changed_nothing_or_succeeds(
    tmp_path: Path, counted: Trials, told: Told, error: str
) -> None:
    toll, codes, file = no_toll(), Counter[int](), tmp_path / "trace"
    with nursery() as warm, tracing.traced(warm.pid, file, f"error={error}", ERRORS[error]):
        for ground, calls in counted.values():
            for kind, number in places(calls, ERRORS[error]):
                codes[failed(ground, warm, kind, number, error, toll)] += 1
    met = file.read_text(errors="replace").count("(INJECTED)")
    told(
        f"{error} at every system call",
        f"{met:,} errors in {len(counted)} verbs: {codes[0]:,} succeeded, {codes[UNKNOWN]:,} of unknown outcome",
        str(toll),
    )
    assert not any(toll), toll.shown
    assert met == codes.total()
    assert met > 100

"""Runs, clocks and child processes that the tests of the store share."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from subagent_cli.core.ids import uuid7
from subagent_cli.core.moment import Moment
from subagent_cli.core.projection import project
from subagent_cli.core.run import Run
from subagent_cli.services import runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.store import codec
from subagent_cli.store.clock import Clock
from subagent_cli.store.runs import Runs

CHILD = Path(__file__).with_name("child.py")
PATIENCE = 60.0
START = 1_800_000_000_000
DAY = 86_400_000
STAMP = "2026-01-02T03:04:05.678Z"


class FakeClock(Clock):
    """A clock that stands still until a test moves it; its ids come in the order in which they are asked for."""

    def __init__(self, ms: int = START) -> None:
        super().__init__()
        self.ms = ms
        self.up = 1_000_000
        self.boot = "b0071d00"
        self.made = 0

    def now(self) -> Moment:
        return Moment(self.ms, self.boot, self.up)

    def new_id(self) -> str:
        self.made += 1
        return uuid7(self.ms, self.made.to_bytes(10, "big"))

    def new_token(self) -> str:
        return "0" * 64

    def advance(self, ms: int) -> None:
        self.ms += ms
        self.up += ms


def open_at(root: Path, clock: Clock | None = None, **options: str) -> Context:
    """A context that remembers nothing of what others did."""
    return open_context({"runs_dir": str(root), **options}, clock)


def new_run(context: Context) -> str:
    run_id: str = runs.create(context, "worker", "do it")["runId"]
    return run_id


def meta(root: Path, run_id: str) -> Path:
    return root / run_id / ".meta.json"


def journal_of(root: Path, run_id: str) -> Path:
    return root / run_id / "journal.jsonl"


def truth(root: Path, run_id: str) -> Run:
    """The run as somebody sees it who has just come."""
    return Runs(str(root)).read(run_id, Clock().now())


def document(root: Path, run_id: str) -> Any:
    return codec.load(meta(root, run_id).read_bytes())


def shows_the_truth(root: Path, run_id: str) -> bool:
    """Whether `.meta.json` is the picture of what the journal says, byte for byte."""
    return meta(root, run_id).read_bytes() == codec.document(project(truth(root, run_id)))


def index_holds_at_least(root: Path, run_id: str) -> None:
    """Nothing that is true of the run is missing from the index."""
    index = Runs(str(root)).index
    run = truth(root, run_id)
    assert not run.active or run_id in index.active()
    for message_id in run.questions:
        assert index.asker(message_id) == run_id


def everything(root: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {
        os.path.relpath(os.path.join(folder, name), root): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(root)
        for name in names
    }


@contextmanager
def children(*calls: Sequence[object]) -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that each do one of the jobs in child.py; none outlives the with block."""
    started: list[subprocess.Popen[str]] = []
    try:
        for call in calls:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-P", str(CHILD), *map(str, call)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait(PATIENCE)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def ready(*processes: "subprocess.Popen[str]") -> None:
    """Waits until each process says that it has come to its starting line."""
    for process in processes:
        assert pipe(process.stdout).readline() == "ready\n"


def go(*processes: "subprocess.Popen[str]") -> None:
    """Lets processes start that wait at their starting lines."""
    for process in processes:
        pipe(process.stdin).write("go\n")
        pipe(process.stdin).flush()


def ended(process: "subprocess.Popen[str]", patience: float = PATIENCE) -> list[str]:
    """What a process still has to say until its end, line by line."""
    out, _ = process.communicate(timeout=patience)
    return out.splitlines()


def ask_in_parallel(root: Path, writers: int, each: int, patience: float, **options: str) -> dict[int, list[str]]:
    """Writers that all ask on one run at once; which questions each was told are safe, in its own order."""
    context = open_at(root)
    run_id = new_run(context)
    calls = [("asks", root, run_id, each, *(f"{key}={value}" for key, value in options.items()))] * writers
    with children(*calls) as processes:
        ready(*processes)
        go(*processes)
        told = {number: ended(process, patience) for number, process in enumerate(processes)}
        assert [process.returncode for process in processes] == [0] * writers
    return told


def all_kept(root: Path, told: dict[int, list[str]], each: int) -> None:
    """Every acknowledged question is there, each writer's in the order in which it asked, in journal and picture."""
    [run_id] = Runs(str(root)).all()
    run = truth(root, run_id)
    place = {message_id: number for number, message_id in enumerate(run.questions)}
    for answers in told.values():
        assert len(answers) == each
        places = [place[message_id] for message_id in answers]
        assert places == sorted(places)
    assert len(place) == len(told) * each
    assert [entry["messageId"] for entry in document(root, run_id)["messages"]] == list(place)
    assert shows_the_truth(root, run_id)
    index_holds_at_least(root, run_id)

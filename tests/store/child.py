"""What the tests of the store have done in processes of their own: `child.py JOB ROOT ...`.

A job says `ready` where others must start at the same time, and prints a line for what it was told is safe only after
it was told.
"""

import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from subagent_cli.core.errors import Refused, SubagentError
from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.store import runs as store
from subagent_cli.store.layout import Layout
from subagent_cli.store.lock import held

RANKS = {"PENDING": 0, "ANSWERED": 1, "RETRIEVED": 2, "EXPIRED": 2}


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def start_together() -> None:
    say("ready")
    sys.stdin.readline()


def context(root: str, **options: str) -> Context:
    return open_context({"runs_dir": root, **options})


def do(root: str, verb: str, run_id: str) -> Any:
    """One change by one verb; `check` and `reply` mean the run's latest question."""
    here = context(root)
    if verb == "create":
        return runs.create(here, "worker", "do it")["runId"]
    if verb == "ask":
        return questions.ask(here, "And now?", run=run_id)["messageId"]
    if verb == "reply":
        return questions.reply(here, run_id, "That.", which="latest")["messageIds"]
    if verb == "check":
        return questions.check(here, list(here.runs.read(run_id, here.clock.now()).questions)[-1])["state"]
    return runs.update(here, run_id, "success", "Done.")["status"]


def die_at(root: str, place: str, verb: str, run_id: str) -> None:
    """Does one change and is killed at a named point of it."""

    def reached(point: str) -> None:
        if point == place:
            os.kill(os.getpid(), signal.SIGKILL)

    store.reached = reached
    do(root, verb, run_id)
    say("survived")


def asks(root: str, run_id: str, count: str, *options: str) -> None:
    here = context(root, **dict(option.split("=", 1) for option in options))
    start_together()
    for number in range(int(count)):
        say(questions.ask(here, f"Question {number} of {os.getpid()}?", run=run_id)["messageId"])


def answers(root: str, run_id: str, *message_ids: str) -> None:
    """Replies to each question and prints those whose answer is its own."""
    here = context(root)
    start_together()
    for message_id in message_ids:
        try:
            questions.reply(here, run_id, f"by {os.getpid()}", message=message_id)
        except Refused:
            continue
        say(message_id)


def reads(root: str, run_id: str) -> None:
    """Looks until the run has ended; prints how often it looked, or what went backwards."""
    here = context(root)
    start_together()
    known: dict[str, int] = {}
    looks = 0
    finished = False
    while not finished:
        seen = runs.status(here, run_id, peek=True)
        ranks = {entry["messageId"]: RANKS[entry["state"]] for entry in seen.get("messages", [])}
        if any(ranks.get(message_id, -1) < rank for message_id, rank in known.items()):
            say(f"backwards: {known} became {ranks}")
            return
        known = ranks
        looks += 1
        finished = seen["status"] == "success"
    say(f"looked {looks}")


def hold(root: str, run_id: str) -> None:
    """Holds the run's lock until its stdin is closed."""
    layout = Layout(root)
    with held(layout.lock(run_id), 10, "the run"):
        say("ready")
        sys.stdin.read()


def rewrite(path: str) -> None:
    """Writes a file anew in place, again and again, as a program that knows nothing of us does."""
    with open(path, "rb") as file:
        content = file.read()
    say("ready")
    while True:
        with open(path, "r+b", buffering=0) as file:
            file.truncate(0)
            # The gap that others fall into must be there, and must not be all there is.
            file.write(content[: len(content) // 2])
            file.write(content[len(content) // 2 :])
        pause_until(time.monotonic() + 0.001)


def pause_until(moment: float) -> None:
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left)


def full_disk(root: str, limit: str, verb: str, run_id: str) -> None:
    """Does one change where no file may grow beyond a limit; prints how it ended."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    try:
        do(root, verb, run_id)
    except SubagentError as error:
        say(f"{type(error).__name__} {error.code}")
    else:
        say("done")


def nursery(root: str, run_id: str, kills: str, seed: str) -> None:
    """Has children that ask without end and kills each at a random moment; prints what they were told is safe."""
    chance = random.Random(int(seed))
    for _ in range(int(kills)):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(writing, 1)
            here = context(root)
            while True:
                say(questions.ask(here, f"Asked by {os.getpid()}?", run=run_id)["messageId"])
        os.close(writing)
        told = b""
        enough = chance.randrange(1, 8)
        while told.count(b"\n") < enough:
            if not (part := os.read(reading, 4096)):
                raise RuntimeError("a writer ended before it was killed")
            told += part
        pause_until(time.monotonic() + chance.random() * 0.003)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while part := os.read(reading, 4096):
            told += part
        os.close(reading)
        os.write(1, told)


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job for job in (die_at, asks, answers, reads, hold, rewrite, full_disk, nursery)
}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])

"""A warm process that has each call made by a child of its own, which may be killed: `nursery.py DESCRIPTOR`.

Orders come as messages through a socket, and so do the answers: of the child how its call ended, of the nursery how
the child did. Before its call a child can be told to make calls of the system that come to nothing, so that a fault
which is injected at the K-th call of a kind meets any call of the verb that is wanted.
"""

import fcntl
import gc
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from subagent_cli.store import runs as store
from tests.stress import chatter
from tests.stress.line import start_no_keepers, typed

NO_FILE = 1_000_000
LONGEST = 1 << 20

# What each kind of call is made of where it can do no harm.
IDLE: dict[str, Callable[[], object]] = {
    "open": lambda: os.open("", os.O_RDONLY),
    "read": lambda: os.read(NO_FILE, 1),
    "write": lambda: os.write(NO_FILE, b""),
    "pwrite": lambda: os.pwrite(NO_FILE, b"", 0),
    "fsync": lambda: os.fsync(NO_FILE),
    "fdatasync": lambda: os.fdatasync(NO_FILE),
    "ftruncate": lambda: os.ftruncate(NO_FILE, 0),
    "flock": lambda: fcntl.flock(NO_FILE, fcntl.LOCK_UN),
    "close": lambda: os.close(NO_FILE),
    "rename": lambda: os.rename("", ""),
    "mkdir": lambda: os.mkdir(""),
    "rmdir": lambda: os.rmdir(""),
    "unlink": lambda: os.unlink(""),
    "unlinkat": lambda: os.unlink("nothing", dir_fd=NO_FILE),
    "link": lambda: os.link("", ""),
    "symlink": lambda: os.symlink("", ""),
    "mkfifo": lambda: os.mkfifo(""),
    "stat": lambda: os.stat(""),
    "lstat": lambda: os.lstat(""),
    "fstat": lambda: os.fstat(NO_FILE),
}


def forked(job: Callable[[], object]) -> int:
    """Starts a child that does one job and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            job()
        finally:
            os._exit(0)
    return pid


def die_at(place: str, point: str) -> None:
    if point == place:
        os.kill(os.getpid(), signal.SIGKILL)


def call(line: socket.socket, order: dict[str, Any]) -> None:
    """In a child: the call itself, after everything that has been asked for before it."""
    if point := order.get("point"):
        store.reached = partial(die_at, point)
    if idle := order.get("idle"):
        kind, times = idle
        turn = IDLE[kind]
        for _ in range(times):
            with suppress(OSError):
                turn()
    said = typed(order["root"], order["words"], order["env"])
    line.send(json.dumps({"said": said}).encode())


def chats(line: socket.socket, order: dict[str, Any]) -> None:
    """Kills children that use all verbs without end, each at a random moment; tells what they were told is safe."""
    chance = random.Random(order["seed"])
    for number in range(order["kills"]):
        reading, writing = os.pipe()
        seed = f"{order['seed']}-{number}"
        pid = forked(lambda: chatter.chat(order["root"], seed, order["runs"], writing))  # noqa: B023
        os.close(writing)
        told, enough = b"", chance.randrange(1, 5)
        while told.count(b"\n") < enough:
            if not (part := os.read(reading, 65536)):
                raise RuntimeError(f"a writer ended before it was killed: {told.decode()}")
            told += part
        until = time.monotonic() + chance.random() * 0.006
        while time.monotonic() < until:
            pass
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError(f"a writer ended before it was killed: {status}")
        while part := os.read(reading, 65536):
            told += part
        os.close(reading)
        line.send(told)
    line.send(b"done")


def attend(line: socket.socket) -> None:
    while order := line.recv(LONGEST):
        wanted = json.loads(order)
        if wanted["job"] == "warm":
            typed(wanted["root"], wanted["words"], wanted["env"])
            line.send(b"{}")
        elif wanted["job"] == "chat":
            chats(line, wanted)
        else:
            pid = forked(lambda: call(line, wanted))  # noqa: B023
            _, status = os.waitpid(pid, 0)
            line.send(json.dumps({"pid": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    gc.disable()
    start_no_keepers()
    attend(socket.socket(fileno=int(sys.argv[1])))

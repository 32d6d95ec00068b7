"""The nursery from outside: a process that is warm before anything is killed in it.

Promise: it ends with its with block, and an answer that does not come is an error and no endless wait.
"""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import tests
from tests.store.world import PATIENCE, open_at
from tests.stress.deeds import DEEDS, Errand
from tests.stress.ground import quick_folder
from tests.stress.line import Said

_NURSERY = Path(__file__).with_name("nursery.py")
_LONGEST = 1 << 20


class End(NamedTuple):
    """How a child ended: what its call said, if it lived to say it, and its exit code or the signal that killed it."""

    pid: int
    said: Said | None
    status: int


class Nursery:
    def __init__(self, line: socket.socket, pid: int) -> None:
        self._line, self.pid = line, pid

    def warm_up(self, root: Path, errand: Errand) -> None:
        """Has a call made by the nursery itself, so that what it imports is there for its children."""
        self._order(job="warm", root=str(root), words=errand.words, env=dict(errand.env))
        self._answer()

    def call(self, root: Path, errand: Errand, *, point: str | None = None, idle: tuple[str, int] | None = None) -> End:
        """Has a call made by a child, to its end or to its death."""
        words, env = errand.words, dict(errand.env)
        self._order(job="call", root=str(root), words=words, env=env, point=point, idle=idle)
        said = None
        answer = self._answer()
        if "said" in answer:
            said = Said(*answer["said"])
            answer = self._answer()
        return End(answer["pid"], said, answer["status"])

    def begin_chats(self, root: Path, run_ids: Sequence[str], kills: int, seed: int) -> None:
        self._order(job="chat", root=str(root), runs=run_ids, kills=kills, seed=seed)

    def chats(self) -> Iterator[list[Any]]:
        """For each killed child what it was told is safe, line by line; a line that the kill cut off was not told."""
        while (told := self._line.recv(_LONGEST)) != b"done":
            if not told:
                raise RuntimeError("the nursery is gone")
            yield [json.loads(line) for line in told.split(b"\n")[:-1]]

    def _order(self, **order: Any) -> None:
        self._line.send(json.dumps(order).encode())

    def _answer(self) -> Any:
        answer = self._line.recv(_LONGEST)
        if not answer:
            raise RuntimeError("the nursery is gone")
        return json.loads(answer)


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery in which every deed has been done once."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.settimeout(PATIENCE)
    above = Path(tests.__file__).parents[1]
    with here:
        with there:
            words = [sys.executable, str(_NURSERY), str(there.fileno())]
            process = subprocess.Popen(words, pass_fds=[there.fileno()], env={"PYTHONPATH": str(above), "PATH": ""})
        try:
            warm = Nursery(here, process.pid)
            _warmed(warm)
            yield warm
        finally:
            process.kill()
            process.wait(PATIENCE)


def _warmed(warm: Nursery) -> None:
    with quick_folder(Path(tempfile.gettempdir())) as scratch:
        for number, deed in enumerate(DEEDS.values()):
            root = scratch / str(number)
            warm.warm_up(root, deed.prepare(open_at(root)))

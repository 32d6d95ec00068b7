"""Drives the double of the TypeScript server (node/server-double.mjs) in a process of its own.

Promises: an answer is matched to its request by id, whatever else the double prints; what is no answer is kept in
`talk`; no wait is without an end, and the process does not outlive `close()`.
"""

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from tests.command import PATIENCE, end
from tests.compat import nodejs

COMPLAINTS = 10_000

Answer = dict[str, Any]


class ServerError(Exception):
    """The double refused a request; the text is its own."""


class Server:
    """`with Server(folder) as server: server.call("ask_parent", runId=..., question=...)`.

    Requests run one after another, with `gap` milliseconds between them, or all at once if `parallel`. Without a
    folder the double chooses one as the server does; `log_directory` says which it was.
    """

    def __init__(
        self,
        log_dir: "str | os.PathLike[str] | None" = None,
        *,
        parallel: bool = False,
        gap: int = 0,
        cwd: "str | os.PathLike[str] | None" = None,
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.talk: list[str] = []
        self.log_directory = ""
        self._patience = patience
        self._asked = 0
        self._sent: list[int] = []
        self._open: set[int] = set()
        self._answers: dict[int, Answer] = {}
        self._ended = False
        self._news = threading.Condition()
        options = [*(["--parallel"] if parallel else []), "--gap", str(gap)]
        folder = [os.fspath(log_dir)] if log_dir is not None else []
        # A file and not a pipe: nobody reads it unless something went wrong, and it must never fill up.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [*nodejs.script("server-double.mjs"), *options, *folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            # A group of its own, so that the agents it runs can be ended with it.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._wait(lambda: bool(self.log_directory), "to be ready")
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A test that has failed already need not wait for what it left running.
        if kind is None:
            self.close()
        else:
            self._kill()

    def call(self, tool: str, /, **arguments: Any) -> Answer:
        """The result of one request; ServerError if the double refused it."""
        (id_,) = self._submit([(tool, arguments)])
        answer = self._take([id_])[0]
        if not answer["ok"]:
            raise ServerError(answer["error"])
        result: Answer = answer["result"]
        return result

    def send(self, requests: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Hand over a batch and go on; `collect()` brings its answers."""
        self._sent += self._submit(requests)

    def collect(self) -> list[Answer]:
        """Wait for all that was sent: `{"id", "ok", "result" | "error"}` each, in the order of sending."""
        ids, self._sent = self._sent, []
        return self._take(ids)

    def close(self, patience: float | None = None) -> int:
        """Let it finish what it does and end; its exit code, negative if it had to be killed. Harmless if repeated."""
        self._say_no_more()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(self._patience if patience is None else patience)
        return self._kill()

    def _submit(self, requests: Iterable[tuple[str, Mapping[str, Any]]]) -> list[int]:
        first = self._asked + 1
        lines = []
        for tool, arguments in requests:
            self._asked += 1
            lines.append(json.dumps({"id": self._asked, "tool": tool, "arguments": arguments}))
        ids = list(range(first, self._asked + 1))
        with self._news:
            self._open.update(ids)
        stdin = self.process.stdin
        assert stdin is not None
        # If it has gone, whoever waits for the answers learns why.
        with suppress(BrokenPipeError):
            # In one piece, so that the double finds a batch together.
            stdin.write("".join(f"{line}\n" for line in lines).encode())
            stdin.flush()
        return ids

    def _take(self, ids: list[int]) -> list[Answer]:
        self._wait(lambda: all(id_ in self._answers for id_ in ids), f"to answer {len(ids)}")
        with self._news:
            return [self._answers.pop(id_) for id_ in ids]

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        with self._news:
            self._news.wait_for(lambda: ready() or self._ended, self._patience)
            if ready():
                return
            state = "ended and will not come" if self._ended else f"had {self._patience:g} s"
        # Not by seeking: the double writes at the same position.
        complaints = os.pread(self._complaints.fileno(), COMPLAINTS, 0).decode(errors="replace")
        raise RuntimeError(f"the double {state} {what}: {complaints or 'it said nothing'}")

    def _read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        for line in stdout:
            with self._news:
                self._sort(line.decode(errors="replace").removesuffix("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _sort(self, line: str) -> None:
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        match value:
            case {"ready": True, "logDirectory": str(folder)} if not self.log_directory:
                self.log_directory = folder
            case {"id": int(id_), "ok": bool()} if id_ in self._open:
                self._open.remove(id_)
                self._answers[id_] = value
            case _:
                self.talk.append(line)

    def _say_no_more(self) -> None:
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def _kill(self) -> int:
        self._say_no_more()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait(PATIENCE)
        # The last lines are read before the pipe is closed under the reader.
        self._reader.join(PATIENCE)
        end(self.process)
        self._complaints.close()
        return code

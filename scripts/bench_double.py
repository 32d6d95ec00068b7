"""The double of the TypeScript server as a yardstick, and a stand-in for how the server captures output.

Both are imitations of ours, made from what the server was seen to do, and every row beside them says so. The double
takes no lock and syncs nothing, as the server does, but loads no protocol library: it starts sooner than the server.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from scripts.bench_buses import ANSWER, QUESTION, exchanges
from subagent_cli.core.event import Created
from subagent_cli.core.evolution import fold
from subagent_cli.core.projection import project
from subagent_cli.core.run import RUNNING, Run
from subagent_cli.store import codec
from subagent_cli.store.clock import Clock
from tests.compat import nodejs

NODE = shutil.which("node") or "node"
NAME = "double of the server"
STAND_IN = "stand-in for the server"
CAPTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_capture.mjs")


def missing() -> str:
    """Why there can be no double here; empty where there can."""
    return nodejs.missing()


def no_node() -> str:
    """Why nothing that runs in Node without any modules can be measured here; empty where it can."""
    return "" if shutil.which("node") else "no node"


def words(folder: str) -> tuple[str, ...]:
    return (*nodejs.script("server-double.mjs"), folder)


def capture(log: str) -> tuple[str, ...]:
    """What runs the words behind it and captures what they put out."""
    return (NODE, CAPTURE, log)


def request(tool: str, **arguments: Any) -> bytes:
    return json.dumps({"id": 1, "tool": tool, "arguments": arguments}).encode() + b"\n"


def meta(folder: str, run_id: str) -> str:
    """Where the server looks for the document of a run."""
    return os.path.join(folder, f"{run_id}.meta.json")


class Session:
    """A running double that is asked one thing after the other, as an agent does, by the shortest way there is: no
    thread and no queue of ours lies between the call and its answer."""

    def __init__(self, folder: str, environ: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            words(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ if environ is None else environ),
        )
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(request(tool, **arguments))
        self._process.stdin.flush()
        answer = self._answer()
        if not answer["ok"]:
            raise RuntimeError(f"the double refused {tool}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the double has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


class DoubleBus:
    """With the double of the server in a running session over its pipes: no lock, and nothing is synced."""

    def __init__(self, folder: str) -> None:
        self.clock = Clock()
        self.folder = folder
        self.run_id = ""
        self.session = Session(folder)

    def begin(self, messages: int) -> None:
        self.run_id = self.clock.new_id()
        created = Created(self.clock.now(), self.run_id, "helper", "helper", RUNNING)
        run = fold(Run(self.run_id), (created, *exchanges(self.clock, messages)))
        with open(meta(self.folder, self.run_id), "wb") as file:
            file.write(codec.document(project(run)))

    def ask(self) -> str:
        message_id: str = self.session.call("ask_parent", runId=self.run_id, question=QUESTION)["messageId"]
        return message_id

    def reply(self, message_id: str) -> None:
        self.session.call("reply_subagent", runId=self.run_id, messageId=message_id, answer=ANSWER)

    def check(self, message_id: str) -> object:
        answer: object = self.session.call("check_message_status", runId=self.run_id, messageId=message_id)[
            "answerContent"
        ]
        return answer

    def close(self) -> None:
        self.session.close()

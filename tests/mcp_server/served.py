"""The server as clients meet it: a real process, driven line by line or by the official client.

Promises: no server outlives its test, no wait is without an end, and every line that a server prints is JSON-RPC.
"""

import json
import os
import queue
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

from tests.command import PATIENCE, PROGRAM, end

Message = dict[str, Any]

HELLO: Message = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
# The names of the folders and programs that a test has; no token and no run, unless it says so.
_KEPT = ("HOME", "PATH", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


def environment(runs_dir: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "SUBAGENT_RUNS_DIR": str(runs_dir), "SUBAGENT_STOP_GRACE": "300ms", **(more or {})}


class Wire:
    """One server, line by line."""

    def __init__(self, runs_dir: Path, env: Mapping[str, str] | None = None, words: tuple[str, ...] = ()) -> None:
        self.strangers: list[str] = []
        self.notices: list[Message] = []
        self._id = 0
        self._lines: queue.Queue[Message | None] = queue.Queue()
        self._answers: dict[Any, Message] = {}
        self.process = subprocess.Popen(
            [*PROGRAM, "mcp", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(runs_dir, env),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self.process)
        self._reader.join(PATIENCE)

    def greet(self) -> "Wire":
        assert "result" in self.take(self.ask("initialize", HELLO))
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def write(self, message: Message) -> None:
        self.write_line(json.dumps(message).encode())

    def write_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: Any = None) -> int:
        """Sends a request and goes on; its id."""
        self._id += 1
        self.write({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}})
        return self._id

    def take(self, id_: Any) -> Message:
        """The answer to a request."""
        while id_ not in self._answers:
            message = self._lines.get(timeout=PATIENCE)
            assert message is not None, f"the server has gone: {self.strangers}"
            if "method" in message:
                self.notices.append(message)
            else:
                self._answers[message["id"]] = message
        return self._answers.pop(id_)

    def start(self, tool: str, /, **arguments: Any) -> int:
        """Begins to call a tool, with reports on how far it is."""
        self._id += 1
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": self._id}}
        self.write({"jsonrpc": "2.0", "id": self._id, "method": "tools/call", "params": params})
        return self._id

    def call(self, tool: str, /, **arguments: Any) -> Message:
        """The result of a tool."""
        answer = self.take(self.ask("tools/call", {"name": tool, "arguments": arguments}))
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    def data(self, tool: str, /, **arguments: Any) -> Message:
        """The data of a tool that does what it is asked."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        found: Message = result["structuredContent"]
        return found

    def refusal(self, tool: str, /, **arguments: Any) -> Message:
        """The error object of a tool that does not."""
        return refused(self.call(tool, **arguments))

    def hang_up(self) -> int:
        """Closes its standard input; the code with which it ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.strangers == []
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):
            for line in self.process.stdout:
                try:
                    message = json.loads(line)
                    assert message["jsonrpc"] == "2.0"
                except (ValueError, KeyError, TypeError, AssertionError):
                    self.strangers.append(line.decode(errors="replace"))
                else:
                    self._lines.put(message)
        self._lines.put(None)


def refused(result: Message) -> Message:
    """The error object of a result that is one, which its text says too."""
    assert result["isError"], result
    told = result["structuredContent"]
    assert told["success"] is False
    error: Message = told["error"]
    assert result["content"][0]["text"].startswith("error: ")
    assert "fault of subagent" not in result["content"][0]["text"]
    assert len(result["content"][0]["text"]) < 2_000
    return error


class Desk:
    """The official client, with the names of the tools that it has called."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.called: set[str] = set()

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def result(self, tool: str, /, **arguments: Any) -> CallToolResult:
        self.called.add(tool)
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result

    async def data(self, tool: str, /, **arguments: Any) -> Message:
        result = await self.result(tool, **arguments)
        assert not result.is_error, result
        found: Message = result.structured_content
        return found

    async def text(self, tool: str, /, **arguments: Any) -> str:
        result = await self.result(tool, **arguments)
        assert not result.is_error, result
        return said(result)

    async def code(self, tool: str, /, **arguments: Any) -> str:
        """The code with which it refuses."""
        result = await self.result(tool, **arguments)
        assert result.is_error, result
        code: str = result.structured_content["error"]["code"]
        return code


def said(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@asynccontextmanager
async def connected(
    runs_dir: Path, env: Mapping[str, str] | None = None, words: tuple[str, ...] = ()
) -> AsyncIterator[Desk]:
    """A server with the official client at its other end."""
    program, *rest = PROGRAM
    server = StdioServerParameters(command=program, args=[*rest, "mcp", *words], env=environment(runs_dir, env))
    with open(os.devnull, "w") as nowhere:
        async with Client(stdio_client(server, nowhere), mode="auto") as client:
            yield Desk(client)


def driven(script: Callable[[], Awaitable[None]]) -> None:
    """Runs a conversation to its end, within bounds."""

    async def bounded() -> None:
        with anyio.fail_after(PATIENCE):
            await script()

    anyio.run(bounded)

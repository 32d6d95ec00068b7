"""The server itself: tools and resources over the SDK, on standard input and output.

Standard output carries JSON-RPC alone. Every call runs in a thread and with a context of its own, so none waits for
another; those that may take long have threads of their own kind and report how far they are. When a call is cancelled
or the client goes, its thread is told and ends within a second: waiting cancels no run; a dispatched child is ended.
"""

import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from subagent_cli import __version__
from subagent_cli.core.errors import SubagentError
from subagent_cli.mcp_server import catalogue
from subagent_cli.mcp_server.arguments import checked
from subagent_cli.mcp_server.messages import CATALOGUE
from subagent_cli.mcp_server.refusals import refusal
from subagent_cli.mcp_server.tool import Call, Said, Tool
from subagent_cli.mcp_server.wire import published, result, sift, spoken
from subagent_cli.services import messages
from subagent_cli.services.context import Context, afresh
from subagent_cli.services.settings import wants_debug

_AT_ONCE, _WAITING_AT_ONCE = 40, 400
_FIRST_REPORT_SECONDS, _REPORT_SECONDS = 0.5, 5.0
_LAST_WORDS_SECONDS = 20.0
_INSTRUCTIONS = """\
Starts child agents, answers their questions while they run, collects their results; or speaks with your parent, \
where you are such a child. Runs outlive this server. wait_agents returns when an agent has ended or asks; answer with \
reply_subagent and wait on. As a child: ask_parent where a decision is not yours, and submit_result or submit_error as \
your last call."""

Request = ServerRequestContext[Any, Any]


def serve(context: Context) -> None:
    """Serves whoever is at the other end until they go."""
    # What `start` turned off is for calls that are short.
    gc.enable()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # A client may go at any time, also in the middle of an answer.
    with suppress(BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        try:
            anyio.run(Desk(context).serve)
        except BaseExceptionGroup as group:
            raise _first(group) from None


class Desk:
    """The handlers, and the calls that are under way."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._under_way: set[Call] = set()

    async def serve(self) -> None:
        self._quick, self._patient = anyio.CapacityLimiter(_AT_ONCE), anyio.CapacityLimiter(_WAITING_AT_ONCE)
        server: Server[Any] = Server(
            "subagent",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
        )
        async with stdio_server() as (reading, writing), anyio.create_task_group() as tasks:
            sound, well = anyio.create_memory_object_stream[SessionMessage | Exception]()
            tasks.start_soon(sift, reading, sound, writing)
            tasks.start_soon(self._until_told_to_end)
            await server.run(well, writing, server.create_initialization_options())
            tasks.cancel_scope.cancel()

    async def _list_tools(self, _: Request, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        try:
            offered = await self._apart(lambda: catalogue.offered(afresh(self._context)))
        except SubagentError as error:
            raise MCPError(types.INVALID_REQUEST, spoken(error.message)) from error
        return types.ListToolsResult(tools=[published(tool) for tool in offered])

    async def _list_resources(self, _: Request, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        about = "Each schema of messages: what it is for, and its JSON Schema."
        schemas = types.Resource(uri=CATALOGUE, name="schemas", description=about, mime_type="application/json")
        return types.ListResourcesResult(resources=[schemas])

    async def _read_resource(self, _: Request, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if str(params.uri) != CATALOGUE:
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {spoken(str(params.uri)[:80])}")
        found = json.dumps(await self._apart(messages.catalogue), ensure_ascii=False)
        content = types.TextResourceContents(uri=CATALOGUE, mime_type="application/json", text=found)
        return types.ReadResourceResult(contents=[content])

    async def _call_tool(self, request: Request, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = catalogue.named(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {spoken(params.name[:80])}")
        try:
            call = Call(self._context, checked(tool, params.arguments))
        except SubagentError as error:
            return result(refusal(error))
        async with anyio.create_task_group() as tasks:
            if tool.patient:
                tasks.start_soon(_report, request, call)
            try:
                said = await self._apart(partial(self._done, tool, call), patient=tool.patient)
            finally:
                call.stopped.set()
            tasks.cancel_scope.cancel()
        return result(said)

    async def _apart(self, work: Callable[[], Any], *, patient: bool = False) -> Any:
        """In a thread, which is left alone when nobody waits for it any more."""
        limiter = self._patient if patient else self._quick
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)

    def _done(self, tool: Tool, call: Call) -> Said:
        self._under_way.add(call)
        try:
            call.context = afresh(self._context)
            return tool.does(call)
        except Exception as error:
            if wants_debug():
                logging.getLogger(__name__).warning("%s", tool.name, exc_info=error)
            return refusal(error)
        finally:
            self._under_way.discard(call)

    async def _until_told_to_end(self) -> None:
        """Whoever ends this process, short of killing it, is not kept waiting by the thread that reads; but what the
        calls have begun is brought to an end."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                give_up = time.monotonic() + _LAST_WORDS_SECONDS
                while self._under_way and time.monotonic() < give_up:
                    for call in tuple(self._under_way):
                        call.stopped.set()
                    await anyio.sleep(0.05)
                os._exit(128 + number)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _report(request: Request, call: Call) -> None:
    """Tells the client every now and then that the call is alive, and how far it is."""
    start, pause = time.monotonic(), _FIRST_REPORT_SECONDS
    while True:
        await anyio.sleep(pause)
        pause = _REPORT_SECONDS
        await request.session.report_progress(round(time.monotonic() - start, 1), None, spoken(call.note) or None)

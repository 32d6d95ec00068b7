"""What goes over the wire: tools as the protocol publishes them, results, and an answer to whatever is no message."""

import json
import math
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from subagent_cli.mcp_server.tool import Said, Tool


async def sift(reading: Any, sound: Any, writing: Any) -> None:
    """Hands on what is JSON-RPC, and answers what is not, so that nobody waits for an answer to it."""
    async with sound:
        async for item in reading:
            if isinstance(item, Exception):
                with_error = types.JSONRPCError(jsonrpc="2.0", id=_id_of(item), error=_fault(item))
                await writing.send(SessionMessage(with_error))
            else:
                await sound.send(item)


def _fault(error: Exception) -> types.ErrorData:
    if any(detail["type"] == "json_invalid" for detail in _details(error)):
        return types.ErrorData(code=types.PARSE_ERROR, message="Parse error: the line is not valid JSON")
    return types.ErrorData(code=types.INVALID_REQUEST, message="Invalid request: the line is not a JSON-RPC message")


def _id_of(error: Exception) -> str | int | None:
    """The id of a message that is none, where it has one."""
    for detail in _details(error):
        given = detail["input"]
        found = given.get("id") if isinstance(given, dict) else None
        if isinstance(found, str | int) and not isinstance(found, bool):
            return found
    return None


def _details(error: Exception) -> list[Any]:
    return error.errors(include_url=False) if isinstance(error, ValidationError) else []


def published(tool: Tool) -> types.Tool:
    hints = tool.hints
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.gives,
        annotations=types.ToolAnnotations(
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive,
            idempotent_hint=hints.idempotent,
            open_world_hint=hints.open_world,
        ),
    )


def result(said: Said) -> types.CallToolResult:
    warnings = said.data.pop("warnings", ())
    data = spoken(said.data | ({"warnings": list(warnings)} if warnings else {}))
    text = said.text if said.text is not None else json.dumps(said.data, indent=2, ensure_ascii=False)
    text = "\n".join([text, *(f"warning: {warning}" for warning in warnings)])
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=spoken(text))], structured_content=data, is_error=said.failed
    )


def spoken(value: Any) -> Any:
    """What can be said in JSON: half characters and numbers that are none, which others may have written into a file,
    would end the stream."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {spoken(str(key)): spoken(item) for key, item in value.items()}
        case list() | tuple():
            return [spoken(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value

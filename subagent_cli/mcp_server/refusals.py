"""Refusals as tools tell them: the same object and the same codes as the command line prints with --json."""

from subagent_cli.core.errors import SubagentError
from subagent_cli.mcp_server.tool import Said
from subagent_cli.services.context import Payload


def refusal(error: Exception) -> Said:
    """What went wrong, for a program and for a reader."""
    told = _told(error)
    lines = [f"error: {' '.join(told['message'].split())}"]
    if told.get("candidates"):
        lines.append(f"one of: {', '.join(' '.join(name.split())[:160] for name in told['candidates'])}")
    lines += [f"{key}: {told[key]}" for key in ("hint", "next") if told.get(key)]
    return Said({"success": False, "error": told}, "\n".join(lines), failed=True)


def _told(error: Exception) -> Payload:
    if isinstance(error, SubagentError):
        told: Payload = {"code": error.code, "message": error.message, "hint": error.hint}
        if error.candidates:
            told["candidates"] = list(error.candidates)
        if error.next:
            told["next"] = error.next
        return told
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return {"code": "io_error", "message": f"{error.strerror or error}{where}", "hint": None}
    hint = "this is a fault of subagent itself: please report it"
    return {"code": "internal", "message": f"{type(error).__name__}: {error}", "hint": hint}

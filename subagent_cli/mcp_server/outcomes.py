"""Handing in the outcome of one's own run."""

from subagent_cli.core.transition import FAILURE, RESULT
from subagent_cli.mcp_server.tool import SETTLES, TEXT, TEXTS, WORKERS, Call, Said, Tool, gives, text, texts
from subagent_cli.services import outcomes


def submit_result(call: Call) -> Said:
    """Hand in the result of your run, once and for good, as your last call: your process is ended soon after."""
    return _submitted(call, RESULT, call.get("result"))


def submit_error(call: Call) -> Said:
    """Say that your task cannot be done, once and for good, as your last call: your process is ended soon after."""
    return _submitted(call, FAILURE, call.get("error"))


def _submitted(call: Call, word: str, said: str) -> Said:
    done = outcomes.submit(
        call.context,
        word,
        said,
        kind=call.get("error_kind"),
        artifacts=call.get("artifacts", ()),
        tools=call.get("tools_used", ()),
    )
    return Said(done, f"{word} submitted; end now")


_MORE = {"artifacts": texts("What was made."), "tools_used": texts("Which tools were used.")}
_DONE = gives(runId=TEXT, status=TEXT, state=TEXT, artifacts=TEXTS)

TOOLS = (
    Tool(
        "submit_result",
        submit_result,
        SETTLES,
        {"result": text("Your result."), **_MORE},
        _DONE,
        needs=("result",),
        also={"tools": "tools_used"},
        offered=WORKERS,
    ),
    Tool(
        "submit_error",
        submit_error,
        SETTLES,
        {"error": text("Why."), "error_kind": text("Which kind it is (default: sub_agent_error)."), **_MORE},
        _DONE,
        needs=("error",),
        also={"tools": "tools_used", "kind": "error_kind"},
        offered=WORKERS,
    ),
)

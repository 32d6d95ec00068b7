"""Dispatching as a prompt offers it to a model: a page of guidance, and the one tool that it speaks of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from subagent_cli.core.dispatch import (
    ASCII_PATTERN,
    LONGEST_ARTIFACT,
    LONGEST_INSTRUCTIONS,
    MODES,
    REQUIRED,
    requested,
)
from subagent_cli.dispatch.runner import SubagentRunner
from subagent_cli.dispatch.session import Session
from subagent_cli.dispatch.tool import ToolResult, dispatch_subagent

_GUIDANCE = f"""\
## Dispatching subagents

`dispatch_subagent` hands a bounded piece of work to a throwaway child and returns its summary.

- Offload deep research, large drafting and single steps of the plan, so that your own context stays with the plan.
- The child inherits every tool you have and a copy of your state. What it changes there is gone when it returns; only
  its summary, artifacts and tools used come back.
- Keep `instructions` specific and complete: the child knows nothing of this conversation. ASCII, at most
  {LONGEST_INSTRUCTIONS} characters.
- List in `expected_artifacts` everything that is to be delivered.
- For a step of the plan use mode `plan_step` and give its `plan_step_id`; for anything else use `ad_hoc`.
"""


@dataclass(slots=True, frozen=True)
class Tool:
    """A tool as adapters register it. `handler` takes the arguments that a model gave, whatever they are."""

    name: str
    description: str
    parameters: dict[str, Any]
    handler: Callable[[Mapping[str, object]], ToolResult]


class SubagentToolsSection:
    """Needs the parent's session, which is copied each time the tool is called."""

    def __init__(self, session: Session, runner: SubagentRunner) -> None:
        self._session = session
        self._runner = runner

    def render(self) -> str:
        return _GUIDANCE

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                name="dispatch_subagent",
                description="Run a bounded task in an isolated child session and return its summary.",
                parameters=_parameters(),
                handler=self._handle,
            ),
        )

    def _handle(self, arguments: Mapping[str, object]) -> ToolResult:
        return dispatch_subagent(self._session, requested(arguments), self._runner)


def _parameters() -> dict[str, Any]:
    # In plain words where a step of the plan needs its id: many models take no schema with conditions.
    return {
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": list(MODES), "description": "plan_step for a step of your plan."},
            "prompt_ns": {"type": "string", "description": "Where the child's prompt belongs."},
            "prompt_key": {"type": "string", "description": "Which prompt of that place it is."},
            "instructions": _text(LONGEST_INSTRUCTIONS, "What the child is to do, specific and complete, in ASCII."),
            "expected_artifacts": {
                "type": "array",
                "items": _text(LONGEST_ARTIFACT, "The name of one artifact, in ASCII."),
                "description": "Everything that the child is to deliver.",
            },
            "plan_step_id": {
                "type": ["string", "null"],
                "description": "Which step of the plan it is; required when mode is plan_step.",
            },
        },
        "required": list(REQUIRED),
        "additionalProperties": False,
    }


def _text(longest: int, description: str) -> dict[str, Any]:
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": longest,
        "pattern": ASCII_PATTERN,
        "description": description,
    }

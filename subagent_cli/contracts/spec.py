"""`run.json`: what was asked of a run, written once when the run is made and never changed.

Every key is always there, null where there is nothing to say; what happened afterwards is in the journal.
"""

# ruff: noqa: N815 - the attributes are named as the keys on disk are.

from typing import Annotated, Any, Literal

from pydantic import Field

from subagent_cli.contracts.base import Contract, Number


class RunSpec(Contract):
    """What was asked of a run. Written once, when the run is made."""

    version: Literal[1] = Field(description="The version of this format.")
    runId: str = Field(description="Identifies the run; a UUID.")
    agentName: str = Field(description="Which agent was asked for.")
    agentSource: str | None = Field(
        default=None, description="Where that agent is defined; null for a command of the caller's own, or none."
    )
    task: str = Field(description="What the agent is to do, in words.")
    argv: list[str] | None = Field(
        description="The command that is run, word by word; null where somebody else starts the process."
    )
    program: str | None = Field(default=None, description="The file that is run, which later attempts run too.")
    cwd: str = Field(description="The directory the agent works in.")
    model: str | None = Field(default=None, description="The model that was asked for.")
    agentArgs: list[str] = Field(default=[], description="Words that were added to the agent's command line.")
    mode: Literal["explore", "work"] | None = Field(
        default=None, description="Whether the agent is to look only, or to do the work; null where nobody said."
    )
    raw: bool = Field(default=False, description="Whether the agent got its task alone, without a word on how to ask.")
    tokenFile: bool = Field(default=False, description="Whether the agent gets its token in a file.")
    sessionId: str | None = Field(default=None, description="The agent's session, where we chose its id.")
    name: str | None = Field(description="A name by which people call the run.")
    type: Literal["critic", "grader", "optimizer", "generic"] = Field(
        default="generic", description="What the agent is among those that work on something together."
    )
    inputSchema: dict[str, Any] | None = Field(default=None, description="The JSON Schema of what it is given.")
    outputSchema: dict[str, Any] | None = Field(default=None, description="The JSON Schema of its result.")
    parentId: str | None = Field(description="The run that started this one; null where a person did.")
    groupId: str | None = Field(description="The fan-out this run belongs to.")
    depth: Annotated[int, Field(ge=0)] = Field(
        description="How deep the run is nested: 1 for what a person starts, and one more for each agent in between."
    )
    maxDepth: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="How deep the runs of this tree may be nested; null for a run of an older release."
    )
    timeoutSeconds: Number | None = Field(description="How long the run may take; null for no limit.")
    tokenHash: str = Field(description="Hash of the run's token. The token itself is stored nowhere.")
    dispatch: dict[str, Any] | None = Field(
        default=None, description="What was asked of a throwaway child, and the session of its parent."
    )
    labels: dict[str, str] = Field(description="Free words by which runs can be found again.")
    key: str | None = Field(description="The idempotency key: asking again with the same key finds this run.")
    createdAt: str = Field(description="When the run was made, e.g. 2025-01-31T12:00:00.000Z.")

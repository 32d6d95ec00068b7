"""`.meta.json` exactly as the TypeScript server accepts it, and as subagent writes it.

A document that passes here never blocks the server's tools: ten known keys, all of which may be left out,
seven run statuses, four message statuses. Times are any text, as they are to the server; subagent itself
writes UTC with milliseconds. Reading is more tolerant (an answer of null is mended, not refused) and lives
elsewhere.
"""

# ruff: noqa: N815 - the attributes are named as the keys on disk are.

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from subagent_cli.contracts.base import Contract, Number, Omissible

# Named, so that the generated TypeScript can name them too.
RunStatus = TypeAliasType(
    "RunStatus",
    Annotated[
        Literal[
            "pending",
            "running",
            "waiting_parent_reply",
            "parent_replied",
            "completed",
            "success",
            "error",
        ],
        Field(
            description="Where the run stands. `completed` and `success` both mean that it ended well;"
            " `error` also covers cancelled, timed out and lost, which the head of `summary` tells apart."
        ),
    ],
)

MessageStatus = TypeAliasType(
    "MessageStatus",
    Annotated[
        Literal[
            "pending_parent_reply",
            "parent_replied",
            "acknowledged_by_subagent",
            "parent_acknowledged",
        ],
        Field(
            description="Where the question stands: unanswered, answered, answer fetched by the worker. The"
            " last word, `parent_acknowledged`, marks a question that expired without an answer."
        ),
    ],
)


class MetaMessage(Contract):
    """One question of the worker to its parent and, once it is there, the answer."""

    messageId: str = Field(description="Identifies the question; a UUID.")
    questionContent: str = Field(description="What the worker asks.")
    questionTimestamp: str = Field(description="When it was asked, e.g. 2025-01-31T12:00:00.000Z.")
    answerContent: Omissible[str] = Field(
        default=None,
        description="What the parent answered. Left out, never null, while there is no answer."
        " Of an expired question it starts with `[expired]`.",
    )
    answerTimestamp: Omissible[str] = Field(
        default=None, description="When it was answered or expired. Left out, never null, until then."
    )
    messageStatus: MessageStatus = Field(description="Where the question stands.")


class MetaDocument(Contract):
    """One run of a sub-agent, as its `.meta.json` shows it. Every key may be left out."""

    runId: Omissible[str] = Field(default=None, description="Identifies the run; a UUID.")
    agentName: Omissible[str] = Field(default=None, description="Which agent runs.")
    command: Omissible[str] = Field(default=None, description="The command line that was started, for people.")
    startTime: Omissible[str] = Field(default=None, description="When the run was made, e.g. 2025-01-31T12:00:00.000Z.")
    status: Omissible[RunStatus] = Field(default=None, description="Where the run stands.")
    exitCode: Number | None = Field(default=None, description="How the agent's process ended; null while it has not.")
    endTime: str | None = Field(default=None, description="When the run ended; null while it has not.")
    summary: str | None = Field(
        default=None,
        description="What came of the run, in words; null until somebody says so."
        " Starts with the kind of failure in brackets where there is one, e.g. `[cancelled]`.",
    )
    messages: Omissible[list[MetaMessage]] = Field(
        default=None, description="The worker's questions, oldest first; left out until the first."
    )
    lastUpdated: Omissible[str] = Field(default=None, description="When a status or a summary was last reported.")

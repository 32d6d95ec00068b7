"""One line of `journal.jsonl`, as published: the envelope that every event shares.

What an event says beyond its envelope are further keys, which differ by `type`; they are kept, not checked.
"""

from typing import Annotated

from pydantic import Field

from subagent_cli.contracts.base import Contract, Omissible


class JournalEntry(Contract):
    """One event in the life of a run: one line of its journal. Further keys depend on `type`."""

    seq: Annotated[int, Field(ge=1)] = Field(description="The place of this event in the journal, from 1.")
    at: str = Field(description="When it happened, e.g. 2025-01-31T12:00:00.000Z.")
    clock: Omissible[str] = Field(
        default=None, description="The same moment on a clock that nobody can set, good within one boot."
    )
    type: str = Field(description="What happened.")
    origin: Omissible[str] = Field(
        default=None,
        description="`meta` where another program wrote it into `.meta.json` and it was taken over.",
    )
    meta: Omissible[str] = Field(
        default=None,
        description="On the last event of a change: digest of the `.meta.json` that this change wrote.",
    )
    crc: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")] = Field(
        description="Checksum of the line in eight hexadecimal digits, lower case."
    )

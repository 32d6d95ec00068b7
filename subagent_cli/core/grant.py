"""Grants: what one agent may do with another.

A grant is a row in the journal of its target: who gave which capability to whom. The same capability from two givers
is two rows, and it is held as long as one of them stands. Some rights need no row: every agent reads its own run, and
whoever started a run hears its questions, answers them and may end it. The operator is not an agent and needs none.
"""

from collections.abc import Mapping
from types import MappingProxyType

from subagent_cli.core.moment import Moment, elapsed
from subagent_cli.core.value import Value

READ, SEND, ADMINISTER = "read_transcript", "send_messages", "administer_grants"
CAPABILITIES = (READ, SEND, ADMINISTER)
OPERATOR = "operator"

# Rights that follow from grants and from who started the run: to know that it is there, to see what it asks, to
# answer that, to speak as its worker, to report on it, to end it.
KNOW, HEAR, ANSWER, WORK, REPORT, STOP = "know", "hear", "answer", "work", "report", "stop"


class Grant(Value):
    """One row; `lasts` is in milliseconds, None for as long as nobody revokes it."""

    grantor: str
    grantee: str
    capability: str
    granted: Moment
    lasts: int | None = None

    def holds(self, now: Moment) -> bool:
        return self.lasts is None or elapsed(self.granted, now) <= self.lasts


Row = tuple[str, str, str]
Grants = Mapping[Row, Grant]
NO_GRANTS: Grants = MappingProxyType({})


def held(grants: Grants, agent: str, now: Moment) -> set[str]:
    """The capabilities that an agent has by these grants."""
    return {grant.capability for grant in grants.values() if grant.grantee == agent and grant.holds(now)}


def allowed(right: str, agent: str, run_id: str, parent_id: object, capabilities: set[str]) -> bool:
    """Whether an agent that has these capabilities on a run has the right."""
    own, parent = agent == run_id, agent == parent_id
    match right:
        case "read_transcript":
            return own or READ in capabilities
        case "send_messages" | "administer_grants":
            return right in capabilities
        case "know":
            return own or parent or bool(capabilities)
        case "hear":
            return own or parent or bool(capabilities & {READ, SEND})
        case "answer":
            return parent or SEND in capabilities
        case "work":
            return own
        case "report":
            return own or parent
        case "stop":
            return parent
    return False

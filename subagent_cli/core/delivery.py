"""A message in the inbox of an agent: that it came, from whom, and whether it still wants a reply."""

from subagent_cli.core.value import Value


class Delivery(Value):
    """`text` is what the agent is told, which is never the content. `notice` marks the reply to a message of the
    agent's own, which wants no reply. `told` counts the attempts that were started with it."""

    message_id: str
    sender: str
    at: str
    text: str
    sha256: str
    in_reply_to: str | None = None
    notice: bool = False
    told: int = 0

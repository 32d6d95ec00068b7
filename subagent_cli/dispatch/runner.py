"""What a runner promises: it does one request in the session it is given, and says what came of it.

It may change that session as it likes: the session is a copy, and is gone when the runner returns. It finds there what
the parent had, mounted files for instance, and uses it as it is. It publishes on the bus which tools it calls, or says
so in its result. It raises ToolValidationError for a request that it cannot serve, and DispatchSubagentError where the
work did not come to a result.
"""

from typing import Protocol

from subagent_cli.core.dispatch import DispatchSubagent, DispatchSubagentResult
from subagent_cli.dispatch.bus import EventBus
from subagent_cli.dispatch.session import Session


class SubagentRunner(Protocol):
    def __call__(self, session: Session, bus: EventBus, request: DispatchSubagent, /) -> DispatchSubagentResult: ...

"""What is left of a run whose keeper was killed: processes that nobody owns any more."""

from subagent_cli.core.errors import SubagentError
from subagent_cli.services.context import Context

Process = tuple[int, str]


def orphans_of(context: Context, run_id: str) -> list[Process]:
    """The processes of a run that has lost its keeper. Only there can be any, so only there they are searched for."""
    token_hash = _token_hash(context, run_id)
    if token_hash is None:
        return []
    from subagent_cli.process import orphans

    return orphans.find(orphans.Marks(run_id, token_hash, context.runs.layout.root))


def end_orphans(context: Context, run_id: str, grace: float) -> tuple[set[int], set[int]]:
    """Ends them; gives those that have ended and those that could not be ended."""
    token_hash = _token_hash(context, run_id)
    if token_hash is None:
        return set(), set()
    from subagent_cli.process import orphans

    return orphans.end(orphans.Marks(run_id, token_hash, context.runs.layout.root), grace)


def _token_hash(context: Context, run_id: str) -> str | None:
    """By which they are told, if there can be any."""
    try:
        run = context.runs.read(run_id, context.clock.now())
        return run.token_hash or str(context.runs.spec(run_id).get("tokenHash")) if run.gone else None
    except SubagentError:
        return None

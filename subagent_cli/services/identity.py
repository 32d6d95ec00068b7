"""Who is calling, and what it may start."""

from subagent_cli.core.errors import RunNotFound
from subagent_cli.services import addresses
from subagent_cli.services.context import Context, Payload


def whoami(context: Context) -> Payload:
    """The caller: a run's worker, proven by its token, or the operator, who may have named a run to work on."""
    run_id = _run(context)
    spec = context.runs.spec(run_id) if run_id else {}
    return {
        "role": "worker" if context.caller.token else "operator",
        "runId": run_id,
        "agentName": spec.get("agentName"),
        "name": spec.get("name"),
        "parentId": spec.get("parentId"),
        "depth": spec.get("depth", 0),
        "maxDepth": spec.get("maxDepth") or context.settings["max_depth"].value,
        "runsDirectory": context.runs.layout.root,
    }


def _run(context: Context) -> str | None:
    if context.caller.run_id is None:
        return None
    try:
        return addresses.run(context, None)
    except RunNotFound:
        if context.caller.token:
            raise
        return None

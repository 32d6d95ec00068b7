"""Links: letting the TypeScript server see and write runs of ours, under the flat names that it knows."""

from collections.abc import Sequence

from subagent_cli.core.errors import InvalidInput
from subagent_cli.services import access, addresses
from subagent_cli.services.context import Context, Payload


def link(context: Context, names: Sequence[str], *, active: bool = False, remove: bool = False) -> list[Payload]:
    """Links the named runs, or with `active` all active ones; with `remove`, takes their links away."""
    access.operator_only(context, "link")
    context.must_be_there()
    if bool(names) == active:
        raise InvalidInput("name the runs, or say --all for every active one", code="usage")
    named = [addresses.run(context, name) for name in names]
    run_ids = list(filter(context.runs.exists, context.runs.index.active())) if active else list(dict.fromkeys(named))
    change = context.runs.unlink if remove else context.runs.link
    return [{"runId": run_id, "links": change(run_id)} for run_id in run_ids]

"""Lists of runs: which are meant, newest first, without reading more of them than it takes."""

from collections.abc import Sequence
from contextlib import suppress

from subagent_cli.core.errors import NotFound, SubagentError
from subagent_cli.core.grant import READ
from subagent_cli.core.ids import is_label, is_timed, uuid7
from subagent_cli.core.moment import milliseconds
from subagent_cli.core.run import Run
from subagent_cli.core.value import Value
from subagent_cli.services import access, addresses
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.specs import bad_name, labels_of
from subagent_cli.store.groups import Groups
from subagent_cli.store.reader import Spec

# A run's id is drawn before it waits for its key's lock, so its start can be somewhat later than its id says.
_SLACK_MS = 60_000


class Filter(Value):
    """Which runs are meant. Labels are pairs; one without a value is met by any value."""

    status: str | None = None
    parent_id: str | None = None
    name: str | None = None
    labels: Sequence[tuple[str, str | None]] = ()
    since: int | None = None
    children: bool = False
    active: bool = False
    group_id: str | None = None

    def asked(self, spec: Spec) -> bool:
        """Whether it is meant, as far as what was asked of it says."""
        own, parent_id = labels_of(spec), spec.get("parentId")
        return (
            (parent_id == self.parent_id if self.parent_id else self.children or self.group_id or not _is_child(spec))
            and self.group_id in (None, spec.get("groupId"))
            and self.name in (None, spec.get("name"))
            and all(key in own and value in (None, own[key]) for key, value in self.labels)
        )

    def stands(self, run: Run) -> bool:
        """Whether it is meant, as far as its state says. Without a start it is not known to have begun since."""
        started = milliseconds(run.started_at)
        return (
            self.status in (None, run.status, run.state)
            and (run.active or not self.active)
            and (self.since is None or (started is not None and started >= self.since))
        )


def find(
    context: Context,
    *,
    status: str | None = None,
    parent: str | None = None,
    name: str | None = None,
    labels: Sequence[tuple[str, str | None]] = (),
    since: int | None = None,
    limit: int | None = None,
    active: bool = False,
    children: bool = False,
    group: str | None = None,
) -> tuple[list[Payload], list[SubagentError]]:
    """Runs, newest first, and what could not be read. `since` is in milliseconds.

    Runs that other runs made are left out of ordinary lists: `children`, `parent` or `active` asks for them.
    """
    context.must_be_there()
    parent_id = addresses.run(context, parent) if parent is not None else None
    group_id = None if group is None else addresses.group(context, group)
    if group is not None and group_id is None:
        raise NotFound(f"there is no group {group[:64]}", code="group_not_found")
    meant = Filter(status, parent_id, name, labels, since, children or active, active, group_id)
    now = context.clock.now()
    rows: list[Payload] = []
    faults: list[SubagentError] = []
    for run_id in _candidates(context, meant):
        if limit is not None and len(rows) >= limit:
            break
        if not context.runs.exists(run_id) or not access.may(context, READ, run_id):
            continue
        try:
            # One small file says what was asked; only where that fits does the state matter.
            spec = context.runs.spec(run_id)
            if meant.asked(spec) and meant.stands(found := context.runs.read(run_id, now)):
                rows.append(row(found, spec))
        except NotFound:
            continue
        except SubagentError as error:
            faults.append(error)
    return rows, faults


def _is_child(spec: Spec) -> bool:
    """Whether it was started by another run, or as one of several."""
    return bool(spec.get("parentId") or spec.get("groupId"))


def row(run: Run, spec: Spec) -> Payload:
    """A run as lists and trees show it."""
    name, parent_id, group_id = spec.get("name"), spec.get("parentId"), spec.get("groupId")
    return {
        "runId": run.id,
        "name": name if isinstance(name, str) else None,
        "agentName": run.agent,
        "type": spec.get("type"),
        "status": run.status,
        "state": run.state,
        "kind": run.kind,
        "alive": run.alive,
        "stopping": run.stopping,
        "startTime": run.started_at,
        "endTime": run.ended_at,
        "summary": run.summary,
        "outcome": run.text if run.finished else None,
        "parentId": parent_id if isinstance(parent_id, str) else None,
        "groupId": group_id if isinstance(group_id, str) else None,
        "labels": labels_of(spec),
        "pendingQuestions": len(run.pending),
        "question": run.pending[0].text if run.pending else None,
    }


def _all(context: Context) -> Sequence[str]:
    """Every run there is. Those of other programs are entered into the index, so that `pending` sees them too."""
    found = context.runs.survey()
    if found.flat:
        from subagent_cli.store.reconcile import reconcile

        with suppress(SubagentError):
            reconcile(context.runs, lambda run_id: context.runs.read(run_id, context.clock.now()))
    return found.runs


def _candidates(context: Context, meant: Filter) -> Sequence[str]:
    """The ids among which the wanted runs are, newest first, by the narrowest look-up there is."""
    index = context.runs.index
    if meant.name is not None and not is_label(meant.name):
        raise bad_name(meant.name)
    if meant.group_id is not None:
        group = Groups(context.runs.layout).read(meant.group_id) or {"children": []}
        run_ids: Sequence[str] = [child["runId"] for child in reversed(group["children"])]
    elif meant.parent_id is not None:
        run_ids = index.children(meant.parent_id)[::-1]
    elif meant.name is not None:
        run_ids = index.named(meant.name)
    else:
        run_ids = index.active()[::-1] if meant.active else _all(context)
    if meant.since is None:
        return run_ids
    first = uuid7(max(0, meant.since - _SLACK_MS), bytes(10))[:13]
    return [run_id for run_id in run_ids if not is_timed(run_id) or run_id[:13].lower() >= first]

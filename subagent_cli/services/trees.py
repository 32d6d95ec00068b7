"""Trees: runs below the runs that made them.

Who made a run stands in its run.json. Every run that can be read is shown once, whatever the others are like: below a
run that is gone or cannot be read its children move up, a circle begins with its oldest run, and what is nested
deeper than anybody reads goes on at the margin.
"""

from collections.abc import Iterable

from subagent_cli.core.errors import NotFound, SubagentError
from subagent_cli.core.grant import READ
from subagent_cli.core.run import FINISHED
from subagent_cli.services import access, addresses, listing
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.groups import AWAITING, CANCELLING, DONE
from subagent_cli.store.reader import Spec

DEEPEST = 64


def tree(
    context: Context, run: str | None = None, *, everything: bool = False
) -> tuple[list[Payload], list[SubagentError]]:
    """Trees, newest first, and what could not be read. Children stand in the order in which they were made.

    Without a run: the trees that have an active run in them, or with `everything` all there are.
    """
    context.must_be_there()
    forest = _Forest(context, everything)
    if run is not None:
        tops = {addresses.run(context, run)}
    else:
        tops = {
            forest.top(run_id)
            for run_id in (access.among(context, context.runs.all()) if everything else forest.active())
        }
    grown = forest.grown(sorted(tops, reverse=True))
    return grown if run is not None else _grouped(grown), forest.faults


def _grouped(rows: list[Payload]) -> list[Payload]:
    """Runs that were spawned together below a line of their own, in the place of the first of them."""
    found: dict[str, Payload] = {}
    for row in rows:
        group_id = row["groupId"]
        if group_id is None:
            found[row["runId"]] = row
            continue
        group = found.setdefault(group_id, {"groupId": group_id, "children": []})
        group["children"] = sorted([*group["children"], row], key=lambda child: str(child["runId"]))
    for group in found.values():
        if "runId" not in group:
            pending = [child for child in group["children"] if not _is_over(child)]
            cancelling = any(child["stopping"] for child in pending)
            group["state"] = CANCELLING if cancelling else AWAITING if pending else DONE
            group["startTime"] = group["children"][0]["startTime"]
    return list(found.values())


def _is_over(row: Payload) -> bool:
    return row["status"] in FINISHED and not row["alive"]


class _Forest:
    def __init__(self, context: Context, everything: bool) -> None:
        self.faults: list[SubagentError] = []
        self._context = context
        self._runs = context.runs
        self._index = context.runs.index
        self._now = context.clock.now()
        self._specs: dict[str, Spec | None] = {}
        self._rows: dict[str, Payload | None] = {}
        self._shown: set[str] = set()
        self._margin: list[str] = []
        self._made = self._made_by_all() if everything else None

    def active(self) -> list[str]:
        """Runs with which somebody may still have to do, and those that cannot tell."""
        rows = {run_id: self._row(run_id) for run_id in access.among(self._context, self._index.active())}
        return [
            run_id
            for run_id, row in rows.items()
            if row is None or row["status"] not in FINISHED or row["pendingQuestions"]
        ]

    def top(self, run_id: str) -> str:
        """The run at the head of the tree that this one is in."""
        way = [run_id]
        passed = {run_id}
        while (above := self._parent(way[-1])) is not None:
            if above in passed:
                return min(way[way.index(above) :])
            way.append(above)
            passed.add(above)
        return way[-1]

    def grown(self, tops: Iterable[str]) -> list[Payload]:
        trees: list[Payload] = []
        for top in tops:
            self._margin = [top]
            while self._margin:
                trees += self._tree(self._margin.pop(0), 0)
        return trees

    def _tree(self, run_id: str, depth: int) -> list[Payload]:
        """The run with all that is below it, or only that where it cannot be read itself."""
        if run_id in self._shown:
            return []
        if depth == DEEPEST:
            self._margin.append(run_id)
            return []
        self._shown.add(run_id)
        row = self._row(run_id)
        below = [grown for child in self._children(run_id) for grown in self._tree(child, depth + 1)]
        return [{**row, "children": _grouped(below)}] if row is not None else below

    def _children(self, run_id: str) -> list[str]:
        if self._made is not None:
            return self._made.get(run_id, [])
        # An entry whose run cannot say who made it is believed, or nobody would hear that it is damaged.
        specs = {child: self._spec(child) for child in self._index.children(run_id)}
        return [child for child, spec in specs.items() if spec is None or spec.get("parentId") == run_id]

    def _made_by_all(self) -> dict[str, list[str]]:
        """The children of every run, by what the runs say, so that none is missed whatever the index holds."""
        made: dict[str, list[str]] = {}
        for run_id in reversed(self._runs.all()):
            parent = self._parent(run_id)
            if parent is not None:
                made.setdefault(parent, []).append(run_id)
        return made

    def _parent(self, run_id: str) -> str | None:
        parent = (self._spec(run_id) or {}).get("parentId")
        return parent if isinstance(parent, str) and self._is_there(parent) else None

    def _spec(self, run_id: str) -> Spec | None:
        if run_id not in self._specs:
            try:
                self._specs[run_id] = self._runs.spec(run_id) if self._is_there(run_id) else {}
            except SubagentError as fault:
                self.faults.append(fault)
                self._specs[run_id] = None
        return self._specs[run_id]

    def _is_there(self, run_id: str) -> bool:
        """For this caller, that is."""
        return self._runs.exists(run_id) and access.may(self._context, READ, run_id)

    def _row(self, run_id: str) -> Payload | None:
        if run_id not in self._rows:
            self._rows[run_id] = None
            spec = self._spec(run_id)
            try:
                if spec is not None and self._is_there(run_id):
                    self._rows[run_id] = listing.row(self._runs.read(run_id, self._now), spec)
            except NotFound:
                pass
            except SubagentError as fault:
                self.faults.append(fault)
        return self._rows[run_id]

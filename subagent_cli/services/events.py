"""What happened: the journals of the runs as one stream of events."""

import os
from collections.abc import Iterator

from subagent_cli.core.errors import InvalidInput, NotFound, SubagentError
from subagent_cli.core.grant import ADMINISTER
from subagent_cli.services import access, addresses
from subagent_cli.services.context import Context, Payload
from subagent_cli.store.watch import Watch

_OF_THE_FILE = ("crc", "meta", "clock", "tokenHash")


def read(context: Context, run: str | None = None, after: int = 0) -> tuple[list[Payload], list[SubagentError]]:
    """The events of one run behind number `after`, or those of all runs in the order in which they happened; and
    what could not be read."""
    if run is not None:
        return _of(context, addresses.run(context, run), after), []
    if after:
        raise InvalidInput("--after counts the events of one run: name it", code="usage")
    context.must_be_there()
    faults: list[SubagentError] = []
    return _in_order(_of_all(context, dict.fromkeys(access.among(context, context.runs.all()), 0), faults)), faults


def follow(context: Context, run: str | None = None, after: int = 0) -> Iterator[Payload]:
    """The same, and then every event as it comes: of one run until it is over, of all runs without end."""
    run_id = addresses.run(context, run) if run is not None else None
    if run_id is None and after:
        raise InvalidInput("--after counts the events of one run: name it", code="usage")
    context.must_be_there()
    return _follow_one(context, run_id, after) if run_id is not None else _follow_all(context)


def _follow_one(context: Context, run_id: str, after: int) -> Iterator[Payload]:
    with Watch() as watch:
        while True:
            watch.add_all(context.runs.places(run_id))
            # What was granted may be taken back meanwhile.
            addresses.run(context, run_id)
            over = not context.runs.read(run_id, context.clock.now()).active
            for event in _of(context, run_id, after):
                after = event["seq"]
                yield event
            if over:
                return
            watch.wait(None)


def _follow_all(context: Context) -> Iterator[Payload]:
    layout = context.runs.layout
    told: dict[str, int] = {}
    watched: set[str] = set()
    stamp = 0
    with Watch() as watch:
        while True:
            watch.await_folder(layout.root)
            # Names are only read again when one of them has changed.
            stamp, earlier = _stamp(layout.root), stamp
            names = context.runs.all() if stamp != earlier else ()
            new = dict.fromkeys(access.among(context, (name for name in names if name not in told)), 0)
            active = access.among(context, context.runs.index.active())
            for run_id in {*new, *active} if told else active:
                watch.add_all(context.runs.places(run_id))
                watched.add(run_id)
            told |= new
            seen = {run_id: told.get(run_id, 0) for run_id in access.among(context, watched)}
            for event in _in_order(_of_all(context, {**new, **seen}, [])):
                told[event["runId"]] = event["seq"]
                yield event
            watch.wait(None)


def _stamp(root: str) -> int:
    try:
        return os.stat(root).st_mtime_ns
    except FileNotFoundError:
        return 0


def _of_all(context: Context, after: dict[str, int], faults: list[SubagentError]) -> list[Payload]:
    events: list[Payload] = []
    for run_id, seq in after.items():
        try:
            events += _of(context, run_id, seq)
        except NotFound:
            continue
        except SubagentError as error:
            faults.append(error)
    return events


def _of(context: Context, run_id: str, after: int) -> list[Payload]:
    return [
        {"runId": run_id, **{key: value for key, value in record.items() if key not in _OF_THE_FILE}}
        for record in context.runs.records(run_id, after)
        if record.get("type") not in ("granted", "revoked") or _may_see(context, run_id, record)
    ]


def _may_see(context: Context, run_id: str, record: Payload) -> bool:
    """Whether a row of a grant is one that the caller may see."""
    return record.get("grantee") == access.agent(context) or access.may(context, ADMINISTER, run_id)


def _in_order(events: list[Payload]) -> list[Payload]:
    """By time, but each run's in the order of its journal, whatever its clock said."""
    latest: dict[str, str] = {}

    def when(event: Payload) -> str:
        latest[event["runId"]] = max(latest.get(event["runId"], ""), event["at"])
        return latest[event["runId"]]

    timed = [(when(event), event["runId"], event["seq"], event) for event in events]
    return [event for *_, event in sorted(timed, key=lambda item: item[:3])]

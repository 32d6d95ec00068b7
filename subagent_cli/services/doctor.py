"""The doctor: looks at the runs directory, its index and every run, and mends what can be mended.

Looking takes no lock; what looks wrong is looked at again under the lock of its run, so that a neighbour's half-done
change is never taken for damage. Without `fix` nothing changes. With it only temporary files and index entries are
ever removed, everything else is kept in the run's quarantine, and a second look finds nothing to do.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

from subagent_cli.core.errors import Busy, Failed, RunNotFound, SubagentError
from subagent_cli.core.ids import is_label, is_uuid
from subagent_cli.core.run import Run
from subagent_cli.services import access, addresses
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.premises import place
from subagent_cli.services.specs import key_digest
from subagent_cli.services.visit import Entry, Visit, entries_in, led_to, named
from subagent_cli.store import atomic, codec, reconcile, repair
from subagent_cli.store.index import note
from subagent_cli.store.reader import Spec
from subagent_cli.store.repair import DAMAGE, NOTE, WARNING, Finding
from subagent_cli.store.runs import Runs

_ELSEWHERE = ("version", "runId", "agentName", "task", "name", "parentId", "createdAt")


def check(context: Context, names: Sequence[str] = (), *, fix: bool = False) -> Payload:
    """What is wrong: with the named runs, or with all of them and the place they lie in."""
    access.operator_only(context, "doctor")
    context.must_be_there()
    runs = context.runs.aged(context.settings["question_ttl"].value)
    run_ids = list(dict.fromkeys(addresses.run(context, name) for name in names)) if names else runs.all()
    entries: dict[str | None, list[Entry]] = defaultdict(list)
    for entry in entries_in(runs):
        entries[entry.run_id].append(entry)
    visit = Visit(runs, context.clock, fix, entries)
    found = [] if names or not os.path.isdir(runs.layout.root) else place(visit)
    for run_id in run_ids:
        found += _run(visit, run_id)
    return {"checked": len(run_ids), "findings": [_payload(finding) for finding in found]}


def damaged(payload: Payload) -> bool:
    """Whether something is damaged and still is."""
    return any(finding["severity"] == DAMAGE and not finding["fixed"] for finding in payload["findings"])


def _payload(finding: Finding) -> Payload:
    keys = ("runId", "code", "message", "severity", "fix", "fixed")
    return dict(zip(keys, finding, strict=True))


def _run(visit: Visit, run_id: str) -> list[Finding]:
    """One run: looked at, and if something seems wrong, looked at again and mended under its lock."""
    runs = visit.runs
    if not runs.exists(run_id):
        if not os.path.lexists(runs.layout.run(run_id)):
            return []
        if not os.path.islink(runs.layout.run(run_id)):
            return [Finding(run_id, "stray", "a file where a run's folder is expected", NOTE)]
        return [Finding(run_id, "leads_out", "the run is a link that leads out of the runs directory", DAMAGE)]
    suspected = _findings(visit, run_id)
    if not suspected:
        return []
    try:
        with runs.locked(run_id):
            return _mended(visit, run_id) if visit.fix else _findings(visit, run_id)
    except Busy as busy:
        return [Finding(run_id, "busy", f"not checked: {busy.message}", WARNING)]
    except RunNotFound:
        return []
    except Failed:
        # Where no lock can be had nothing can be changed either, and what was seen stands.
        return suspected


def _mended(visit: Visit, run_id: str) -> list[Finding]:
    """Mends until nothing new comes to light: some things can only be seen when others are right."""
    told: dict[str, Finding] = {}
    failures: list[Finding] = []
    while True:
        found = {finding.code: finding for finding in _findings(visit, run_id)}
        new = found.keys() - told.keys()
        told = {code: finding._replace(fixed=code not in found) for code, finding in {**found, **told}.items()}
        if not new or failures:
            return [*told.values(), *failures]
        try:
            with atomic.io(f"mend run {run_id}"):
                _mend(visit, run_id, {code for code in found if found[code].fix})
        except SubagentError as error:
            failures.append(Finding(run_id, "not_mended", error.message, WARNING))


def _mend(visit: Visit, run_id: str, codes: set[str]) -> None:
    if codes - {"damaged_run_json", "missing_run_json", "missing_entries", "wrong_entries"}:
        repair.mend(visit.runs, run_id, codes, visit.clock.now)
    if codes & {"damaged_run_json", "missing_run_json"}:
        spec = _rebuilt(visit, run_id)
        repair.rewrite(visit.runs.layout, run_id, visit.runs.layout.spec(run_id), codec.document(spec))
    if codes & {"missing_entries", "wrong_entries"}:
        run, spec = visit.runs.read(run_id, visit.clock.now()), visit.runs.spec(run_id)
        damaged = _damaged_key(visit, spec)
        for path in (*_wrong(visit, run, spec), *_missing(visit, run, spec)):
            atomic.unmark(path)
        reconcile.enter(visit.runs.layout, run, spec)
        if damaged:
            note(damaged, run_id)


def _findings(visit: Visit, run_id: str) -> list[Finding]:
    layout = visit.runs.layout
    ours = any(map(os.path.exists, (layout.spec(run_id), layout.prompt(run_id))))
    found = repair.findings(visit.runs, run_id, ours=ours)
    if all(finding.code not in ("leads_out", "lost", "unreadable") for finding in found):
        found += _spec_fault(visit.runs, run_id, ours)
    if all(finding.severity != DAMAGE for finding in found):
        found += _index_faults(visit, run_id)
    return found


def _spec_fault(runs: Runs, run_id: str, ours: bool) -> Iterator[Finding]:
    reason, left, bad = _spec(runs, run_id)
    if reason is None or not ours:
        return
    version = left.get("version")
    if isinstance(version, int) and version > 1:
        yield Finding(run_id, "newer_run_json", "run.json has a version that is not known here", WARNING)
        return
    from subagent_cli.contracts.spec import RunSpec

    gone = ", ".join(key for key in RunSpec.model_fields if key not in _ELSEWHERE and (key not in left or key in bad))
    code = "missing_run_json" if reason == "it is gone" else "damaged_run_json"
    fix = "put together from what is left of it, the journal, prompt.md and the index; what nobody knows is left empty"
    yield Finding(run_id, code, f"run.json cannot be used ({reason}); lost with it: {gone or 'nothing'}", DAMAGE, fix)


def _spec(runs: Runs, run_id: str) -> tuple[str | None, Spec, set[str]]:
    """Why `run.json` cannot be used, if so, what can be read of it, and which of its keys do not fit."""
    try:
        with open(runs.layout.spec(run_id), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return "it is gone", {}, set()
    except OSError as error:
        return error.strerror or str(error), {}, set()
    try:
        found = codec.load(data)
    except ValueError as error:
        return f"not valid JSON: {error}" if data else "it is empty", *_left(data)
    if not isinstance(found, dict):
        return "not an object", {}, set()
    bad = _unfit(found)
    return f"it does not match its schema: {', '.join(sorted(bad))}" if bad else None, found, bad


def _left(data: bytes) -> tuple[Spec, set[str]]:
    """The keys that stand whole at the beginning: each begins a line, and no text holds a line feed."""
    while data:
        data = data.rpartition(b"\n")[0]
        try:
            found = codec.load(data.rstrip(b",") + b"}")
        except ValueError:
            continue
        return found, _unfit(found) & found.keys()
    return {}, set()


def _unfit(found: Spec) -> set[str]:
    from pydantic import ValidationError

    from subagent_cli.contracts.spec import RunSpec

    try:
        RunSpec.model_validate(found)
    except ValidationError as error:
        # A folder's name need not be UTF-8, and is then kept in a spelling that pydantic does not read.
        return {str(fault["loc"][0]) for fault in error.errors() if fault["type"] != "string_unicode"}
    return set()


def _rebuilt(visit: Visit, run_id: str) -> Spec:
    _, left, bad = _spec(visit.runs, run_id)
    run = visit.runs.read(run_id, visit.clock.now())
    known = {entry.kind: entry.word for entry in visit.entries.get(run_id, ())}
    try:
        with open(visit.runs.layout.prompt(run_id), encoding="utf-8", errors="replace") as file:
            task = file.read()
    except FileNotFoundError:
        task = ""
    spec: Spec = {
        "version": 1,
        "runId": run_id,
        "agentName": run.agent or "",
        "task": task,
        "argv": None,
        "cwd": "",
        "name": known.get("names"),
        "parentId": known.get("children"),
        "groupId": None,
        "depth": 2 if "children" in known else 1,
        "timeoutSeconds": None,
        # No token has this hash: the run's worker is turned away rather than anybody let in.
        "tokenHash": "",
        "labels": {},
        "key": None,
        "createdAt": run.started_at or "",
    }
    return spec | {key: value for key, value in left.items() if key not in bad}


def _index_faults(visit: Visit, run_id: str) -> Iterator[Finding]:
    try:
        run, spec = visit.runs.read(run_id, visit.clock.now()), visit.runs.spec(run_id)
    except SubagentError:
        return
    if wrong := _wrong(visit, run, spec):
        text = f"the index says of it what is not so: {named(visit.runs.layout, wrong)}"
        yield Finding(run_id, "wrong_entries", text, WARNING, "removed")
    if missing := _missing(visit, run, spec):
        text = f"the index does not know it: {named(visit.runs.layout, missing)}"
        yield Finding(run_id, "missing_entries", text, WARNING, "entered")


def _wrong(visit: Visit, run: Run, spec: Spec) -> list[str]:
    """Entries that lead to this run without reason."""
    index = visit.runs.index

    def right(entry: Entry) -> bool:
        match entry.kind:
            case "active":
                return run.active
            case "questions":
                return entry.word in run.questions or led_to(index.asker, entry.word) != run.id
            case "names":
                return bool(spec.get("name") == entry.word)
            case "children":
                return bool(spec.get("parentId") == entry.word)
        return True

    return [e.path for e in visit.entries.get(run.id, ()) if not right(e) and os.path.lexists(e.path)]


def _missing(visit: Visit, run: Run, spec: Spec) -> list[str]:
    """Entries that should lead to this run and do not."""
    layout, index = visit.runs.layout, visit.runs.index
    wanted = [layout.active_mark(run.id)] if run.active else []
    name, parent = spec.get("name"), spec.get("parentId")
    if isinstance(name, str) and is_label(name):
        wanted.append(layout.name_mark(name, run.id))
    if isinstance(parent, str) and is_uuid(parent):
        wanted.append(layout.child_mark(parent, run.id))
    wanted += [layout.grant_mark(grantee, run.id) for _, grantee, _ in run.grants if is_uuid(grantee)]
    missing = [path for path in wanted if not os.path.exists(path)]
    missing += filter(None, [_damaged_key(visit, spec)])
    for message_id in filter(is_label, run.questions):
        asker = led_to(index.asker, message_id)
        if asker != run.id and not (asker and _asked(visit, asker, message_id)):
            missing.append(layout.question_mark(message_id))
    return missing


def _damaged_key(visit: Visit, spec: Spec) -> str | None:
    """The entry of the key that the run was made under, if it is there and no longer says which run that is."""
    key, parent = spec.get("key"), spec.get("parentId")
    if not isinstance(key, str) or not isinstance(parent, str | None):
        return None
    digest = key_digest("create", key, parent)
    path = visit.runs.layout.key_mark(digest)
    return path if os.path.lexists(path) and not led_to(visit.runs.index.keyed, digest) else None


def _asked(visit: Visit, run_id: str, message_id: str) -> bool:
    """Whether a run asked this question too, as the copy of a run does; one that cannot be read is believed."""
    if not visit.runs.exists(run_id):
        return False
    try:
        return message_id in visit.runs.read(run_id, visit.clock.now()).questions
    except SubagentError:
        return True

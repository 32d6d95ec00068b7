"""Archives: runs that leave for one file, and runs that come in from one.

What leaves is consistent, since every run is read under its lock. What comes in is checked as anything from outside,
keeps its ids as long as they are free, and appears all or not at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import IO, Any

from subagent_cli.core.document import Document, document_fits
from subagent_cli.core.errors import Damaged, Failed, InvalidInput, NotFound, Refused, SubagentError
from subagent_cli.core.event import Delivered, Event, event
from subagent_cli.core.evolution import fold
from subagent_cli.core.ids import short
from subagent_cli.core.projection import project
from subagent_cli.core.run import Run
from subagent_cli.services import access, addresses
from subagent_cli.services.context import Context, Payload
from subagent_cli.store import archive, codec, journal
from subagent_cli.store.admission import Arrival, admit
from subagent_cli.store.archive import JOURNAL, META, SPEC, Archive
from subagent_cli.store.lock import held
from subagent_cli.store.reader import Spec

_CHUNK = 1 << 18


def export(
    context: Context, names: Sequence[str], file: str | IO[bytes], *, everything: bool = False, force: bool = False
) -> tuple[Payload, list[SubagentError]]:
    """Puts runs into a file, or into an open one; with `everything`, what cannot be read is left out and said."""
    access.operator_only(context, "export")
    context.must_be_there()
    chosen = context.runs.all() if everything else [addresses.run(context, name) for name in names]
    if isinstance(file, str):
        with archive.whole(file, force=force) as target:
            runs, faults = _pack(context, list(dict.fromkeys(chosen)), target, everything)
            size = target.seek(0, 2)
        return {"file": file, "runs": runs, "bytes": size}, faults
    from shutil import copyfileobj
    from tempfile import TemporaryFile

    # First beside it: a reader that takes its time must not keep the runs locked.
    with TemporaryFile() as target:
        runs, faults = _pack(context, list(dict.fromkeys(chosen)), target, everything)
        size = target.seek(0, 2)
        target.seek(0)
        copyfileobj(target, file)
        file.flush()
    return {"file": "-", "runs": runs, "bytes": size}, faults


def take_in(context: Context, file: str | IO[bytes], *, renew: bool = False) -> Payload:
    """Takes the runs out of a file; a run that is here already is passed over."""
    access.operator_only(context, "import")
    context.must_be_a_folder()
    with _seekable(file) as source:
        found = Archive(source)
        runs = {run_id: _Incoming(context, found, run_id) for run_id in found.runs}
        timeout = context.settings["lock_timeout"].value / 1000
        layout = context.runs.layout
        with held(layout.lock("import"), timeout, "the import of another archive"):
            skipped = [run_id for run_id, run in runs.items() if run.is_here()]
            coming = [run for run_id, run in runs.items() if run_id not in skipped]
            ids = _new_ids(context, coming, renew)
            arrivals = [run.arrival(ids[run.run_id]) for run in coming]
            if arrivals:
                admit(layout, found, arrivals, timeout)
    return {"imported": [{"runId": run.run.id, "from": run.source} for run in arrivals], "skipped": skipped}


class _Incoming:
    """One run of an archive, checked."""

    def __init__(self, context: Context, found: Archive, run_id: str) -> None:
        self._context, self.run_id = context, run_id
        self.journal, self.meta, spec = (found.read(run_id, name) for name in (JOURNAL, META, SPEC))
        try:
            self.spec: Spec = codec.load(spec) if spec is not None else {}
            records = journal.committed(self.journal or b"")[0]
            self.events = list(zip(map(event, records), [line.get("origin") for line in records], strict=True))
            self.folded = fold(Run(run_id), (happened for happened, _ in self.events))
            own = self.meta is None or (records and journal.digest(self.meta) in journal.pictures(records))
            self.foreign: Document | None = None if own else _document(self.meta or b"")
            self.run = self._with_foreign(self.folded, self.foreign)
            sound = isinstance(self.spec, dict) and _sound(self.run) and bool(records or self.foreign is not None)
        except SubagentError as error:
            raise Damaged(f"run {run_id} in the archive: {error.message}", code=error.code, hint=error.hint) from error
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise Damaged(f"run {run_id} in the archive cannot be read: {error}") from error
        if not sound:
            raise Damaged(f"run {run_id} in the archive does not say what a run must say")

    def is_here(self) -> bool:
        """Whether the very same run is there already."""
        layout = self._context.runs.layout
        path, ours = (layout.journal, self.journal) if self.journal is not None else (layout.meta, self.meta)
        try:
            with open(path(self.run_id), "rb") as file:
                return file.read() == ours
        except OSError:
            return False

    def arrival(self, ids: Mapping[str, str]) -> Arrival:
        """The run under its new ids, and what of its files has to change for them."""
        run_id = ids.get(self.run_id, self.run_id)
        spec = dict(self.spec)
        for key in ("runId", "parentId"):
            if isinstance(spec.get(key), str):
                spec[key] = ids.get(spec[key], spec[key])
        changed = {SPEC: codec.document(spec)} if spec != self.spec else {}
        if run_id == self.run_id and not ids.keys() & _named(self.run):
            return Arrival(self.run, spec, self.run_id, changed)
        events = [(_renamed(happened, ids), origin) for happened, origin in self.events]
        folded = fold(Run(run_id), (happened for happened, _ in events))
        foreign = _renamed_document(self.foreign, ids) if self.foreign is not None else None
        picture = codec.document(project(folded))
        if events:
            changed[JOURNAL] = journal.lines(0, events, journal.digest(picture))
        changed[META] = picture if foreign is None else codec.document(foreign)
        return Arrival(self._with_foreign(folded, foreign), spec, self.run_id, changed)

    def _with_foreign(self, run: Run, foreign: Document | None) -> Run:
        from subagent_cli.core.absorption import absorb

        return run if foreign is None else fold(run, absorb(run, foreign, self._context.clock.now()))


def _pack(
    context: Context, run_ids: Sequence[str], target: IO[bytes], everything: bool
) -> tuple[list[str], list[SubagentError]]:
    faults: list[SubagentError] = []
    with archive.Writer(target) as writer:
        for run_id in run_ids:
            try:
                _add(context, run_id, writer)
            except (Damaged, NotFound, Failed) as fault:
                # One that was deleted meanwhile is not missing; a disk that fails is not a run's fault.
                gone = not context.runs.exists(run_id)
                if not everything or not (gone or isinstance(fault, Damaged)):
                    raise
                faults += [] if gone else [fault]
        writer.finish(context.clock.now().iso)
    return writer.runs, faults


def _add(context: Context, run_id: str, writer: archive.Writer) -> None:
    with context.runs.locked(run_id):
        context.runs.read(run_id, context.clock.now())
        writer.add(context.runs.layout, run_id)


def _opened(file: str) -> IO[bytes]:
    try:
        return open(file, "rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"there is no file {file}", code="file_not_found") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the file cannot be read: {error}", code="unreadable_file") from error


@contextmanager
def _seekable(file: str | IO[bytes]) -> Iterator[IO[bytes]]:
    """The file, or what came through a pipe, as something that can be read from any place."""
    from tempfile import TemporaryFile

    with _opened(file) if isinstance(file, str) else nullcontext(file) as source:
        if isinstance(file, str) and source.seekable():
            yield source
            return
        with TemporaryFile() as spool:
            size = 0
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > archive.MOST_BYTES:
                    raise InvalidInput(f"the archive has more than {archive.MOST_BYTES} bytes", code="bad_archive")
                spool.write(chunk)
            yield spool


def _new_ids(context: Context, coming: Sequence[_Incoming], renew: bool) -> dict[str, dict[str, str]]:
    """For each run, the fresh ids of what is taken by others: runs of the archive, and its own questions."""
    runs, known = context.runs, dict[str, str]()
    new_runs: dict[str, str] = {}
    new_messages: dict[str, dict[str, str]] = {}
    for incoming in coming:
        run_id = incoming.run_id
        if runs.exists(run_id):
            new_runs[run_id] = context.clock.new_id()
        here = new_runs.get(run_id, run_id)
        taken = []
        for message_id in incoming.run.questions:
            asker = runs.index.asker(message_id)
            is_elsewhere = asker is not None and asker != here and runs.exists(asker)
            if is_elsewhere or known.setdefault(message_id, run_id) != run_id:
                taken.append(message_id)
        if (run_id in new_runs or taken) and not renew:
            raise Refused(
                f"run {short(run_id)}, or a question of it, is here already and is not the same",
                code="exists",
                hint="--renew gives new ids to what comes in; nothing was imported",
            )
        new_messages[run_id] = {message_id: context.clock.new_id() for message_id in taken}
    return {run_id: {**new_runs, **messages} for run_id, messages in new_messages.items()}


def _named(run: Run) -> set[str]:
    """The runs and questions of which a run's journal speaks."""
    return {
        *run.questions,
        *(agent for row in run.grants for agent in row[:2]),
        *(d.sender for d in run.inbox.values()),
    }


def _renamed(happened: Event, ids: Mapping[str, str]) -> Event:
    """The same event under the new ids, wherever it names a run or a question."""
    changes: dict[str, Any] = {}
    for field, value in happened._asdict().items():
        if field in ("run_id", "message_id", "grantor", "grantee", "sender"):
            changes[field] = ids.get(value, value)
        elif field == "text" and isinstance(happened, Delivered):
            changes[field] = _reworded(value, ids)
        elif field == "message_ids":
            changes[field] = tuple(ids.get(message_id, message_id) for message_id in value)
        elif field == "messages":
            changes[field] = {ids.get(message_id, message_id): found for message_id, found in value.items()}
        elif field == "keys" and "runId" in value:
            changes[field] = {**value, "runId": ids.get(value["runId"], value["runId"])}
    return happened._replace(**changes)


def _reworded(text: str, ids: Mapping[str, str]) -> str:
    for old, new in ids.items():
        text = text.replace(old, new)
    return text


def _renamed_document(document: Document, ids: Mapping[str, str]) -> Document:
    renamed = dict(document)
    shown = document.get("runId")
    if isinstance(shown, str):
        renamed["runId"] = ids.get(shown, shown)
    if isinstance(document.get("messages"), list):
        renamed["messages"] = [
            {**entry, "messageId": ids[entry["messageId"]]}
            if isinstance(entry, dict) and isinstance(entry.get("messageId"), str) and entry["messageId"] in ids
            else entry
            for entry in document["messages"]
        ]
    return renamed


def _document(picture: bytes) -> Document:
    found = codec.load_prefix(picture)
    if not isinstance(found, dict):
        raise ValueError("its document is not an object")
    return found


def _sound(run: Run) -> bool:
    """Whether what the run adds up to has the types that every reader of it relies on."""
    document = project(run)
    codec.document(document)
    texts: list[object] = [run.kind, *(note.text for note in run.notes)]
    for question in run.questions.values():
        texts += [question.id, question.default, *question.options]
    deadlines: list[object] = [question.deadline for question in run.questions.values()]
    deadlines += [grant.lasts for grant in run.grants.values()]
    words: list[object] = [word for row in run.grants for word in row]
    for delivery in run.inbox.values():
        words += [delivery.message_id, delivery.sender, delivery.text, delivery.sha256]
        texts.append(delivery.in_reply_to)
    return (
        document_fits(document)
        and all(isinstance(text, str | None) for text in texts)
        and all(isinstance(word, str) for word in words)
        and all(isinstance(deadline, int | None) for deadline in deadlines)
    )

"""The run store: how a run comes to be, is read, and changes. There is one sequence for every change.

Lock, fold the journal, absorb what others wrote into `.meta.json`, let the core decide, append the events durably
(this is the commit), replace `.meta.json`. Index entries are made before the commit and removed after it. Before the
commit a failure changes nothing; after it a failure is a warning, since the journal holds the change and the next
writer mends the rest. Readers take no lock and write nothing: the picture first, then the journal, so that a newer
write of our own never looks like somebody else's.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from subagent_cli.core.command import Command, Settle
from subagent_cli.core.document import Document
from subagent_cli.core.errors import Failed, RunNotFound
from subagent_cli.core.event import Created, Event, Granted, Record
from subagent_cli.core.evolution import fold
from subagent_cli.core.grant import CAPABILITIES
from subagent_cli.core.moment import Moment
from subagent_cli.core.projection import project
from subagent_cli.core.run import REPLIED, WAITING, Run
from subagent_cli.core.transition import decide, due, lost
from subagent_cli.core.value import Value
from subagent_cli.store import alive, atomic, codec, flat, journal
from subagent_cli.store.index import Index
from subagent_cli.store.layout import TEMPORARY, Layout
from subagent_cli.store.reader import Reader, Spec
from subagent_cli.store.ring import Late, Ring
from subagent_cli.store.roster import Roster, Survey


class Change(Value):
    """What a change found, what it made of it, and what went wrong after it was safe.

    `late` is what the passing of time had brought about before it; `before` already includes that.
    """

    before: Run
    after: Run
    events: Sequence[Event]
    late: Sequence[Event] = ()
    warnings: Sequence[str] = ()


def reached(point: str) -> None:
    """Names the points of the change sequence. Tests put something here that kills the process."""


class Runs:
    """The runs below one directory. `ttl` is the age in milliseconds beyond which a question expires."""

    def __init__(self, root: str, *, lock_timeout: float = 10.0, ttl: int = 86_400_000) -> None:
        self.layout = Layout(root)
        self.index = Index(self.layout)
        self._ring = Ring(self.layout)
        self._roster = Roster(self.layout)
        self._reader = Reader(self.layout, self._ring)
        self._lock_timeout = lock_timeout
        self._ttl = ttl

    def aged(self, ttl: int) -> "Runs":
        """The same runs with another age at which questions expire."""
        return Runs(self.layout.root, lock_timeout=self._lock_timeout, ttl=ttl)

    def exists(self, run_id: str) -> bool:
        """Whether there is such a run, and not a link that leads elsewhere."""
        return self._roster.exists(run_id)

    def all(self) -> Sequence[str]:
        """Every run there is, newest first."""
        return self._roster.survey().runs

    def survey(self) -> Survey:
        """Every run there is, and which of them another program made that we have never written to."""
        return self._roster.survey()

    def matching(self, digits: str) -> list[str]:
        """The runs whose ids begin or end with these digits."""
        return self._roster.matching(digits)

    def lies_flat(self, run_id: str) -> bool:
        """Whether another program made the run and we have never written to it."""
        return flat.lies_flat(self.layout, run_id)

    def log_file(self, run_id: str) -> str:
        return self.layout.flat_log(run_id) if self.lies_flat(run_id) else self.layout.log(run_id)

    def places(self, run_id: str) -> list[str]:
        """What to watch for changes of a run: its folder, and where another program may be writing."""
        beside = [self.layout.root] if flat.is_shared(self.layout, run_id) else []
        return [self.layout.run(run_id), *beside, *self._ring.files(run_id)]

    def link(self, run_id: str) -> list[str]:
        """Lets the TypeScript server see and write the run under its flat names; gives those that were missing."""
        with self.locked(run_id), atomic.io("link the run"):
            return [] if self.lies_flat(run_id) else flat.link(self.layout, run_id)

    def unlink(self, run_id: str) -> list[str]:
        """Takes the links away again; gives those that were there."""
        with self.locked(run_id), atomic.io("unlink the run"):
            return flat.unlink(self.layout, run_id)

    def create(
        self,
        spec: Spec,
        prompt: str,
        phase: str,
        now: Moment,
        key_digest: str | None = None,
        claim: alive.Claim | None = None,
    ) -> Run:
        """A new run, which appears whole or not at all; with a claim it appears as one whose keeper lives."""
        run_id: str = spec["runId"]
        command = _joined(spec["argv"]) if spec["argv"] else spec["agentName"]
        event = Created(now, run_id, spec["agentName"], command, phase, bool(claim) or None, spec.get("sessionId"))
        parent_id = spec["parentId"]
        grants = [Granted(now, parent_id, parent_id, capability) for capability in CAPABILITIES] if parent_id else []
        run = fold(Run(run_id), (event, *grants))
        picture = codec.document(project(run))
        lines = journal.lines(0, [(event, None), *((grant, None) for grant in grants)], journal.digest(picture))
        prepared = self.layout.new_run(run_id)
        with atomic.io("create the run"):
            self._make_root()
            try:
                os.mkdir(prepared, 0o700)
                for path, data in (
                    (self.layout.spec(run_id), codec.document(spec)),
                    (self.layout.prompt(run_id), codec.encoded(prompt)),
                    (self.layout.journal(run_id), lines),
                    (self.layout.meta(run_id), picture),
                    (self.layout.log(run_id), b""),
                ):
                    atomic.create(os.path.join(prepared, os.path.basename(path)), data)
                if claim:
                    claim.take(os.path.join(prepared, os.path.basename(self.layout.alive(run_id))))
                atomic.sync_folder(prepared)
                reached("prepared")
                self.index.enter(run_id, name=spec["name"], parent_id=spec["parentId"], key_digest=key_digest)
                reached("entered")
                atomic.appear(prepared, self.layout.run(run_id))
            except OSError:
                atomic.discard(prepared)
                raise
        reached("appeared")
        with journal.confirmed():
            atomic.sync_folder(self.layout.root)
        return run

    def keyed(self, key_digest: str, create: Callable[[], Run], parent_id: str | None = None) -> Run:
        """The run that was created under this key, or a new one: one run a key, however many ask at once."""
        from subagent_cli.store.lock import held

        with held(self.layout.lock(f"key-{key_digest}"), self._lock_timeout, "the key"):
            known = self.index.keyed(key_digest)
            if known and self.exists(known) and self.spec(known).get("parentId") == parent_id:
                return self._reader.fold(known).run
            return create()

    def spec(self, run_id: str) -> Spec:
        """What was asked of the run; empty for a run that another program made."""
        return self._reader.spec(run_id)

    def token_hash(self, run_id: str) -> str | None:
        """The hash of the worker's token, where a later attempt has brought another one than was asked with."""
        return self._reader.fold(run_id).run.token_hash

    def read(self, run_id: str, now: Moment) -> Run:
        """The run as it stands, without a lock and without a trace."""
        run, _ = self._look(run_id, now)
        if run.alive and alive.dead(self.layout, run_id):
            # Its last word may have come since the journal was read, and stands there for certain now.
            run, _ = self._look(run_id, now)
            run = fold(run, lost(run, now))
        return fold(run, due(run, now, self._ttl))

    def unsettled(self, run_id: str, now: Moment) -> tuple[Sequence[Event], bool]:
        """What the passing of time has brought about and nobody has written down yet, and whether anything else is
        left to do: another program's write, an entry too many, a temporary file."""
        run, foreign = self._look(run_id, now)
        with atomic.io(f"look into run {run_id}"):
            # What lies flat is another program's alone as long as there is nothing of ours to say.
            foreign = foreign and not self.lies_flat(run_id)
            left = foreign or not run.active or bool(self._temporary(run_id))
        gone = lost(run, now) if run.alive and alive.dead(self.layout, run_id) else ()
        return [*gone, *due(run, now, self._ttl)], left

    def records(self, run_id: str, after: int = 0) -> list[Record]:
        """The journal's committed lines behind line number `after`."""
        if not self.exists(run_id):
            raise RunNotFound(run_id)
        if self._reader.fold(run_id).seq <= after:
            return []
        try:
            with open(self.layout.journal(run_id), "rb") as file:
                return journal.committed(file.read())[0][after:]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise atomic.failed(f"read the journal of run {run_id}", error) from error

    @contextmanager
    def locked(self, run_id: str) -> Iterator[None]:
        """Holds the run's lock for the length of a with block; RunNotFound where the run is gone by then."""
        from subagent_cli.store.lock import held

        if not self.exists(run_id):
            raise RunNotFound(run_id)
        with ExitStack() as stack:
            try:
                folder = self.layout.run(run_id)
                queue = folder if os.path.isdir(folder) else None
                lock = held(self.layout.lock(run_id), self._lock_timeout, f"run {run_id}", queue=queue)
                stack.enter_context(lock)
            except Failed:
                # The queue is at the run's folder, which somebody may have taken away meanwhile.
                if self.exists(run_id):
                    raise
                raise RunNotFound(run_id) from None
            if not self.exists(run_id):
                raise RunNotFound(run_id)
            yield

    def change(self, run_id: str, command: Command, now: Callable[[], Moment]) -> Change:
        """The one way in which a run changes. A refusal, or a failure before the commit, changes nothing."""
        with self.locked(run_id):
            reached("locked")
            at = now()
            # Before the journal is read: a keeper that is dead now has said there all that it ever will.
            gone = isinstance(command, Settle) and alive.dead(self.layout, run_id)
            sight = self._reader.see(run_id)
            picture, folded = sight.picture, sight.folded
            seen = sight.absorbed(at)
            before = fold(folded.run, seen)
            late = [*(lost(before, at) if gone else ()), *due(before, at, self._ttl)]
            before = fold(before, late)
            reached("folded")
            wanted = decide(before, command, at)
            after = fold(before, wanted)
            reached("decided")
            adopts = self.lies_flat(run_id)
            events = [*seen, *late, *wanted] if late or wanted or not adopts else []
            new_picture = self._reader.paint(after) if events or not folded.empty else picture
            if events:
                with atomic.io("enter the run into the index"):
                    if adopts:
                        flat.adopt(self.layout, run_id)
                    self.index.before(run_id, after, events)
                reached("indexed")
                origins = ["meta"] * len(seen) + [None] * (len(late) + len(wanted))
                known = journal.append(
                    self.layout.journal(run_id),
                    folded,
                    after,
                    list(zip(events, origins, strict=True)),
                    self._reader.digest(new_picture or b""),
                    self.layout.quarantine(run_id),
                )
                self._reader.remember(run_id, known)
                reached("committed")
            warnings = self._show(run_id, after, picture, new_picture, at) if new_picture != picture else ()
            if sight.late or isinstance(command, Settle):
                warnings = (*warnings, *self._tidy(run_id, after, sight.late, at))
        reached("released")
        return Change(before, after, wanted, late, warnings)

    def log(self, run_id: str, *texts: str, now: Moment) -> Sequence[str]:
        """Lines of our own in the run's log; a log that cannot be written is a warning."""
        # Later lines are moved in, so that a text cannot pose as stamped lines.
        lines = "".join(f"[{now.iso}] {text}\n".replace("\n", "\n  ").removesuffix("  ") for text in texts)
        path = self.layout.log(run_id)
        if not self.layout.inside(path):
            return ("the log could not be written: it is a link that leads out of the runs directory",)
        try:
            atomic.append(path, codec.encoded(lines))
        except OSError as error:
            return (f"the log could not be written: {error.strerror}",)
        return ()

    def _make_root(self) -> None:
        if not os.path.isdir(self.layout.active):
            from subagent_cli.store.welcome import WELCOME

            atomic.make_folders(self.layout.active)
            atomic.mark(self.layout.readme, WELCOME.encode())
            atomic.sync_folder(self.layout.root)

    def _show(self, run_id: str, run: Run, old: bytes | None, new: bytes | None, now: Moment) -> Sequence[str]:
        """Makes a committed change visible to those who read the picture."""
        try:
            if old is not None and flat.is_shared(self.layout, run_id):
                self._ring.keep(run_id, old, now)
            atomic.replace(self.layout.meta(run_id), new or b"")
            reached("replaced")
            self._leave(run_id, run)
        except OSError as error:
            return (f"the change is safe in the journal, but .meta.json is not up to date: {error.strerror}",)
        return ()

    def _look(self, run_id: str, now: Moment) -> tuple[Run, bool]:
        """The run as its files say, and whether another program has had a hand in it."""
        if not self.exists(run_id):
            raise RunNotFound(run_id)
        sight = self._reader.see(run_id)
        if not sight.foreign:
            return sight.folded.run, False
        claim = _claim(sight.document) if sight.document is not None else None
        return fold(sight.folded.run, sight.absorbed(now))._replace(claim=claim), True

    def _temporary(self, run_id: str) -> list[str]:
        picture = os.path.basename(self.layout.meta(run_id)) + "."
        names = [] if self.lies_flat(run_id) else os.listdir(self.layout.run(run_id))
        return [name for name in names if name.startswith(picture) and name.endswith(TEMPORARY)]

    def _tidy(self, run_id: str, run: Run, late: list[Late], now: Moment) -> Sequence[str]:
        """Removes what crashes left behind. Temporary files are made under the lock that is held now."""
        try:
            for name in self._temporary(run_id):
                atomic.unmark(os.path.join(self.layout.run(run_id), name))
            self._ring.settle(run_id, late, now)
            self._leave(run_id, run)
            if run.gone:
                # What the keeper would have taken with it.
                atomic.unmark(self.layout.wake(run_id))
                atomic.unmark(self.layout.token(run_id))
        except OSError as error:
            return (f"run {run_id} could not be tidied: {error.strerror}",)
        return ()

    def _leave(self, run_id: str, run: Run) -> None:
        """A run that is over leaves the index, unless a late write may still come for it."""
        if not run.active and self._ring.is_empty(run_id):
            self.index.after(run_id, run)


def _joined(words: Sequence[str]) -> str:
    """A command as somebody would type it."""
    from shlex import join

    return join(words)


def _claim(document: Document) -> str | None:
    status = document.get("status")
    return status if status in (WAITING, REPLIED) else None

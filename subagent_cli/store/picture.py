"""Reading `.meta.json`, which anybody may be writing.

A half-written file is read again for a moment; a whole document with the tail of an older one behind it is read as
that document. What stays unreadable is left as it is, and so is a link that leads out of the runs directory.
"""

import errno
import os
import time

from subagent_cli.core.document import Document
from subagent_cli.core.errors import Damaged, SubagentError
from subagent_cli.core.projection import project
from subagent_cli.core.question import Question, message
from subagent_cli.core.run import Run
from subagent_cli.core.value import Value
from subagent_cli.store import atomic, codec, journal
from subagent_cli.store.layout import Layout

# A writer that truncates in place leaves an empty or half file for a moment: 1.3 times the last wait, 0.25 s in all.
_RETRIES = tuple(0.001 * 1.3**turn for turn in range(16))


class _Painted(Value):
    """The questions of a run in their order, and how each stands in its picture."""

    run_id: str
    questions: list[Question]
    parts: list[str]


class Pictures:
    """The pictures of the runs below one directory."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._digested = (b"", journal.digest(b""))
        self._painted = _Painted("", [], [])

    def digest(self, picture: bytes) -> str:
        """The digest of a picture, which is mostly the one that was asked for last."""
        known, digest = self._digested
        if known != picture:
            digest = journal.digest(picture)
            self._digested = (picture, digest)
        return digest

    def paint(self, run: Run) -> bytes:
        """The picture of a run. Of the questions only those are painted that are not as they were at the last time."""
        if not run.questions:
            return codec.document(project(run))
        painted = self._painted
        if painted.run_id != run.id:
            painted = self._painted = _Painted(run.id, [], [])
        _, known, parts = painted
        # Questions only ever come to those that are there, so the places stay what they are.
        for place, question in enumerate(run.questions.values()):
            if place == len(known):
                parts.append(codec.item(message(question)))
                known.append(question)
            elif known[place] is not question:
                parts[place] = codec.item(message(question))
                known[place] = question
        return codec.document(project(run, codec.items(parts[: len(run.questions)])))

    def read(self, run_id: str) -> bytes | None:
        """The bytes of `.meta.json`; None where there is no such file."""
        lying = not os.path.lexists(self._layout.run(run_id))
        path = self._layout.flat_meta(run_id) if lying else self._layout.meta(run_id)
        try:
            picture = atomic.content(path)
        except FileNotFoundError:
            if os.path.lexists(path):
                raise self.unreadable(run_id, "it is a link to nothing") from None
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise self.unreadable(run_id, error.strerror or "") from error
            raise atomic.failed(f"read the meta file of run {run_id}", error) from error
        if not self._layout.inside(path):
            raise self.unreadable(run_id, "it is a link that leads out of the runs directory")
        return picture

    def foreign(self, run_id: str, picture: bytes | None, folded: journal.Folded) -> Document | None:
        """The document, if somebody else has written it since we last did."""
        if picture is None:
            if folded.empty:
                raise self.unreadable(run_id, "the run has neither a journal nor a .meta.json")
            return None
        if not folded.empty and self.digest(picture) in folded.pictures:
            return None
        return self._document(run_id, picture)

    def _document(self, run_id: str, picture: bytes) -> Document:
        """The document that the bytes spell, or will spell when a writer that truncates in place is done."""
        for pause in _RETRIES:
            try:
                return self._object(run_id, codec.load(picture))
            except ValueError:
                time.sleep(pause)
            again = self.read(run_id)
            if again is None:
                break
            picture = again
        try:
            return self._object(run_id, codec.load_prefix(picture))
        except ValueError as error:
            reason = "the file is empty" if not picture.strip() else f"it is not valid JSON ({error})"
            raise self.unreadable(run_id, reason) from error

    def _object(self, run_id: str, found: object) -> Document:
        if not isinstance(found, dict):
            raise self.unreadable(run_id, "it does not match the schema: an object is expected")
        return found

    def unreadable(self, run_id: str, reason: str) -> SubagentError:
        path = self._layout.meta(run_id)
        hint = "the file was left as it is"
        if os.path.exists(self._layout.journal(run_id)):
            hint += f"; the journal holds the run: `subagent doctor {run_id} --fix` writes {path} anew"
        return Damaged(f"Could not read meta file of run {run_id}: {reason}", code="damaged_meta", hint=hint)

"""The index: look-ups as tiny files, so that no verb has to read what is long finished.

Every entry is derived and may outlive what it names: entries are made before the fact they stand for and removed
after it, so a crash leaves too many, never too few. Readers check what an entry says before they believe it.
"""

import os
from collections.abc import Sequence

from subagent_cli.core.errors import Damaged
from subagent_cli.core.event import Asked, Event, Granted
from subagent_cli.core.ids import is_label, is_uuid
from subagent_cli.core.run import Run
from subagent_cli.store import atomic
from subagent_cli.store.layout import Layout


class Index:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def active(self) -> list[str]:
        """Runs that may be unfinished or have a question waiting, oldest first."""
        return sorted(filter(is_uuid, _names(self._layout.active)))

    def asker(self, message_id: str) -> str | None:
        """Which run asked this question."""
        if not is_label(message_id):
            return None
        return _content(self._layout.question_mark(message_id))

    def questions(self) -> list[str]:
        return _names(self._layout.questions)

    def named(self, name: str) -> list[str]:
        """Runs of that name, newest first."""
        return sorted(filter(is_uuid, _names(self._layout.name_marks(name))), reverse=True)

    def names(self) -> list[str]:
        """Names that a run has."""
        return [name for name in _names(self._layout.names) if _names(self._layout.name_marks(name))]

    def children(self, parent_id: str) -> list[str]:
        """Runs that this run made, oldest first."""
        return sorted(filter(is_uuid, _names(self._layout.child_marks(parent_id)))) if is_uuid(parent_id) else []

    def granted(self, grantee: str) -> list[str]:
        """Runs on which this agent may have been given a capability."""
        return sorted(filter(is_uuid, _names(self._layout.grant_marks(grantee)))) if is_uuid(grantee) else []

    def keyed(self, digest: str) -> str | None:
        """The run that was created under this idempotency key. An entry that was damaged is not taken for none: the
        retry would make a second run."""
        path = self._layout.key_mark(digest)
        found = _word(path)
        if found and not is_uuid(found):
            raise Damaged(
                f"the entry of this key names no run: {path}",
                code="damaged_index",
                hint="nothing was made; `subagent doctor --fix` mends it",
            )
        return found or None

    def enter(self, run_id: str, *, name: str | None, parent_id: str | None, key_digest: str | None) -> None:
        """Before a run appears."""
        atomic.mark(self._layout.active_mark(run_id))
        if name:
            atomic.mark(self._layout.name_mark(name, run_id))
        if parent_id:
            atomic.mark(self._layout.child_mark(parent_id, run_id))
            atomic.mark(self._layout.grant_mark(parent_id, run_id))
        if key_digest:
            note(self._layout.key_mark(key_digest), run_id)
        atomic.sync_folder(self._layout.active)

    def before(self, run_id: str, after: Run, events: Sequence[Event]) -> None:
        """Before the events are committed."""
        if after.active:
            atomic.mark(self._layout.active_mark(run_id))
        for event in events:
            if isinstance(event, Asked) and is_label(event.message_id):
                atomic.mark(self._layout.question_mark(event.message_id), run_id.encode())
            elif isinstance(event, Granted) and is_uuid(event.grantee):
                atomic.mark(self._layout.grant_mark(event.grantee, run_id))

    def after(self, run_id: str, after: Run) -> None:
        """After the change is visible."""
        if not after.active:
            atomic.unmark(self._layout.active_mark(run_id))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise atomic.failed("read the index", error) from error


def note(path: str, word: str) -> None:
    """What was made under an idempotency key, before it appears. A retry relies on it behind a power cut too."""
    # An entry that a crash left behind names something that never appeared.
    atomic.unmark(path)
    atomic.make_folders(os.path.dirname(path))
    atomic.create(path, word.encode())
    atomic.sync_folder(os.path.dirname(path))


def _content(path: str) -> str | None:
    found = _word(path)
    return found if found and is_uuid(found) else None


def _word(path: str) -> str | None:
    try:
        return atomic.content(path)[:64].decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise atomic.failed("read the index", error) from error

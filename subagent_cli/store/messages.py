"""Typed messages: each written once and whole, and never changed.

A message is a file that nobody may write to, and that carries the hash of what it says. Every reading checks the hash
and the bytes, so that an edited message is refused and not believed. Which messages reply to which is an index, made
before the reply appears.
"""

import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from subagent_cli.core.errors import Damaged
from subagent_cli.core.ids import is_uuid, names
from subagent_cli.store import atomic, codec
from subagent_cli.store.index import note
from subagent_cli.store.journal import confirmed
from subagent_cli.store.layout import TEMPORARY, Layout

Message = dict[str, Any]

_READ_ONLY = 0o400
_HASH = "sha256"


def sealed(message: Message) -> Message:
    """The message as it will be read, with its hash: as JavaScript writes JSON, 1.0 is 1."""
    written: Message = codec.load(codec.document(message))
    return {**written, _HASH: _digest(written)}


class Messages:
    """The messages below one runs directory."""

    def __init__(self, layout: Layout, lock_timeout: float = 10.0) -> None:
        self._layout, self._lock_timeout = layout, lock_timeout

    def create(self, message: Message) -> None:
        """A new message, there or not, and lasting when this returns."""
        layout, message_id, original = self._layout, message["id"], message["in_reply_to"]
        path = layout.message(message_id)
        with atomic.io("write the message"):
            atomic.make_folders(layout.messages)
            if original:
                atomic.mark(layout.reply_mark(original, message_id))
            try:
                atomic.create(path + TEMPORARY, codec.document(message), mode=_READ_ONLY)
                atomic.appear(path + TEMPORARY, path)
            except OSError:
                atomic.unmark(path + TEMPORARY)
                raise
        with confirmed():
            atomic.sync_folder(layout.messages)

    def read(self, message_id: str) -> Message | None:
        """The message, proven to be as it was written; None where there is none."""
        if not is_uuid(message_id):
            return None
        try:
            # Whoever puts a named pipe into its place lets nobody wait at it.
            fd = os.open(self._layout.message(message_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _tampered(message_id) from error
            raise atomic.failed(f"read message {message_id}", error) from error
        with atomic.io(f"read message {message_id}"):
            return _proven(message_id, _file_in(fd))

    def all(self) -> list[str]:
        """Every message there is, oldest first."""
        return sorted(name.removesuffix(".json") for name in _names(self._layout.messages) if _is_message(name))

    def matching(self, digits: str) -> list[str]:
        """The messages whose ids begin or end with these digits."""
        return [message_id for message_id in self.all() if names(digits, message_id)]

    def replies(self, message_id: str) -> list[str]:
        """The messages that may reply to this one, oldest first."""
        return sorted(filter(is_uuid, _names(self._layout.reply_marks(message_id)))) if is_uuid(message_id) else []

    def keyed(
        self, digest: str, write: Callable[[], Message], is_own: Callable[[Message], bool] = lambda _: True
    ) -> Message:
        """The message that was written under this key, or a new one: one message a key, however many ask at once. An
        entry of the index is no proof, so whoever asks says whether what it leads to is his own."""
        from subagent_cli.store.lock import held

        path = self._layout.send_mark(digest)
        with held(self._layout.lock(f"key-{digest}"), self._lock_timeout, "the key"):
            known = self.read(_content(path))
            if known is not None and is_own(known):
                return known
            message = write()
            with atomic.io("enter the message into the index"):
                note(path, message["id"])
            self.create(message)
            return message

    def unentered(self, message_id: str) -> str | None:
        """The entry that a message should have and has not."""
        original = (self.read(message_id) or {}).get("in_reply_to")
        path = self._layout.reply_mark(original, message_id) if original else None
        return path if path and not os.path.exists(path) else None


def _file_in(fd: int) -> bytes | None:
    """What an open file holds; None where it is something else."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def _proven(message_id: str, data: bytes | None) -> Message:
    try:
        found = codec.load(data or b"")
        whole = isinstance(found, dict) and codec.document(found) == data
    except ValueError:
        whole, found = False, {}
    told = found.pop(_HASH, None) if whole else None
    if not whole or found.get("id") != message_id or told != _digest(found):
        raise _tampered(message_id)
    return {**found, _HASH: told}


def _tampered(message_id: str) -> Damaged:
    return Damaged(
        f"message {message_id} is not as it was written",
        code="tampered",
        hint="somebody has changed its file; do not rely on it",
    )


def _digest(message: Message) -> str:
    from hashlib import sha256

    return sha256(codec.line(message)).hexdigest()


def _is_message(name: str) -> bool:
    return name.endswith(".json") and is_uuid(name.removesuffix(".json"))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise atomic.failed("read the messages", error) from error


def _content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(64).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise atomic.failed("read the index", error) from error

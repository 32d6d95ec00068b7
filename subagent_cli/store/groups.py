"""Groups: one fan-out of runs each, written once and whole. How a group stands follows from its runs alone."""

import os
from typing import Any

from subagent_cli.core.errors import Damaged
from subagent_cli.core.ids import is_uuid, names
from subagent_cli.store import atomic, codec
from subagent_cli.store.index import note
from subagent_cli.store.journal import confirmed
from subagent_cli.store.layout import TEMPORARY, Layout

Group = dict[str, Any]


class Groups:
    """The groups below one runs directory."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def create(self, group: Group) -> None:
        """A new group, there or not, and lasting when this returns."""
        path, digest = self._layout.group(group["groupId"]), group["keyDigest"]
        with atomic.io("write the group"):
            atomic.make_folders(self._layout.groups)
            if digest:
                note(self._layout.spawn_mark(digest), group["groupId"])
            try:
                atomic.create(path + TEMPORARY, codec.document(group))
                atomic.appear(path + TEMPORARY, path)
            except OSError:
                atomic.unmark(path + TEMPORARY)
                raise
        with confirmed():
            atomic.sync_folder(self._layout.groups)

    def read(self, group_id: str) -> Group | None:
        """What was asked for; None where there is no such group."""
        if not is_uuid(group_id):
            return None
        try:
            with open(self._layout.group(group_id), "rb") as file:
                found = codec.load(file.read())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise atomic.failed(f"read group {group_id}", error) from error
        except ValueError as error:
            raise Damaged(f"could not read group {group_id}: {error}") from error
        children = found.get("children") if isinstance(found, dict) else None
        if not isinstance(children, list) or not all(map(_names_a_run, children)):
            raise Damaged(f"could not read group {group_id}: it does not say which runs it has")
        return {**found, "groupId": group_id}

    def keyed(self, digest: str) -> Group | None:
        """The group that was spawned under this key."""
        try:
            with open(self._layout.spawn_mark(digest), "rb") as file:
                return self.read(file.read(64).decode("utf-8", "replace").strip())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise atomic.failed("read the index", error) from error

    def all(self) -> list[str]:
        """Every group there is, oldest first."""
        try:
            entries = os.listdir(self._layout.groups)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise atomic.failed("read the groups", error) from error
        return sorted(name.removesuffix(".json") for name in entries if is_uuid(name.removesuffix(".json")))

    def matching(self, digits: str) -> list[str]:
        """The groups whose ids begin or end with these digits."""
        return [group_id for group_id in self.all() if names(digits, group_id)]

    def remove(self, group: Group) -> None:
        path = self._layout.group(group["groupId"])
        atomic.unmark(path)
        atomic.unmark(path + TEMPORARY)
        if isinstance(group.get("keyDigest"), str):
            atomic.unmark(self._layout.spawn_mark(group["keyDigest"]))


def _names_a_run(child: object) -> bool:
    return isinstance(child, dict) and isinstance(child.get("runId"), str) and is_uuid(child["runId"])

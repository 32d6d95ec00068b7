"""Which runs there are, told by names: folders, and documents that lie flat as the TypeScript server leaves them."""

import os
from collections.abc import Sequence
from stat import S_ISDIR, S_ISLNK

from subagent_cli.core.ids import are_timed, are_uuids, is_timed, is_uuid, names, uuid7
from subagent_cli.core.value import Value
from subagent_cli.store import atomic, flat
from subagent_cli.store.layout import FLAT_META, Layout

_ID = 36


class Survey(Value):
    """All runs, newest first, and which of them lie flat."""

    runs: Sequence[str]
    flat: Sequence[str]


class Roster:
    """The runs below one directory."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def exists(self, run_id: str) -> bool:
        """Whether there is such a run, and not a link that leads elsewhere."""
        if not is_uuid(run_id):
            return False
        path = self._layout.run(run_id)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return flat.lies_flat(self._layout, run_id)
        return S_ISDIR(mode) or (S_ISLNK(mode) and os.path.isdir(path) and self._layout.inside(path))

    def survey(self) -> Survey:
        """Every run there is. Ids that begin with a clock need no look at a file."""
        found = self._ids()
        lying = [run_id for run_id in found.flat if flat.lies_flat(self._layout, run_id)]
        runs = [*found.runs, *lying]
        if are_timed(runs):
            return Survey(sorted(runs, reverse=True), lying)
        untimed = {run_id: self._stamp(run_id) for run_id in runs if not is_timed(run_id)}
        return Survey(sorted(runs, key=lambda run_id: untimed.get(run_id, run_id), reverse=True), lying)

    def matching(self, digits: str) -> list[str]:
        """The runs whose ids begin or end with these digits."""
        found = self._ids()
        return [
            *(run_id for run_id in found.runs if names(digits, run_id)),
            *(run_id for run_id in found.flat if names(digits, run_id) and self.exists(run_id)),
        ]

    def _ids(self) -> Survey:
        """Folders, and documents without one."""
        try:
            entries = os.listdir(self._layout.root)
        except FileNotFoundError:
            return Survey([], [])
        except OSError as error:
            raise atomic.failed("read the runs directory", error) from error
        folders = [name for name in entries if len(name) == _ID]
        if not are_uuids(folders):
            folders = list(filter(is_uuid, folders))
        others = [name for name in entries if len(name) != _ID]
        documents = [name[:_ID] for name in others if name.endswith(FLAT_META) and is_uuid(name[: -len(FLAT_META)])]
        return Survey(folders, sorted({*documents} - {*folders}) if documents else [])

    def _stamp(self, run_id: str) -> str:
        """What the id would be if it began with the time at which the run was made, as far as its files tell."""
        for path in (self._layout.prompt(run_id), self._layout.flat_prompt(run_id), self._layout.flat_meta(run_id)):
            try:
                return uuid7(int(os.stat(path).st_mtime * 1000), bytes(10))
            except OSError:
                continue
        return run_id

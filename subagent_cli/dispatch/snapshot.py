"""The picture of a session's data at one moment: deep, and out of reach of whoever changes that data later.

It is pickled on the spot, so it holds copies and never the objects themselves, and it can be restored any number of
times. What cannot be pickled (an open file, a lock, a class that is defined within a function) cannot be captured,
and that is told at once instead of being shared in secret. Pickles are not safe to read from outside: a snapshot is
meant to stay in its process.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from subagent_cli.core.errors import SubagentError

Slices = Mapping[type, tuple[Any, ...]]


class SnapshotError(SubagentError):
    """The state of a session cannot be captured."""

    code = "snapshot_failed"


class SnapshotRestoreError(SnapshotError):
    """A snapshot cannot be restored into this session, which is as it was."""

    code = "restore_failed"


@dataclass(slots=True, frozen=True, eq=False)
class Snapshot:
    """`types` are those of the slices that it holds."""

    types: tuple[type, ...]
    state: bytes = field(repr=False)


def captured(slices: Slices) -> Snapshot:
    """A snapshot of slices; SnapshotError where something in them cannot be captured."""
    try:
        # All at once, so that what two slices share is shared in the copy too.
        state = pickle.dumps(tuple(slices.values()), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise SnapshotError(f"the state cannot be captured: {error}") from error
    return Snapshot(tuple(slices), state)


def restored(snapshot: Snapshot) -> dict[type, tuple[Any, ...]]:
    """The slices of a snapshot, copied anew each time; SnapshotRestoreError where they cannot be."""
    try:
        return dict(zip(snapshot.types, pickle.loads(snapshot.state), strict=True))
    except Exception as error:
        raise SnapshotRestoreError(f"the snapshot cannot be restored: {error}") from error

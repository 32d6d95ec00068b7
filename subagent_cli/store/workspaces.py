"""Where throwaway children work: a folder for each, and who will clear it away.

Whoever dispatches holds a lock as long as it lives, taken before the folder appears and let go of when it is gone. One
that can be had means that nobody will clear the folder away any more, and that a sweep should. What is to be kept says
so, and goes when its run does.
"""

import os

from subagent_cli.core.errors import Failed
from subagent_cli.core.ids import is_uuid, short
from subagent_cli.store import atomic
from subagent_cli.store.alive import Claim, released
from subagent_cli.store.layout import Layout

_TREE, _KEPT = "tree", "kept"


def tree(layout: Layout, run_id: str) -> str:
    """The folder that is copied into."""
    return os.path.join(layout.workspace(run_id), _TREE)


def claim(layout: Layout, run_id: str, *, keep: bool) -> Claim:
    """Takes the lock of a place for a child, and makes the place."""
    place, held = layout.workspace(run_id), Claim()
    with atomic.io("make a workspace"):
        atomic.make_folders(layout.locks)
        if not held.take(layout.workspace_lock(run_id)):
            raise Failed(f"somebody else works in the place of run {short(run_id)}", code="workspace_taken")
        atomic.make_folders(place)
        if keep:
            atomic.mark(os.path.join(place, _KEPT))
    return held


def let_go(layout: Layout, run_id: str, held: Claim) -> None:
    """The place is gone, or stays: nobody sees to it from here on."""
    if not os.path.lexists(layout.workspace(run_id)):
        atomic.unmark(layout.workspace_lock(run_id))
    held.drop()


def all_of(layout: Layout) -> list[str]:
    """The runs that have a place, cleared or not."""
    try:
        return sorted(filter(is_uuid, os.listdir(layout.workspaces)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise atomic.failed("read the workspaces", error) from error


def is_kept(layout: Layout, run_id: str) -> bool:
    return os.path.lexists(os.path.join(layout.workspace(run_id), _KEPT))


def is_abandoned(layout: Layout, run_id: str) -> bool:
    """Whether it is proven that whoever made it is gone."""
    lock = layout.workspace_lock(run_id)
    return released(lock) or not os.path.lexists(lock)

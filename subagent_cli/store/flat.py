"""Runs as the TypeScript server keeps them: `<runId>.meta.json`, `.log` and `.prompt.md` side by side.

A run of ours can be linked: these names become links into its folder. A run of the server's lies flat until a change
of ours adopts it: it gets a folder that holds links to the flat files. Either way each file is there once, the server
works on it under its flat name and we under ours, and no file of the server's is moved or replaced by a link.
"""

import os
from contextlib import suppress

from subagent_cli.core.errors import Refused
from subagent_cli.core.ids import short
from subagent_cli.store import atomic
from subagent_cli.store.layout import Layout


def lies_flat(layout: Layout, run_id: str) -> bool:
    """Whether the server made this run and nothing of ours has been written to it."""
    path = layout.flat_meta(run_id)
    return (
        os.path.isfile(path)
        and not os.path.lexists(layout.run(run_id))
        and not os.path.lexists(layout.trash(run_id))
        and layout.inside(path)
    )


def is_shared(layout: Layout, run_id: str) -> bool:
    """Whether another program may have the document open under its flat name."""
    return os.path.lexists(layout.flat_meta(run_id))


def is_split(layout: Layout, run_id: str) -> bool:
    """Whether a program that saves by renaming has put a document of its own in the place of our link."""
    path = layout.flat_meta(run_id)
    return (
        os.path.isfile(path)
        and not os.path.islink(path)
        and os.path.isfile(own := layout.meta(run_id))
        and not (os.path.samefile(path, own))
    )


def adopt(layout: Layout, run_id: str) -> None:
    """A folder for a run that lies flat. The caller holds the lock of the run."""
    prepared = layout.new_run(run_id)
    # Only an adoption prepares a folder under this id, so what stands here was left by one that crashed.
    atomic.discard(prepared)
    os.mkdir(prepared, 0o700)
    for inner, outer in _pairs(layout, run_id):
        if os.path.lexists(outer) or inner == layout.log(run_id):
            os.symlink(os.path.join("..", os.path.basename(outer)), os.path.join(prepared, os.path.basename(inner)))
    atomic.sync_folder(prepared)
    atomic.appear(prepared, layout.run(run_id))
    atomic.sync_folder(layout.root)


def link(layout: Layout, run_id: str) -> list[str]:
    """Lets the server find a run of ours; gives the links that were missing. The caller holds the lock of the run."""
    made: list[str] = []
    for inner, outer in _pairs(layout, run_id):
        if os.path.lexists(outer):
            if not _same(inner, outer):
                raise Refused(
                    f"something else stands where a link of run {short(run_id)} belongs: {outer}",
                    code="exists",
                    hint="move it away, or let `subagent doctor --fix` look at the run",
                )
        elif os.path.lexists(inner):
            made.append(outer)
    # The document comes last: when the server sees the run, all of it is there.
    for inner, outer in reversed(_pairs(layout, run_id)):
        if outer in made:
            os.symlink(_within(layout, inner), outer)
    return made


def relink(layout: Layout, run_id: str) -> None:
    """The link to the document, in the place of whatever has its name now."""
    path = layout.flat_meta(run_id)
    temporary = f"{layout.meta(run_id)}.link.tmp"
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(_within(layout, layout.meta(run_id)), temporary)
    atomic.appear(temporary, path)


def unlink(layout: Layout, run_id: str) -> list[str]:
    """Takes the links of a run away again; gives those that were there. Files of the server's stay."""
    links = [outer for inner, outer in _pairs(layout, run_id) if os.path.islink(outer) and _same(inner, outer)]
    for path in links:
        os.unlink(path)
    return links


def names(layout: Layout, run_id: str) -> list[str]:
    """The flat names of a run, whether they are there or not."""
    return [outer for _, outer in _pairs(layout, run_id)]


def _pairs(layout: Layout, run_id: str) -> tuple[tuple[str, str], ...]:
    return (
        (layout.meta(run_id), layout.flat_meta(run_id)),
        (layout.log(run_id), layout.flat_log(run_id)),
        (layout.prompt(run_id), layout.flat_prompt(run_id)),
    )


def _within(layout: Layout, path: str) -> str:
    """Relative, so that the directory can be moved and be reached under any name."""
    return os.path.relpath(path, layout.root)


def _same(inner: str, outer: str) -> bool:
    return os.path.realpath(inner) == os.path.realpath(outer)

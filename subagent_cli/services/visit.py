"""What a doctor's visit works with: the store, the clock, and the index as it was found."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from subagent_cli.core.errors import SubagentError
from subagent_cli.core.value import Value
from subagent_cli.store.clock import Clock
from subagent_cli.store.layout import Layout
from subagent_cli.store.runs import Runs

_SHOWN = 10


class Entry(Value):
    """One file of the index: what it is about, and the run it leads to."""

    kind: str
    word: str
    path: str
    run_id: str | None


class Visit(Value):
    """What one visit works with. The store is one that remembers nothing, since memory may be what is wrong."""

    runs: Runs
    clock: Clock
    fix: bool
    entries: Mapping[str | None, Sequence[Entry]]


def entries_in(runs: Runs) -> Iterator[Entry]:
    layout, index = runs.layout, runs.index
    for run_id in index.active():
        yield Entry("active", run_id, layout.active_mark(run_id), run_id)
    for word in index.questions():
        yield Entry("questions", word, layout.question_mark(word), led_to(index.asker, word))
    for digest in listed(layout.keys):
        yield Entry("keys", digest, layout.key_mark(digest), led_to(index.keyed, digest))
    for kind, folder in (("names", layout.names), ("children", layout.children), ("grants", layout.grants)):
        for word in listed(folder):
            for run_id in listed(os.path.join(folder, word)):
                yield Entry(kind, word, os.path.join(folder, word, run_id), run_id)


def led_to(look: Callable[[str], str | None], word: str) -> str | None:
    """Where an entry leads; nowhere too, where it cannot be read."""
    try:
        return look(word)
    except SubagentError:
        return None


def listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def named(layout: Layout, paths: Sequence[str]) -> str:
    """Paths for a person: below the runs directory, and not too many of them."""
    names = [os.path.relpath(path, layout.root) for path in paths]
    shown = ["the folder itself" if name == "." else name for name in names[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")

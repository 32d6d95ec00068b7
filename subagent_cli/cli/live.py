"""A table on the terminal that follows runs while somebody waits for them, and goes when the wait ends."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from subagent_cli.cli.output import harmless, one_line
from subagent_cli.core.ids import short
from subagent_cli.core.run import Run

if TYPE_CHECKING:
    from rich.live import Live

_FEWEST = 2


class Board:
    """Painted on standard error, where talk belongs; nothing of it stays."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, runs: Sequence[Run]) -> None:
        if len(runs) < _FEWEST:
            return
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        for run in runs:
            says = run.pending[0].text if run.pending else run.text or (run.notes[-1].text if run.notes else "")
            cells = (short(run.id), run.agent or "", run.state if run.over else run.status, one_line(says, 80))
            table.add_row(*(Text(harmless(cell), no_wrap=True, overflow="ellipsis") for cell in cells))
        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(table, refresh=True)

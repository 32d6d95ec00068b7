"""What is left of a runs directory after faults: held against what was promised, then mended, then held again.

`Toll` counts what must not be, each with a few words on where it was, so that a test can tell before it judges.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

from subagent_cli.core.command import Settle, Tell
from subagent_cli.core.errors import Busy, SubagentError
from subagent_cli.services import doctor
from subagent_cli.services.context import Context
from subagent_cli.services.sweep import sweep
from subagent_cli.store import codec
from subagent_cli.store.groups import Groups
from subagent_cli.store.layout import NEW_RUN, TEMPORARY
from subagent_cli.store.messages import Messages
from tests.store.world import index_holds_at_least, open_at, shows_the_truth

AT_ONCE = "5ms"
_AN_AGE = 7200.0


class Toll(NamedTuple):
    """What was torn, what was acknowledged and is not there, what nobody could lock any more, and what else."""

    torn: list[str]
    lost: list[str]
    stuck: list[str]
    wrong: list[str]

    def __str__(self) -> str:
        counts = (
            f"{len(found)} {what}" for what, found in zip(_COUNTED, self, strict=True) if what in _ALWAYS or found
        )
        return ", ".join(counts)

    @property
    def shown(self) -> list[str]:
        """The first of each kind, for whoever has to find out."""
        return [f"{what}: {where}" for what, found in zip(_COUNTED, self, strict=True) for where in found[:5]]


_COUNTED = ("torn", "acknowledged lost", "stuck", "otherwise wrong")
_ALWAYS = _COUNTED[:3]


def no_toll() -> Toll:
    return Toll([], [], [], [])


def hold(root: Path, toll: Toll, where: str) -> None:
    """Everything that has a name can be read, the next change of each run can be made at once, and after it each
    document shows what its journal says; the doctor finds no damage."""
    context = open_at(root, lock_timeout=AT_ONCE)
    for run_id in context.runs.all():
        _hold_run(context, root, run_id, toll, where)
    try:
        for group_id in Groups(context.runs.layout).all():
            Groups(context.runs.layout).read(group_id)
        for message_id in Messages(context.runs.layout).all():
            Messages(context.runs.layout).read(message_id)
        for finding in doctor.check(context)["findings"]:
            if finding["severity"] == "damage":
                toll.torn.append(f"{where}: the doctor says {finding['message']}")
    except SubagentError as error:
        toll.torn.append(f"{where}: {error.message}")


def _hold_run(context: Context, root: Path, run_id: str, toll: Toll, where: str) -> None:
    try:
        codec.load((root / run_id / ".meta.json").read_bytes())
        codec.load((root / run_id / "run.json").read_bytes())
        run = context.runs.read(run_id, context.clock.now())
        if not run.finished:
            context.runs.change(run_id, Tell("Is it free?"), context.clock.now)
        # A change that finds nothing left to do may leave the mending to the next one.
        context.runs.change(run_id, Settle(), context.clock.now)
        index_holds_at_least(root, run_id)
        if not shows_the_truth(root, run_id):
            toll.torn.append(f"{where}: the document of {run_id} is not what its journal says")
    except Busy as busy:
        toll.stuck.append(f"{where}: {busy.message}")
    except (SubagentError, OSError, ValueError, AssertionError) as error:
        toll.torn.append(f"{where}: {type(error).__name__} {error}")


def leftovers(root: Path) -> list[Path]:
    """What crashes leave: temporary files, and runs that never came to be."""
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        found += [Path(folder, name) for name in names if name.endswith(TEMPORARY)]
        found += [Path(folder, name) for name in folders if name.startswith(NEW_RUN)]
        folders[:] = [name for name in folders if not name.startswith(NEW_RUN)]
    return found


def cleared(root: Path, toll: Toll, where: str) -> int:
    """Lets an hour go by for what crashes left, has it swept, and says how much there was."""
    left = leftovers(root)
    then = time.time() - _AN_AGE
    for path in left:
        os.utime(path, (then, then))
    context = open_at(root)
    _, faults = sweep(context)
    toll.wrong.extend(f"{where}: the sweep says {fault.message}" for fault in faults)
    # The sweep looks at runs; what lies in the index and beside the messages is for the doctor.
    doctor.check(context, fix=True)
    toll.wrong.extend(f"{where}: {path} is still there" for path in leftovers(root))
    return len(left)

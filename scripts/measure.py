"""How much of the four rooms that must not fail is walked by the tests: `python scripts/measure.py [TESTS ...]`.

Runs the tests of these rooms once under coverage and prints a table; fails where a test failed, or where core, store,
process or services, each for itself, falls below the bar in lines and branches together. All that a test starts is
measured too: programs, forks, and keepers, which the plugin in this file follows.
"""

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import coverage

ROOT = Path(__file__).parent.parent
ROOMS = ("core", "store", "process", "services")
BAR = 95.0

TESTS = ("tests",)
# They hold still what measuring moves: which modules a call loads, how much memory a keeper holds, how much of the
# processor a wait takes, what stands in the environment. One cuts a file at every byte, and does not come to the end of
# it in time.
DISTURBED = (
    "tests/cli/test_cold_start.py",
    "tests/cli/test_looking.py::test_looking_at_many_loads_neither_locks_nor_models_nor_paint",
    "tests/cli/test_run.py::test_a_cleared_environment_holds_nothing_of_the_callers",
    "tests/cli/test_wait.py::test_waiting_costs_no_processor_time",
    "tests/cli/test_wait_group.py::test_a_wait_that_runs_out_of_time_cancels_nothing",
    "tests/cli/test_whoami.py::test_no_list_of_processes_shows_a_token",
    "tests/dispatch/test_document.py::test_a_program_that_dispatches_loads_nothing_heavy",
    "tests/process/test_keeper.py::test_an_idle_keeper_is_small_and_does_nothing",
    "tests/process/test_keeper.py::test_a_run_outlives_the_terminal_in_which_it_was_started",
    "tests/services/test_doctor.py::test_a_file_cut_off_at_any_byte_leaves_a_run_that_can_be_read_and_written",
)
# An interrupt can meet coverage while it holds a lock of its own, for which it then waits for ever. The test of a group
# above has one too, which its name does not say.
UNINTERRUPTED = ("-k", "not interrupt")

_CONFIG = "COVERAGE_PROCESS_CONFIG"
_KEEPER = "keeper.keep("
_FOLLOW = (
    "import os, sys; sys.path[:0] = {path!r}; import coverage; coverage.process_startup(); del os.environ[{name!r}]; "
)


def coverage_init(*_: object) -> None:
    """Coverage calls this in every process that it measures. From here on, each keeper that is started is one of them,
    although it starts without an environment and without site-packages."""
    spawn: Any = os.posix_spawn
    if hasattr(spawn, "follows") or _CONFIG not in os.environ:
        return
    config, path = os.environ[_CONFIG], [str(ROOT), str(Path(coverage.__file__).parents[1])]

    def followed(program: str, argv: Sequence[str], env: Mapping[str, str], **more: Any) -> int:
        if _KEEPER in argv[-1]:
            argv = [*argv[:-1], _FOLLOW.format(path=path, name=_CONFIG) + argv[-1]]
            env = {**env, _CONFIG: config}
        pid: int = spawn(program, argv, env, **more)
        return pid

    followed.follows = True  # type: ignore[attr-defined]
    os.posix_spawn = followed  # type: ignore[assignment]


def main(tests: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="subagent-coverage-") as folder:
        data = os.path.join(folder, "data")
        left_out = [*(f"--deselect={test}" for test in DISTURBED), *UNINTERRUPTED]
        failed = subprocess.run(
            [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", *left_out, *(tests or TESTS)],
            cwd=ROOT,
            env={**os.environ, "COVERAGE_FILE": data},
            check=False,
        ).returncode
        measured = coverage.Coverage(data_file=data, config_file=str(ROOT / "pyproject.toml"))
        measured.combine()
        low = [room for room in ROOMS if _percent(measured, room) < BAR]
    for room in low:
        print(f"coverage: {room} is below {BAR:g} %")
    return 1 if failed or low else 0


def _percent(measured: coverage.Coverage, room: str) -> float:
    """Prints the table of a room, and gives its whole. A file that no test loads counts as well."""
    files = sorted(str(path) for path in (ROOT / "subagent_cli" / room).glob("*.py"))
    table = io.StringIO()
    percent = measured.report(morfs=files, file=table, show_missing=True, skip_covered=True, precision=1)
    print(f"\n{room}\n{table.getvalue()}", end="")
    return percent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The dispatch example does what it shows: what the child delivers comes back, what it breaks does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.living import QUICK, all_ended
from tests.command import PATIENCE

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "dispatch" / "dispatch.sh"


@pytest.mark.case("C4-18", "C4-23", "C4-29", "C4-39")
def test_the_report_comes_back_and_the_folder_does_not_notice(runs_dir: Path) -> None:
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    with all_ended(runs_dir):
        done = subprocess.run(
            ["sh", SCRIPT],
            env={**os.environ, **QUICK, "PATH": path, "SUBAGENT_RUNS_DIR": str(runs_dir)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "- one task, with what it delivers brought here:",
        "Counted 2 lines",
        "delivered/report.md says: 2 lines",
        "notes.txt still has 2 lines, although the child deleted its copy",
        "- two tasks at once, the second of which cannot be done:",
        "1. Counted 2 lines",
        "2. Subagent execution failed: there is no weather in this folder",
        "exit code 20: some of them failed",
    ]
    assert sorted(path.name for path in runs_dir.iterdir() if not path.name.startswith(".")) == ["README.md"]
    assert list((runs_dir / ".workspaces").iterdir()) == []

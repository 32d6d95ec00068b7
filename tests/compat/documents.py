"""Every `.meta.json` that a test leaves behind is checked by JavaScript, as another program would read it.

Promise: after the last test each document below the session's temporary folder has the bytes that
JSON.stringify writes, passes our strictest reading of the server's schema and can take the server's next
question without a loss, or the session fails and names it. Left out are folders named `foreign` and folders
that hold a file `.not-ours`: there tests put what others wrote or damaged.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.compat import nodejs

NAME = ".meta.json"
SHOWN = 10


@dataclass(frozen=True)
class Bad:
    file: str
    problem: str


def find(root: str) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        if ".not-ours" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in ("foreign", "node_modules")]
        if NAME in files:
            yield os.path.join(folder, NAME)


def check(files: list[str]) -> list[Bad]:
    """Feed the documents to node; needs node and its modules."""
    done = subprocess.run(
        nodejs.script("check-documents.mjs"),
        input=os.fsencode("\n".join(files)),
        capture_output=True,
        timeout=300,
        check=False,
    )
    # Any other ending means that the checker broke, and then nothing was checked.
    if done.returncode not in (0, 1) or done.stderr:
        raise RuntimeError(f"the checker failed: {done.stderr.decode(errors='replace')}")
    return [Bad(**json.loads(line)) for line in done.stdout.splitlines()]


def pytest_configure(config: pytest.Config) -> None:
    # The temporary folders of parallel workers lie below that of the process that started them.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Inspection(), "documents-inspection")


class Inspection:
    """The check at the end of one session."""

    def __init__(self) -> None:
        self.line = ""
        self.bad: list[Bad] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        files = list(find(str(session.config._tmp_path_factory.getbasetemp())))  # type: ignore[attr-defined]
        if not files:
            return
        absent = nodejs.missing()
        if absent:
            self.line = f"documents: not checked ({absent})"
            return
        try:
            self.bad = check(files)
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            self.bad = [Bad(nodejs.FOLDER, str(error))]
        state = f"{len(self.bad)} BAD" if self.bad else "all pass"
        self.line = f"documents: {len(files)} checked, {state}"
        if self.bad and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.line:
            return
        good = not self.bad
        terminalreporter.write_line(self.line, green=good, red=not good)
        for bad in self.bad[:SHOWN]:
            terminalreporter.write_line(f"  {bad.file}: {bad.problem}", red=True)
        if len(self.bad) > SHOWN:
            terminalreporter.write_line(f"  and {len(self.bad) - SHOWN} more", red=True)

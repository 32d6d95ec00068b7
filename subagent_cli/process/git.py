"""Calling git so that it answers and does nothing else.

It is called with a list of words and a time limit, asks nobody anything, and gets no variable that would tell it
where a repository is. Nothing that a repository's own configuration or attributes name is run: no hook and no file
system monitor, since both are turned off; no filter and no diff driver, since nothing is called that compares or
checks out what is in the files of a repository that is not ours; nothing is fetched. What is left is that git itself
reads the repository, and so does whatever is wrong with git.
"""

import os
import subprocess
from collections.abc import Collection, Mapping
from shutil import which

from subagent_cli.core.errors import Failed

_PATIENCE = 60.0
_OFF = ("--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "LC_ALL": "C",
}
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


class Git:
    """The git of an environment; `alone` it does not look at the user's configuration either."""

    def __init__(self, program: str, environment: Mapping[str, str]) -> None:
        self._program = program
        self._environment = {name: value for name, value in environment.items() if not name.startswith("GIT_")} | _QUIET

    def __call__(self, folder: str, *words: str, good: Collection[int] = (0,), alone: bool = False) -> bytes:
        """What it says; Failed where it ends with a code that is not good."""
        code, out, err = self.tried(folder, *words, alone=alone)
        if code not in good:
            raise refused(folder, err)
        return out

    def line(self, folder: str, *words: str, good: Collection[int] = (0,)) -> str:
        return os.fsdecode(self(folder, *words, good=good).removesuffix(b"\n"))

    def tried(self, folder: str, *words: str, alone: bool = False) -> tuple[int, bytes, bytes]:
        try:
            done = subprocess.run(
                [self._program, *_OFF, *words],
                cwd=folder,
                env={**self._environment, **(_ALONE if alone else {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise refused(folder, b"it took longer than %d s" % _PATIENCE) from error
        except OSError as error:
            raise refused(folder, str(error).encode()) from error
        return done.returncode, done.stdout, done.stderr


def installed(environment: Mapping[str, str]) -> Git | None:
    """The git that is found on the PATH of an environment, among folders that do not depend on where one is."""
    folders = filter(os.path.isabs, environment.get("PATH", os.defpath).split(os.pathsep))
    program = which("git", path=os.pathsep.join(folders))
    return Git(program, environment) if program else None


def refused(folder: str, said: bytes) -> Failed:
    lines = said.decode("utf-8", "replace").strip().splitlines() or ["it ended without a word"]
    reason = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[0])
    return Failed(
        f"git does not let the folder be copied: {folder}: {reason.partition(': ')[2] or reason}",
        code="git_failed",
        hint="see what `git status` says in that folder",
    )

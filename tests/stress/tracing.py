"""strace around a process: it counts the calls of the system that the children make, and breaks one of them.

strace counts the calls of each process by itself, so a fault at the K-th call of a kind meets the n-th call of a verb
whose process has made K - n calls of that kind that came to nothing.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.store.world import PATIENCE

# Beyond the number of calls of one kind that any verb makes.
FAR = 100

# Our names for the calls, and what the kernel calls them, which depends on the machine.
NAMES = {
    "open": ("openat", "open"),
    "read": ("read",),
    "write": ("write",),
    "pwrite": ("pwrite64", "pwrite"),
    "fsync": ("fsync",),
    "fdatasync": ("fdatasync",),
    "ftruncate": ("ftruncate",),
    "flock": ("flock",),
    "close": ("close",),
    "rename": ("rename", "renameat", "renameat2"),
    "mkdir": ("mkdir", "mkdirat"),
    "rmdir": ("rmdir",),
    "unlink": ("unlink",),
    "unlinkat": ("unlinkat",),
    "link": ("link", "linkat"),
    "symlink": ("symlink", "symlinkat"),
    "mkfifo": ("mknod", "mknodat"),
    "stat": ("newfstatat", "stat", "statx"),
    "lstat": ("lstat",),
    "fstat": ("fstat",),
}
_KINDS = {name: kind for kind, names in NAMES.items() for name in names}
_LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)", re.MULTILINE)


@cache
def missing() -> str:
    """Why calls cannot be traced here, in a few words; empty where they can."""
    if shutil.which("strace") is None:
        return "no strace"
    words = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=rmdir:error=EIO:when=1", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["strace does not work"])[0]
    return ""


def spelled(kinds: Iterator[str] | tuple[str, ...]) -> str:
    """Kinds of calls as strace names them; those that this machine has not are passed over."""
    return ",".join(f"?{name}" for kind in kinds for name in NAMES[kind])


@contextmanager
def traced(pid: int, file: Path, fault: str | None = None, kinds: tuple[str, ...] = tuple(NAMES)) -> Iterator[None]:
    """Traces the children of a process, and has a fault (`signal=SIGKILL`, `error=EIO`) meet the K-th call of each of
    these kinds that one of them makes."""
    words = ["strace", "-f", "-qq", "-o", str(file), "-p", str(pid), "-e", "signal=none"]
    words += ["-e", f"trace={spelled(kinds)}"]
    if fault:
        words += ["-e", f"inject={spelled(kinds)}:{fault}:when={FAR}"]
    tracer = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        _attached(pid, tracer)
        yield
    finally:
        tracer.send_signal(signal.SIGTERM)
        tracer.communicate(timeout=PATIENCE)


def _attached(pid: int, tracer: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + PATIENCE
    while f"TracerPid:\t{tracer.pid}\n" not in Path(f"/proc/{pid}/status").read_text():
        if tracer.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"strace did not attach: {tracer.communicate(timeout=PATIENCE)[1]}")


def calls(file: Path, pid: int) -> Counter[str]:
    """How many calls of each kind a process has made."""
    counted: Counter[str] = Counter()
    for line in file.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found and int(found[1]) == pid and "resumed>" not in line and found[2] in _KINDS:
            counted[_KINDS[found[2]]] += 1
    return counted

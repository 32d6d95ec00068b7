"""Make the project's virtual environment with nothing but a Python and its pip.

Promise: afterwards the folder is a working environment with pip in it, or it is not there at all. An
environment that already works is kept. Nothing is ever installed into the Python that runs this.
"""

import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:
    sys.exit("subagent needs Python %d.%d or newer; this is %s (set PYTHON=...)" % (*OLDEST, sys.version.split()[0]))

import os
import shutil
import signal
import subprocess
import tempfile
from typing import NoReturn

# Debian ships a venv module that fails half-way when ensurepip is not installed, so trying is the only test.
PROBE = "import pip, sys; sys.exit(sys.version_info[:2] < (%d, %d))" % OLDEST


def works(folder: str) -> bool:
    python = os.path.join(folder, "bin", "python")
    return os.path.exists(python) and succeeds([python, "-c", PROBE])


def succeeds(argv: list[str], search: str | None = None) -> bool:
    return attempt(argv, search).returncode == 0


def attempt(argv: list[str], search: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = dict(os.environ)
    if search is not None:
        environment["PYTHONPATH"] = search
    return subprocess.run(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def with_venv(folder: str) -> str:
    done = attempt([sys.executable, "-m", "venv", folder])
    return "" if works(folder) else "venv: " + last_line(done.stdout)


def with_virtualenv(folder: str) -> str:
    with tempfile.TemporaryDirectory(prefix="subagent-bootstrap-") as build:
        fetched = attempt([sys.executable, "-m", "pip", "install", "--quiet", "--target", build, "virtualenv"])
        if fetched.returncode != 0:
            return "pip install virtualenv: " + last_line(fetched.stdout)
        done = attempt([sys.executable, "-m", "virtualenv", "--quiet", folder], search=build)
    return "" if works(folder) else "virtualenv: " + last_line(done.stdout)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no reason"


def make(folder: str) -> list[str]:
    """Try each way in turn; an empty list means that one of them worked."""
    reasons = []
    for way in (with_venv, with_virtualenv):
        reason = way(folder)
        if not reason:
            return []
        reasons.append(reason)
        shutil.rmtree(folder, ignore_errors=True)
    return reasons


def interrupted(signum: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signum)


def main(folder: str) -> None:
    if works(folder):
        return
    if os.path.lexists(folder):
        if not os.path.isfile(os.path.join(folder, "pyvenv.cfg")):
            sys.exit("%s exists and is not a virtual environment; move it away" % folder)
        shutil.rmtree(folder)
    signal.signal(signal.SIGTERM, interrupted)
    try:
        reasons = make(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if reasons:
        sys.exit("no virtual environment could be made: " + "; ".join(reasons))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".venv")

"""A complete conversation between a parent and a worker, to watch: `python examples/demo/demo.py`.

Promises: every command shown was really run and what stands below it is what it really printed, only that long lines
are folded; nothing is left behind, no file and no process; the exit code is not 0 if anything was not as it should be.
It needs no terminal and ends by itself.
"""

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator

HERE = os.path.dirname(os.path.abspath(__file__))
BESIDE, PYTHON = os.path.split(sys.executable)
WIDTH = 78
COMMAND_SECONDS = 60
KEEPER_SECONDS = 20
A_QUESTION_WAITS = 12


class Unexpected(Exception):
    """The demo did not go as it should."""


def expect(condition: object, what: str) -> None:
    if not condition:
        raise Unexpected(what)


def bold(text: str) -> str:
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return text if plain else f"\x1b[1m{text}\x1b[0m"


def narrate(text: str) -> None:
    print(f"\n# {text}", flush=True)


def typed(words: list[str]) -> str:
    """A command as somebody would type it, long ones over several lines."""
    lines = ["$ subagent"]
    for word in map(shlex.quote, words):
        if len(lines[-1]) + len(word) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def folded(line: str) -> str:
    """A long line over several, moved in as far as the text of a line in a log is."""
    if len(line) <= WIDTH:
        return line
    return "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent=" " * 38))


def cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


class Parent:
    """Whoever starts the worker: here a program, as well a person or an agent."""

    def __init__(self, environment: dict[str, str], folder: str) -> None:
        self.environment = environment
        self.folder = folder

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["subagent", *words],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )

    def type(self, *words: str, code: int = 0) -> str:
        """One command, shown with what it printed; its result."""
        print(bold(typed(list(words))), flush=True)
        done = self.run(*words)
        printed = done.stdout + done.stderr
        print("\n".join(map(folded, printed.splitlines())), flush=True)
        expect(done.returncode == code, f"subagent {words[0]} ended with {done.returncode}, not {code}")
        return done.stdout.strip()


def conversation(parent: Parent) -> str:
    """From the start of a worker to its result; the run's id."""
    narrate("The parent starts a worker on a task, and can go on at once.")
    run_id = parent.type("run", "Tidy the notes", "--name", "notes", "--", PYTHON, "worker.py")

    narrate("It has nothing else to do: it waits for the end, or for a question.")
    question = parent.type("wait", "notes", "--timeout", "20s", code=A_QUESTION_WAITS)
    expect("Delete old.md?" in question, "the question is not the one that the worker asks")

    narrate(f"Exit code {A_QUESTION_WAITS}: there is a question. It takes option 2, and waits again.")
    parent.type("reply", "notes", "2")
    expect("success" in parent.type("wait", "notes", "--timeout", "20s"), "the run did not succeed")

    narrate("Exit code 0: the worker is done. This is its result, and nothing else.")
    expect(parent.type("result", "notes") == "Notes tidied. old.md: keep", "the answer did not reach the result")

    narrate("The worker's side of it, as the log has it; its commands begin with $.")
    log = parent.type("logs", "notes")
    expect("Process exited with code 0" in log, "the log does not say how the worker ended")
    return run_id


def tree(folder: str, margin: str = "") -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        yield f"{margin}{entry.name}{'/' if entry.is_dir() else ''}"
        if entry.is_dir():
            yield from tree(entry.path, margin + "  ")


def shortened(line: str) -> str:
    """A journal line without its stamps and checksums."""
    record = json.loads(line)
    left_out = ("seq", "at", "clock", "type", "timestamp", "meta", "crc", "runId", "messageId", "messageIds", "command")
    essentials = [f"{key}={json.dumps(value)}" for key, value in record.items() if key not in left_out]
    return cut(f"{record['seq']}  {record['type']:<13} {' '.join(essentials)}".rstrip())


def on_disk(runs: str, run_id: str) -> None:
    """What all of this has left in the runs directory."""
    narrate("All of it lies in plain files.")
    print("\n".join(["runs/", *tree(runs, "  ")]))

    narrate("The picture of the run that every other program can read: .meta.json")
    with open(os.path.join(runs, run_id, ".meta.json"), encoding="utf-8") as file:
        picture = file.read()
    print("\n".join(map(cut, picture.splitlines())))
    message = json.loads(picture)["messages"][0]
    expect(message["answerContent"] == "keep", "the answer is not in .meta.json")

    narrate("The truth behind it, one event a line (shortened): journal.jsonl")
    with open(os.path.join(runs, run_id, "journal.jsonl"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    print("\n".join(map(shortened, lines)))
    types = [json.loads(line)["type"] for line in lines]
    wanted = ["created", "asked", "replied", "acknowledged", "told", "submitted", "exited"]
    expect(types == wanted, f"the journal says {types}")


def await_keeper(run: str) -> None:
    """Until the process that looked after the run is gone: as long as it lives, it holds a lock on `.alive`."""
    give_up = time.monotonic() + KEEPER_SECONDS
    with open(os.path.join(run, ".alive"), "rb") as file:
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                expect(time.monotonic() < give_up, "the keeper of the run has not ended")
                time.sleep(0.01)


def clear_away(parent: Parent, runs: str) -> None:
    """Ends whatever still runs, however far the demo got."""
    parent.run("cancel", "--all", "--grace", "0")
    for entry in os.scandir(runs) if os.path.isdir(runs) else ():
        if os.path.exists(os.path.join(entry.path, ".alive")):
            await_keeper(entry.path)


def play(folder: str) -> None:
    runs = os.path.join(folder, "runs")
    # Nothing of the caller's own runs or settings may show up here.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SUBAGENT_")}
    environment["PATH"] = BESIDE + os.pathsep + environment.get("PATH", os.defpath)
    environment["SUBAGENT_RUNS_DIR"] = runs
    environment["XDG_CONFIG_HOME"] = folder
    shutil.copy(os.path.join(HERE, "worker.py"), folder)
    parent = Parent(environment, folder)
    try:
        run_id = conversation(parent)
        await_keeper(os.path.join(runs, run_id))
        on_disk(runs, run_id)
    finally:
        clear_away(parent, runs)


def main() -> int:
    if not os.access(os.path.join(BESIDE, "subagent"), os.X_OK):
        print(f"demo: there is no subagent command in {BESIDE}; `make demo` installs it", file=sys.stderr)
        return 1
    # Also when it is told to end, it tidies up first.
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda signum, _: sys.exit(128 + signum))
    try:
        with tempfile.TemporaryDirectory(prefix="subagent-demo-") as folder:
            play(folder)
    except (Unexpected, OSError, subprocess.SubprocessError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    narrate("That was all of it; the temporary folder is gone again.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

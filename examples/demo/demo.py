"""A complete conversation between a parent and a worker, to watch: `python examples/demo/demo.py`.

Promises: every command shown was really run and what stands below it is what it really printed; nothing is left
behind; the exit code is not 0 if anything was not as it should be. It needs no terminal and ends by itself.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
BESIDE = os.path.dirname(sys.executable)
WIDTH = 78
QUESTION_SECONDS = 20
COMMAND_SECONDS = 60


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


def typed(words: list[str], prompt: str) -> str:
    """A command as somebody would type it, long ones over several lines."""
    lines = [f"{prompt}subagent"]
    for word in map(shlex.quote, words):
        if len(lines[-1]) + len(word) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append(" " * (len(prompt) + 2) + word)
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


class Parent:
    """Whoever starts the worker: here a program, as well a person or an agent."""

    def __init__(self, environment: dict[str, str], folder: str) -> None:
        self.environment = environment
        self.folder = folder

    def run(self, *words: str) -> tuple[str, str]:
        """One command; its result and its talk."""
        done = subprocess.run(
            ["subagent", *words],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        expect(done.returncode == 0, f"subagent {words[0]} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout, done.stderr

    def type(self, *words: str) -> str:
        """One command, shown with what it printed; its result."""
        print(bold(typed(list(words), "$ ")), flush=True)
        result, talk = self.run(*words)
        print(result + talk, end="", flush=True)
        return result.strip()


def heard(worker: "subprocess.Popen[str]", what: str) -> Any:
    """What the worker typed next, or what it got. Bounded, since its output ends when it gives up."""
    assert worker.stdout is not None
    line = worker.stdout.readline()
    expect(line, "the worker ended too early")
    return json.loads(line)[what]


def show_typed(worker: "subprocess.Popen[str]", verb: str) -> None:
    words = heard(worker, "typed")
    expect(words[0] == verb, f"the worker typed {words[0]}, not {verb}")
    print(bold(typed(words, "worker | $ ")), flush=True)


def show_printed(worker: "subprocess.Popen[str]") -> None:
    for line in heard(worker, "printed").splitlines():
        print(f"worker | {line}", flush=True)


def conversation(parent: Parent) -> str:
    """From the making of a run to its result; the run's id."""
    narrate("The parent makes a run for a worker that it will start itself.")
    run_id = parent.type("create", "tidier", "Tidy the notes", "--name", "notes")

    narrate("It starts the worker, a process of its own that is told which run it is.")
    print(bold(f"$ SUBAGENT_RUN_ID={run_id} python worker.py &"))
    worker = subprocess.Popen(
        [sys.executable, os.path.join(HERE, "worker.py")],
        env={**parent.environment, "SUBAGENT_RUN_ID": run_id},
        cwd=parent.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with worker:
        try:
            narrate("The worker cannot decide something: it asks, and waits for the answer.")
            show_typed(worker, "ask")
            narrate("The parent waits for questions, gets one, and replies with option 2.")
            waiting = parent.type("pending", "--wait", "--timeout", f"{QUESTION_SECONDS}s")
            expect("Delete old.md?" in waiting, "the question is not among those that wait")
            parent.type("reply", "notes", "2")
            narrate("The worker has its answer at once; it goes on and reports.")
            show_printed(worker)
            for verb in ("tell", "update"):
                show_typed(worker, verb)
                show_printed(worker)
            expect(worker.wait(COMMAND_SECONDS) == 0, f"the worker ended with {worker.returncode}")
        finally:
            worker.kill()

    narrate("The parent sees that the run has ended, and takes its result.")
    expect("Status: success" in parent.type("status", "notes"), "the run did not succeed")
    expect(parent.type("result", "notes") == "Notes tidied. old.md: keep", "the answer did not reach the result")
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
    expect(types == ["created", "asked", "replied", "acknowledged", "told", "reported"], f"the journal says {types}")


def main() -> int:
    if not os.access(os.path.join(BESIDE, "subagent"), os.X_OK):
        print(f"demo: there is no subagent command in {BESIDE}; `make demo` installs it", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="subagent-demo-") as folder:
        runs = os.path.join(folder, "runs")
        # Nothing of the caller's own runs or settings may show up here.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SUBAGENT_")}
        environment["PATH"] = BESIDE + os.pathsep + environment.get("PATH", os.defpath)
        environment["SUBAGENT_RUNS_DIR"] = runs
        environment["XDG_CONFIG_HOME"] = folder
        try:
            run_id = conversation(Parent(environment, folder))
            on_disk(runs, run_id)
        except (Unexpected, OSError, subprocess.SubprocessError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
    narrate("That was all of it; the temporary folder is gone again.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

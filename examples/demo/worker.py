"""The worker of the demo: it knows nothing of its parent but the `subagent` command and its own environment.

It asks one question, waits for the answer, leaves a note and reports. It gives up after 30 s.
"""

import json
import subprocess
import sys

PATIENCE_SECONDS = 30


def subagent(*words: str) -> str:
    """One command; what it printed."""
    tell(typed=words)
    done = subprocess.run(["subagent", *words], capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
    tell(printed=done.stdout + done.stderr)
    return done.stdout.strip() if done.returncode == 0 else ""


def tell(**what: object) -> None:
    """Only so that the demo can show what is typed here, and what comes of it."""
    print(json.dumps(what), flush=True)


def main() -> int:
    wait = ["--wait", "--timeout", f"{PATIENCE_SECONDS}s"]
    answer = subagent("ask", "Delete old.md?", "--option", "delete", "--option", "keep", *wait)
    if not answer:
        subagent("update", "error", "--summary", "nobody answered")
        return 1
    subagent("tell", f"Half done. old.md: {answer}")
    subagent("update", "success", "--summary", f"Notes tidied. old.md: {answer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

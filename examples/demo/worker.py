"""The worker of the demo: it knows nothing of its parent but the `subagent` command, which knows whose run this is.

It asks one question, waits for the answer, leaves a note and submits its result. A command that fails ends it, and
with it the run.
"""

import shlex
import subprocess


def subagent(*words: str) -> str:
    """One command; what it printed. Both are put out too, and so get into the log of the run."""
    print("$", shlex.join(["subagent", *words]), flush=True)
    done = subprocess.run(["subagent", *words], stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, end="", flush=True)
    return done.stdout.strip()


if __name__ == "__main__":
    answer = subagent("ask", "Delete old.md?", "--option", "delete", "--option", "keep", "--wait")
    subagent("tell", "Half done")
    subagent("submit", "result", f"Notes tidied. old.md: {answer}")

"""One review from several perspectives, with the Python API: starts a reviewer for each, answers their questions while
they run, prints each review as it comes. Exit code 0 if all succeeded, 20 if some failed, 10 if all did.

    python examples/python/review.py [PERSPECTIVE...]
"""

import sys
from pathlib import Path

from subagent_cli.api import Question, Store, SubagentError

REVIEWER = Path(__file__).resolve().parents[1] / "review" / "reviewer.sh"
PERSPECTIVES = ["security", "maintainability", "performance"]


def answer(question: Question) -> str:
    """What this parent answers. Put your own judgement here: a person, a policy, another agent."""
    print(f"{question.run_id[-8:]} asks: {question.text}", file=sys.stderr)
    if "security" in question.text:
        return "passwords and tokens"
    return "nothing" if "weather" in question.text else "what a user would notice"


def review(perspectives: list[str]) -> int:
    """Prints a review from each perspective; how many of them failed."""
    failed = 0
    tasks = [f"Review src/auth from the perspective of {perspective}" for perspective in perspectives]
    group = Store().spawn(tasks, command=["sh", str(REVIEWER)], deadline=600)
    for result in group.results(answer=answer):
        print(f"{result.task} ({result.state})\n    {result.text}", flush=True)
        failed += not result.ok
    return failed


if __name__ == "__main__":
    wanted = sys.argv[1:] or PERSPECTIVES
    try:
        failures = review(wanted)
    except SubagentError as error:
        sys.exit(f"error: {error} ({error.code})")
    sys.exit(0 if not failures else 10 if failures == len(wanted) else 20)

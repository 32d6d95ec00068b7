"""What an agent is told: who it is, how it speaks with its parent, and its task.

The commands stand there exactly as they are typed; whoever the agent is, it can ask. A later attempt of an agent that
remembers nothing is told what happened before.
"""

from subagent_cli.core.question import PENDING
from subagent_cli.core.run import Run

RULE = "\n---\n\n"
_LONGEST = 8_000

_PREAMBLE = """\
You are a sub-agent; your run id is {run_id}. Your parent sees what you send it with these shell commands:

  subagent ask "QUESTION" --wait      ask your parent; prints the answer (--timeout 30m waits longer than 5 minutes,
                                      --option A --option B offers answers; exit code 124: no answer yet)
  subagent tell "NOTE"                leave a note that needs no answer
  subagent update running --summary "WHERE YOU STAND"
  subagent submit result "RESULT"     hand in your result, once, as your last command
  subagent submit error "REASON"      say that it cannot be done, once, as your last command

They know who you are. `-` instead of a text reads it from standard input. When a decision is not yours, ask; do not
guess.
"""


_MODES = {
    "explore": "\nYou are to explore: look, think and report; change no file.\n",
    "work": "\nYou are the one who does the work: you may change files, the others only look.\n",
}


def first(run_id: str, task: str, mode: str | None = None) -> str:
    """The prompt of a new run."""
    return _PREAMBLE.format(run_id=run_id) + _MODES.get(mode or "", "") + RULE + task + "\n"


def remembered(run: Run, text: str) -> str:
    """For an agent that goes on with its own session."""
    return (
        f"You are still the sub-agent of run {run.id}; this is attempt {run.attempt + 1}. The `subagent` commands"
        f" work as before, and a new outcome can be submitted.{_answers(run)}{RULE}{text}\n"
    )


def retold(run: Run, task: str, text: str) -> str:
    """For an agent that remembers nothing: the task, what was asked and answered, how it ended, and what to do now."""
    parts = [
        _PREAMBLE.format(run_id=run.id),
        RULE,
        f"This is attempt {run.attempt + 1}. The task was:\n\n{task}\n",
    ]
    for question in run.questions.values():
        answer = "Nobody has answered yet." if question.state == PENDING else f"The answer: {question.closing}"
        parts.append(f"\nYou asked: {question.text}\n{answer}\n")
    parts.append(f"\nThe attempt before ended: {run.state}{_quoted(run.text)}\n{RULE}{text}\n")
    return "".join(parts)


def again(run: Run) -> str:
    """What a retry says where nobody says anything."""
    return f"The attempt before ended with {run.state}{_quoted(run.text)}\nDo the task again, or finish it."


def _answers(run: Run) -> str:
    """Answers that came when nobody was there to pick them up."""
    unread = "".join(f"\nYou asked: {question.text}\nThe answer: {question.closing}\n" for question in run.unread)
    return f"\n{unread}" if unread else ""


def _quoted(text: str | None) -> str:
    if not text:
        return ""
    return ": " + (text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")

"""What an agent is told: who it is, how it speaks with its parent, and its task.

The commands stand there exactly as they are typed; whoever the agent is, it can ask. A later attempt of an agent that
remembers nothing is told what happened before; any later attempt is told which messages have come for it.
"""

import json
from collections.abc import Sequence

from subagent_cli.core.delivery import Delivery
from subagent_cli.core.dispatch import DispatchSubagent
from subagent_cli.core.question import PENDING
from subagent_cli.core.run import Run
from subagent_cli.services.roles import GENERIC
from subagent_cli.store.reader import Spec

RULE = "\n---\n\n"
_LONGEST = 8_000

_PREAMBLE = """\
You are a sub-agent{role}; your run id is {run_id}. Your parent sees what you send it with these shell commands:

  subagent ask "QUESTION" --wait      ask your parent; prints the answer (--timeout 30m waits longer than 5 minutes,
                                      --option A --option B offers answers; exit code 124: no answer yet)
  subagent tell "NOTE"                leave a note that needs no answer
  subagent update running --summary "WHERE YOU STAND"
  subagent inbox --unreplied          messages of other agents, and how to read and answer each
  subagent submit result "RESULT"     hand in your result, once, as your last command
  subagent submit error "REASON"      say that it cannot be done, once, as your last command

They know who you are. `-` instead of a text reads it from standard input. When a decision is not yours, ask; do not
guess.
"""


_MODES = {
    "explore": "\nYou are to explore: look, think and report; change no file.\n",
    "work": "\nYou are the one who does the work: you may change files, the others only look.\n",
}


def first(spec: Spec, task: str) -> str:
    """The prompt of a new run."""
    return _preamble(spec) + RULE + task + "\n"


def dispatched(wanted: DispatchSubagent) -> str:
    """The task of a throwaway child."""
    step = f"It is step {wanted.plan_step_id} of your parent's plan.\n" if wanted.plan_step_id else ""
    names = [name for name in (wanted.prompt_ns, wanted.prompt_key) if name]
    prompt = f"Your parent's name for this prompt: {'/'.join(names)}\n" if names else ""
    expected = "".join(f"\n  {name}" for name in wanted.expected_artifacts)
    return (
        f"{wanted.instructions}\n\n{step}{prompt}"
        "You work in a throwaway copy of your parent's folder: it is gone when you end, and so is all you did there,"
        " except what you deliver. Hand in a short summary in plain ASCII, and name each file that you deliver and each"
        ' tool that you used:\n\n  subagent submit result "SUMMARY" --artifact PATH --tool NAME\n'
        + (f"\nExpected of you:{expected}\n" if expected else "")
    )


def with_news(text: str, news: Sequence[Delivery]) -> str:
    """What is said to a later attempt, and what has come for it since."""
    return "\n\n".join([text, *(delivery.text.rstrip("\n") for delivery in news)])


def remembered(run: Run, text: str) -> str:
    """For an agent that goes on with its own session."""
    return (
        f"You are still the sub-agent of run {run.id}; this is attempt {run.attempt + 1}. The `subagent` commands"
        f" work as before, and a new outcome can be submitted.{_answers(run)}{RULE}{text}\n"
    )


def retold(run: Run, spec: Spec, text: str) -> str:
    """For an agent that remembers nothing: the task, what was asked and answered, how it ended, and what to do now."""
    parts = [
        _preamble(spec),
        RULE,
        f"This is attempt {run.attempt + 1}. The task was:\n\n{spec['task']}\n",
    ]
    for question in run.questions.values():
        answer = "Nobody has answered yet." if question.state == PENDING else f"The answer: {question.closing}"
        parts.append(f"\nYou asked: {question.text}\n{answer}\n")
    parts.append(f"\nThe attempt before ended: {run.state}{_quoted(run.text)}\n{RULE}{text}\n")
    return "".join(parts)


def again(run: Run) -> str:
    """What a retry says where nobody says anything."""
    return f"The attempt before ended with {run.state}{_quoted(run.text)}\nDo the task again, or finish it."


def _preamble(spec: Spec) -> str:
    parts = [
        _PREAMBLE.format(run_id=spec["runId"], role=_role(spec)),
        _MODES.get(spec.get("mode") or "", ""),
        _form(spec, "inputSchema", "What you are given is JSON of this schema"),
        _form(spec, "outputSchema", "Your result is to be JSON of this schema, and nothing else"),
    ]
    return "".join(parts)


def _role(spec: Spec) -> str:
    """Which one it is of those that work on something together."""
    kind, name, model = spec.get("type"), spec.get("name"), spec.get("model")
    role = f" and the {kind}" if kind and kind != GENERIC else ""
    role += f', called "{name}"' if name else ""
    return role + (f", of model {model}" if model else "")


def _form(spec: Spec, key: str, what: str) -> str:
    schema = spec.get(key)
    return f"\n{what}:\n{json.dumps(schema, ensure_ascii=False)}\n" if schema is not None else ""


def _answers(run: Run) -> str:
    """Answers that came when nobody was there to pick them up."""
    unread = "".join(f"\nYou asked: {question.text}\nThe answer: {question.closing}\n" for question in run.unread)
    return f"\n{unread}" if unread else ""


def _quoted(text: str | None) -> str:
    if not text:
        return ""
    return ": " + (text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")

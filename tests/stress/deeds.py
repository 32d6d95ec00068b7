"""The verbs that write, as somebody types them, each with a way to see how often it has happened.

Every deed but a note is safe to repeat: it has a key, or says the same again.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from subagent_cli.core.run import Run
from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context
from subagent_cli.store.groups import Groups
from subagent_cli.store.messages import Messages
from tests.store.test_failures import VERBS
from tests.store.world import new_run

NOBODY: Mapping[str, str] = {}
LONG_AGO_MS = 1


class Errand(NamedTuple):
    """One call of a verb: what is typed, and in which environment."""

    words: tuple[str, ...]
    env: Mapping[str, str] = NOBODY


class Deed(NamedTuple):
    """`prepare` makes what the verb needs and gives the call; `count` tells how often it has happened."""

    prepare: Callable[[Context], Errand]
    count: Callable[[Context], int]
    repeatable: bool = True


def _first(context: Context) -> Run:
    """The oldest run, which is the one that is meant."""
    return context.runs.read(context.runs.all()[-1], context.clock.now())


def _happened(context: Context, kind: str) -> int:
    return sum(record["type"] == kind for record in context.runs.records(_first(context).id))


def _counted(verb: str) -> Callable[[Context], int]:
    return lambda context: VERBS[verb].count(_first(context))


def _create(context: Context) -> Errand:
    new_run(context)
    return Errand(("create", "worker", "do it", "--name", "it", "--key", "k"))


def _ask(context: Context) -> Errand:
    return Errand(("ask", "Which?", "--run", VERBS["ask"].prepare(context), "--key", "k"))


def _reply(context: Context) -> Errand:
    return Errand(("reply", VERBS["reply"].prepare(context), "That.", "--key", "k"))


def _check(context: Context) -> Errand:
    VERBS["check"].prepare(context)
    return Errand(("check", context.runs.index.questions()[0]))


def _update(context: Context) -> Errand:
    return Errand(("update", VERBS["update"].prepare(context), "success", "--summary", "Done."))


def _submit(context: Context) -> Errand:
    made = runs.create(context, "worker", "do it")
    return Errand(("submit", "result", "Done."), made["env"])


def _tell(context: Context) -> Errand:
    return Errand(("tell", "Half done.", "--run", new_run(context)))


def _grant(context: Context) -> Errand:
    target, grantee = new_run(context), new_run(context)
    return Errand(("grant", target, grantee, "read_transcript"))


def _put(context: Context) -> Errand:
    new_run(context)
    return Errand(("message", "put", "--text", "Look.", "--key", "k"))


def _send(context: Context) -> Errand:
    return Errand(("send", new_run(context), "--text", "Look.", "--key", "k"))


def _spawn(context: Context) -> Errand:
    new_run(context)
    return Errand(("spawn", "--task", "a", "--task", "b", "--key", "k", "--", "true"))


def _sweep(context: Context) -> Errand:
    questions.ask(context, "Which?", run=new_run(context), deadline=LONG_AGO_MS)
    return Errand(("sweep",))


def _clean(context: Context) -> Errand:
    run_id = new_run(context)
    runs.update(context, run_id, "success")
    new_run(context)
    return Errand(("clean", "--older-than", "1ms", "--yes"))


def _spawned(context: Context) -> int:
    """Groups all of whose children are there; and not a child more."""
    groups = [Groups(context.runs.layout).read(group_id) for group_id in Groups(context.runs.layout).all()]
    children = {child["runId"] for group in groups if group for child in group["children"]}
    return len(groups) if children <= set(context.runs.all()) else -1


DEEDS: Mapping[str, Deed] = {
    "create": Deed(_create, lambda context: len(context.runs.all()) - 1),
    "ask": Deed(_ask, _counted("ask")),
    "reply": Deed(_reply, _counted("reply")),
    "check": Deed(_check, _counted("check")),
    "update": Deed(_update, _counted("update")),
    "submit": Deed(_submit, lambda context: int(_first(context).submitted)),
    "tell": Deed(_tell, lambda context: len(_first(context).notes), repeatable=False),
    "grant": Deed(_grant, lambda context: len(_first(context).grants)),
    "message put": Deed(_put, lambda context: len(Messages(context.runs.layout).all())),
    "send": Deed(_send, lambda context: len(_first(context).inbox)),
    "spawn": Deed(_spawn, _spawned),
    "sweep": Deed(_sweep, lambda context: _happened(context, "expired")),
    "clean": Deed(_clean, lambda context: 2 - len(context.runs.all())),
}

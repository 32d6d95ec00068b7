"""What an agent can try: every verb on whatever it names, every list, and every spelling of what it should not know."""

from collections.abc import Callable
from functools import partial

from subagent_cli.core import command as wanted
from subagent_cli.core.grant import CAPABILITIES
from subagent_cli.services import (
    addresses,
    cancellation,
    deliveries,
    events,
    grants,
    groups,
    identity,
    inboxes,
    listing,
    logs,
    messages,
    outcomes,
    questions,
    resumption,
    runs,
    trees,
    waiting,
)
from subagent_cli.services.context import Context

NIL = "00000000-0000-0000-0000-000000000000"


def _for_oneself(verb: Callable[..., object], capability: str, context: Context, target: str) -> object:
    return verb(context, target, context.caller.run_id or target, capability)


def _cut(start: int | None, end: int | None, dashes: bool, run_id: str) -> str:
    return (run_id if dashes else run_id.replace("-", ""))[start:end]


# What can be done to a run that somebody names.
LOOKS: dict[str, Callable[[Context, str], object]] = {
    "status": runs.status,
    "status --peek": lambda c, t: runs.status(c, t, peek=True),
    "result": outcomes.result,
    "result --attempt": lambda c, t: outcomes.result(c, t, 1),
    "logs": logs.tail,
    "logs --follow": lambda c, t: next(logs.follow(c, t)),
    "events": events.read,
    "events --follow": lambda c, t: next(events.follow(c, t)),
    "tree": trees.tree,
    "wait": lambda c, t: waiting.for_runs(c, [t], timeout=0),
    "wait --any": lambda c, t: waiting.for_runs(c, [t], count=1, timeout=0),
    "pending": questions.pending,
    "pending --wait": lambda c, t: waiting.for_question(c, t, 0),
    "inbox": inboxes.listed,
    "inbox --unreplied": lambda c, t: inboxes.listed(c, t, unreplied=True),
    "list --parent": lambda c, t: listing.find(c, parent=t),
    "grants --target": grants.listed,
}
TEXT = messages.as_content("Do as I say")
CHANGES: dict[str, Callable[[Context, str], object]] = {
    "update": lambda c, t: runs.update(c, t, "error", "Mine now"),
    "ask": lambda c, t: questions.ask(c, "Which?", run=t),
    "tell": lambda c, t: questions.tell(c, "Mine now", run=t),
    "reply": lambda c, t: questions.reply(c, t, "Mine"),
    "reply --all": lambda c, t: questions.reply(c, t, "Mine", which=wanted.ALL),
    "cancel": lambda c, t: cancellation.cancel(c, [t], grace=0),
    "wake": deliveries.wake,
    "send": lambda c, t: deliveries.send(c, t, schema="plaintext", content=TEXT),
    "resume": lambda c, t: resumption.resume(c, t, "Go on"),
    "retry": lambda c, t: resumption.resume(c, t, None, fresh=True),
    **{f"grant {one}": partial(_for_oneself, grants.grant, one) for one in CAPABILITIES},
    **{f"revoke {one}": partial(_for_oneself, grants.revoke, one) for one in CAPABILITIES},
}
VERBS = LOOKS | CHANGES

# What is asked without naming a run.
LISTS: dict[str, Callable[[Context], object]] = {
    "list": listing.find,
    "list --all": lambda c: listing.find(c, children=True),
    "list --status": lambda c: listing.find(c, status="parent_replied", children=True),
    "list --name": lambda c: [listing.find(c, name=name, children=True) for name in ("victim", "first", "left")],
    "list --label": lambda c: listing.find(c, labels=[("team", "victim")], children=True),
    "list --label, any": lambda c: listing.find(c, labels=[("team", None)], children=True),
    "list --since": lambda c: listing.find(c, since=0, children=True),
    "status": lambda c: listing.find(c, active=True),
    "tree": trees.tree,
    "tree --all": lambda c: trees.tree(c, everything=True),
    "events": events.read,
    "pending": questions.pending,
    "pending --wait": lambda c: waiting.for_question(c, None, 0),
    "message list": messages.listed,
    "message list --schema": lambda c: messages.listed(c, schema="plaintext"),
    "grants": grants.listed,
    "completion": addresses.completions,
    "wait": lambda c: waiting.for_runs(c, [], timeout=0),
    "whoami": identity.whoami,
    "@last": lambda c: runs.status(c, "@last", peek=True),
}

# What can be done to a message that somebody names.
LETTERS: dict[str, Callable[[Context, str], object]] = {
    "show": messages.show,
    "list --in-reply-to": lambda c, t: messages.listed(c, in_reply_to=t),
    "wait for a reply": lambda c, t: messages.for_reply(c, t, timeout=0),
    "put --in-reply-to": lambda c, t: messages.put(c, "plaintext", TEXT, in_reply_to=t),
    "send": lambda c, t: deliveries.send(c, (c.runs.index.children(c.caller.run_id or "") or ["owned"])[0], t),
}
# What can be done to a question.
ANSWERS: dict[str, Callable[[Context, str], object]] = {
    "check": questions.check,
    "check --peek": lambda c, t: questions.check(c, t, peek=True),
    "check --wait": lambda c, t: waiting.for_answer(c, t, timeout=0),
    "reply": lambda c, t: questions.reply(c, t, "Mine"),
}
# What can be done to a group.
FANS: dict[str, Callable[[Context, str], object]] = {
    "status": groups.status,
    "status as of a run": runs.status,
    "list --group": lambda c, t: listing.find(c, group=t),
    "wait": lambda c, t: waiting.for_runs(c, [t], timeout=0),
    "cancel": lambda c, t: cancellation.cancel(c, [t], grace=0),
}

# What somebody may type who has seen an id, or a part of it, where he should not have.
SPELLINGS: dict[str, Callable[[str], str]] = {
    "whole": str,
    "capitals": str.upper,
    "no dashes": lambda i: i.replace("-", ""),
    "no dashes, capitals": lambda i: i.replace("-", "").upper(),
    "dashes elsewhere": lambda i: "-".join(i.replace("-", "")[at : at + 4] for at in range(0, 32, 4)),
    **{f"first {n}": partial(_cut, None, n, False) for n in (4, 9, 12, 14, 16, 20, 31)},
    **{f"first {n}, dashes": partial(_cut, None, n, True) for n in (13, 18, 23, 35)},
    **{f"last {n}": partial(_cut, -n, None, False) for n in (4, 5, 8, 12, 16, 31)},
    **{f"last {n}, dashes": partial(_cut, -n, None, True) for n in (17, 35)},
    "version 1": lambda i: i[:14] + "1" + i[15:],
    "version 4": lambda i: i[:14] + "4" + i[15:],
    "another variant": lambda i: i[:19] + "c" + i[20:],
    "a way out and back": lambda i: f"../runs/{i}",
    "a file of it": lambda i: f"{i}/.meta.json",
    "an absolute path": lambda i: f"/tmp/runs/{i}",
    "while it was made": lambda i: f".new-{i}",
    "its lock": lambda i: f"{i}.lock",
    "a null byte": lambda i: f"{i}\0",
    "a line feed": lambda i: f"{i}\n",
    "braces": lambda i: f"{{{i}}}",
    "an urn": lambda i: f"urn:uuid:{i}",
    "wide digits": lambda i: i.translate({ord("0") + n: 0xFF10 + n for n in range(10)}),
    "an invisible joiner": lambda i: f"{i[:8]}\u200d{i[8:]}",
    "half a character": lambda i: i[:35] + "\udc80",
    "very long": lambda i: i * 1000,
    "a pattern": lambda i: f"{i[:9]}*",
}
# What somebody may type who has only heard of it.
WORDS = ["@last", "@first", "@victim", "@0", "victim", "VICTIM", "victin", "victi", "ictim", "first", "lef", ".", ".."]
WORDS += ["*", "/", "operator", "None", "own", "019b", "", "\0", NIL, "x" * 129, "ﬁrst"]

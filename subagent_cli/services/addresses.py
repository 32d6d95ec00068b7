"""From what somebody typed to the run or the question that is meant.

A run is named by its id, by the beginning or end of it (four digits or more), by its name, or by `@last`; a question
by its id or a part of it. Anything that could leave the runs directory is refused before it becomes a path. Whoever
names something says which right it takes; what the caller may not know of is not there.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice

from subagent_cli.core import ids
from subagent_cli.core.errors import InvalidInput, NotFound, RunNotFound, SubagentError
from subagent_cli.core.exchange import not_granted
from subagent_cli.core.grant import ADMINISTER, ANSWER, HEAR, KNOW, READ, SEND
from subagent_cli.core.ids import short
from subagent_cli.core.value import Value
from subagent_cli.services import access
from subagent_cli.services.context import Context
from subagent_cli.store.groups import Groups

LAST = "@last"
_SCANNED = 2000


class Target(Value):
    run_id: str
    message_id: str | None = None


class Several(Value):
    """A run or a group by its id, and the runs that it stands for."""

    id: str
    run_ids: list[str]


def run(context: Context, text: str | None, right: str = READ) -> str:
    """The run that is meant; without a name, the one that the caller belongs to."""
    text = text if text is not None else context.caller.run_id
    if text is None:
        raise InvalidInput(
            "no run is named", code="no_run", hint="name one, or set SUBAGENT_RUN_ID", next="subagent list"
        )
    found = _find_run(context, text)
    if found is None and group(context, text):
        raise InvalidInput(
            f"{text[:64]} is a group of runs, and one run is wanted here",
            code="is_a_group",
            next=context.spelled("status", short(text)),
        )
    if found is None and right in (SEND, ADMINISTER) and access.agent(context) and ids.is_uuid(ids.canonical(text)):
        # The same words whether or not there is such an agent.
        raise not_granted(right, ids.canonical(text))
    if found is None or (right in (READ, HEAR) and not access.may(context, right, found)):
        raise RunNotFound(text, candidates=_similar(context, text), hint="subagent list shows what is there")
    access.must(context, right, found)
    return found


def group(context: Context, text: str) -> str | None:
    """The group that is meant, by its id or a part of it; None where there is none."""
    groups = Groups(context.runs.layout)
    part = ids.digits(text)
    matches = groups.matching(part) if part else []
    caller = access.agent(context)
    if caller is not None:
        # A group is the business of whoever spawned it.
        matches = [match for match in matches if _spawner(groups, match) == caller]
    if len(matches) > 1:
        raise _ambiguous(text, "groups", matches)
    return matches[0] if matches else None


def _spawner(groups: Groups, group_id: str) -> object:
    try:
        return (groups.read(group_id) or {}).get("parentId")
    except SubagentError:
        return None


def runs_of(context: Context, text: str, right: str = READ) -> Several:
    """The runs that are meant: one, or all of a group that are still there."""
    group_id = group(context, text)
    if group_id is None:
        run_id = run(context, text, right)
        return Several(run_id, [run_id])
    if _find_run(context, text) is not None:
        raise _ambiguous(text, "a run and a group", [text, group_id])
    found = Groups(context.runs.layout).read(group_id) or {"children": []}
    there = [child["runId"] for child in found["children"] if context.runs.exists(child["runId"])]
    return Several(group_id, access.among(context, there, right))


def children(context: Context, run_id: str) -> list[str]:
    """What this run started, as those runs say themselves: an entry of the index is no proof."""
    found: list[str] = []
    for child in filter(context.runs.exists, context.runs.index.children(run_id)):
        try:
            started = context.runs.spec(child).get("parentId") == run_id
        except SubagentError:
            # One that cannot say is taken for a child, but not by whoever could have made the entry.
            started = access.agent(context) is None
        found += [child] if started else []
    return found


def with_children(context: Context, run_ids: Iterable[str]) -> list[str]:
    """These runs, and all that they started, and so on."""
    found = list(dict.fromkeys(run_ids))
    for run_id in found:
        # The list grows while it is gone through.
        found += [child for child in children(context, run_id) if child not in found]
    return [run_id for run_id in found if context.runs.exists(run_id)]


def message(context: Context, text: str, run_id: str | None = None) -> Target:
    """The question that is meant: in one run, or wherever it was asked."""
    if not text:
        raise InvalidInput("the message id is empty", code="invalid_message_id")
    if run_id is None:
        found = _find_message(context, text, READ)
        if found is None:
            raise _no_message(text)
        return found
    known = context.runs.read(run_id, context.clock.now()).questions
    matches = [text] if text in known else _matching(text, known)
    if not matches:
        raise _no_message(text)
    if len(matches) > 1:
        raise _ambiguous(text, "questions", matches)
    return Target(run_id, matches[0])


def run_or_message(context: Context, text: str) -> Target:
    """For `reply`, whose first word may be either."""
    question = _find_message(context, text, ANSWER) if text != LAST else None
    if question and question.message_id == text:
        return question
    run_id = _find_run(context, text)
    if question and run_id:
        raise _ambiguous(text, "a run and a question", [run_id, question.message_id or ""])
    if question:
        return question
    if run_id:
        access.must(context, ANSWER, run_id)
        return Target(run_id)
    raise NotFound(
        f"no question and no run is named {text[:64]}",
        hint="subagent pending shows what waits for an answer",
        candidates=_similar(context, text),
    )


def _find_run(context: Context, text: str) -> str | None:
    context.must_be_there()
    if text == LAST:
        return next(iter(access.known(context)), None)
    for spelling in (text, text.lower()):
        if context.runs.exists(spelling) and access.may(context, KNOW, spelling):
            return spelling
    if not ids.is_label(text):
        raise InvalidInput(
            f"Run ID must be a valid UUID, a part of one, or a name: {text[:40]!r}", code="invalid_run_id"
        )
    named = [*filter(context.runs.exists, access.among(context, context.runs.index.named(text), KNOW))]
    if named:
        return _nearest(context, named)
    part = ids.digits(text)
    matches = access.among(context, context.runs.matching(part), KNOW) if part else []
    if len(matches) > 1:
        raise _ambiguous(text, "runs", matches)
    return matches[0] if matches else None


def _nearest(context: Context, run_ids: Sequence[str]) -> str:
    """Of several runs of one name the newest that the caller started, so that nobody else's takes its place."""
    caller = access.agent(context)

    def is_far(run_id: str) -> bool:
        return run_id != caller and context.runs.spec(run_id).get("parentId") != caller

    return min(run_ids, key=is_far) if len(run_ids) > 1 else run_ids[0]


def _find_message(context: Context, text: str, right: str) -> Target | None:
    context.must_be_there()
    if not ids.is_label(text):
        raise InvalidInput(f"not a message id: {text[:40]!r}", code="invalid_message_id")
    asker_of = cache(context.runs.index.asker)
    spellings = (spelling for spelling in (text, text.lower()) if asker_of(spelling))
    matches = [*islice(spellings, 1)] or _matching(text, context.runs.index.questions())
    if access.agent(context):
        matches = [match for match in matches if access.among(context, [asker_of(match) or ""], right)]
    if len(matches) > 1:
        raise _ambiguous(text, "questions", matches)
    asker = asker_of(matches[0]) if matches else None
    if asker and context.runs.exists(asker):
        return Target(asker, matches[0])
    return _in_active_runs(context, text, right)


def _in_active_runs(context: Context, text: str, right: str) -> Target | None:
    """A question that another program asked has no entry before our next change of its run."""
    found: list[Target] = []
    for run_id in access.among(context, {*context.runs.index.active(), *context.runs.survey().flat}, right):
        with suppress(SubagentError):
            known = context.runs.read(run_id, context.clock.now()).questions
            found += [Target(run_id, match) for match in ([text] if text in known else _matching(text, known))]
    if len(found) > 1:
        raise _ambiguous(text, "questions", [target.message_id or "" for target in found])
    return found[0] if found else None


def _matching(text: str, uuids: Iterable[str]) -> list[str]:
    part = ids.digits(text)
    return [uuid for uuid in uuids if ids.names(part, uuid)] if part else []


def _no_message(text: str) -> NotFound:
    return NotFound(
        f"Message with ID {text[:64]} not found",
        code="message_not_found",
        hint="subagent pending shows what waits for an answer",
    )


def _ambiguous(text: str, what: str, matches: Sequence[str]) -> InvalidInput:
    return InvalidInput(
        f"{text[:40]!r} names several: {what}", code="ambiguous", hint="type more of it", candidates=matches[:10]
    )


def _similar(context: Context, text: str) -> Sequence[str]:
    from difflib import get_close_matches

    known = access.known(context)[:_SCANNED]
    if access.agent(context):
        names = [context.runs.spec(run_id).get("name") for run_id in known]
    else:
        names = list(context.runs.index.names())
    return get_close_matches(text, [*filter(None, names), *map(short, known)], n=3)


def completions(context: Context) -> list[str]:
    """What a shell offers where a run is wanted: those that are active, and names."""
    active = access.among(context, context.runs.index.active())
    names = context.runs.index.names() if access.agent(context) is None else []
    return [*map(short, active), *names]

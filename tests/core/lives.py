"""Runs to start from, and random lives for them: what people, processes, time and other programs may do."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from subagent_cli.core.absorption import absorb
from subagent_cli.core.command import (
    ALL,
    LATEST,
    OLDEST,
    ONLY,
    Acknowledge,
    Ask,
    Command,
    Exit,
    Reply,
    Report,
    Resume,
    Settle,
    Stop,
    Submit,
    Tell,
)
from subagent_cli.core.document import MESSAGE_KEYS, MESSAGE_WORDS, RUN_KEYS, RUN_WORDS, Document
from subagent_cli.core.errors import SubagentError
from subagent_cli.core.event import Created, Event, Exited
from subagent_cli.core.evolution import fold
from subagent_cli.core.moment import Moment
from subagent_cli.core.run import RUNNING, Run
from subagent_cli.core.transition import decide, due

RUN = "0199c7d4-4c00-7000-8000-00000000abcd"
START = Moment(1_760_000_000_000, "boot-a", 5_000_000)
DAY = 86_400_000

Step = Command | Exited | int
"""A command, an exit, or milliseconds that pass."""


def later(ms: int, since: Moment = START) -> Moment:
    return since._replace(ms=since.ms + ms, up=since.up + ms)


def begun(phase: str = RUNNING, *, kept: bool = False) -> Run:
    return fold(Run(RUN), [Created(START, RUN, "worker", "worker --go", phase, kept or None)])


def do(run: Run, *commands: Command, now: Moment = START) -> Run:
    for command in commands:
        run = fold(run, decide(run, command, now))
    return run


def asked(*message_ids: str) -> Run:
    return do(begun(), *(Ask(message_id, f"Which, {message_id}?") for message_id in message_ids))


def seen(run: Run, document: Document, now: Moment = START) -> Run:
    """The run after somebody else's document has been looked at."""
    return fold(run, absorb(run, document, now))


def lived(steps: Sequence[Step], *, kept: bool = False) -> list[Run]:
    """Every run on the way, the newest last. What is refused is passed over."""
    run, now = begun(kept=kept), START
    runs = [run]
    for step in steps:
        events: Sequence[Event]
        if isinstance(step, int):
            now = later(step, now)
            events = due(run, now, DAY)
        elif isinstance(step, Exited):
            events = (step._replace(at=now, timestamp=now.iso),)
        elif isinstance(step, Ask) and step.message_id in run.questions:
            continue
        else:
            try:
                events = decide(run, step, now)
            except SubagentError:
                continue
        run = fold(run, events)
        runs.append(run)
    return runs


message_ids = st.sampled_from(["m1", "m2", "m3"])
texts = st.text(st.characters(), max_size=6)
answers = st.sampled_from(["", "1", "2", "3", "yes"]) | texts
moments = st.builds(
    Moment,
    st.integers(0, 4_000_000_000_000),
    st.sampled_from(["", "boot-a", "boot-b"]),
    st.integers(0, 4_000_000_000),
).map(lambda at: at if at.boot else at._replace(up=0))

keys = st.none() | st.sampled_from(["k1", "k2"])
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        Ask,
        message_ids,
        texts,
        st.lists(st.sampled_from(["left", "right", "1", "2"]), max_size=4).map(tuple),
        st.none() | answers,
        st.none() | st.sampled_from([1, 1000, 2 * DAY]),
        st.booleans(),
        keys,
    ),
    st.builds(Tell, texts),
    st.builds(Reply, answers, st.none() | message_ids, st.sampled_from([ONLY, OLDEST, LATEST, ALL]), keys),
    st.builds(Acknowledge, st.none() | message_ids),
    st.builds(Report, st.sampled_from(["success", "error", "running", "completed"]), st.none() | texts),
    st.builds(Submit, st.sampled_from(["result", "error"]), texts, st.none() | st.just("network")),
    st.builds(Stop, st.sampled_from(["cancelled", "timed_out"]), texts, st.sampled_from([0, 5000]), st.booleans()),
    st.just(Settle()),
)
exits = st.builds(Exited, st.just(START), st.sampled_from([0, 1, 3, 127]), st.just(START.iso), st.none() | texts)
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(commands, commands, commands, exits, st.sampled_from([1, 1000, DAY])), max_size=12
)
lives = steps.map(lived)
keepers_words = st.builds(Exit, st.integers(1, 3), st.sampled_from([0, 1, 137]), st.none() | texts, st.none() | texts)
resumptions = st.builds(Resume, st.just("worker --again"), texts, st.just("hash"), st.none(), keys)
kept_lives = st.lists(st.one_of(commands, commands, keepers_words, resumptions), max_size=14).map(
    lambda steps: lived(steps, kept=True)
)
runs = lives.map(lambda life: life[-1])

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)
stamps = st.sampled_from(
    [
        "2025-10-09T08:53:20.000Z",
        "2025-10-09T08:53:21.000Z",
        "2025-10-11T00:00:00Z",
        "2099-01-01T00:00:00.000+02:00",
        "1969-12-31",
        "0001-01-01T00:00:00+14:00",
        "yesterday",
        "",
    ]
)
_likely_in_a_message: dict[str, st.SearchStrategy[Any]] = {
    "messageId": message_ids | st.sampled_from(["m4", ""]),
    "questionContent": texts,
    "questionTimestamp": stamps,
    "answerContent": answers,
    "answerTimestamp": stamps,
    "messageStatus": st.sampled_from([*MESSAGE_WORDS, "expired", "EXPIRED", "cancelled"]),
    "priority": st.integers(0, 2),
}
messages: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {}, optional={key: st.one_of(likely, likely, likely, values) for key, likely in _likely_in_a_message.items()}
)
_likely: dict[str, st.SearchStrategy[Any]] = {
    "runId": st.sampled_from([RUN, "another"]),
    "agentName": texts,
    "command": texts,
    "startTime": stamps,
    "status": st.sampled_from([*RUN_WORDS, "cancelled", "timed_out", "failed", "idle", "RUNNING", ""]),
    "exitCode": st.sampled_from([0, 1, 3.5, -9]),
    "endTime": stamps,
    "summary": texts,
    "messages": st.lists(st.one_of(messages, messages, messages, values), max_size=4),
    "lastUpdated": stamps,
    "owner": st.integers(0, 2),
}
documents: st.SearchStrategy[Document] = st.one_of(
    st.fixed_dictionaries(
        {}, optional={key: st.one_of(likely, likely, likely, values) for key, likely in _likely.items()}
    ),
    st.dictionaries(st.sampled_from([*RUN_KEYS, *MESSAGE_KEYS, "meta"]) | texts, values, max_size=4),
)
"""Any JSON object, most of them close to what the server writes."""

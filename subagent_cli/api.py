"""subagent from Python: start children, answer their questions while they run, take their results as they come.

    from subagent_cli.api import Store

    store = Store()
    group = store.spawn(["Review the tests", "Review the docs"], agent="claude", deadline=1200)
    for result in group.results(answer=lambda question: "Use your judgement"):
        print(result.task, result.text if result.ok else f"failed: {result.text}")

The same services as the command line, the same files: whatever is started here can be looked at and ended there, and
the other way round. Times are in seconds. What goes wrong is raised as a `SubagentError`, whose `code` can be tested.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, NamedTuple, TypeVar

from subagent_cli.core.errors import Failed, InvalidInput, NotFound, Refused, SubagentError
from subagent_cli.core.moment import elapsed
from subagent_cli.services import cancellation, groups, launches, outcomes, questions, resumption, runs, spawns, waiting
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.launches import Request
from subagent_cli.services.settings import BY_NAME
from subagent_cli.services.starts import Start

__all__ = ["Group", "Question", "Result", "Run", "Store", "SubagentError", "Task"]


class Result(NamedTuple):
    """What came of a run. `state` is success, completed, error, cancelled, timed_out or lost."""

    run_id: str
    task: str
    state: str
    text: str | None
    kind: str | None
    artifacts: tuple[str, ...]
    name: str | None
    exit_code: int | None

    @property
    def ok(self) -> bool:
        return self.kind is None


class Question(NamedTuple):
    """A question that waits for an answer; with options, their number is an answer too."""

    id: str
    run_id: str
    text: str
    options: tuple[str, ...]


class Task(NamedTuple):
    """A task of a fan-out that differs from the others in more than its text."""

    text: str
    agent: str | None = None
    cwd: str | None = None
    name: str | None = None
    timeout: float | None = None
    model: str | None = None
    mode: str | None = None


Answer = Callable[[Question], str | None]


class Store:
    """The runs below one directory; without one, those that `subagent` would find here."""

    def __init__(self, runs_dir: "str | PathLike[str] | None" = None, **settings: str | int) -> None:
        for name in settings:
            if name not in BY_NAME:
                raise InvalidInput(f"there is no setting {name!r}", code="invalid_setting", candidates=tuple(BY_NAME))
        folder = None if runs_dir is None else fspath(runs_dir)
        self._context = open_context({"runs_dir": folder, **{name: str(value) for name, value in settings.items()}})

    def run(
        self,
        task: str,
        *,
        agent: str | None = None,
        command: Sequence[str] = (),
        name: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        model: str | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> "Run":
        """Starts an agent, or a command, on a task."""
        request = _request(agent, command, cwd, timeout, env, model, labels)._replace(task=task, name=name)
        return Run(self._context, launches.run(self._context, request, key=key)["runId"])

    def spawn(
        self,
        tasks: Sequence[str | Task],
        *,
        agent: str | None = None,
        command: Sequence[str] = (),
        cwd: str | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        env: Mapping[str, str] | None = None,
        model: str | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> "Group":
        """Starts a child for each task, all or none."""
        common = _request(agent, command, cwd, timeout, env, model, labels)
        requests = [_for_task(common, task) for task in _several(tasks, "tasks")]
        made = spawns.spawn(self._context, requests, deadline=_ms(deadline), key=key)
        return Group(self._context, made["group_id"], made["agent_ids"])

    def open(self, name: str) -> "Run":
        """A run that is there already, by its id, a part of it, or its name."""
        return Run(self._context, runs.status(self._context, name, peek=True)["runId"])

    def group(self, name: str) -> "Group":
        """A group that is there already, by its id or a part of it."""
        found = groups.status(self._context, name)
        return Group(self._context, found["group_id"], [*found["completed"], *found["pending"]])

    def questions(self) -> list[Question]:
        """What waits for an answer in any run, oldest first."""
        return [_question(item) for item in questions.pending(self._context)[0]]

    def reply(self, question: Question | str, answer: str) -> None:
        message_id = question.id if isinstance(question, Question) else question
        questions.reply(self._context, message_id, answer)


class _Several:
    """Runs that are waited for together."""

    def __init__(self, context: Context, run_ids: Sequence[str]) -> None:
        self._context, self.run_ids = context, tuple(run_ids)

    def results(self, *, answer: Answer | None = None, timeout: float | None = None) -> Iterator[Result]:
        """Each result as soon as its run is over. `answer` is asked what to reply to each question that comes; None
        leaves it to others. Ends early when the time is up; nothing is cancelled by that."""
        left, cursor = list(self.run_ids), waiting.NOTHING_KNOWN
        start, limit = self._context.clock.now(), _ms(timeout)
        put: set[str] = set()
        # One that somebody has deleted meanwhile has no result any more.
        while left := [run_id for run_id in left if self._context.runs.exists(run_id)]:
            spent = elapsed(start, self._context.clock.now())
            woke = waiting.for_runs(
                self._context,
                left,
                count=1,
                timeout=None if limit is None else max(0, limit - spent),
                questions_too=answer is not None,
                after=cursor,
            )
            if woke["woke"] == "timeout":
                return
            if woke["woke"] == "question" and answer is not None:
                cursor = woke["cursor"]
                self._reply([item for item in woke["questions"] if item["message_id"] not in put], answer, put)
                continue
            for ended in woke["sub_agent_results"]:
                left.remove(ended["agent_id"])
                yield _result(self._context, ended["agent_id"])

    def cancel(self, reason: str | None = None, *, grace: float | None = None) -> None:
        """Ends what has not ended, and every process of it; Failed where one could not be ended."""
        there = [run_id for run_id in self.run_ids if self._context.runs.exists(run_id)]
        done = cancellation.cancel(self._context, there, reason=reason, grace=_ms(grace)) if there else {}
        if left := done.get("notStopped"):
            raise Failed(f"still there: {', '.join(left)}", code="not_stopped")

    def _reply(self, asked: Sequence[Mapping[str, Any]], answer: Answer, put: set[str]) -> None:
        for item in asked:
            put.add(item["message_id"])
            text = answer(_question(item))
            if text is None:
                continue
            try:
                questions.reply(self._context, item["message_id"], text)
            except (Refused, NotFound):
                # Somebody else was quicker, or there is nobody left who wants to know.
                continue


class Run(_Several):
    """One run."""

    def __init__(self, context: Context, run_id: str) -> None:
        super().__init__(context, [run_id])
        self.id = run_id

    def status(self) -> dict[str, Any]:
        """As `subagent status --json`; replies stay unread."""
        return runs.status(self._context, self.id, peek=True)

    def wait(self, *, answer: Answer | None = None, timeout: float | None = None) -> Result | None:
        """Its result, or None when the time is up."""
        return next(self.results(answer=answer, timeout=timeout), None)

    def resume(self, text: str | None = None, *, fresh: bool = False, timeout: float | None = None) -> None:
        """Another attempt at the run, once it has ended; without a text it is a retry."""
        resumption.resume(self._context, self.id, text, fresh=fresh, start=Start(_ms(timeout)))


class Group(_Several):
    """The runs of one fan-out, in the order in which they were asked for."""

    def __init__(self, context: Context, group_id: str, run_ids: Sequence[str]) -> None:
        super().__init__(context, run_ids)
        self.id = group_id

    def status(self) -> dict[str, Any]:
        """As `subagent status GROUP --json`: which are pending, which are completed, and what they came to."""
        return groups.status(self._context, self.id)


def _request(
    agent: str | None,
    command: Sequence[str],
    cwd: str | None,
    timeout: float | None,
    env: Mapping[str, str] | None,
    model: str | None,
    labels: Mapping[str, str] | None,
) -> Request:
    words = tuple(_several(command, "command"))
    return Request(
        "", agent=agent, command=words, cwd=cwd, model=model, labels=labels or {}, start=Start(_ms(timeout), env or {})
    )


def _for_task(common: Request, task: str | Task) -> Request:
    if isinstance(task, str):
        return common._replace(task=task)
    given = {key: value for key, value in task._asdict().items() if value is not None}
    request = common._replace(task=given.pop("text"), start=common.start._replace(**_timeout(given)))
    return request._replace(**given, command=() if task.agent else common.command)


def _timeout(given: dict[str, Any]) -> dict[str, Any]:
    return {"timeout": _ms(given.pop("timeout"))} if "timeout" in given else {}


T = TypeVar("T")


def _several(items: Sequence[T], what: str) -> Sequence[T]:
    if isinstance(items, str):
        raise InvalidInput(f"{what} is a list of texts, not one text", code="invalid_input")
    return items


def _result(context: Context, run_id: str) -> Result:
    found, spec = outcomes.result(context, run_id), context.runs.spec(run_id)
    text = found["error"] if "error" in found else found["result"]
    return Result(
        run_id,
        spec.get("task") or "",
        found["state"],
        text,
        found["kind"],
        tuple(found["artifacts"]),
        spec.get("name"),
        found["exitCode"],
    )


def _question(item: Mapping[str, Any]) -> Question:
    return Question(item["message_id"], item["run_id"], item["question"], tuple(item.get("options", ())))


def _ms(seconds: float | None) -> int | None:
    if seconds is None or seconds == float("inf"):
        return None
    if not seconds >= 0:
        raise InvalidInput(f"not a length of time: {seconds}", code="invalid_input")
    return round(seconds * 1000)

"""Handing on an outcome that some program wrote as JSON: what comes of a run is what was written, in whichever form,
and what cannot be read changes nothing."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import Denied, InvalidInput, Refused
from subagent_cli.core.run import Run
from subagent_cli.core.transition import KINDS, LOST_TEXT, TIMED_OUT_TEXT
from subagent_cli.services import outcomes, runs
from subagent_cli.services.context import Context, Payload, open_context
from subagent_cli.services.settings import Caller
from tests.cli.living import all_ended
from tests.command import Command
from tests.services.desk import StillClock, create, journal, refused

DEEP = 100_000


def new_worker(desk: Context) -> Context:
    made = runs.create(desk, "helper", "Do it")
    return desk._replace(caller=Caller(made["runId"], made["env"]["SUBAGENT_TOKEN"]))


@pytest.fixture
def worker(desk: Context) -> Context:
    return new_worker(desk)


def now(context: Context, run_id: str | None = None) -> Run:
    run_id = run_id or context.caller.run_id
    assert run_id is not None
    return context.runs.read(run_id, context.clock.now())


def handed_on(worker: Context, document: object) -> Payload:
    return outcomes.hand_on(worker, json.dumps(document))


@pytest.mark.case("X19")
@pytest.mark.parametrize("document", [{"success": {"result": "12 ä"}}, {"type": "success", "result": "12 ä"}], ids=str)
def test_a_success_is_the_result_of_whoever_hands_it_on(worker: Context, document: object) -> None:
    done = handed_on(worker, document)
    assert (done["status"], done["result"], done["kind"]) == ("success", "12 ä", None)
    assert outcomes.outcome(now(worker)) == {"success": {"result": "12 ä"}}


@pytest.mark.case("X19", "C2-23")
@pytest.mark.parametrize("kind", [None, *KINDS])
@pytest.mark.parametrize("tagged", [False, True], ids=["keyed", "tagged"])
def test_a_failure_keeps_its_text_and_its_kind(worker: Context, kind: str | None, tagged: bool) -> None:
    said = {"error": "no disk"} | ({"error_kind": kind} if kind else {})
    done = handed_on(worker, {"type": "failure", **said} if tagged else {"failure": said})
    assert (done["status"], done["error"], done["kind"]) == ("error", "no disk", kind or "sub_agent_error")


@pytest.mark.case("X19", "X18")
def test_what_timed_out_is_a_failure_of_that_kind(worker: Context) -> None:
    done = handed_on(worker, {"type": "timed_out"})
    assert (done["state"], done["error"], done["kind"]) == ("timed_out", TIMED_OUT_TEXT, "timed_out")
    assert done["retryable"] is True


def test_artifacts_and_tools_go_with_it(worker: Context) -> None:
    done = outcomes.hand_on(worker, '{"success": {"result": "x"}}', artifacts=["a b"], tools=["Bash"])
    assert (done["artifacts"], done["tools"]) == (["a b"], ["Bash"])


@pytest.mark.case("X19", "C2-35")
def test_the_same_in_the_other_form_is_the_same_and_anything_else_is_refused(worker: Context, runs_dir: Path) -> None:
    handed_on(worker, {"failure": {"error": "no", "error_kind": "network"}})
    before = journal(runs_dir, now(worker).id)
    handed_on(worker, {"type": "failure", "error": "no", "error_kind": "network", "more": 1})
    outcomes.submit(worker, "error", "no", kind="network")
    assert journal(runs_dir, now(worker).id) == before
    for other in ({"failure": {"error": "no"}}, {"success": {"result": "no"}}, {"type": "timed_out"}):
        with refused(runs_dir, Refused, "run_finished"):
            handed_on(worker, other)


def test_who_is_no_worker_hands_nothing_on(desk: Context, runs_dir: Path) -> None:
    create(desk)
    with refused(runs_dir, Denied, "no_identity"):
        handed_on(desk, {"success": {"result": "x"}})


HOSTILE: dict[str, tuple[str, str]] = {
    "nothing": ("", "invalid_outcome"),
    "blanks": (" \n", "invalid_outcome"),
    "words": ("It is done.", "invalid_outcome"),
    "half of it": ('{"success": {"result": "x"}', "invalid_outcome"),
    "two of them": ('{"success": {"result": "x"}}\n{"success": {"result": "x"}}', "invalid_outcome"),
    "Python's spelling": ("{'success': {'result': 'x'}}", "invalid_outcome"),
    "no number": ('{"type": NaN}', "invalid_outcome"),
    "a line feed in a text": ('{"success": {"result": "a\nb"}}', "invalid_outcome"),
    "a byte order mark": ('\ufeff{"success": {"result": "x"}}', "invalid_outcome"),
    "null": ("null", "invalid_outcome"),
    "a list": ('[{"success": {"result": "x"}}]', "invalid_outcome"),
    "a text": ('"success"', "invalid_outcome"),
    "a number beyond all": ("9" * 5000, "invalid_outcome"),
    "no result": ('{"success": {}}', "invalid_outcome"),
    "a number as result": ('{"success": {"result": 7}}', "invalid_outcome"),
    "an object as result": ('{"success": {"result": {"a": 1}}}', "invalid_outcome"),
    "both": ('{"success": {"result": "x"}, "failure": {"error": "y"}}', "invalid_outcome"),
    "half a character": ('{"success": {"result": "\\ud800"}}', "not_utf8"),
    "a broken character": ('{"success": {"result": "\udcff"}}', "not_utf8"),
    "another kind": ('{"failure": {"error": "x", "error_kind": "bad luck"}}', "unknown_kind"),
    "an empty kind": ('{"failure": {"error": "x", "error_kind": ""}}', "unknown_kind"),
    "a kind without end": (json.dumps({"failure": {"error": "x", "error_kind": "k" * 500_000}}), "unknown_kind"),
    "a kind that is none": ('{"failure": {"error": "x", "error_kind": 7}}', "invalid_outcome"),
    "another tag": ('{"type": "cancelled", "error": "x"}', "invalid_outcome"),
    "a tag of several lines": ('{"type": "a\\nb\\u001b[31m"}', "invalid_outcome"),
    "a tag without end": (json.dumps({"type": "t" * 2_000_000}), "invalid_outcome"),
    "a list as tag": (json.dumps({"type": ["t"] * 100_000}), "invalid_outcome"),
    "lists in lists": ("[" * DEEP + "]" * DEEP, "invalid_outcome"),
    "objects in objects": ('{"success": ' * DEEP + "1" + "}" * DEEP, "invalid_outcome"),
    "a result beyond the limit": (json.dumps({"success": {"result": "r" * 2_000_000}}), "too_long"),
    "an error beyond the limit": (json.dumps({"type": "failure", "error": "ä" * 1_000_000}), "too_long"),
}


@pytest.mark.case("X19")
@pytest.mark.parametrize("what", HOSTILE)
def test_what_cannot_be_read_changes_nothing_and_is_said_in_a_few_words(
    worker: Context, runs_dir: Path, what: str
) -> None:
    text, code = HOSTILE[what]
    with refused(runs_dir, InvalidInput, code):
        outcomes.hand_on(worker, text)
    with pytest.raises(InvalidInput) as said:
        outcomes.hand_on(worker, text)
    assert 0 < len(said.value.message) < 400
    assert not now(worker).finished
    handed_on(worker, {"success": {"result": "after all"}})
    assert now(worker).text == "after all"


@pytest.mark.parametrize("extra", ["deep", "large"])
def test_what_stands_beside_an_outcome_does_not_matter(worker: Context, extra: str) -> None:
    # As deep as JSON is read at all.
    more = "[" * 500 + "]" * 500 if extra == "deep" else f'"{"x" * 2_000_000}"'
    outcomes.hand_on(worker, f'{{"type": "success", "result": "x", "more": {more}}}')
    assert now(worker).text == "x"


def stopped(kind: str, text: str) -> Callable[[Context, Context], None]:
    return lambda _, child: changed(child, wanted.Stop(kind, text, 0))


def ended(code: int, summary: str | None = None, output: str | None = None) -> Callable[[Context, Context], None]:
    return lambda _, child: changed(child, wanted.Exit(1, code, summary, output))


def changed(child: Context, command: wanted.Command) -> None:
    assert child.caller.run_id is not None
    child.runs.change(child.caller.run_id, command, child.clock.now)


def submitted(word: str, text: str, kind: str | None = None) -> Callable[[Context, Context], None]:
    def submit(_: Context, child: Context) -> None:
        outcomes.submit(child, word, text, kind=kind)

    return submit


def reported(status: str, summary: str | None) -> Callable[[Context, Context], None]:
    def report(desk: Context, child: Context) -> None:
        runs.update(desk, child.caller.run_id, status, summary)

    return report


ENDS: dict[str, Callable[[Context, Context], None]] = {
    "a result": submitted("result", "12 notes\nand ä"),
    "an error": submitted("error", "no disk"),
    "an error of a kind": submitted("error", "no disk", "rate_limit"),
    "cancelled": stopped("cancelled", "Not needed."),
    "timed out": stopped("timed_out", TIMED_OUT_TEXT),
    "reported success": reported("success", "Tidy."),
    "reported completed": reported("completed", "Tidy."),
    "reported error": reported("error", "Untidy."),
    "its last output": ended(0, output="It is done."),
    "the end of its log": ended(3, summary="Segmentation fault"),
}
QUIET_ENDS: dict[str, Callable[[Context, Context], None]] = {
    "reported success": reported("success", None),
    "reported error": reported("error", None),
    "exited well": ended(0),
    "exited badly": ended(1),
}


def written_of(desk: Context, end: Callable[[Context, Context], None]) -> Any:
    """The outcome of a child that has ended so, as its parent reads it."""
    child = new_worker(desk)
    end(desk, child)
    [item] = outcomes.aggregate(desk, [now(child)])
    return item["outcome"]


@pytest.mark.case("X19")
@pytest.mark.parametrize("end", ENDS)
def test_however_a_run_has_ended_what_is_written_of_it_can_be_handed_on(
    desk: Context, worker: Context, end: str
) -> None:
    written = written_of(desk, ENDS[end])
    handed_on(worker, written)
    assert outcomes.outcome(now(worker)) == written


def test_that_a_child_was_lost_can_be_handed_on_though_no_worker_may_say_so_of_itself(
    desk: Context, worker: Context
) -> None:
    written = written_of(desk, stopped("lost", LOST_TEXT))
    assert written == {"failure": {"error": LOST_TEXT, "error_kind": "lost"}}
    handed_on(worker, written)
    assert outcomes.outcome(now(worker))["failure"]["error"] == LOST_TEXT
    assert now(worker).state == "error"


@pytest.mark.parametrize("end", QUIET_ENDS)
def test_of_a_run_that_ended_without_a_word_something_is_written_that_can_be_handed_on(
    desk: Context, worker: Context, end: str
) -> None:
    written = written_of(desk, QUIET_ENDS[end])
    handed_on(worker, written)
    assert outcomes.outcome(now(worker)).keys() == written.keys()
    assert now(worker).text


@pytest.mark.parametrize("text", [None, ""])
@pytest.mark.parametrize("word", ["success", "failure"])
def test_an_outcome_without_a_word_is_one_that_says_so(worker: Context, word: str, text: str | None) -> None:
    handed_on(worker, {word: {"result" if word == "success" else "error": text}})
    assert now(worker).phase == ("success" if word == "success" else "error")
    assert now(worker).text == "It ended without a word"


@pytest.mark.case("X19")
@given(st.text(min_size=1), st.none() | st.sampled_from(KINDS))
def test_whatever_was_said_is_handed_on_to_the_letter(text: str, kind: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = open_context({"runs_dir": f"{folder}/runs"}, StillClock())
        first, second = new_worker(desk), new_worker(desk)
        outcomes.submit(first, "error" if kind else "result", text, kind=kind)
        written: dict[str, Any] = outcomes.outcome(now(first))
        handed_on(second, written)
        assert outcomes.outcome(now(second)) == written
        assert (now(second).text, now(second).kind) == (text, kind)


@pytest.mark.case("X19")
@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_hands_on_what_a_wait_has_printed(cli: Command, runs_dir: Path, code: int) -> None:
    env = cli("create", "helper", "Do it", "--json").json["env"]
    with all_ended(runs_dir):
        group = cli("spawn", "--task", "x", "--", "sh", "-c", f"echo It is done.; exit {code}").out.strip()
        [item] = cli("wait", group, "--json").json["sub_agent_results"]
    assert list(item["outcome"]) == ["failure" if code else "success"]
    done = cli("submit", "outcome", "-", input=json.dumps(item["outcome"]).encode(), env=env)
    assert (done.code, done.out, done.err) == (0, "", "outcome submitted; end now\n")
    found = cli("result", env["SUBAGENT_RUN_ID"], "--json")
    if code:
        assert (found.code, found.json["error"], found.json["kind"]) == (10, *item["outcome"]["failure"].values())
    else:
        assert (found.code, found.json["result"]) == (0, "It is done.")


@pytest.mark.case("X19")
def test_what_is_no_outcome_is_a_mistake_of_whoever_typed_it(cli: Command) -> None:
    env = cli("create", "helper", "Do it", "--json").json["env"]
    refusal = cli("submit", "outcome", "It is done.", "--json", env=env)
    assert (refusal.code, refusal.json["error"]["code"]) == (2, "invalid_outcome")
    assert "failure" in refusal.json["error"]["hint"]
    assert cli("submit", "outcome", '{"type": "timed_out"}', "--kind", "network", env=env).code == 2
    assert cli("status", env["SUBAGENT_RUN_ID"], "--json").json["state"] == "pending"

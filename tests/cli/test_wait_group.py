"""`wait`, `status` and `cancel` of a group: what wakes a parent, what it is told, and how a whole tree ends."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.ids import short
from tests.cli.living import (
    QUICK,
    Gate,
    all_ended,
    eventually,
    finished,
    interrupted,
    keeper_of,
    one_line,
    over,
    processes,
    program,
    started,
    waiting,
)
from tests.command import Command, Done
from tests.services.desk import journal, snapshot

TASK = "task=$(tail -n 1)\n"
LATE = "Timed out: sub-agent exceeded its time limit"


@pytest.fixture(autouse=True)
def _nothing_survives(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    with all_ended(runs_dir):
        yield


class Doors:
    """A gate for each child, by its task: each says that it is there, and goes through when it is let."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gates: dict[str, Gate] = {}

    def group(self, cli: Command, *tasks: str, then: str = 'subagent submit result "$task"', options: str = "") -> str:
        """A group of children that wait at their doors."""
        for task in tasks:
            self._gates[task] = Gate(self._folder, task)
        script = f"{TASK}echo here > {self._folder}/$task.said\nread word < {self._folder}/$task.word\n{then}"
        given = [word for task in tasks for word in ("--task", task)]
        done = cli("spawn", *given, *options.split(), "--", "sh", "-c", script)
        assert done.code == 0, done
        for task in tasks:
            assert self._gates[task].heard() == "here"
        return done.out.strip()

    def open(self, *tasks: str, word: str = "go") -> None:
        for task in tasks:
            self._gates[task].open(word)

    def close(self) -> None:
        for gate in self._gates.values():
            gate.close()


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Doors]:
    made = Doors(tmp_path)
    yield made
    made.close()


def ids(cli: Command, group: str) -> list[str]:
    found = cli("status", group, "--json").json
    return [child["runId"] for child in reversed(cli("list", "--group", found["group_id"], "--json").json)]


def standing(cli: Command, group: str) -> tuple[str, list[str], list[str]]:
    found = cli("status", group, "--json").json
    return found["state"], found["pending"], found["completed"]


def outcomes(done: Done) -> list[tuple[str, dict[str, Any]]]:
    return [(item["task"], item["outcome"]) for item in done.json["sub_agent_results"]]


def success(text: str) -> dict[str, Any]:
    return {"success": {"result": text}}


def failure(text: str, kind: str) -> dict[str, Any]:
    return {"failure": {"error": text, "error_kind": kind}}


CANCELLED = failure("Cancelled", "cancelled")


@pytest.mark.case("C2-24", "C2-25", "C2-26")
def test_the_last_outcome_ends_the_wait_and_no_earlier_one(cli: Command, doors: Doors) -> None:
    group = doors.group(cli, "a", "b", "c")
    a, b, c = ids(cli, group)
    wait = waiting(cli.start("wait", group, "--json"))
    assert standing(cli, group) == ("AwaitingSubAgents", [a, b, c], [])
    doors.open("b")
    over(cli, b)
    assert standing(cli, group) == ("AwaitingSubAgents", [a, c], [b])
    doors.open("a")
    over(cli, a)
    assert standing(cli, group) == ("AwaitingSubAgents", [c], [a, b])
    assert wait.poll() is None
    doors.open("c")
    done = finished(wait)
    assert done.code == 0
    assert done.json["woke"] == "done"
    assert done.json["pending"] == []
    assert outcomes(done) == [("a", success("a")), ("b", success("b")), ("c", success("c"))]
    assert standing(cli, group) == ("done", [], [a, b, c])


@pytest.mark.case("C2-31", "C2-32", "C2-33", "X19", "X34")
def test_the_aggregate_has_the_form_of_the_seed(cli: Command) -> None:
    script = f"""{TASK}
        case $task in
            fine) subagent submit result 'all well' ;;
            broken) subagent submit error 'not so well' ;;
            limited) subagent submit error 'slow down' --kind rate_limit ;;
            silent) echo 'last words' ;;
            crashed) echo 'oh no' >&2; exit 3 ;;
        esac
    """
    tasks = ["fine", "broken", "limited", "silent", "crashed"]
    words = [word for task in tasks for word in ("--task", task)]
    told = cli("spawn", *words, "--json", "--", "sh", "-c", script).json
    done = over(cli, told["group_id"])
    assert done.code == 20
    found = done.json["sub_agent_results"]
    assert [list(item) for item in found] == [["agent_id", "task", "outcome"]] * 5
    assert [item["agent_id"] for item in found] == told["agent_ids"]
    assert [item["task"] for item in found] == tasks
    assert [item["outcome"] for item in found[:4]] == [
        success("all well"),
        failure("not so well", "sub_agent_error"),
        failure("slow down", "rate_limit"),
        success("last words"),
    ]
    assert found[4]["outcome"]["failure"]["error_kind"] == "sub_agent_error"
    assert cli("status", told["group_id"], "--json").json["sub_agent_results"] == found


@pytest.mark.case("X34", "C2-33")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("result", "result"), 0),
        (("result", "error"), 20),
        (("error", "error"), 10),
        (("cancelled", "cancelled"), 11),
        (("cancelled", "result"), 20),
        (("cancelled", "error"), 10),
    ],
)
def test_the_exit_code_sums_up_a_group(cli: Command, doors: Doors, words: tuple[str, str], code: int) -> None:
    group = doors.group(cli, "a", "b", then="subagent submit $word it")
    for task, run_id, word in zip(("a", "b"), ids(cli, group), words, strict=True):
        if word == "cancelled":
            assert cli("cancel", run_id).code == 0
        else:
            doors.open(task, word=word)
    done = over(cli, group)
    assert done.code == code
    assert len(done.json["sub_agent_results"]) == 2


@pytest.mark.case("X20", "C2-32")
def test_results_come_in_the_order_of_the_tasks_or_of_their_ends(cli: Command, doors: Doors) -> None:
    group = doors.group(cli, "a", "b", "c")
    by_task = dict(zip("abc", ids(cli, group), strict=True))
    for task in "cab":
        doors.open(task)
        over(cli, by_task[task])
    assert [task for task, _ in outcomes(over(cli, group))] == ["a", "b", "c"]
    assert [task for task, _ in outcomes(over(cli, group, "--order", "completion"))] == ["c", "a", "b"]


@pytest.mark.case("C2-29")
def test_outcomes_that_came_before_the_wait_are_there(cli: Command, doors: Doors) -> None:
    group = doors.group(cli, "a", "b")
    doors.open("a")
    over(cli, ids(cli, group)[0])
    wait = waiting(cli.start("wait", group, "--json"))
    assert wait.poll() is None
    doors.open("b")
    assert outcomes(finished(wait)) == [("a", success("a")), ("b", success("b"))]
    again = cli("wait", group, "--json", "--timeout", "5s")
    assert (again.code, outcomes(again)) == (0, [("a", success("a")), ("b", success("b"))])


@pytest.mark.case("C2-28")
def test_a_second_outcome_is_refused_and_the_first_is_kept(cli: Command, tmp_path: Path) -> None:
    script = f"""
        subagent submit result first > /dev/null
        for word in result error; do
            subagent submit $word second --json >> {tmp_path}/said; echo $? >> {tmp_path}/code
        done
        subagent submit result first > /dev/null; echo $? >> {tmp_path}/code
    """
    patient = {"SUBAGENT_SUBMIT_GRACE": "60s"}
    done = over(cli, cli("spawn", "--task", "one", "--", "sh", "-c", script, env=patient).out.strip())
    assert outcomes(done) == [("one", success("first"))]
    assert (tmp_path / "code").read_text().split() == ["4", "4", "0"]
    refusals = [json.loads(line)["error"]["code"] for line in (tmp_path / "said").read_text().splitlines()]
    assert refusals == ["run_finished", "run_finished"]


@pytest.mark.case("C2-27")
def test_the_outcome_of_a_stranger_is_none_of_the_groups(cli: Command, doors: Doors) -> None:
    group, other = doors.group(cli, "a"), doors.group(cli, "x")
    [a] = ids(cli, group)
    wait = waiting(cli.start("wait", group, "--json"))
    doors.open("x")
    assert over(cli, other).code == 0
    assert wait.poll() is None
    assert standing(cli, group) == ("AwaitingSubAgents", [a], [])
    doors.open("a")
    assert outcomes(finished(wait)) == [("a", success("a"))]


@pytest.mark.case("C2-34")
def test_a_worker_without_children_does_not_wait(cli: Command) -> None:
    run_id = started(cli, "--max-depth", "2", script="subagent wait --json; echo $?")
    over(cli, run_id)
    told, code = cli("result", run_id, "--json").json["result"].splitlines()
    assert code == "0"
    found = json.loads(told)
    assert (found["woke"], found["sub_agent_results"], found["pending"]) == ("done", [], [])


@pytest.mark.case("C2-10", "C2-34")
def test_the_operator_says_what_to_wait_for(cli: Command) -> None:
    cli("create", "helper", "Do it")
    done = cli("wait")
    assert done.code == 2
    assert one_line(done) == "no run is named"


@pytest.mark.case("C2-10")
def test_a_worker_waits_in_spite_of_what_a_crash_left_in_the_index(cli: Command, runs_dir: Path, gate: Gate) -> None:
    """An entry may outlive what it names: whoever died while it spawned left one."""
    script = f"echo here > {gate.said}; read word < {gate.word}; subagent wait --json"
    parent = started(cli, "--max-depth", "2", script=script)
    assert gate.heard() == "here"
    (runs_dir / ".index" / "children" / parent).mkdir(parents=True)
    (runs_dir / ".index" / "children" / parent / "0190a000-0000-7000-8000-00000000dead").touch()
    gate.open()
    assert over(cli, parent).code == 0
    assert json.loads(cli("result", parent, "--json").json["result"])["woke"] == "done"


def test_runs_and_groups_are_waited_for_together(cli: Command, doors: Doors) -> None:
    group, other = doors.group(cli, "a", "b"), doors.group(cli, "c")
    run_id = started(cli, script="echo single")
    wait = waiting(cli.start("wait", short(group), run_id, other, group, "--json"))
    doors.open("a", "b", "c")
    done = finished(wait)
    assert done.code == 0
    assert [task for task, _ in outcomes(done)] == ["a", "b", "Do it", "c"]
    over(cli, group, run_id, other)


@pytest.mark.case("X32")
def test_a_wait_that_runs_out_of_time_cancels_nothing(cli: Command, doors: Doors, runs_dir: Path) -> None:
    group = doors.group(cli, "a", "b")
    a, b = ids(cli, group)
    doors.open("a")
    over(cli, a)
    before = snapshot(runs_dir, locks=False)
    done = cli("wait", group, "--timeout", "100ms", "--json")
    assert done.code == 124
    assert (done.json["woke"], done.json["pending"]) == ("timeout", [group])
    assert outcomes(done) == [("a", success("a"))]
    assert snapshot(runs_dir, locks=False) == before
    assert interrupted(cli.start("wait", group)).code == 130
    assert standing(cli, group) == ("AwaitingSubAgents", [b], [a])
    doors.open("b")
    assert over(cli, group).code == 0


def test_any_wakes_with_the_first_and_leaves_the_others(cli: Command, doors: Doors) -> None:
    group = doors.group(cli, "a", "b", "c")
    wait = waiting(cli.start("wait", group, "--any", "--json"))
    doors.open("b")
    done = finished(wait)
    assert (done.code, outcomes(done)) == (0, [("b", success("b"))])
    assert len(standing(cli, group)[1]) == 2
    doors.open("a", "c")
    assert over(cli, group).code == 0


def test_a_quorum_can_cancel_the_rest(cli: Command, doors: Doors, runs_dir: Path) -> None:
    group = doors.group(cli, "a", "b", "c", "d")
    _, b, c, d = ids(cli, group)
    wait = waiting(cli.start("wait", group, "--count", "2", "--cancel-rest", "--json"))
    doors.open("c")
    over(cli, c)
    assert wait.poll() is None
    doors.open("a", word="go")
    done = finished(wait)
    assert done.code == 0
    assert outcomes(done) == [("a", success("a")), ("c", success("c"))]
    assert set(done.json["cancelled"]) == {b, d}
    assert processes(runs_dir) == []
    everything = cli("wait", group, "--json")
    assert everything.code == 20
    assert outcomes(everything) == [("a", success("a")), ("b", CANCELLED), ("c", success("c")), ("d", CANCELLED)]


def test_the_first_of_a_race_cancels_the_others(cli: Command, doors: Doors, runs_dir: Path) -> None:
    group = doors.group(cli, "a", "b")
    doors.open("b")
    done = cli("wait", group, "--any", "--cancel-rest", "--json")
    assert (done.code, outcomes(done)) == (0, [("b", success("b"))])
    assert processes(runs_dir) == []
    assert standing(cli, group)[0] == "done"


@pytest.mark.parametrize(
    "words",
    [
        ("--count", "3"),
        ("--count", "0"),
        ("--count", "1", "--any"),
        ("--cancel-rest",),
        ("--after", "nonsense"),
        ("--timeout", "soon"),
        ("--order", "best"),
    ],
)
def test_bad_words_to_a_wait_are_refused(cli: Command, runs_dir: Path, words: tuple[str, ...]) -> None:
    group = cli("spawn", "--task", "a", "--task", "b", "--", "true").out.strip()
    over(cli, group)
    before = snapshot(runs_dir, locks=False)
    done = cli("wait", group, *words)
    assert done.code == 2, done
    one_line(done)
    assert snapshot(runs_dir, locks=False) == before


def test_a_group_that_is_not_there_is_not_found(cli: Command) -> None:
    cli("create", "helper", "Do it")
    nobody = "0190a000-0000-7000-8000-000000000000"
    for verb in ("wait", "cancel"):
        done = cli(verb, nobody)
        assert done.code == 3
        assert nobody in one_line(done)


def test_a_group_whose_record_is_broken_says_so(cli: Command, runs_dir: Path) -> None:
    group = cli("spawn", "--task", "a", "--", "true").out.strip()
    over(cli, group)
    for content in (b"", b"{", b"[]", b'{"children": 7}', b'{"children": [7]}', b'{"children": [{"task": "x"}]}'):
        (runs_dir / ".groups" / f"{group}.json").write_bytes(content)
        for verb in ("wait", "status", "cancel"):
            done = cli(verb, group)
            assert done.code not in (0, 2), (verb, content, done)
            assert group in one_line(done), (verb, content)


@pytest.mark.case("C2-48", "C2-49")
def test_a_deadline_ends_what_is_left_and_the_aggregate_is_complete(cli: Command, doors: Doors, runs_dir: Path) -> None:
    group = doors.group(cli, "a", "b", "c", options="--deadline 1s")
    doors.open("b")
    done = over(cli, group)
    assert done.code == 20
    late = failure(LATE, "timed_out")
    assert outcomes(done) == [("a", late), ("b", success("b")), ("c", late)]
    assert standing(cli, group)[0] == "done"
    assert processes(runs_dir) == []
    assert cli("status", group, "--json").json["deadline_seconds"] == 1


@pytest.mark.case("C2-48", "C2-49")
def test_a_deadline_holds_whether_or_not_anybody_waits(cli: Command, runs_dir: Path) -> None:
    group = cli("spawn", "--task", "a", "--deadline", "200ms", "--", "sleep", "60").out.strip()
    eventually(lambda: standing(cli, group)[0] == "done")
    assert outcomes(over(cli, group)) == [("a", failure(LATE, "timed_out"))]


@pytest.mark.case("C2-48")
def test_a_shorter_limit_of_a_task_stays(cli: Command, tmp_path: Path) -> None:
    table = {"tasks": [{"task": "short", "timeout": "150ms"}, {"task": "long", "timeout": "1h"}, {"task": "none"}]}
    (tmp_path / "tasks.json").write_text(json.dumps(table))
    done = cli("spawn", "--tasks", "tasks.json", "--deadline", "400ms", "--", "sleep", "60")
    waited = over(cli, done.out.strip())
    assert waited.code == 10
    assert outcomes(waited) == [
        ("short", failure("Sub-agent timed out", "timed_out")),
        ("long", failure(LATE, "timed_out")),
        ("none", failure(LATE, "timed_out")),
    ]


@pytest.mark.case("C2-49")
def test_a_deadline_means_nothing_once_a_child_has_ended(cli: Command, runs_dir: Path) -> None:
    group = cli("spawn", "--task", "a", "--deadline", "300ms", "--", "echo", "early").out.strip()
    assert over(cli, group).code == 0
    [run_id] = ids(cli, group)
    before = journal(runs_dir, run_id)
    later = cli("spawn", "--task", "b", "--deadline", "400ms", "--", "sleep", "60").out.strip()
    over(cli, later)
    assert journal(runs_dir, run_id) == before
    assert outcomes(over(cli, group)) == [("a", success("early"))]


@pytest.mark.case("C2-37", "C2-38", "C2-44")
def test_cancelling_a_group_reaches_exactly_those_that_are_at_it(cli: Command, doors: Doors, runs_dir: Path) -> None:
    group = doors.group(cli, "a", "b", "c")
    a, b, c = ids(cli, group)
    doors.open("b")
    over(cli, b)
    before = journal(runs_dir, b)
    wait = waiting(cli.start("wait", group, "--json"))
    done = cli("cancel", group, "--json")
    assert done.code == 0
    assert (done.json["cancelled"], done.json["ended"]) == ([a, c], [b])
    waited = finished(wait)
    assert processes(runs_dir) == []
    assert journal(runs_dir, b) == before
    for run_id in (a, c):
        assert [event["kind"] for event in journal(runs_dir, run_id) if event["type"] == "stopped"] == ["cancelled"]
    assert waited.code == 20
    assert outcomes(waited) == [("a", CANCELLED), ("b", success("b")), ("c", CANCELLED)]
    assert standing(cli, group) == ("done", [], [a, b, c])
    again = cli("cancel", group, "--json")
    assert (again.code, again.json["cancelled"], again.json["ended"]) == (0, [], [a, b, c])


@pytest.mark.case("C2-37", "C2-38")
def test_while_a_group_is_cancelled_it_shows_and_outcomes_are_collected(
    cli: Command, tmp_path: Path, gate: Gate
) -> None:
    script = f"""{TASK}
        trap 'echo asked > {gate.said}; read word < {gate.word}; exit 0' TERM
        [ $task = quick ] && trap - TERM
        echo here > {gate.said}
        while :; do read word < {tmp_path}/never; done
    """
    os.mkfifo(tmp_path / "never")
    told = cli("spawn", "--task", "slow", "--task", "quick", "--json", "--", "sh", "-c", script).json
    assert {gate.heard(), gate.heard()} == {"here"}
    slow, quick = told["agent_ids"]
    cancel = cli.start("cancel", told["group_id"], "--grace", "20s", "--json")
    assert gate.heard() == "asked"
    over(cli, quick)
    assert standing(cli, told["group_id"]) == ("CancellingSubAgents", [slow], [quick])
    assert cancel.poll() is None
    gate.open()
    assert finished(cancel).code == 0
    assert standing(cli, told["group_id"]) == ("done", [], [slow, quick])
    assert over(cli, told["group_id"]).code == 11


TREE = """
    depth=$SUBAGENT_DEPTH
    echo "$depth $SUBAGENT_RUN_ID" > {said}
    if [ $depth -lt 3 ]; then subagent spawn --task left --task right -- sh {tree} > /dev/null; fi
    exec sleep 60
"""


@pytest.mark.case("C2-44", "X12")
def test_cancelling_a_tree_of_depth_three_leaves_no_process(
    cli: Command, runs_dir: Path, tmp_path: Path, gate: Gate
) -> None:
    tree = tmp_path / "tree.sh"
    tree.write_text(TREE.format(said=gate.said, tree=tree))
    group = cli("spawn", "--task", "left", "--task", "right", "--max-depth", "3", "--", "sh", tree).out.strip()
    heard = [gate.heard().split() for _ in range(14)]
    assert sorted(depth for depth, _ in heard) == ["1"] * 2 + ["2"] * 4 + ["3"] * 8
    assert len(processes(runs_dir)) >= 28
    done = cli("cancel", group, "--json")
    assert processes(runs_dir) == []
    assert done.code == 0, done
    assert set(done.json["cancelled"]) == {run_id for _, run_id in heard}
    assert over(cli, group).code == 11


@pytest.mark.case("C2-44")
def test_cancelling_a_parent_takes_its_tree_with_it(cli: Command, runs_dir: Path, tmp_path: Path, gate: Gate) -> None:
    tree = tmp_path / "tree.sh"
    tree.write_text(TREE.format(said=gate.said, tree=tree))
    done = cli("run", "top", "--max-depth", "3", "--", "sh", tree)
    parent = done.out.strip()
    heard = [gate.heard().split() for _ in range(7)]
    assert cli("cancel", parent).code == 0
    assert processes(runs_dir) == []
    for _, run_id in heard:
        assert cli("result", run_id).code == 11


def test_a_question_of_a_child_wakes_and_the_wait_goes_on_behind_it(cli: Command, doors: Doors) -> None:
    group = doors.group(cli, "a", "b", then='subagent submit result "$task: $(subagent ask "Which, $task?" --wait)"')
    wait = waiting(cli.start("wait", group, "--json"))
    doors.open("b")
    first = finished(wait)
    assert first.code == 12
    [question] = first.json["questions"]
    assert (question["question"], question["run_id"]) == ("Which, b?", ids(cli, group)[1])
    assert first.json["next"][0].startswith(f"subagent reply {short(question['message_id'])}")
    behind = waiting(cli.start("wait", group, "--after", first.json["cursor"], "--json"))
    assert cli("reply", question["message_id"], "that").code == 0
    doors.open("a")
    second = finished(behind)
    assert second.code == 12
    assert [item["question"] for item in second.json["questions"]] == ["Which, a?"]
    cli("reply", second.json["questions"][0]["message_id"], "this")
    assert outcomes(over(cli, group)) == [("a", success("a: this")), ("b", success("b: that"))]


@pytest.mark.case("X12")
def test_a_question_of_a_grandchild_wakes(cli: Command, tmp_path: Path, gate: Gate) -> None:
    leaf = program(tmp_path / "leaf", 'subagent submit result "$(subagent ask "From deep down?" --wait)"')
    middle = program(
        tmp_path / "middle", f"subagent wait $(subagent spawn --task leaf -- {leaf}) --no-questions --json"
    )
    top = f"""
        echo here > {gate.said}; read word < {gate.word}
        subagent wait $(subagent spawn --task middle -- {middle}) --no-questions --json
    """
    group = cli("spawn", "--task", "top", "--max-depth", "3", "--", "sh", "-c", top).out.strip()
    assert gate.heard() == "here"
    # The wait begins before any of the runs below is there.
    wait = waiting(cli.start("wait", group, "--json"))
    gate.open()
    done = finished(wait)
    assert done.code == 12
    [question] = done.json["questions"]
    assert question["question"] == "From deep down?"
    assert question["run_id"] not in ids(cli, group)
    assert cli("reply", question["message_id"], "yes").code == 0
    found = over(cli, group).json
    for _ in range(3):
        result = found["sub_agent_results"][0]["outcome"]["success"]["result"]
        found = json.loads(result) if result.startswith("{") else result
    assert found == "yes"


@pytest.mark.case("C2-21", "C2-33")
def test_what_is_killed_in_the_middle_loses_no_other_result(cli: Command, runs_dir: Path, doors: Doors) -> None:
    group = doors.group(cli, "a", "b", "c", "d")
    by_task = dict(zip("abcd", ids(cli, group), strict=True))
    shell = waiting(cli.start("wait", group))
    doors.open("a")
    over(cli, by_task["a"])
    os.killpg(shell.pid, signal.SIGKILL)
    keeper, child = keeper_of(runs_dir, by_task["b"]), keeper_of(runs_dir, by_task["c"])
    os.kill(keeper, signal.SIGKILL)
    [agent] = Path(f"/proc/{child}/task/{child}/children").read_text().split()
    os.kill(int(agent), signal.SIGKILL)
    doors.open("d")
    done = over(cli, group)
    assert done.code == 20
    found = dict(outcomes(done))
    assert (found["a"], found["d"]) == (success("a"), success("d"))
    assert found["b"]["failure"]["error_kind"] == "lost"
    assert "failure" in found["c"]
    assert len(done.json["sub_agent_results"]) == 4
    # What the keeper left behind is found and ended.
    assert cli("cancel", group).code == 0
    assert processes(runs_dir) == []


@pytest.mark.case("C2-21", "X21")
def test_a_spawn_that_is_killed_on_its_way_loses_no_child_that_started(
    cli: Command, runs_dir: Path, gate: Gate
) -> None:
    script = f'{TASK}echo "$task" > {gate.said}; read word < {gate.word}; subagent submit result "$task"'
    words = [word for number in range(10) for word in ("--task", f"task {number}")]
    spawn = cli.start("spawn", *words, "--", "sh", "-c", script)
    heard = {gate.heard()}
    os.killpg(spawn.pid, signal.SIGKILL)
    finished(spawn)
    [group] = [path.stem for path in (runs_dir / ".groups").glob("*.json")]
    for _ in range(10):
        gate.open()
    found = dict(outcomes(over(cli, group)))
    assert list(found) == words[1::2]
    while not gate.silent():
        heard.add(gate.heard())
    for task, outcome in found.items():
        assert outcome == (success(task) if task in heard else failure(outcome["failure"]["error"], "lost"))


@pytest.mark.limit(60)
def test_twenty_children_are_answered_from_one_loop(cli: Command) -> None:
    script = f'{TASK}answer=$(subagent ask "What about $task?" --wait)\nsubagent submit result "$task: $answer"'
    tasks = [f"task {number}" for number in range(20)]
    words = [word for task in tasks for word in ("--task", task)]
    told = cli("spawn", *words, "--json", "--", "sh", "-c", script, env={"SUBAGENT_MAX_CHILDREN": "20"}).json
    answered: list[str] = []
    woke = cli("wait", told["group_id"], "--json")
    while woke.code == 12:
        for question in woke.json["questions"]:
            assert cli("reply", question["message_id"], f"answer to {question['question']}").code == 0
            answered.append(question["message_id"])
        woke = cli("wait", told["group_id"], "--json")
    assert woke.code == 0
    assert len(set(answered)) == len(answered) == 20
    assert [item["agent_id"] for item in woke.json["sub_agent_results"]] == told["agent_ids"]
    assert outcomes(woke) == [(task, success(f"{task}: answer to What about {task}?")) for task in tasks]
    over(cli, told["group_id"])


def test_a_person_sees_how_a_group_stands(cli: Command, doors: Doors) -> None:
    group = doors.group(cli, "a", "b")
    a, b = ids(cli, group)
    doors.open("a")
    over(cli, a)
    shown = cli("status", short(group))
    assert shown.code == 0
    assert shown.out.splitlines() == [
        f"Group ID: {group}",
        "State: AwaitingSubAgents",
        f"Pending: {short(b)}",
        f"{short(a)}  success  a",
        f"  subagent wait {short(group)}",
    ]
    doors.open("b")
    assert over(cli, group).code == 0
    told = cli("wait", group).out.splitlines()
    assert told == [f"{short(a)}  success  a", f"{short(b)}  success  b"]

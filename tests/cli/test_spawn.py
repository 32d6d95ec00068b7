"""`subagent spawn`: many children at once, whole or not at all, and what each of them gets."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.ids import is_uuid, short
from tests.cli.living import (
    QUICK,
    Gate,
    all_ended,
    eventually,
    finished,
    keeper_of,
    one_line,
    over,
    processes,
    program,
    started,
)
from tests.command import Command, Done
from tests.services.desk import journal, snapshot

TASK = "task=$(tail -n 1)\n"


@pytest.fixture(autouse=True)
def _nothing_survives(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    with all_ended(runs_dir):
        yield


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two agents of our own; one of them has a choice of models."""
    program(tmp_path / "bin" / "thinker", f'{TASK}subagent submit result "$task by ${{2:-none}}"')
    program(tmp_path / "bin" / "plain", f'{TASK}subagent submit result "$task plainly"')
    file = tmp_path / "bin" / "agents.toml"
    file.write_text(
        '[agents.thinker]\ncommand = ["./thinker"]\nmodel = ["--model", "{model}"]\n'
        '[agents.plain]\ncommand = ["./plain"]\n'
    )
    monkeypatch.setenv("SUBAGENT_AGENTS", str(file))
    return file


def spawned(cli: Command, *tasks: str, script: str, options: tuple[str, ...] = (), **env: str | None) -> dict[str, Any]:
    """A new group of children that run a shell script, as `spawn --json` tells of it."""
    given = [word for task in tasks for word in ("--task", task)]
    done = cli("spawn", *given, *options, "--json", "--", "sh", "-c", script, env=env)
    assert done.code == 0, done
    told: dict[str, Any] = done.json
    return told


def results(done: Done) -> list[str]:
    """What children came to, in words."""
    came = [next(iter(item["outcome"].values())) for item in done.json["sub_agent_results"]]
    return [outcome.get("result") or outcome.get("error") for outcome in came]


def spec(runs_dir: Path, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((runs_dir / run_id / "run.json").read_bytes())
    return found


def tasks_file(tmp_path: Path, *tasks: object) -> Path:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps({"tasks": tasks}))
    return path


def nothing_came_of(cli: Command, runs_dir: Path, *words: object, code: int, **env: str | None) -> str:
    """What a refused spawn says in its one line; it has left nothing behind, in a store that was in use."""
    over(cli, spawned(cli, "earlier", script="true")["group_id"])
    before = snapshot(runs_dir, locks=False)
    done = cli("spawn", *words, env=env)
    assert done.code == code, done
    assert snapshot(runs_dir, locks=False) == before
    assert [name for name in os.listdir(runs_dir / ".locks") if name.endswith(".wake")] == []
    assert processes(runs_dir) == []
    return one_line(done)


@pytest.mark.case("C2-03")
def test_ids_are_there_before_the_children_end(cli: Command, gate: Gate) -> None:
    told = spawned(cli, "one", "two", script=f"echo here > {gate.said}; read word < {gate.word}")
    assert {gate.heard(), gate.heard()} == {"here"}
    assert len({told["group_id"], *told["agent_ids"]}) == 3
    assert all(map(is_uuid, (told["group_id"], *told["agent_ids"])))
    first, second = told["agent_ids"]
    assert told["output"] == f"Spawning 2 sub-agents: {first}, {second}"
    assert cli("status", told["group_id"], "--json").json["pending"] == told["agent_ids"]
    gate.open()
    gate.open()
    assert over(cli, told["group_id"]).code == 0


@pytest.mark.case("C2-03")
def test_a_script_reads_the_id_of_the_group_and_a_person_the_rest(cli: Command) -> None:
    done = cli("spawn", "--task", "one", "--", "true")
    assert done.code == 0
    assert is_uuid(done.out.strip())
    assert re.fullmatch(r"Spawning 1 sub-agents: [0-9a-f-]{36}\n", done.err), done
    assert over(cli, done.out.strip()).code == 0


@pytest.mark.case("C2-02")
def test_a_task_says_where_it_differs_from_the_others(
    cli: Command, runs_dir: Path, tmp_path: Path, agents: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    file = tasks_file(
        tmp_path,
        {"task": "as all"},
        {"task": "there", "cwd": "elsewhere", "name": "second", "timeout": "50s", "mode": "work"},
        {"task": "by number", "timeout": 1.5},
        {"task": "by another", "agent": "plain"},
        {"task": "with a model", "model": "big"},
    )
    done = cli("spawn", "thinker", "--tasks", file, "--timeout", "40s", "--json")
    assert done.code == 0, done
    specs = [spec(runs_dir, run_id) for run_id in done.json["agent_ids"]]
    assert [one["cwd"] for one in specs] == [str(tmp_path), str(tmp_path / "elsewhere"), *[str(tmp_path)] * 3]
    assert [one["name"] for one in specs] == [None, "second", None, None, None]
    assert [one["timeoutSeconds"] for one in specs] == [40, 50, 1.5, 40, 40]
    assert [one["agentName"] for one in specs] == ["thinker", "thinker", "thinker", "plain", "thinker"]
    assert [one["mode"] for one in specs] == [None, "work", None, None, None]
    assert results(over(cli, done.json["group_id"])) == [
        "as all by none",
        "there by none",
        "by number by none",
        "by another plainly",
        "with a model by big",
    ]


@pytest.mark.case("C2-02")
def test_tasks_come_from_standard_input_too(cli: Command) -> None:
    table = json.dumps({"tasks": [{"task": "žluť 🦊"}]}).encode()
    script = f'{TASK}echo "$task"'
    done = cli("spawn", "--task", "first", "--tasks", "-", "--json", "--", "sh", "-c", script, input=table)
    assert done.code == 0, done
    assert results(over(cli, done.json["group_id"])) == ["first", "žluť 🦊"]


@pytest.mark.case("C2-02")
def test_without_a_folder_of_its_own_a_child_works_where_its_parent_does(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    inner = "subagent wait $(subagent spawn --task inner -- pwd) --json"
    parent = started(cli, "--max-depth", "2", "--cwd", str(tmp_path / "there"), script=inner)
    over(cli, parent)
    came = json.loads(cli("result", parent, "--json").json["result"])
    assert came["sub_agent_results"][0]["outcome"] == {"success": {"result": str(tmp_path / "there")}}


@pytest.mark.case("C2-04")
def test_a_child_is_a_run_of_its_own_with_a_parent(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    inner = f"subagent spawn --task inner --json -- sh -c 'cat > {tmp_path}/got' > {tmp_path}/told; subagent wait"
    parent = started(cli, "--max-depth", "2", script=inner)
    over(cli, parent)
    [child] = json.loads((tmp_path / "told").read_text())["agent_ids"]
    over(cli, child)
    shown = cli("status", child, "--peek", "--json").json
    assert (shown["parentId"], shown["userInitiated"]) == (parent, False)
    assert cli("status", parent, "--peek", "--json").json["userInitiated"] is True
    assert (runs_dir / child / "journal.jsonl").exists()
    # The task is the last that it is told, behind who it is and how it asks.
    assert (tmp_path / "got").read_text() == (runs_dir / child / "prompt.md").read_text()
    assert (tmp_path / "got").read_text().endswith("\ninner\n")


@pytest.mark.case("C2-04")
def test_a_child_of_the_operator_is_not_the_users_own_run(cli: Command) -> None:
    told = spawned(cli, "one", script="true")
    over(cli, told["group_id"])
    shown = cli("status", told["agent_ids"][0], "--json").json
    assert (shown["parentId"], shown["groupId"], shown["userInitiated"]) == (None, told["group_id"], False)


@pytest.mark.case("C2-05")
def test_lists_leave_children_out_unless_they_are_asked_for(cli: Command, tmp_path: Path) -> None:
    inner = f"subagent spawn --task inner --task more --json -- true > {tmp_path}/told; subagent wait"
    parent = started(cli, "--max-depth", "2", script=inner)
    over(cli, parent)
    nested = json.loads((tmp_path / "told").read_text())
    told = spawned(cli, "one", "two", script="true")
    over(cli, told["group_id"], *nested["agent_ids"])

    def listed(*words: str) -> set[str]:
        return {run["runId"] for run in cli("list", *words, "--json").json}

    assert listed() == {parent}
    assert listed("--all") == {parent, *nested["agent_ids"], *told["agent_ids"]}
    assert listed("--parent", parent) == set(nested["agent_ids"])
    assert listed("--group", told["group_id"]) == set(told["agent_ids"])
    assert listed("--group", short(nested["group_id"])) == set(nested["agent_ids"])


@pytest.mark.case("C2-06")
def test_a_parent_that_is_deleted_takes_its_children_along(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    inner = f"subagent spawn --task inner --task more --json -- true > {tmp_path}/told; subagent wait"
    parent = started(cli, "--max-depth", "2", script=inner)
    over(cli, parent)
    over(cli, *json.loads((tmp_path / "told").read_text())["agent_ids"])
    done = cli("clean", parent, "--yes", "--json")
    assert done.code == 0, done
    assert [name for name in os.listdir(runs_dir) if is_uuid(name)] == []
    assert os.listdir(runs_dir / ".groups") == []
    assert [path for path in (runs_dir / ".index").rglob("*") if path.is_file()] == []


@pytest.mark.case("C2-06")
def test_a_parent_is_kept_while_a_child_is_at_work(cli: Command, runs_dir: Path, gate: Gate) -> None:
    inner = f"subagent spawn --task inner -- sh -c 'echo here > {gate.said}; read word < {gate.word}'"
    parent = started(cli, "--max-depth", "2", script=inner)
    assert gate.heard() == "here"
    over(cli, parent)
    cli("clean", parent, "--yes")
    assert (runs_dir / parent).exists()
    gate.open()
    [child] = [run["runId"] for run in cli("list", "--parent", parent, "--json").json]
    assert over(cli, child).code == 0


@pytest.mark.case("C2-01")
@pytest.mark.parametrize("words", [(), ("--tasks", "empty.json"), ("--tasks", "missing.json")])
def test_there_must_be_a_task(cli: Command, runs_dir: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "empty.json").write_text('{"tasks": []}')
    (tmp_path / "missing.json").write_text("{}")
    said = nothing_came_of(cli, runs_dir, *words, "--", "true", code=2)
    assert "task" in said


@pytest.mark.case("C2-01")
def test_a_spawn_that_is_refused_does_not_even_make_the_store(cli: Command, runs_dir: Path) -> None:
    assert cli("spawn", "--", "true").code == 2
    assert cli("spawn", "--task", "", "--", "true").code == 2
    assert not runs_dir.exists()


@pytest.mark.case("C2-08")
def test_there_is_a_limit_to_the_tasks_of_one_call(cli: Command, runs_dir: Path) -> None:
    words = [word for number in range(11) for word in ("--task", f"task {number}")]
    said = nothing_came_of(cli, runs_dir, *words, "--", "true", code=2)
    assert said == "11 tasks at once; the limit is 10"
    assert nothing_came_of(cli, runs_dir, *words[:6], "--", "true", code=2, SUBAGENT_MAX_CHILDREN="2").startswith("3 ")


@pytest.mark.case("C2-08")
def test_the_limit_of_tasks_can_be_raised(cli: Command, runs_dir: Path) -> None:
    words = [word for number in range(10) for word in ("--task", f"task {number}")]
    done = cli("spawn", *words, "--json", "--", "true")
    assert len(done.json["agent_ids"]) == 10
    (runs_dir.parent / "subagent.toml").write_text("max_children = 11\n")
    more = cli("spawn", *words, "--task", "task 10", "--json", "--", "true")
    assert len(more.json["agent_ids"]) == 11
    assert len(results(over(cli, done.json["group_id"], more.json["group_id"]))) == 21


BAD = [
    ("an empty task", ("--task", "one", "--task", "", "--", "true"), "task 2: the task is empty"),
    ("an unknown agent", ("nobody", "--task", "one"), "Unknown subagent: nobody"),
    ("an agent without a name", ("", "--task", "one"), "agent"),
    ("no agent at all", ("--task", "one"), "needs an AGENT"),
    ("both an agent and a command", ("claude", "--task", "one", "--", "true"), "not both"),
    ("no program", ("--task", "one", "--", "no-such-program-here"), "no-such-program-here"),
    ("a bad folder", ("--task", "one", "--cwd", "nowhere", "--", "true"), "nowhere"),
    ("a bad time", ("--task", "one", "--timeout", "soon", "--", "true"), "soon"),
    ("a bad deadline", ("--task", "one", "--deadline", "-5s", "--", "true"), "-5s"),
    ("a bad label", ("--task", "one", "--label", "x", "--", "true"), "KEY=VALUE"),
    ("a bad depth", ("--task", "one", "--max-depth", "0", "--", "true"), "max-depth"),
    ("a bad mode", ("--task", "one", "--mode", "play", "--", "true"), "mode"),
    ("a model for a plain command", ("--task", "one", "--model", "big", "--", "true"), "model"),
    ("a word more for a plain command", ("--task", "one", "--arg", "more", "--", "true"), "--arg"),
    ("a file that is not there", ("--tasks", "nowhere.json", "--", "true"), "nowhere.json"),
    ("a folder as a file", ("--tasks", ".", "--", "true"), "file of tasks"),
]


@pytest.mark.case("C2-07", "X21")
@pytest.mark.parametrize(("words", "says"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_words_leave_nothing_behind(cli: Command, runs_dir: Path, words: tuple[str, ...], says: str) -> None:
    code = 3 if says == "no-such-program-here" else 2
    assert says in nothing_came_of(cli, runs_dir, *words, code=code)


BAD_FILES = [
    ("no JSON", '{"tasks": [', "not valid JSON"),
    ("no text", b"\xff\xfe{}", "cannot be read"),
    ("nothing", "", "not valid JSON"),
    ("a list", '[{"task": "x"}]', "tasks"),
    ("null", "null", "tasks"),
    ("tasks that are no list", '{"tasks": "x"}', "tasks: "),
    ("a task that is a word", '{"tasks": ["x"]}', "tasks.0"),
    ("a number as a task", '{"tasks": [{"task": 7}]}', "tasks.0.task"),
    ("a task without a task", '{"tasks": [{"task": "x"}, {"cwd": "."}]}', "tasks.1.task"),
    ("an empty task", '{"tasks": [{"task": "x"}, {"task": ""}]}', "tasks.1.task"),
    ("an unknown key", '{"tasks": [{"task": "x", "timout": 5}]}', "timout"),
    ("an unknown key at the top", '{"tasks": [{"task": "x"}], "deadline": 5}', "deadline"),
    ("a bad folder in the last task", '{"tasks": [{"task": "x"}, {"task": "y", "cwd": "nowhere"}]}', "task 2: "),
    ("an empty folder", '{"tasks": [{"task": "x"}, {"task": "y", "cwd": ""}]}', "task 2: "),
    ("an unknown agent", '{"tasks": [{"task": "x"}, {"task": "y", "agent": "nobody"}]}', "Unknown subagent: nobody"),
    ("a bad name", '{"tasks": [{"task": "x", "name": "a/b"}]}', "a/b"),
    ("a bad mode", '{"tasks": [{"task": "x", "mode": "play"}]}', "tasks.0.mode"),
    ("a time that is none", '{"tasks": [{"task": "x", "timeout": "soon"}]}', "soon"),
    ("no time at all", '{"tasks": [{"task": "x", "timeout": 0}]}', ""),
    ("a time before now", '{"tasks": [{"task": "x", "timeout": -3}]}', ""),
    ("a time for ever", '{"tasks": [{"task": "x", "timeout": Infinity}]}', ""),
    ("a time that is true", '{"tasks": [{"task": "x", "timeout": true}]}', "tasks.0.timeout"),
    ("half a character", '{"tasks": [{"task": "\\ud800"}]}', "task"),
    ("a very deep list", '{"tasks": ' + "[" * 100_000 + "]" * 100_000 + "}", ""),
]


@pytest.mark.case("C2-07", "X21")
@pytest.mark.parametrize(("content", "says"), [bad[1:] for bad in BAD_FILES], ids=[bad[0] for bad in BAD_FILES])
def test_a_bad_file_of_tasks_leaves_nothing_behind(
    cli: Command, runs_dir: Path, tmp_path: Path, content: str | bytes, says: str
) -> None:
    (tmp_path / "tasks.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert says in nothing_came_of(cli, runs_dir, "--tasks", "tasks.json", "--", "true", code=2)


@pytest.mark.case("C2-07", "X21")
def test_a_program_that_one_task_lacks_leaves_nothing_behind(
    cli: Command, runs_dir: Path, tmp_path: Path, agents: Path
) -> None:
    agents.write_text(agents.read_text() + '[agents.absent]\ncommand = ["no-such-program-here"]\n')
    file = tasks_file(tmp_path, {"task": "x"}, {"task": "y", "agent": "absent"})
    said = nothing_came_of(cli, runs_dir, "plain", "--tasks", file, code=3)
    assert said.startswith("Failed to spawn sub-agents: task 2: there is no program 'no-such-program-here'")


@pytest.mark.case("C2-07", "X21")
def test_a_group_that_cannot_be_written_takes_its_runs_back(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    cli("create", "helper", "Do it")
    (runs_dir / ".groups").write_text("in the way")
    before = snapshot(runs_dir, locks=False)
    done = cli("spawn", "--task", "one", "--task", "two", "--", "sh", "-c", f"touch {tmp_path}/ran")
    assert done.code == 1
    assert one_line(done).startswith("Failed to spawn sub-agents: ")
    assert snapshot(runs_dir, locks=False) == before
    assert processes(runs_dir) == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.case("C2-07", "X21")
def test_a_run_that_cannot_be_made_takes_those_before_it_back(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    cli("create", "helper", "Do it", "--name", "there")
    (runs_dir / ".index" / "names" / "second").write_text("in the way")
    before = snapshot(runs_dir, locks=False)
    file = tasks_file(tmp_path, {"task": "one", "name": "first"}, {"task": "two", "name": "second"}, {"task": "three"})
    done = cli("spawn", "--tasks", file, "--", "sh", "-c", f"touch {tmp_path}/ran")
    assert done.code == 1
    assert one_line(done).startswith("Failed to spawn sub-agents: ")
    after = snapshot(runs_dir, locks=False)
    assert {name for name in after if name not in before and name != ".index/names/first"} == set()
    assert processes(runs_dir) == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.case("X21")
def test_a_child_that_fails_once_others_have_started_is_a_failure_of_its_own(cli: Command, tmp_path: Path) -> None:
    # A program that is there and cannot be run is found out by whoever runs it.
    broken = program(tmp_path / "broken", "")
    broken.write_text("#!/no/such/interpreter\n")
    (tmp_path / "agents.toml").write_text(f'[agents.broken]\ncommand = ["{broken}"]\n')
    file = tasks_file(tmp_path, {"task": "one"}, {"task": "two", "agent": "broken"}, {"task": "three"})
    done = cli("spawn", "--tasks", file, "--json", "--", "sh", "-c", f"{TASK}echo $task")
    assert done.code == 0, done
    waited = over(cli, done.json["group_id"])
    assert waited.code == 20
    outcomes = [item["outcome"] for item in waited.json["sub_agent_results"]]
    assert [*outcomes[0], *outcomes[1], *outcomes[2]] == ["success", "failure", "success"]


@pytest.mark.case("C2-09")
def test_one_child_of_a_group_may_work_and_the_others_look(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    file = tasks_file(tmp_path, {"task": "one", "mode": "work"}, {"task": "two", "mode": "work"})
    assert "mode work" in nothing_came_of(cli, runs_dir, "--tasks", file, "--", "true", code=2)
    words = ("--mode", "work", "--task", "one", "--task", "two")
    assert "mode work" in nothing_came_of(cli, runs_dir, *words, "--", "true", code=2)
    file = tasks_file(tmp_path, {"task": "one", "mode": "work"}, {"task": "two"})
    done = cli("spawn", "--mode", "explore", "--tasks", file, "--json", "--", "true")
    over(cli, done.json["group_id"])
    assert [spec(runs_dir, run_id)["mode"] for run_id in done.json["agent_ids"]] == ["work", "explore"]


@pytest.mark.case("C2-09")
def test_a_parent_has_one_child_at_a_time_that_works(cli: Command, runs_dir: Path, tmp_path: Path, gate: Gate) -> None:
    stays = f"echo here > {gate.said}; read word < {gate.word}"
    script = f"""
        first=$(subagent spawn --mode work --task one -- sh -c '{stays}')
        subagent spawn --mode work --task two --json -- true > {tmp_path}/refused; echo $? > {tmp_path}/code
        subagent spawn --mode explore --task look -- true > /dev/null
        echo tried > {gate.said}
        subagent wait $first > /dev/null
        subagent wait $(subagent spawn --mode work --task three -- echo worked) --json
    """
    parent = started(cli, "--max-depth", "2", script=script)
    assert {gate.heard(), gate.heard()} == {"here", "tried"}
    assert (tmp_path / "code").read_text() == "4\n"
    assert json.loads((tmp_path / "refused").read_text())["error"]["code"] == "several_workers"
    gate.open()
    over(cli, parent)
    came = json.loads(cli("result", parent, "--json").json["result"])
    assert came["sub_agent_results"][0]["outcome"] == {"success": {"result": "worked"}}
    children = [run["runId"] for run in cli("list", "--parent", parent, "--json").json]
    over(cli, *children)
    assert sorted(spec(runs_dir, run_id)["mode"] for run_id in children) == ["explore", "work", "work"]


@pytest.mark.case("C2-09")
def test_a_model_is_refused_where_the_agent_has_no_choice(cli: Command, runs_dir: Path, agents: Path) -> None:
    said = nothing_came_of(cli, runs_dir, "plain", "--model", "big", "--task", "one", code=2)
    assert "plain does not say how it takes a model" in said


@pytest.mark.case("C2-10")
def test_several_spawns_of_one_worker_add_up(cli: Command, tmp_path: Path, gate: Gate) -> None:
    say = f"sh -c 'task=$(tail -n 1); read word < {gate.word}; subagent submit result \"$task done\"'"
    script = f"""
        subagent spawn --task first --json -- {say} > {tmp_path}/one
        subagent spawn --task second --task third --json -- {say} > {tmp_path}/two
        echo spawned > {gate.said}
        subagent wait --json
    """
    parent = started(cli, "--max-depth", "2", script=script)
    assert gate.heard() == "spawned"
    ids = [
        *json.loads((tmp_path / "one").read_text())["agent_ids"],
        *json.loads((tmp_path / "two").read_text())["agent_ids"],
    ]
    assert cli("status", parent, "--peek", "--json").json["subAgents"] == {"pending": ids, "completed": []}
    for _ in range(3):
        gate.open()
    over(cli, parent)
    assert cli("status", parent, "--json").json["subAgents"] == {"pending": [], "completed": ids}
    came = json.loads(cli("result", parent, "--json").json["result"])["sub_agent_results"]
    assert [item["agent_id"] for item in came] == ids
    assert [item["task"] for item in came] == ["first", "second", "third"]
    assert [item["outcome"]["success"]["result"] for item in came] == ["first done", "second done", "third done"]


@pytest.mark.case("C2-11", "X12", "X13")
def test_a_child_may_not_spawn_unless_its_tree_may_be_deeper(cli: Command, runs_dir: Path) -> None:
    script = """
        subagent spawn --task deeper --json -- true 2>&1; code=$?
        subagent run --json deeper -- true 2>&1; echo $code $?
    """
    told = spawned(cli, "one", script=script)
    waited = over(cli, told["group_id"])
    first, second, codes = results(waited)[0].splitlines()
    assert codes == "4 4"
    for line in (first, second):
        error = json.loads(line)["error"]
        assert error["code"] == "depth_exceeded"
        assert "limit of this tree is 1" in error["message"]
    assert [name for name in os.listdir(runs_dir) if is_uuid(name)] == told["agent_ids"]
    assert os.listdir(runs_dir / ".groups") == [f"{told['group_id']}.json"]


@pytest.mark.case("X12")
def test_the_depth_of_a_tree_is_said_where_it_begins(cli: Command, runs_dir: Path) -> None:
    third = program(runs_dir.parent / "third", "subagent spawn --task four -- true; echo $?")
    second = program(runs_dir.parent / "second", f"subagent wait $(subagent spawn --task three -- {third}) --json")
    # Whoever is inside cannot raise it, by option or setting.
    script = f"""
        subagent spawn --max-depth 9 --task more -- true; echo $? > said
        export SUBAGENT_MAX_DEPTH=9
        subagent wait $(subagent spawn --task two -- {second}) --json
    """
    told = spawned(cli, "one", script=script, options=("--max-depth", "3"))
    waited = over(cli, told["group_id"])
    assert (runs_dir.parent / "said").read_text() == "5\n"
    found: Any = waited.json
    for depth in (1, 2, 3):
        [item] = found["sub_agent_results"]
        shown = cli("status", item["agent_id"], "--json").json
        assert (spec(runs_dir, item["agent_id"])["depth"], shown["userInitiated"]) == (depth, False)
        result = item["outcome"]["success"]["result"]
        found = json.loads(result) if depth < 3 else result
    assert found == "4"
    assert len([name for name in os.listdir(runs_dir) if is_uuid(name)]) == 3


@pytest.mark.case("C2-12", "X13")
@pytest.mark.parametrize("word", ["result", "error"])
def test_a_parent_does_not_submit(cli: Command, runs_dir: Path, gate: Gate, word: str) -> None:
    told = spawned(cli, "one", script=f"echo here > {gate.said}; read word < {gate.word}; echo fine")
    assert gate.heard() == "here"
    [child] = told["agent_ids"]
    before = journal(runs_dir, child)
    for env in ({}, {"SUBAGENT_RUN_ID": child}, {"SUBAGENT_RUN_ID": told["group_id"]}):
        done = cli("submit", word, "I say so", env=env)
        assert done.code == 5, done
        assert "submitting is for the worker of a run" in one_line(done)
    assert journal(runs_dir, child) == before
    gate.open()
    assert results(over(cli, told["group_id"])) == ["fine"]


@pytest.mark.case("C2-12", "C2-27")
def test_a_worker_of_another_parent_cannot_submit_for_a_child(cli: Command, runs_dir: Path, gate: Gate) -> None:
    told = spawned(cli, "one", script=f"echo here > {gate.said}; read word < {gate.word}; echo fine")
    assert gate.heard() == "here"
    [child] = told["agent_ids"]
    before = snapshot(runs_dir / child)
    stranger = f"SUBAGENT_RUN_ID={child} subagent submit result 'not yours' --json 2>&1; echo $?"
    line, code = results(over(cli, spawned(cli, "two", script=stranger)["group_id"]))[0].splitlines()
    assert (json.loads(line)["error"]["code"], code) == ("denied", "5")
    assert snapshot(runs_dir / child) == before
    assert cli("status", told["group_id"], "--json").json["pending"] == [child]
    gate.open()
    assert results(over(cli, told["group_id"])) == ["fine"]


@pytest.mark.case("C2-13")
def test_a_child_of_the_same_agent_has_the_model_of_its_parent(
    cli: Command, runs_dir: Path, tmp_path: Path, agents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deeper = """
        if [ "$SUBAGENT_DEPTH" = 1 ]; then
            subagent spawn thinker --task inherits > /dev/null
            subagent spawn thinker --model small --task chooses > /dev/null
            subagent spawn plain --task differs > /dev/null
            subagent wait --json
        else
            echo "${2:-none}"
        fi
    """
    program(tmp_path / "bin" / "thinker", deeper)
    agents.rename(tmp_path / "agents.toml")
    monkeypatch.delenv("SUBAGENT_AGENTS")
    (tmp_path / "agents.toml").write_text((tmp_path / "agents.toml").read_text().replace("./", "./bin/"))
    done = cli("run", "thinker", "Do it", "--model", "big", "--max-depth", "2")
    parent = done.out.strip()
    assert done.code == 0, done
    over(cli, parent)
    came = json.loads(cli("result", parent, "--json").json["result"])["sub_agent_results"]
    assert [item["outcome"]["success"]["result"] for item in came] == ["big", "small", "differs plainly"]
    models = [spec(runs_dir, item["agent_id"])["model"] for item in came]
    assert models == ["big", "small", None]


@pytest.mark.case("C2-21")
def test_an_outcome_outlasts_the_death_of_the_parent(cli: Command, runs_dir: Path, tmp_path: Path, gate: Gate) -> None:
    child = f"sh -c 'echo $PPID here > {gate.said}; read word < {gate.word}; subagent submit result survived'"
    script = f"echo $$ > {tmp_path}/pid; subagent spawn --task inner --json -- {child} > {tmp_path}/told; subagent wait"
    parent = started(cli, "--max-depth", "2", script=script)
    assert gate.heard().endswith("here")
    os.kill(keeper_of(runs_dir, parent), signal.SIGKILL)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    eventually(lambda: cli("status", parent, "--peek", "--json").json["state"] == "lost")
    gate.open()
    told = json.loads((tmp_path / "told").read_text())
    waited = over(cli, told["group_id"])
    assert (waited.code, results(waited)) == (0, ["survived"])


@pytest.mark.case("C2-21")
def test_children_go_on_when_their_parent_ends(cli: Command, tmp_path: Path, gate: Gate) -> None:
    child = f"sh -c 'echo here > {gate.said}; read word < {gate.word}; subagent submit result later'"
    script = f"subagent spawn --task inner --task more --json -- {child} > {tmp_path}/told"
    parent = started(cli, "--max-depth", "2", script=script)
    assert over(cli, parent).code == 0
    assert {gate.heard(), gate.heard()} == {"here"}
    gate.open()
    gate.open()
    waited = over(cli, json.loads((tmp_path / "told").read_text())["group_id"])
    assert (waited.code, results(waited)) == (0, ["later", "later"])


def test_children_go_on_when_the_shell_that_spawned_them_is_killed(cli: Command, gate: Gate) -> None:
    told = spawned(cli, "one", "two", script=f"echo here > {gate.said}; read word < {gate.word}; echo fine")
    waits = cli.start("wait", told["group_id"], "--json")
    assert {gate.heard(), gate.heard()} == {"here"}
    os.killpg(waits.pid, signal.SIGKILL)
    assert finished(waits).code == -signal.SIGKILL
    gate.open()
    gate.open()
    assert results(over(cli, told["group_id"])) == ["fine", "fine"]


@pytest.mark.case("C2-42", "C2-44")
@pytest.mark.parametrize("already", [0, 1, 3, 6])
def test_cancelling_a_parent_while_it_spawns_leaves_no_process(
    cli: Command, runs_dir: Path, tmp_path: Path, gate: Gate, already: int
) -> None:
    more = " ".join(f"--task {number}" for number in range(10))
    script = f"""
        echo here > {gate.said}
        while :; do subagent spawn {more} -- sh -c "echo child > {gate.said}; exec sleep 60" > /dev/null; done
    """
    parent = started(cli, "--max-depth", "2", script=script)
    heard = [gate.heard() for _ in range(already + 1)]
    assert "here" in heard
    done = cli("cancel", parent, "--json")
    assert done.code == 0, done
    assert processes(runs_dir) == []
    assert done.json["notStopped"] == []
    children = [run["runId"] for run in cli("list", "--parent", parent, "--json").json]
    found = [cli("status", run_id, "--json").json for run_id in (parent, *children[:3])]
    assert {(run["state"], run["kind"]) for run in found} == {("cancelled", "cancelled")}
    assert all(run["alive"] is False for run in found)


def test_a_group_stands_where_one_run_is_wanted(cli: Command, runs_dir: Path) -> None:
    told = spawned(cli, "one", "two", script="true")
    over(cli, told["group_id"])
    before = snapshot(runs_dir, locks=False)
    for words in (("result",), ("logs",), ("resume", "more"), ("retry",), ("update", "success"), ("pending",)):
        done = cli(words[0], told["group_id"], *words[1:])
        assert done.code == 2, (words, done)
        assert "group" in one_line(done), words
    done = cli("ask", "Which?", "--run", told["group_id"])
    assert done.code == 2, done
    assert "group" in one_line(done)
    assert snapshot(runs_dir, locks=False) == before


def test_a_run_stands_where_a_group_is_wanted(cli: Command) -> None:
    told = spawned(cli, "one", script="true")
    over(cli, told["group_id"])
    done = cli("list", "--group", told["agent_ids"][0])
    assert done.code == 3
    assert one_line(done).startswith("there is no group ")

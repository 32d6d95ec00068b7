"""Looking at many runs from the command line: list with its filters, labels, and the tree."""

import json
from pathlib import Path

import pytest

from subagent_cli.core.ids import short
from tests.cli.test_cold_start import HEAVY, loaded, tops
from tests.command import Command
from tests.services.desk import snapshot


class Family:
    """A parent with two children, one of which asks twice, and a run beside them."""

    def __init__(self, cli: Command) -> None:
        boss = cli("create", "planner", "Plan it", "--name", "boss", "--label", "team=docs", "--json").json
        self.boss: str = boss["runId"]
        self.asking = cli("create", "helper", "A part", "--name", "part", env=boss["env"]).out.strip()
        self.idle = cli("create", "helper", "A part", env=boss["env"]).out.strip()
        self.other = cli("create", "solo", "Do it").out.strip()
        for _ in range(2):
            cli("ask", "Which?", "--run", self.asking)


@pytest.fixture
def family(cli: Command) -> Family:
    return Family(cli)


def listed(cli: Command, *words: str) -> list[str]:
    done = cli("list", "--json", *words)
    assert (done.code, done.err) == (0, "")
    return [row["runId"] for row in done.json]


def test_every_filter_of_the_list_as_it_is_typed(cli: Command, family: Family) -> None:
    assert listed(cli) == [family.other, family.boss]
    assert listed(cli, "--all") == [family.other, family.idle, family.asking, family.boss]
    assert listed(cli, "--parent", "boss") == [family.idle, family.asking]
    assert listed(cli, "--parent", "boss", "--status", "waiting_parent_reply") == [family.asking]
    assert listed(cli, "--parent", "boss", "--limit", "1") == [family.idle]
    assert listed(cli, "--name", "boss") == [family.boss]
    assert listed(cli, "--label", "team") == listed(cli, "--label", "team=docs") == [family.boss]
    assert listed(cli, "--label", "team=") == listed(cli, "--label", "team", "--label", "x") == []
    assert listed(cli, "--since", "1h", "--limit", "1") == [family.other]
    assert listed(cli, "--since", "2020-01-31") == [family.other, family.boss]
    assert listed(cli, "--since", "2999-01-31T12:00:00+02:00") == []


def test_a_row_has_the_keys_it_always_had_and_its_labels(cli: Command, family: Family) -> None:
    row = cli("list", "--name", "boss", "--json").json[0]
    assert list(row) == [
        *(
            "runId",
            "name",
            "agentName",
            "type",
            "status",
            "state",
            "kind",
            "alive",
            "stopping",
            "startTime",
            "endTime",
            "summary",
        ),
        *("outcome", "parentId", "groupId", "labels", "pendingQuestions", "question"),
    ]
    assert row["labels"] == cli("status", "boss", "--json").json["labels"] == {"team": "docs"}


def test_a_child_that_was_not_looked_for_is_hinted_at(cli: Command, family: Family) -> None:
    done = cli("list", "--name", "part")
    assert (done.code, done.out) == (0, "")
    assert "--all" in done.err
    assert cli("list", "--name", "part", "--all").out.startswith(short(family.asking))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["list", "--status", "wating"], "unknown_status"),
        (["list", "--since", "soon"], "invalid_time"),
        (["list", "--since", ""], "invalid_time"),
        (["list", "--name", "../boss"], "invalid_name"),
        (["list", "--parent", "../boss"], "invalid_run_id"),
        (["create", "helper", "Do it", "--label", "team"], "invalid_label"),
        (["create", "helper", "Do it", "--label", "=x"], "invalid_label"),
        (["create", "helper", "Do it", "--label", "a=1", "--label", "a=2"], "invalid_label"),
        (["create", "helper", "Do it", "--label", "a=1\n2"], "invalid_label"),
        (["tree", "../boss"], "invalid_run_id"),
    ],
    ids=lambda value: " ".join(value[:1] + value[-2:]) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_told_and_changes_nothing(
    cli: Command, runs_dir: Path, words: list[str], code: str
) -> None:
    cli("create", "helper", "Do it")
    before = snapshot(runs_dir)
    done = cli(*words, "--json")
    assert (done.code, done.json["error"]["code"]) == (2, code)
    assert snapshot(runs_dir) == before


def test_an_unknown_status_is_answered_with_those_there_are(cli: Command) -> None:
    cli("create", "helper", "Do it")
    done = cli("list", "--status", "wating", "--json")
    assert "waiting_parent_reply" in done.json["error"]["candidates"]


def test_an_unknown_run_has_neither_children_nor_a_tree(cli: Command, family: Family) -> None:
    for words in (["list", "--parent", "bos"], ["tree", "bos"]):
        done = cli(*words, "--json")
        assert (done.code, done.json["error"]["code"]) == (3, "run_not_found")
        assert done.json["error"]["candidates"] == ["boss"]


def test_the_tree_is_drawn_with_lines_and_counts_what_waits(cli: Command, family: Family) -> None:
    done = cli("tree")
    assert (done.code, done.err) == (0, "")
    other, boss, asking, idle = done.out.splitlines()
    assert other.split()[:3] == [short(family.other), "pending", "solo"]
    assert boss.split()[:3] == [short(family.boss), "pending", "planner"]
    assert asking.split() == [
        *("├─", short(family.asking), "waiting_parent_reply", "helper", asking.split()[4], "part", "?2")
    ]
    assert idle.startswith(f"└─ {short(family.idle)}")
    assert boss.index("pending") == idle.index("pending")
    assert cli("tree", "part").out.split()[0] == short(family.asking)


def test_lines_go_on_beside_what_is_nested(cli: Command, runs_dir: Path) -> None:
    top = cli("create", "a", "Do it", "--json").json
    part = cli("create", "b", "Do it", "--json", env=top["env"]).json
    for _ in range(2):
        last = cli("create", "c", "Do it", "--json", env=part["env"]).json
    cli("create", "d", "Do it", env=last["env"])
    cli("create", "e", "Do it", env=top["env"])
    drawn = [line[: line.index(" pending")].rstrip()[:-8] for line in cli("tree").out.splitlines()]
    assert drawn == ["", "├─ ", "│  ├─ ", "│  └─ ", "│     └─ ", "└─ "]


def test_the_tree_as_json_is_runs_within_runs(cli: Command, family: Family) -> None:
    other, boss = cli("tree", "--json").json
    assert (other["runId"], other["children"]) == (family.other, [])
    assert [row["runId"] for row in boss["children"]] == [family.asking, family.idle]
    assert boss["children"][0]["pendingQuestions"] == 2
    rows = {row["runId"]: row for row in cli("list", "--all", "--json").json}
    assert {key: value for key, value in boss.items() if key != "children"} == rows[family.boss]


def test_the_tree_of_finished_runs_is_empty_without_all(cli: Command) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    cli("update", run_id, "success")
    done = cli("tree")
    assert (done.code, done.out, done.err) == (0, "", "no active runs\n")
    assert cli("tree", "--json").json == []
    assert cli("tree", "--all").out.split()[:2] == [short(run_id), "success"]


def test_a_damaged_run_is_told_on_stderr_and_the_others_are_shown(cli: Command, foreign_runs: Path) -> None:
    top = cli("create", "helper", "Do it", "--json", runs_dir=foreign_runs).json
    bad, good = (cli("create", "helper", "Do it", env=top["env"]).out.strip() for _ in range(2))
    (foreign_runs / bad / ".meta.json").write_bytes(b"[]")
    for words in (["tree"], ["tree", "--all"], ["list", "--all"]):
        done = cli(*words, runs_dir=foreign_runs)
        assert done.code == 8
        assert short(good) in done.out
        assert done.err.startswith("warning: ")
        assert bad in done.err
        assert cli(*words, "--json", runs_dir=foreign_runs).code == 8


def test_no_text_of_a_run_can_repaint_the_tree(cli: Command, foreign_runs: Path) -> None:
    top = cli("create", "helper", "Do it", "--json", runs_dir=foreign_runs).json
    file = foreign_runs / top["runId"] / "run.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"name": "a\nb\x1b[31m" + "x" * 100}))
    (line,) = cli("tree", runs_dir=foreign_runs).out.splitlines()
    assert "a b\\x1b[31mxxx" in line
    assert line.endswith("…")


def test_looking_at_many_loads_neither_locks_nor_models_nor_paint(family: Family, runs_dir: Path) -> None:
    for words in (
        ["tree"],
        ["tree", "--all", "--json"],
        ["list", "--since", "2h", "--label", "team"],
        ["list", "--parent", "boss"],
    ):
        assert tops(loaded(runs_dir, *words)) & {*HEAVY, "filelock"} == set(), words

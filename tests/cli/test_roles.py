"""Roles: what an agent is among others, and in which form it takes and gives. Stored, shown, and told to the agent."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.moment import milliseconds
from tests.cli.living import all_ended, one_line, over, program, started
from tests.command import Command
from tests.services.desk import snapshot

FORM = {"type": "object", "properties": {"žluť": {"type": "string"}}, "required": ["žluť"]}
OTHER = {"type": "array"}
TYPES = ["critic", "grader", "optimizer", "generic"]


@pytest.fixture(autouse=True)
def _nothing_survives(runs_dir: Path) -> Iterator[None]:
    with all_ended(runs_dir):
        yield


@pytest.fixture
def forms(tmp_path: Path) -> None:
    """Files that a form can come from, or cannot."""
    (tmp_path / "form.json").write_text(json.dumps(FORM, indent=2), encoding="utf-8")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xff"}')
    (tmp_path / "folder.json").mkdir()


def status(cli: Command, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = cli("status", run_id, "--peek", "--json").json
    return found


def spec(runs_dir: Path, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((runs_dir / run_id / "run.json").read_bytes())
    return found


def preamble(runs_dir: Path, run_id: str) -> str:
    """What an agent was told before its task."""
    return (runs_dir / run_id / "prompt.md").read_text().partition("\n---\n")[0]


def made(cli: Command, verb: str, *words: str) -> str:
    """A new run by one of the verbs that make one; it has ended where it was started."""
    if verb == "create":
        return cli("create", "helper", "Do it", *words).out.strip()
    if verb == "run":
        run_id = cli("run", "Do it", *words, "--", "true").out.strip()
    else:
        run_id = cli("spawn", "--task", "Do it", *words, "--json", "--", "true").json["agent_ids"][0]
    over(cli, run_id)
    return run_id


@pytest.mark.case("C3-01")
@pytest.mark.parametrize("verb", ["create", "run", "spawn"])
def test_a_role_is_stored_and_shown(cli: Command, runs_dir: Path, forms: None, verb: str) -> None:
    words = ["--type", "critic", "--input-schema", json.dumps(OTHER), "--output-schema", "@form.json"]
    run_id = made(cli, verb, *words)
    for found in (spec(runs_dir, run_id), status(cli, run_id)):
        assert (found["type"], found["inputSchema"], found["outputSchema"]) == ("critic", OTHER, FORM)
    assert [row["type"] for row in cli("list", "--all", "--json").json] == ["critic"]
    assert [row["type"] for row in cli("tree", run_id, "--json").json] == ["critic"]


@pytest.mark.case("C3-01", "C3-07")
@pytest.mark.parametrize("verb", ["create", "run", "spawn"])
def test_without_a_word_an_agent_is_generic_and_takes_and_gives_what_it_likes(
    cli: Command, runs_dir: Path, verb: str
) -> None:
    run_id = made(cli, verb)
    found = status(cli, run_id)
    assert (found["type"], found["model"], found["inputSchema"], found["outputSchema"]) == ("generic", None, None, None)
    if verb != "create":
        told = preamble(runs_dir, run_id)
        assert told.startswith(f"You are a sub-agent; your run id is {run_id}. ")
        assert "schema" not in told


@pytest.mark.case("C3-01")
@pytest.mark.parametrize("kind", TYPES)
def test_an_agent_has_an_id_a_name_a_type_a_parent_a_model_forms_and_times(
    cli: Command, runs_dir: Path, tmp_path: Path, kind: str
) -> None:
    program(tmp_path / "thinker", "cat > told; subagent run Deeper. --name inner -- true > inner; subagent wait")
    (tmp_path / "agents.toml").write_text(
        '[agents.thinker]\ncommand = ["./thinker"]\nmodel = ["--model", "{model}"]\n', encoding="utf-8"
    )
    options = ["--type", kind, "--name", "tidy", "--model", "big-1", "--max-depth", "2"]
    run_id = cli("run", "thinker", "Do it", *options, "--output-schema", json.dumps(FORM)).out.strip()
    over(cli, run_id, "--no-questions")
    found = status(cli, run_id)
    assert (found["runId"], found["name"], found["type"], found["model"]) == (run_id, "tidy", kind, "big-1")
    assert (found["parentId"], found["outputSchema"]) == (None, FORM)
    assert status(cli, "inner")["parentId"] == run_id
    created, active = (milliseconds(found[key]) or 0 for key in ("createdAt", "lastActiveAt"))
    assert 0 < created < active
    role = f" and the {kind}" if kind != "generic" else ""
    told = (tmp_path / "told").read_text(encoding="utf-8")
    assert told.startswith(f'You are a sub-agent{role}, called "tidy", of model big-1; your run id is {run_id}. ')
    before, _, form = told.partition("\n---\n")[0].rpartition(":\n")
    assert before.endswith("\nYour result is to be JSON of this schema, and nothing else")
    assert json.loads(form) == FORM
    assert "žluť" in form


@pytest.mark.case("C3-01")
def test_an_agent_is_told_what_it_is_given_and_what_to_give(cli: Command, runs_dir: Path, forms: None) -> None:
    run_id = made(cli, "run", "--input-schema", "structured_critique", "--output-schema", "structured_grade")
    told = preamble(runs_dir, run_id).splitlines()
    given = told[told.index("What you are given is JSON of this schema:") + 1]
    wanted = told[told.index("Your result is to be JSON of this schema, and nothing else:") + 1]
    found = cli("schemas", "--json").json
    assert json.loads(given) == found["structured_critique"]["json_schema"] == status(cli, run_id)["inputSchema"]
    assert json.loads(wanted) == found["structured_grade"]["json_schema"] == status(cli, run_id)["outputSchema"]


def test_an_agent_is_told_how_to_work_off_its_inbox(cli: Command, runs_dir: Path) -> None:
    told = preamble(runs_dir, made(cli, "run"))
    [line] = [line for line in told.splitlines() if "subagent inbox" in line]
    words = line.partition("  subagent ")[2].partition("   ")[0].split()
    assert words == ["inbox", "--unreplied"]


def test_a_role_is_told_again_to_an_agent_that_remembers_nothing(cli: Command, runs_dir: Path) -> None:
    run_id = started(cli, "--type", "grader", "--output-schema", json.dumps(FORM), script="true")
    over(cli, run_id)
    assert cli("retry", run_id).code == 0
    over(cli, run_id)
    told = (runs_dir / run_id / "prompt-2.md").read_text()
    assert told.startswith(f"You are a sub-agent and the grader; your run id is {run_id}. ")
    assert json.dumps(FORM, ensure_ascii=False) in told


def test_an_empty_form_is_a_form(cli: Command, tmp_path: Path) -> None:
    found = status(cli, made(cli, "create", "--output-schema", "{}"))
    assert (found["inputSchema"], found["outputSchema"]) == (None, {})
    # A task for which anything will do says so, whatever is wanted of the others.
    words = ["--tasks", tasks(tmp_path, {"output_schema": {}}), "--output-schema", json.dumps(FORM), "--json"]
    [run_id] = cli("spawn", *words, "--", "true").json["agent_ids"]
    over(cli, run_id)
    assert status(cli, run_id)["outputSchema"] == {}


BAD = [
    (["--type", "boss"], "usage", "is not one of 'critic', 'grader', 'optimizer', 'generic'"),
    (["--type", "Critic"], "usage", "is not one of"),
    (["--type", ""], "usage", "is not one of"),
    (["--input-schema", ""], "invalid_schema", "the input schema is not valid JSON"),
    (["--input-schema", "{"], "invalid_schema", "the input schema is not valid JSON"),
    (["--output-schema", "memo"], "invalid_schema", "the output schema is not valid JSON"),
    (["--output-schema", "[]"], "invalid_schema", "the output schema is not a JSON object"),
    (["--output-schema", '"plaintext"'], "invalid_schema", "the output schema is not a JSON object"),
    (["--output-schema", '{"a": NaN}'], "invalid_schema", "the output schema is not valid JSON"),
    (["--output-schema", "[" * 50_000], "invalid_schema", "the output schema is not valid JSON"),
    (["--output-schema", "@list.json"], "invalid_schema", "the output schema is not a JSON object"),
    (["--output-schema", "@latin.json"], "invalid_schema", "the output schema is not valid JSON"),
    (["--output-schema", "@nowhere.json"], "unreadable_file", "the output schema cannot be read"),
    (["--output-schema", "@folder.json"], "unreadable_file", "the output schema cannot be read"),
    (["--output-schema", "@"], "unreadable_file", "the output schema cannot be read"),
]


@pytest.mark.case("C3-01")
@pytest.mark.parametrize(("words", "code", "says"), BAD, ids=[" ".join(words)[:40] for words, *_ in BAD])
def test_what_is_no_role_makes_no_run(
    cli: Command, runs_dir: Path, forms: None, words: list[str], code: str, says: str
) -> None:
    done = cli("create", "helper", "Do it", *words, "--json")
    assert (done.code, done.json["error"]["code"]) == (2, code), done
    assert says in done.json["error"]["message"]
    assert not runs_dir.exists()


@pytest.mark.parametrize(
    "verb", [["create", "helper", "Do it"], ["run", "Do it"], ["spawn", "--task", "Do it"]], ids=str
)
def test_every_verb_that_makes_runs_says_what_a_form_is(cli: Command, runs_dir: Path, verb: list[str]) -> None:
    done = cli(*verb, "--input-schema", "memo", *([] if verb[0] == "create" else ["--", "true"]))
    assert (done.code, one_line(done).partition(": ")[0]) == (2, "the input schema is not valid JSON")
    hint = "hint: a JSON object, @FILE that holds one, or a schema of `subagent schemas`"
    assert done.err.splitlines()[1:] == [hint]
    assert not runs_dir.exists()


def tasks(tmp_path: Path, *more: dict[str, Any]) -> str:
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps({"tasks": [{"task": "Do it", **one} for one in more]}))
    return str(file)


@pytest.mark.case("C3-01", "C2-02")
def test_a_task_of_a_file_has_a_role_of_its_own_or_that_of_all(cli: Command, tmp_path: Path, forms: None) -> None:
    file = tasks(
        tmp_path,
        {},
        {"type": "grader"},
        {"input_schema": OTHER},
        {"type": "generic", "input_schema": "@form.json", "output_schema": "plaintext"},
    )
    common = ["--type", "critic", "--input-schema", json.dumps(FORM), "--output-schema", json.dumps(OTHER)]
    told = cli("spawn", "--tasks", file, *common, "--task", "Do it", "--json", "--", "true").json
    over(cli, told["group_id"])
    plaintext = cli("schemas", "--json").json["plaintext"]["json_schema"]
    found = [status(cli, run_id) for run_id in told["agent_ids"]]
    roles = [("critic", FORM, OTHER), ("critic", FORM, OTHER), ("grader", FORM, OTHER), ("critic", OTHER, OTHER)]
    roles.append(("generic", FORM, plaintext))
    assert [(one["type"], one["inputSchema"], one["outputSchema"]) for one in found] == roles


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ({"type": "boss"}, "unknown_type"),
        ({"type": 7}, "invalid_tasks"),
        ({"output_schema": 7}, "invalid_tasks"),
        ({"output_schema": []}, "invalid_tasks"),
        ({"output_schema": "memo"}, "invalid_schema"),
        ({"input_schema": "@nowhere.json"}, "unreadable_file"),
        ({"outputSchema": {}}, "invalid_tasks"),
    ],
    ids=str,
)
def test_one_bad_role_in_a_file_and_nothing_is_spawned(
    cli: Command, runs_dir: Path, tmp_path: Path, task: dict[str, Any], code: str
) -> None:
    cli("create", "helper", "Do it")
    before = snapshot(runs_dir)
    done = cli("spawn", "--tasks", tasks(tmp_path, {}, task), "--json", "--", "true")
    assert (done.code, done.json["error"]["code"]) == (2, code), done
    assert snapshot(runs_dir) == before


@pytest.mark.parametrize("words", [["--type", "grader"], ["--output-schema", "plaintext"], []], ids=" ".join)
def test_a_key_belongs_to_one_role(cli: Command, words: list[str]) -> None:
    request = ["create", "helper", "Do it", "--key", "k"]
    first = cli(*request, "--type", "critic")
    assert cli(*request, "--type", "critic").out == first.out
    done = cli(*request, *words, "--json")
    assert (done.code, done.json["error"]["code"]) == (4, "key_reused")


def test_a_form_is_as_long_as_any_text_may_be(cli: Command, runs_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "long.json").write_text(json.dumps({"description": "x" * 2000}))
    env = {"SUBAGENT_MAX_TEXT": "1000"}
    for form in ("@long.json", (tmp_path / "long.json").read_text()):
        done = cli("create", "helper", "Do it", "--output-schema", form, "--json", env=env)
        assert (done.code, done.json.get("error", {}).get("code")) == (2, "too_long")
    assert not runs_dir.exists()


def test_a_token_in_a_form_is_shown_nowhere(cli: Command, runs_dir: Path) -> None:
    script = """printf %s $SUBAGENT_TOKEN > token
    subagent run Deeper. --output-schema "{\\"x\\": \\"$SUBAGENT_TOKEN\\"}" --wait -- true"""
    over(cli, started(cli, "--max-depth", "2", script=script))
    token = Path("token").read_bytes()
    assert len(token) == 64
    assert [name for name, data in snapshot(runs_dir).items() if isinstance(data, bytes) and token in data] == []

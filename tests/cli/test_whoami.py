"""Who calls: what `subagent whoami` says, and that the token which proves a worker is nowhere but in its own hands."""

import os
import re
from hashlib import sha256
from pathlib import Path

import pytest

from tests.cli.living import Gate, keeper_of, over, processes, started
from tests.command import Command
from tests.services.desk import snapshot

pytestmark = pytest.mark.usefixtures("nothing_survives")

NOBODY = "0190a000-0000-7000-8000-000000000000"
# What an agent that wants to be helpful, or was talked into it, prints.
PRINTS = 'echo "$SUBAGENT_TOKEN"; env; cat /proc/self/environ; echo "<$SUBAGENT_TOKEN$SUBAGENT_TOKEN>" >&2'


def held_by(folder: Path, token: str) -> list[str]:
    """Files below a folder that hold a text."""
    return [name for name, data in snapshot(folder).items() if isinstance(data, bytes) and token.encode() in data]


def shown(cli: Command, run_id: str) -> str:
    """All that the parent's commands print of a run, in both forms."""
    printed = ""
    for words in (["status", run_id], ["logs", run_id], ["events", run_id], ["result", run_id], ["list", "--all"]):
        for form in ([], ["--json"]):
            done = cli(*words, *form)
            printed += done.out + done.err
    return printed + cli("wait", run_id, "--json", "--no-questions").out + cli("pending", "--json").out


def test_without_a_token_one_is_the_operator(cli: Command, runs_dir: Path) -> None:
    done = cli("whoami")
    assert (done.code, done.out, done.err) == (0, "operator\n", "")
    found = cli("whoami", "--json").json
    assert (found["role"], found["runId"], found["depth"], found["maxDepth"]) == ("operator", None, 0, 1)
    assert found["runsDirectory"] == str(runs_dir)


def test_a_run_without_a_token_only_names_what_the_operator_works_on(cli: Command) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    env = {"SUBAGENT_RUN_ID": run_id}
    assert cli("whoami", env=env).out == f"operator, working on {run_id[-8:]} (helper) at depth 1 of 1\n"
    assert cli("whoami", "--json", env=env).json["role"] == "operator"
    assert cli("whoami", "--json", env={"SUBAGENT_RUN_ID": NOBODY}).json["runId"] is None


def test_a_worker_is_told_who_it_is(cli: Command) -> None:
    run_id = started(
        cli,
        "--name",
        "top",
        "--max-depth",
        "2",
        script="subagent whoami; subagent run 'Do more' --name inner --wait -- sh -c 'subagent whoami --json'",
    )
    over(cli, run_id)
    said, inner = cli("result", run_id).out.splitlines()
    assert said == f"worker of {run_id[-8:]} (sh) at depth 1 of 2"
    child = cli("status", "inner", "--json").json
    assert child["parentId"] == run_id
    for word in ('"role":"worker"', f'"runId":"{child["runId"]}"', f'"parentId":"{run_id}"', '"depth":2,"maxDepth":2'):
        assert word in inner


def test_the_worker_of_a_created_run_proves_itself_with_what_was_shown_once(cli: Command) -> None:
    made = cli("create", "helper", "Do it", "--name", "tidy", "--json").json
    found = cli("whoami", "--json", env=made["env"]).json
    assert (found["role"], found["runId"], found["name"]) == ("worker", made["runId"], "tidy")


@pytest.mark.parametrize(
    "wrong",
    [
        {"SUBAGENT_TOKEN": "0" * 64},
        {"SUBAGENT_TOKEN": "x"},
        {"SUBAGENT_RUN_ID": None},
        {"SUBAGENT_RUN_ID": NOBODY},
        {"SUBAGENT_TOKEN": None, "SUBAGENT_TOKEN_FILE": "nowhere"},
    ],
    ids=str,
)
def test_a_token_that_does_not_fit_is_denied(cli: Command, wrong: dict[str, str | None]) -> None:
    env = cli("create", "helper", "Do it", "--json").json["env"]
    done = cli("whoami", "--json", env={**env, **wrong})
    assert (done.code, done.json["error"]["code"]) == (5, "denied"), done
    plain = cli("whoami", env={**env, **wrong})
    assert (plain.code, plain.out) == (5, "")
    assert env["SUBAGENT_TOKEN"] not in plain.err + done.out


def test_each_run_has_a_token_of_its_own_and_only_its_hash_is_kept(cli: Command, runs_dir: Path) -> None:
    for _ in range(2):
        run_id = started(cli, script="printf %s $SUBAGENT_TOKEN >> tokens; echo >> tokens")
        over(cli, run_id)
        token = Path("tokens").read_text().split()[-1]
        assert re.fullmatch(r"[0-9a-f]{64}", token)
        assert sha256(token.encode()).hexdigest() in (runs_dir / run_id / "run.json").read_text()
        assert held_by(runs_dir, token) == []
    assert len(set(Path("tokens").read_text().split())) == 2


@pytest.mark.parametrize("options", [[], ["--token-file"]], ids=["environment", "file"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_token_that_the_agent_prints_is_shown_nowhere(
    cli: Command, runs_dir: Path, options: list[str], code: int
) -> None:
    """A failed run's log becomes its summary, a good one's output its result."""
    keeps = 'printf %s "${SUBAGENT_TOKEN:-$(cat "$SUBAGENT_TOKEN_FILE")}" > token'
    script = f"{keeps}; SUBAGENT_TOKEN=$(cat token); export SUBAGENT_TOKEN; {PRINTS}; exit {code}"
    run_id = started(cli, *options, script=script)
    over(cli, run_id)
    token = Path("token").read_text()
    assert len(token) == 64
    assert held_by(runs_dir, token) == []
    printed = shown(cli, run_id)
    assert token not in printed
    assert "SUBAGENT_TOKEN=[token]" in printed
    assert "<[token][token]>" in printed


def test_a_token_that_comes_in_pieces_is_not_shown_either(cli: Command, runs_dir: Path, gate: Gate) -> None:
    script = (
        "printf %s $SUBAGENT_TOKEN > token; printf 'a%s' $(cut -c1-30 token);"
        f"echo here > {gate.said}; read word < {gate.word}; printf '%sz' $(cut -c31-64 token)"
    )
    run_id = started(cli, script=script)
    gate.heard()
    gate.open()
    over(cli, run_id)
    token = Path("token").read_text()
    assert held_by(runs_dir, token) == []
    assert held_by(runs_dir, token[:30]) == []
    assert cli("result", run_id).out == "a[token]z\n"


SAYS = {
    "ask": 'subagent ask "x $SUBAGENT_TOKEN y"',
    "options": 'subagent ask "Which?" --option "x $SUBAGENT_TOKEN y" --option b --default "x $SUBAGENT_TOKEN y"',
    "tell": 'subagent tell "x $SUBAGENT_TOKEN y"',
    "update": 'subagent update running --summary "x $SUBAGENT_TOKEN y"',
    "report": 'subagent update success --summary "x $SUBAGENT_TOKEN y"',
    "result": 'subagent submit result "x $SUBAGENT_TOKEN y"',
    "error": 'subagent submit error "x $SUBAGENT_TOKEN y"',
    "artifact": 'subagent submit result z --artifact "x $SUBAGENT_TOKEN y"',
    "tool": 'subagent submit result z --tool "x $SUBAGENT_TOKEN y"',
    "standard input": "env | subagent tell -; env | subagent ask -; env | subagent submit result -",
    "task": 'subagent run "x $SUBAGENT_TOKEN y" --wait -- true',
    "label": 'subagent run z --label "a=x $SUBAGENT_TOKEN y" --wait -- true',
}


@pytest.mark.parametrize("way", SAYS)
def test_a_token_that_the_agent_says_is_shown_nowhere(cli: Command, runs_dir: Path, way: str) -> None:
    script = f"printf %s $SUBAGENT_TOKEN > token; {SAYS[way]} > said 2>&1; echo $? > code"
    run_id = started(cli, "--max-depth", "2", script=script)
    over(cli, run_id, "--no-questions")
    token = Path("token").read_text()
    assert (len(token), Path("code").read_text()) == (64, "0\n"), Path("said").read_text()
    assert held_by(runs_dir, token) == []
    assert token not in shown(cli, run_id)
    assert token not in Path("said").read_text()


def test_what_the_agent_says_beside_its_token_stays(cli: Command) -> None:
    script = (
        'subagent tell "x $SUBAGENT_TOKEN y"; subagent submit result "r $SUBAGENT_TOKEN" --artifact "a $SUBAGENT_TOKEN"'
    )
    run_id = started(cli, script=script)
    over(cli, run_id)
    assert cli("status", run_id, "--json").json["notes"][0]["text"] == "x [token] y"
    found = cli("result", run_id, "--json").json
    assert (found["result"], found["artifacts"]) == ("r [token]", ["a [token]"])


def test_no_list_of_processes_shows_a_token(cli: Command, runs_dir: Path, gate: Gate) -> None:
    script = f"printf %s $SUBAGENT_TOKEN > token; echo here > {gate.said}; exec sleep 600"
    run_id = started(cli, script=script)
    gate.heard()
    token = Path("token").read_bytes()
    keeper = keeper_of(runs_dir, run_id)
    for pid in processes(runs_dir):
        assert token not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert Path(f"/proc/{keeper}/environ").read_bytes() == b""


def test_a_token_in_a_file_is_for_the_owner_alone(cli: Command, runs_dir: Path, gate: Gate) -> None:
    run_id = started(cli, "--token-file", script=f"echo $$ > {gate.said}; exec sleep 600")
    child = gate.heard()
    token = (runs_dir / run_id / ".token").read_bytes()
    assert token not in Path(f"/proc/{child}/environ").read_bytes()
    assert os.stat(runs_dir / run_id / ".token").st_mode & 0o777 == 0o600
    assert held_by(runs_dir, token.decode()) == [f"{run_id}/.token"]
    env = {"SUBAGENT_RUN_ID": run_id, "SUBAGENT_TOKEN_FILE": str(runs_dir / run_id / ".token")}
    assert cli("whoami", "--json", env=env).json["role"] == "worker"

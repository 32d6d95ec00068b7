"""Three agents talk by message ids alone, as the example says: nothing is copied, nobody polls, and all of it ends."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.living import QUICK, all_ended
from tests.command import PATIENCE, Command

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "critique"
TEXT = "Passwords are kept in a list."

Played = subprocess.CompletedProcess[str]


@pytest.fixture
def played(runs_dir: Path) -> Iterator[Played]:
    """The example, played to its end; no run outlives the test."""
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    with all_ended(runs_dir):
        yield subprocess.run(
            ["sh", EXAMPLE / "critique.sh", TEXT],
            env={**os.environ, **QUICK, "PATH": path, "SUBAGENT_RUNS_DIR": str(runs_dir)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


def by_type(cli: Command) -> dict[str, Any]:
    return {row["type"]: row for row in cli("list", "--all", "--json").json}


@pytest.mark.case("C3-01", "C3-46")
def test_the_grade_of_the_critique_of_the_text_comes_out(cli: Command, played: Played) -> None:
    assert played.returncode == 0, played.stderr
    assert json.loads(played.stdout) == {"recall": 0.5, "precision": 1, "notes_md": "", "found": 1}
    agents = by_type(cli)
    assert sorted(agents) == ["critic", "grader", "optimizer"]
    assert {agents["critic"]["parentId"], agents["grader"]["parentId"]} == {agents["optimizer"]["runId"]}
    text, critique, grade = cli("message", "list", "--json").json
    assert [text["content"]["text"], critique["schema_type"], grade["schema_type"]] == [
        TEXT,
        "structured_critique",
        "structured_grade",
    ]
    assert (text["in_reply_to"], critique["in_reply_to"], grade["in_reply_to"]) == (None, text["id"], critique["id"])
    authors = [message["created_by_agent_id"] for message in (text, critique, grade)]
    assert authors == [agents[word]["runId"] for word in ("optimizer", "critic", "grader")]


@pytest.mark.case("C3-32", "C3-35", "C3-39")
def test_each_text_is_stored_once_and_each_message_is_answered(cli: Command, runs_dir: Path, played: Played) -> None:
    assert played.returncode == 0, played.stderr
    holders = [path for path in runs_dir.rglob("*") if path.is_file() and "reads the whole" in path.read_text("utf-8")]
    assert [path.parent.name for path in holders] == [".messages"]
    agents = by_type(cli)
    for word in ("critic", "grader"):
        assert cli("status", agents[word]["runId"], "--json").json["state"] == "success"
        [delivery] = [item for item in cli("inbox", agents[word]["runId"], "--json").json if item["wants_reply"]]
        assert (delivery["sender"], delivery["replied"]) == (agents["optimizer"]["runId"], True)

"""`subagent agents`: what can be run, and whether it is here."""

from pathlib import Path

import pytest

from tests.command import Command


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with one program that is an agent's."""
    file = tmp_path / "bin" / "codex"
    file.parent.mkdir()
    file.write_text("#!/bin/sh\n")
    file.chmod(0o700)
    return file


def test_each_agent_is_one_line_and_the_installed_come_first(cli: Command, installed: Path) -> None:
    done = cli("agents", env={"PATH": str(installed.parent)})
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["codex", str(installed), "yes", "shipped"]
    assert lines[1].split() == ["aider", "no", "no", "shipped"]
    assert "claude" in [line.split()[0] for line in lines]


def test_json_is_the_whole_list(cli: Command, installed: Path) -> None:
    rows = cli("agents", "--json", env={"PATH": str(installed.parent)}).json
    assert list(rows[0]) == ["name", "command", "prompt", "resume", "session", "output", "installed", "source"]
    assert (rows[0]["name"], rows[0]["installed"], rows[0]["resume"]) == ("codex", str(installed), True)
    assert {row["installed"] for row in rows[1:]} == {None}


def test_only_the_installed_are_shown_when_asked(cli: Command, tmp_path: Path, installed: Path) -> None:
    rows = cli("agents", "--installed", "--json", env={"PATH": str(installed.parent)}).json
    assert [row["name"] for row in rows] == ["codex"]
    none = cli("agents", "--installed", env={"PATH": str(tmp_path)})
    assert (none.code, none.out) == (0, "")
    assert "no agent is installed" in none.err


def test_the_projects_agents_are_listed_with_their_file(cli: Command, tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    file.write_text('[agents.mine]\ncommand = ["./mine.sh"]\n')
    (tmp_path / "mine.sh").write_text("#!/bin/sh\n")
    (tmp_path / "mine.sh").chmod(0o700)
    [row] = cli("agents", "--installed", "--json", env={"PATH": str(tmp_path / "none")}).json
    assert (row["name"], row["source"]) == ("mine", str(file))
    assert Path(row["installed"]).samefile(tmp_path / "mine.sh")


def test_a_mistake_in_a_file_is_exit_code_2_and_one_line_that_names_it(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_text('[agents.mine]\ncomand = ["x"]\n')
    done = cli("agents")
    assert (done.code, done.out) == (2, "")
    assert "agents.toml: agent 'mine': unknown key 'comand'" in done.err
    failed = cli("agents", "--json")
    assert failed.json["error"]["code"] == "invalid_agent_file"
    assert failed.json["error"]["candidates"] == ["command"]


def test_no_runs_directory_is_needed_or_made(cli: Command, runs_dir: Path) -> None:
    assert cli("agents").code == 0
    assert not runs_dir.exists()

"""Agents are found in the file that is named, then in the project's, then in the user's, then among the shipped."""

from pathlib import Path

import pytest

from subagent_cli.core.errors import InvalidInput
from subagent_cli.services import agents, settings
from subagent_cli.services.context import Context


def define(file: Path, *names: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"[agents.{name}]\ncommand = ['{name}']\n" for name in names))
    return file


def user_file() -> Path:
    return Path.home() / "config" / "subagent" / "agents.toml"


def fresh(desk: Context) -> Context:
    """The same with what the environment says now."""
    return desk._replace(settings=settings.load({}))


def files() -> list[str]:
    """As a call that starts now finds them."""
    return settings.agent_files(settings.load({})["agents"])


def program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o700)
    return file


def test_without_any_file_the_shipped_agents_are_known(desk: Context) -> None:
    assert files() == []
    assert agents.known(desk)["claude"].source == "shipped"


def test_the_named_file_goes_before_the_project_before_the_user_before_the_shipped(
    desk: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = define(user_file(), "claude", "a", "b", "c")
    project = define(tmp_path / "agents.toml", "a", "b")
    named = define(tmp_path / "elsewhere" / "mine.toml", "a")
    below = tmp_path / "deep" / "down"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.setenv("SUBAGENT_AGENTS", str(named))
    sources = {name: agent.source for name, agent in agents.known(fresh(desk)).items()}
    assert (sources["a"], sources["b"], sources["c"]) == (str(named), str(project), str(user))
    assert (sources["claude"], sources["codex"]) == (str(user), "shipped")


def test_only_the_nearest_file_above_is_the_projects(
    desk: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(tmp_path / "agents.toml", "far")
    near = define(tmp_path / "here" / "agents.toml", "near")
    monkeypatch.chdir(near.parent)
    assert files() == [str(near)]
    assert "far" not in agents.known(desk)


def test_a_named_file_is_taken_from_the_current_folder_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = define(tmp_path / "agents.toml", "mine")
    monkeypatch.setenv("SUBAGENT_AGENTS", "agents.toml")
    assert files() == [str(file)]


def test_a_named_file_that_is_not_there_is_a_mistake(desk: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_AGENTS", "nowhere.toml")
    with pytest.raises(InvalidInput, match="SUBAGENT_AGENTS") as caught:
        agents.known(fresh(desk))
    assert caught.value.code == "invalid_setting"
    monkeypatch.setenv("SUBAGENT_AGENTS", "")
    assert agents.known(fresh(desk))


def test_those_that_are_installed_come_first_each_part_by_name(
    desk: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(tmp_path / "agents.toml", "zeta", "beta")
    paths = [str(program(tmp_path / "bin", name)) for name in ("codex", "zeta")]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    rows = agents.listed(desk)
    assert [(row["name"], row["installed"]) for row in rows[:2]] == list(zip(("codex", "zeta"), paths, strict=True))
    rest = [row["name"] for row in rows[2:]]
    assert rest == sorted(rest)
    assert "beta" in rest
    assert {row["installed"] for row in rows[2:]} == {None}


def test_a_row_says_what_the_agent_can_do(desk: Context, tmp_path: Path) -> None:
    file = define(tmp_path / "agents.toml", "plain")
    rows = {row["name"]: row for row in agents.listed(desk)}
    assert rows["plain"] == {
        "name": "plain",
        "command": ["plain"],
        "prompt": "stdin",
        "resume": False,
        "session": None,
        "output": "text",
        "installed": None,
        "source": str(file),
    }
    codex = rows["codex"]
    assert (codex["resume"], codex["session"], codex["output"]) == (True, "output", "codex")
    assert codex["command"][:2] == ["codex", "exec"]


def test_an_empty_path_is_that_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/somewhere")
    assert settings.program_path() == "/somewhere"
    monkeypatch.setenv("PATH", "")
    assert "/bin" in settings.program_path()

"""Help: the page and the commands say the same, every command has an example, and what is generated comes out."""

import json
import re
import subprocess
from importlib import import_module
from pathlib import Path

import click
import pytest

from subagent_cli import __version__
from subagent_cli.cli.main import COMMANDS
from subagent_cli.services import settings
from tests.command import Command


def command(name: str) -> click.Command:
    found: click.Command = import_module(f"subagent_cli.cli.commands.{name}").command
    return found


def help_of(name: str) -> str:
    return command(name).help or ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_of_each_command_what_it_says_of_itself(name: str) -> None:
    assert help_of(name).splitlines()[0] == COMMANDS[name]
    assert command(name).name == name


def test_every_command_file_is_in_the_table() -> None:
    folder = Path(str(import_module("subagent_cli.cli.commands").__file__)).parent
    assert {file.stem for file in folder.glob("*.py")} - {"__init__"} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_of_itself_and_takes_json_and_a_place(name: str) -> None:
    example = f"{help_of(name)}\n{command(name).epilog}".partition("Example:")[2]
    assert f"subagent {name}" in example
    options = {option for param in command(name).params for option in param.opts}
    assert {"--json", "--runs-dir"} <= options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    silent = [param.opts[0] for param in command(name).params if isinstance(param, click.Option) and not param.help]
    assert silent == []


@pytest.mark.case("C1-58")
def test_only_what_makes_a_run_names_an_agent() -> None:
    named = [name for name in COMMANDS if "agent" in {param.name for param in command(name).params}]
    assert named == ["create", "spawn", "dispatch"]


def test_the_page_lists_every_command_and_each_prints_its_own(cli: Command) -> None:
    page = cli("--help")
    assert (page.code, page.err) == (0, "")
    for name, text in COMMANDS.items():
        assert re.search(rf"^ +{name} +{re.escape(text)}$", page.out, re.MULTILINE), name
    assert cli("-h").out == page.out
    own = cli("ask", "--help")
    assert (own.code, own.err) == (0, "")
    assert own.out.startswith("Usage: subagent ask ")
    assert COMMANDS["ask"] in own.out
    assert "Example:" in own.out


def test_no_words_at_all_show_the_page(cli: Command) -> None:
    done = cli()
    assert done.code == 2
    assert "Usage: subagent" in done.out + done.err
    assert "pending" in done.out + done.err


def test_the_version_is_one_line(cli: Command) -> None:
    assert cli("--version").out == cli("-V").out == f"subagent {__version__}\n"


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete "), ("zsh", "#compdef subagent"), ("fish", "complete ")]
)
def test_a_shell_gets_its_completion_script(cli: Command, tmp_path: Path, shell: str, mark: str) -> None:
    done = cli("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert mark in done.out
    assert "_SUBAGENT_COMPLETE" in done.out
    assert cli("completion", shell, "--json").json == {"shell": shell, "script": done.out.removesuffix("\n")}
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.raw, check=True, timeout=60)


def test_completion_knows_commands_and_runs(cli: Command) -> None:
    run_id = cli("create", "helper", "Do it", "--name", "tidy").out.strip()
    cli("create", "helper", "Do it", "--name", "other")
    script = cli("completion", "bash").out
    assert "COMP_WORDS" in script

    def completed(*words: str) -> set[str]:
        env = {"_SUBAGENT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        done = cli(env=env)
        assert done.code == 0, done
        return {line.partition(",")[2] for line in done.out.splitlines()}

    assert completed("subagent", "st") == {"status"}
    assert completed("subagent", "status", "ti") == {"tidy"}
    assert run_id[-8:] in completed("subagent", "status", run_id[-8:-4])


@pytest.mark.parametrize("source", ["option", "SUBAGENT_RUNS_DIR", "subagent.toml", "found here", "default"])
def test_config_says_first_where_the_runs_lie_and_why(cli: Command, tmp_path: Path, source: str) -> None:
    place, words = str(tmp_path / "kept"), list[str]()
    env: dict[str, str | None] = {"SUBAGENT_RUNS_DIR": None}
    if source == "option":
        words = ["--runs-dir", place]
    elif source == "SUBAGENT_RUNS_DIR":
        env = {"SUBAGENT_RUNS_DIR": place}
    elif source == "subagent.toml":
        (tmp_path / "subagent.toml").write_text('runs_dir = "./kept"')
    elif source == "found here":
        place = str(tmp_path / "runs")
        (tmp_path / "runs").mkdir()
    else:
        place = str(Path.home() / "state" / "subagent" / "runs")
    plain = cli("config", *words, env=env)
    assert (plain.code, plain.err) == (0, "")
    first = plain.out.splitlines()[0]
    assert first.startswith("runs_dir ")
    assert place in first
    assert source in first
    found = cli("config", "--json", *words, env=env).json
    assert next(iter(found)) == "runs_dir"
    assert found["runs_dir"]["value"] == place
    assert source in found["runs_dir"]["source"]


def test_config_shows_every_setting_and_its_variable(cli: Command) -> None:
    found = cli("config", "--json").json
    assert list(found) == [setting.name for setting in settings.SETTINGS]
    assert all(found[name]["variable"] == f"SUBAGENT_{name.upper()}" for name in found)
    assert cli("--set", "max_text=7", "config", "--json").json["max_text"] == {
        **found["max_text"],
        "value": 7,
        "source": "option",
    }


@pytest.mark.parametrize("name", ["meta", "run", "journal"])
def test_a_schema_comes_out_as_json_in_either_form(cli: Command, name: str) -> None:
    plain, as_json = cli("schema", name), cli("schema", name, "--json")
    assert (plain.code, plain.err) == (0, "")
    assert plain.json == as_json.json
    assert plain.json["$schema"].startswith("https://json-schema.org/")
    if name == "meta":
        assert cli("schema").json == plain.json
        assert "messages" in json.dumps(plain.json)


def test_typescript_types_come_out(cli: Command) -> None:
    done = cli("schema", "--typescript")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^export (interface|type) \w+", done.out, re.MULTILINE)
    one = cli("schema", "meta", "--typescript")
    assert len(one.out) < len(done.out)
    assert cli("schema", "--typescript", "--json").json["typescript"].rstrip("\n") == done.out.rstrip("\n")


def test_who_types_nothing_is_shown_what_there_is(cli: Command) -> None:
    done = cli()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: subagent")
    assert "\n  run " in done.err
    told = cli(env={"SUBAGENT_OUTPUT": "json"}).json
    assert (told["error"]["code"], told["error"]["message"]) == ("usage", "no command is named")

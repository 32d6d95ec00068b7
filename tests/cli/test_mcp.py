"""`subagent mcp` before it serves: what clients are told, who is turned away, and what it costs those who need none of
it."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.living import one_line
from tests.cli.test_cold_start import loaded, tops
from tests.command import PATIENCE, PROGRAM, Command, Done

# As if the extra had never been installed.
WITHOUT = """
import sys
sys.modules["mcp"] = None
from subagent_cli.cli.main import main
main(sys.argv[1:])
"""


def without_the_extra(runs_dir: Path, *words: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT, "--runs-dir", str(runs_dir), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("client", ["claude", "gemini", "qwen", "copilot", "cursor-agent"])
def test_the_snippet_for_most_clients_is_json_that_names_the_program(cli: Command, runs_dir: Path, client: str) -> None:
    done = cli("mcp", "--print-config", client)
    server = done.json["mcpServers"]["subagent"]
    _can_be_started(server["command"], server["args"], server["env"], runs_dir)
    assert client != "copilot" or server["tools"] == ["*"]
    assert done.err.startswith("for ")


def test_the_snippet_for_opencode_is_json_of_its_own_form(cli: Command, runs_dir: Path) -> None:
    server = cli("mcp", "--print-config", "opencode").json["mcp"]["subagent"]
    program, *words = server["command"]
    _can_be_started(program, words, server["environment"], runs_dir)


def test_the_snippet_for_codex_is_toml(cli: Command, runs_dir: Path) -> None:
    server = tomllib.loads(cli("mcp", "--print-config", "codex").out)["mcp_servers"]["subagent"]
    _can_be_started(server["command"], server["args"], server["env"], runs_dir)


def test_a_snippet_never_holds_a_token(cli: Command) -> None:
    made = cli("create", "helper", "Do it", "--json").json
    done = cli("mcp", "--print-config", "claude", env=made["env"])
    assert made["env"]["SUBAGENT_TOKEN"] not in done.out


def test_as_json_the_snippet_is_a_text_in_it(cli: Command) -> None:
    told = cli("mcp", "--print-config", "codex", "--json").json
    assert told["agent"] == "codex"
    assert "subagent" in tomllib.loads(told["config"])["mcp_servers"]


def test_a_client_that_nobody_knows_is_refused(cli: Command) -> None:
    done = cli("mcp", "--print-config", "nobody")
    assert done.code == 2
    assert "nobody" in one_line(done)


def test_without_the_extra_one_line_says_how_to_get_it(runs_dir: Path) -> None:
    done = without_the_extra(runs_dir, "mcp")
    assert done.code == 2
    assert one_line(done) == "the MCP server is not installed"
    assert "hint: install subagent with its extra: pipx install '.[mcp]'" in done.err


def test_without_the_extra_a_snippet_is_printed_with_a_warning(runs_dir: Path) -> None:
    done = without_the_extra(runs_dir, "mcp", "--print-config", "claude")
    assert done.code == 0
    assert "subagent" in done.json["mcpServers"]
    assert "warning: the server is not installed" in done.err


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_keeps_it_from_serving_is_never_told_on_standard_output(cli: Command, form: str) -> None:
    made = cli("create", "helper", "Do it", "--json").json
    for env in ({**made["env"], "SUBAGENT_TOKEN": "0" * 64}, {"SUBAGENT_TOKEN": "0" * 64}):
        done = cli("mcp", env={**env, "SUBAGENT_OUTPUT": form})
        assert (done.code, done.out) == (5, "")
        assert "SUBAGENT_RUN_ID" in one_line(done)


@pytest.mark.parametrize(("words", "env"), [(["--worker"], {}), ([], {"SUBAGENT_DEPTH": "1"})])
def test_a_worker_whose_token_got_lost_is_not_served_as_the_operator(
    cli: Command, words: list[str], env: dict[str, str]
) -> None:
    done = cli("mcp", *words, env=env)
    assert done.code == 5
    assert "worker" in one_line(done)


def test_it_ends_when_nobody_is_there(cli: Command) -> None:
    done = cli("mcp", "--json")
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_its_streams_it_serves_nobody(runs_dir: Path, closed: str) -> None:
    words = shlex.join([*PROGRAM, "--runs-dir", str(runs_dir), "mcp"])
    done = subprocess.run(["/bin/sh", "-c", f"{words} {closed}"], capture_output=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr == b"error: standard input and output are needed, and one of them is closed\n"


@pytest.mark.parametrize("words", [["--help"], ["list"], ["pending"], ["mcp", "--help"]])
def test_whoever_does_not_serve_does_not_load_the_sdk(cli: Command, runs_dir: Path, words: list[str]) -> None:
    cli("create", "helper", "Do it")
    assert tops(loaded(runs_dir, *words)) & {"mcp", "mcp_types", "anyio", "pydantic", "asyncio"} == set()


def _can_be_started(program: str, words: list[str], env: Mapping[str, str], runs_dir: Path) -> None:
    assert words == ["mcp"]
    assert os.path.isabs(program)
    assert os.access(program, os.X_OK)
    assert env == {"SUBAGENT_RUNS_DIR": str(runs_dir)}
    assert json.dumps(env)

"""Agents are data: a file is taken whole or refused by name, and placeholders become the words that are meant."""

from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import InvalidInput, Refused
from subagent_cli.process import agents
from subagent_cli.process.agents import LONGEST_ARGUMENT, PRESETS, Agent, Wishes

WISHES = Wishes(
    cwd="/work",
    runs_dir="/runs",
    run_dir="/runs/r1",
    run_id="r1",
    session="s1",
    model=None,
    args=(),
    prompt_file="/runs/r1/prompt.md",
    prompt="Do it",
)
ASKING = ("claude", "codex", "gemini", "opencode")
OTHERS = ("aider", "amp", "auggie", "copilot", "cursor-agent", "droid", "goose", "kiro-cli", "pi", "q", "qwen")


def wishes(**changes: Any) -> Wishes:
    return WISHES._replace(**changes)


def written(tmp_path: Path, text: str, name: str = "agents.toml") -> str:
    file = tmp_path / name
    file.write_text(text)
    return str(file)


def one(tmp_path: Path, text: str) -> Agent:
    """The agent that a table of these lines defines."""
    return agents.load([written(tmp_path, f"[agents.mine]\n{text}")])["mine"]


def test_every_agent_that_we_know_is_shipped() -> None:
    found = agents.load([])
    assert sorted(found) == sorted((*ASKING, *OTHERS))
    assert {agent.source for agent in found.values()} == {"shipped"}


@pytest.mark.parametrize("name", [*ASKING, *OTHERS])
@pytest.mark.parametrize("model", [None, "fast"])
def test_a_shipped_command_line_has_no_placeholder_left(name: str, model: str | None) -> None:
    agent = agents.load([])[name]
    asked = wishes(model=model if agent.model else None, args=("--more",))
    for resume in (False, True) if agent.resume else (False,):
        line = agents.words(agent, asked, resume=resume)
        assert line[0] == agent.command[0]
        assert line.count("--more") == 1
        assert line.count("fast") == (1 if asked.model else 0)
        assert not [word for word in line if "{" in word]
        assert ("s1" in " ".join(line)) == (resume or agent.session == "own")
        assert ("Do it" in " ".join(line)) == (agent.prompt == "arg")
    assert agents.variables(agent, asked) == agent.env


@pytest.mark.parametrize("resume", [False, True])
def test_the_four_can_ask_their_parent(resume: bool) -> None:
    """Each was tried with the real program and a double of its model; these are the words that let `ask` through."""
    found = agents.load([])
    line = {name: agents.words(found[name], WISHES, resume=resume) for name in ASKING}
    assert "Bash(subagent:*)" in line["claude"]
    assert line["codex"][line["codex"].index("--add-dir") + 1] == "/runs"
    assert "allow_login_shell=false" in line["codex"]
    assert "run_shell_command(subagent)" in line["gemini"]
    assert '"subagent *": "allow"' in agents.variables(found["opencode"], WISHES)["OPENCODE_CONFIG_CONTENT"]
    assert "--auto" not in line["opencode"]


def test_codex_reads_its_prompt_from_stdin_behind_all_options() -> None:
    codex = agents.load([])["codex"]
    asked = wishes(model="m", args=("-c", "a=1"))
    assert agents.words(codex, asked)[-5:] == ["-m", "m", "-c", "a=1", "-"]
    assert agents.words(codex, asked, resume=True)[-7:] == ["-m", "m", "-c", "a=1", "resume", "s1", "-"]


def test_the_first_file_wins_and_the_shipped_come_last(tmp_path: Path) -> None:
    near = written(tmp_path, '[agents.claude]\ncommand = ["near"]\n', "near.toml")
    far = written(tmp_path, '[agents.claude]\ncommand = ["far"]\n[agents.own]\ncommand = ["own"]\n', "far.toml")
    found = agents.load([near, far])
    assert (found["claude"].command, found["claude"].source) == (("near",), near)
    assert (found["own"].command, found["own"].source) == (("own",), far)
    assert found["codex"].source == "shipped"


def test_a_table_says_all_there_is_to_say(tmp_path: Path) -> None:
    agent = one(
        tmp_path,
        """
        command = ["mine", "--in", "{cwd}", "{args}", "{prompt}"]
        prompt = "arg"
        resume = ["mine", "--again", "{session}", "{prompt}"]
        session = "output"
        model = ["--model={model}"]
        output = "codex"
        env = { WHERE = "{run_dir}/x", PLAIN = "{}" }
        """,
    )
    assert agents.words(agent, wishes(model="m", args=("-a", "-b"))) == [
        *("mine", "--in", "/work", "--model=m", "-a", "-b", "Do it"),
    ]
    assert agents.words(agent, wishes(args=("-a",)), resume=True) == ["mine", "--again", "s1", "-a", "Do it"]
    assert agents.variables(agent, WISHES) == {"WHERE": "/runs/r1/x", "PLAIN": "{}"}
    assert (agent.prompt, agent.session, agent.output) == ("arg", "output", "codex")


def test_a_command_alone_is_enough(tmp_path: Path) -> None:
    agent = one(tmp_path, 'command = ["mine"]')
    assert agent == Agent("mine", ("mine",), source=str(tmp_path / "agents.toml"))
    assert agents.words(agent, wishes(args=("-a",), session=None)) == ["mine", "-a"]


def test_every_placeholder_is_filled_within_a_word_too(tmp_path: Path) -> None:
    agent = one(
        tmp_path,
        """
        command = ["mine", "{cwd}|{runs_dir}|{run_dir}|{run_id}|{session}|{prompt_file}"]
        session = "own"
        """,
    )
    assert agents.words(agent, WISHES)[1] == "/work|/runs|/runs/r1|r1|s1|/runs/r1/prompt.md"


def test_what_is_filled_in_is_not_filled_again(tmp_path: Path) -> None:
    agent = one(tmp_path, 'command = ["mine", "{cwd}", "{prompt}"]\nprompt = "arg"\nmodel = ["{model}"]')
    odd = wishes(prompt="{cwd} {args} {prompt}", cwd="/{run_id}", args=("{session}",), model="{cwd}")
    assert agents.words(agent, odd) == ["mine", "/{run_id}", "{cwd}", "{session}", "{cwd} {args} {prompt}"]


@pytest.mark.parametrize("word", ['{"a": {"b": 1}}', "{}", "{{cwd}", "a{b}c", "{not it}", "}{", "{1}", "{"])
def test_other_braces_stay_as_they_are(tmp_path: Path, word: str) -> None:
    agent = one(tmp_path, f"command = ['mine', '{word}']")
    assert agents.words(agent, WISHES)[1] == word.replace("{cwd}", "/work")


def test_a_prompt_that_is_too_long_for_a_word_is_named_by_its_file(tmp_path: Path) -> None:
    agent = one(tmp_path, 'command = ["mine", "--prompt={prompt}"]\nprompt = "arg"')
    sentence = "--prompt=Your task is in the file /runs/r1/prompt.md: read all of it and do what it says."
    longest = "é" * (LONGEST_ARGUMENT // 2)
    assert agents.words(agent, wishes(prompt=longest))[1] == f"--prompt={longest}"
    assert agents.words(agent, wishes(prompt=longest + "!"))[1] == sentence
    assert agents.words(agent, wishes(prompt="no\0word"))[1] == sentence


def test_a_model_is_refused_where_nobody_knows_how_to_ask_for_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        agents.words(one(tmp_path, 'command = ["mine"]'), wishes(model="m"))
    assert caught.value.code == "no_model_option"
    assert "--arg" in (caught.value.hint or "")


def test_going_on_needs_a_way_and_a_session(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        agents.words(one(tmp_path, 'command = ["mine"]'), WISHES, resume=True)
    assert caught.value.code == "cannot_resume"
    with pytest.raises(Refused) as caught:
        agents.words(agents.load([])["codex"], wishes(session=None), resume=True)
    assert caught.value.code == "no_session"


@pytest.mark.parametrize(
    ("text", "says", "candidate"),
    [
        ("[agents.mine]\ncomand = ['x']", "unknown key 'comand'", "command"),
        ("[agents.mine]\nsource = 'x'", "unknown key 'source'", "resume"),
        ("[agents.mine]\nprompt = 'stdin'", "no command", None),
        ("[agents.mine]\ncommand = []", "no command", None),
        ("[agents.mine]\ncommand = ['']", "begins with a program", None),
        ("[agents.mine]\ncommand = ['{args}']", "begins with a program", None),
        ("[agents.mine]\ncommand = ['{prompt}']\nprompt = 'arg'", "begins with a program", None),
        ("[agents.mine]\ncommand = ['x', '{args}', '{args}']", "once at most", None),
        ("[agents.mine]\ncommand = 'x y'", "command is a list of words", None),
        ("[agents.mine]\ncommand = ['x', 5]", "command is a list of words", None),
        ('[agents.mine]\ncommand = ["x\\u0000y"]', "command is a list of words", None),
        ("[agents.mine]\ncommand = ['x']\nprompt = 'pipe'", "prompt cannot be 'pipe'", "stdin"),
        ("[agents.mine]\ncommand = ['x']\nsession = true", "session cannot be 'True'", "own"),
        ("[agents.mine]\ncommand = ['x']\noutput = 'claud'", "output cannot be 'claud'", "claude"),
        ("[agents.mine]\ncommand = ['x']\noutput = ['text']", "output cannot be", "text"),
        ("[agents.mine]\ncommand = ['x']\nenv = ['A']", "env is a table", None),
        ("[agents.mine]\ncommand = ['x']\nenv = { A = 1 }", "not a variable with a text: 'A'", None),
        ("[agents.mine]\ncommand = ['x']\nenv = { 'A=B' = 'c' }", "not a variable with a text: 'A=B'", None),
        ("[agents.mine]\ncommand = ['x', '{cwdd}']", "command cannot use the placeholder {cwdd}", "cwd"),
        ("[agents.mine]\ncommand = ['x', '{session}']", "placeholder {session}", None),
        ("[agents.mine]\ncommand = ['x', '{session}']\nsession = 'output'", "placeholder {session}", None),
        ("[agents.mine]\ncommand = ['x', '-p={prompt}']", "placeholder {prompt}", "prompt_file"),
        ("[agents.mine]\ncommand = ['x', '{model}']", "placeholder {model}", None),
        ("[agents.mine]\ncommand = ['x', 'a{args}']", "placeholder {args}", None),
        ("[agents.mine]\ncommand = ['x']\nenv = { A = '{prompt}' }", "env cannot use", "prompt_file"),
        ("[agents.mine]\ncommand = ['x']\nmodel = ['--model']", "model has no {model}", None),
        ("[agents.mine]\ncommand = ['x']\nprompt = 'arg'", "command has no {prompt}", None),
        ("[agents.mine]\ncommand = ['x']\nprompt = 'file'", "command has no {prompt_file}", None),
        (
            "[agents.mine]\ncommand = ['x', '{prompt}']\nprompt = 'arg'\nresume = ['x', '--go']",
            "resume has no {prompt}",
            None,
        ),
        ("[agents]\nmine = 'x'", "an agent is a table", None),
        ("[agents.'a b']\ncommand = ['x']", "a name has letters", None),
        ("[agents.'../x']\ncommand = ['x']", "a name has letters", None),
    ],
)
def test_nonsense_is_refused_and_file_and_agent_are_named(
    tmp_path: Path, text: str, says: str, candidate: str | None
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        agents.load([path])
    assert caught.value.code == "invalid_agent_file"
    assert caught.value.message.startswith(f"{path}: agent ")
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert candidate is None or candidate in caught.value.candidates


@pytest.mark.parametrize("content", [b"[agents", b"\xff", b"agents = 5", b"[agent.mine]", b"command = ['x']"], ids=str)
def test_a_file_that_is_no_agent_file_is_refused_and_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "agents.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"agents\.toml") as caught:
        agents.load([str(file)])
    assert caught.value.code == "invalid_agent_file"


def test_a_file_that_cannot_be_read_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read") as caught:
        agents.load([str(tmp_path)])
    assert caught.value.code == "invalid_agent_file"


def test_an_empty_file_defines_nothing(tmp_path: Path) -> None:
    assert agents.load([written(tmp_path, "")]) == agents.load([])


def test_an_agent_is_found_by_name_or_the_nearest_names_are_told() -> None:
    found = agents.load([])
    assert agents.find(found, "codex") is found["codex"]
    with pytest.raises(InvalidInput, match=r"^Unknown subagent: claud$") as caught:
        agents.find(found, "claud")
    assert caught.value.code == "unknown_agent"
    assert caught.value.candidates == ("claude",)
    assert "subagent agents" in (caught.value.hint or "")
    with pytest.raises(InvalidInput) as caught:
        agents.find(found, "zzzzzz")
    assert set(caught.value.candidates) == set(found)


def test_a_program_is_looked_for_in_the_folders_that_are_given(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "mine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    agent = one(tmp_path, 'command = ["mine", "-p"]')
    assert agents.installed(agent, str(program.parent)) is None
    program.chmod(0o700)
    assert agents.installed(agent, str(program.parent)) == str(program)
    assert agents.installed(agent, str(tmp_path)) is None


def test_a_program_that_is_named_by_its_place_counts_from_where_the_file_lies(tmp_path: Path) -> None:
    assert one(tmp_path, 'command = ["bin/mine", "a/b"]').command == (str(tmp_path / "bin" / "mine"), "a/b")
    assert one(tmp_path, 'command = ["/bin/mine"]').command == ("/bin/mine",)
    assert one(tmp_path, 'command = ["~/mine"]').command == (str(Path.home() / "mine"),)
    assert one(tmp_path, 'command = ["{cwd}/mine"]').command == ("{cwd}/mine",)


def test_the_presets_lie_beside_the_code() -> None:
    assert Path(PRESETS).parent == Path(agents.__file__).parent


SERVER = {"mcp_config": '{"mcpServers": {}}', "mcp_command": '"/bin/subagent"', "mcp_args": '["mcp"]'}


def test_a_server_is_named_before_the_users_own_words_and_only_where_there_is_one(tmp_path: Path) -> None:
    agent = one(tmp_path, 'command = ["x"]\nmcp = ["--server", "{mcp_command}={mcp_args}", "{run_id}"]')
    assert agents.words(agent, wishes(args=("--more",))) == ["x", "--more"]
    asked = wishes(args=("--more",), mcp=SERVER)
    assert agents.words(agent, asked) == ["x", "--server", '"/bin/subagent"=["mcp"]', "r1", "--more"]


@pytest.mark.parametrize("name", [*ASKING, *OTHERS])
def test_a_shipped_agent_with_a_server_has_no_placeholder_left(name: str) -> None:
    agent = agents.load([])[name]
    line = agents.words(agent, wishes(mcp=dict.fromkeys(SERVER, "HERE")))
    assert not [word for word in line if "{" in word]
    assert ("HERE" in " ".join(line)) == bool(agent.mcp)


def test_what_stands_for_the_server_stands_in_its_own_key_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot use the placeholder \{mcp_config\}"):
        one(tmp_path, 'command = ["x", "{mcp_config}"]')
    with pytest.raises(InvalidInput, match=r"cannot use the placeholder \{prompt\}"):
        one(tmp_path, 'command = ["x", "{prompt}"]\nprompt = "arg"\nmcp = ["{prompt}"]')

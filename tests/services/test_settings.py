"""Settings: each has an option, a variable and a config key, in that order, and every mistake names its source."""

from pathlib import Path

import pytest

from subagent_cli.core.errors import InvalidInput, NotFound
from subagent_cli.services import listing, questions, settings
from subagent_cli.services.context import open_context
from tests.services.desk import StillClock, create

HOURS = 3_600_000


@pytest.fixture
def user_file() -> Path:
    file = Path.home() / "config" / "subagent" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


def test_an_option_goes_before_a_variable_before_the_project_before_the_user_before_the_default(
    tmp_path: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ttl(**options: str) -> tuple[int, str]:
        value, source = settings.load(options)["question_ttl"]
        return value, source

    assert ttl() == (24 * HOURS, "default")
    user_file.write_text('question_ttl = "4h"')
    assert ttl() == (4 * HOURS, str(user_file))
    project = tmp_path / "subagent.toml"
    project.write_text('question_ttl = "3h"')
    assert ttl() == (3 * HOURS, str(project))
    monkeypatch.setenv("SUBAGENT_QUESTION_TTL", "2h")
    assert ttl() == (2 * HOURS, "SUBAGENT_QUESTION_TTL")
    assert ttl(question_ttl="1h") == (HOURS, "option")


@pytest.mark.parametrize("name", [setting.name for setting in settings.SETTINGS])
def test_every_setting_can_be_given_in_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    numbers = ("max_text", "max_depth", "max_children", "max_wakes", "log_limit", "max_workspace")
    there = str(tmp_path / "there")
    given: dict[str, tuple[str, object]] = {
        "output": ("json", "json"),
        "attach_mcp": ("off", False),
        "env_deny": ("77s", ("77s",)),
        **dict.fromkeys(("runs_dir", "agents"), (there, there)),
        **dict.fromkeys(numbers, ("77", 77)),
    }
    text, value = given.get(name, ("77s", 77_000))
    assert settings.load({name: text})[name] == (value, "option")
    file = tmp_path / "subagent.toml"
    file.write_text(f'{name} = "{text}"')
    assert settings.load({})[name] == (value, str(file))
    variable = settings.BY_NAME[name].variable
    assert variable == f"SUBAGENT_{name.upper()}"
    monkeypatch.setenv(variable, text)
    assert settings.load({})[name] == (value, variable)


def test_the_projects_file_is_found_from_a_folder_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "subagent.toml").write_text("max_text = 5")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert settings.load({})["max_text"] == (5, str(tmp_path / "subagent.toml"))
    (below.parent / "subagent.toml").write_text("max_text = 6")
    assert settings.load({})["max_text"].value == 6


def test_a_variable_names_another_file_for_the_user(
    tmp_path: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file.write_text("max_text = 5")
    other = tmp_path / "mine.toml"
    monkeypatch.setenv("SUBAGENT_CONFIG", str(other))
    with pytest.raises(InvalidInput, match="SUBAGENT_CONFIG"):
        settings.load({})
    other.write_text("max_text = 6")
    assert settings.load({})["max_text"] == (6, str(other))


@pytest.mark.parametrize("spelling", ["kept", "./kept", "deep/kept"])
def test_a_folder_in_a_file_counts_from_where_the_file_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    (tmp_path / "subagent.toml").write_text(f'runs_dir = "{spelling}"')
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert settings.load({})["runs_dir"].value == str(tmp_path / spelling)


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_RUNS_DIR", "~/kept")
    assert settings.load({})["runs_dir"].value == str(Path.home() / "kept")


def test_runs_lie_in_a_folder_called_runs_here_or_above_or_in_the_users_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.load({})["runs_dir"] == (str(Path.home() / "state" / "subagent" / "runs"), "default")
    (tmp_path / "runs").mkdir()
    assert settings.load({})["runs_dir"] == (str(tmp_path / "runs"), "found here")
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert settings.load({})["runs_dir"] == (str(tmp_path / "runs"), "found above")


def test_a_folder_called_runs_that_is_another_programs_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "model.ckpt").touch()
    assert settings.load({})["runs_dir"].source == "default"
    (tmp_path / "runs" / ".index").mkdir()
    assert settings.load({})["runs_dir"].source == "found here"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("runs_dir", ""),
        ("runs_dir", "a\0b"),
        ("output", "xml"),
        ("output", "JSON"),
        ("lock_timeout", "soon"),
        ("lock_timeout", "0"),
        ("lock_timeout", "-1"),
        ("lock_timeout", "1w"),
        ("lock_timeout", "1.2.3"),
        ("question_ttl", "inf"),
        ("question_ttl", "nan"),
        ("question_ttl", "9" * 400),
        ("question_ttl", ""),
        ("max_text", "0"),
        ("max_text", "-5"),
        ("max_text", "1e6"),
        ("max_text", "9" * 5000),
        ("max_text", "²"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_and_named(name: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} \\(option\\)") as caught:
        settings.load({name: text})
    assert caught.value.code == "invalid_setting"


@pytest.mark.parametrize(
    "content",
    [b"max_text = true", b"max_text = [5]", b"max_txt = 5", b"max_text =", b"\xff", b'output = "xml"', b"[output]"],
    ids=str,
)
def test_a_mistake_in_a_file_is_refused_and_the_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "subagent.toml").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"subagent\.toml") as caught:
        settings.load({})
    assert caught.value.code == "invalid_setting"


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAGENT_MAX_TEXT", "")
    assert settings.load({})["max_text"].source == "default"


@pytest.mark.parametrize(
    ("text", "ms"), [("90", 90_000), ("90s", 90_000), ("250ms", 250), ("1.5h", 5_400_000), ("2d", 172_800_000)]
)
def test_lengths_of_time_are_written_as_people_write_them(text: str, ms: int) -> None:
    assert settings.load({"question_ttl": text})["question_ttl"].value == ms


def test_a_settings_value_is_what_the_verbs_go_by(runs_dir: Path, clock: StillClock) -> None:
    desk = open_context({"runs_dir": str(runs_dir), "question_ttl": "1h"}, clock)
    run_id = create(desk)
    questions.ask(desk, "Which?", run=run_id)
    clock.wait(HOURS)
    assert len(questions.pending(desk)[0]) == 1
    clock.wait(1)
    assert questions.pending(desk)[0] == []


def test_the_default_folder_need_not_be_there_and_a_named_one_must(tmp_path: Path, clock: StillClock) -> None:
    assert listing.find(open_context({}, clock)) == ([], [])
    named = open_context({"runs_dir": str(tmp_path / "nowhere")}, clock)
    with pytest.raises(NotFound) as caught:
        listing.find(named)
    assert caught.value.code == "runs_dir_not_found"

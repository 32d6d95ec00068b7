"""`subagent doctor`: one line a finding, what was or would be done about it, and exit code 8 while damage is left."""

import json
from pathlib import Path

import pytest

from tests.command import Command


@pytest.fixture
def cli(tmp_path: Path) -> Command:
    return Command(tmp_path / "foreign" / "runs")


@pytest.fixture
def run_id(cli: Command) -> str:
    run_id = cli("create", "helper", "Do it").out.strip()
    assert cli("ask", "Which?", "--run", run_id).code == 0
    return run_id


def folder(cli: Command, run_id: str) -> Path:
    return Path(cli.runs_dir) / run_id


def test_nothing_wrong_is_said_on_stderr(cli: Command, run_id: str) -> None:
    done = cli("doctor")
    assert (done.code, done.out, done.err) == (0, "", "1 run checked, nothing wrong\n")
    assert cli("doctor", "--json").json == {"checked": 1, "findings": []}


def test_damage_is_one_line_and_exit_code_8_until_it_is_mended(cli: Command, run_id: str) -> None:
    (folder(cli, run_id) / ".meta.json").write_bytes(b"{")
    seen = cli("doctor")
    assert seen.code == 8
    [line] = seen.out.splitlines()
    assert line.startswith(f"{run_id[-8:]}  ")
    assert "  -> --fix: it was put into quarantine" in line
    assert seen.err == "1 run checked: 1 damaged\n"
    mended = cli("doctor", run_id[-8:], "--fix")
    assert mended.code == 0
    assert "  -> it was put into quarantine" in mended.out
    assert mended.err == "1 run checked: 1 mended\n"
    again = cli("doctor", "--fix")
    assert (again.code, again.out, again.err) == (0, "", "1 run checked, nothing wrong\n")
    assert cli("status", run_id).code == 0


def test_json_says_the_same(cli: Command, run_id: str) -> None:
    (folder(cli, run_id) / "journal.jsonl").unlink()
    seen = cli("doctor", "--json")
    assert (seen.code, seen.err) == (8, "")
    [finding] = seen.json["findings"]
    assert list(finding) == ["runId", "code", "message", "severity", "fix", "fixed"]
    assert (finding["runId"], finding["code"], finding["severity"]) == (run_id, "missing_journal", "damage")
    assert finding["fixed"] is False
    mended = cli("doctor", "--fix", "--json")
    assert mended.code == 0
    assert mended.json["findings"] == [finding | {"fixed": True}]
    assert cli("doctor", "--json").json["findings"] == []


def test_what_cannot_be_mended_stays_exit_code_8(cli: Command, run_id: str) -> None:
    for name in ("journal.jsonl", ".meta.json"):
        (folder(cli, run_id) / name).unlink()
    for words in (["doctor"], ["doctor", "--fix"]):
        done = cli(*words)
        assert done.code == 8
        assert "->" not in done.out
        assert "neither a journal nor a .meta.json" in done.out


def test_warnings_and_notes_alone_are_exit_code_0(cli: Command, run_id: str) -> None:
    (Path(cli.runs_dir) / "mine\x1b[2J.txt").touch()
    folder(cli, run_id).chmod(0o755)
    done = cli("doctor")
    assert done.code == 0
    assert done.out.splitlines()[0] == "-         not ours, and left alone: mine\\x1b[2J.txt"
    assert done.err == "1 run checked: 1 warning, 1 note\n"


def test_the_words_of_another_program_stay_on_one_line(cli: Command, run_id: str) -> None:
    file = folder(cli, run_id) / "run.json"
    asked = json.loads(file.read_bytes())
    file.write_text(json.dumps(asked | {"version": "1\n\x1b[31mall is well"}))
    done = cli("doctor")
    assert done.code == 8
    assert len(done.out.splitlines()) == 1
    assert "\x1b" not in done.out


def test_a_run_that_is_not_there_is_exit_code_3(cli: Command, run_id: str) -> None:
    assert cli("doctor", "nobody").code == 3

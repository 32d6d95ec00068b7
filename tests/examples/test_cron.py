"""The shipped schedules run the sweep for real, and mean what `subagent sweep` itself would print."""

import configparser
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "cron"
PROGRAM = Path(sys.executable).with_name("subagent")
PATIENCE = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which the program and its runs lie where the files expect them; one question there is overdue."""
    (tmp_path / ".local" / "bin").mkdir(parents=True)
    (tmp_path / ".local" / "bin" / "subagent").symlink_to(PROGRAM)
    subagent(tmp_path, "create", "helper", "Do it", "--name", "it")
    subagent(tmp_path, "ask", "Which?", "--run", "it", "--deadline", "1ms")
    assert not swept(tmp_path)
    return tmp_path


def run(home: Path, *words: str) -> str:
    """As a scheduler starts a program: no terminal, hardly any environment."""
    done = subprocess.run(
        words,
        env={"HOME": str(home), "PATH": os.defpath},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, "error" in done.stderr) == (0, False), done
    return done.stdout


def subagent(home: Path, *words: str) -> str:
    runs_dir = home / ".local" / "state" / "subagent" / "runs"
    return run(home, str(home / ".local" / "bin" / "subagent"), "--runs-dir", str(runs_dir), *words)


def swept(home: Path) -> bool:
    """Whether the overdue question is written down as expired."""
    (meta,) = (home / ".local" / "state" / "subagent" / "runs").glob("*/.meta.json")
    (message,) = json.loads(meta.read_bytes())["messages"]
    return bool(message["messageStatus"] == "parent_acknowledged")


def crontab(line: str) -> tuple[list[str], str]:
    """When, and the command that cron hands to a shell."""
    *when, command = line.strip().split(None, 5)
    return when, command.replace("\\%", "%")


def units(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(text)
    return parser


def shipped_units() -> configparser.ConfigParser:
    return units("\n".join((EXAMPLES / f"subagent-sweep.{kind}").read_text() for kind in ("service", "timer")))


def test_the_crontab_line_sweeps_and_is_silent(home: Path) -> None:
    _, command = crontab((EXAMPLES / "subagent.cron").read_text())
    assert run(home, "/bin/sh", "-c", command) == ""
    assert swept(home)


def test_the_service_sweeps(home: Path) -> None:
    words = shlex.split(shipped_units()["Service"]["ExecStart"].replace("%h", str(home)))
    assert run(home, *words)
    assert swept(home)


def test_the_crontab_line_is_the_one_that_sweep_prints(home: Path) -> None:
    when, command = crontab((EXAMPLES / "subagent.cron").read_text())
    printed_when, printed_command = crontab(subagent(home, "sweep", "--print-cron"))
    assert when == printed_when
    assert shlex.split(command.replace("$HOME", str(home))) == shlex.split(printed_command)


def test_the_units_are_those_that_sweep_prints(home: Path) -> None:
    shipped, printed = shipped_units(), units(subagent(home, "sweep", "--print-systemd"))
    for section in ("Service", "Timer", "Install"):
        ours = {name: value.replace("%h", str(home)) for name, value in shipped[section].items()}
        assert ours == dict(printed[section])


def test_the_readme_names_every_file_and_only_options_there_are(home: Path) -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert "subagent.cron" in text
    assert "subagent-sweep.*" in text
    known = subagent(home, "sweep", "--help")
    for option in ("--print-cron", "--print-systemd", "--dry-run", "--max-age"):
        assert option in text
        assert option in known

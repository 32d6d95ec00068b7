"""Ready lines that let the system's own scheduler run the sweep."""

from shlex import quote

_SERVICE = """\
# ~/.config/systemd/user/subagent-sweep.service
[Unit]
Description=Expire old questions of sub-agents and tidy up

[Service]
Type=oneshot
ExecStart={command}
"""

_TIMER = """\
# ~/.config/systemd/user/subagent-sweep.timer
# then: systemctl --user enable --now subagent-sweep.timer
[Unit]
Description=Sweep the runs of sub-agents every {minutes} minutes

[Timer]
OnBootSec={minutes}min
OnUnitActiveSec={minutes}min

[Install]
WantedBy=timers.target
"""

MINUTES = 5


def cron(program: str, runs_dir: str) -> str:
    """A line for `crontab -e`. Cron takes a bare percent sign for the end of the line."""
    command = f"{quote(program)} --runs-dir {quote(runs_dir)} sweep".replace("%", "\\%")
    return f"*/{MINUTES} * * * * {command} >/dev/null"


def systemd(program: str, runs_dir: str) -> str:
    """A service and its timer. Systemd has its own quotes, and doubles what it would expand."""
    words = [program, "--runs-dir", runs_dir, "sweep"]
    return _SERVICE.format(command=" ".join(map(_word, words))) + "\n" + _TIMER.format(minutes=MINUTES)


def _word(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = escaped == text and not any(letter.isspace() or letter in "'\";" for letter in text)
    return text if plain else f'"{escaped}"'

"""`subagent doctor`."""

from collections import Counter
from typing import Any

import click

from subagent_cli.cli.output import one_line
from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.ids import short
from subagent_cli.services import doctor

_LONGEST = 2000
_KINDS = {
    "damage": ("damaged", "damaged"),
    "warning": ("warning", "warnings"),
    "note": ("note", "notes"),
    "mended": ("mended", "mended"),
}


@verb("doctor", example="subagent doctor\nsubagent doctor --fix\nsubagent doctor 5b3a91c4 --json")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@click.option(
    "--fix", is_flag=True, help="Mend what can be mended; what cannot is kept in the run's quarantine folder."
)
def command(context: Context, runs: tuple[str, ...], fix: bool) -> Answer:
    """Check every run, and mend what can be mended."""
    found = doctor.check(context, runs, fix=fix)
    lines = [_line(finding, fix) for finding in found["findings"]]
    return Answer(found, text="\n".join(lines), talk=_talk(found), code=8 if doctor.damaged(found) else 0)


def _line(finding: dict[str, Any], fix: bool) -> str:
    run = short(finding["runId"]) if finding["runId"] else "-"
    text = f"{run:<8}  {one_line(finding['message'], _LONGEST)}"
    if finding["fixed"]:
        return f"{text}  -> {finding['fix']}"
    if finding["fix"]:
        return f"{text}  -> {'could not be mended' if fix else '--fix: ' + finding['fix']}"
    return text


def _talk(found: dict[str, Any]) -> str:
    number = found["checked"]
    checked = f"{number} run{'' if number == 1 else 's'} checked"
    if not found["findings"]:
        return f"{checked}, nothing wrong"
    kinds = Counter("mended" if finding["fixed"] else finding["severity"] for finding in found["findings"])
    counts = [f"{kinds[kind]} {words[kinds[kind] > 1]}" for kind, words in _KINDS.items() if kind in kinds]
    return f"{checked}: {', '.join(counts)}"

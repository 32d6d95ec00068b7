"""What every call from a shell pays: cold starts beside bare Python, the least click program, and Node.

Promises: calls that write have runs of their own, so that what the others read stays as it is.
"""

import os
import shutil
import stat
import sys
from collections.abc import Callable

from scripts import bench_double
from scripts.bench_rounds import SUBAGENT, Case, asked, environment, new_run, opened, shuffled, started
from scripts.bench_table import Part, Row
from subagent_cli.services import questions
from subagent_cli.services.context import Context

LOG_LINES = 1000
PYTHON, CLICK, LEAST, NODE = "python -c pass", "python -c import click", "click app --help", "node -e 0"
SERVER = f"{bench_double.NAME}: start + one status"
READS = ("status RUN", "pending", "check QUESTION", "logs RUN -n 10")
WRITES = ("ask", "reply QUESTION", "status RUN, acknowledging")
READ_GOAL, READ_STRETCH, WRITE_GOAL, WRITE_STRETCH = 4.5, 2.0, 7.0, 2.5
SERVER_GOAL, HELP_GOAL = 2.3, 1.15
CLICK_APP = """\
#!{python}
import sys
import click

@click.group()
def cli():
    "The least that a click program can be."

@cli.command()
@click.argument("name")
def hello(name):
    "Greet somebody."
    click.echo(name)

if __name__ == "__main__":
    sys.exit(cli())
"""


def cold_starts(home: str, rounds: int) -> Part:
    still, busy = os.path.join(home, "still"), os.path.join(home, "busy")
    measures = {**_bare(home), **_reads(home, still), **_writes(home, busy)}
    left_out: list[str] = []
    if why := bench_double.no_node():
        left_out.append(f"cold starts beside {NODE}: {why}")
    else:
        measures[NODE] = lambda: started(Case((bench_double.NODE, "-e", "0"), environment(home), home))
    if why := bench_double.missing():
        left_out.append(f"cold starts beside the {bench_double.NAME}: {why}")
    else:
        measures[SERVER] = _server(home, opened(still))
    ms = shuffled(measures, rounds)
    rows = [Row(name, ms[name], ms[PYTHON], PYTHON, "ms") for name in (CLICK, LEAST)]
    rows += [Row(name, ms[name], ms[PYTHON], PYTHON, "ms", READ_GOAL, READ_STRETCH) for name in READS]
    rows += [Row(name, ms[name], ms[PYTHON], PYTHON, "ms", WRITE_GOAL, WRITE_STRETCH) for name in WRITES]
    rows.append(Row("--help", ms["--help"], ms[LEAST], LEAST, "ms", HELP_GOAL))
    if NODE in ms:
        rows.append(Row("status RUN", ms["status RUN"], ms[NODE], NODE, "ms"))
    if SERVER in ms:
        rows += [
            Row(name, ms[name], ms[SERVER], SERVER, "ms", SERVER_GOAL, faster=True, imitation=True) for name in READS
        ]
    return Part(f"cold starts, {rounds} rounds", rows, left_out)


def _bare(home: str) -> dict[str, Callable[[], float]]:
    click_app, environ = os.path.join(home, "click-app"), environment(home)
    with open(click_app, "w", encoding="utf-8") as file:
        file.write(CLICK_APP.format(python=sys.executable))
    os.chmod(click_app, stat.S_IRWXU)
    return {
        PYTHON: lambda: started(Case((sys.executable, "-c", "pass"), environ, home)),
        CLICK: lambda: started(Case((sys.executable, "-c", "import click"), environ, home)),
        LEAST: lambda: started(Case((click_app, "--help"), environ, home)),
        "--help": lambda: started(Case((SUBAGENT, "--help"), environ, home)),
    }


def _reads(home: str, root: str) -> dict[str, Callable[[], float]]:
    context, environ = opened(root), environment(home, SUBAGENT_RUNS_DIR=root)
    run_id = new_run(context)
    message_id = asked(context, run_id)
    context.runs.log(run_id, *(f"[stdout] line {number}" for number in range(LOG_LINES)), now=context.clock.now())
    calls = (("status", run_id), ("pending",), ("check", message_id), ("logs", run_id, "-n", "10"))
    return {
        name: lambda words=words: started(Case((SUBAGENT, *words), environ, home))  # type: ignore[misc]
        for name, words in zip(READS, calls, strict=True)
    }


def _writes(home: str, root: str) -> dict[str, Callable[[], float]]:
    context, environ = opened(root), environment(home, SUBAGENT_RUNS_DIR=root)

    def process(*words: str) -> float:
        return started(Case((SUBAGENT, *words), environ, home))

    def acknowledge() -> float:
        fresh = new_run(context)
        questions.reply(context, asked(context, fresh), "1")
        return process("status", fresh)

    measures: tuple[Callable[[], float], ...] = (
        lambda: process("ask", "Delete the old ones?", "--run", new_run(context)),
        lambda: process("reply", asked(context, new_run(context)), "1"),
        acknowledge,
    )
    return dict(zip(WRITES, measures, strict=True))


def _server(home: str, context: Context) -> Callable[[], float]:
    """The double starts, tells of the same run that we tell of, and ends."""
    run_id, folder = context.runs.all()[0], os.path.join(home, "double")
    os.mkdir(folder)
    shutil.copyfile(context.runs.layout.meta(run_id), bench_double.meta(folder, run_id))
    stdin = os.path.join(folder, "request")
    with open(stdin, "wb") as file:
        file.write(bench_double.request("check_subagent_status", runId=run_id))
    return lambda: started(Case(bench_double.words(folder), environment(home), home, stdin))

"""`subagent submit`."""

import click

from subagent_cli.cli.verb import Answer, Context, text_argument, verb
from subagent_cli.core.transition import FAILURE, RESULT
from subagent_cli.services import outcomes

_OUTCOME = "outcome"


@verb("submit", example='subagent submit result "12 notes tidied" --artifact notes.md\nsubagent submit error "no disk"')
@click.argument("word", type=click.Choice([RESULT, FAILURE, _OUTCOME]), metavar="result|error|outcome")
@click.argument("text", type=text_argument)
@click.option("--artifact", "artifacts", multiple=True, metavar="PATH", help="Something that was made; any number.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="A tool that was used; any number.")
@click.option("--kind", metavar="KIND", help="With error: which kind it is (default: sub_agent_error).")
def command(
    context: Context, word: str, text: str, artifacts: tuple[str, ...], tools: tuple[str, ...], kind: str | None
) -> Answer:
    """Hand in the outcome of your run, once and for good.

    For the worker of a run, as its last command: the outcome is decided at once, and its process then has 30 seconds
    to end by itself. The first outcome counts. `outcome` takes JSON, as `wait` prints it for a child of yours:
    {"success": {"result": T}}, {"failure": {"error": T, "error_kind": K}}, or tagged: {"type": "success", "result": T}.
    """
    if kind is not None and word != FAILURE:
        raise click.UsageError("--kind goes with an error")
    if word == _OUTCOME:
        done = outcomes.hand_on(context, text, artifacts=artifacts, tools=tools)
        return Answer(done, talk="outcome submitted; end now")
    done = outcomes.submit(context, word, text, kind=kind, artifacts=artifacts, tools=tools)
    return Answer(done, talk=f"{word} submitted; end now")

"""`subagent run`."""

from collections.abc import Iterator
from typing import Any

import click

from subagent_cli.cli.commands.result import printed
from subagent_cli.cli.commands.wait import told
from subagent_cli.cli.output import print_talk
from subagent_cli.cli.role import with_role
from subagent_cli.cli.verb import Answer, Context, key_option, text_argument, verb
from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.moment import duration
from subagent_cli.core.run import Run
from subagent_cli.services import launches, specs
from subagent_cli.services.launches import Request
from subagent_cli.services.roles import Role
from subagent_cli.services.starts import Start


class WithCommand(click.Command):
    """Whatever stands behind -- is a command of somebody else's and none of our options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = tuple(args[at + 1 :]) if at < len(args) else None
        return super().parse_args(ctx, args[:at])


def _alone(ctx: click.Context, param: click.Parameter, value: bool) -> bool:  # noqa: ARG001
    if value and (ctx.params.get("wait") or ctx.params.get("follow")):
        raise click.UsageError("--wait and --follow exclude each other")
    return value


def starting(function: Any) -> Any:
    """The options that `run`, `resume` and `retry` share."""
    for option in reversed(
        (
            click.option(
                "--timeout", metavar="TIME", help="End the run after so long: 90, 90s, 5m, 2h (default: never)."
            ),
            click.option("--env", multiple=True, metavar="KEY=VALUE", help="A variable for the agent; any number."),
            click.option("--env-clear", is_flag=True, help="Give the agent none of your variables."),
            click.option("--token-file", is_flag=True, help="Hand its token over in a file, not in its environment."),
            click.option(
                "--wait",
                is_flag=True,
                callback=_alone,
                help="Wait for the end and print the outcome, or the first question.",
            ),
            click.option("--follow", is_flag=True, callback=_alone, help="Print its log as it comes, until its end."),
            key_option("starts one"),
        )
    ):
        function = option(function)
    return function


@verb(
    "run",
    example='subagent run claude "Tidy the notes" --cwd notes --timeout 30m\n'
    'subagent run "Count the lines" --name count -- wc -l notes.md',
    cls=WithCommand,
)
@click.argument("words", nargs=-1, required=True, metavar="[AGENT] TASK [-- CMD ARG...]")
@click.option("--cwd", metavar="DIR", help="The folder the agent works in (default: this one).")
@click.option("--name", metavar="NAME", help="A name to call the run by.")
@click.option("--model", metavar="MODEL", help="The model, for agents that have a choice.")
@with_role
@click.option("--arg", "args", multiple=True, metavar="WORD", help="One more word on the agent's command line.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="To find the run by; any number of them.")
@click.option("--raw", is_flag=True, help="Hand over the task alone, without a word on how to ask.")
@click.option("--link", is_flag=True, help="Let the TypeScript server see it too, as `subagent link` does.")
@click.option(
    "--max-depth", type=click.IntRange(1, 99), metavar="N", help="How deep its runs may start runs (default: 1)."
)
@starting
def command(
    context: Context,
    words: tuple[str, ...],
    cwd: str | None,
    name: str | None,
    model: str | None,
    args: tuple[str, ...],
    labels: tuple[str, ...],
    role: Role,
    raw: bool,
    link: bool,
    max_depth: int | None,
    wait: bool,
    follow: bool,
    key: str | None,
    **how: Any,
) -> Answer:
    """Start an agent on a task.

    Prints the run's id and returns at once; the run outlives this shell. AGENT is one of `subagent agents`; any other
    command stands behind -- and gets the task on standard input. The agent is told how to ask, tell and submit.
    --wait exits as `subagent result` does, or with 12 if a question waits. Interrupting changes nothing.
    """
    behind: tuple[str, ...] | None = click.get_current_context().meta["command"]
    if len(words) != (2 if behind is None else 1):
        shape = "AGENT TASK" if behind is None else "TASK -- CMD ARG..."
        raise click.UsageError(f"run takes {shape}; a task of several words stands in quotes")
    request = Request(
        text_argument(words[-1]),
        agent=words[0] if behind is None else None,
        command=behind or (),
        cwd=cwd,
        name=name,
        labels=specs.pairs(labels, "label"),
        model=model,
        args=args,
        raw=raw,
        role=role,
        start=start(**how),
    )
    made = launches.run(context, request, key=key, link=link, max_depth=max_depth)
    return started(context, made, wait, follow)


def start(timeout: str | None, env: tuple[str, ...], env_clear: bool, token_file: bool) -> Start:
    return Start(duration(timeout) if timeout is not None else None, variables(env), env_clear, token_file)


def variables(env: tuple[str, ...]) -> dict[str, str]:
    found = specs.pairs(env, "env")
    for name in found:
        if name.startswith("SUBAGENT_"):
            raise InvalidInput(f"{name[:40]} is said by subagent itself", code="invalid_env")
    return found


def started(context: Context, made: dict[str, Any], wait: bool, follow: bool) -> Answer:
    """The id of what was started; or what becomes of it."""
    if not wait and not follow:
        return Answer(made, made["runId"])
    print_talk("\n".join([*(f"warning: {warning}" for warning in made.get("warnings", ())), f"run {made['runId']}"]))
    from subagent_cli.services import outcomes, waiting

    if follow:
        stream = _followed(context, made["runId"], made.get("logOffset", 0))
        return Answer(None, stream=stream, last_code=lambda: printed(outcomes.result(context, made["runId"])).code)
    woke = waiting.for_runs(context, [made["runId"]])
    return printed(outcomes.result(context, made["runId"])) if woke["woke"] == "done" else told(context, woke)


def _followed(context: Context, run_id: str, after: int) -> Iterator[Answer]:
    """The log as it comes; a question is told beside it, once."""
    from subagent_cli.cli.commands import logs as lines
    from subagent_cli.cli.commands import pending
    from subagent_cli.services import logs, questions

    told: set[str] = set()

    def seen(run: Run) -> None:
        for question in run.pending:
            if question.id not in told:
                told.add(question.id)
                print_talk(pending.shown(questions.waiting(run, question, context), context.clock.now()))

    for line in logs.follow(context, run_id, after=after, seen=seen):
        yield Answer(line, lines.shown(line))

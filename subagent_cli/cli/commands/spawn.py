"""`subagent spawn`."""

import click

from subagent_cli.cli.commands.run import WithCommand, variables
from subagent_cli.cli.role import with_role
from subagent_cli.cli.verb import Answer, Context, json_file, key_option, verb
from subagent_cli.core.moment import duration
from subagent_cli.services import spawns, specs
from subagent_cli.services.launches import Request
from subagent_cli.services.roles import Role
from subagent_cli.services.starts import Start


@verb(
    "spawn",
    example='group=$(subagent spawn claude --task "Review the tests" --task "Review the docs" --deadline 20m)\n'
    "subagent spawn codex --tasks tasks.json\n"
    "subagent wait $group",
    cls=WithCommand,
)
@click.argument("agent", required=False)
@click.option("--task", "texts", multiple=True, metavar="TASK", help="What a child is to do; one child for each.")
@click.option(
    "--tasks",
    metavar="FILE",
    help='JSON: {"tasks": [{"task", "cwd", "agent", "name", "timeout", "type"}]}; - is stdin.',
)
@click.option("--deadline", metavar="TIME", help="Ends what is left of the group after so long: 90s, 5m, 2h.")
@click.option("--timeout", metavar="TIME", help="How long each child may take.")
@click.option("--cwd", metavar="DIR", help="The folder the children work in (default: this one).")
@click.option("--model", metavar="MODEL", help="The model, for agents that have a choice.")
@click.option(
    "--mode", type=click.Choice(["explore", "work"]), help="Whether they only look; one child at a time works."
)
@with_role
@click.option("--arg", "args", multiple=True, metavar="WORD", help="One more word on the agents' command lines.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="To find the runs by; any number of them.")
@click.option("--env", multiple=True, metavar="KEY=VALUE", help="A variable for the children; any number.")
@key_option("spawns one group")
@click.option("--env-clear", is_flag=True, help="Give them none of your variables.")
@click.option(
    "--max-depth", type=click.IntRange(1, 99), metavar="N", help="How deep their runs may start runs (default: 1)."
)
def command(
    context: Context,
    agent: str | None,
    texts: tuple[str, ...],
    tasks: str | None,
    deadline: str | None,
    timeout: str | None,
    cwd: str | None,
    model: str | None,
    mode: str | None,
    args: tuple[str, ...],
    labels: tuple[str, ...],
    role: Role,
    env: tuple[str, ...],
    env_clear: bool,
    max_depth: int | None,
    key: str | None,
) -> Answer:
    """Start several children at once, as a group.

    Prints the group's id and returns at once. If anything is wrong with one task, none is started. A command behind --
    takes the place of AGENT, and so may a task's own agent. `subagent wait GROUP` collects what they come to, and wakes
    when one of them asks.
    """
    behind: tuple[str, ...] = click.get_current_context().meta["command"] or ()
    if agent is not None and behind:
        raise click.UsageError("spawn takes AGENT, or a command behind --, not both")
    common = Request(
        "",
        agent=agent,
        command=behind,
        cwd=cwd,
        labels=specs.pairs(labels, "label"),
        model=model,
        mode=mode,
        args=args,
        role=role,
        start=Start(duration(timeout) if timeout is not None else None, variables(env), env_clear),
    )
    requests = [common._replace(task=text) for text in texts]
    if tasks is not None:
        requests += spawns.requests_from(json_file(tasks, "tasks"), common)
    if agent is None and not behind and any(request.agent is None for request in requests):
        raise click.UsageError("spawn needs an AGENT, a command behind --, or an agent in each task")
    limit = duration(deadline) if deadline is not None else None
    made = spawns.spawn(context, requests, deadline=limit, max_depth=max_depth, key=key)
    return Answer(made, made["group_id"], talk=made["output"])

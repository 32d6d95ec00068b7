"""`subagent dispatch`."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from subagent_cli.cli.commands import pending
from subagent_cli.cli.commands.run import WithCommand, variables
from subagent_cli.cli.output import indented, print_talk
from subagent_cli.cli.verb import Answer, Context, json_file, text_argument, verb
from subagent_cli.core.moment import duration
from subagent_cli.services import dispatches
from subagent_cli.services.agent_runner import Order

_SOME_FAILED = 20
_FIELDS = ("mode", "instructions", "artifacts", "plan_step_id", "prompt_ns", "prompt_key")


@verb(
    "dispatch",
    example='subagent dispatch claude --mode ad_hoc --instructions "Draft the release notes" --artifact N.md --into .\n'
    "subagent dispatch codex --request payload.json",
    cls=WithCommand,
)
@click.argument("agent", required=False)
@click.option("--mode", metavar="MODE", help="ad_hoc, or plan_step for a step of your plan.")
@click.option("--instructions", type=text_argument, metavar="TEXT", help="What the child is to do: ASCII, up to 2000.")
@click.option("--artifact", "artifacts", multiple=True, metavar="NAME", help="What it is to deliver; any number.")
@click.option("--plan-step-id", metavar="ID", help="With plan_step: which step.")
@click.option("--prompt-ns", metavar="NAME", help="Handed on to the child as it is.")
@click.option("--prompt-key", metavar="NAME", help="Handed on to the child as it is.")
@click.option("--request", metavar="FILE", help="All of these as a JSON object; - is standard input.")
@click.option("--requests", metavar="FILE", help="A JSON array of such objects, done at once; - is standard input.")
@click.option("--timeout", metavar="TIME", help="End the child after so long: 90, 90s, 5m, 2h.")
@click.option("--into", metavar="DIR", help="Copy what was delivered there before the copy of the folder goes.")
@click.option("--keep", is_flag=True, help="Keep the child's run and folder, to look at.")
@click.option("--cwd", metavar="DIR", help="The folder that is copied (default: this one).")
@click.option("--model", metavar="MODEL", help="The model, for agents that have a choice.")
@click.option("--arg", "args", multiple=True, metavar="WORD", help="One more word on the agent's command line.")
@click.option("--env", multiple=True, metavar="KEY=VALUE", help="A variable for the child; any number.")
def command(
    context: Context,
    agent: str | None,
    request: str | None,
    requests: str | None,
    timeout: str | None,
    into: str | None,
    keep: bool,
    cwd: str | None,
    model: str | None,
    args: tuple[str, ...],
    env: tuple[str, ...],
    **fields: Any,
) -> Answer:
    """Have a task done by a throwaway child.

    The child works in a copy of the folder, with what is not committed yet; nothing that it does there reaches yours.
    Waits for its end, prints its summary, and leaves nothing behind. Exit code 0, or 1 if the child failed; of several,
    20 if some failed. Its questions are printed as they come, and answered with `subagent reply` from elsewhere.
    Interrupting ends the child.
    """
    behind: tuple[str, ...] = click.get_current_context().meta["command"] or ()
    if (agent is None) == (not behind):
        raise click.UsageError("dispatch takes AGENT, or a command behind --")
    if (request, requests).count(None) < 1 or ((request or requests) and any(fields[name] for name in _FIELDS)):
        raise click.UsageError("say what to do by options, by --request or by --requests, not by several of them")
    order = Order(
        agent, behind, cwd, model, args, variables(env), duration(timeout) if timeout is not None else None, keep, into
    )

    def told(item: dict[str, Any]) -> None:
        print_talk(pending.shown(item, context.clock.now()))

    if requests is not None:
        wanted = dispatches.requests_from(json_file(requests, "requests"))
        with _until_told_to_end():
            return _several(dispatches.several(context, wanted, order, told=told))
    one = dispatches.request_from(json_file(request, "requests") if request is not None else _payload(fields))
    with _until_told_to_end():
        done = dispatches.dispatch(context, one, order, told=told)
    return Answer(done, done["message"], talk=_kept(done), code=0 if done["success"] else 1)


@contextmanager
def _until_told_to_end() -> Iterator[None]:
    """Whoever ends this process, short of killing it, ends the child first."""

    def ended(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    # Whoever has it ignored, as nohup does, wants to go on.
    told = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, ended) for number in told}
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("interrupted; the child was ended") from interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _payload(fields: dict[str, Any]) -> dict[str, Any]:
    """The payload that the options spell; what was not said is left out, so that it is missed by its name."""
    given = {name: value for name, value in fields.items() if value is not None and name != "artifacts"}
    return {**given, "expected_artifacts": list(fields["artifacts"])}


def _several(results: list[dict[str, Any]]) -> Answer:
    failed = sum(not result["success"] for result in results)
    text = "\n".join(f"{number}. {indented(result['message'])}" for number, result in enumerate(results, 1))
    warnings = [
        f"{number}: {warning}" for number, result in enumerate(results, 1) for warning in result.pop("warnings")
    ]
    code = 0 if not failed else 1 if failed == len(results) else _SOME_FAILED
    talk = "\n".join(filter(None, map(_kept, results)))
    return Answer(results, text, talk=talk, code=code, warnings=warnings)


def _kept(result: dict[str, Any]) -> str:
    return f"kept: {result['runId']} in {result['workspace']}" if "workspace" in result else ""

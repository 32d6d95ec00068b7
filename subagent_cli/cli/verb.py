"""What every command shares: its options, its context, its output."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from subagent_cli.cli.output import Answer, print_answer
from subagent_cli.core.errors import InvalidInput
from subagent_cli.core.moment import duration
from subagent_cli.services.context import Context, open_context

_RUNS_DIR_HELP, _JSON_HELP = "Where the runs lie.", "Print JSON."
_STDIN_LIMIT = 64 << 20


def verb(
    name: str, *, example: str, cls: type[click.Command] = click.Command
) -> Callable[[Callable[..., Answer]], click.Command]:
    """Makes a command of a function that takes a context and gives an answer."""

    def decorate(function: Callable[..., Answer]) -> click.Command:
        @functools.wraps(function)
        def callback(**arguments: Any) -> int:
            shared = _shared(arguments)
            context = open_context(shared, shared.get("clock"))
            as_json = context.settings["output"].value == "json"
            answer = function(context, **arguments)
            if isinstance(answer.data, dict):
                answer = answer._replace(warnings=[*answer.warnings, *answer.data.pop("warnings", ())])
            print_answer(answer, as_json)
            return answer.last_code() if answer.last_code else answer.code

        epilog = "\b\nExample:\n  " + "\n  ".join(example.splitlines())
        command = click.command(name, cls=cls, epilog=epilog)(callback)
        command.params += [
            click.Option(["--runs-dir"], metavar="DIR", help=_RUNS_DIR_HELP),
            click.Option(["--json", "as_json"], is_flag=True, help=_JSON_HELP),
        ]
        return command

    return decorate


def with_shared(function: Callable[..., None]) -> Callable[..., None]:
    """The options that every command has, for one that only holds others."""

    @functools.wraps(function)
    def callback(**arguments: Any) -> None:
        click.get_current_context().obj = _shared(arguments)
        function(**arguments)

    as_json = click.option("--json", "as_json", is_flag=True, help=_JSON_HELP)
    return click.option("--runs-dir", metavar="DIR", help=_RUNS_DIR_HELP)(as_json(callback))


def _shared(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options that every command has, given before or behind its name."""
    shared: dict[str, Any] = dict(click.get_current_context().obj or {})
    runs_dir, as_json = arguments.pop("runs_dir"), arguments.pop("as_json")
    if runs_dir is not None:
        shared["runs_dir"] = runs_dir
    if as_json:
        shared["output"] = "json"
    return shared


def text_argument(value: str) -> str:
    """A text argument: as typed, or standard input where it is `-`."""
    if value != "-":
        return value
    if sys.stdin is None:
        raise InvalidInput("standard input is closed", code="no_input")
    data = sys.stdin.buffer.read(_STDIN_LIMIT + 1)
    if len(data) > _STDIN_LIMIT:
        raise InvalidInput(f"standard input has more than {_STDIN_LIMIT} bytes", code="too_long")
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is not valid UTF-8 (byte {error.start})", code="not_utf8") from error


def json_file(file: str, what: str) -> Any:
    """What a file of JSON holds, or standard input where it is `-`; `what` is how it is called."""
    import json

    try:
        if file == "-":
            return json.loads(text_argument(file))
        with open(file, encoding="utf-8") as opened:
            return json.load(opened)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the file of {what} cannot be read: {error}", code="unreadable_file") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the {what} are not valid JSON: {error}", code=f"invalid_{what}") from error


def key_option(does: str) -> Callable[[Any], Any]:
    """`--key`; `does` is what a retry with the same key does."""
    text = f"Idempotency key: a retry with the same key {does}."
    return click.option("--key", metavar="KEY", callback=_not_empty, help=text)


def _not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    """A variable that was never set is an empty key, and with that no retry would be safe."""
    if value is not None and not value.strip():
        raise InvalidInput(
            "the key is empty", code="empty_key", hint="leave --key out, or give one that is yours alone"
        )
    return value


def with_wait(wait: bool, timeout: str | None) -> int | None:
    """How long to wait, in milliseconds. A limit for a wait that nobody asked for is a mistake."""
    if timeout is None:
        return None
    if not wait:
        raise click.UsageError("--timeout goes with --wait")
    return duration(timeout)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Active runs, for the shell's completion."""
    from subagent_cli.services import addresses

    root = ctx.find_root()
    context = open_context({"runs_dir": root.params.get("runs_dir")})
    return [name for name in addresses.completions(context) if name.startswith(incomplete)]


__all__ = [
    "Answer",
    "Context",
    "complete_run",
    "json_file",
    "key_option",
    "text_argument",
    "verb",
    "with_shared",
    "with_wait",
]

"""The options that say what an agent is among others; those commands share them that make agents."""

import functools
from typing import Any

import click

from subagent_cli.services import roles


def with_role(function: Any) -> Any:
    """Gives the command its `role`, made of three options."""

    @functools.wraps(function)
    def command(*arguments: Any, **options: Any) -> Any:
        given = (options.pop(name) for name in ("agent_type", "input_schema", "output_schema"))
        return function(*arguments, role=roles.role(*given), **options)

    for option in (
        click.option("--output-schema", metavar="SCHEMA", help="Likewise, what its result is to be."),
        click.option(
            "--input-schema", metavar="SCHEMA", help="What it is given: JSON Schema, @FILE, or a schema's name."
        ),
        click.option("--type", "agent_type", type=click.Choice(roles.TYPES), help="What it is (default: generic)."),
    ):
        command = option(command)
    return command


__all__ = ["with_role"]

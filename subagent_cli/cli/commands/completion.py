"""`subagent completion`."""

import click

from subagent_cli.cli.verb import Answer, Context, verb


@verb("completion", example='eval "$(subagent completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(context: Context, shell: str) -> Answer:  # noqa: ARG001
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    root = click.get_current_context().find_root().command
    script = kind(root, {}, "subagent", "_SUBAGENT_COMPLETE").source().rstrip("\n")
    return Answer({"shell": shell, "script": script}, script)

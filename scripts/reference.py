"""The generated parts of the documents: commands, tools and state diagrams, from the code itself."""

import click

from subagent_cli.cli.errors import EXIT_CODES
from subagent_cli.cli.main import COMMANDS, SECTIONS, cli
from subagent_cli.core import errors
from subagent_cli.core.question import PENDING, WORDS
from subagent_cli.core.transition import LIFE, QUESTION
from subagent_cli.mcp_server import catalogue, launches
from subagent_cli.mcp_server.tool import Tool
from subagent_cli.services.settings import SETTINGS

WIDTH = 100


def commands() -> str:
    """Every command with its help page, in the order of the main help page."""
    root = click.Context(cli, info_name="subagent", max_content_width=WIDTH, terminal_width=WIDTH)
    pages = [f"## subagent\n\n{_fenced(cli.get_help(root))}"]
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, parent=root, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
        pages.append(f"## subagent {name}\n\n{_fenced(command.get_help(context))}")
    contents = [f"- {section}: {', '.join(_link(name) for name in names)}" for section, names in SECTIONS.items()]
    return "\n".join(contents) + "\n\n" + "\n\n".join(pages)


def exit_codes() -> str:
    """The exit codes of the error tree."""
    rows = ["| exit code | kind | when |", "|---|---|---|"]
    for kind, code in EXIT_CODES.items():
        if issubclass(kind, errors.SubagentError):
            rows.append(f"| {code} | `{kind.code}` | {(kind.__doc__ or '').splitlines()[0]} |")
    return "\n".join(rows)


def settings() -> str:
    """Every setting with its names and its default."""
    rows = ["| setting | variable | default | meaning |", "|---|---|---|---|"]
    for setting in SETTINGS:
        shown = "see below" if setting.name == "runs_dir" else setting.show(setting.default)
        rows.append(f"| `{setting.name}` | `{setting.variable}` | {shown} | {setting.help} |")
    return "\n".join(rows)


def tools() -> str:
    """Every tool of the MCP server: what it takes, and what a client may assume of it."""
    rows = ["| tool | arguments | what it does | hints |", "|---|---|---|---|"]
    for tool in (launches.running("AGENT"), *catalogue.TOOLS):
        hints = [word.replace("_", " ") for word, holds in tool.hints._asdict().items() if holds]
        offered = [] if tool.offered == "everybody" else [f"for {tool.offered}"]
        takes = ", ".join(_argument(tool, name) for name in tool.takes)
        first, dot, _ = tool.description.partition(". ")
        rows.append(f"| `{tool.name}` | {takes} | {first}{dot.strip()} | {', '.join([*offered, *hints])} |")
    return "\n".join(rows)


def _argument(tool: Tool, name: str) -> str:
    others = ", ".join(f"`{other}`" for other, ours in tool.also.items() if ours == name)
    shown = f"**`{name}`**" if name in tool.needs else f"`{name}`"
    return f"{shown} ({others})" if others else shown


def life() -> str:
    """The life of a run, as a diagram."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> pending: created"]
    arrows: dict[tuple[str, str], list[str]] = {}
    for (phase, trigger), after in LIFE.items():
        arrows.setdefault((phase, after), []).append(trigger)
    lines += [f"    {phase} --> {after}: {', '.join(triggers)}" for (phase, after), triggers in arrows.items()]
    return "\n".join([*lines, "```"])


def questions() -> str:
    """The life of a question, as a diagram and with the words on disk."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {PENDING}: asked"]
    lines += [f"    {state} --> {after}: {trigger}" for (state, trigger), after in QUESTION.items()]
    words = [f"| `{state}` | `{word}` |" for state, word in WORDS.items()]
    return "\n".join([*lines, "```", "", "| state | `messageStatus` on disk |", "|---|---|", *words])


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def _link(name: str) -> str:
    return f"[`{name}`](#subagent-{name})"

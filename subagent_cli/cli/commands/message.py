"""`subagent message`: put, show, list."""

import json
from typing import Any

import click

from subagent_cli.cli.output import Table, age, one_line
from subagent_cli.cli.verb import Answer, Context, key_option, text_argument, verb, with_shared, with_wait
from subagent_cli.core.ids import short
from subagent_cli.services import messages


def with_content(function: Any) -> Any:
    """The options that say what a new message holds."""
    for option in (
        key_option("makes one message"),
        click.option("--in-reply-to", metavar="MESSAGE", help="The message that this one answers."),
        click.option("--content", type=text_argument, metavar="JSON", help="With --schema: its content."),
        click.option("--schema", metavar="SCHEMA", help="One of `subagent schemas`."),
        click.option("--text", type=text_argument, metavar="TEXT", help="Short for a plaintext message."),
    ):
        function = option(function)
    return function


def content_of(text: str | None, schema: str | None, content: str | None) -> tuple[str | None, str | None]:
    """Schema and content, however they were given; neither where nothing was."""
    if text is not None and (schema is not None or content is not None):
        raise click.UsageError("--text is a message by itself: leave --schema and --content out")
    if (schema is None) != (content is None):
        raise click.UsageError("--schema and --content go together")
    return (messages.PLAINTEXT, messages.as_content(text)) if text is not None else (schema, content)


@verb(
    "put",
    example='subagent message put --text "Look at the parser"\n'
    "subagent message put --in-reply-to 3f2a9c1d --schema structured_critique --content - < critique.json",
)
@with_content
def put(
    context: Context,
    text: str | None,
    schema: str | None,
    content: str | None,
    in_reply_to: str | None,
    key: str | None,
) -> Answer:
    """Store a message and print its id.

    Its content is validated first, and nobody can change it afterwards. `subagent send` hands it to an agent. Whoever
    wrote what it replies to is told of it, and can wait for it with `message list --in-reply-to MESSAGE --wait`.
    """
    schema, content = content_of(text, schema, content)
    if schema is None or content is None:
        raise click.UsageError("message put takes --text, or --schema and --content")
    made = messages.put(context, schema, content, in_reply_to=in_reply_to, key=key)
    return Answer(made, made["message_id"])


@verb("show", example="subagent message show 3f2a9c1d")
@click.argument("message")
def show(context: Context, message: str) -> Answer:
    """Print a message.

    Of a plaintext message its text, of any other its content as JSON; --json prints all of it. One that somebody has
    tampered with is not believed (exit code 8).
    """
    found = messages.show(context, message)
    return Answer(found, shown(found), talk=about(found))


@verb("list", example="subagent message list --in-reply-to 3f2a9c1d --wait --timeout 10m")
@click.option("--in-reply-to", metavar="MESSAGE", help="Only replies to this one.")
@click.option("--schema", metavar="SCHEMA", help="Only those of one schema.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@click.option("--wait", is_flag=True, help="With --in-reply-to: wait for a reply.")
@click.option("--timeout", metavar="TIME", help="With --wait: for so long at most (default: 5m).")
def listing(
    context: Context, in_reply_to: str | None, schema: str | None, limit: int | None, wait: bool, timeout: str | None
) -> Answer:
    """List the messages that you may read, oldest first.

    With --wait it exits with 124 if no reply came in time; a reply is still welcome then.
    """
    until = with_wait(wait, timeout)
    if wait and (in_reply_to is None or limit is not None):
        raise click.UsageError("--wait goes with --in-reply-to, and without --limit")
    if wait and in_reply_to is not None:
        found, faults = messages.for_reply(context, in_reply_to, schema=schema, timeout=until)
    else:
        found, faults = messages.listed(context, in_reply_to=in_reply_to, schema=schema, limit=limit)
    now = context.clock.now()
    return Answer(
        found,
        table=lambda: Table(
            ("MESSAGE", "FROM", "SCHEMA", "REPLIES TO", "AGE", "CONTENT"),
            [
                (
                    short(message["id"]),
                    short(message["created_by_agent_id"] or "operator"),
                    message["schema_type"],
                    short(message["in_reply_to"] or "-"),
                    age(message["created_at"], now),
                    one_line(shown(message)),
                )
                for message in found
            ],
            "no messages",
        ),
        code=8 if faults else 0,
        warnings=[fault.message for fault in faults],
    )


def shown(message: dict[str, Any]) -> str:
    content = message["content"]
    if message["schema_type"] == messages.PLAINTEXT:
        return str(content["text"])
    return json.dumps(content, indent=2, ensure_ascii=False)


def about(message: dict[str, Any]) -> str:
    """Where a message comes from."""
    author = message["created_by_agent_id"]
    reply = f", in reply to {short(message['in_reply_to'])}" if message["in_reply_to"] else ""
    return f"{message['schema_type']} from {short(author) if author else 'the operator'}{reply}"


@click.group("message")
@with_shared
def command() -> None:
    """Store, print and list typed messages.

    A message is written once and never changes; agents hand each other its id. Of an agent's messages others may read
    those that were sent to them, that answer theirs, or whose author's transcript they may read.

    \b
    Example:
      subagent message put --text "Look at the parser"
      subagent message show 3f2a9c1d
    """


for _part in (put, show, listing):
    command.add_command(_part)

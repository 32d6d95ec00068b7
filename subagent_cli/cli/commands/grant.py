"""`subagent grant`."""

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.grant import CAPABILITIES
from subagent_cli.core.ids import short
from subagent_cli.core.moment import duration
from subagent_cli.services import grants


@verb(
    "grant",
    example="subagent grant critic grader read_transcript\nsubagent grant critic grader send_messages --expires 1h",
)
@click.argument("target", shell_complete=complete_run)
@click.argument("grantee", shell_complete=complete_run)
@click.argument("capability", type=click.Choice(CAPABILITIES), metavar="CAPABILITY")
@click.option("--expires", metavar="TIME", help="For so long: 90s, 5m, 2h (default: until it is revoked).")
def command(context: Context, target: str, grantee: str, capability: str, expires: str | None) -> Answer:
    """Give an agent a capability on another.

    CAPABILITY is read_transcript, send_messages or administer_grants, on TARGET, for GRANTEE. Whoever starts a run has
    all three on it; an agent may give what it administers. Twice is no harm.
    """
    lasts = duration(expires) if expires is not None else None
    done = grants.grant(context, target, grantee, capability, lasts=lasts)
    return Answer(done, talk=f"{short(done['grantee'])} has {capability} on {short(done['target'])}")

"""`subagent revoke`."""

import click

from subagent_cli.cli.verb import Answer, Context, complete_run, verb
from subagent_cli.core.grant import CAPABILITIES
from subagent_cli.core.ids import short
from subagent_cli.services import grants


@verb("revoke", example="subagent revoke critic grader read_transcript")
@click.argument("target", shell_complete=complete_run)
@click.argument("grantee", shell_complete=complete_run)
@click.argument("capability", type=click.Choice(CAPABILITIES), metavar="CAPABILITY")
@click.option("--all", "everything", is_flag=True, help="What others gave too; for the operator.")
def command(context: Context, target: str, grantee: str, capability: str, everything: bool) -> Answer:
    """Take a capability back that you gave.

    If somebody else gave it too, it stays until he takes it back; that is said.
    """
    done = grants.revoke(context, target, grantee, capability, everything=everything)
    who, where = short(done["grantee"]), short(done["target"])
    talk = (
        f"revoked: {capability} of {who} on {where}"
        if done["revoked"]
        else f"you gave {who} no {capability} on {where}"
    )
    if done["stillGrantedBy"]:
        talk += f"; it is still granted by {', '.join(map(short, done['stillGrantedBy']))}"
    return Answer(done, talk=talk)

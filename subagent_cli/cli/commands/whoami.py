"""`subagent whoami`."""

from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.core.ids import short
from subagent_cli.services import identity


@verb("whoami", example="subagent whoami")
def command(context: Context) -> Answer:
    """Say as whom you are calling.

    A worker proves itself with SUBAGENT_RUN_ID and SUBAGENT_TOKEN (or SUBAGENT_TOKEN_FILE); whoever has no token is the
    operator. A token that does not fit is denied (exit code 5).
    """
    found = identity.whoami(context)
    text = found["role"]
    if found["runId"]:
        role = "worker of" if found["role"] == "worker" else "operator, working on"
        text = f"{role} {short(found['runId'])} ({found['agentName']}) at depth {found['depth']} of {found['maxDepth']}"
    return Answer(found, text)

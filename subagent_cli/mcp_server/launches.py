"""Starting agents: one on a task, several at once, one in a throwaway copy of the folder."""

from functools import partial

from subagent_cli.core.dispatch import LONGEST_INSTRUCTIONS, MODES
from subagent_cli.core.errors import InvalidInput
from subagent_cli.mcp_server.tool import (
    KEY,
    PARENTS,
    STARTS,
    TABLE,
    TEXT,
    TEXTS,
    YES_OR_NO,
    Call,
    Said,
    Tool,
    count,
    flag,
    gives,
    length,
    one_of,
    text,
    texts,
)
from subagent_cli.services import agents, dispatches, identity, launches, spawns
from subagent_cli.services.agent_runner import Order
from subagent_cli.services.context import Payload
from subagent_cli.services.launches import Request
from subagent_cli.services.starts import Start

RUN_PREFIX = "run_subagent_"

_CWD = text("The folder to work in (default: that of the server).")
_MODEL = text("The model, for agents that have a choice.")
_DEPTH = count("How deep its runs may start runs (default: 1, none).")
_AGENT = text("Which agent; may be left out where only one is installed.")
_LIMIT = length("End it after so long (default: never).")


def running(agent: str) -> Tool:
    """The tool that starts this agent."""

    def run(call: Call) -> Said:
        request = Request(
            call.get("input"),
            agent=agent,
            cwd=call.get("cwd"),
            name=call.get("name"),
            model=call.get("model"),
            start=Start(call.length("timeout")),
        )
        made = launches.run(call.context, request, key=call.get("key"), max_depth=call.get("max_depth"))
        how = "check_subagent_status shows how it stands, wait_agents returns when it has ended or asks."
        return Said(made, f"Run ID: {made['runId']}\n{agent} has started; {how}")

    run.__doc__ = f"Start {agent} on a task, as a run of its own, and return its run id at once."
    return Tool(
        f"{RUN_PREFIX}{agent}",
        run,
        STARTS,
        {
            "input": text("The task."),
            "cwd": _CWD,
            "name": text("A name to call the run by."),
            "timeout": _LIMIT,
            "model": _MODEL,
            "max_depth": _DEPTH,
            "key": KEY,
        },
        gives(runId=TEXT, runDirectory=TEXT),
        needs=("input",),
        offered=PARENTS,
    )


def spawn_agents(call: Call) -> Said:
    """Start a child for each task, all or none of them, as a group, and return their ids at once. wait_agents collects
    what they come to, and returns when one of them asks."""
    tasks = call.get("tasks")
    all_named = bool(tasks) and all(task.get("agent") for task in tasks)
    common = Request(
        "",
        agent=call.get("agent") if all_named else _agent(call),
        cwd=call.get("cwd"),
        model=call.get("model"),
        mode=call.get("mode"),
        start=Start(call.length("timeout")),
    )
    requests = spawns.requests_from({"tasks": tasks}, common)
    made = spawns.spawn(
        call.context,
        requests,
        deadline=call.length("deadline"),
        max_depth=call.get("max_depth"),
        key=call.get("key"),
    )
    return Said(made, f"{made['output']}\nGroup ID: {made['group_id']}")


def dispatch_subagent(call: Call) -> Said:
    """Have a bounded piece of work done by a throwaway child in a copy of the folder, and get its summary; the copy is
    gone afterwards. Offload deep research, large drafting and single steps of a plan. The child knows nothing of this
    conversation and has the tools that its program gives it: be specific and complete, and list every artifact that is
    to be delivered."""
    wanted = dispatches.request_from({name: call.get(name) for name in _REQUEST if call.get(name) is not None})
    order = Order(
        _agent(call),
        cwd=call.get("cwd"),
        model=call.get("model"),
        timeout=call.length("timeout"),
        keep=call.get("keep", False),
        into=call.get("into"),
    )
    [done] = dispatches.several(call.context, [wanted], order, told=partial(_asks, call), stop=call.stopped.is_set)
    return Said(done, done["message"], failed=not done["success"])


def _asks(call: Call, item: Payload) -> None:
    call.note = f"it asks (reply_subagent, messageId {item['message_id']}): {item['question'][:200]}"


def _agent(call: Call) -> str:
    """The agent that is meant: the one that is named, a worker's own kind, the only one that is installed."""
    if call.get("agent") is not None:
        return str(call.get("agent"))
    there = [row["name"] for row in agents.listed(call.context) if row["installed"]]
    own = identity.whoami(call.context)["agentName"] if call.context.caller.token else None
    if own in there:
        return str(own)
    if len(there) == 1:
        return str(there[0])
    raise InvalidInput("no agent is named", code="no_agent", candidates=there, hint="say which agent is to do it")


_TASK = {
    "task": text("What it is to do."),
    "cwd": _CWD,
    "agent": text("Another agent than the others."),
    "name": text("A name to call it by."),
    "timeout": length("How long it may take."),
    "model": _MODEL,
    "mode": one_of(("explore", "work"), "Whether it only looks."),
}
_REQUEST = ("mode", "prompt_ns", "prompt_key", "instructions", "expected_artifacts", "plan_step_id")

TOOLS = (
    Tool(
        "spawn_agents",
        spawn_agents,
        STARTS,
        {
            "tasks": {
                "type": "array",
                "items": {"type": "object", "properties": _TASK, "required": ["task"]},
                "description": "One for each child.",
            },
            "agent": _AGENT,
            "deadline": length("Ends what is left of the group after so long."),
            "timeout": length("How long each child may take."),
            "cwd": _CWD,
            "model": _MODEL,
            "mode": one_of(("explore", "work"), "Whether they only look; one child at a time works."),
            "max_depth": _DEPTH,
            "key": KEY,
        },
        gives(group_id=TEXT, agent_ids=TEXTS, output=TEXT),
        needs=("tasks",),
        offered=PARENTS,
    ),
    Tool(
        "dispatch_subagent",
        dispatch_subagent,
        STARTS,
        {
            "mode": one_of(MODES, "plan_step for a step of your plan, else ad_hoc."),
            "instructions": text(f"What it is to do: ASCII, at most {LONGEST_INSTRUCTIONS} characters."),
            "expected_artifacts": texts("Everything that it is to deliver."),
            "plan_step_id": text("Which step of the plan it is; needed for plan_step."),
            "prompt_ns": text("Handed on to the child as it is."),
            "prompt_key": text("Handed on to the child as it is."),
            "agent": _AGENT,
            "cwd": text("The folder that is copied (default: that of the server)."),
            "into": text("Copy what was delivered to this folder before the copy goes."),
            "keep": flag("Keep the child's run and folder, to look at."),
            "model": _MODEL,
            "timeout": _LIMIT,
        },
        gives(success=YES_OR_NO, message=TEXT, value=TABLE),
        needs=("mode", "instructions"),
        offered=PARENTS,
        patient=True,
    ),
)

"""Asking, answering and looking for answers."""

from subagent_cli.core.errors import InvalidInput, NotFound, RunNotFound, Stalled
from subagent_cli.mcp_server import texts
from subagent_cli.mcp_server.tool import (
    ADDS,
    KEY,
    LOOKS,
    OWN_RUN,
    SETTLES,
    TABLE,
    TABLES,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    YES_OR_NO,
    Call,
    Said,
    Tool,
    flag,
    gives,
    length,
    text,
)
from subagent_cli.mcp_server.tool import texts as list_of
from subagent_cli.services import questions, waiting
from subagent_cli.services.context import Payload

_MESSAGE = text("The id of the question, as ask_parent gave it.")
_PATIENCE = length("Wait so long for the answer at most (default: only look).")


def ask_parent(call: Call) -> Said:
    """Ask the parent of a run a question; returns at once with the id of the question. A worker asks for its own run
    and leaves runId out. Look for the answer with check_message_status."""
    asked = questions.ask(
        call.context,
        call.get("question"),
        run=call.get("runId"),
        options=call.get("options", ()),
        default=call.get("default"),
        deadline=call.length("deadline"),
        single=call.get("single", False),
        key=call.get("key"),
    )
    run_id, message_id = asked["runId"], asked["messageId"]
    how = f"Poll for the answer with check_message_status, runId {run_id}, messageId {message_id}."
    return Said({**asked, "instructions": how}, f"Message ID: {message_id}\n{how}")


def reply_subagent(call: Call) -> Said:
    """Answer a question that a run asked: with messageId that one, without it the only one that waits. Where the
    question has options the answer may be the number of one. The first answer counts."""
    target, message, answer = call.get("runId"), call.get("messageId"), call.get("answer")
    if target is None:
        if message is None:
            raise InvalidInput("no question is named", code="no_run", hint="give runId, messageId or both")
        target, message = message, None
    done = questions.reply(call.context, target, answer, message=message, key=call.get("key"))
    return Said(done, done["message"])


def check_message_status(call: Call) -> Said:
    """Look whether a question of a run has been answered. An answer that is seen here for the first time counts as
    delivered; it can be read again."""
    found = _found(call, call.get("runId"))
    return Said(found, texts.message(found))


def check_answer(call: Call) -> Said:
    """Look whether your question has been answered: the answer, or null while there is none. With timeout it waits for
    it, and fails with `Stalled: Parent No-Response` when nobody has answered in time; the question then still waits."""
    message_id = call.get("messageId")
    try:
        found = _found(call, None)
    except NotFound as error:
        if error.code != "message_not_found":
            raise
        missing = questions.not_found(message_id, error)
        return Said(missing, error.message)
    silence = "expired: nobody answered in time; go on without an answer" if found["state"] == "EXPIRED" else None
    return Said(found, found["answer"] or silence or ("no answer yet" if found["answer"] is None else "(empty)"))


def get_pending_questions(call: Call) -> Said:
    """List the questions that wait for an answer, oldest first: of all runs, or of one."""
    try:
        found, faults = questions.pending(call.context, call.get("runId"))
    except RunNotFound as error:
        return Said({"questions": []}, f"no question is waiting: {error.message}")
    now = call.context.clock.now()
    lines = [
        f"{item['agent_name'] or 'run'} {item['run_id']}\n"
        + texts.question(item, item["run_id"], item["message_id"], now)
        for item in found
    ]
    warnings = [fault.message for fault in faults]
    return Said({"questions": found, "warnings": warnings}, "\n".join(lines) or "no question is waiting")


def _found(call: Call, run: str | None) -> Payload:
    limit = call.length("timeout")
    message = call.get("messageId")
    if limit is None:
        return questions.check(call.context, message, run=run)
    try:
        return waiting.for_answer(call.context, message, run=run, timeout=limit, stop=call.stopped.is_set)
    except Stalled as error:
        error.next = None
        raise


_CHECKED = gives(messageId=TEXT, answer=TEXT_OR_NULL, state=TEXT)

TOOLS = (
    Tool(
        "ask_parent",
        ask_parent,
        ADDS,
        {
            "question": text("What you want to know."),
            "runId": OWN_RUN,
            "options": list_of("Two to four possible answers."),
            "default": text("The answer if nobody gives one in time."),
            "deadline": length("When it is too late for an answer (default: a day)."),
            "single": flag("Refuse while another question of the run is open."),
            "key": KEY,
        },
        gives(messageId=TEXT, message_id=TEXT, runId=TEXT, instructions=TEXT),
        needs=("question",),
        also={"run_id": "runId"},
    ),
    Tool(
        "reply_subagent",
        reply_subagent,
        ADDS,
        {
            "runId": text("The run that asks."),
            "messageId": text("The question; may be left out where only one waits."),
            "answer": text("What you answer."),
            "key": KEY,
        },
        gives(success=YES_OR_NO, message=TEXT, runId=TEXT, messageIds=TEXTS, updatedMetadata=TABLE),
        needs=("answer",),
        also={"subagent_id": "runId", "run_id": "runId", "message_id": "messageId", "message": "answer"},
    ),
    Tool(
        "check_message_status",
        check_message_status,
        SETTLES,
        {"runId": OWN_RUN, "messageId": _MESSAGE, "timeout": _PATIENCE},
        _CHECKED,
        needs=("messageId",),
        also={"run_id": "runId", "message_id": "messageId"},
        patient=True,
    ),
    Tool(
        "check_answer",
        check_answer,
        SETTLES,
        {"messageId": _MESSAGE, "timeout": _PATIENCE},
        _CHECKED,
        needs=("messageId",),
        also={"message_id": "messageId"},
        patient=True,
    ),
    Tool(
        "get_pending_questions",
        get_pending_questions,
        LOOKS,
        {"runId": text("Only those of this run.")},
        gives(questions=TABLES),
        also={"run_id": "runId"},
    ),
)

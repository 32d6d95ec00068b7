"""Typed messages: written once, validated before they are stored, read by whoever may.

An agent reads what it wrote, what was delivered to it, replies to what it wrote, and what agents wrote on whom it
holds `read_transcript`. Any other message is not there.
"""

from subagent_cli.core import ids
from subagent_cli.core.errors import Damaged, InvalidInput, NotFound, Stalled, SubagentError
from subagent_cli.core.grant import READ
from subagent_cli.core.ids import short
from subagent_cli.core.moment import elapsed
from subagent_cli.services import access, inboxes
from subagent_cli.services.context import Context, Payload
from subagent_cli.services.patience import Stop, nap
from subagent_cli.services.specs import key_digest, key_reused
from subagent_cli.store import codec
from subagent_cli.store.messages import Message, Messages, sealed

PLAINTEXT = "plaintext"
NAMES = (PLAINTEXT, "structured_critique", "structured_grade")


def put(
    context: Context, schema: str, content: str, *, in_reply_to: str | None = None, key: str | None = None
) -> Payload:
    """Stores a message; `content` is JSON. Whoever wrote what it replies to is told, if it is idle."""
    message = write(context, schema, content, in_reply_to=in_reply_to, key=key and f"put {key}")
    original = find(context, message["in_reply_to"]) if message["in_reply_to"] else None
    warnings = inboxes.notify(context, message, original) if original else []
    return {"message_id": message["id"], "warnings": warnings}


def write(
    context: Context, schema: str, content: str, *, in_reply_to: str | None = None, key: str | None = None
) -> Message:
    """A new message in its validated form, or the one that was written under the same key."""
    context.must_be_a_folder()
    valid = _validated(schema, context.text(content, "content"))
    original = find(context, in_reply_to)["id"] if in_reply_to is not None else None
    store = _store(context)
    new = sealed(
        {
            "id": context.clock.new_id(),
            "schema_type": schema,
            "content": valid,
            "created_by_agent_id": access.agent(context),
            "in_reply_to": original,
            "created_at": context.clock.now().iso,
        }
    )
    if key is None:
        store.create(new)
        return new
    author = access.agent(context)
    digest = key_digest("message", key, author)
    known = store.keyed(digest, lambda: new, lambda found: found["created_by_agent_id"] == author)
    if any(known[field] != new[field] for field in ("schema_type", "content", "in_reply_to")):
        raise key_reused(known["id"], "message")
    return known


def show(context: Context, message: str) -> Payload:
    """One message, whole."""
    return find(context, message)


def listed(
    context: Context, *, in_reply_to: str | None = None, schema: str | None = None, limit: int | None = None
) -> tuple[list[Payload], list[SubagentError]]:
    """The messages that the caller may read, oldest first, and what could not be read; with `limit`, the newest."""
    if schema is not None:
        _known(schema)
    store = _store(context)
    original = find(context, in_reply_to)["id"] if in_reply_to is not None else None
    found: list[Payload] = []
    faults: list[SubagentError] = []
    for message_id in reversed(store.all() if original is None else store.replies(original)):
        if limit is not None and len(found) >= limit:
            break
        try:
            message = store.read(message_id)
            if message is None or not _may_read(context, message):
                continue
        except SubagentError as fault:
            if access.agent(context) is None:
                faults.append(fault)
            continue
        if schema in (None, message["schema_type"]) and original in (None, message["in_reply_to"]):
            found.append(message)
    return found[::-1], faults


def for_reply(
    context: Context,
    message: str,
    *,
    schema: str | None = None,
    timeout: int | None = None,
    stop: Stop | None = None,
) -> tuple[list[Payload], list[SubagentError]]:
    """Until there is a reply to a message; as `listed` then. Stalled when the time is up, or once `stop` says that
    nobody waits any more."""
    from subagent_cli.store.watch import Watch

    original = find(context, message)["id"]
    limit: int = context.settings["answer_timeout"].value if timeout is None else timeout
    start, caller = context.clock.now(), access.agent(context)
    with Watch() as watch:
        while True:
            # Watched before it is looked at, so that nothing can come in between.
            watch.await_folder(context.runs.layout.messages)
            if caller is not None:
                # A reply that was there already may just have been sent to the caller, who may read it since.
                watch.add_all(context.runs.places(caller))
            found, faults = listed(context, in_reply_to=original, schema=schema)
            left = limit - elapsed(start, context.clock.now())
            if found or faults:
                return found, faults
            if left <= 0 or (stop and stop()):
                raise Stalled(
                    "no reply came in time",
                    code="no_reply",
                    next=context.spelled("message", "list", "--in-reply-to", short(original), "--wait"),
                )
            watch.wait(nap(left / 1000, stop))


def find(context: Context, text: str) -> Message:
    """The message that is meant, by its id or a part of it."""
    context.must_be_there()
    part, store = ids.digits(text), _store(context)
    if part is None:
        raise InvalidInput(f"not a message id: {text[:40]!r}", code="invalid_message_id")
    whole = ids.canonical(text)
    candidates = [whole] if ids.is_uuid(whole) else store.matching(part)
    matches, faults = list[Message](), list[SubagentError]()
    for message_id in candidates:
        try:
            message = store.read(message_id)
            if message is not None and _may_read(context, message):
                matches.append(message)
        except Damaged as fault:
            if _is_ones_own(context, message_id):
                faults.append(fault)
    if len(matches) > 1:
        raise InvalidInput(
            f"{text[:40]!r} names several messages",
            code="ambiguous",
            hint="type more of it",
            candidates=[message["id"] for message in matches[:10]],
        )
    if not matches and faults and (access.agent(context) is None or len(candidates) == 1):
        raise faults[0]
    if not matches:
        raise NotFound(
            f"Message with ID {text[:64]} not found",
            code="message_not_found",
            next=context.spelled("message", "list"),
        )
    return matches[0]


def _is_ones_own(context: Context, message_id: str) -> bool:
    """Whether the caller knows that there is such a message, and so may learn that somebody has changed it."""
    caller = access.agent(context)
    return caller is None or message_id in context.runs.read(caller, context.clock.now()).inbox


def catalogue() -> Payload:
    """Each schema of messages: what it is for, and its JSON Schema."""
    from subagent_cli.contracts.messages import catalogue as published

    return published()


def _may_read(context: Context, message: Message) -> bool:
    caller = access.agent(context)
    if caller is None or message["created_by_agent_id"] == caller:
        return True
    delivery = context.runs.read(caller, context.clock.now()).inbox.get(message["id"])
    if delivery is not None and delivery.sha256 != message["sha256"]:
        raise Damaged(f"message {message['id']} is not what was delivered", code="tampered")
    if delivery is not None or access.may(context, READ, message["created_by_agent_id"] or ""):
        return True
    original = _store(context).read(message["in_reply_to"] or "")
    return original is not None and original["created_by_agent_id"] == caller


def _validated(schema: str, content: str) -> Payload:
    import json

    from pydantic import ValidationError

    from subagent_cli.contracts.base import fault
    from subagent_cli.contracts.messages import SCHEMAS

    model = SCHEMAS[_known(schema)]
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the content is not valid JSON: {error}", code="invalid_content") from error
    try:
        valid: Payload = model.model_validate(found).model_dump()
        json.dumps(valid, ensure_ascii=False).encode()
        if not codec.is_shallow(valid):
            raise ValueError(f"it is nested deeper than {codec.DEEPEST} levels")
        if codec.load(codec.document(valid)) != valid:
            raise ValueError("a number in it is too large, or none")
    except ValidationError as error:
        raise InvalidInput(
            fault(error, "content"), code="invalid_content", hint=f"subagent schemas {schema} shows its form"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the content cannot be stored: {error}", code="invalid_content") from error
    return valid


def _known(schema: str) -> str:
    if schema not in NAMES:
        raise InvalidInput(f"there is no schema {schema[:40]!r}", code="unknown_schema", candidates=NAMES)
    return schema


def _store(context: Context) -> Messages:
    return Messages(context.runs.layout, context.settings["lock_timeout"].value / 1000)


def as_content(text: str) -> str:
    """The content of a plaintext message."""
    import json

    return json.dumps({"text": text}, ensure_ascii=False)

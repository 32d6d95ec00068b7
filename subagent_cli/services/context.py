"""What every verb needs: the runs, a clock, the settings, and who is calling."""

import os.path
from collections.abc import Mapping
from typing import Any

from subagent_cli.core.errors import Denied, Failed, InvalidInput, NotFound, SubagentError
from subagent_cli.core.ids import canonical
from subagent_cli.core.value import Value
from subagent_cli.services import settings
from subagent_cli.services.settings import Caller, Found
from subagent_cli.store.clock import Clock
from subagent_cli.store.runs import Runs

Payload = dict[str, Any]


class Context(Value):
    runs: Runs
    clock: Clock
    settings: Mapping[str, Found]
    caller: Caller = Caller()

    def text(self, text: str, what: str) -> str:
        """A text from outside, within the size that is allowed, without broken characters and without the token that
        proves who the caller is: what is written down here, others read."""
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidInput(f"the {what} is not valid UTF-8", code="not_utf8") from error
        limit: int = self.settings["max_text"].value
        if size > limit:
            raise InvalidInput(
                f"the {what} has {size} bytes; the limit is {limit}",
                code="too_long",
                hint="put it into a file and name the file, or raise max_text (SUBAGENT_MAX_TEXT)",
            )
        return text.replace(self.caller.token, "[token]") if self.caller.token else text

    def spelled(self, *words: str) -> str:
        """A command of ours as it works when it is typed as it stands."""
        from shlex import quote

        root, source = self.settings["runs_dir"]
        return " ".join(["subagent", *(("--runs-dir", quote(root)) if source == "option" else ()), *words])

    def must_be_a_folder(self) -> None:
        root, source = self.settings["runs_dir"]
        # In this order: somebody else may be making the folder just now.
        if os.path.lexists(root) and not os.path.isdir(root):
            raise InvalidInput(
                f"the runs directory is not a folder: {root}", code="bad_runs_dir", hint=f"it comes from: {source}"
            )

    def must_be_there(self) -> None:
        """A runs directory that somebody named and that is not there is a mistake, not an empty one."""
        root, source = self.settings["runs_dir"]
        if os.path.isdir(root):
            return
        self.must_be_a_folder()
        if source not in ("default", "found here", "found above"):
            raise NotFound(
                f"the runs directory is not there: {root}",
                code="runs_dir_not_found",
                hint=f"it comes from: {source}; `subagent run` and `subagent create` make it",
            )


def open_context(options: Mapping[str, str | None], clock: Clock | None = None) -> Context:
    """The context of one call, from options, environment and files. A token that does not fit is denied here."""
    found = settings.load(options)
    runs = Runs(
        found["runs_dir"].value, lock_timeout=found["lock_timeout"].value / 1000, ttl=found["question_ttl"].value
    )
    caller = settings.caller()
    if caller.token is not None and caller.run_id is not None:
        caller = caller._replace(run_id=canonical(caller.run_id))
    context = Context(runs, clock or Clock(), found, caller)
    if context.caller.token is not None:
        _prove(context)
    return context


def afresh(context: Context) -> Context:
    """The same for another thread, or for a later call: what a store remembers belongs to one. A token that has died
    meanwhile is denied."""
    found = context.settings
    lock_timeout, ttl = found["lock_timeout"].value / 1000, found["question_ttl"].value
    fresh = context._replace(runs=Runs(context.runs.layout.root, lock_timeout=lock_timeout, ttl=ttl))
    if fresh.caller.token is not None:
        _prove(fresh)
    return fresh


def token_hash(token: str) -> str:
    from hashlib import sha256

    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _prove(context: Context) -> None:
    from hmac import compare_digest

    run_id, token = context.caller
    if run_id is None:
        raise Denied(
            "SUBAGENT_TOKEN is set without SUBAGENT_RUN_ID", hint="set both, or neither to act as the operator"
        )
    try:
        stored = _stored_hash(context, run_id) if context.runs.exists(run_id) else None
    except Failed:
        # Nobody is let in, and a worker whose token is good is not told that it were not.
        raise
    except SubagentError:
        stored = None
    if not isinstance(stored, str) or not compare_digest(stored, token_hash(token or "")):
        raise Denied(
            "the token does not belong to the run that SUBAGENT_RUN_ID names",
            hint="set both, or neither to act as the operator",
        )


def _stored_hash(context: Context, run_id: str) -> object:
    """The hash of the token that is good now: a later attempt has another one than the first."""
    return context.runs.token_hash(run_id) or context.runs.spec(run_id).get("tokenHash")

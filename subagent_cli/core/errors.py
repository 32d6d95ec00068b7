"""The one error tree.

Every refusal that a user can meet is one of these kinds. The kind says whose move it is (a door turns it into an
exit code), `code` is the word that callers test, and hint, candidates and next are data for whoever prints it.
"""

from collections.abc import Sequence


class SubagentError(Exception):
    """Something did not happen; nothing has changed unless the kind says otherwise."""

    code = "failed"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        candidates: Sequence[str] = (),
        next: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint
        self.candidates = tuple(candidates)
        self.next = next


class Failed(SubagentError):
    """The machine said no: a full disk, a folder that cannot be written."""


class InvalidInput(SubagentError):
    """What was typed or piped in cannot be meant."""

    code = "invalid_input"


class NotFound(SubagentError):
    """Nothing has that name."""

    code = "not_found"


class RunNotFound(NotFound):
    """No run has that name. Some verbs answer it with an object of their own."""

    code = "run_not_found"

    def __init__(self, run_id: str, *, hint: str | None = None, candidates: Sequence[str] = ()) -> None:
        super().__init__(f"Run ID not found: {run_id}", hint=hint, candidates=candidates)
        self.run_id = run_id


class Refused(SubagentError):
    """It is understood, but not in this state."""

    code = "refused"


class Denied(SubagentError):
    """The caller is not who it says it is, or may not do this."""

    code = "denied"


class Busy(SubagentError):
    """Somebody else holds the run; the same call may work in a moment."""

    code = "busy"


class Stalled(SubagentError):
    """The time for waiting is up; what was waited for goes on."""

    code = "stalled"


class Damaged(SubagentError):
    """A file does not say what it must; it was left as it is."""

    code = "damaged"


class OutcomeUnknown(SubagentError):
    """The disk did not confirm the change: it may or may not be there after a power cut."""

    code = "outcome_unknown"

"""Commands: what somebody wants to happen to a run. The transition table decides whether it may."""

from subagent_cli.core.value import Value

ONLY = "only"
OLDEST = "oldest"
LATEST = "latest"
ALL = "all"


class Ask(Value):
    message_id: str
    question: str
    options: tuple[str, ...] = ()
    default: str | None = None
    deadline: int | None = None
    single: bool = False
    key: str | None = None


class Tell(Value):
    text: str


class Reply(Value):
    """To one message by its id, or to those of the pending ones that `which` names."""

    answer: str
    message_id: str | None = None
    which: str = ONLY
    key: str | None = None


class Acknowledge(Value):
    """The worker has the answer: of one message, or of every replied one."""

    message_id: str | None = None


class Report(Value):
    status: str
    summary: str | None = None


class Submit(Value):
    """The worker decides the outcome: `word` is result or error."""

    word: str
    text: str
    kind: str | None = None
    artifacts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class Stop(Value):
    """Somebody or some limit ends the run: `kind` is cancelled or timed_out. `gone`: its process is known to be."""

    kind: str
    text: str
    grace: int
    gone: bool = False


class Exit(Value):
    """The keeper saw the process of this attempt end."""

    attempt: int
    exit_code: int
    summary: str | None = None
    output: str | None = None
    tools: tuple[str, ...] = ()


class Resume(Value):
    """Another attempt. Whoever wants it has made sure that no process of the last one's keeper is left."""

    command: str
    text: str
    token_hash: str
    session: str | None = None
    key: str | None = None
    told: tuple[str, ...] = ()
    limit: float | None = None


class Grant(Value):
    """Somebody gives a capability on the run; `by` is the agent that does, None for the operator."""

    by: str | None
    grantee: str
    capability: str
    lasts: int | None = None


class Revoke(Value):
    """Somebody takes back what it gave; `everything` takes what others gave too."""

    by: str | None
    grantee: str
    capability: str
    everything: bool = False


class Deliver(Value):
    """A message is put into the run's inbox. `notice`: it is the reply to a message of the run's own. `owed`: whoever
    replied tells it of that, which takes no right to send."""

    by: str | None
    message_id: str
    text: str
    sha256: str
    in_reply_to: str | None = None
    notice: bool = False
    owed: bool = False


class Settle(Value):
    """Nothing new is wanted: write down what time and other writers have already brought about."""


Command = Ask | Tell | Reply | Acknowledge | Report | Submit | Stop | Exit | Resume | Grant | Revoke | Deliver | Settle

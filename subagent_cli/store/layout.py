"""Where everything lies: the only module that spells a path."""

import os.path

TEMPORARY = ".tmp"
NEW_RUN = ".new-"
TRASH = ".trash-"
FLAT_META = ".meta.json"


class Layout:
    """The paths below one runs directory."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._below = root.rstrip("/")
        self.index = f"{self._below}/.index"
        self.locks = f"{self._below}/.locks"
        self.readme = f"{self._below}/README.md"
        self.active = f"{self.index}/active"
        self.questions = f"{self.index}/questions"
        self.names = f"{self.index}/names"
        self.children = f"{self.index}/children"
        self.keys = f"{self.index}/keys"
        self.spawns = f"{self.index}/spawns"
        self.grants = f"{self.index}/grants"
        self.replies = f"{self.index}/replies"
        self.sends = f"{self.index}/sends"
        self.messages = f"{self._below}/.messages"
        self.seen = f"{self.index}/seen"
        self.now = f"{self._below}/.now"
        self.groups = f"{self._below}/.groups"
        self.workspaces = f"{self._below}/.workspaces"

    def run(self, run_id: str) -> str:
        return f"{self._below}/{run_id}"

    def new_run(self, run_id: str) -> str:
        """Where a run is prepared before it appears."""
        return f"{self._below}/{NEW_RUN}{run_id}"

    def trash(self, run_id: str) -> str:
        """Where a run lies while it is being deleted."""
        return f"{self._below}/{TRASH}{run_id}"

    def meta(self, run_id: str) -> str:
        return f"{self._below}/{run_id}/.meta.json"

    def journal(self, run_id: str) -> str:
        return f"{self._below}/{run_id}/journal.jsonl"

    def spec(self, run_id: str) -> str:
        return f"{self._below}/{run_id}/run.json"

    def prompt(self, run_id: str) -> str:
        return f"{self._below}/{run_id}/prompt.md"

    def prompt_of(self, run_id: str, attempt: int) -> str:
        """What the agent was told at this attempt."""
        return self.prompt(run_id) if attempt == 1 else f"{self._below}/{run_id}/prompt-{attempt}.md"

    def alive(self, run_id: str) -> str:
        """What the keeper of a run holds a lock on as long as it lives."""
        return f"{self._below}/{run_id}/.alive"

    def token(self, run_id: str) -> str:
        """The worker's token, where it was to be handed over in a file; gone when the worker is."""
        return f"{self._below}/{run_id}/.token"

    def wake(self, run_id: str) -> str:
        """The pipe through which the keeper of a run is told to look at its journal. Outside the run, so that nobody
        who reads all files of a run waits at it."""
        return f"{self.locks}/{run_id}.wake"

    def log(self, run_id: str) -> str:
        return f"{self._below}/{run_id}/log"

    def quarantine(self, run_id: str) -> str:
        return f"{self._below}/{run_id}/quarantine"

    def ring(self, run_id: str) -> str:
        """Links to documents that were replaced while another program may still have been writing into them."""
        return f"{self._below}/{run_id}/.ring"

    def flat_meta(self, run_id: str) -> str:
        """The document of a run where the TypeScript server has it; so too its log and its prompt."""
        return f"{self._below}/{run_id}{FLAT_META}"

    def flat_log(self, run_id: str) -> str:
        return f"{self._below}/{run_id}.log"

    def flat_prompt(self, run_id: str) -> str:
        return f"{self._below}/{run_id}.prompt.md"

    def inside(self, path: str) -> bool:
        """Whether a path stays in the runs directory, whatever links there are."""
        if not os.path.islink(path):
            return True
        root = os.path.realpath(self.root)
        return os.path.commonpath((root, os.path.realpath(path))) == root

    def lock(self, name: str) -> str:
        return f"{self.locks}/{name}.lock"

    def active_mark(self, run_id: str) -> str:
        return f"{self.active}/{run_id}"

    def question_mark(self, message_id: str) -> str:
        return f"{self.questions}/{message_id}"

    def child_marks(self, parent_id: str) -> str:
        return f"{self.children}/{parent_id}"

    def child_mark(self, parent_id: str, run_id: str) -> str:
        return f"{self.children}/{parent_id}/{run_id}"

    def name_marks(self, name: str) -> str:
        return f"{self.names}/{name}"

    def name_mark(self, name: str, run_id: str) -> str:
        return f"{self.names}/{name}/{run_id}"

    def group(self, group_id: str) -> str:
        return f"{self.groups}/{group_id}.json"

    def grant_marks(self, grantee: str) -> str:
        """Runs on which somebody gave this agent a capability."""
        return f"{self.grants}/{grantee}"

    def grant_mark(self, grantee: str, run_id: str) -> str:
        return f"{self.grants}/{grantee}/{run_id}"

    def message(self, message_id: str) -> str:
        return f"{self.messages}/{message_id}.json"

    def reply_marks(self, message_id: str) -> str:
        """Messages that reply to this one."""
        return f"{self.replies}/{message_id}"

    def reply_mark(self, message_id: str, reply_id: str) -> str:
        return f"{self.replies}/{message_id}/{reply_id}"

    def send_mark(self, digest: str) -> str:
        """Which message was sent under an idempotency key."""
        return f"{self.sends}/{digest}"

    def workspace(self, run_id: str) -> str:
        """What a throwaway child has: the folder in which it works, and whether that is to be kept."""
        return f"{self.workspaces}/{run_id}"

    def workspace_lock(self, run_id: str) -> str:
        """Held by whoever will clear the workspace away."""
        return f"{self.locks}/{run_id}.work"

    def spawn_mark(self, digest: str) -> str:
        """Which group was spawned under an idempotency key."""
        return f"{self.spawns}/{digest}"

    def key_mark(self, digest: str) -> str:
        return f"{self.keys}/{digest}"

"""What errors that were injected into every call of the system have brought to light, so that it stays mended."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from subagent_cli.core.errors import Failed
from subagent_cli.services import questions, runs
from tests.store.test_failures import Fault, injected
from tests.store.world import new_run, open_at, truth


def test_a_lock_that_cannot_be_released_makes_no_failure_of_a_change_that_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    run_id = new_run(open_at(root))
    real = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        message_id = questions.ask(open_at(root), "Which?", run=run_id)["messageId"]
    assert list(truth(root, run_id).questions) == [message_id]
    # Its file was closed all the same, which lets go of it.
    questions.ask(open_at(root, lock_timeout="1ms"), "Is it free?", run=run_id)


@pytest.mark.parametrize("number", [1, 2])
def test_a_worker_whose_run_cannot_be_read_is_told_of_that_and_not_that_its_token_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = tmp_path / "runs"
    made = runs.create(open_at(root), "worker", "do it")
    for name, value in made["env"].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Failed, match=os.strerror(errno.EMFILE)), injected(Fault(number, errno.EMFILE), root):
        open_at(root)
    assert open_at(root).caller.run_id == made["runId"]

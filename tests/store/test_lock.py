"""The lock of a run: the library's and our own way to it keep each other out, and nobody waits for himself."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from subagent_cli.core.errors import Busy, Failed
from subagent_cli.store.lock import held
from tests.store.world import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "locks" / "it.lock")


def is_free(path: str) -> bool:
    """Whether somebody who knows the library alone could have the lock."""
    lock = FileLock(path, fallback_to_soft=False)
    try:
        with lock.acquire(timeout=0):
            return True
    except Timeout:
        return False


def test_while_we_hold_the_lock_the_library_does_not_get_it(path: str) -> None:
    with held(path, 1, "it"):
        assert not is_free(path)
    assert is_free(path)


def test_while_the_library_holds_the_lock_we_do_not_get_it(path: str) -> None:
    os.makedirs(os.path.dirname(path))
    with FileLock(path), pytest.raises(Busy), held(path, 0.01, "it"):
        pytest.fail("two had it")
    with held(path, 0.01, "it"):
        assert not is_free(path)


def test_who_holds_the_lock_may_take_it_again_and_holds_it_until_the_last_is_let_go(path: str) -> None:
    with held(path, 1, "it"):
        with held(path, 0.01, "it"):
            assert not is_free(path)
        assert not is_free(path)
    assert is_free(path)


def test_another_thread_is_somebody_else(path: str) -> None:
    said: list[str] = []

    def try_it() -> None:
        try:
            with held(path, 0.01, "it"):
                said.append("had it")
        except Busy:
            said.append("busy")

    def ask() -> None:
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join(PATIENCE)

    with held(path, 1, "it"):
        ask()
    ask()
    assert said == ["busy", "had it"]


def test_after_an_error_in_the_block_the_lock_is_free(path: str) -> None:
    with pytest.raises(ZeroDivisionError), held(path, 1, "it"):
        raise ZeroDivisionError
    assert is_free(path)


def test_a_lock_whose_file_is_taken_away_while_it_is_got_is_no_lock(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, times = fcntl.flock, []

    def flock(fd: int, how: int) -> None:
        times.append(how)
        if len(times) == 1:
            os.unlink(path)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with held(path, 1, "it"):
        monkeypatch.undo()
        assert os.path.exists(path), "what is held must be what others find there"
        assert not is_free(path)


def test_a_file_system_without_locks_is_said_and_nothing_is_done_without_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(Failed), held(path, 1, "it"):
        pytest.fail("it went on without a lock")


def test_the_lock_names_who_has_it(path: str) -> None:
    with held(path, 1, "it"), open(path, "rb") as file:
        assert int(file.read()) == os.getpid()

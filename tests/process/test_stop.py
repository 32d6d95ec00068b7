"""Signals reach the processes that are meant, and no others: not who has taken over a number, not who is spared."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from subagent_cli.process import stop
from tests.process.living import PATIENCE, below, seen, until

WAITS = "import signal, sys; sys.stdout.write('up\\n'); sys.stdout.flush(); signal.pause()"
# A child, its child and its child, each of which says its number.
CHAIN = """
import os, signal, sys
for _ in range(3):
    os.write(1, b"%d\\n" % os.getpid())
    if os.fork():
        signal.pause()
os.write(1, b"%d\\n" % os.getpid())
signal.pause()
"""


class Started:
    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, script: str = WAITS, **how: object) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-I", "-S", "-c", script]
        self._processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, **how))  # type: ignore[call-overload]
        return self._processes[-1]

    def close(self) -> None:
        for process in self._processes:
            for pid in (*below(process.pid), process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(PATIENCE)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def start() -> Iterator[Started]:
    started = Started()
    yield started
    started.close()


def lines(process: "subprocess.Popen[bytes]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().decode().strip() for _ in range(count)]


def ended(process: "subprocess.Popen[bytes]") -> int:
    return process.wait(PATIENCE)


def test_a_process_has_the_start_time_that_the_system_gives_it(start: Started) -> None:
    process = start()
    found = seen(process.pid)
    assert found is not None
    assert stop.start_of(process.pid) == found.start != ""
    assert stop.parent_of(process.pid) == os.getpid()


def test_who_is_gone_has_no_start_time(start: Started) -> None:
    process = start("")
    ended(process)
    assert stop.start_of(process.pid) == ""
    assert stop.parent_of(process.pid) == 0


def test_who_is_a_zombie_has_no_start_time(start: Started) -> None:
    process = start("")
    until(lambda: (found := seen(process.pid)) and found.state == "Z", "a zombie")
    assert stop.start_of(process.pid) == ""
    assert process.pid not in [pid for pid, _ in stop.descendants(os.getpid(), set())]


def test_a_name_cannot_confuse_the_reading(start: Started) -> None:
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b') Z 1 (\\n) ', 0, 0, 0);" + WAITS
    process = start(script)
    lines(process, 1)
    found = seen(process.pid)
    assert found is not None
    assert stop.start_of(process.pid) == found.start
    assert stop.parent_of(process.pid) == os.getpid()


def test_everything_below_a_process_is_found(start: Started) -> None:
    process = start(CHAIN)
    pids = [int(line) for line in lines(process, 4)]
    assert sorted(pid for pid, _ in stop.descendants(process.pid, set())) == sorted(pids[1:])
    assert set(pids) <= {pid for pid, _ in stop.descendants(os.getpid(), set())}
    assert all(stop.start_of(pid) == began for pid, began in stop.descendants(process.pid, set()))


def test_a_session_of_its_own_hides_nobody(start: Started) -> None:
    process = start(CHAIN.replace("for _", "os.setsid() if os.getpgrp() != os.getpid() else None\nfor _"))
    pids = [int(line) for line in lines(process, 4)]
    assert {pid for pid, _ in stop.descendants(process.pid, set())} == set(pids[1:])


def test_who_is_spared_is_spared_with_all_below(start: Started) -> None:
    process = start(CHAIN)
    first, second, third, _ = [int(line) for line in lines(process, 4)]
    assert first == process.pid
    assert [pid for pid, _ in stop.descendants(first, {third})] == [second]
    assert stop.descendants(first, {second}) == []


def test_nobody_is_below_who_is_not_there(start: Started) -> None:
    process = start("")
    ended(process)
    assert stop.descendants(process.pid, set()) == []


def test_a_signal_reaches_the_process(start: Started) -> None:
    process = start()
    lines(process, 1)
    assert stop.send((process.pid, stop.start_of(process.pid)), signal.SIGTERM)
    assert ended(process) == -signal.SIGTERM


@pytest.mark.parametrize("start_time", ["", "1", "later"])
def test_who_has_taken_over_a_number_gets_no_signal(start: Started, start_time: str) -> None:
    process = start()
    lines(process, 1)
    began = stop.start_of(process.pid)
    wrong = str(int(began) + 1) if start_time == "later" else start_time
    for signum in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
        assert not stop.send((process.pid, wrong), signum)
    assert process.poll() is None
    assert stop.send((process.pid, began), signal.SIGTERM)
    # Had one of the others reached it, it would have ended by that one, or not at all.
    assert ended(process) == -signal.SIGTERM


def test_a_number_that_changes_hands_at_the_last_moment_gets_no_signal(
    start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handle is opened first and the start time is read behind it, so there is no moment between the two."""
    process = start()
    lines(process, 1)
    began, order = stop.start_of(process.pid), []
    opened, read = os.pidfd_open, stop.start_of

    def opening(pid: int) -> int:
        order.append("opened")
        return opened(pid)

    def reading(pid: int) -> str:
        order.append("read")
        return "another" if order == ["opened", "read"] else read(pid)

    monkeypatch.setattr(stop, "_OPEN", opening)
    monkeypatch.setattr(stop, "start_of", reading)
    assert not stop.send((process.pid, began), signal.SIGKILL)
    assert order == ["opened", "read"]
    assert process.poll() is None


def test_signals_without_handles_are_held_to_the_start_time_too(
    start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "_OPEN", None)
    process = start()
    lines(process, 1)
    began = stop.start_of(process.pid)
    assert not stop.send((process.pid, "1"), signal.SIGKILL)
    assert stop.send((process.pid, began), signal.SIGTERM)
    assert ended(process) == -signal.SIGTERM
    assert not stop.send((process.pid, began), signal.SIGTERM)


def test_a_signal_to_the_dead_is_no_harm(start: Started) -> None:
    process = start()
    lines(process, 1)
    began = stop.start_of(process.pid)
    process.kill()
    until(lambda: (found := seen(process.pid)) and found.state == "Z", "a zombie")
    assert not stop.send((process.pid, began), signal.SIGTERM)
    ended(process)
    assert not stop.send((process.pid, began), signal.SIGTERM)


def test_sending_and_looking_leave_no_open_files(start: Started) -> None:
    process = start(CHAIN)
    lines(process, 4)
    before = len(os.listdir("/proc/self/fd"))
    for wrong in (False, True):
        for pid, began in stop.descendants(process.pid, set()):
            stop.send((pid, "1" if wrong else began), signal.SIGCONT)
    assert len(os.listdir("/proc/self/fd")) == before


def test_looking_is_safe_while_processes_come_and_go(start: Started) -> None:
    script = "import os\nwhile True:\n    if os.fork() == 0: os._exit(0)\n    os.wait()"
    process = start(script)
    for _ in range(50):
        for pid, began in stop.descendants(process.pid, set()):
            assert began
            assert pid != process.pid

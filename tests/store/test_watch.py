"""Waking up: at once where the kernel tells; where it cannot, by looking at growing intervals."""

import ctypes
import gc
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.store.watch import Watch

SOON = 5.0
LONG = 60.0


def write_in_place(folder: Path) -> None:
    with open(folder / "there", "r+b", buffering=0) as file:
        file.truncate(0)
        file.write(b"new")


def append(folder: Path) -> None:
    with open(folder / "there", "ab", buffering=0) as file:
        file.write(b"more")


def replace(folder: Path) -> None:
    (folder.parent / "prepared").write_bytes(b"new")
    os.replace(folder.parent / "prepared", folder / "there")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file is written in place": write_in_place,
    "a file is appended to": append,
    "a file is replaced": replace,
    "a file is made": lambda folder: (folder / "new").touch(),
    "a folder is made": lambda folder: (folder / "new").mkdir(),
    "a file is removed": lambda folder: (folder / "there").unlink(),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    (made / "there").write_bytes(b"old")
    return made


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a watch that looks now and then would have slept, without sleeping."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Whoever wants one more is told that there are too many, as where a user's inotify instances are used up."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def exhausted(folder: Path) -> Watch:
    # What the module loads when it is first used needs descriptors of its own.
    with Watch():
        pass
    with no_free_descriptor():
        return Watch([str(folder)])


def waited(watch: Watch, seconds: float | None) -> float:
    begin = time.monotonic()
    watch.wait(seconds)
    return time.monotonic() - begin


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_wait_ends_at_once_when(folder: Path, change: Callable[[Path], object]) -> None:
    with Watch([str(folder)]) as watch:
        assert not watch.polling
        change(folder)
        assert waited(watch, LONG) < SOON


def test_a_change_by_another_process_ends_a_wait_that_has_no_limit(folder: Path) -> None:
    script = "import sys; sys.stdin.read(); open(sys.argv[1], 'w').close()"
    words = [sys.executable, "-c", script, str(folder / "new")]
    with Watch([str(folder)]) as watch, subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        watch.wait(None)
        assert (folder / "new").exists()


def test_without_a_change_a_wait_takes_its_time_and_no_more(folder: Path) -> None:
    with Watch([str(folder)]) as watch:
        assert 0.04 < waited(watch, 0.05) < SOON
        assert waited(watch, 0) < SOON


def test_a_change_wakes_once(folder: Path) -> None:
    with Watch([str(folder)]) as watch:
        for number in range(2000):
            (folder / f"new {number}").touch()
        watch.wait(LONG)
        assert waited(watch, 0.05) > 0.04


def test_what_is_seen_between_two_waits_is_not_lost(folder: Path) -> None:
    with Watch([str(folder)]) as watch:
        for _ in range(3):
            append(folder)
            assert waited(watch, LONG) < SOON


def test_a_folder_that_is_not_there_is_passed_over_and_can_be_watched_when_it_is(folder: Path) -> None:
    later = folder / "later"
    with Watch([str(folder), str(later)]) as watch:
        assert not watch.polling
        later.mkdir()
        assert waited(watch, LONG) < SOON
        watch.add(str(later))
        (later / "file").touch()
        assert waited(watch, LONG) < SOON


def test_of_several_folders_each_wakes(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(300)]
    for made in folders:
        made.mkdir()
    with Watch(map(str, folders)) as watch:
        for made in folders[::37]:
            (made / "file").touch()
            assert waited(watch, LONG) < SOON


def test_nothing_stays_open_behind_a_watch(folder: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with Watch([str(folder)]):
        assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    with pytest.raises(KeyError), Watch([str(folder)]):
        raise KeyError
    # The kernel takes its time over it, for which nobody has to wait.
    until = time.monotonic() + SOON
    while sorted(os.listdir("/proc/self/fd")) != before:
        assert time.monotonic() < until


def test_a_process_with_a_thousand_open_files_can_wait_too(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened: list[int] = []
    try:
        while not opened or opened[-1] < 1024:
            opened.append(os.dup(0))
        with Watch([str(folder)]) as watch:
            append(folder)
            assert waited(watch, LONG) < SOON
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("seconds", [2_147_484.0, 9.3e9, 1e300, float("inf")])
def test_a_wait_can_be_allowed_to_last_longer_than_any_machine(folder: Path, seconds: float) -> None:
    with Watch([str(folder)]) as watch:
        append(folder)
        assert waited(watch, seconds) < SOON


def test_a_call_that_waits_collects_its_garbage_again(folder: Path) -> None:
    gc.disable()
    try:
        with Watch([str(folder)]):
            assert gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.case("C0-22")
def test_where_the_instances_are_used_up_the_looks_come_at_growing_intervals(folder: Path, pauses: list[float]) -> None:
    watch = exhausted(folder)
    assert watch.polling
    for _ in range(9):
        watch.wait(None)
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0])


@pytest.mark.case("C0-22")
def test_the_first_and_the_longest_pause_are_parameters(
    folder: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "another")
    wanted: dict[str, Any] = {"first_pause": 5.0, "longest_pause": 30.0}
    with Watch([str(folder)], **wanted) as watch:
        assert watch.polling
        for _ in range(5):
            watch.wait(None)
    assert pauses == [5.0, 10.0, 20.0, 30.0, 30.0]


@pytest.mark.case("C0-22")
def test_a_look_never_comes_later_than_the_wait_may_last(
    folder: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "another")
    with Watch([str(folder)], first_pause=0.5) as watch:
        for seconds in (0.1, 0.7, 0.0, -3.0):
            watch.wait(seconds)
    assert pauses == pytest.approx([0.1, 0.7, 0.0, 0.0])


def test_one_folder_too_many_for_the_kernel_makes_it_a_look_now_and_then(
    folder: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        """A kernel that takes one more instance and no more folders."""

        inotify_init1 = ctypes.CDLL(None).inotify_init1

        def inotify_add_watch(self, *_arguments: object) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, **_options: Full())
    with Watch([str(folder / "not there")]) as watch:
        assert not watch.polling
        watch.add(str(folder))
        assert watch.polling
        watch.wait(LONG)
        watch.add(str(folder))
    assert pauses == pytest.approx([0.02])

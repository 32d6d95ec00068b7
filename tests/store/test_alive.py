"""A keeper lives as long as its lock is held, and only a lock that could be had proves that it does not."""

import fcntl
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from subagent_cli.store import alive
from subagent_cli.store.alive import Claim
from subagent_cli.store.layout import Layout

RUN = "0199c7d4-4c00-7000-8000-00000000abcd"
PATIENCE = 30.0


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(str(tmp_path / "runs"))
    os.makedirs(layout.run(RUN))
    return layout


@pytest.mark.case("X11")
def test_a_held_lock_is_life_and_a_free_one_is_death(layout: Layout) -> None:
    claim = Claim()
    assert claim.take(layout.alive(RUN))
    assert not alive.dead(layout, RUN)
    claim.drop()
    assert alive.dead(layout, RUN)


@pytest.mark.case("X11")
def test_a_run_that_never_had_a_keeper_is_not_dead(layout: Layout) -> None:
    assert not alive.dead(layout, RUN)
    assert not os.path.exists(layout.alive(RUN))


@pytest.mark.case("X11")
def test_what_cannot_be_looked_at_is_not_dead(layout: Layout) -> None:
    os.symlink("elsewhere", layout.alive(RUN))
    assert not alive.dead(layout, RUN)
    os.unlink(layout.alive(RUN))
    os.rmdir(layout.run(RUN))
    Path(layout.run(RUN)).write_text("a file, so that nothing below it can be opened")
    assert not alive.dead(layout, RUN)


def test_lookers_do_not_take_each_other_for_keepers(layout: Layout) -> None:
    Path(layout.alive(RUN)).touch()
    looking = os.open(layout.alive(RUN), os.O_RDONLY)
    try:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert alive.dead(layout, RUN)
    finally:
        os.close(looking)


def test_a_second_claim_is_refused_while_the_first_lives(layout: Layout) -> None:
    first, second = Claim(), Claim()
    assert first.take(layout.alive(RUN))
    assert not second.take(layout.alive(RUN))
    first.drop()
    assert second.take(layout.alive(RUN))
    second.drop()


def test_a_claim_outlasts_a_look_of_a_moment(layout: Layout) -> None:
    Path(layout.alive(RUN)).touch()
    script = "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_SH);"
    script += "print(flush=True); sys.stdin.readline()"
    words = [sys.executable, "-c", script, layout.alive(RUN)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as looker:
        assert looker.stdout is not None
        looker.stdout.readline()
        looker.communicate(b"\n", timeout=PATIENCE)
    claim = Claim()
    assert claim.take(layout.alive(RUN))
    claim.drop()


def test_the_lock_goes_with_the_process_however_it_ends(layout: Layout) -> None:
    script = "import sys; from subagent_cli.store.alive import Claim; claim = Claim();"
    script += "assert claim.take(sys.argv[1]); print(flush=True); sys.stdin.readline()"
    words = [sys.executable, "-P", "-c", script, layout.alive(RUN)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        assert not alive.dead(layout, RUN)
        keeper.kill()
        keeper.wait(PATIENCE)
        assert alive.dead(layout, RUN)


def test_each_keeper_leaves_its_line(layout: Layout) -> None:
    for word in (b"first\n", b"2\n"):
        claim = Claim()
        assert claim.take(layout.alive(RUN))
        os.write(claim.fd, word)
        claim.drop()
    assert Path(layout.alive(RUN)).read_bytes() == b"first\n2\n"
    assert stat.S_IMODE(os.stat(layout.alive(RUN)).st_mode) == 0o600


def test_a_word_wakes_whoever_listens_and_waits_for_him(layout: Layout) -> None:
    fd = alive.listen(layout, RUN)
    try:
        assert stat.S_ISFIFO(os.stat(layout.wake(RUN)).st_mode)
        with pytest.raises(BlockingIOError):
            os.read(fd, 100)
        for _ in range(3):
            alive.nudge(layout, RUN)
        assert os.read(fd, 100) == b"!!!"
    finally:
        os.close(fd)


def test_a_word_to_nobody_is_no_harm_and_makes_no_file_grow(layout: Layout) -> None:
    alive.nudge(layout, RUN)
    os.close(alive.listen(layout, RUN))
    alive.nudge(layout, RUN)
    os.unlink(layout.wake(RUN))
    Path(layout.wake(RUN)).write_bytes(b"a file")
    alive.nudge(layout, RUN)
    assert Path(layout.wake(RUN)).read_bytes() == b"a file"


def test_a_pipe_that_is_full_takes_no_more_and_keeps_nobody_waiting(layout: Layout) -> None:
    fd = alive.listen(layout, RUN)
    try:
        with suppress(BlockingIOError):
            while os.write(fd, bytes(4096)):
                pass
        alive.nudge(layout, RUN)
    finally:
        os.close(fd)


def test_a_new_listener_takes_the_place_of_what_a_crash_left(layout: Layout) -> None:
    os.close(alive.listen(layout, RUN))
    fd = alive.listen(layout, RUN)
    alive.nudge(layout, RUN)
    assert os.read(fd, 100) == b"!"
    os.close(fd)

"""The keeper: one small process a run that owns the agent's process, its log and its verdict.

It is started detached and outlives whoever started it. It holds the lock on `.alive` as long as it lives, inherits
whatever the agent leaves behind, stops what has to be stopped (the group and all below it are asked, and killed after
a grace), and records how the agent ended through the same change as every other event. It decides nothing: time
limits come with its orders, and everything else stands in the run's journal, at which it looks when it is told to.

While it waits it costs nothing and holds little: code that writes is loaded when there is something to write.
"""

import os
import select
import signal
import sys
import time

from subagent_cli.process import child, session, stop
from subagent_cli.process.capture import STDERR, STDOUT, Capture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subagent_cli.core.command import Command

ALIVE_FD, WAKE_FD = 3, 4
READY = b"ok"

_LINUX = sys.platform.startswith("linux")
_SMALL_READ = 65_536
# How long to go on trying to write the verdict down when the disk will not take it.
_VERDICT_SECONDS = 600.0
# Nobody who holds the lock of a run keeps its time limit from being kept.
_SHORT_LOCK_SECONDS = 0.5
# The system counts the milliseconds of a poll in 31 bits.
_LONGEST_POLL = 1e9
# When the journal could not be read although there is something in it.
_LOOK_SECONDS = 1.0
# What even a kill does not end, such as a process that hangs in the kernel, is given up after this.
_KILL_SECONDS = 10.0
_KILL_PAUSE = 0.01
_ROUNDS = 200


def keep(orders: "dict[str, Any]") -> None:
    """All that a keeper does, from its orders to the end of its run."""
    keeper = Keeper(orders)
    keeper.take_over()
    try:
        keeper.run()
    except BaseException:
        keeper.give_up()
        raise


class Keeper:
    def __init__(self, orders: "dict[str, Any]") -> None:
        self._orders = orders
        self._log = Capture(orders["log"], orders["log_limit"], orders["token"])
        self._poll = select.poll()
        self._streams: dict[int, bytes] = {}
        self._signals, self._signalled = os.pipe()
        for fd in (self._signals, self._signalled):
            os.set_blocking(fd, False)
        self._told = 0
        self._child = 0
        self._code: int | None = None
        # Moments on the clock that nobody sets: when the run's time is up, when to look at the journal again, when an
        # agent that has submitted is asked to end, when what still runs is killed.
        self._time_up: float | None = None
        self._look_at: float | None = None
        self._ask_at: float | None = None
        self._kill_at: float | None = None
        # Somebody wants all of it to end, and not only the agent has.
        self._stopping = False
        self._unsaid: list[Command] = []

    def take_over(self) -> None:
        """Becomes what a keeper is, and tells whoever started it."""
        for fd in (ALIVE_FD, WAKE_FD):
            os.set_inheritable(fd, False)
        session.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminated)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._signalled, warn_on_full_buffer=False)
        os.write(ALIVE_FD, f"{os.getpid()} {stop.start_of(os.getpid())}\n".encode())
        for fd in (self._signals, WAKE_FD):
            self._poll.register(fd, select.POLLIN)
        os.write(1, READY)
        session.fall_silent()

    def run(self) -> None:
        if self._orders["timeout"] is not None:
            self._time_up = time.monotonic() + self._orders["timeout"]
        self._start()
        while self._code is None or self._kill_at is not None:
            self._wait()
        self._finish()

    def give_up(self) -> None:
        """Something is wrong with the keeper itself: no process is left behind, and the log says why."""
        import traceback

        self._log.say("The keeper failed:\n" + traceback.format_exc())
        self._kill_all()
        self._code = self._code if self._code is not None else 255
        self._finish()

    def _start(self) -> None:
        """Starts the agent. One that cannot be started has ended, with the exit code that a shell would give."""
        out, err = self._pipe(STDOUT), self._pipe(STDERR)
        self._child, reason = child.spawn(self._orders, out, err)
        os.close(out)
        os.close(err)
        if reason:
            program = self._orders["argv"][0]
            self._log.take(STDERR, f"{program}: {os.strerror(reason)}\n".encode("utf-8", "replace"))

    def _pipe(self, stream: bytes) -> int:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        if stream == STDOUT:
            child.widen(reading)
        self._streams[reading] = stream
        self._poll.register(reading, select.POLLIN)
        return writing

    def _wait(self) -> None:
        """Until something happens or is due, and then does what it takes."""
        moments = [at for at in (self._time_up, self._look_at, self._ask_at, self._kill_at) if at is not None]
        timeout = None if not moments else max(0.0, 1000 * (min(moments) - time.monotonic()) + 1)
        timeout = timeout and min(timeout, _LONGEST_POLL)
        for fd, _ in self._poll.poll(timeout):
            if fd in self._streams:
                self._read(fd)
            elif fd == WAKE_FD:
                _drain(WAKE_FD)
                self._look()
        _drain(self._signals)
        if self._told and not self._stopping:
            self._end_by("cancelled", "Cancelled: its keeper was told to stop")
        elif self._told > 1 and self._kill_at is not None:
            # Who says it twice is in a hurry.
            self._kill_at = time.monotonic()
        self._reap()
        self._be_on_time()

    def _be_on_time(self) -> None:
        """What is due: nothing is, for an agent that has ended, but the end of what it left behind."""
        now = time.monotonic()
        if self._code is not None:
            self._time_up = self._ask_at = None
        if self._time_up is not None and now >= self._time_up:
            self._time_up = None
            self._end_by("timed_out", self._orders["timeout_text"])
        if self._look_at is not None and now >= self._look_at:
            self._look()
        if self._ask_at is not None and now >= self._ask_at:
            self._ask_at = None
            self._log.say("The outcome was submitted and the process did not end: it is stopped")
            self._ask_to_end(self._orders["stop_grace"])
        if self._kill_at is not None and (now >= self._kill_at or not self._left()):
            self._kill_at = None
            self._kill_all()

    def _read(self, fd: int) -> None:
        """What there is of a stream, in growing portions; a stream that has ended is let go."""
        size = _SMALL_READ
        for _ in range(16):
            try:
                chunk = os.read(fd, size)
            except BlockingIOError:
                return
            if not chunk:
                self._poll.unregister(fd)
                del self._streams[fd]
                os.close(fd)
                return
            self._log.take(self._streams[fd], chunk)
            if len(chunk) < size:
                return
            size = child.PIPE_BYTES

    def _reap(self) -> None:
        """Buries whoever has died: the agent, and what it left to us."""
        running = self._code is None
        self._bury()
        if running and self._code is not None and self._kill_at is None and self._left():
            self._ask_to_end(self._orders["stop_grace"])

    def _bury(self) -> bool:
        """Whether any child is left. Without one there is nothing below us at all, which no list could prove."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code

    def _left(self, *, all_of_it: bool | None = None) -> "list[stop.Process]":
        """What is still there below us. Runs that this one started go on when it ends, unless somebody ends it."""
        if not _LINUX:
            # The group alone can be reached there, and only as long as its leader has not been buried.
            return [(-self._child, "")] if self._code is None else []
        if not self._bury():
            return []
        all_of_it = self._stopping if all_of_it is None else all_of_it
        spared = set() if all_of_it else {pid for pid, _ in self._others()}
        # What forks and ends while the list is made is not in it, but its child has become ours.
        return stop.descendants(os.getpid(), spared) or [
            (pid, stop.start_of(pid)) for pid in stop.children() if pid not in spared
        ]

    def _others(self) -> "list[stop.Process]":
        """The keepers of runs that this one started."""
        from subagent_cli.process import verdict

        return verdict.other_keepers(self._orders)

    def _look(self) -> None:
        """What the journal has for the keeper: somebody wants the run stopped, or the agent is done."""
        from subagent_cli.core.errors import SubagentError
        from subagent_cli.process import verdict

        self._look_at = None
        try:
            run = verdict.look(self._orders)
        except (SubagentError, OSError):
            self._look_at = time.monotonic() + _LOOK_SECONDS
            return
        if run is None or run.attempt != self._orders["attempt"]:
            return
        if run.stop is not None:
            self._stopping = True
            self._ask_to_end(run.stop / 1000)
        elif run.submitted and self._ask_at is None and self._code is None:
            self._time_up = None
            self._ask_at = time.monotonic() + self._orders["submit_grace"]

    def _end_by(self, kind: str, text: str) -> None:
        """Writes down why the run ends, and then ends it: a result that comes later is too late."""
        from subagent_cli.process import verdict

        grace = self._orders["stop_grace"]
        self._unsaid.append(verdict.stopped(kind, text, grace))
        verdict.say(self._orders, self._unsaid, 0.0, _SHORT_LOCK_SECONDS)
        self._stopping = True
        self._ask_to_end(grace)

    def _ask_to_end(self, grace: float) -> None:
        """Asks everything below to end, and sees to it after the grace. What other keepers keep is asked by them."""
        if self._kill_at is None:
            for process in (*self._left(all_of_it=False), *(self._others() if self._stopping else ())):
                stop.send(process, signal.SIGTERM)
                # A process that was suspended hears nothing before it goes on.
                stop.send(process, signal.SIGCONT)
        at = time.monotonic() + grace
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    def _kill_all(self) -> None:
        """Until nothing is left. Other keepers end their runs themselves, and write that down, if they can."""
        self._kill(all_of_it=False)
        if self._stopping and _LINUX:
            self._hurry_others()
            self._kill(all_of_it=True)

    def _hurry_others(self) -> None:
        until = time.monotonic() + _KILL_SECONDS
        for keeper in self._others():
            stop.send(keeper, signal.SIGTERM)
        while self._others() and time.monotonic() < until:
            self._bury()
            time.sleep(_KILL_PAUSE)

    def _kill(self, *, all_of_it: bool) -> None:
        """What forks while it is being killed meets the next round."""
        give_up = time.monotonic() + _KILL_SECONDS
        while left := self._left(all_of_it=all_of_it):
            for process in left:
                stop.send(process, signal.SIGKILL)
            if _LINUX:
                self._outrun(set() if all_of_it else {pid for pid, _ in self._others()})
            self._reap()
            for fd in list(self._streams):
                self._read(fd)
            if time.monotonic() > give_up:
                self._log.say(f"{len(left)} processes could not be ended")
                return
            time.sleep(_KILL_PAUSE)
        self._reap()

    def _outrun(self, spared: set[int]) -> None:
        """Kills children as fast as they come: of a chain that forks without a pause, each one becomes ours."""
        for _ in range(_ROUNDS):
            if not self._bury():
                return
            for pid in stop.children():
                if pid not in spared:
                    stop.kill_child(pid)

    def _finish(self) -> None:
        """The last of the output, and the verdict. The log is closed first, since what it says last is part of it."""
        from subagent_cli.process import verdict

        for fd in list(self._streams):
            self._read(fd)
        self._log.end()
        code = self._code if self._code is not None else 255
        self._log.say(f"Process exited with code {code}")
        self._log.close()
        last = self._log.last
        self._unsaid.append(verdict.exited(self._orders, code, bytes(last[STDOUT]), bytes(last[STDERR])))
        verdict.say(self._orders, self._unsaid, _VERDICT_SECONDS, self._orders["lock_timeout"])
        for path in (self._orders["wake"], self._orders["token_file"]):
            _remove(path)
        verdict.wake(self._orders)

    def _terminated(self, *_: object) -> None:
        self._told += 1


def _drain(fd: int) -> None:
    try:
        while len(os.read(fd, 4096)) == 4096:
            pass
    except BlockingIOError:
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return

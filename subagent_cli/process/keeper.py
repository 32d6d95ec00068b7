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

from subagent_cli.process import stop
from subagent_cli.process.capture import STDERR, STDOUT, Capture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subagent_cli.core.command import Command

ALIVE_FD, WAKE_FD = 3, 4
READY = b"ok"

_LINUX = sys.platform.startswith("linux")
_SUBREAPER, _NAME = 36, 15
_PIPE_SIZE, _PIPE_BYTES = 1031, 1 << 20
_SMALL_READ = 65_536
_LOG_LINES = 50
_RESULT_BYTES, _ERROR_BYTES = 65_536, 4_096
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


def detach() -> None:
    """Lets whoever started this process go on, and goes on itself in a session of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")


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
        self._told_to_stop = False
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
        _adopt_orphans()
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
        _silence()

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
        self._child, reason = _spawn(self._orders, out, err)
        os.close(out)
        os.close(err)
        if reason:
            program = self._orders["argv"][0]
            self._log.take(STDERR, f"{program}: {os.strerror(reason)}\n".encode("utf-8", "replace"))

    def _pipe(self, stream: bytes) -> int:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        if stream == STDOUT:
            _widen(reading)
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
        if self._told_to_stop:
            self._told_to_stop = False
            self._end_by("cancelled", "Cancelled: its keeper was told to stop")
        self._reap()
        self._be_on_time()

    def _be_on_time(self) -> None:
        now = time.monotonic()
        if self._time_up is not None and now >= self._time_up:
            self._time_up = None
            self._end_by("timed_out", "Sub-agent timed out")
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
            size = _PIPE_BYTES

    def _reap(self) -> None:
        """Buries whoever has died: the agent, and what it left to us."""
        running = self._code is None
        self._bury()
        if running and self._code is not None:
            self._time_up = self._ask_at = None
            if self._kill_at is None and self._left():
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

    def _left(self) -> "list[stop.Process]":
        """What is still there of the agent and all below it, except other runs that it started."""
        if not _LINUX:
            # The group alone can be reached there, and only as long as its leader has not been buried.
            return [(-self._child, "")] if self._code is None else []
        if not self._bury():
            return []
        spared = set() if self._stopping else self._other_keepers()
        # What forks and ends while the list is made is not in it, but its child has become ours.
        return stop.descendants(os.getpid(), spared) or [
            (pid, stop.start_of(pid)) for pid in stop.children() if pid not in spared
        ]

    def _other_keepers(self) -> set[int]:
        """Keepers of runs that this one started: their runs go on when it ends, unless somebody ends it."""
        runs = self._runs()
        known = [_last_line(runs.layout.alive(child)) for child in runs.index.children(self._orders["run"])]
        return {int(pid) for pid, start in known if pid.isdigit() and start and stop.start_of(int(pid)) == start}

    def _look(self) -> None:
        """What the journal has for the keeper: somebody wants the run stopped, or the agent is done."""
        from subagent_cli.core.errors import NotFound, SubagentError

        self._look_at = None
        try:
            run = self._runs().read(self._orders["run"], _clock().now())
        except NotFound:
            return
        except (SubagentError, OSError):
            self._look_at = time.monotonic() + _LOOK_SECONDS
            return
        if run.attempt != self._orders["attempt"]:
            return
        if run.stop is not None:
            self._stopping = True
            self._ask_to_end(run.stop / 1000)
        elif run.submitted and self._ask_at is None and self._code is None:
            self._time_up = None
            self._ask_at = time.monotonic() + self._orders["submit_grace"]

    def _end_by(self, kind: str, text: str) -> None:
        """Writes down why the run ends, and then ends it: a result that comes later is too late."""
        from subagent_cli.core.command import Stop

        grace = self._orders["stop_grace"]
        self._unsaid.append(Stop(kind, text, int(grace * 1000)))
        self._say(patience=0.0, lock_timeout=_SHORT_LOCK_SECONDS)
        self._stopping = True
        self._ask_to_end(grace)

    def _ask_to_end(self, grace: float) -> None:
        """Asks everything below to end, and sees to it after the grace."""
        if self._kill_at is None:
            for process in self._left():
                stop.send(process, signal.SIGTERM)
                # A process that was suspended hears nothing before it goes on.
                stop.send(process, signal.SIGCONT)
        at = time.monotonic() + grace
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    def _kill_all(self) -> None:
        """Until nothing is left; what forks while it is being killed meets the next round."""
        give_up = time.monotonic() + _KILL_SECONDS
        while left := self._left():
            for process in left:
                stop.send(process, signal.SIGKILL)
            if _LINUX:
                self._outrun()
            self._reap()
            for fd in list(self._streams):
                self._read(fd)
            if time.monotonic() > give_up:
                self._log.say(f"{len(left)} processes could not be ended")
                return
            time.sleep(_KILL_PAUSE)
        self._reap()

    def _outrun(self) -> None:
        """Kills children as fast as they come: of a chain that forks without a pause, each one becomes ours."""
        spared = set() if self._stopping else self._other_keepers()
        for _ in range(_ROUNDS):
            if not self._bury():
                return
            for pid in stop.children():
                if pid not in spared:
                    # No other process has this number before we have buried it.
                    os.kill(pid, signal.SIGKILL)

    def _finish(self) -> None:
        """The last of the output, and the verdict. The log is closed first, since what it says last is part of it."""
        from subagent_cli.core.command import Exit

        for fd in list(self._streams):
            self._read(fd)
        self._log.end()
        code = self._code if self._code is not None else 255
        self._log.say(f"Process exited with code {code}")
        self._log.close()
        output, tools = self._outcome(code)
        summary = _tail(self._orders["log"], self._orders["log_from"]) if code else None
        self._unsaid.append(Exit(self._orders["attempt"], code, summary, output, tools))
        self._say(patience=_VERDICT_SECONDS, lock_timeout=self._orders["lock_timeout"])
        for path in (self._orders["wake"], self._orders["token_file"]):
            _remove(path)

    def _outcome(self, code: int) -> "tuple[str | None, tuple[str, ...]]":
        """What the agent said last, which is its result, or how it failed; and the tools it used."""
        from subagent_cli.process import transcript

        form, data = self._orders["output"], bytes(self._log.last[STDOUT])
        said = transcript.final_text(form, data)
        if code:
            said = transcript.final_text("text", bytes(self._log.last[STDERR])[-_ERROR_BYTES:]) or said
            said = f"Process exited with code {code}" + (f"\n{said}" if said else "")
        return said and _end_of(said, _RESULT_BYTES), transcript.tools_used(form, data)

    def _runs(self, lock_timeout: float = 0.0) -> "Any":
        from subagent_cli.store.runs import Runs

        return Runs(self._orders["root"], lock_timeout=lock_timeout, ttl=self._orders["ttl"])

    def _say(self, patience: float, lock_timeout: float) -> None:
        """Writes down what there is to say, in this order; what the disk does not take now is said again later."""
        from subagent_cli.core.errors import NotFound, SubagentError

        give_up, pause = time.monotonic() + patience, 0.05
        while self._unsaid:
            try:
                self._runs(lock_timeout).change(self._orders["run"], self._unsaid[0], _clock().now)
                del self._unsaid[0]
            except NotFound:
                # The run was removed, and with it whoever would want to know.
                self._unsaid.clear()
            except (SubagentError, OSError):
                if time.monotonic() > give_up:
                    return
                time.sleep(pause)
                pause = min(2 * pause, 5.0)

    def _terminated(self, *_: object) -> None:
        self._told_to_stop = True


def _spawn(orders: "dict[str, Any]", out: int, err: int) -> "tuple[int, int]":
    """The agent's process, and why it could not become the agent: an error number, or 0."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            stdin = os.open(orders["stdin"] or os.devnull, os.O_RDONLY)
            for fd, wanted in ((stdin, 0), (out, 1), (err, 2)):
                os.dup2(fd, wanted)
            for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.chdir(orders["cwd"])
            os.execve(orders["program"], orders["argv"], orders["env"])
        except OSError as error:
            os.write(tell, b"%d" % (error.errno or 0))
            os._exit(127 if error.errno == 2 else 126)
        finally:
            os._exit(126)
    os.close(tell)
    reason = os.read(told, 16)
    os.close(told)
    return pid, int(reason or b"0")


def _adopt_orphans() -> None:
    """Makes this process the parent of all that lose theirs below it, and gives it a name that people recognise."""
    if not _LINUX:
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_NAME, b"subagent-keeper", 0, 0, 0)


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)


def _widen(fd: int) -> None:
    import fcntl

    try:
        fcntl.fcntl(fd, _PIPE_SIZE, _PIPE_BYTES)
    except OSError:
        # Many runs of one user may have used up what the system allows.
        return


def _drain(fd: int) -> None:
    try:
        while len(os.read(fd, 4096)) == 4096:
            pass
    except BlockingIOError:
        return


def _clock() -> "Any":
    from subagent_cli.store.clock import Clock

    return Clock()


def _last_line(path: str) -> tuple[str, str]:
    try:
        with open(path, "rb") as file:
            pid, _, start = file.read().decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2].partition(" ")
    except OSError:
        return "", ""
    return pid, start


def _end_of(text: str, limit: int) -> str:
    """The last lines of a text that is too long to be handed on whole."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[-limit:].partition(b"\n")[2].decode("utf-8", "replace")


def _tail(path: str, since: int) -> str | None:
    """The last lines of this attempt's log, as the summary of a run that failed without one."""
    try:
        with open(path, "rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - 16_384))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return "\n".join(lines[-_LOG_LINES:])


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return

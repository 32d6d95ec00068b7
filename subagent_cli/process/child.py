"""How the agent's process comes to be: in a session of its own, with nothing of the keeper's but its three streams.

The keeper loads this and must stay small.
"""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PIPE_BYTES = 1 << 20
_PIPE_SIZE = 1031
_NOT_THERE = 2


def spawn(orders: "dict[str, Any]", out: int, err: int) -> "tuple[int, int]":
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
            # As a shell would say it.
            os._exit(127 if error.errno == _NOT_THERE else 126)
        finally:
            os._exit(126)
    os.close(tell)
    reason = os.read(told, 16)
    os.close(told)
    return pid, int(reason or b"0")


def widen(pipe: int) -> None:
    """Lets a pipe hold so much that a flood is read in large portions."""
    import fcntl

    try:
        fcntl.fcntl(pipe, _PIPE_SIZE, PIPE_BYTES)
    except OSError:
        # Many runs of one user may have used up what the system allows.
        return

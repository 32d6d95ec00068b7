"""What an agent puts out, on its way into the log of its run.

Every line of the log begins with a stamp and the name of its stream, as the TypeScript server writes it; of a flood
only the first line of each chunk does, since stamping all of them costs more than reading them. The worker's token
never gets into the log. The log has a limit: beyond it only the end is kept, behind a line that says what was cut.
Whatever the disk says, output is taken off the agent's hands, so that it is never kept waiting.

The keeper loads this and must stay small: nothing is imported here that is not already there.
"""

import os
import time

STDOUT, STDERR = b"stdout", b"stderr"
TAIL_BYTES = 65_536
# How much of what was put out last is kept, for finding in it what came of the run.
LAST_BYTES = 262_144
_MASK = b"[token]"
_CUT = b"%d bytes were cut here: the log has reached its limit. This is its end:\n"
_NOTE_BYTES = 128
_LINE_BYTES = 4_096
# What comes in larger chunks comes faster than anybody reads lines.
_FLOOD_BYTES = 32_768


def stamp() -> bytes:
    ms = time.time_ns() // 1_000_000
    return time.strftime("[%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)).encode() + b".%03dZ] " % (ms % 1000)


class Capture:
    """The log of one attempt, at most `limit` bytes of it, and the end of what it put out on each stream."""

    def __init__(self, path: str, limit: int, token: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._tail_limit = max(1, min(TAIL_BYTES, limit // 2))
        self._room = max(0, limit - self._tail_limit - _NOTE_BYTES)
        self._token = token.encode()
        self._held = {STDOUT: b"", STDERR: b""}
        self._open_line = b""
        self._tail = bytearray()
        self._beyond = 0
        self._unwritten = 0
        self._whole = True
        self.last = {STDOUT: bytearray(), STDERR: bytearray()}

    def take(self, stream: bytes, chunk: bytes) -> None:
        """The next bytes of a stream, of any size, cut anywhere."""
        chunk = self._redacted(stream, chunk)
        last = self.last[stream]
        if len(chunk) >= LAST_BYTES:
            # In place: in a flood, growing and cutting costs more than all the rest.
            last[:] = chunk[-LAST_BYTES:]
        else:
            last += chunk
            if len(last) > 2 * LAST_BYTES:
                del last[:-LAST_BYTES]
        if chunk:
            self._put(self._lead(stream), chunk, stamp() + b"[" + stream + b"] ")
            self._open_line = b"" if chunk.endswith(b"\n") else stream

    def say(self, text: str) -> None:
        """A line of the keeper's own."""
        lead = b"\n" if self._open_line else b""
        self._open_line = b""
        # Later lines are moved in, so that a text cannot pose as stamped lines.
        self._put(lead + stamp(), text.replace("\n", "\n  ").encode("utf-8", "replace") + b"\n", b"")

    def end(self) -> None:
        """There is no more output: what looked like the beginning of a token is none."""
        self._token = b""
        for stream in self._held:
            self.take(stream, b"")

    def close(self) -> None:
        """Writes the end of a log that was cut."""
        if self._open_line:
            self._put(b"\n", b"", b"")
        del self._tail[: -self._tail_limit]
        if self._beyond > len(self._tail):
            # From the first whole line on, unless that is far away.
            del self._tail[: self._tail.find(b"\n", 0, self._tail_limit // 2) + 1]
            self._write(b"\n" + stamp() + _CUT % (self._beyond - len(self._tail)))
        self._write(bytes(self._tail))
        os.close(self._fd)

    def _lead(self, stream: bytes) -> bytes:
        """What has to stand before the next bytes of a stream."""
        if self._open_line == stream:
            return b""
        return (b"\n" if self._open_line else b"") + stamp() + b"[" + stream + b"] "

    def _put(self, lead: bytes, chunk: bytes, mark: bytes) -> None:
        if mark and len(chunk) < _FLOOD_BYTES:
            ended = chunk.endswith(b"\n")
            body = chunk[:-1] if ended else chunk
            chunk = body.replace(b"\n", b"\n" + mark) + (b"\n" if ended else b"")
        size = len(lead) + len(chunk)
        if size <= self._room:
            self._room -= size
            self._write(lead, chunk)
            return
        if self._room > 0:
            # As much as fits, so that the log is filled to its limit whatever the size of the chunks.
            self._write((lead + chunk)[: self._room])
            lead, chunk, self._room = b"", (lead + chunk)[self._room :], 0
        self._beyond += len(lead) + len(chunk)
        if len(chunk) < self._tail_limit:
            self._tail += lead
        self._tail += chunk[-self._tail_limit :]
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def _write(self, *parts: bytes) -> None:
        """As much as the disk takes; of the rest is said how much it was as soon as it takes something again."""
        if self._unwritten:
            lead = b"" if self._whole else b"\n"
            note = lead + stamp() + b"%d bytes could not be written\n" % self._unwritten
            if self._pushed(note):
                self._unwritten += sum(map(len, parts))
                return
            self._unwritten = 0
        self._unwritten += self._pushed(*parts)

    def _pushed(self, *parts: bytes) -> int:
        """How many bytes did not get to the file."""
        size = written = 0
        try:
            size = sum(map(len, parts))
            written = os.writev(self._fd, parts)
            while written < size:
                written += os.write(self._fd, b"".join(parts)[written:])
        except OSError:
            pass
        if written:
            self._whole = b"".join(parts)[:written].endswith(b"\n") if written < size else parts[-1].endswith(b"\n")
        return size - written

    def _redacted(self, stream: bytes, chunk: bytes) -> bytes:
        """The chunk without the token, and without the beginning of one that the next chunk may complete."""
        token = self._token
        if self._held[stream]:
            chunk = self._held[stream] + chunk
            self._held[stream] = b""
        if not token:
            return chunk
        chunk = chunk.replace(token, _MASK)
        for size in range(min(len(token) - 1, len(chunk)), 0, -1):
            if chunk.endswith(token[:size]):
                # With the beginning of its line, which the other stream would otherwise cut in two.
                start = max(chunk.rfind(b"\n", 0, len(chunk) - size) + 1, len(chunk) - _LINE_BYTES)
                self._held[stream] = chunk[start:]
                return chunk[:start]
        return chunk

"""The log of a run: its last lines, read from the end, and those that are still to come."""

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from subagent_cli.core.run import Run
from subagent_cli.services import addresses
from subagent_cli.services.context import Context, Payload
from subagent_cli.store.atomic import failed

if TYPE_CHECKING:
    from subagent_cli.store.watch import Watch

_BLOCK = 65_536
_EDGE = 1 << 20
_LAST_WORDS_SECONDS = 0.2


def tail(context: Context, run: str | None, count: int | None = None) -> list[Payload]:
    """The last `count` lines of the log, or all of it, each with its stamp and stream."""
    data, _ = _last(context, addresses.run(context, run), count)
    return _lines(data, count)


def follow(
    context: Context,
    run: str | None,
    count: int | None = None,
    *,
    after: int = 0,
    seen: Callable[[Run], None] = lambda _: None,
) -> Iterator[Payload]:
    """The same from byte `after` on, and then every line as it comes, until the run is over. `seen` is told how the run
    stands."""
    from subagent_cli.store.watch import Watch

    run_id = addresses.run(context, run)
    watch = Watch(context.runs.places(run_id), growing=True)
    # Here and not when the first line is asked for: what comes from now on is new.
    data, offset = _last(context, run_id, count) if not after else (b"", after)
    return _following(context, run_id, count, watch, data, offset, seen)


def size(context: Context, run_id: str) -> int:
    try:
        return os.stat(context.runs.log_file(run_id)).st_size
    except OSError:
        return 0


def edges(context: Context, run_id: str, stream: str) -> bytes:
    """What a stream says at the beginning and at the end of the log, where an agent names its session."""
    try:
        with open(context.runs.log_file(run_id), "rb") as file:
            data = file.read(_EDGE)
            rest = file.seek(0, os.SEEK_END) - len(data)
            file.seek(-min(rest, _EDGE), os.SEEK_END)
            data += b"\n" + file.read() if rest else b""
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise failed(f"read the log of run {run_id}", error) from error
    lines = [line["text"] for line in _lines(data, None) if line["stream"] == stream]
    return "\n".join(lines).encode("utf-8", "replace")


def _following(
    context: Context,
    run_id: str,
    count: int | None,
    watch: "Watch",
    data: bytes,
    offset: int,
    seen: Callable[[Run], None],
) -> Iterator[Payload]:
    with watch:
        # A last line without its end is told when it is whole.
        rest = data[data.rfind(b"\n") + 1 :]
        yield from _lines(data[: len(data) - len(rest)], count)
        while True:
            # What was granted may be taken back meanwhile.
            addresses.run(context, run_id)
            run = context.runs.read(run_id, context.clock.now())
            seen(run)
            over = run.over
            if over and not run.kept:
                # What a run says last is written just behind its end, unless a keeper sees to it.
                _pause(watch, _LAST_WORDS_SECONDS)
            data = rest + _from(context, run_id, offset)
            offset += len(data) - len(rest)
            rest = b"" if over else data[data.rfind(b"\n") + 1 :]
            yield from _lines(data[: len(data) - len(rest)], None)
            if over:
                return
            watch.wait(None)


def _pause(watch: "Watch", seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        watch.wait(left)


def _last(context: Context, run_id: str, count: int | None) -> tuple[bytes, int]:
    """At least the last `count` lines, and the size of the file that they were read from."""
    try:
        with open(context.runs.log_file(run_id), "rb") as file:
            end = size = file.seek(0, os.SEEK_END)
            parts: list[bytes] = []
            found = 0
            # One line feed more than lines wanted, so that the first of them is whole.
            while size and (count is None or found <= count):
                step = min(_BLOCK, size)
                size = file.seek(size - step)
                parts.append(file.read(step))
                found += parts[-1].count(b"\n")
    except FileNotFoundError:
        return b"", 0
    except OSError as error:
        raise failed(f"read the log of run {run_id}", error) from error
    return b"".join(reversed(parts)), end


def _from(context: Context, run_id: str, offset: int) -> bytes:
    try:
        with open(context.runs.log_file(run_id), "rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise failed(f"read the log of run {run_id}", error) from error


def _lines(data: bytes, count: int | None) -> list[Payload]:
    lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []
    found: list[Payload] = []
    for line in lines:
        found.append(_line(line, found[-1] if found else None))
    return found if count is None else found[len(found) - min(count, len(found)) :]


def _line(line: str, before: Payload | None) -> Payload:
    """`[stamp] [stream] text`, `[stamp] text`, or whatever else stands there: a part of a flood, of which only the
    first line is stamped, or another program's line."""
    stamp, text = _bracketed(line)
    if stamp is None or "T" not in stamp:
        flood = before is not None and before["stream"] in ("stdout", "stderr")
        return {"timestamp": None, "stream": before["stream"] if before and flood else None, "text": line}
    stream, rest = _bracketed(text)
    if stream in ("stdout", "stderr"):
        return {"timestamp": stamp, "stream": stream, "text": rest}
    return {"timestamp": stamp, "stream": "system", "text": text}


def _bracketed(text: str) -> tuple[str | None, str]:
    if not text.startswith("["):
        return None, text
    inside, bracket, rest = text[1:].partition("]")
    return (inside, rest.removeprefix(" ")) if bracket else (None, text)

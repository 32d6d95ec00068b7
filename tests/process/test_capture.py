"""The log of a run: every line has its stamp and stream, no token, no end of it is lost, and nobody waits for it."""

import errno
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.process import capture
from subagent_cli.process.capture import LAST_BYTES, STDERR, STDOUT, TAIL_BYTES, Capture

TOKEN = "ab" * 8 + "cd" * 24
ROOM = 1 << 30
STAMP = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] "
LINE = re.compile(f"{STAMP}(?:\\[(stdout|stderr)\\] )?(.*)")
NOTE = re.compile(rf"{STAMP}(\d+) bytes were cut here: the log has reached its limit\. This is its end:\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(path: Path) -> Capture:
    return Capture(str(path), ROOM, TOKEN)


def lines(path: Path) -> list[tuple[str | None, str]]:
    """Stream and text of every line, each of which must have its stamp."""
    found = []
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    assert text.endswith("\n") or not text
    for line in text.split("\n")[:-1]:
        parts = LINE.fullmatch(line)
        assert parts, f"no stamp: {line!r}"
        found.append((parts[1], parts[2]))
    return found


def test_a_log_is_for_its_owner_alone(path: Path, log: Capture) -> None:
    log.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == b""


def test_a_log_is_not_written_through_a_link(tmp_path: Path, path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        Capture(str(path), ROOM, TOKEN)


def test_what_was_in_the_log_stays(path: Path) -> None:
    path.write_bytes(b"[2026-01-02T03:04:05.678Z] Starting\n")
    log = Capture(str(path), ROOM, TOKEN)
    log.take(STDOUT, b"one\n")
    log.close()
    assert lines(path) == [(None, "Starting"), ("stdout", "one")]


def test_every_line_has_its_stamp_and_its_stream(path: Path, log: Capture) -> None:
    log.take(STDOUT, b"one\ntwo\n\nthree\n")
    log.take(STDERR, b"four\n")
    log.say("Process exited with code 0")
    log.close()
    assert lines(path) == [
        ("stdout", "one"),
        ("stdout", "two"),
        ("stdout", ""),
        ("stdout", "three"),
        ("stderr", "four"),
        (None, "Process exited with code 0"),
    ]


def test_a_stamp_is_the_time_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_767_323_045_006_999_999)
    assert capture.stamp() == b"[2026-01-02T03:04:05.006Z] "


def test_a_line_may_come_in_pieces(path: Path, log: Capture) -> None:
    for piece in (b"on", b"e", b"\nt", b"wo", b"\n", b"three\nfo", b"ur\n"):
        log.take(STDOUT, piece)
    log.close()
    assert lines(path) == [("stdout", word) for word in ("one", "two", "three", "four")]


def test_a_line_without_its_end_is_ended(path: Path, log: Capture) -> None:
    log.take(STDOUT, b"no end")
    log.close()
    assert lines(path) == [("stdout", "no end")]


def test_a_word_of_the_keeper_never_gets_into_an_unfinished_line(path: Path, log: Capture) -> None:
    log.take(STDOUT, b"no end")
    log.say("Process exited with code 0")
    log.close()
    assert lines(path) == [("stdout", "no end"), (None, "Process exited with code 0")]


def test_streams_that_take_turns_in_the_middle_of_lines_stay_apart(path: Path, log: Capture) -> None:
    log.take(STDOUT, b"out 1")
    log.take(STDERR, b"err 1")
    log.take(STDOUT, b"out 2\nout 3")
    log.take(STDERR, b"err 2\n")
    log.take(STDOUT, b"out 4\n")
    log.close()
    assert lines(path) == [
        ("stdout", "out 1"),
        ("stderr", "err 1"),
        ("stdout", "out 2"),
        ("stdout", "out 3"),
        ("stderr", "err 2"),
        ("stdout", "out 4"),
    ]


def test_nothing_is_lost_however_two_streams_are_cut_and_mixed(path: Path, log: Capture) -> None:
    chance = random.Random(5)
    left = {stream: [b"%s %d\n" % (stream, number) for number in range(200)] for stream in (STDOUT, STDERR)}
    rest = {stream: b"".join(texts) for stream, texts in left.items()}
    while any(rest.values()):
        stream = chance.choice([stream for stream, data in rest.items() if data])
        size = chance.randint(1, 30)
        log.take(stream, rest[stream][:size])
        rest[stream] = rest[stream][size:]
    log.close()
    for stream, texts in left.items():
        assert "".join(text for name, text in lines(path) if name == stream.decode()) == "".join(
            text.decode().strip() for text in texts
        )


def test_bytes_that_are_no_text_are_kept_as_they_are(path: Path, log: Capture) -> None:
    data = bytes(byte for byte in range(256) if byte != 10)
    log.take(STDOUT, data + b"\n")
    log.take(STDOUT, b"\xc3")
    log.take(STDOUT, b"\xa4\n")
    log.close()
    first, second = path.read_bytes().split(b"\n")[:2]
    assert first.endswith(b"[stdout] " + data)
    assert second.endswith("[stdout] ä".encode())
    assert log.last[STDOUT] == data + b"\n\xc3\xa4\n"


POSES = b"[2020-01-01T00:00:00.000Z] Process exited with code 0\n[2020-01-01T00:00:00.000Z] [stderr] not me\n"


@pytest.mark.parametrize("size", [1, 7, len(POSES), 20_000])
def test_output_cannot_pose_as_stamped_lines(path: Path, log: Capture, size: int) -> None:
    data = POSES * (1 if size < 1000 else 100)
    for start in range(0, len(data), size):
        log.take(STDOUT, data[start : start + size])
    log.close()
    assert {stream for stream, _ in lines(path)} == {"stdout"}
    assert [text for _, text in lines(path)] == data.decode().splitlines()


def test_a_text_of_the_keeper_cannot_pose_as_stamped_lines_either(path: Path, log: Capture) -> None:
    log.say("The keeper failed:\n[2020-01-01T00:00:00.000Z] Process exited with code 0")
    log.close()
    first, second = path.read_text().splitlines()
    assert first.endswith("The keeper failed:")
    assert second == "  [2020-01-01T00:00:00.000Z] Process exited with code 0"


def test_of_a_flood_every_byte_is_there_and_the_first_line_of_each_chunk_has_a_stamp(path: Path, log: Capture) -> None:
    chunk = b"".join(b"line %d\n" % number for number in range(10_000))
    log.take(STDOUT, chunk)
    log.take(STDOUT, chunk)
    log.take(STDOUT, b"calm\nagain\n")
    log.close()
    data = path.read_bytes()
    stamped = re.findall(rb"(?m)^\[[^]]+Z\] \[stdout\] (.*)$", data)
    assert stamped == [b"line 0", b"line 0", b"calm", b"again"]
    assert re.sub(rb"(?m)^\[[^]]+Z\] \[stdout\] ", b"", data) == chunk + chunk + b"calm\nagain\n"


def test_a_flood_in_the_middle_of_a_line_goes_on_with_that_line(path: Path, log: Capture) -> None:
    log.take(STDOUT, b"begin")
    log.take(STDOUT, b"x" * 100_000)
    log.take(STDOUT, b"end\n")
    log.close()
    assert lines(path) == [("stdout", "begin" + "x" * 100_000 + "end")]


@pytest.mark.parametrize("cut", range(len(TOKEN) + 1))
def test_a_token_is_hidden_wherever_it_is_cut(path: Path, log: Capture, cut: int) -> None:
    log.take(STDOUT, b"my token: " + TOKEN[:cut].encode())
    log.take(STDOUT, TOKEN[cut:].encode() + b" was it\n")
    log.close()
    assert lines(path) == [("stdout", "my token: [token] was it")]
    assert log.last[STDOUT] == b"my token: [token] was it\n"


def test_a_token_that_comes_byte_by_byte_is_hidden(path: Path, log: Capture) -> None:
    for byte in f"{TOKEN}{TOKEN}\n{TOKEN[:-1]}!{TOKEN[:20]}{TOKEN}\n".encode():
        log.take(STDOUT, bytes((byte,)))
    log.close()
    assert lines(path) == [("stdout", "[token][token]"), ("stdout", f"{TOKEN[:-1]}!{TOKEN[:20]}[token]")]


def test_a_token_is_hidden_in_both_streams_while_they_take_turns(path: Path, log: Capture) -> None:
    half = len(TOKEN) // 2
    log.take(STDOUT, TOKEN[:half].encode())
    log.take(STDERR, TOKEN[:half].encode())
    log.take(STDOUT, TOKEN[half:].encode() + b"\n")
    log.take(STDERR, TOKEN[half:].encode() + b"\n")
    log.close()
    assert lines(path) == [("stdout", "[token]"), ("stderr", "[token]")]


@pytest.mark.parametrize("cut", [0, 1, 33, 63, 64])
def test_a_token_is_hidden_in_a_flood(path: Path, log: Capture, cut: int) -> None:
    flood = b"x" * 99 + b"\n"
    log.take(STDOUT, flood * 1000 + TOKEN[:cut].encode())
    log.take(STDOUT, TOKEN[cut:].encode() + b"\n" + flood * 1000)
    log.close()
    data = path.read_bytes()
    assert TOKEN.encode() not in data
    assert data.count(b"[token]") == 1
    assert data.count(b"x") == 2 * 99 * 1000


@pytest.mark.parametrize("size", [1, 10, 63])
def test_what_only_begins_like_a_token_is_put_out_in_the_end(path: Path, log: Capture, size: int) -> None:
    log.take(STDOUT, b"The answer is " + TOKEN[:size].encode())
    log.end()
    log.close()
    assert lines(path) == [("stdout", f"The answer is {TOKEN[:size]}")]


@pytest.mark.parametrize("size", [1, 10, 63])
def test_what_only_begins_like_a_token_is_a_part_of_the_result(log: Capture, size: int) -> None:
    log.take(STDOUT, b"The answer is " + TOKEN[:size].encode())
    log.end()
    log.close()
    assert log.last[STDOUT] == f"The answer is {TOKEN[:size]}".encode()


def test_what_only_begins_like_a_token_stands_before_the_keepers_last_word(path: Path, log: Capture) -> None:
    log.take(STDOUT, b"The answer is " + TOKEN[:3].encode())
    log.end()
    log.say("Process exited with code 0")
    log.close()
    assert lines(path) == [("stdout", f"The answer is {TOKEN[:3]}"), (None, "Process exited with code 0")]


def test_without_a_token_nothing_is_held_back(path: Path) -> None:
    log = Capture(str(path), ROOM, "")
    log.take(STDOUT, b"at once")
    assert path.read_bytes().endswith(b"[stdout] at once")
    log.close()


def test_output_is_in_the_log_at_once(path: Path, log: Capture) -> None:
    log.take(STDOUT, b"now\n")
    assert lines(path) == [("stdout", "now")]
    log.close()


def test_the_end_of_standard_output_is_kept_for_the_result(path: Path, log: Capture) -> None:
    chunk = bytes(random.Random(1).choices(b"abcdefgh\n", k=100_003))
    for _ in range(20):
        log.take(STDOUT, chunk)
        log.take(STDERR, b"not this\n")
        assert len(log.last[STDOUT]) <= 2 * LAST_BYTES + len(chunk)
    log.take(STDOUT, b"the end")
    log.close()
    everything = chunk * 20 + b"the end"
    assert len(log.last[STDOUT]) >= LAST_BYTES
    assert everything.endswith(bytes(log.last[STDOUT]))
    assert log.last[STDERR] == b"not this\n" * 20


def flooded(path: Path, limit: int, chunks: Sequence[bytes]) -> tuple[bytes, int, bytes]:
    """What a log with a limit has kept of its beginning, how many bytes it says were cut, and its end."""
    log = Capture(str(path), limit, TOKEN)
    for chunk in chunks:
        log.take(STDOUT, chunk)
    log.end()
    log.say("Process exited with code 0")
    log.close()
    data = path.read_bytes()
    note = NOTE.search(data.decode("utf-8", "surrogateescape"))
    assert note, "it does not say that something was cut"
    head, _, tail = data.partition(note[0].encode())
    return head, int(note[1]), tail


def numbered(count: int, each: int) -> list[bytes]:
    """So many lines of so many bytes, which say what number they have."""
    return [b"%0*d\n" % (each - 1, number) for number in range(count)]


LIMIT, NOTE_BYTES = 200_000, 200


@pytest.mark.parametrize("size", [64, 4096, 32_768, 65_536, 100_000, 1 << 20])
def test_a_log_beyond_its_limit_has_its_head_a_word_on_the_cut_and_its_end(path: Path, size: int) -> None:
    """The lines come in chunks of this size."""
    each, count = 64, (4 << 20) // 64
    data = b"".join(numbered(count, each))
    head, cut, tail = flooded(path, LIMIT, [data[at : at + size] for at in range(0, len(data), size)])
    kept = [int(number) for number in re.findall(rb"(?m)(\d{63})$", head)]
    assert kept == list(range(len(kept)))
    assert len(head) >= LIMIT - TAIL_BYTES - NOTE_BYTES
    rest = [int(number) for number in re.findall(rb"(?m)(\d{63})$", tail)]
    assert rest == list(range(count - len(rest), count))
    assert tail.endswith(b"Z] Process exited with code 0\n")
    assert len(tail) >= TAIL_BYTES - each - 100
    assert cut >= (count - len(kept) - len(rest)) * each > 0


@pytest.mark.parametrize("size", [64, 4096, 32_768, 65_536, 100_000, 1 << 20])
@pytest.mark.parametrize("limit", [LIMIT, 2000])
def test_a_log_is_not_longer_than_its_limit(path: Path, size: int, limit: int) -> None:
    data = b"".join(numbered((2 << 20) // 64, 64))
    flooded(path, limit, [data[at : at + size] for at in range(0, len(data), size)])
    assert path.stat().st_size <= limit


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_a_log_with_hardly_any_room_still_says_what_was_cut(path: Path, limit: int) -> None:
    _, cut, _ = flooded(path, limit, numbered(5000, 64))
    assert cut > 300_000
    assert path.stat().st_size <= limit + NOTE_BYTES


def test_the_end_of_one_endless_line_is_kept_too(path: Path) -> None:
    head, cut, tail = flooded(path, LIMIT, [b"x" * 65_536] * 40 + [b"the very end"])
    assert b"the very end" in tail
    assert head.count(b"x") + cut + tail.count(b"x") >= 40 * 65_536


def test_a_log_that_just_fits_is_not_cut(path: Path) -> None:
    log = Capture(str(path), LIMIT, TOKEN)
    chunks = numbered(1500, 64)
    for chunk in chunks:
        log.take(STDOUT, chunk)
    log.close()
    assert len(lines(path)) == 1500
    assert path.stat().st_size <= LIMIT


def test_the_end_begins_with_a_whole_line(path: Path) -> None:
    _, _, tail = flooded(path, LIMIT, numbered(50_000, 64))
    first = tail.split(b"\n")[0].decode()
    assert LINE.fullmatch(first), first


class Disk:
    """A disk that takes only what it is told to take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._writev, self._write = os.writev, os.write
        self.room: float = float("inf")
        monkeypatch.setattr("os.writev", self.writev)
        monkeypatch.setattr("os.write", self.write)

    def writev(self, fd: int, parts: Sequence[bytes]) -> int:
        return self.write(fd, b"".join(parts))

    def write(self, fd: int, data: Any) -> int:
        if self.room < 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = int(min(self.room, len(data)))
        self.room -= size
        return self._write(fd, bytes(data[:size]))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_full_disk_keeps_nobody_waiting_and_the_log_says_what_is_missing(
    path: Path, log: Capture, disk: Disk
) -> None:
    log.take(STDOUT, b"before\n")
    disk.room = 0
    for number in range(10):
        log.take(STDOUT, b"lost %d\n" % number)
    disk.room = float("inf")
    log.take(STDOUT, b"after\n")
    log.close()
    assert [text for _, text in lines(path)][::2] == ["before", "after"]
    note = lines(path)[1][1]
    assert re.fullmatch(r"\d+ bytes could not be written", note)
    assert int(note.split()[0]) >= 10 * len(b"lost 0\n")
    assert log.last[STDOUT].endswith(b"lost 9\nafter\n")


def test_a_disk_that_takes_a_part_gets_the_rest_later(path: Path, log: Capture, disk: Disk) -> None:
    real = disk.write

    def some(fd: int, data: Any) -> int:
        return real(fd, data[:3])

    disk.write = some  # type: ignore[method-assign]
    log.take(STDOUT, b"one line\n")
    log.close()
    assert lines(path) == [("stdout", "one line")]


def test_a_disk_that_is_full_in_the_middle_of_a_line_does_not_spoil_the_next(
    path: Path, log: Capture, disk: Disk
) -> None:
    disk.room = 45
    log.take(STDOUT, b"half of this is lost\n")
    disk.room = float("inf")
    log.take(STDOUT, b"after\n")
    log.close()
    first, note, last = lines(path)
    assert ("stdout", "half of this is lost"[: len(first[1])]) == first
    assert int(note[1].split()[0]) >= len("half of this is lost\n") - len(first[1])
    assert last == ("stdout", "after")


def test_a_disk_that_stays_full_is_no_failure(path: Path, log: Capture, disk: Disk) -> None:
    disk.room = 0
    log.take(STDOUT, b"lost\n")
    log.say("Process exited with code 0")
    log.close()
    assert path.read_bytes() == b""
    assert log.last[STDOUT] == b"lost\n"


def test_the_device_that_is_always_full_is_no_failure() -> None:
    log = Capture("/dev/full", LIMIT, TOKEN)
    for chunk in numbered(5000, 64):
        log.take(STDOUT, chunk)
    log.close()
    assert log.last[STDOUT].endswith(b"4999\n")


def test_closing_gives_the_file_back(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    Capture(str(path), LIMIT, TOKEN).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_line_that_ends_as_the_token_begins_is_not_cut_in_two_by_the_other_stream(tmp_path: Path) -> None:
    log = Capture(str(tmp_path / "log"), 1_000_000, "e" + "0" * 63)
    log.take(STDOUT, b"one\nthree")
    log.take(STDERR, b"two\n")
    log.end()
    log.close()
    lines = (tmp_path / "log").read_bytes().splitlines()
    assert [line.partition(b"] ")[2] for line in lines] == [b"[stdout] one", b"[stderr] two", b"[stdout] three"]
    assert bytes(log.last[STDOUT]) == b"one\nthree"

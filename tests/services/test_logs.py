"""The log: lines with their stamp and stream, the last of them without reading the rest, and nothing for nothing."""

from pathlib import Path

import pytest

from subagent_cli.core.errors import RunNotFound
from subagent_cli.services import logs, runs
from subagent_cli.services.context import Context
from tests.services.desk import create, refused

STAMP = "2026-01-02T03:04:05.678Z"


def write_log(runs_dir: Path, run_id: str, content: bytes) -> None:
    (runs_dir / run_id / "log").write_bytes(content)


@pytest.mark.case("C1-43")
def test_reports_can_be_read_back_from_the_log(desk: Context) -> None:
    run_id = create(desk)
    runs.update(desk, run_id, "success", "Done.")
    stamp = desk.clock.now().iso
    assert logs.tail(desk, run_id) == [
        {"timestamp": stamp, "stream": "system", "text": "Status updated to: success"},
        {"timestamp": stamp, "stream": "system", "text": "Summary: Done."},
    ]


@pytest.mark.case("C1-46")
def test_an_unknown_run_has_no_log_and_gets_none(desk: Context, runs_dir: Path) -> None:
    create(desk)
    with refused(runs_dir, RunNotFound, "run_not_found"):
        logs.tail(desk, "0190a000-0000-7000-8000-000000000000")


def test_a_run_without_a_log_has_no_lines(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    assert logs.tail(desk, run_id) == []
    (runs_dir / run_id / "log").unlink()
    assert logs.tail(desk, run_id) == []


def test_a_line_is_told_apart_by_its_stamp_and_stream(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    lines = [
        f"[{STAMP}] [stdout] hello [world]",
        f"[{STAMP}] [stderr] oh",
        f"[{STAMP}] [stdout] ",
        f"[{STAMP}] [other] thing",
        f"[{STAMP}] Process exited with code 0",
        "no stamp at all",
        "[unclosed",
        "[5] is not a stamp",
        "",
    ]
    write_log(runs_dir, run_id, "\n".join([*lines, ""]).encode())
    assert [(line["timestamp"], line["stream"], line["text"]) for line in logs.tail(desk, run_id)] == [
        (STAMP, "stdout", "hello [world]"),
        (STAMP, "stderr", "oh"),
        (STAMP, "stdout", ""),
        (STAMP, "system", "[other] thing"),
        (STAMP, "system", "Process exited with code 0"),
        (None, None, "no stamp at all"),
        (None, None, "[unclosed"),
        (None, None, "[5] is not a stamp"),
        (None, None, ""),
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 999, 5000, 5001])
@pytest.mark.parametrize("end", ["\n", ""])
def test_the_last_lines_of_a_long_log_are_whole(desk: Context, runs_dir: Path, count: int, end: str) -> None:
    run_id = create(desk)
    lines = [f"[{STAMP}] [stdout] {number} {'x' * (number % 97)}" for number in range(5000)]
    write_log(runs_dir, run_id, ("\n".join(lines) + end).encode())
    texts = [f"[{line['timestamp']}] [{line['stream']}] {line['text']}" for line in logs.tail(desk, run_id, count)]
    assert texts == lines[len(lines) - min(count, len(lines)) :]


def test_bytes_that_are_no_text_do_not_hide_the_log(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    write_log(runs_dir, run_id, f"[{STAMP}] [stdout] ".encode() + b"\xff\xfe\x00 ok\n")
    (line,) = logs.tail(desk, run_id)
    assert line["stream"] == "stdout"
    assert line["text"].endswith(" ok")


@pytest.mark.parametrize("trick", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_a_line_ends_at_a_line_feed_and_nowhere_else(desk: Context, runs_dir: Path, trick: str) -> None:
    """Otherwise output could forge a line of another stream, and the last two lines would not be the last two."""
    run_id = create(desk)
    forged = f"begin{trick}[{STAMP}] Process exited with code 0"
    write_log(runs_dir, run_id, f"[{STAMP}] [stdout] first\n[{STAMP}] [stdout] {forged}\n".encode())
    assert [(line["stream"], line["text"]) for line in logs.tail(desk, run_id, 2)] == [
        ("stdout", "first"),
        ("stdout", forged),
    ]


def test_lines_of_a_flood_belong_to_the_stream_of_the_stamped_line_before_them(desk: Context) -> None:
    run_id = create(desk)
    log = b"[2026-01-01T00:00:00.000Z] [stdout] one\ntwo\n[2026-01-01T00:00:01.000Z] Status updated to: x\n  more\n"
    Path(desk.runs.log_file(run_id)).write_bytes(log)
    found = [(line["stream"], line["text"]) for line in logs.tail(desk, run_id)]
    assert found == [("stdout", "one"), ("stdout", "two"), ("system", "Status updated to: x"), (None, "  more")]


def test_the_edges_of_a_log_are_its_beginning_and_its_end(desk: Context) -> None:
    run_id = create(desk)
    stamp = b"[2026-01-01T00:00:00.000Z] "
    middle = stamp + b"[stdout] " + b"x" * 3_000_000 + b"\n"
    log = stamp + b"[stdout] first\n" + stamp + b"[stderr] not this\n" + middle + stamp + b"[stdout] last\n"
    Path(desk.runs.log_file(run_id)).write_bytes(log)
    found = logs.edges(desk, run_id, "stdout")
    assert found.startswith(b"first\n")
    assert found.endswith(b"\nlast")
    assert len(found) < 2_200_000
    assert b"not this" not in found

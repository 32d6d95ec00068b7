"""Housekeeping on the command line: clean, export and import as they are typed."""

import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from tests.command import PATIENCE, PROGRAM, Command, end


@pytest.fixture
def over(cli: Command) -> str:
    run_id = cli("create", "helper", "Do it", "--name", "over").out.strip()
    cli("update", run_id, "success", "--summary", "Done.")
    return run_id


def answered(runs_dir: Path, answer: bytes, *words: str) -> tuple[int, str]:
    """A call on a terminal whose user types an answer when asked."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *words],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "SUBAGENT_RUNS_DIR": str(runs_dir)},
        start_new_session=True,
    )
    os.close(theirs)
    shown, until = b"", time.monotonic() + PATIENCE
    try:
        while b"[y/N]" not in shown and select.select([ours], [], [], max(0.0, until - time.monotonic()))[0]:
            shown += os.read(ours, 4096)
        os.write(ours, answer)
        out, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, out.decode()
    finally:
        end(process)
        os.close(ours)


def test_cleaning_off_a_terminal_wants_a_yes(cli: Command, over: str) -> None:
    done = cli("clean", over)
    assert (done.code, done.out) == (2, "")
    assert "--yes, or --dry-run to look first" in done.err
    assert cli("clean", "--json").json["error"]["code"] == "confirm"
    assert cli("status", over).code == 0


def test_a_dry_run_says_what_would_go(cli: Command, over: str) -> None:
    done = cli("clean", "over", "--dry-run")
    assert (done.code, done.out, done.err) == (0, f"{over}\n", "1 run would be deleted\n")
    assert cli("clean", over, "--dry-run", "--json").json == {"deleted": [over], "kept": [], "dryRun": True}
    assert cli("status", over).code == 0


def test_a_yes_deletes(cli: Command, over: str, runs_dir: Path) -> None:
    done = cli("clean", over, "--yes")
    assert (done.code, done.out, done.err) == (0, f"{over}\n", "1 run deleted\n")
    assert not (runs_dir / over).exists()
    assert cli("clean", over, "--yes").code == 3
    assert cli("clean", "--yes", "--json").json == {"deleted": [], "kept": [], "dryRun": False}


def test_the_young_stay_and_the_unfinished_are_refused(cli: Command, over: str) -> None:
    assert cli("clean", "--yes").err == "0 runs deleted\n"
    kept = cli("clean", over, "--older-than", "1d", "--yes")
    assert (kept.code, kept.out) == (0, "")
    assert f"kept {over[-8:]}: it ended" in kept.err
    going_on = cli("create", "helper", "Do it").out.strip()
    refused = cli("clean", going_on, over, "--yes", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (4, "not_finished")
    assert cli("clean", "--older-than", "soon", "--yes").code == 2
    assert cli("status", over).code == 0


@pytest.mark.parametrize(("answer", "there"), [(b"y\n", False), (b"n\n", True), (b"\n", True)])
def test_on_a_terminal_the_user_is_asked(cli: Command, runs_dir: Path, over: str, answer: bytes, there: bool) -> None:
    code, out = answered(runs_dir, answer, "clean", over)
    assert (code, out) == (0, "" if there else f"{over}\n")
    assert (runs_dir / over).exists() is there


def test_who_breaks_off_deletes_nothing(cli: Command, runs_dir: Path, over: str) -> None:
    assert answered(runs_dir, b"\x04", "clean", over)[0] == 130
    assert (runs_dir / over).exists()


def test_a_damaged_run_is_skipped_with_a_warning(cli: Command, tmp_path: Path) -> None:
    runs_dir = tmp_path / "foreign" / "runs"
    broken = cli("create", "helper", "Do it", runs_dir=runs_dir).out.strip()
    (runs_dir / broken / ".meta.json").write_bytes(b"{")
    done = cli("clean", "--yes", "--json", runs_dir=runs_dir)
    assert (done.code, done.json["deleted"]) == (8, [])
    assert [item["runId"] for item in done.json["kept"]] == [broken]
    assert done.err.startswith("warning: ")
    exported = cli("export", "--all", tmp_path / "a.zip", "--json", runs_dir=runs_dir)
    assert (exported.code, exported.json["runs"]) == (8, [])
    assert "left out" in exported.err
    assert cli("export", broken, tmp_path / "b.zip", runs_dir=runs_dir).code == 8
    assert not (tmp_path / "b.zip").exists()


def test_a_run_goes_out_into_a_file_and_comes_in_elsewhere(cli: Command, over: str, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "over.zip", tmp_path / "elsewhere"
    done = cli("export", "over", file)
    size = file.stat().st_size
    assert (done.code, done.out, done.err) == (0, f"{file}\n", f"1 run exported, {size} bytes\n")
    taken = cli("import", file, runs_dir=elsewhere)
    assert (taken.code, taken.out, taken.err) == (0, f"{over}\n", "1 imported, 0 here already\n")
    assert cli("result", "over", runs_dir=elsewhere).out == "Done.\n"
    again = cli("import", file, "--json", runs_dir=elsewhere)
    assert again.json == {"imported": [], "skipped": [over]}


def test_an_existing_file_is_refused_without_force(cli: Command, over: str, tmp_path: Path) -> None:
    file = tmp_path / "over.zip"
    file.write_bytes(b"precious")
    done = cli("export", over, file, "--json")
    assert (done.code, done.json["error"]["code"], file.read_bytes()) == (4, "exists", b"precious")
    forced = cli("export", over, file, "--force", "--json")
    assert forced.json == {"file": str(file), "runs": [over], "bytes": file.stat().st_size}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_archives_go_through_pipes(cli: Command, over: str, tmp_path: Path, form: list[str]) -> None:
    out = cli("export", "--all", "-", *form)
    assert (out.code, out.raw[:2]) == (0, b"PK")
    taken = cli("import", "-", "--json", input=out.raw, runs_dir=tmp_path / "elsewhere")
    assert taken.json["imported"] == [{"runId": over, "from": over}]
    assert (tmp_path / "elsewhere" / over / "journal.jsonl").read_bytes() == (
        tmp_path / "runs" / over / "journal.jsonl"
    ).read_bytes()


def test_a_reader_that_goes_away_is_no_fault_of_ours(cli: Command, over: str, runs_dir: Path) -> None:
    (runs_dir / over / "log").write_bytes(os.urandom(1 << 20))
    process = cli.start("export", "--all", "-")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    assert process.wait(PATIENCE) != 0


def test_the_same_id_with_another_story_wants_new_ids(cli: Command, tmp_path: Path) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    cli("export", run_id, tmp_path / "a.zip")
    cli("update", run_id, "success")
    refused = cli("import", tmp_path / "a.zip", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (4, "exists")
    assert "--renew" in refused.json["error"]["hint"]
    taken = cli("import", tmp_path / "a.zip", "--renew")
    new = taken.out.strip()
    assert taken.err == f"{run_id} is {new} here\n1 imported, 0 here already\n"
    assert cli("status", new, "--json").json["status"] == "pending"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["export"], 2),
        (["export", "file.zip"], 2),
        (["export", "over", "--all", "file.zip"], 2),
        (["export", "nobody", "file.zip"], 3),
        (["import"], 2),
        (["import", "missing.zip"], 3),
        (["import", "."], 2),
        (["clean", "../..", "--yes"], 2),
    ],
)
def test_what_cannot_be_meant_is_refused_and_leaves_nothing(
    cli: Command, over: str, tmp_path: Path, words: list[str], code: int
) -> None:
    before = sorted(os.listdir(tmp_path))
    assert cli(*words).code == code
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("data", [b"", b"no archive at all"])
def test_standard_input_that_is_no_archive_is_refused(cli: Command, data: bytes, runs_dir: Path) -> None:
    done = cli("import", "-", "--json", input=data)
    assert (done.code, done.json["error"]["code"]) == (2, "bad_archive")
    assert not runs_dir.exists()

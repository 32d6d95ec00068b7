"""Tests cannot hurt: what they could reach of the user's is out of reach, and none of them runs for ever."""

import os
import time
from pathlib import Path

import pytest

from tests.command import Command

CONFTEST = Path(__file__).with_name("conftest.py")


def test_home_and_settings_belong_to_the_test(tmp_path: Path) -> None:
    assert Path.home() == tmp_path.with_name(f"{tmp_path.name}-home")
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        assert Path(os.environ[name]).parent == Path.home()
    assert [name for name in os.environ if name.startswith("SUBAGENT_")] == []


def test_each_test_starts_in_an_empty_folder_of_its_own(tmp_path: Path, runs_dir: Path) -> None:
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []
    assert runs_dir.parent == tmp_path


def test_a_test_that_never_ends_is_ended(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.read_text().replace('"pytester", ', ""))
    pytester.makepyfile(
        """
        import time, pytest

        @pytest.mark.limit(0.2)
        def test_endless():
            try:
                time.sleep(60)
            except Exception:
                time.sleep(60)
        """
    )
    began = time.monotonic()
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert time.monotonic() - began < 30
    result.stdout.fnmatch_lines(["*took longer than 0.2 s*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_test_for_the_long_run_is_left_out_of_the_short_one(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.read_text().replace('"pytester", ', ""))
    pytester.makepyfile(
        """
        import pytest

        def test_always(amount):
            assert amount(1, 2) == 1

        @pytest.mark.stress
        def test_long(amount):
            assert amount(1, 2) == 2
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1, deselected=1)
    pytester.runpytest_inprocess("--stress", "-k", "test_long").assert_outcomes(passed=1, deselected=1)


def test_the_program_works_on_the_runs_of_the_test(cli: Command, runs_dir: Path) -> None:
    done = cli("--help")
    assert done.code == 0, done.err
    assert done.out
    assert not runs_dir.exists()


def test_a_call_that_was_started_does_not_outlive_its_test(runs_dir: Path) -> None:
    command = Command(runs_dir)
    process = command.start("--help")
    command.close()
    assert process.poll() is not None

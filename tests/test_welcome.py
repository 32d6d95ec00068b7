"""The folder that comes with the project says what the folder that the program makes says."""

from pathlib import Path

from subagent_cli.store.welcome import WELCOME


def test_the_note_in_the_shipped_runs_folder_is_the_one_that_the_program_writes() -> None:
    assert (Path(__file__).parent.parent / "runs" / "README.md").read_text() == WELCOME

"""Where a seed gives the words of a call, ours are the same, so that whoever knows them finds them again."""

from pathlib import Path

import pytest

from subagent_cli.core.errors import Damaged, InvalidInput, NotFound, Refused, RunNotFound, SubagentError
from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context
from tests.services.desk import create

NOBODY = "0190a000-0000-7000-8000-000000000000"


@pytest.mark.case("X28")
def test_the_words_of_the_seeds_are_ours(desk: Context, runs_dir: Path) -> None:
    run_id = create(desk)
    message_id = questions.ask(desk, "Which?", run=run_id)["messageId"]
    assert questions.reply(desk, message_id, "Yes.")["message"] == "Reply successfully recorded."
    (runs_dir / run_id / ".meta.json").unlink()
    (runs_dir / run_id / ".meta.json").mkdir()

    def told(kind: type[SubagentError], call: object) -> str:
        assert callable(call)
        with pytest.raises(kind) as caught:
            call()
        return caught.value.message

    assert told(Damaged, lambda: runs.status(desk, run_id)).startswith("Could not read meta file")
    (runs_dir / run_id / ".meta.json").rmdir()
    assert told(InvalidInput, lambda: questions.ask(desk, "", run=run_id)) == "Question cannot be empty"
    assert "Run ID must be a valid UUID" in told(InvalidInput, lambda: runs.status(desk, "../x"))
    assert told(RunNotFound, lambda: runs.status(desk, NOBODY)) == f"Run ID not found: {NOBODY}"
    assert told(NotFound, lambda: questions.reply(desk, run_id, "a", message=NOBODY)).startswith("Message with ID")
    late = told(Refused, lambda: questions.reply(desk, message_id, "No."))
    assert late == "Message status is not 'pending_parent_reply': found 'parent_replied'"

"""The long version of writing beside the server: 20,000 questions of both sides."""

from collections.abc import Callable
from pathlib import Path

import pytest

from subagent_cli.store.runs import Runs
from tests.compat.test_beside import MAKERS, nothing_is_lost
from tests.store.world import truth
from tests.stress.conftest import Trying

ROUNDS, EACH = 25, 200


@pytest.mark.stress
@pytest.mark.parametrize("maker", MAKERS)
def test_ten_thousand_questions_beside_the_server_are_all_kept(
    tmp_path: Path, node: Callable[[str], list[str]], maker: str, trying: Trying
) -> None:
    root = tmp_path / "runs"
    with trying("beside our double of the server") as trial:
        for number in range(1, ROUNDS + 1):
            asked = number * 2 * EACH
            trial.tried = f"{asked:,} questions, half of them by either side at once"
            try:
                nothing_is_lost(root, maker, EACH)
            finally:
                kept = sum(len(truth(root, run_id).questions) for run_id in Runs(str(root)).all())
                trial.lost = f"{asked - kept} lost"

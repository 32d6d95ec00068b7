"""The long version of writing beside the server: 20,000 questions of both sides."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.test_beside import MAKERS, nothing_is_lost


@pytest.mark.stress
@pytest.mark.parametrize("maker", MAKERS)
def test_ten_thousand_questions_beside_the_server_are_all_kept(
    tmp_path: Path, node: Callable[[str], list[str]], maker: str
) -> None:
    for _ in range(25):
        nothing_is_lost(tmp_path / "runs", maker, 200)

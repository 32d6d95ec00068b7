"""Identity: a token proves which run is calling, only its hash is kept, and without one the caller is the operator."""

from pathlib import Path

import pytest

from subagent_cli.core.errors import Denied
from subagent_cli.services import questions, runs
from subagent_cli.services.context import Context, open_context
from tests.services.desk import StillClock, create, refused, snapshot


def carry(monkeypatch: pytest.MonkeyPatch, run_id: str | None, token: str | None) -> None:
    for name, value in (("SUBAGENT_RUN_ID", run_id), ("SUBAGENT_TOKEN", token)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


def test_the_worker_gets_all_that_it_must_carry(desk: Context, runs_dir: Path) -> None:
    made = runs.create(desk, "helper", "Do it")
    assert made["env"].keys() == {"SUBAGENT_RUN_ID", "SUBAGENT_RUNS_DIR", "SUBAGENT_TOKEN"}
    assert made["env"]["SUBAGENT_RUN_ID"] == made["runId"]
    assert made["env"]["SUBAGENT_RUNS_DIR"] == str(runs_dir)
    assert len(made["env"]["SUBAGENT_TOKEN"]) >= 32


def test_a_token_lies_nowhere_on_disk(desk: Context, tmp_path: Path) -> None:
    token = runs.create(desk, "helper", "Do it", key="k")["env"]["SUBAGENT_TOKEN"].encode()
    contents = [content for content in snapshot(tmp_path).values() if isinstance(content, bytes)]
    assert contents
    assert [content for content in contents if token in content] == []


def test_two_runs_have_two_tokens(desk: Context) -> None:
    tokens = {runs.create(desk, "helper", "Do it")["env"]["SUBAGENT_TOKEN"] for _ in range(5)}
    assert len(tokens) == 5


def test_a_worker_with_its_token_acts_as_its_run(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = runs.create(desk, "helper", "Do it")
    carry(monkeypatch, made["runId"], made["env"]["SUBAGENT_TOKEN"])
    worker = open_context({"runs_dir": str(runs_dir)}, clock)
    assert questions.ask(worker, "Which?")["runId"] == made["runId"]
    child = runs.create(worker, "helper", "A part of it")
    grandchild_spec = worker.runs.spec(child["runId"])
    assert (grandchild_spec["parentId"], grandchild_spec["depth"]) == (made["runId"], 2)


def test_a_run_id_alone_only_names_the_default_run(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = create(desk)
    carry(monkeypatch, run_id, None)
    operator = open_context({"runs_dir": str(runs_dir)}, clock)
    spec = operator.runs.spec(runs.create(operator, "helper", "Do it")["runId"])
    assert (spec["parentId"], spec["depth"]) == (None, 1)


@pytest.mark.parametrize("wrong", ["another run's", "made up", "shortened", "capitals", "half character", "spaces"])
def test_a_wrong_token_is_denied_before_anything_else(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    made, other = runs.create(desk, "helper", "Do it"), runs.create(desk, "helper", "Do it")
    token = made["env"]["SUBAGENT_TOKEN"]
    tokens = {
        "another run's": other["env"]["SUBAGENT_TOKEN"],
        "made up": "0" * len(token),
        "shortened": token[:-1],
        "capitals": token.upper(),
        "half character": "\udcff",
        "spaces": f" {token}",
    }
    carry(monkeypatch, made["runId"], tokens[wrong])
    with refused(runs_dir, Denied, "denied"):
        open_context({"runs_dir": str(runs_dir)}, clock)


@pytest.mark.parametrize("run_id", [None, "0190a000-0000-7000-8000-000000000000", "../../etc", "@last"])
def test_a_token_without_the_run_it_belongs_to_is_denied(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch, run_id: str | None
) -> None:
    token = runs.create(desk, "helper", "Do it")["env"]["SUBAGENT_TOKEN"]
    carry(monkeypatch, run_id, token)
    with refused(runs_dir, Denied, "denied"):
        open_context({"runs_dir": str(runs_dir)}, clock)


def test_an_empty_token_is_none(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = create(desk)
    carry(monkeypatch, run_id, "")
    assert questions.ask(open_context({"runs_dir": str(runs_dir)}, clock), "Which?")["runId"] == run_id

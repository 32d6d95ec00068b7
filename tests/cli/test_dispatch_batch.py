"""`subagent dispatch --requests`: several children at once, each in a copy of its own, and results in the order of the
requests."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.living import Gate, eventually, finished, over, processes, started
from tests.cli.test_dispatch import FAILED, Refusal, answered, heard, project, refusal, remains
from tests.cli.test_dispatch_ends import STAYS, git, slow_git
from tests.command import Command
from tests.services.desk import snapshot

__all__ = ["project", "refusal", "slow_git"]

NAMES = ("first", "second", "third")
# Which of them a child is, it finds in its prompt.
WHO = f"me=$(grep -x {' '.join(f'-e {name}' for name in NAMES)});"


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[dict[str, Gate]]:
    """A gate for each child; a child says at its own that it is there."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(Gate(tmp_path, name))) for name in NAMES}


@pytest.fixture
def batch(tmp_path: Path) -> str:
    return requests(tmp_path, *NAMES)


def requests(folder: Path, *instructions: str) -> str:
    file = folder / "requests.json"
    file.write_text(json.dumps([{"mode": "ad_hoc", "instructions": text} for text in instructions]))
    return str(file)


def at_work(runs_dir: Path, count: int) -> bool:
    """Whether so many of them have not ended."""
    return len(list((runs_dir / ".workspaces").iterdir())) == count


def interrupted(process: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGINT) -> None:
    """Interrupts a command once none of its threads is busy: what a thread that starts a process just then gets of a
    signal, the first one does not notice."""
    eventually(partial(_asleep, process.pid))
    process.send_signal(number)


def _asleep(pid: int) -> bool:
    try:
        tasks = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return {task.rpartition(")")[2].split()[0] for task in tasks} == {"S"}


def messages(results: list[dict[str, Any]]) -> list[str]:
    return [result["message"] for result in results]


@pytest.mark.case("C4-39")
def test_results_come_in_the_order_of_the_requests_whichever_ends_first(
    cli: Command, runs_dir: Path, tmp_path: Path, gates: dict[str, Gate], batch: str
) -> None:
    """Each works in a copy of its own, and they work at the same time."""
    script = (
        f"{WHO} echo $me >> notes.md; echo here > {tmp_path}/$me.said; read word < {tmp_path}/$me.word; cat notes.md"
    )
    process = cli.start("dispatch", "--requests", batch, "--json", "--", "sh", "-c", script)
    for name in NAMES:
        assert gates[name].heard() == "here"
    for left, name in ((2, "third"), (1, "second"), (0, "first")):
        gates[name].open()
        eventually(partial(at_work, runs_dir, left))
    done = finished(process)
    assert (done.code, done.err) == (0, "")
    assert messages(done.json) == [f"Two words.\n{name}" for name in NAMES]
    for result in done.json:
        value = {"message_summary": result["message"], "artifacts": [], "tools_used": []}
        assert result == {
            "success": True,
            "message": result["message"],
            "value": value,
            "missingArtifacts": [],
            "delivered": [],
            "notDelivered": [],
        }
    assert remains(runs_dir) == []


@pytest.mark.case("C4-39", "C4-33")
def test_one_that_fails_does_not_stop_the_others(
    cli: Command, runs_dir: Path, tmp_path: Path, gates: dict[str, Gate], batch: str
) -> None:
    waits = f"echo here > {tmp_path}/$me.said; read word < {tmp_path}/$me.word"
    script = f"{WHO} {waits}; [ $me = second ] && exit 3; echo Done"
    process = cli.start("dispatch", "--requests", batch, "--json", "--", "sh", "-c", script)
    for name in NAMES:
        gates[name].heard()
    gates["second"].open()
    eventually(partial(at_work, runs_dir, 2))
    for name in ("first", "third"):
        gates[name].open()
    done = finished(process)
    assert done.code == 20
    failed = {"success": False, "message": f"{FAILED}Process exited with code 3", "value": None}
    assert messages(done.json) == ["Done", failed["message"], "Done"]
    assert done.json[1] == failed
    assert remains(runs_dir) == []


@pytest.mark.case("C4-39")
def test_a_batch_of_failures_has_failed_and_each_has_its_line(cli: Command, runs_dir: Path, batch: str) -> None:
    done = cli("dispatch", "--requests", batch, "--", "sh", "-c", f"{WHO} subagent submit error $me 2> /dev/null")
    lines = "".join(f"{number}. {FAILED}{name}\n" for number, name in enumerate(NAMES, 1))
    assert (done.code, done.out, done.err) == (1, lines, "")
    assert remains(runs_dir) == []


@pytest.mark.case("C4-39", "C4-30", "C4-37")
def test_warnings_say_which_of_them_they_are_about(cli: Command, tmp_path: Path) -> None:
    payloads = [{"mode": "ad_hoc", "instructions": name, "expected_artifacts": [f"{name}.md"]} for name in NAMES[:2]]
    batch = json.dumps({"requests": payloads}).encode()
    script = f"{WHO} [ $me = first ] && echo Hotovo, ž || subagent submit result Done --artifact second.md 2> /dev/null"
    done = cli("dispatch", "--requests", "-", "--", "sh", "-c", script, input=batch)
    assert (done.code, done.out) == (0, "1. Hotovo, ž\n2. Done\n")
    assert done.err == (
        "warning: 1: an expected artifact was not delivered: first.md\nwarning: 1: the summary is not plain ASCII\n"
    )


def test_a_summary_of_several_lines_cannot_pose_as_that_of_another(cli: Command, tmp_path: Path) -> None:
    script = f"{WHO} [ $me = first ] && printf 'Done\\n2. Done too\\n' || exit 3"
    done = cli("dispatch", "--requests", requests(tmp_path, "first", "second"), "--", "sh", "-c", script)
    assert done.code == 20
    assert [line for line in done.out.splitlines() if line.startswith("2.")] == [
        f"2. {FAILED}Process exited with code 3"
    ]


def test_it_is_said_where_the_children_are_kept(cli: Command, runs_dir: Path, batch: str) -> None:
    done = cli("dispatch", "--requests", batch, "--keep", "--", "true")
    assert done.code == 0
    kept = [path.name for path in (runs_dir / ".workspaces").iterdir()]
    assert len(kept) == 3
    assert [run_id for run_id in kept if run_id not in done.out + done.err] == []


@pytest.mark.case("C4-39")
@pytest.mark.parametrize(("table", "out"), [("[]", ""), ('{"requests": []}', ""), ("[]", "[]\n")])
def test_a_batch_of_none_is_a_success(cli: Command, runs_dir: Path, table: str, out: str) -> None:
    done = cli("dispatch", "--requests", "-", *(["--json"] if out else []), "--", "true", input=table.encode())
    assert (done.code, done.out, done.err) == (0, out, "")
    assert not runs_dir.exists()


@pytest.mark.case("C4-14", "C4-39")
@pytest.mark.parametrize("place", [0, 2])
def test_one_request_that_cannot_be_meant_refuses_all_before_anything_is_begun(
    refusal: Refusal, runs_dir: Path, tmp_path: Path, place: int
) -> None:
    texts = [*NAMES]
    texts[place] = ""
    code, error = refusal("--requests", requests(tmp_path, *texts), "--", "touch", f"{tmp_path}/started")
    assert (code, error["code"]) == (2, "invalid_dispatch")
    assert error["message"] == f"requests.{place}: instructions must be non-empty ASCII text."
    assert (runs_dir.exists(), (tmp_path / "started").exists()) == (False, False)


@pytest.mark.case("C4-14", "C4-39")
@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["nobody"], 2, "unknown_agent"),
        (["--", "no-such-program"], 3, "program_not_found"),
        (["--cwd", "nowhere", "--", "true"], 2, "bad_cwd"),
    ],
)
def test_a_batch_that_nobody_can_do_is_refused_before_anything_is_begun(
    refusal: Refusal, runs_dir: Path, batch: str, words: list[str], code: int, error: str
) -> None:
    found, told = refusal("--requests", batch, *words)
    assert (found, told["code"]) == (code, error)
    assert not runs_dir.exists()


@pytest.mark.case("C4-39")
def test_more_at_once_than_is_allowed_is_refused(
    refusal: Refusal, runs_dir: Path, tmp_path: Path, batch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBAGENT_MAX_CHILDREN", "2")
    code, error = refusal("--requests", batch, "--", "touch", f"{tmp_path}/started")
    assert (code, error["code"]) == (2, "too_many_requests")
    assert error["message"] == "3 requests at once; the limit is 2"
    assert (runs_dir.exists(), (tmp_path / "started").exists()) == (False, False)


@pytest.mark.case("C4-39", "C4-23", "X23")
@pytest.mark.parametrize(
    ("number", "options"), [(signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGINT, ["--keep"])], ids=str
)
def test_an_interrupt_ends_all_of_them(
    cli: Command,
    runs_dir: Path,
    tmp_path: Path,
    gates: dict[str, Gate],
    batch: str,
    number: signal.Signals,
    options: list[str],
) -> None:
    script = f"{WHO} echo here > {tmp_path}/$me.said; {STAYS}"
    process = cli.start("dispatch", "--requests", batch, *options, "--", "sh", "-c", script)
    for name in NAMES:
        gates[name].heard()
    interrupted(process, number)
    done = finished(process)
    assert (done.code, done.out) == (128 + number, "")
    eventually(lambda: processes(runs_dir) == [])
    if options:
        assert [row["status"] for row in cli("list", "--all", "--json").json] == ["error"] * 3
    else:
        assert remains(runs_dir) == []


@pytest.mark.case("C4-23", "X23")
@pytest.mark.parametrize("count", [1, 3])
def test_an_interrupt_while_folders_are_still_copied_starts_nothing_any_more(
    cli: Command, runs_dir: Path, tmp_path: Path, project: Path, gate: Gate, slow_git: dict[str, str], count: int
) -> None:
    git("init", "-q")
    batch = requests(tmp_path, *NAMES[:count])
    process = cli.start("dispatch", "--requests", batch, "--", "touch", f"{project}/started", env=slow_git)
    for _ in range(count):
        gate.heard()
    interrupted(process)
    # It has to see to what has been copied, however long that takes.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    for _ in range(count):
        gate.open()
    assert finished(process).code == 130
    assert not (project / "started").exists()
    assert remains(runs_dir) == []
    eventually(lambda: processes(runs_dir) == [])


@pytest.mark.case("C4-39")
def test_each_child_gets_the_answer_to_its_own_question(cli: Command, runs_dir: Path, batch: str) -> None:
    script = f'{WHO} subagent ask "Which, for $me?" --wait'
    process = cli.start("dispatch", "--requests", batch, "--json", "--", "sh", "-c", script)
    said = heard(process, 3)
    asked = [(name, said[2 * place + 1]) for place in range(3) for name in NAMES if f"for {name}?" in said[2 * place]]
    assert sorted(name for name, _ in asked) == sorted(NAMES)
    for name, reply in asked:
        answered(cli, reply, f"the {name} answer")
    done = finished(process)
    assert (done.code, done.err) == (0, "")
    assert messages(done.json) == [f"the {name} answer" for name in NAMES]
    assert remains(runs_dir) == []


def specs(runs_dir: Path) -> list[dict[str, Any]]:
    """Those of the children that are there."""
    found = [json.loads(path.read_bytes()) for path in sorted(runs_dir.glob("*-*/run.json"))]
    return [spec for spec in found if spec["dispatch"]]


@pytest.mark.case("C4-19", "C4-39", "X25")
def test_the_children_of_an_agent_have_its_session_and_no_more_than_the_rest_of_its_time(
    cli: Command, runs_dir: Path, tmp_path: Path, batch: str
) -> None:
    inner = f"subagent dispatch --requests {batch} --keep --json -- true > {tmp_path}/told"
    run_id = started(cli, "--max-depth", "2", "--timeout", "100s", script=inner)
    assert over(cli, run_id).code == 0
    parent = json.loads((runs_dir / run_id / "run.json").read_bytes())
    children = specs(runs_dir)
    told = json.loads((tmp_path / "told").read_bytes())
    assert sorted(result["runId"] for result in told) == [child["runId"] for child in children]
    assert len(children) == 3
    for child in children:
        session = {name: child["dispatch"][name] for name in ("sessionId", "sessionCreatedAt")}
        assert session == {"sessionId": run_id, "sessionCreatedAt": parent["createdAt"]}
        assert (child["parentId"], child["depth"]) == (run_id, 2)
        assert 0 < child["timeoutSeconds"] < 100


@pytest.mark.case("C4-19", "X25")
def test_the_children_of_one_call_of_the_operator_have_one_session(cli: Command, runs_dir: Path, batch: str) -> None:
    assert cli("dispatch", "--requests", batch, "--keep", "--", "true").code == 0
    sessions = {(child["dispatch"]["sessionId"], child["dispatch"]["sessionCreatedAt"]) for child in specs(runs_dir)}
    assert len(specs(runs_dir)) == 3
    assert len(sessions) == 1


@pytest.mark.case("C4-18", "C4-29")
def test_what_several_deliver_arrives_in_one_place(cli: Command, project: Path, batch: str) -> None:
    script = (
        f"{WHO} echo $me > $me.md; echo $me >> notes.md; subagent submit result Done --artifact $me.md 2> /dev/null"
    )
    done = cli("dispatch", "--requests", batch, "--into", "out", "--json", "--", "sh", "-c", script)
    assert (done.code, [result["delivered"] for result in done.json]) == (0, [[f"{name}.md"] for name in NAMES])
    files = {name: text for name, text in snapshot(project).items() if text is not None}
    assert files == {"notes.md": b"Two words.\n"} | {f"out/{name}.md": f"{name}\n".encode() for name in NAMES}

"""The check of documents finds what JavaScript would write differently and what the server would refuse."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat import documents, nodejs

Node = Callable[[str], list[str]]

RUN = "0190a000-0000-7000-8000-000000000001"
MESSAGE = "0190a000-0000-7000-8000-000000000002"
TIME = "2026-01-02T03:04:05.678Z"


def document(**changes: Any) -> dict[str, Any]:
    new = {
        "runId": RUN,
        "agentName": "worker",
        "command": "worker --go",
        "startTime": TIME,
        "status": "running",
        "exitCode": None,
        "endTime": None,
        "summary": None,
    }
    return {key: value for key, value in {**new, **changes}.items() if value != "absent"}


def message(**changes: Any) -> dict[str, Any]:
    new = {
        "messageId": MESSAGE,
        "questionContent": "Which?",
        "questionTimestamp": TIME,
        "messageStatus": "pending_parent_reply",
    }
    return {key: value for key, value in {**new, **changes}.items() if value != "absent"}


REPLIED = {"messageStatus": "parent_replied", "answerContent": "That.", "answerTimestamp": TIME}
EXPIRED = {
    "messageStatus": "parent_acknowledged",
    "answerContent": "[expired] Nobody answered.",
    "answerTimestamp": TIME,
}


def problems(folder: Path, content: bytes) -> list[str]:
    place = folder / "foreign"
    place.mkdir()
    file = place / documents.NAME
    file.write_bytes(content)
    return [bad.problem for bad in documents.check([str(file)])]


def as_bytes(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "good",
    [
        document(),
        {},
        document(status="absent"),
        document(status="pending"),
        document(exitCode=0, endTime=TIME, lastUpdated=TIME, status="success", summary="ünïcode ✓"),
        document(messages=[]),
        document(messages=[message()], status="waiting_parent_reply"),
        document(messages=[message(**REPLIED)], status="parent_replied"),
        document(messages=[message(**REPLIED | {"answerContent": ""})]),
        document(messages=[message(**REPLIED | {"messageStatus": "acknowledged_by_subagent"})]),
        document(messages=[message(**EXPIRED)]),
    ],
)
def test_good_documents_pass(tmp_path: Path, node: Node, good: dict[str, Any]) -> None:
    assert problems(tmp_path, as_bytes(good)) == []


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (document(status="cancelled"), "status"),
        (document(runId="run-1"), "runId"),
        (document(runId=None), "runId"),
        (document(agentName=None), "agentName"),
        (document(command=None), "command"),
        (document(startTime=None), "startTime"),
        (document(startTime="2026-01-02T03:04:05Z"), "startTime"),
        (document(startTime="2026-13-02T03:04:05.678Z"), "startTime"),
        (document(endTime="yesterday"), "endTime"),
        (document(lastUpdated=None), "lastUpdated"),
        (document(exitCode="0"), "exitCode"),
        (document(summary=5), "summary"),
        (document(messages=None), "messages"),
        (document(messages={}), "messages"),
        (document(kind="lost"), "kind"),
        ([], "document"),
        (None, "document"),
        (document(messages=[message(), message()]), "same messageId"),
        (document(messages=[message(state="PENDING")]), "state"),
        (document(messages=[message(messageStatus="expired")]), "messageStatus"),
        (document(messages=[message(messageStatus="absent")]), "messageStatus"),
        (document(messages=[message(messageId="m1")]), "messageId"),
        (document(messages=[message(questionContent="absent")]), "questionContent"),
        (document(messages=[message(questionTimestamp=None)]), "questionTimestamp"),
        (document(messages=[message(**REPLIED | {"answerContent": None})]), "answerContent"),
        (document(messages=[message(**REPLIED | {"answerTimestamp": None})]), "answerTimestamp"),
        (document(messages=[message(**REPLIED | {"answerTimestamp": "absent"})]), "parent_replied with"),
        (document(messages=[message(answerContent="early")]), "pending_parent_reply with"),
        (document(messages=[message(**EXPIRED | {"answerContent": "no"})]), "[expired]"),
    ],
)
def test_documents_that_the_server_would_refuse_or_lose_are_found(
    tmp_path: Path, node: Node, bad: object, part: str
) -> None:
    found = problems(tmp_path, as_bytes(bad))
    assert len(found) == 1
    assert part in found[0]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "unreadable"),
        (b"\xef\xbb\xbf{}", "unreadable"),
        (b'{\n  "summary": "\xff"\n}', "unreadable"),
        (as_bytes(document()) + b"\n", "not as JavaScript writes it"),
        (json.dumps(document()).encode(), "not as JavaScript writes it"),
        (json.dumps(document(summary="ü"), indent=2).encode(), "not as JavaScript writes it"),
        (as_bytes(document(exitCode=1.0)), "not as JavaScript writes it"),
        (as_bytes(document(exitCode=2**53 + 1)), "not as JavaScript writes it"),
        (b'{\n  "summary": null,\n  "summary": null\n}', "not as JavaScript writes it"),
    ],
)
def test_bytes_that_javascript_would_not_write_are_found(tmp_path: Path, node: Node, content: bytes, part: str) -> None:
    found = problems(tmp_path, content)
    assert len(found) == 1
    assert part in found[0]


# Stand-ins for the server's next question: the text of the document in, the text that it would write out.
@pytest.mark.parametrize(
    ("ask", "part"),
    [
        ("asked", None),
        ("() => { throw new Error('no such status') }", "could not ask: no such status"),
        ("() => '{'", "could not ask"),
        ("(text) => text", "would not leave the messages whole"),
        ("(...all) => changed(all, (d) => d.messages.shift())", "would not leave the messages whole"),
        ("(...all) => changed(all, (d) => delete d.messages[0].answerContent)", "would not leave the messages whole"),
        ("(...all) => changed(all, (d) => (d.messages[0].extra = 1))", "would not leave the messages whole"),
        ("(...all) => changed(all, (d) => (d.status = 'running'))", "would leave status running"),
        ("(...all) => changed(all, (d) => delete d.summary)", "would change other keys"),
    ],
)
def test_a_document_that_the_servers_next_question_would_damage_is_found(
    node: Node, ask: str, part: str | None
) -> None:
    code = f"""
        import {{ problemAfterAsking }} from {json.dumps(Path(node("check-documents.mjs")[1]).as_uri())};
        import {{ asked }} from {json.dumps(Path(node("server-double.mjs")[1]).as_uri())};
        function changed(all, change) {{
          const document = JSON.parse(asked(...all));
          change(document);
          return JSON.stringify(document);
        }}
        const text = {json.dumps(json.dumps(document(messages=[message(**REPLIED)])))};
        console.log(JSON.stringify(problemAfterAsking(text, {ask})));
    """
    argv = [node("")[0], "--input-type=module", "-e", code]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    assert found is None if part is None else part in found


def test_a_lone_surrogate_passes_as_an_escape(tmp_path: Path, node: Node) -> None:
    assert problems(tmp_path, as_bytes(document(summary="X")).replace(b'"X"', rb'"\ud800"')) == []


def test_only_documents_of_ours_are_looked_at(tmp_path: Path) -> None:
    for place in ("ours/run", "foreign/run", "deep/foreign/run", "marked/run"):
        folder = tmp_path / "foreign" / "session" / place
        folder.mkdir(parents=True)
        (folder / documents.NAME).write_text("{}")
    root = tmp_path / "foreign" / "session"
    (root / "marked" / ".not-ours").touch()
    assert list(documents.find(str(root))) == [str(root / "ours" / "run" / documents.NAME)]


LEAVES = """
def test_leaves_a_document(tmp_path):
    folder = tmp_path / "{folder}"
    folder.mkdir()
    (folder / ".meta.json").write_text('{content}')
"""


def session(pytester: pytest.Pytester, folder: str, content: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(LEAVES.format(folder=folder, content=content))
    # Below `foreign`, so that the session around this one leaves it alone; the inner one looks from there on.
    place = pytester.path / "foreign" / "inner"
    place.parent.mkdir()
    return pytester.runpytest_inprocess(
        "-p", "tests.compat.documents", "-o", "tmp_path_retention_policy=all", f"--basetemp={place}", *options
    )


PROCESSES = pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["alone", "xdist"])


@PROCESSES
def test_a_session_that_leaves_good_documents_passes(pytester: pytest.Pytester, node: Node, options: list[str]) -> None:
    result = session(pytester, "runs", "{}", *options)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["documents: 1 checked, all pass"])


@PROCESSES
def test_a_session_that_leaves_a_bad_document_fails_and_names_it(
    pytester: pytest.Pytester, node: Node, options: list[str]
) -> None:
    result = session(pytester, "runs", "{", *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["documents: 1 checked, 1 BAD", "*/runs/.meta.json: unreadable:*"])


def test_documents_that_others_damaged_do_not_fail_the_session(pytester: pytest.Pytester) -> None:
    result = session(pytester, "foreign", "{")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("documents:*")


def test_without_node_the_session_says_that_nothing_was_checked(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodejs, "missing", lambda: "no node")
    result = session(pytester, "runs", "{")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["documents: not checked (no node)"])

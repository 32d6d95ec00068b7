"""Hostile and broken input: ids that are no ids, texts of any size, folders and documents that are not what they
should be. Each is told in one clear line with the right exit code, and nothing changes, inside or outside."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from subagent_cli.core.errors import Damaged, InvalidInput, NotFound
from subagent_cli.services import listing, logs, outcomes, questions, runs
from subagent_cli.services.context import Context, open_context
from subagent_cli.services.settings import Caller
from tests.command import Command, Done
from tests.services.desk import StillClock, create, document, foreign_document, foreign_message, snapshot, write_foreign

MESSAGE = "0190a000-0000-7000-8000-00000000abcd"


def hostile() -> list[str]:
    """At least two hundred words that must not become a path."""
    climbs = ["..", "../x", "../../etc/passwd", "..\\x", "x/../..", "./x", "x/.", "x/", "/", "//", "///etc", "....//"]
    absolute = ["/etc/passwd", "/tmp", "/proc/self/environ", "//host/share", "C:\\x", "\\\\host\\share", "file:///etc"]
    encoded = ["..%2f", "%2e%2e%2f", "..%c0%af", "%00", "..%252f", "\\u002e\\u002e", "&#46;&#46;", "=?utf-8?q?=2E?="]
    ours = [".index", ".locks", ".index/active", ".locks/x.lock", ".groups", ".messages", ".meta.json", ".alive", "."]
    ours += [f".new-{MESSAGE}", ".tmp", ".trash", "README.md/..", f"{MESSAGE}/..", f"{MESSAGE}/.meta.json"]
    blank = ["", " ", "\t", "\n", "\r\n", " x", "x ", "a b", "a\nb", "a\rb", "x\n", "\u00a0", "\u2003", "\u3000"]
    shell = ["~", "~root", "$HOME", "${HOME}", "$(id)", "`id`", "; id", "| id", "&& id", "> x", "< x", "*", "?", "[a]"]
    shell += ["{a,b}", "!1", "#", "'", '"', "\\", "a'b", "%s", "%(x)s", "{0}", "{x}", "$$", "^", "a=b", "a:b", "a,b"]
    dashes = ["-", "--", "-x", "--json", "--help", "-rf", "---", "-0000", "–", "—"]
    control = [f"a{chr(code)}b" for code in (*range(32), 127, *range(128, 160))]
    odd = ["\u202eabc", "\u2066x", "\ufeffx", "a\u200db", "\u2028", "\ud800", "x\udcff", "a\u0301", "🦊", "★", "ﷺ%"]
    at = ["@", "@@", "@last ", "@LAST", "@first", "last@", "@last/..", f"@{MESSAGE}"]
    shaped = [f"{{{MESSAGE}}}", f"urn:uuid:{MESSAGE}", f" {MESSAGE}", f"{MESSAGE}\n", f"{MESSAGE}\0", f"{MESSAGE}/"]
    shaped += [MESSAGE.replace("-", "/"), MESSAGE.replace("-", "."), f"../{MESSAGE}", f"{MESSAGE}.meta.json"]
    shaped += [MESSAGE.replace("0", "٠"), MESSAGE[:-1], f"{MESSAGE}0", MESSAGE.replace("-", "\u2010"), "0" * 33]
    length = ["x" * 10_000, "../" * 3_000, "a" * 129, "é" * 65, "/" * 10_000, "." * 10_000, "0" * 10_000]
    dots = ["..." + "." * count for count in range(5)] + [f"..{sign}" for sign in "/\\;:|&?#%"]
    plain = ["nobody", "0", "000", "dead", "null", "None", "true", "undefined", "NaN", "con", "nul", "x.y", "CON.txt"]
    groups = (climbs, absolute, encoded, ours, blank, shell, dashes, control, odd, at, shaped, length, dots, plain)
    return list(dict.fromkeys(word for group in groups for word in group))


HOSTILE = hostile()

VERBS: dict[str, Callable[[Context, str], object]] = {
    "status": lambda desk, word: runs.status(desk, word),
    "update": lambda desk, word: runs.update(desk, word, "success", "Done."),
    "result": lambda desk, word: outcomes.result(desk, word),
    "logs": lambda desk, word: logs.tail(desk, word),
    "pending": lambda desk, word: questions.pending(desk, word),
    "ask": lambda desk, word: questions.ask(desk, "Which?", run=word),
    "ask as that run": lambda desk, word: questions.ask(desk._replace(caller=Caller(word)), "Which?"),
    "tell": lambda desk, word: questions.tell(desk, "Note.", run=word),
    "reply": lambda desk, word: questions.reply(desk, word, "That."),
    "reply to a message": lambda desk, word: questions.reply(desk, word, "That.", message=MESSAGE),
    "reply in a run": lambda desk, word: questions.reply(desk, "tidy", "That.", message=word),
    "check": lambda desk, word: questions.check(desk, word),
    "check in a run": lambda desk, word: questions.check(desk, word, run="tidy"),
    "check of a run": lambda desk, word: questions.check(desk, MESSAGE, run=word),
}


@pytest.mark.case("C1-22", "C1-12", "T-42")
@pytest.mark.parametrize("verb", VERBS)
def test_no_hostile_word_names_anything_or_changes_anything(desk: Context, tmp_path: Path, verb: str) -> None:
    assert len(HOSTILE) >= 200
    run_id = create(desk, "tidy")
    questions.ask(desk, "Which?", run=run_id)
    (tmp_path / "outside").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "kept").write_bytes(b"as it was")
    before = snapshot(tmp_path)
    wrong = []
    for word in [*HOSTILE, "link", "link/kept"]:
        try:
            VERBS[verb](desk, word)
        except (InvalidInput, NotFound):
            continue
        except Exception as error:
            wrong.append(f"{word[:60]!r}: {error!r}")
        else:
            wrong.append(f"{word[:60]!r}: was accepted")
    assert wrong == []
    assert snapshot(tmp_path) == before


@pytest.mark.case("C1-22")
def test_a_word_that_could_leave_the_folder_is_no_run_id_rather_than_not_found(desk: Context) -> None:
    create(desk)
    for word in ("../x", "/etc/passwd", "~", ".index", "a/b", "", "x\n", "a\0b"):
        with pytest.raises(InvalidInput) as caught:
            runs.status(desk, word)
        assert caught.value.code == "invalid_run_id", word


def test_no_hostile_word_becomes_the_name_of_a_run(desk: Context, tmp_path: Path) -> None:
    create(desk)
    harmless = {"nobody", "0", "000", "dead", "null", "None", "true", "undefined", "NaN", "con", "nul", "x.y"}
    harmless |= {"CON.txt", "0" * 33, MESSAGE[:-1], f"{MESSAGE}0", f"{MESSAGE}.meta.json", MESSAGE.replace("-", ".")}
    harmless |= {MESSAGE.replace("0", "٠")}
    before = snapshot(tmp_path)
    accepted = []
    for word in HOSTILE:
        if word in harmless:
            continue
        try:
            runs.create(desk, "helper", "Do it", name=word)
        except InvalidInput:
            continue
        accepted.append(word)
    assert accepted == []
    assert snapshot(tmp_path) == before


@pytest.mark.case("C1-22", "T-42")
def test_the_command_line_refuses_hostile_words_too(cli: Command, tmp_path: Path) -> None:
    cli("create", "helper", "Do it", "--name", "tidy")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / ".meta.json.kept").write_bytes(b"{}")
    before = snapshot(tmp_path)
    for word, verb in zip(
        ["../outside", "/etc", "..%2f", "ünïcode", "x" * 10_000, "-x", "a\nb", "a b", "~", ".index", ".locks", ""],
        ["status", "update", "result", "logs", "pending", "ask", "tell", "reply", "reply", "check", "check", "ask"],
        strict=True,
    ):
        done = cli(*_words(verb, word))
        assert done.code in (2, 3), (verb, word[:40], done)
        assert "Traceback" not in done.err
        assert len(done.err.splitlines()) <= 3
    assert snapshot(tmp_path) == before


@pytest.mark.case("C1-22", "T-42")
def test_a_reply_does_not_climb_to_a_document_that_lies_outside(cli: Command, foreign_runs: Path) -> None:
    """The very call that wrote outside the folder elsewhere: the document is there, and its question waits."""
    outside = foreign_runs.parent / "outside"
    write_foreign(outside, "secret", messages=[foreign_message(MESSAGE)])
    (outside / "secret.meta.json").write_bytes((outside / "secret" / ".meta.json").read_bytes())
    before = snapshot(foreign_runs.parent)
    for word in ("../outside/secret", "../../foreign/outside/secret", str(outside / "secret"), "./../outside/secret"):
        done = cli("reply", word, MESSAGE, "owned", "--json", runs_dir=foreign_runs)
        assert (done.code, done.json["error"]["code"]) == (2, "invalid_run_id"), word
    assert snapshot(foreign_runs.parent) == before


@pytest.mark.case("C1-22")
def test_a_hostile_identity_in_the_environment_is_refused(cli: Command, tmp_path: Path) -> None:
    cli("create", "helper", "Do it")
    before = snapshot(tmp_path)
    for verb in (["ask", "Which?"], ["status"], ["update", "success"]):
        done = cli(*verb, "--json", env={"SUBAGENT_RUN_ID": "../../etc"})
        assert (done.code, done.json["error"]["code"]) == (2, "invalid_run_id")
    assert snapshot(tmp_path) == before


def _words(verb: str, word: str) -> list[str]:
    return {
        "update": ["update", "--", word, "success"],
        "ask": ["ask", f"--run={word}", "--", "Which?"],
        "tell": ["tell", f"--run={word}", "--", "Note."],
        "reply": ["reply", "--", word, "That."],
    }.get(verb, [verb, "--", word])


BIG = 5_000_000


def test_a_text_beyond_the_limit_is_refused_with_the_limit_and_what_to_do(cli: Command, runs_dir: Path) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    cli("ask", "Which?", "--run", run_id)
    before = snapshot(runs_dir, locks=False)
    for words in (
        ["create", "helper", "-"],
        ["ask", "-", "--run", run_id],
        ["tell", "-", "--run", run_id],
        ["reply", run_id, "-"],
        ["update", run_id, "success", "--summary", "-"],
    ):
        done = cli(*words, "--json", input=b"x" * BIG)
        assert (done.code, done.json["error"]["code"]) == (2, "too_long"), words
        assert "SUBAGENT_MAX_TEXT" in done.json["error"]["hint"]
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("X24")
def test_a_raised_limit_lets_a_text_of_five_million_bytes_through_whole(cli: Command, runs_dir: Path) -> None:
    wide = {"SUBAGENT_MAX_TEXT": "10000000"}
    run_id = cli("create", "helper", "Do it").out.strip()
    text = ("žluť " * (BIG // 7))[: BIG // 2]
    message_id = cli("ask", "-", "--run", run_id, input=text.encode(), env=wide).out.strip()
    assert cli("reply", message_id, "-", input=text.encode(), env=wide).code == 0
    assert cli("check", message_id).out == text + "\n"
    assert document(runs_dir, run_id)["messages"][0]["questionContent"] == text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["create", "helper", "-"], 2),
        (["ask", "-", "--run", "tidy"], 2),
        (["tell", "-", "--run", "tidy"], 2),
        (["reply", "tidy", "-"], 0),
        (["update", "tidy", "success", "--summary", "-"], 0),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else str(value),
)
def test_an_empty_text_is_an_answer_or_a_summary_and_nothing_else(cli: Command, words: list[str], code: int) -> None:
    cli("create", "helper", "Do it", "--name", "tidy")
    cli("ask", "Which?", "--run", "tidy")
    done = cli(*words, input=b"")
    assert done.code == code, done


@pytest.mark.parametrize("key", ["", " "])
@pytest.mark.parametrize(
    "words",
    [
        ["create", "helper", "Do it"],
        ["run", "helper", "x"],
        ["spawn", "helper", "--task", "x"],
        ["ask", "Which?", "--run", "tidy"],
        ["reply", "tidy", "That."],
        ["resume", "tidy", "On."],
        ["message", "put", "--text", "x"],
        ["send", "tidy", "--text", "x"],
    ],
    ids=lambda words: words[0],
)
def test_an_empty_key_would_make_no_retry_safe_and_is_refused(
    cli: Command, runs_dir: Path, words: list[str], key: str
) -> None:
    cli("create", "helper", "Do it", "--name", "tidy")
    cli("ask", "Which?", "--run", "tidy")
    before = snapshot(runs_dir, locks=False)
    done = cli(*words, "--key", key)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: the key is empty\nhint: ")
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("X24")
@pytest.mark.parametrize("data", [b"\xff\xfe", b"ok \xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"caf\xe9"], ids=repr)
def test_input_that_is_not_utf8_is_refused(cli: Command, runs_dir: Path, data: bytes) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    before = snapshot(runs_dir, locks=False)
    done = cli("ask", "-", "--run", run_id, "--json", input=data)
    assert (done.code, done.json["error"]["code"]) == (2, "not_utf8")
    typed = cli("ask", os.fsdecode(data), "--run", run_id, "--json")
    assert (typed.code, typed.json["error"]["code"]) == (2, "not_utf8")
    assert snapshot(runs_dir, locks=False) == before


def test_arguments_that_are_not_utf8_are_refused_wherever_they_stand(cli: Command, runs_dir: Path) -> None:
    run_id = cli("create", "helper", "Do it").out.strip()
    cli("ask", "Which?", "--run", run_id)
    before = snapshot(runs_dir, locks=False)
    bad = "caf\udce9"
    for words in (
        [bad],
        ["status", bad],
        ["create", bad, "Do it"],
        ["create", "helper", bad],
        ["create", "helper", "Do it", "--name", bad],
        ["reply", run_id, bad],
        ["reply", run_id, bad, "That."],
        ["reply", bad, "That."],
        ["check", bad],
        ["check", bad, "--run", run_id],
        ["update", run_id, bad],
        ["update", run_id, "success", "--summary", bad],
        ["ask", "Which?", "--run", run_id, "--option", bad, "--option", "b"],
        ["list", "--status", bad],
        ["schema", bad],
        ["--set", bad, "list"],
    ):
        done = cli(*words)
        assert done.code in (2, 3), (words, done)
        assert "Traceback" not in done.err
        assert "fault of subagent" not in done.err
        json.loads(cli(*words, "--json").raw)
    assert snapshot(runs_dir, locks=False) == before


LOOKING = [["status"], ["list"], ["pending"], ["status", "x"], ["check", MESSAGE], ["result", "x"], ["logs", "x"]]
WRITING = [["ask", "Which?", "--run", "x"], ["reply", "x", "That."], ["update", "x", "success"]]


def told(done: Done) -> dict[str, Any]:
    error: dict[str, Any] = done.json["error"]
    return error


@pytest.mark.parametrize("words", [*LOOKING, *WRITING], ids=" ".join)
def test_a_named_runs_directory_that_is_missing_is_a_mistake_that_is_told(
    cli: Command, tmp_path: Path, words: list[str]
) -> None:
    done = cli(*words, runs_dir=tmp_path / "missing")
    assert (done.code, done.out) == (3, "")
    assert "SUBAGENT_RUNS_DIR" in done.err
    assert str(tmp_path / "missing") in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_runs_directory_that_is_a_file_is_refused(cli: Command, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for words in (*LOOKING, *WRITING, ["create", "helper", "Do it"]):
        done = cli(*words, "--json", runs_dir=file)
        assert (done.code, told(done)["code"]) == (2, "bad_runs_dir"), words
    assert snapshot(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("place", ["below a file", "in /proc", "too long", "a loop"])
def test_a_place_that_cannot_be_written_is_told_with_what_helps(cli: Command, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "loop").symlink_to("loop")
    folder = {
        "below a file": tmp_path / "file" / "runs",
        "in /proc": Path("/proc/nowhere/runs"),
        "too long": tmp_path / ("x" * 300),
        "a loop": tmp_path / "loop" / "runs",
    }[place]
    before = snapshot(tmp_path)
    done = cli("create", "helper", "Do it", "--json", runs_dir=folder)
    assert done.code in (1, 2), done
    assert told(done)["code"] in ("io_error", "bad_runs_dir")
    assert told(done)["hint"]
    assert snapshot(tmp_path) == before


def _link(file: Path, target: Path) -> None:
    file.unlink()
    file.symlink_to(target)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "blank": lambda file: file.write_bytes(b" \n\n"),
    "torn": lambda file: file.write_bytes(file.read_bytes()[:-40]),
    "BOM": lambda file: file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes()),
    "list": lambda file: file.write_bytes(b"[]"),
    "null": lambda file: file.write_bytes(b"null"),
    "text": lambda file: file.write_bytes(b'"running"'),
    "UTF-16": lambda file: file.write_bytes(file.read_bytes().decode().encode("utf-16")),
    "zeros": lambda file: file.write_bytes(b"\0" * 500),
    "NaN": lambda file: file.write_bytes(b'{"exitCode": NaN}'),
    "too deep": lambda file: file.write_bytes(b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "link loop": lambda file: _link(file, file),
    "link to nothing": lambda file: _link(file, file.with_name("gone")),
    "link out": lambda file: _link(file, Path(shutil.copy(file, file.parents[2] / "out.json"))),
    "folder": lambda file: _folder(file),
}


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subagent_cli.store.picture.time.sleep", lambda _seconds: None)


@pytest.mark.case("C1-13", "C1-35")
@pytest.mark.parametrize("ours", [True, False], ids=["a run of ours", "another program's run"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_document_is_told_and_left_alone_and_hides_no_other(
    foreign_desk: Context, foreign_runs: Path, clock: StillClock, no_pauses: None, kind: str, ours: bool
) -> None:
    good = create(foreign_desk, "good")
    waiting = questions.ask(foreign_desk, "Which?", run=good)["messageId"]
    if ours:
        bad = create(foreign_desk)
        message_id = questions.ask(foreign_desk, "Which?", run=bad)["messageId"]
    else:
        bad, message_id = "0190a000-0000-7000-8000-00000000f0f0", MESSAGE
        write_foreign(foreign_runs, bad)
        (foreign_runs / ".index" / "active" / bad).touch()
    DAMAGE[kind](foreign_runs / bad / ".meta.json")
    before = snapshot(foreign_runs.parent, locks=False)
    desk = open_context({"runs_dir": str(foreign_runs)}, clock)
    calls: Sequence[Callable[[], object]] = (
        lambda: runs.status(desk, bad),
        lambda: questions.ask(desk, "Which?", run=bad),
        lambda: questions.tell(desk, "Note.", run=bad),
        lambda: questions.reply(desk, bad, "That."),
        lambda: questions.reply(desk, bad, "That.", message=message_id),
        lambda: questions.check(desk, message_id, run=bad),
        lambda: runs.update(desk, bad, "success"),
        lambda: outcomes.result(desk, bad),
        lambda: questions.pending(desk, bad),
    )
    for number, call in enumerate(calls):
        with pytest.raises(Damaged) as caught:
            call()
        assert caught.value.code == "damaged_meta", number
        assert bad in caught.value.message
        assert caught.value.hint
    rows, faults = listing.find(desk)
    assert [row["runId"] for row in rows] == [good]
    assert [bad in fault.message for fault in faults] == [True]
    listed, faults = questions.pending(desk)
    assert [item["message_id"] for item in listed] == [waiting]
    assert [bad in fault.message for fault in faults] == [True]
    assert snapshot(foreign_runs.parent, locks=False) == before


@pytest.mark.case("C1-13", "C1-35")
@pytest.mark.parametrize("kind", ["empty", "list"])
def test_the_command_line_tells_of_a_damaged_document_in_one_line(
    cli: Command, foreign_runs: Path, foreign_desk: Context, kind: str
) -> None:
    create(foreign_desk, "good")
    bad = create(foreign_desk, "bad")
    message_id = questions.ask(foreign_desk, "Which?", run=bad)["messageId"]
    DAMAGE[kind](foreign_runs / bad / ".meta.json")
    before = snapshot(foreign_runs, locks=False)
    for words in (
        ["status", "bad"],
        ["ask", "Or which?", "--run", "bad"],
        ["reply", "bad", "That."],
        ["check", message_id],
        ["update", "bad", "success"],
        ["result", "bad"],
    ):
        done = cli(*words, runs_dir=foreign_runs)
        assert (done.code, done.out) == (8, ""), (words, done)
        first, hint = done.err.splitlines()
        assert first.startswith("error: ")
        assert bad in first
        assert hint.startswith("hint: ")
    assert snapshot(foreign_runs, locks=False) == before


@pytest.mark.case("C1-35")
@pytest.mark.parametrize("verb", ["list", "pending", "status"])
def test_lists_with_a_damaged_run_show_the_others_name_it_and_exit_8(
    cli: Command, foreign_runs: Path, foreign_desk: Context, verb: str
) -> None:
    good, bad = create(foreign_desk), create(foreign_desk)
    for run_id in (good, bad):
        questions.ask(foreign_desk, "Which?", run=run_id, deadline=10**12)
    DAMAGE["list"](foreign_runs / bad / ".meta.json")
    plain = cli(verb, runs_dir=foreign_runs)
    assert plain.code == 8
    assert good[-8:] in plain.out
    assert bad in plain.err
    as_json = cli(verb, "--json", runs_dir=foreign_runs)
    assert as_json.code == 8
    assert [item.get("runId") or item.get("run_id") for item in as_json.json] == [good]
    assert bad in as_json.err


def test_very_many_damaged_runs_fill_no_screen(cli: Command, runs_dir: Path) -> None:
    good = cli("create", "helper", "Do it").out.strip()
    for number in range(300):
        (runs_dir / f"019a7b35-92fb-7377-b5c3-{number:012d}").mkdir()
    done = cli("list")
    assert (done.code, good[-8:] in done.out) == (8, True)
    lines = done.err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 280 more warnings; see subagent doctor"


def test_what_the_hint_of_a_damaged_document_says_mends_the_run(
    foreign_desk: Context, foreign_runs: Path, no_pauses: None
) -> None:
    run_id = create(foreign_desk)
    message_id = questions.ask(foreign_desk, "Which?", run=run_id)["messageId"]
    file = foreign_runs / run_id / ".meta.json"
    DAMAGE["torn"](file)
    with pytest.raises(Damaged, match=run_id) as caught:
        runs.status(foreign_desk, run_id)
    assert f"subagent doctor {run_id} --fix" in str(caught.value.hint)
    file.rename(file.with_suffix(".damaged"))
    assert runs.status(foreign_desk, run_id)["messages"][0]["messageId"] == message_id
    questions.reply(foreign_desk, message_id, "That.")
    assert document(foreign_runs, run_id)["messages"][0]["answerContent"] == "That."


@pytest.mark.case("C1-35")
def test_a_whole_document_with_the_tail_of_an_older_one_is_read(
    foreign_desk: Context, foreign_runs: Path, no_pauses: None
) -> None:
    content = json.dumps(foreign_document(status="error", summary="No.")).encode()
    write_foreign(foreign_runs, content=content + b'ld summary"}]}')
    (row,), faults = listing.find(foreign_desk)
    assert (row["status"], row["summary"], faults) == ("error", "No.", [])


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl"])
def test_other_damaged_files_of_a_run_are_told_and_left_alone(cli: Command, foreign_runs: Path, name: str) -> None:
    run_id = cli("create", "helper", "Do it", runs_dir=foreign_runs).out.strip()
    cli("update", run_id, "running", runs_dir=foreign_runs)
    cli("ask", "Which?", "--run", run_id, runs_dir=foreign_runs)
    file = foreign_runs / run_id / name
    content = file.read_bytes()
    file.write_bytes(content[:30] + b"\xff#" + content[32:])
    before = snapshot(foreign_runs, locks=False)
    for words in (["status", run_id], ["list"]):
        done = cli(*words, runs_dir=foreign_runs)
        assert done.code == 8, done
        assert run_id in done.err
        assert "Traceback" not in done.err
    assert snapshot(foreign_runs, locks=False) == before

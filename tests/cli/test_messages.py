"""`subagent message`, `send`, `inbox`, `wake` and `schemas` as they are typed: what they print, how they end, what they
refuse and that a refusal leaves no trace."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from subagent_cli.core.ids import is_uuid, short
from subagent_cli.services import deliveries, messages, runs
from subagent_cli.services.context import open_context
from tests.cli.living import finished, one_line, over, program, started, waiting
from tests.cli.test_output import DANGEROUS, TRICKS
from tests.command import Command
from tests.services.desk import snapshot
from tests.services.test_deliveries import REPLIES, end_all

NOBODY = "0190a000-0000-7000-8000-000000000000"
GRADE = {"recall": 1, "precision": 0.5, "notes_md": ""}


@pytest.fixture
def critic(runs_dir: Path) -> dict[str, str]:
    """The identity of a run whose process is nobody's business here."""
    house = open_context({"runs_dir": str(runs_dir)})
    found: dict[str, str] = runs.create(house, "helper", "Do it", name="critic")["env"]
    return found


def put(cli: Command, *words: str, **env: str) -> str:
    done = cli("message", "put", *(words or ("--text", "Look at the parser")), env=env)
    assert (done.code, done.err) == (0, ""), done
    return done.out.strip()


@pytest.mark.case("C3-21", "C3-26")
def test_a_message_is_put_shown_and_listed(cli: Command, critic: dict[str, str]) -> None:
    first = put(cli)
    assert is_uuid(first)
    shown = cli("message", "show", short(first))
    assert (shown.code, shown.out, shown.err) == (0, "Look at the parser\n", "plaintext from the operator\n")
    assert cli("send", "critic", first).code == 0
    words = ["--schema", "structured_grade", "--content", '{"recall": "1", "precision": 0.5}']
    made = cli("message", "put", *words, "--in-reply-to", short(first), "--json", env=critic)
    second = made.json["message_id"]
    assert made.json.keys() == {"message_id"}
    shown = cli("message", "show", second)
    assert json.loads(shown.out) == GRADE
    assert shown.err == f"structured_grade from {short(critic['SUBAGENT_RUN_ID'])}, in reply to {short(first)}\n"
    found = cli("message", "show", second, "--json").json
    assert (found["created_by_agent_id"], found["in_reply_to"]) == (critic["SUBAGENT_RUN_ID"], first)
    rows = [line.split() for line in cli("message", "list").out.splitlines()]
    assert [row[:4] for row in rows] == [
        [short(first), "operator", "plaintext", "-"],
        [short(second), short(critic["SUBAGENT_RUN_ID"]), "structured_grade", short(first)],
    ]
    assert [message["id"] for message in cli("message", "list", "--json").json] == [first, second]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([], 3),
        (["--limit", "2"], 2),
        (["--schema", "plaintext"], 2),
        (["--in-reply-to", "FIRST"], 1),
        (["--in-reply-to", "FIRST", "--schema", "plaintext"], 0),
        (["--in-reply-to", "FIRST", "--wait", "--timeout", "1s"], 1),
    ],
    ids=str,
)
def test_a_list_can_be_narrowed_and_is_empty_without_a_word_on_standard_output(
    cli: Command, words: list[str], count: int
) -> None:
    first = put(cli)
    grade = put(cli, "--schema", "structured_grade", "--content", json.dumps(GRADE), "--in-reply-to", first)
    every = [first, grade, put(cli)]
    words = [first if word == "FIRST" else word for word in words]
    found = [message["id"] for message in cli("message", "list", *words, "--json").json]
    assert found == [message for message in every if message in found]
    assert len(found) == count
    if not count:
        done = cli("message", "list", *words)
        assert (done.code, done.out, done.err) == (0, "", "no messages\n")


def test_shared_options_stand_before_or_behind_each_word(cli: Command, runs_dir: Path) -> None:
    message_id = put(cli)
    nowhere = {"SUBAGENT_RUNS_DIR": str(runs_dir / "nowhere")}
    for place, other in ((0, 3), (1, 1), (2, 0), (3, 2)):
        words = ["message", "list"]
        words.insert(place, "--json")
        words[other:other] = ["--runs-dir", str(runs_dir)]
        assert [message["id"] for message in cli(*words, env=nowhere).json] == [message_id], words


@pytest.mark.parametrize("content", [["--text", "-"], ["--schema", "plaintext", "--content", "-"]], ids=" ".join)
def test_content_comes_from_standard_input_where_a_dash_stands(
    cli: Command, critic: dict[str, str], content: list[str]
) -> None:
    text = "žluť\n\n $x 'y' \"z\" "
    piped = (text if "--text" in content else json.dumps({"text": text})).encode() + b"\n"
    for words in (["message", "put"], ["send", "critic"]):
        message_id = cli(*words, *content, input=piped).out.strip()
        assert cli("message", "show", message_id, "--json").json["content"] == {"text": text}


def test_a_text_may_be_empty_and_begin_with_a_dash(cli: Command) -> None:
    for text in ("", "-x", "--json"):
        assert cli("message", "show", put(cli, "--text", text)).out == (f"{text}\n" if text else "")


@pytest.mark.case("C3-31")
def test_schemas_are_listed_and_printed(cli: Command) -> None:
    names = ["plaintext", "structured_critique", "structured_grade"]
    plain = cli("schemas")
    assert (plain.code, [line.split()[0] for line in plain.out.splitlines()]) == (0, names)
    found = cli("schemas", "--json").json
    assert list(found) == names
    for name in names:
        assert json.loads(cli("schemas", name).out) == found[name]["json_schema"]
        assert cli("schemas", name, "--json").json == found[name]
    done = cli("schemas", "memo")
    assert (done.code, one_line(done)) == (2, "there is no schema 'memo'")
    assert done.err.splitlines()[1] == f"one of: {', '.join(names)}"


REFUSED: list[tuple[str, int, str, str]] = [
    ("message put", 2, "usage", "takes --text, or --schema and --content"),
    ("message put --schema plaintext", 2, "usage", "--schema and --content go together"),
    ("message put --content {}", 2, "usage", "--schema and --content go together"),
    ("message put --text x --schema plaintext --content {}", 2, "usage", "leave --schema and --content out"),
    ("message put --schema memo --content {}", 2, "unknown_schema", "there is no schema 'memo'"),
    ("message put --schema plaintext --content {", 2, "invalid_content", "not valid JSON"),
    ("message put --schema plaintext --content {}", 2, "invalid_content", "text: field required"),
    ("message put --text x --in-reply-to deadbeef", 3, "message_not_found", "Message with ID deadbeef not found"),
    (f"message show {NOBODY}", 3, "message_not_found", f"Message with ID {NOBODY} not found"),
    ("message show critic", 2, "invalid_message_id", "not a message id: 'critic'"),
    ("message list --limit 0", 2, "usage", "--limit"),
    ("message list --wait", 2, "usage", "--wait goes with --in-reply-to"),
    ("message list --in-reply-to deadbeef --wait --timeout 1s", 3, "message_not_found", "deadbeef"),
    ("message list --in-reply-to deadbeef --timeout 1s", 2, "usage", "--timeout goes with --wait"),
    ("send critic", 2, "usage", "nothing to send"),
    ("send critic deadbeef", 3, "message_not_found", "deadbeef"),
    ("send critic deadbeef --text x", 2, "usage", "not both"),
    ("send critic deadbeef --in-reply-to deadbeef", 2, "usage", "not both"),
    ("send critic --text x --timeout 1s", 2, "usage", "--timeout goes with --wait"),
    ("send critic --text x --wait --timeout soon", 2, "invalid_input", "not a length of time"),
    ("send critik --text x", 3, "run_not_found", "Run ID not found: critik"),
    ("send ../x --text x", 2, "invalid_run_id", "Run ID must be"),
    ("inbox nobody", 3, "run_not_found", "Run ID not found: nobody"),
    ("inbox", 2, "no_run", "no run is named"),
]


@pytest.mark.parametrize(("line", "code", "word", "says"), REFUSED, ids=[line for line, *_ in REFUSED])
def test_what_is_refused_says_why_and_leaves_no_trace(
    cli: Command, runs_dir: Path, critic: dict[str, str], line: str, code: int, word: str, says: str
) -> None:
    before = snapshot(runs_dir)
    done = cli(*line.split(), "--json")
    assert (done.code, done.json["success"], done.json["error"]["code"]) == (code, False, word), done
    assert says in done.json["error"]["message"]
    assert snapshot(runs_dir) == before


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("message put --schema memo --content {}", 2, "one of: plaintext, structured_critique, structured_grade"),
        ("message put --schema plaintext --content {}", 2, "hint: subagent schemas plaintext shows its form"),
        ("message put", 2, "hint: see subagent message put --help"),
        ("message show deadbeef", 3, "next: subagent message list"),
        ("send critik --text x", 3, "one of: critic"),
        ("send critic", 2, "hint: name a message, or give --text, or --schema and --content"),
    ],
)
def test_a_refusal_is_one_line_and_what_helps(
    cli: Command, runs_dir: Path, critic: dict[str, str], line: str, code: int, says: str
) -> None:
    done = cli(*line.split())
    assert done.code == code
    assert one_line(done)
    assert says in done.err.splitlines()
    assert not (runs_dir / ".messages").exists()


def test_message_alone_shows_what_there_is(cli: Command) -> None:
    done = cli("message")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: subagent message [OPTIONS] COMMAND [ARGS]...")
    assert [line.split()[0] for line in done.err.partition("Commands:\n")[2].splitlines()] == ["list", "put", "show"]
    for words in (["message", "--json"], ["--json", "message"]):
        done = cli(*words)
        assert (done.code, done.json["error"]["code"], done.err) == (2, "usage", "")


@pytest.mark.case("C3-33")
@pytest.mark.parametrize("target", ["critic", NOBODY])
def test_without_the_right_to_send_a_message_is_denied(
    cli: Command, runs_dir: Path, critic: dict[str, str], target: str
) -> None:
    stranger = runs.create(open_context({"runs_dir": str(runs_dir)}), "helper", "Do it")["env"]
    run_id = critic["SUBAGENT_RUN_ID"] if target == "critic" else target
    before = snapshot(runs_dir)
    done = cli("send", run_id.upper(), "--text", "x", env=stranger)
    assert (done.code, one_line(done)) == (5, f"No permission to send messages to agent {run_id}")
    assert done.err.splitlines()[1:] == [
        "hint: it takes send_messages: whoever administers its grants can give it",
        "next: subagent grants",
    ]
    assert snapshot(runs_dir) == before


@pytest.mark.case("C3-41", "C3-34")
def test_sending_prints_the_message_and_says_where_it_went(cli: Command, critic: dict[str, str]) -> None:
    run_id = critic["SUBAGENT_RUN_ID"]
    done = cli("send", "critic", "--text", "Look at the parser")
    assert (done.code, done.err) == (0, f"delivered to {short(run_id)}\n")
    message_id = done.out.strip()
    again = cli("send", short(run_id), short(message_id), "--json")
    expected = {"status": "delivered", "message_id": message_id, "agent_id": run_id, "attempt": None}
    assert (again.code, again.json) == (0, expected)
    assert len(cli("inbox", "critic", "--json").json) == 1
    words = ["--schema", "structured_grade", "--content", json.dumps(GRADE), "--in-reply-to", message_id]
    graded = cli("send", "critic", *words).out.strip()
    assert cli("message", "show", graded, "--json").json["in_reply_to"] == message_id


def test_a_key_makes_one_message_and_one_delivery(cli: Command, runs_dir: Path, critic: dict[str, str]) -> None:
    put(cli)
    for words in (["message", "put"], ["send", "critic"]):
        first = cli(*words, "--text", "x", "--key", "k").out
        before = snapshot(runs_dir, locks=False)
        assert cli(*words, "--text", "x", "--key", "k").out == first
        done = cli(*words, "--text", "y", "--key", "k", "--json")
        assert (done.code, done.json["error"]["code"]) == (4, "key_reused")
        assert snapshot(runs_dir, locks=False) == before
    # A key is the caller's own, and that of one verb.
    ids = {put(cli, "--text", "x", "--key", "k"), put(cli, "--text", "x", "--key", "k", **critic), first.strip()}
    assert len(ids) == 3


def test_an_inbox_is_worked_off_with_the_commands_that_stand_in_it(cli: Command, critic: dict[str, str]) -> None:
    empty = cli("inbox", env=critic)
    assert (empty.code, empty.out, empty.err) == (0, "", "no messages\n")
    message_id = cli("send", "critic", "--text", "Look at the parser").out.strip()
    first, read, reply = cli("inbox", "--unreplied", env=critic).out.splitlines()
    assert first.startswith(f"{short(message_id)} from operator (")
    assert first.endswith(" ago): wants a reply")
    assert read.strip() == f"subagent message show {short(message_id)}"
    assert reply.strip() == f"subagent message put --in-reply-to {short(message_id)} --text REPLY"
    assert cli(*shlex.split(read)[1:], env=critic).out == "Look at the parser\n"
    assert cli(*shlex.split(reply)[1:], env=critic).code == 0
    assert cli("inbox", "--unreplied", "--json", env=critic).json == []
    first, read = cli("inbox", "critic").out.splitlines()
    assert first.endswith(" ago): replied")
    [item] = cli("inbox", "--json", env=critic).json
    assert (item["message_id"], item["sender"], item["replied"], item["told"]) == (message_id, "operator", True, 0)
    assert item["read"] == read.strip()


@pytest.mark.case("C3-40")
def test_a_send_that_waits_prints_the_reply(cli: Command, critic: dict[str, str]) -> None:
    for form in ([], ["--json"]):
        sender = waiting(cli.start("send", "critic", "--text", "How good?", "--wait", "--timeout", "20s", *form))
        [item] = cli("inbox", "--unreplied", "--json", env=critic).json
        words = ["--in-reply-to", item["message_id"], "--schema", "structured_grade", "--content", json.dumps(GRADE)]
        reply = put(cli, *words, **critic)
        done = finished(sender)
        assert done.code == 0
        if form:
            assert (done.json["id"], done.json["content"]) == (reply, GRADE)
        else:
            assert json.loads(done.out) == GRADE
            author = short(critic["SUBAGENT_RUN_ID"])
            assert done.err == f"structured_grade from {author}, in reply to {short(item['message_id'])}\n"


@pytest.mark.case("C3-40")
def test_a_wait_that_is_over_names_the_command_that_goes_on_waiting(cli: Command, critic: dict[str, str]) -> None:
    done = cli("send", "critic", "--text", "x", "--wait", "--timeout", "50ms", "--json")
    [message] = cli("message", "list", "--json").json
    again = f"subagent message list --in-reply-to {short(message['id'])} --wait"
    error = {"code": "no_reply", "message": "no reply came in time", "hint": None, "next": again}
    assert (done.code, done.json) == (124, {"success": False, "error": error})
    plain = cli(*shlex.split(again)[1:], "--timeout", "50ms")
    assert (plain.code, one_line(plain)) == (124, "no reply came in time")
    assert plain.err.splitlines()[1:] == [f"next: {again}"]
    reply = put(cli, "--in-reply-to", message["id"], "--text", "Late.", **critic)
    done = cli(*shlex.split(again)[1:], "--json")
    assert (done.code, [found["id"] for found in done.json]) == (0, [reply])


@pytest.mark.case("C3-25")
def test_a_send_that_meets_a_reply_that_was_changed_says_so(
    cli: Command, runs_dir: Path, critic: dict[str, str]
) -> None:
    words = ["send", "critic", "--text", "x", "--key", "k", "--wait", "--timeout", "1s"]
    cli(*words)
    [message] = cli("message", "list", "--json").json
    reply = put(cli, "--in-reply-to", message["id"], "--text", "Keep it.", **critic)
    path = runs_dir / ".messages" / f"{reply}.json"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"Keep", b"Drop"))
    done = cli(*words)
    assert done.code == 8, done
    assert "is not as it was written" in done.err
    listed = cli("message", "list", "--in-reply-to", message["id"], "--wait")
    assert (listed.code, listed.out) == (8, "")
    assert "is not as it was written" in listed.err
    shown = cli("message", "show", reply, "--json")
    assert (shown.code, shown.json["error"]["code"]) == (8, "tampered")


def test_no_message_reaches_a_terminal_as_anything_but_text(
    cli: Command, runs_dir: Path, critic: dict[str, str]
) -> None:
    text = "\n".join(TRICKS.values())
    house = open_context({"runs_dir": str(runs_dir)})
    content = json.dumps({"text": text})
    message_id = deliveries.send(house, "critic", schema="plaintext", content=content)["message_id"]
    issue = {"issues": [{text: text}], "notes_md": text}
    critique = messages.put(house, "structured_critique", json.dumps(issue), in_reply_to=message_id)["message_id"]
    for words in (["message", "show", message_id], ["message", "show", critique], ["message", "list"]):
        done = cli(*words)
        assert DANGEROUS.findall(done.out.replace("\t", "")) == []
        assert done.out
    shown = cli("message", "list", "--json")
    assert DANGEROUS.findall(shown.out) == []
    assert [message["content"] for message in shown.json] == [{"text": text}, issue]


def test_a_shell_completes_the_runs_that_a_message_may_go_to(cli: Command, critic: dict[str, str]) -> None:
    for words in (["send", "cri"], ["inbox", "cri"], ["wake", "cri"], ["message", "sh"]):
        line = ["subagent", *words]
        env = {"_SUBAGENT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(words))}
        done = cli(env=env)
        assert (done.code, done.out) == (0, "plain,show\n" if "sh" in words else "plain,critic\n"), done


def test_wake_says_what_it_did_or_why_it_did_not(cli: Command, critic: dict[str, str]) -> None:
    done = cli("wake", "critic")
    assert (done.code, done.out, done.err) == (0, "", "no message wants a reply\n")
    message_id = cli("send", "critic", "--text", "x").out.strip()
    found = cli("wake", "critic", "--json").json
    assert found == {"runId": critic["SUBAGENT_RUN_ID"], "attempt": None, "unreplied": [message_id]}
    assert cli("update", "success", env=critic).code == 0
    done = cli("wake", "critic")
    assert done.code == 4
    assert one_line(done).endswith("was not started by `subagent run`: there is nothing to start again")


@pytest.fixture
def everything_ends(runs_dir: Path) -> Iterator[None]:
    yield
    end_all(runs_dir)


@pytest.mark.case("C3-36")
@pytest.mark.usefixtures("everything_ends")
def test_who_sends_to_an_idle_agent_is_told_that_it_was_started(cli: Command) -> None:
    run_id = started(cli, script=f"cat > told; {REPLIES}")
    over(cli, run_id)
    done = cli("send", run_id, "--text", "x")
    assert done.err == f"delivered to {short(run_id)}; it was started for it (attempt 2)\n"
    printed = cli("send", run_id, "--text", "y", "--wait", "--timeout", "30s")
    assert (printed.code, printed.out.partition(" of ")[0]) == (0, "Reply")


@pytest.mark.usefixtures("everything_ends")
def test_who_waits_in_vain_is_told_that_the_agent_could_not_be_started(cli: Command, tmp_path: Path) -> None:
    program(tmp_path / "there" / "agent", "true")
    run_id = cli("run", "Do it", "--", tmp_path / "there" / "agent").out.strip()
    over(cli, run_id)
    (tmp_path / "there" / "agent").unlink()
    for words in ([], ["--wait", "--timeout", "100ms"]):
        done = cli("send", run_id, "--text", "x", *words)
        assert done.code == (124 if words else 0)
        assert "warning: it is delivered, but its agent could not be started: there is no program" in done.err


@pytest.mark.case("C3-46")
@pytest.mark.usefixtures("everything_ends")
def test_a_whole_conversation(cli: Command, tmp_path: Path) -> None:
    """A parent starts a critic, stores a message, sends it and waits; the critic wakes, reads, and replies in form."""
    critique = '{"issues": [{"what": "division by zero"}], "notes_md": "# One issue"}'
    critic = program(
        tmp_path / "critic",
        """cat > prompt; id=$(sed -n 's/^ID: //p' prompt); [ "$id" ] || exit 0
        subagent message show $id > read
        subagent message put --in-reply-to $id --schema structured_critique --content - < critique
        """,
    )
    (tmp_path / "critique").write_text(critique)
    parent = started(
        cli,
        "--max-depth",
        "2",
        script=f"""
        critic=$(subagent run Criticise. --name critic --type critic -- {critic}); subagent wait $critic > /dev/null
        id=$(subagent message put --text 'x = 1 / 0'); subagent send $critic $id --json > sent
        subagent message list --in-reply-to $id --wait --timeout 60s --json > replies
        subagent message show $(sed 's/.*"id":"\\([^"]*\\)".*/\\1/' replies)
        """,
    )
    over(cli, parent, "--no-questions")
    assert json.loads(cli("result", parent).out) == json.loads(critique)
    assert (tmp_path / "read").read_text() == "x = 1 / 0\n"
    sent, [reply] = json.loads((tmp_path / "sent").read_bytes()), json.loads((tmp_path / "replies").read_bytes())
    found = cli("status", "critic", "--json").json
    assert (sent["agent_id"], sent["attempt"]) == (found["runId"], 2)
    assert (found["parentId"], found["type"]) == (parent, "critic")
    assert (reply["created_by_agent_id"], reply["in_reply_to"]) == (found["runId"], sent["message_id"])
    assert cli("message", "show", sent["message_id"], "--json").json["created_by_agent_id"] == parent
    assert cli("inbox", "critic", "--unreplied", "--json").json == []

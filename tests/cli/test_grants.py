"""`subagent grant`, `revoke` and `grants` as they are typed: what they print, whom they deny, what becomes of it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from subagent_cli.core.errors import Denied, RunNotFound
from subagent_cli.core.grant import ADMINISTER, CAPABILITIES, READ, SEND
from subagent_cli.core.ids import short
from subagent_cli.services import (
    deliveries,
    events,
    grants,
    inboxes,
    listing,
    logs,
    messages,
    outcomes,
    questions,
    runs,
    trees,
)
from subagent_cli.services.context import Context, open_context
from tests.cli.living import all_ended, one_line, over, started
from tests.cli.terminal import on_terminal
from tests.command import Command
from tests.services.desk import refused, snapshot
from tests.services.test_grants import FORMS, agent

NOBODY = "0190a000-0000-7000-8000-000000000000"

Env = dict[str, str]


def create(runs_dir: Path, name: str) -> Env:
    """The identity of a new run whose process is nobody's business here."""
    found: Env = runs.create(open_context({"runs_dir": str(runs_dir)}), "helper", "Do it", name=name)["env"]
    return found


@pytest.fixture
def critic(runs_dir: Path) -> Env:
    return create(runs_dir, "critic")


@pytest.fixture
def grader(runs_dir: Path) -> Env:
    return create(runs_dir, "grader")


@pytest.fixture
def ids(critic: Env, grader: Env) -> tuple[str, str]:
    return critic["SUBAGENT_RUN_ID"], grader["SUBAGENT_RUN_ID"]


@pytest.mark.case("C3-13", "C3-18")
@pytest.mark.parametrize("capability", ["read_transcript", "send_messages", "administer_grants"])
def test_a_capability_is_given_shown_and_taken_back(cli: Command, ids: tuple[str, str], capability: str) -> None:
    critic, grader = ids
    for _ in range(2):
        done = cli("grant", "critic", "grader", capability)
        assert (done.code, done.out) == (0, "")
        assert done.err == f"{short(grader)} has {capability} on {short(critic)}\n"
    rows = cli("grants")
    assert (rows.code, rows.err) == (0, "")
    assert rows.out.split() == [short(critic), short(grader), capability, "operator", "never"]
    done = cli("revoke", "critic", "grader", capability)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"revoked: {capability} of {short(grader)} on {short(critic)}\n"
    again = cli("revoke", "critic", "grader", capability)
    assert (again.code, again.err) == (0, f"you gave {short(grader)} no {capability} on {short(critic)}\n")
    rows = cli("grants")
    assert (rows.code, rows.out, rows.err) == (0, "", "no grants\n")


@pytest.mark.case("C3-18")
def test_what_others_gave_stays_and_is_said(cli: Command, critic: Env, ids: tuple[str, str]) -> None:
    run_id, grader = ids
    assert cli("grant", "critic", "critic", "administer_grants").code == 0
    # Of whom an agent knows nothing else it has to know the whole id.
    assert cli("grant", "critic", "grader", "read_transcript", env=critic).code == 3
    for env in (critic, {}):
        assert cli("grant", "critic", grader, "read_transcript", env=env).code == 0
    done = cli("revoke", "critic", grader, "read_transcript", env=critic)
    assert done.err == (
        f"revoked: read_transcript of {short(grader)} on {short(run_id)}; it is still granted by operator\n"
    )
    assert cli("grant", "critic", grader, "read_transcript", env=critic).code == 0
    denied = cli("revoke", "critic", grader, "read_transcript", "--all", "--json", env=critic)
    assert (denied.code, denied.json["error"]["code"]) == (5, "not_granted")
    taken = cli("revoke", "critic", "grader", "read_transcript", "--all", "--json").json
    assert taken == {
        "success": True,
        "target": run_id,
        "grantee": grader,
        "capability": "read_transcript",
        "revoked": 2,
        "stillGrantedBy": [],
    }


def test_json_says_all_of_it_before_and_behind_the_words(cli: Command, ids: tuple[str, str]) -> None:
    critic, grader = ids
    words = ["grant", "critic", "grader", "send_messages", "--expires", "90m"]
    granted = {"success": True, "target": critic, "grantee": grader, "capability": "send_messages"}
    assert cli("--json", *words).json == cli(*words, "--json").json == granted
    [row] = cli("--json", "grants", "--target", short(critic)).json
    assert [row] == cli("grants", "--json").json
    assert row.keys() == {"target", "grantee", "capability", "grantor", "granted_at", "expires_at"}
    assert (row["target"], row["grantee"], row["grantor"]) == (critic, grader, "operator")
    assert cli("grants").out.split()[-1] == row["expires_at"]
    assert cli("grants", "--target", "grader", "--json").json == []


@pytest.mark.case("C3-47")
@pytest.mark.parametrize("form", ["upper case", "without dashes"])
def test_ids_are_typed_in_any_form(cli: Command, critic: Env, ids: tuple[str, str], form: str) -> None:
    run_id, grader = ids
    cli("grant", run_id, run_id, "administer_grants")
    words = (FORMS[form](run_id), FORMS[form](grader))
    caller = {**critic, "SUBAGENT_RUN_ID": words[0]}
    done = cli("grant", *words, "read_transcript", "--json", env=caller).json
    assert (done["target"], done["grantee"]) == ids
    assert {row["grantor"] for row in cli("grants", "--target", words[0], "--json").json} == {"operator", run_id}


REFUSED = [
    ("grant critic grader", 2, "usage", "Missing argument"),
    ("grant critic grader read", 2, "usage", "'read_transcript', 'send_messages', 'administer_grants'"),
    ("grant critic grader read_transcript --expires soon", 2, "invalid_input", "not a length of time"),
    ("grant critic grader read_transcript --all", 2, "usage", "--all"),
    ("grant nobody grader read_transcript", 3, "run_not_found", "Run ID not found: nobody"),
    ("grant critic nobody read_transcript", 3, "run_not_found", "there is no agent nobody to give it to"),
    (f"grant critic {NOBODY} read_transcript", 3, "run_not_found", f"there is no agent {NOBODY} to give it to"),
    ("grant ../x grader read_transcript", 2, "invalid_run_id", "Run ID must be"),
    ("revoke critic grader read", 2, "usage", "is not one of"),
    (f"revoke {NOBODY} grader read_transcript", 3, "run_not_found", f"Run ID not found: {NOBODY}"),
    ("grants critic", 2, "usage", "unexpected"),
    ("grants --target nobody", 3, "run_not_found", "Run ID not found: nobody"),
]


@pytest.mark.case("C3-09", "C3-17")
@pytest.mark.parametrize(("line", "code", "word", "says"), REFUSED, ids=[line for line, *_ in REFUSED])
def test_what_is_refused_says_why_and_leaves_no_trace(
    cli: Command, runs_dir: Path, ids: tuple[str, str], line: str, code: int, word: str, says: str
) -> None:
    before = snapshot(runs_dir)
    done = cli(*line.split(), "--json")
    assert (done.code, done.json["success"], done.json["error"]["code"]) == (code, False, word), done
    assert says in done.json["error"]["message"]
    assert snapshot(runs_dir) == before


@pytest.mark.case("C3-12")
@pytest.mark.parametrize("verb", ["grant", "revoke"])
def test_an_agent_that_may_not_is_told_what_it_takes(
    cli: Command, runs_dir: Path, grader: Env, ids: tuple[str, str], verb: str
) -> None:
    critic, _ = ids
    before = snapshot(runs_dir)
    for run_id in (critic, NOBODY):
        done = cli(verb, run_id, "grader", "read_transcript", env=grader)
        assert done.code == 5
        assert one_line(done) == f"No permission to administer grants for agent {run_id}"
        assert done.err.splitlines()[1:] == [
            "hint: it takes administer_grants: whoever administers its grants can give it",
            "next: subagent grants",
        ]
    assert cli("grants", env=grader).err == "no grants\n"
    assert snapshot(runs_dir) == before


TRANSCRIPT: dict[str, Callable[[Context, str], object]] = {
    "logs": logs.tail,
    "events": events.read,
    "status": lambda desk, run_id: runs.status(desk, run_id, peek=True),
    "result": outcomes.result,
    "tree": trees.tree,
    "inbox": inboxes.listed,
}


def listings(desk: Context) -> set[str]:
    """Every run that the lists of somebody show."""
    rows = [*listing.find(desk, children=True)[0], *events.read(desk)[0]]
    grown, _ = trees.tree(desk, everything=True)
    while grown:
        rows += grown
        grown = [child for row in grown for child in row["children"]]
    return {row["runId"] for row in rows}


@pytest.mark.case("C3-42")
@pytest.mark.parametrize(
    ("who", "may"),
    [("itself", True), ("parent", True), ("reader", True)]
    + [(who, False) for who in ("sender", "administrator", "grandparent", "child", "recipient")],
)
def test_who_reads_the_transcript_of_a_run(desk: Context, runs_dir: Path, who: str, may: bool) -> None:
    top, other = agent(desk), agent(desk)
    parent = agent(top.desk)
    target = agent(parent.desk)
    right = {"reader": READ, "sender": SEND, "administrator": ADMINISTER}.get(who)
    if right:
        grants.grant(desk, target.id, other.id, right)
    if who == "recipient":
        deliveries.send(desk, other.id, str(messages.put(target.desk, "plaintext", '{"text": "x"}')["message_id"]))
    family = {"itself": target, "parent": parent, "grandparent": top, "child": agent(target.desk)}
    outcomes.submit(target.desk, "result", "That.")
    caller = family.get(who, other).desk
    before = snapshot(runs_dir, locks=False)
    assert (target.id in listings(caller)) is may
    for look in TRANSCRIPT.values():
        if may:
            assert look(caller, target.id) != ([], [])
            continue
        for run_id in (target.id, short(target.id)):
            with pytest.raises(RunNotFound) as caught:
                look(caller, run_id)
            assert caught.value.message == f"Run ID not found: {run_id}"
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("X15")
def test_a_child_without_any_grant_may_ask_on_its_own_run_and_on_no_other(desk: Context, runs_dir: Path) -> None:
    parent = agent(desk)
    child, sibling = agent(parent.desk), agent(parent.desk)
    for capability in CAPABILITIES:
        grants.grant(parent.desk, sibling.id, child.id, capability)
        grants.revoke(parent.desk, child.id, parent.id, capability)
    question = questions.ask(child.desk, "Which?")["messageId"]
    assert [item["message_id"] for item in questions.pending(parent.desk)[0]] == [question]
    questions.reply(parent.desk, question, "That.")
    assert questions.check(child.desk, question)["answer"] == "That."
    with refused(runs_dir, RunNotFound, "run_not_found"):
        questions.ask(child.desk, "Which?", run=parent.id)
    with refused(runs_dir, Denied, "not_granted"):
        questions.ask(child.desk, "Which?", run=sibling.id)


@pytest.mark.case("C3-42", "C3-16")
def test_a_transcript_is_there_as_long_as_it_is_granted(cli: Command, grader: Env, ids: tuple[str, str]) -> None:
    critic, _ = ids

    def codes() -> set[int]:
        return {cli(verb, critic, env=grader).code for verb in ("status", "logs", "events", "tree")}

    assert codes() == {3}
    cli("grant", "critic", "grader", "send_messages")
    assert codes() == {3}
    cli("grant", "critic", "grader", "read_transcript")
    assert codes() == {0}
    assert [row["runId"] for row in cli("list", "--json", env=grader).json].count(critic) == 1
    cli("revoke", "critic", "grader", "read_transcript")
    assert codes() == {3}
    assert critic not in cli("list", "--json", env=grader).out


@pytest.fixture
def nothing_stays(runs_dir: Path) -> Iterator[None]:
    with all_ended(runs_dir):
        yield


@pytest.mark.case("C3-10", "C3-11")
@pytest.mark.usefixtures("nothing_stays")
def test_a_worker_that_starts_others_has_its_rights_on_them_and_they_have_none_on_it(
    cli: Command, runs_dir: Path
) -> None:
    script = """
        subagent spawn --task inner --json -- sh -c 'subagent grants --json; subagent grant $SUBAGENT_PARENT \
            $SUBAGENT_RUN_ID read_transcript; echo $?; subagent logs $SUBAGENT_PARENT; echo $?' > told
        subagent wait > /dev/null; subagent grants --json
    """
    parent = started(cli, "--max-depth", "2", script=script)
    over(cli, parent)
    [child] = json.loads(Path("told").read_bytes())["agent_ids"]
    rows = json.loads(cli("result", parent).out)
    assert [(row["grantor"], row["grantee"], row["target"]) for row in rows] == [(parent, parent, child)] * 3
    assert sorted(row["capability"] for row in rows) == sorted(CAPABILITIES)
    assert rows == cli("grants", "--target", child, "--json").json
    assert cli("result", child).out == "[]\n5\n3\n"


def test_a_shell_completes_the_runs_that_are_meant(cli: Command, ids: tuple[str, str]) -> None:
    for words in (["grant", "cri"], ["grant", "x", "cri"], ["revoke", "x", "cri"], ["grants", "--target", "cri"]):
        env = {"_SUBAGENT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["subagent", *words])}
        done = cli(env={**env, "COMP_CWORD": str(len(words))})
        assert (done.code, done.out) == (0, "plain,critic\n"), words


def test_a_terminal_gets_headings(cli: Command, runs_dir: Path, ids: tuple[str, str]) -> None:
    cli("grant", "critic", "grader", "read_transcript")
    code, painted = on_terminal(runs_dir, "grants")
    assert code == 0
    for word in ("TARGET", "GRANTEE", "CAPABILITY", "EXPIRES", *map(short, ids), "read_transcript", "operator"):
        assert word in painted

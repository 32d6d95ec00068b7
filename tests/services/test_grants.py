"""Grants: who may do what with which run, who may give that on, what goes when it is taken back, and who sees it."""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subagent_cli.core import command as wanted
from subagent_cli.core.errors import Denied, RunNotFound, SubagentError
from subagent_cli.core.grant import ADMINISTER, CAPABILITIES, OPERATOR, READ, SEND
from subagent_cli.services import clean, grants, launches, listing, logs, runs, spawns, specs, trees, waiting
from subagent_cli.services.context import Context, Payload, open_context, token_hash
from subagent_cli.services.launches import Request
from subagent_cli.services.settings import Caller
from subagent_cli.store.alive import Claim
from tests.cli.living import all_ended
from tests.services.desk import StillClock, journal, snapshot

NOBODY = "0190a000-0000-7000-8000-000000000000"
HOUR = 3_600_000

VERBS: dict[str, Callable[..., Payload]] = {"grant": grants.grant, "revoke": grants.revoke}
Rows = set[tuple[str, str, str]]

# Every way to write one id.
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "without dashes": lambda run_id: run_id.replace("-", ""),
    "upper case without dashes": lambda run_id: run_id.replace("-", "").upper(),
    "mixed case": lambda run_id: run_id[:18].upper() + run_id[18:],
    "dashes elsewhere": lambda run_id: "-".join(run_id.replace("-", "")[at : at + 4] for at in range(0, 32, 4)),
}


class Agent(NamedTuple):
    """A run, and the world as its own worker sees it."""

    id: str
    desk: Context


def agent(by: Context, name: str | None = None) -> Agent:
    """A new run, a moment later than whatever was before it."""
    if isinstance(by.clock, StillClock):
        by.clock.wait()
    made = runs.create(by, "helper", "Do it", name=name)
    return Agent(made["runId"], by._replace(caller=Caller(made["runId"], made["env"]["SUBAGENT_TOKEN"])))


def rows(desk: Context, target: str | None = None) -> Rows:
    """Who gave what to whom, as far as somebody sees it."""
    return {(row["grantor"], row["grantee"], row["capability"]) for row in grants.listed(desk, target)}


def parents_rows(parent: Agent) -> Rows:
    return {(parent.id, parent.id, capability) for capability in CAPABILITIES}


def stored(runs_dir: Path, run_id: str) -> list[dict[str, Any]]:
    """What the journal of a run says about grants."""
    return [event for event in journal(runs_dir, run_id) if event["type"] in ("granted", "revoked")]


def denied(runs_dir: Path, call: Callable[..., object], *words: object, **options: Any) -> str:
    """The words in which something is refused that is not granted; it leaves no trace."""
    before = snapshot(runs_dir, locks=False)
    with pytest.raises(Denied) as caught:
        call(*words, **options)
    assert caught.value.code == "not_granted"
    assert snapshot(runs_dir, locks=False) == before
    return caught.value.message


def reads(agent: Agent, target: Agent) -> bool:
    """Whether one agent can read the transcript of another."""
    try:
        logs.tail(agent.desk, target.id)
    except RunNotFound:
        return False
    return True


@pytest.fixture
def house(runs_dir: Path, clock: StillClock) -> Iterator[Context]:
    """The operator, where trees may be two deep, and whose runs all end with the test."""
    with all_ended(runs_dir):
        yield open_context({"runs_dir": str(runs_dir), "max_depth": "2"}, clock)


BEGINNINGS: dict[str, Callable[[Context], str]] = {
    "create": lambda parent: str(runs.create(parent, "helper", "Do it")["runId"]),
    "run": lambda parent: str(launches.run(parent, Request("Do it", command=("true",)))["runId"]),
    "spawn": lambda parent: str(spawns.spawn(parent, [Request("Do it", command=("true",))])["agent_ids"][0]),
}


@pytest.mark.case("C3-10", "C3-11")
@pytest.mark.parametrize("way", BEGINNINGS)
def test_whoever_starts_a_run_has_each_capability_on_it_and_the_run_has_none(
    house: Context, runs_dir: Path, way: str
) -> None:
    parent = agent(house)
    child = BEGINNINGS[way](parent.desk)
    given = [(event["type"], event["grantor"], event["grantee"]) for event in stored(runs_dir, child)]
    assert given == [("granted", parent.id, parent.id)] * 3
    assert rows(house, child) == parents_rows(parent)
    assert rows(house, parent.id) == set()
    assert rows(parent.desk) == parents_rows(parent)
    assert {row["target"] for row in grants.listed(parent.desk)} == {child}
    if way != "create":
        waiting.for_runs(parent.desk, [child])


@pytest.mark.case("C3-11")
def test_a_child_can_neither_give_nor_read_nor_see_anything_of_its_parent(desk: Context, runs_dir: Path) -> None:
    parent = agent(desk)
    child = agent(parent.desk)
    assert rows(child.desk) == set()
    assert not reads(child, parent)
    assert denied(runs_dir, grants.grant, child.desk, parent.id, child.id, READ)


def test_what_the_operator_starts_is_granted_to_nobody(desk: Context, runs_dir: Path) -> None:
    first, second = agent(desk), agent(desk)
    assert grants.listed(desk) == []
    assert not reads(second, first)
    assert not (runs_dir / ".index" / "grants").exists()


@pytest.mark.case("C3-02")
@settings(max_examples=20)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=9))
def test_below_a_run_is_what_it_made_and_what_that_made_and_so_on(
    tmp_path_factory: pytest.TempPathFactory, above: list[int]
) -> None:
    """Any tree: each run is made by one of those before it."""
    house = open_context({"runs_dir": str(tmp_path_factory.mktemp("tree") / "runs")}, StillClock())
    family = [agent(house)]
    made: dict[str, list[str]] = {family[0].id: []}
    for number in above:
        parent = family[number % len(family)]
        family.append(agent(parent.desk))
        made[parent.id].append(family[-1].id)
        made[family[-1].id] = []

    def grown(run_id: str) -> dict[str, Any]:
        return {"runId": run_id, "children": [grown(child) for child in made[run_id]]}

    def shown(row: Payload) -> dict[str, Any]:
        return {"runId": row["runId"], "children": list(map(shown, row["children"]))}

    for member in family:
        found, faults = trees.tree(house, member.id)
        assert (list(map(shown, found)), faults) == ([grown(member.id)], [])
        below, _ = listing.find(house, parent=member.id)
        assert [row["runId"] for row in below] == made[member.id][::-1]
        assert {row["parentId"] for row in below} <= {member.id}


@pytest.mark.case("C3-12", "C3-16")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("who", ["stranger", "itself", "sibling", "grandparent", "reader", "sender", "former"])
def test_without_the_right_to_administer_nobody_gives_or_takes(
    desk: Context, runs_dir: Path, who: str, verb: str
) -> None:
    top = agent(desk)
    parent = agent(top.desk)
    target, sibling = agent(parent.desk), agent(parent.desk)
    caller = {"itself": target, "sibling": sibling, "grandparent": top}.get(who) or agent(desk)
    if who in ("reader", "sender"):
        grants.grant(parent.desk, target.id, caller.id, READ if who == "reader" else SEND)
    if who == "former":
        grants.grant(parent.desk, target.id, caller.id, ADMINISTER)
        grants.revoke(parent.desk, target.id, caller.id, ADMINISTER)
    for capability in CAPABILITIES:
        told = denied(runs_dir, VERBS[verb], caller.desk, target.id, caller.id, capability)
        assert told == f"No permission to administer grants for agent {target.id}"


@pytest.mark.case("C3-12", "C3-17")
@pytest.mark.parametrize("form", FORMS)
def test_of_an_agent_that_is_not_there_one_hears_the_same(desk: Context, runs_dir: Path, form: str) -> None:
    caller, target = agent(desk), agent(desk)
    for run_id in (target.id, NOBODY):
        told = denied(runs_dir, grants.grant, caller.desk, FORMS[form](run_id), caller.id, READ)
        assert told == f"No permission to administer grants for agent {run_id}"


@pytest.mark.case("C3-17")
@pytest.mark.parametrize("missing", ["target", "grantee"])
@pytest.mark.parametrize("word", [NOBODY, "nobody", "dead", "@lastx"])
def test_a_grant_is_between_agents_that_are_there(desk: Context, runs_dir: Path, missing: str, word: str) -> None:
    parent = agent(desk)
    child = agent(parent.desk)
    pair = (word, child.id) if missing == "target" else (child.id, word)
    before = snapshot(runs_dir, locks=False)
    for giver, verb in product((desk, parent.desk), VERBS):
        if (verb, missing, word) == ("revoke", "grantee", NOBODY):
            # Of an agent that was removed one takes back what it had; here that is nothing.
            assert grants.revoke(giver, *pair, READ)["revoked"] == 0
            continue
        with pytest.raises(SubagentError) as caught:
            VERBS[verb](giver, *pair, READ)
        hidden = giver is parent.desk and missing == "target" and word == NOBODY
        expected = "not_granted" if hidden else "invalid_run_id" if "@" in word else "run_not_found"
        assert caught.value.code == expected
        if missing == "grantee" and "@" not in word:
            assert caught.value.message == f"there is no agent {word} to give it to"
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C3-13")
@pytest.mark.parametrize("by", ["operator", "parent"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_granting_twice_is_granting_once(
    desk: Context, runs_dir: Path, clock: StillClock, by: str, capability: str
) -> None:
    parent = agent(desk)
    child, other = agent(parent.desk), agent(desk)
    giver = desk if by == "operator" else parent.desk
    first = grants.grant(giver, child.id, other.id, capability)
    pair = {"target": child.id, "grantee": other.id}
    assert first == {"success": True, **pair, "capability": capability, "warnings": []}
    before = snapshot(runs_dir, locks=False)
    clock.wait()
    assert grants.grant(giver, child.id, other.id, capability) == first
    # What a parent has by having started it is there too.
    assert grants.grant(parent.desk, child.id, parent.id, capability)["success"] is True
    assert snapshot(runs_dir, locks=False) == before
    grantor = OPERATOR if by == "operator" else parent.id
    assert rows(desk, child.id) - parents_rows(parent) == {(grantor, other.id, capability)}
    assert len(grants.listed(desk, child.id)) == 4


@pytest.mark.case("C3-15")
def test_whoever_may_administer_may_hand_that_on_and_so_may_the_next(desk: Context, runs_dir: Path) -> None:
    parent = agent(desk)
    child = agent(parent.desk)
    chain = [parent, *(agent(desk) for _ in range(3))]
    for giver, receiver in pairwise(chain):
        grants.grant(giver.desk, child.id, receiver.id, ADMINISTER)
        # Not more than that: it neither reads nor sends, but may give itself what it wants.
        assert not reads(receiver, child)
    last = chain[-1]
    grants.grant(last.desk, child.id, last.id, READ)
    assert reads(last, child)
    grants.revoke(parent.desk, child.id, chain[1].id, ADMINISTER)
    assert denied(runs_dir, grants.grant, chain[1].desk, child.id, chain[1].id, READ)
    # What it had given before stands until somebody takes that back.
    grants.grant(chain[2].desk, child.id, chain[2].id, SEND)
    assert rows(desk, child.id) - parents_rows(parent) == {
        (chain[1].id, chain[2].id, ADMINISTER),
        (chain[2].id, last.id, ADMINISTER),
        (last.id, last.id, READ),
        (chain[2].id, chain[2].id, SEND),
    }


@pytest.mark.case("C3-18", "C3-14")
def test_one_takes_back_ones_own_and_access_falls_with_the_last(desk: Context, runs_dir: Path) -> None:
    parent = agent(desk)
    child, other, reader = agent(parent.desk), agent(desk), agent(desk)
    grants.grant(parent.desk, child.id, other.id, ADMINISTER)
    for giver in (parent.desk, other.desk, desk):
        grants.grant(giver, child.id, reader.id, READ)
    assert rows(reader.desk) == {(grantor, reader.id, READ) for grantor in (parent.id, other.id, OPERATOR)}
    left = [other.id, OPERATOR]
    for giver in (parent.desk, other.desk, desk):
        assert reads(reader, child)
        done = grants.revoke(giver, child.id, reader.id, READ)
        assert (done["success"], done["revoked"], done["stillGrantedBy"]) == (True, 1, left)
        left = left[1:]
    assert not reads(reader, child)
    assert rows(reader.desk) == set()


@pytest.mark.case("C3-18")
def test_what_one_did_not_give_one_does_not_take(desk: Context, runs_dir: Path) -> None:
    parent = agent(desk)
    child, other, reader = agent(parent.desk), agent(desk), agent(desk)
    grants.grant(parent.desk, child.id, other.id, ADMINISTER)
    grants.grant(parent.desk, child.id, reader.id, READ)
    before = snapshot(runs_dir, locks=False)
    for giver in (desk, other.desk):
        done = grants.revoke(giver, child.id, reader.id, READ)
        assert (done["success"], done["revoked"], done["stillGrantedBy"]) == (True, 0, [parent.id])
    assert grants.revoke(parent.desk, child.id, reader.id, SEND)["stillGrantedBy"] == []
    assert snapshot(runs_dir, locks=False) == before


@pytest.mark.case("C3-18")
def test_the_operator_takes_back_what_anybody_gave(desk: Context, runs_dir: Path) -> None:
    parent = agent(desk)
    child, reader = agent(parent.desk), agent(desk)
    for giver in (desk, parent.desk):
        grants.grant(giver, child.id, reader.id, READ)
    assert denied(runs_dir, grants.revoke, parent.desk, child.id, reader.id, READ, everything=True)
    done = grants.revoke(desk, child.id, reader.id, READ, everything=True)
    assert (done["revoked"], done["stillGrantedBy"]) == (2, [])
    assert rows(desk, child.id) == parents_rows(parent)
    assert not reads(reader, child)


@pytest.mark.case("C3-19")
def test_one_sees_what_one_has_and_all_where_one_administers(desk: Context, runs_dir: Path) -> None:
    parent = agent(desk)
    first, second = agent(parent.desk), agent(parent.desk)
    reader, admin, nobody = agent(desk), agent(desk), agent(desk)
    grants.grant(parent.desk, first.id, reader.id, READ)
    grants.grant(parent.desk, first.id, admin.id, ADMINISTER)
    grants.grant(parent.desk, second.id, reader.id, SEND)
    own = parents_rows(parent)
    on_first = own | {(parent.id, reader.id, READ), (parent.id, admin.id, ADMINISTER)}
    on_second = own | {(parent.id, reader.id, SEND)}

    def seen(desk: Context) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        for row in grants.listed(desk):
            found.setdefault(row["target"], set()).add((row["grantor"], row["grantee"], row["capability"]))
        return found

    before = snapshot(runs_dir, locks=False)
    assert seen(desk) == seen(parent.desk) == {first.id: on_first, second.id: on_second}
    assert seen(admin.desk) == {first.id: on_first}
    assert seen(reader.desk) == {first.id: {(parent.id, reader.id, READ)}, second.id: {(parent.id, reader.id, SEND)}}
    assert seen(nobody.desk) == seen(first.desk) == {}
    assert rows(reader.desk, first.id) == {(parent.id, reader.id, READ)}
    assert rows(first.desk, first.id) == set()
    for who, target in ((nobody, first.id), (admin, second.id), (second, first.id), (nobody, NOBODY)):
        with pytest.raises(RunNotFound) as caught:
            grants.listed(who.desk, target)
        assert caught.value.message == f"Run ID not found: {target}"
    assert snapshot(runs_dir, locks=False) == before


def test_a_row_says_who_gave_what_to_whom_when_and_until_when(desk: Context, clock: StillClock) -> None:
    target, reader = agent(desk), agent(desk)
    clock.ms = 1_800_000_000_000
    grants.grant(desk, target.id, reader.id, READ, lasts=HOUR)
    row = {"target": target.id, "grantee": reader.id, "capability": READ, "grantor": OPERATOR}
    stamps = {"granted_at": "2027-01-15T08:00:00.000Z", "expires_at": "2027-01-15T09:00:00.000Z"}
    assert grants.listed(desk, target.id) == [{**row, **stamps}]


def test_a_grant_lasts_as_long_as_was_said_whatever_the_wall_clock_says(desk: Context, clock: StillClock) -> None:
    target, reader = agent(desk), agent(desk)
    grants.grant(desk, target.id, reader.id, READ, lasts=HOUR)
    clock.wait(HOUR)
    clock.ms += 5 * HOUR
    assert reads(reader, target)
    assert rows(reader.desk) == {(OPERATOR, reader.id, READ)}
    clock.up += 1
    clock.ms -= 20 * HOUR
    assert not reads(reader, target)
    assert rows(reader.desk) == rows(desk, target.id) == set()


@pytest.mark.parametrize(("again", "after"), [(None, True), (2 * HOUR, True), (HOUR // 2, False)])
def test_what_is_given_again_lasts_as_was_said_last(
    desk: Context, clock: StillClock, again: int | None, after: bool
) -> None:
    target, reader = agent(desk), agent(desk)
    grants.grant(desk, target.id, reader.id, READ, lasts=HOUR)
    clock.wait(HOUR // 4)
    grants.grant(desk, target.id, reader.id, READ, lasts=again)
    assert len(grants.listed(desk, target.id)) == 1
    clock.wait(HOUR)
    assert reads(reader, target) is after


def test_a_right_that_has_run_out_gives_nothing_more_and_what_it_gave_stays(
    desk: Context, runs_dir: Path, clock: StillClock
) -> None:
    target, admin, reader = agent(desk), agent(desk), agent(desk)
    grants.grant(desk, target.id, admin.id, ADMINISTER, lasts=HOUR)
    grants.grant(admin.desk, target.id, reader.id, READ)
    clock.wait(HOUR + 1)
    assert denied(runs_dir, grants.grant, admin.desk, target.id, reader.id, SEND)
    assert denied(runs_dir, grants.revoke, admin.desk, target.id, reader.id, READ)
    assert reads(reader, target)
    grants.grant(desk, target.id, admin.id, ADMINISTER)
    assert grants.revoke(admin.desk, target.id, reader.id, READ)["revoked"] == 1


def test_a_grant_that_cannot_be_shown_everywhere_is_given_with_a_warning(desk: Context, runs_dir: Path) -> None:
    target, reader = agent(desk), agent(desk)
    (runs_dir / target.id / ".meta.json").unlink()
    (runs_dir / target.id / f".meta.json.{os.getpid()}.tmp").mkdir()
    for verb, after in (("grant", True), ("revoke", False)):
        done = VERBS[verb](desk, target.id, reader.id, READ)
        assert done["success"] is True
        [warning] = done["warnings"]
        assert warning.startswith("the change is safe in the journal, but .meta.json is not up to date")
        assert reads(reader, target) is after


def called(
    monkeypatch: pytest.MonkeyPatch, runs_dir: Path, clock: StillClock, run_id: str, token: str
) -> Context | None:
    """The context of somebody who calls with this identity; None where it is denied."""
    monkeypatch.setenv("SUBAGENT_RUN_ID", run_id)
    monkeypatch.setenv("SUBAGENT_TOKEN", token)
    try:
        return open_context({"runs_dir": str(runs_dir)}, clock)
    except Denied:
        return None
    finally:
        monkeypatch.undo()


@pytest.mark.case("C3-43")
def test_a_credential_is_good_from_the_start_while_idle_and_until_the_run_is_gone(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = runs.create(desk, "helper", "Do it")
    run_id, token = made["runId"], made["env"]["SUBAGENT_TOKEN"]

    def good() -> bool:
        return called(monkeypatch, runs_dir, clock, run_id, token) is not None

    assert good()
    runs.update(desk, run_id, "success")
    clock.wait(1000 * HOUR)
    assert good()
    clean.delete(desk, clean.plan(desk, [run_id]))
    assert not good()


@pytest.mark.case("C3-43")
def test_a_later_attempt_has_a_credential_of_its_own(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [desk.clock.new_token() for _ in range(3)]
    spec = specs.new_spec(desk, "helper", "Do it", tokens[0])
    run_id, claim = spec["runId"], Claim()
    desk.runs.create({**spec, "argv": ["helper"]}, "Do it", "running", clock.now(), None, claim)

    def good() -> list[bool]:
        return [called(monkeypatch, runs_dir, clock, run_id, token) is not None for token in tokens]

    for number in range(3):
        assert good() == [attempt == number for attempt in range(3)]
        desk.runs.change(run_id, wanted.Exit(number + 1, 0), clock.now)
        claim.drop()
        assert good() == [attempt == number for attempt in range(3)]
        if number < 2:
            order = wanted.Resume("helper", "Go on.", token_hash(tokens[number + 1]))
            desk.runs.change(run_id, order, clock.now)


@pytest.mark.case("C3-47")
@pytest.mark.parametrize("form", FORMS)
def test_an_id_means_the_same_agent_in_whatever_form_it_is_typed(
    desk: Context, runs_dir: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    typed = FORMS[form]
    parent = agent(desk)
    child, other = agent(parent.desk), agent(desk)
    token = parent.desk.caller.token
    caller = called(monkeypatch, runs_dir, clock, typed(parent.id), token or "")
    assert caller is not None
    done = grants.grant(caller, typed(child.id), typed(other.id), READ)
    assert (done["target"], done["grantee"]) == (child.id, other.id)
    assert rows(desk, child.id) == parents_rows(parent) | {(parent.id, other.id, READ)}
    assert rows(caller, typed(child.id)) == rows(desk, typed(child.id))
    assert [line["text"] for line in logs.tail(other.desk, typed(child.id))] == []
    # Whoever starts a run in another form is its parent all the same.
    grandchild = agent(caller)
    assert rows(caller, grandchild.id) == parents_rows(parent)
    assert grants.revoke(caller, typed(child.id), typed(other.id), READ)["revoked"] == 1
    assert not reads(other, child)

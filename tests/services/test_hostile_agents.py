"""Hostile agents: whoever is not entitled gets the answer that it would get if there were nothing, and changes nothing.

Every attempt is made twice: where the thing is, and in a twin of that place where it never was. Both answers are the
same to the letter, and no file of the place has changed by a byte. Beside them stand those who are entitled to the
same, so that the attempts can be seen to fail for want of a right and not for want of sense.
"""

import json
from collections.abc import Callable
from io import BytesIO
from itertools import product

import pytest

from subagent_cli.core.grant import CAPABILITIES, READ
from subagent_cli.services import (
    archives,
    cancellation,
    clean,
    deliveries,
    doctor,
    grants,
    links,
    listing,
    questions,
    runs,
    sweep,
    trees,
    waiting,
)
from tests.services.hostile import LASTED, RUNS, SECRET, Act, Attempt, Places, folder, on, places, plain, said
from tests.services.hostile_verbs import ANSWERS, CHANGES, FANS, LETTERS, LISTS, LOOKS, SPELLINGS, TEXT, VERBS, WORDS

__all__ = ["folder", "places"]

AT_LEAST = 200


def gift(target: str, grantee: str, capability: str, spelled: Callable[[str], str] = str) -> Act:
    return lambda place, context: grants.grant(context, spelled(place.id(target)), place.id(grantee), capability)


def name_of(attempt: Attempt) -> str:
    return f"{attempt.who}: {attempt.name}".encode("ascii", "replace").decode()


FORMER = ("former", "late", "heir")
PARTIAL = ("reader", "sender", "keeper", "estranged")
# Those who are nothing to each other, and those who only seem to be something to each other.
PAIRS = [
    *(("stranger", target) for target in ("parent", "bystander", "again")),
    *(("second", "first"), ("second", "parent"), ("first", "parent"), ("first", "second"), ("owned", "stranger")),
    *(("leaf", "first"), ("leaf", "parent"), ("parent", "leaf"), ("parent", "victim"), ("spawner", "victim")),
    *(("left", "right"), ("left", "spawner"), ("victim", "bystander")),
]
APART = ["stranger>request", "second>order", "leaf>report", "first>critique", "parent>aside", "former>letter"]
APART += ["owned>own", "reader>letter", "sender>request"]
UNASKED = ["stranger>victim open", "former>victim closed", "second>first open", "parent>leaf open", "leaf>first open"]
SHORT = ("status", "wait", "pending", "tree", "cancel", "reply", "send", "update")
HOW = ("whole", "no dashes", "last 8")
# Of a run on which one has a capability one may hear, and see what one has there.
KNOWN_OF = {"sender": ("pending", "pending --wait", "grants", "@last"), "keeper": ("grants", "@last")}
KNOWN_OF |= {"estranged": ("pending", "pending --wait", "@last"), "reader": ("wait",)}

NAMED = [
    Attempt(f"{verb} victim", who, on(VERBS[verb], "victim"))
    for who, verb in product(("stranger", "former", "late"), VERBS)
]
SPELLED = [
    Attempt(f"{verb} victim, {how}", "stranger", on(VERBS[verb], "victim", SPELLINGS[how]))
    for verb, how in product(("status", "reply", f"grant {READ}"), SPELLINGS)
]
WORDED = [
    Attempt(f"{verb} {word[:20]!r}", "second", on(VERBS[verb], word))
    for verb, word in product(("wait", "reply"), WORDS)
]
RELATED = [Attempt(f"{verb} {target}", who, on(VERBS[verb], target)) for (who, target), verb in product(PAIRS, SHORT)]
LISTED = [
    Attempt(verb, who, plain(LISTS[verb]))
    for who, verb in product(RUNS, LISTS)
    if who not in ("owned", "heir", "left") and verb not in KNOWN_OF.get(who, ())
]
LETTERED = [
    Attempt(f"{verb} {word}, {how}", who, on(LETTERS[verb], word, SPELLINGS[how]))
    for (who, word), verb, how in product(
        [word.split(">") for word in APART],
        LETTERS,
        HOW,
    )
]
QUESTIONED = [
    Attempt(f"{verb} {word}, {how}", who, on(ANSWERS[verb], word, SPELLINGS[how]))
    for (who, word), verb, how in product(
        [word.split(">") for word in UNASKED],
        ANSWERS,
        HOW,
    )
]
FANNED = [
    Attempt(f"{verb} group, {how}", who, on(FANS[verb], "group", SPELLINGS[how]))
    for who, verb, how in product(("stranger", "left"), FANS, HOW)
]
GIVEN = [
    # To oneself, by every spelling.
    *(
        Attempt(f"{one} on {target}, {how}", who, gift(target, who, one, SPELLINGS[how]))
        for (who, target), one, how in product([("stranger", "victim"), ("leaf", "first")], CAPABILITIES, HOW)
    ),
    # On what is above one and below one's child, on what one had, through a child, for a child, on oneself.
    *(
        Attempt(f"{one} on {target} for {grantee}", who, gift(target, grantee, one))
        for (who, target, grantee), one in product(
            [("second", "parent", "second"), ("parent", "leaf", "parent"), ("second", "second", "second")]
            + [("owned", "victim", "stranger"), ("stranger", "victim", "owned")]
            + [(who, "victim", "stranger") for who in FORMER],
            CAPABILITIES,
        )
    ),
    *(
        Attempt(f"the capability {word!r}", "stranger", gift("victim", "stranger", word))
        for word in ("", "*", "all", "READ_TRANSCRIPT", "operator", "stop", "know", f"{READ} ")
    ),
]
# Beside the run, the question or the message that one may ask about.
ASIDE: dict[str, Act] = {
    "stranger: check in its own run": lambda p, c: questions.check(c, p.id("victim open"), run="stranger"),
    "stranger: check in the run": lambda p, c: questions.check(c, p.id("victim open"), run=p.id("victim")),
    "stranger: reply in the run": lambda p, c: questions.reply(c, p.id("victim"), "", message=p.id("victim open")),
    "stranger: reply in a child": lambda p, c: questions.reply(c, p.id("owned"), "", message=p.id("victim open")),
    "parent: wait for a child": lambda p, c: waiting.for_runs(c, [p.id("first")], timeout=0),
    "parent: status of a child": lambda p, c: runs.status(c, p.id("first")),
    "parent: tree of a child": lambda p, c: trees.tree(c, p.id("first"), everything=True),
    "parent: children of a child": lambda p, c: listing.find(c, parent=p.id("first")),
    "stranger: list a group by a run of it": lambda _, c: listing.find(c, group="left"),
    "parent: wait for its own and another's": lambda p, c: waiting.for_runs(c, ["first", p.id("leaf")], timeout=0),
    "parent: export its own and another's": lambda p, c: archives.export(c, ["first", p.id("leaf")], BytesIO()),
    "parent: cancel its own and another's": lambda p, c: cancellation.cancel(c, ["first", p.id("leaf")]),
    "stranger: send it to its author": lambda p, c: deliveries.send(c, p.id("victim"), p.id("request")),
    "first: send on what came": lambda p, c: deliveries.send(c, p.id("second"), p.id("order")),
    "first: send back what came": lambda p, c: deliveries.send(c, p.id("parent"), p.id("order")),
    "stranger: send in reply": lambda p, c: deliveries.send(
        c, "owned", schema="plaintext", content=TEXT, in_reply_to=p.id("request")
    ),
}
BESIDE = [Attempt(name.split(": ")[1], name.split(": ")[0], act) for name, act in ASIDE.items()]
OPERATORS: dict[str, Act] = {
    "sweep": lambda _, c: sweep.sweep(c, max_age=1),
    "sweep --dry-run": lambda _, c: sweep.sweep(c, dry_run=True),
    "doctor": lambda _, c: doctor.check(c),
    "doctor --fix RUN": lambda p, c: doctor.check(c, [p.id("victim")], fix=True),
    "clean": lambda _, c: clean.plan(c, older_than="1s"),
    "clean RUN": lambda p, c: clean.plan(c, [p.id("bystander")]),
    "export": lambda p, c: archives.export(c, [p.id("victim")], BytesIO()),
    "export --all": lambda _, c: archives.export(c, [], BytesIO(), everything=True),
    "import": lambda _, c: archives.take_in(c, "there-is-none.zip"),
    "link": lambda p, c: links.link(c, [p.id("victim")]),
    "link --all": lambda _, c: links.link(c, [], active=True),
}
RESERVED = [Attempt(name, who, act) for who, (name, act) in product(("stranger", "parent"), OPERATORS.items())]
SEEN = [*NAMED, *SPELLED, *WORDED, *RELATED, *LISTED, *LETTERED, *QUESTIONED, *FANNED, *GIVEN, *BESIDE, *RESERVED]


@pytest.mark.case("C3-11", "C3-12", "C3-19", "C3-29", "C3-33", "C3-42", "C3-47")
@pytest.mark.parametrize("attempt", SEEN, ids=name_of)
def test_what_is_not_an_agents_own_is_not_there(places: Places, attempt: Attempt) -> None:
    told, changed = places.told(attempt.who, attempt.act)
    absent = places.twin(attempt.who)
    assert told == said(absent, absent.seen_by(attempt.who), attempt.act)
    assert changed == []


HEARS = ("pending", "pending --wait", "grants --target", "reply", "reply --all")
# What those may who have one capability, or who only started the run.
MAY: dict[tuple[str, str], tuple[str, ...]] = {
    ("reader", "victim"): tuple(LOOKS),
    ("sender", "victim"): (*HEARS, "send", "wake"),
    ("keeper", "victim"): (
        *("grants --target", "resume", "retry"),
        *(name for name in CHANGES if name.startswith(("grant", "revoke"))),
    ),
    ("estranged", "runaway"): (*HEARS, "update", "cancel"),
}
SEPARATE = [
    Attempt(f"{verb} {target}", who, on(VERBS[verb], target))
    for (who, target), may in MAY.items()
    for verb in VERBS
    if verb not in may
]


@pytest.mark.case("C3-16", "C3-18")
@pytest.mark.parametrize("attempt", SEPARATE, ids=name_of)
def test_one_capability_is_not_another(places: Places, attempt: Attempt) -> None:
    told, changed = places.told(attempt.who, attempt.act)
    assert told.refused in ("run_not_found", "not_granted"), told
    assert SECRET not in told.text
    assert changed == []


@pytest.mark.case("C3-19")
@pytest.mark.parametrize("verb", ["grants", "grants --target"])
def test_whoever_has_a_grant_sees_it_and_only_whoever_administers_sees_the_others(places: Places, verb: str) -> None:
    place = places.place
    act = plain(LISTS[verb]) if verb in LISTS else on(VERBS[verb], "victim")
    for who in ("reader", "sender", "keeper"):
        rows = json.loads(said(place, place.seen_by(who), act).text)
        there = {row["grantee"] for row in rows if row["target"] == place.id("victim")}
        assert place.id(who) in there
        assert (there == {place.id(who)}) == (who != "keeper")


def test_there_are_attempts_enough() -> None:
    assert len({name_of(attempt) for attempt in [*SEEN, *SEPARATE]}) >= AT_LEAST


# The same by those who may: that a run has not ended, or was not started by us, is then the worst that is said.
RIGHTFUL = [
    *(Attempt(f"{verb} victim", "operator", on(VERBS[verb], "victim")) for verb in VERBS),
    *(Attempt(f"{verb} bystander", "operator", on(VERBS[verb], "bystander")) for verb in ("result", "logs", "wait")),
    *(Attempt(f"{verb} first", "parent", on(VERBS[verb], "first")) for verb in VERBS if verb not in ("ask", "tell")),
    *(Attempt(f"{verb} {of}", who, on(VERBS[verb], of)) for (who, of), may in MAY.items() for verb in may),
    *(Attempt(f"{verb} itself", "first", on(VERBS[verb], "first")) for verb in ("status", "ask", "tell", "update")),
    *(Attempt(f"{verb} request", "operator", on(LETTERS[verb], "request")) for verb in LETTERS),
    *(Attempt(f"{verb} request", "victim", on(LETTERS[verb], "request")) for verb in LETTERS if verb != "send"),
    *(Attempt(f"{verb} report", "parent", on(LETTERS[verb], "report")) for verb in LETTERS),
    *(Attempt(f"{verb} critique", "parent", on(LETTERS[verb], "critique")) for verb in LETTERS),
    *(Attempt(f"{verb} letter", "victim", on(LETTERS[verb], "letter")) for verb in ("show", "put --in-reply-to")),
    *(Attempt(f"{verb} victim open", "operator", on(ANSWERS[verb], "victim open")) for verb in ANSWERS),
    *(Attempt(f"{verb} first open", "parent", on(ANSWERS[verb], "first open")) for verb in ANSWERS),
    *(Attempt(f"{verb} victim open", "sender", on(ANSWERS[verb], "victim open")) for verb in ("reply",)),
    *(Attempt(f"{verb} group", "spawner", on(FANS[verb], "group")) for verb in FANS if verb != "status as of a run"),
    *(Attempt(f"{one} for stranger", "keeper", gift("victim", "stranger", one)) for one in CAPABILITIES),
    *(Attempt(f"{one} for second", "parent", gift("first", "second", one)) for one in CAPABILITIES),
    *(Attempt(name, "operator", act) for name, act in OPERATORS.items() if name != "import"),
]
WORST = [None, "not_finished", "not_launched", "stalled", "no_reply", "no_question", "no_pending_question"]


@pytest.mark.parametrize("attempt", RIGHTFUL, ids=name_of)
def test_whoever_may_gets_what_others_do_not(places: Places, attempt: Attempt) -> None:
    told, _ = places.told(None if attempt.who == "operator" else attempt.who, attempt.act)
    assert told.refused in WORST, told


@pytest.mark.parametrize("verb", VERBS)
def test_what_was_granted_for_a_while_was_a_right_until_then(places: Places, verb: str) -> None:
    told, _ = places.told("late", on(VERBS[verb], "victim"), earlier=2 * LASTED)
    may = {right for who in ("reader", "sender", "keeper") for right in MAY[who, "victim"]}
    assert (told.refused in WORST) == (verb in may), told


@pytest.mark.parametrize("verb", [verb for verb in LISTS if verb not in ("wait", "whoami", "@last")])
def test_the_operator_finds_in_every_list_what_others_do_not(places: Places, verb: str) -> None:
    told, _ = places.told(None, plain(LISTS[verb]))
    hidden = [places.place.id(word)[-8:] for word in ("victim", "request")]
    assert any(word in told.text for word in hidden), told


@pytest.mark.case("C3-47")
@pytest.mark.parametrize(
    "how", ["capitals", "no dashes", "no dashes, capitals", "dashes elsewhere", "first 20", "last 8"]
)
def test_a_spelling_names_what_it_names_for_those_who_may(places: Places, how: str) -> None:
    act = on(VERBS["status --peek"], "victim", SPELLINGS[how])
    for who in (None, "reader"):
        assert f'"runId": "{places.place.id("victim")}"' in places.told(who, act)[0].text


def test_a_word_that_is_nearly_a_name_is_mended_for_those_who_may(places: Places) -> None:
    for who, there in ((None, True), ("reader", True), ("second", False)):
        told, _ = places.told(who, on(VERBS["status"], "victin"))
        assert (told.refused, "('victim'" in told.text) == ("run_not_found", there), told

"""Hostile words wherever a name is wanted, on every verb of the command line, and hostile texts wherever a text is.

Promise: a word that names nothing is refused in one line with a code of ours and changes nothing, inside or outside; a
text comes back letter for letter and does nothing to a terminal. Which verbs there are is asked of the program itself.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from subagent_cli.cli.main import COMMANDS, cli
from subagent_cli.store import codec
from tests.cli.test_bad_input import HOSTILE
from tests.command import Command
from tests.services.test_doctor import powered as powered
from tests.stress.conftest import Told
from tests.stress.inside import Said, call
from tests.stress.inside import quiet as quiet
from tests.stress.mutation import TEXTS
from tests.stress.seed import new_seed
from tests.stress.ward import Ward

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures("quiet", "powered")]

# Somebody else waits there, or the program does not come back.
ENDLESS = {"mcp", "completion"}
# What a parameter has to have for its command to get as far as the word that matters, and which of them are names.
NAMES = {"run", "runs", "message", "target", "grantee", "parent", "group", "in_reply_to", "words", "agent", "name"}
FILES = {"file", "tasks", "request", "requests", "into", "cwd", "after", "key", "plan_step_id", "schema", "shell"}
GOOD: Mapping[str, str] = {
    "task": "Do it",
    "text": "A text.",
    "question": "Which?",
    "capability": "read_transcript",
    "word": "result",
    "schema": "plaintext",
    "content": '{"text": "x"}',
    "mode": "ad_hoc",
    "instructions": "Do it",
    "shell": "bash",
    "agent": "nobody",
    "run": "tidy",
    "target": "tidy",
    "grantee": "boss",
}
# Words that do mean something somewhere.
MEANT = {"tidy", "@last"}
SAMPLE = 14
_WORST = 25


class Place(NamedTuple):
    """Where a word can stand: `words` has a hole for it."""

    name: str
    words: Sequence[str]

    def filled(self, word: str) -> list[str]:
        return [word if part is HOLE else part.replace(HOLE, word) for part in self.words]


HOLE = "<hole>"


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(group, click.Group):
        yield path, group
        return
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        yield from commands(found, (*path, name))


def places() -> list[Place]:
    """Every argument and every option of every verb that takes a word of somebody's."""
    found: list[Place] = []
    for path, command in commands(cli):
        if path[0] in ENDLESS:
            continue
        arguments = [part for part in command.params if isinstance(part, click.Argument)]
        given = [GOOD.get(str(part.name), "tidy") for part in arguments if part.required]
        for place, part in enumerate(arguments):
            others = [GOOD.get(str(other.name), "tidy") for other in arguments if other.required]
            words = [*others[:place], HOLE, *others[place + 1 :]] if part.required or place == 0 else [*others, HOLE]
            found += [Place(f"{' '.join(path)} {part.name}", [*path, "--", *words])]
            if part.nargs == -1:
                # Behind what is good, and in front of it.
                found += [Place(f"{' '.join(path)} {part.name} second", [*path, "--", "tidy", HOLE])]
                found += [Place(f"{' '.join(path)} {part.name} of three", [*path, "--", HOLE, "tidy", "x"])]
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag and option.name in {*NAMES, *FILES}:
                found.append(
                    Place(f"{' '.join(path)} --{option.name}", [*path, f"{option.opts[-1]}={HOLE}", "--", *given])
                )
    return found


# Here a word is no name of ours: it is a text, a key, a new name, a file of the caller's.
FREE = {"create agent", "create task", "create --cwd", "create --name", "create --key", "reply words second"}
FREE |= {"export words second", "export words", "list --name", "events --after", "schema name"}


def words_for(ward: Ward) -> list[str]:
    """Those of the ordinary tests, and what is an id here but of another kind."""
    names = ward.names
    kinds = [names.group, names.letter, names.waiting, names.group[-8:], names.letter[-8:]]
    cases = [
        word for one in kinds for word in (f"../{one}", f"{one}/..", f"{one}.json", f" {one}", f"{one}\n", f"{{{one}}}")
    ]
    looks = [
        names.child.replace("0", "О"),
        names.child.replace("1", "l"),
        names.child.replace("-", "−"),
        "ｔｉｄｙ",
        "tіdy",
    ]
    encoded = ["%2e%2e/%2e%2e", "..%00", "tidy%00", "tidy\0", "tidy/", "./tidy", "tidy/../tidy", "TIDY ", "ti\u200bdy"]
    inner = [
        f".index/names/tidy/{names.child}",
        f"{names.child}/run.json",
        ".index/active",
        f".locks/{names.child}.lock",
    ]
    links = ["link", "link/kept", "../outside", "out-of-here"]
    return [word for word in dict.fromkeys([*HOSTILE, *cases, *looks, *encoded, *inner, *links]) if is_typed(word)]


def is_typed(word: str) -> bool:
    """Whether a program can be called with it; of what is no text it gets some bytes for each of these."""
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    ward = Ward(tmp_path)
    outside = tmp_path / "foreign" / "outside"
    outside.mkdir()
    (outside / ".meta.json").write_bytes(b'{"runId": "x", "status": "running"}')
    (ward.root / "link").symlink_to(outside)
    return ward


def look(root: Path) -> dict[str, tuple[int, ...]]:
    """What the system knows of every file, but for locks and the folder that holds their names."""
    found: dict[str, tuple[int, ...]] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".locks"]
        for name in (*folders, *names):
            known = os.lstat(path := os.path.join(folder, name))
            stamps = (known.st_mtime_ns, known.st_ctime_ns, known.st_size) if name in names else ()
            found[path] = (known.st_ino, known.st_mode, *stamps)
    return found


def test_no_hostile_word_on_any_verb_names_anything_or_changes_anything(
    ward: Ward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    # Two folders deep, so that what lands one above is cleared away too.
    here = tmp_path / "here" / "empty"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    words, where, tried = words_for(ward), places(), 0
    wrong: dict[str, list[str]] = {"faults": [], "not in one line": [], "accepted": [], "changes": []}
    before, seed = look(tmp_path), new_seed()
    chance = random.Random(seed)
    for place in where:
        for word in chance.sample(words, len(words) // 3):
            if word == "-" and place.words[0] == "export":
                # The archive itself comes out there.
                continue
            tried += 1
            said = call(["--runs-dir", str(ward.root), *place.filled(word)])
            text = f"{place.name} {word[:60]!r} (seed {seed}): {said.code} {said.err[:200]!r}"
            if said.is_faulty or said.raw:
                wrong["faults"].append(text)
            if said.code not in (0, 2, 3, 4, 5, 8) or (said.code and not one_line(said)):
                wrong["not in one line"].append(text)
            if not said.code and place.name not in FREE and word not in MEANT:
                wrong["accepted"].append(text)
        after = look(tmp_path)
        changed = sorted({path for path in {*before, *after} if before.get(path) != after.get(path)})
        if changed and place.name not in FREE:
            wrong["changes"].append(f"{place.name}: {[os.path.relpath(path, tmp_path) for path in changed[:4]]}")
        if changed:
            ward.again()
            shutil.rmtree(here.parent)
            here.mkdir(parents=True)
            os.chdir(here)
            before = look(tmp_path)
    lost = ", ".join(f"{len(found)} {what}" for what, found in wrong.items())
    told("hostile words", f"{tried:,} calls: {len(words)} words, {len(where)} places of {len(COMMANDS)} verbs", lost)
    assert not any(wrong.values()), "\n".join(
        f"{what}: {text}" for what, found in wrong.items() for text in found[:_WORST]
    )


def one_line(said: Said) -> bool:
    """What is wrong in one line, what helps below it; nothing on standard output but what status says of nobody."""
    first, *others = said.err.splitlines() or [""]
    helps = ("hint: ", "one of: ", "did you mean: ", "next: ", "  ")
    return (bool(first) or "not_found" in said.out) and all(line.startswith(helps) for line in others)


def test_the_program_itself_refuses_them_as_the_same_call_inside_of_this_process_does(
    ward: Ward, cli: Command, told: Told
) -> None:
    seed, wrong, tried = new_seed(), list[str](), 0
    chance = random.Random(seed)
    words_of_ids = [word for word in words_for(ward) if len(word) < 5000 and word not in MEANT]
    for place in chance.sample([place for place in places() if place.name not in FREE], SAMPLE):
        for word in chance.sample(words_of_ids, 3):
            tried += 1
            words = ["--runs-dir", str(ward.root), *place.filled(word)]
            done, said = cli(*words), call(words)
            if (done.code, done.out, done.err) != (said.code, said.out, said.err) or "Traceback" in done.err:
                wrong.append(f"{place.name} {word[:60]!r} (seed {seed}): {done} {said}")
    told("hostile words to the real program", f"{tried} calls", f"{len(wrong)} answered otherwise")
    assert wrong == []


class Verb(NamedTuple):
    """A verb that takes a text, and where that is found again; `text` is its place in the words."""

    words: Sequence[str]
    found: Callable[[Ward, dict[str, object]], object]


def asked(ward: Ward, *words: str) -> Any:
    """What a verb prints with --json."""
    said = call(["--runs-dir", str(ward.root), "--json", *words])
    assert said.code in (0, 4, 10, 11), said
    return json.loads(said.out)


TEXT = "<text>"
CHILD, WAITING = "<child>", "<waiting>"
TAKING: Mapping[str, Verb] = {
    "ask": Verb(
        ["ask", "--run", CHILD, "--", TEXT],
        lambda ward, told: asked(ward, "check", str(told["messageId"]), "--peek")["questionContent"],
    ),
    "ask --default": Verb(
        ["ask", "--run", CHILD, f"--default={TEXT}", "--", "Which?"],
        lambda ward, told: next(
            item["default"] for item in asked(ward, "pending", CHILD_NAME) if item["message_id"] == told["messageId"]
        ),
    ),
    "reply": Verb(
        ["reply", "--", CHILD, WAITING, TEXT],
        lambda ward, _: asked(ward, "check", ward.names.waiting, "--peek")["answer"],
    ),
    "tell": Verb(
        ["tell", "--run", CHILD, "--", TEXT],
        lambda ward, _: asked(ward, "status", CHILD_NAME, "--peek")["notes"][-1]["text"],
    ),
    "update": Verb(
        ["update", f"--summary={TEXT}", "--", CHILD, "running"],
        lambda ward, _: asked(ward, "status", CHILD_NAME, "--peek")["summary"],
    ),
    "message put": Verb(
        ["message", "put", f"--text={TEXT}"],
        lambda ward, told: asked(ward, "message", "show", str(told["message_id"]))["content"]["text"],
    ),
    "send": Verb(
        ["send", f"--text={TEXT}", "--", CHILD],
        lambda ward, told: asked(ward, "message", "show", str(told["message_id"]))["content"]["text"],
    ),
    "create": Verb(
        ["create", "--", "helper", TEXT],
        lambda ward, told: codec.load((ward.root / str(told["runId"]) / "run.json").read_bytes())["task"],
    ),
    "cancel": Verb(
        ["cancel", f"--reason={TEXT}", "--", CHILD],
        lambda ward, _: str(asked(ward, "status", CHILD_NAME, "--peek")["summary"]).partition("] ")[2],
    ),
}
CHILD_NAME = "tidy"
SHOWING: Sequence[Sequence[str]] = (
    ["status", CHILD_NAME, "--peek"],
    ["pending"],
    ["list", "--all"],
    ["tree", "--all"],
    ["events"],
    ["logs", CHILD_NAME],
    ["result", CHILD_NAME],
    ["inbox", CHILD_NAME],
    ["message", "list"],
    ["check", WAITING, "--peek"],
    ["doctor"],
)
TEXTS_TRIED = 40


def hostile_texts(chance: random.Random) -> list[str]:
    letters = [*TEXTS, *map(chr, range(1, 0x20)), *map(chr, range(0x7F, 0xA1)), "\U000e0001", "\ufff9", "\u2800"]
    mixed = ["".join(chance.choice([*letters, chr(chance.randrange(1, 0xD800))]) for _ in range(9)) for _ in range(200)]
    long = ["x" * 1_000_000, "\x1b[31m" * 100_000, "\u202e" * 100_000, "\n" * 50_000 + "x", "é" * 300_000]
    texts = [
        text for text in [*TEXTS, *HOSTILE, *mixed] if is_typed(text) and "\0" not in text and text.strip().strip("-")
    ]
    return [*chance.sample([text for text in texts if is_text(text)], TEXTS_TRIED), *long]


def is_text(text: str) -> bool:
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in text)


def test_a_hostile_text_comes_back_whole_and_does_nothing_to_a_terminal(ward: Ward, told: Told) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    wrong: dict[str, list[str]] = {"faults": [], "changed texts": [], "raw on a terminal": []}
    shown = 0
    for number, text in enumerate(hostile_texts(chance)):
        for verb, (words, found) in TAKING.items():
            meant = {TEXT: text, CHILD: ward.names.child, WAITING: ward.names.waiting}
            filled = [_filled(word, meant) for word in words]
            said = call(["--runs-dir", str(ward.root), "--json", *filled])
            what = f"{verb} {text[:60]!r} (seed {seed})"
            if said.code or said.is_faulty:
                wrong["faults"].append(f"{what}: {said}"[:500])
                continue
            if (back := found(ward, json.loads(said.out))) != text:
                wrong["changed texts"].append(f"{what}: {str(back)[:60]!r}")
        for place, words in enumerate(SHOWING if len(text) < 1000 else SHOWING[number % 3 :: 3]):
            shown += 1
            filled = [_filled(word, {WAITING: ward.names.waiting}) for word in words]
            said = call(["--runs-dir", str(ward.root), *filled], terminal=(number + place) % 2 == 0)
            if said.raw or said.is_faulty:
                wrong["raw on a terminal"].append(f"{words} {text[:60]!r} (seed {seed}): {said.raw!r}")
        ward.again()
    lost = ", ".join(f"{len(found)} {what}" for what, found in wrong.items())
    told("hostile texts", f"{TEXTS_TRIED + 5} texts on {len(TAKING)} verbs, shown {shown} times", lost)
    assert not any(wrong.values()), "\n".join(
        f"{what}: {text}" for what, found in wrong.items() for text in found[:_WORST]
    )


def _filled(word: str, meant: Mapping[str, str]) -> str:
    for hole, text in meant.items():
        word = text if word == hole else word.replace(f"={hole}", f"={text}") if word.startswith("--") else word
    return word

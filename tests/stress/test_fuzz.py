"""A minute of documents that are nearly right, for everything of ours that reads what comes from outside.

Promise: each of them gives a good value or one error of ours, never another exception; and nothing in it reaches a
terminal raw. What fails is printed as Python writes it, with the seed that makes it again.
"""

import io
import json
import os
import random
import subprocess
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pydantic import BaseModel, ValidationError

from subagent_cli.cli import output
from subagent_cli.contracts.entry import JournalEntry
from subagent_cli.contracts.meta import MetaDocument
from subagent_cli.contracts.outcome import outcome
from subagent_cli.contracts.spec import RunSpec
from subagent_cli.core import moment
from subagent_cli.core.document import document_fits
from subagent_cli.core.errors import InvalidInput, SubagentError
from subagent_cli.core.ids import digits, is_label, is_uuid
from subagent_cli.process import agents
from subagent_cli.services import archives, dispatches, doctor, messages, questions, runs, settings, spawns
from subagent_cli.services.context import open_context
from subagent_cli.services.launches import Request
from subagent_cli.store import codec
from tests.services.test_doctor import hasty as hasty
from tests.services.test_doctor import powered as powered
from tests.stress.conftest import Told
from tests.stress.inside import RAW, call
from tests.stress.inside import quiet as quiet
from tests.stress.mutation import BIG, DEEP, ESCAPES, SPELLED, TEXTS, broken, changed_often, odd, spelled
from tests.stress.seed import new_seed
from tests.stress.ward import READING, Ward

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures("hasty", "powered", "quiet")]

CORPUS = Path(__file__).parents[1] / "contracts" / "meta_corpus.json"
_SHOWN = 12
_WIDEST = 4000
_BATCH = 400


class Fuzz:
    """Inputs until the time is up. Each follows from the seed, the family and its number, however many there are."""

    def __init__(self, told: Told, family: str) -> None:
        self._told, self._family = told, family
        self.seed = new_seed()
        self.count = 0
        self.input: object = None
        self._found: dict[str, str] = {}
        self._times = 0

    def go(
        self, seconds: float, attempt: Callable[[random.Random], None], afterwards: Callable[[], None] | None = None
    ) -> None:
        until = _spent() + seconds
        while _spent() < until:
            self.count += 1
            try:
                attempt(random.Random(f"{self.seed} {self._family} {self.count}"))
            except Exception as fault:
                self.add(fault)
            if afterwards:
                afterwards()

    def add(self, fault: Exception) -> None:
        """One finding for each place at which something went wrong, and the shortest input for it."""
        self._times += 1
        frames = [
            frame
            for frame in traceback.extract_tb(fault.__traceback__)
            if f"{os.sep}stress{os.sep}" not in frame.filename
        ]
        where = f"{type(fault).__name__} at {frames[-1].filename}:{frames[-1].lineno}" if frames else str(fault)[:80]
        shown = f"{fault!s:.200} number {self.count} of {self._family}: {self.input!r:.{_WIDEST}}"
        if len(shown) < len(self._found.get(where, shown + " ")):
            self._found[where] = shown

    def done(self) -> None:
        known = f"{self._times} unforeseen, in {len(self._found)} places"
        self._told(f"parser fuzz: {self._family}", f"{self.count:,} inputs, seed {self.seed}", known)
        assert not self._found, "\n\n".join(f"{where}: {text}" for where, text in list(self._found.items())[:_SHOWN])


@pytest.fixture
def fuzz(told: Told, request: pytest.FixtureRequest) -> Iterator[Fuzz]:
    yield (made := Fuzz(told, request.node.name.removeprefix("test_").replace("_", " ")))
    assert made.count


def _spent() -> float:
    """Seconds of a processor, so that a busy machine tries no less."""
    return sum(os.times()[:4])


def real_documents() -> list[Any]:
    corpus = json.loads(CORPUS.read_bytes())
    return [*corpus["accepted"].values(), *corpus["refused"].values()]


def harmless(text: str) -> None:
    raw = RAW.intersection(text)
    assert not raw, f"raw on a terminal: {sorted(raw)!r}"


def test_json(fuzz: Fuzz) -> None:
    known = real_documents()

    def attempt(chance: random.Random) -> None:
        data = spelled(chance, changed_often(chance, chance.choice(known)))
        fuzz.input = data = broken(chance, data) if chance.random() < 0.6 else data
        for load in (codec.load, codec.load_prefix):
            try:
                value = load(data)
                written = codec.document(value)
                codec.is_shallow(value)
            except ValueError:
                continue
            assert codec.document(codec.load(written)) == written
            assert codec.document(codec.load(codec.line(value))) == written
            assert b"\n" not in codec.line(value)

    fuzz.go(6, attempt)
    for big in (
        b'"' + b"x" * BIG + b'"',
        b"[" * BIG,
        b'{"x":' * BIG,
        b"9" * BIG,
        b'"' + b"\\ud800" * (BIG // 6) + b'"',
    ):
        fuzz.input = big[:40]
        with suppress(ValueError):
            codec.document(codec.load(big))
    fuzz.done()


class Beside:
    """A ward, of which one file is nearly right, and everybody who reads it."""

    def __init__(self, fuzz: Fuzz, ward: Ward, kind: str) -> None:
        self._fuzz, self._ward, self._path = fuzz, ward, ward.files[kind]
        self.data = self._path.read_bytes()

    def tell(self, chance: random.Random, data: bytes) -> None:
        """Some look, one changes something, one has it mended; what is printed is harmless."""
        self._fuzz.input = data
        ward, names = self._ward, self._ward.names
        self._path.write_bytes(data)
        for name in chance.sample(list(READING), 4):
            READING[name](ward)
        words = chance.choice(PRINTED)
        filled = [word.format(*names) for word in words]
        told = call(["--runs-dir", str(ward.root), *filled], terminal=chance.random() < 0.5)
        assert not told.is_faulty, f"{words}: {told}"
        assert not told.raw, f"raw on a terminal: {told.raw!r} by {words}"
        for act in chance.sample(ACTS, 2):
            try:
                act(ward)
            except SubagentError:
                continue

    def again(self) -> None:
        self._ward.again()


# Of the child, and of the ended run: Names, in its order.
PRINTED: Sequence[Sequence[str]] = (
    ["status", "{1}", "--peek"],
    ["status", "{2}", "--json"],
    ["status"],
    ["list", "--all"],
    ["tree", "--all"],
    ["pending"],
    ["logs", "{2}"],
    ["events"],
    ["result", "{1}"],
    ["inbox", "{1}"],
    ["message", "list"],
    ["message", "show", "{4}"],
    ["check", "{7}", "--peek"],
    ["grants"],
    ["doctor"],
    ["wait", "{3}", "--timeout", "1ms"],
    ["sweep", "--dry-run"],
    ["clean", "--dry-run", "--older-than", "1ms"],
)
ACTS: Sequence[Callable[[Ward], object]] = (
    lambda ward: questions.reply(ward.fresh(), ward.names.waiting, "yes"),
    lambda ward: questions.ask(ward.fresh(), "E?", run=ward.names.child),
    lambda ward: runs.status(ward.fresh(), ward.names.child),
    lambda ward: runs.update(ward.fresh(), ward.names.child, "success", "Done."),
    lambda ward: doctor.check(ward.fresh(), fix=True),
    lambda ward: archives.export(ward.fresh(), [ward.names.child], io.BytesIO()),
)


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    return Ward(tmp_path)


def test_pictures_that_everybody_reads(fuzz: Fuzz, ward: Ward) -> None:
    beside, known = Beside(fuzz, ward, "picture"), real_documents()
    own = json.loads(beside.data)

    def attempt(chance: random.Random) -> None:
        data = spelled(
            chance, changed_often(chance, own if chance.random() < 0.8 else chance.choice(known), tuple(own))
        )
        beside.tell(chance, broken(chance, data) if chance.random() < 0.2 else data)

    fuzz.go(10, attempt, beside.again)
    fuzz.done()


def sealed(record: dict[str, Any]) -> bytes:
    """A line of a journal with the right checksum, whatever it says."""
    body = codec.line({key: value for key, value in record.items() if key != "crc"})[:-1]
    return body + b',"crc":"%08x"}\n' % crc32(body)


@pytest.mark.parametrize("kind", ["journal", "journal of two attempts"])
def test_journals_whose_checksums_are_right(fuzz: Fuzz, ward: Ward, kind: str) -> None:
    beside = Beside(fuzz, ward, kind)
    own = [json.loads(line) for line in beside.data.splitlines()]

    def attempt(chance: random.Random) -> None:
        lines = list(own)
        place = chance.randrange(len(lines))
        keep = {key: lines[place][key] for key in ("seq", "meta") if key in lines[place] and chance.random() < 0.9}
        hurt = changed_often(chance, lines[place], ("options", "deadline", "grace", "keys", "lasts", "extras", "told"))
        lines[place] = {**hurt, **keep} if isinstance(hurt, dict) else keep
        try:
            data = b"".join(map(sealed, lines))
        except ValueError:
            return
        beside.tell(chance, broken(chance, data) if chance.random() < 0.1 else data)

    fuzz.go(6, attempt, beside.again)
    fuzz.done()


@pytest.mark.parametrize("kind", ["spec", "group", "message"])
def test_what_is_written_once(fuzz: Fuzz, ward: Ward, kind: str) -> None:
    beside = Beside(fuzz, ward, kind)
    ward.files[kind].chmod(0o600)
    own = json.loads(beside.data)

    def attempt(chance: random.Random) -> None:
        data = spelled(chance, changed_often(chance, own, tuple(own)))
        beside.tell(chance, broken(chance, data) if chance.random() < 0.2 else data)

    fuzz.go(3, attempt, beside.again)
    fuzz.done()


OUTCOMES = [
    {"success": {"result": "Done."}},
    {"failure": {"error": "No.", "error_kind": "auth"}},
    {"type": "success", "result": None},
    {"type": "failure", "error": "x", "error_kind": None},
    {"type": "timed_out"},
]
TASKS = {
    "tasks": [{"task": "Do it", "cwd": "/", "agent": "x", "timeout": "5m", "mode": "work"}, {"task": "x", "timeout": 5}]
}
DISPATCHES = {
    "requests": [
        {"mode": "plan_step", "instructions": "Do", "plan_step_id": "1", "expected_artifacts": ["a", "b"]},
        {"mode": "ad_hoc", "prompt_ns": "n", "prompt_key": "k", "instructions": "x"},
    ]
}
CONTENTS = {
    "plaintext": {"text": "Look."},
    "structured_critique": {"issues": [{"a": 1}], "notes_md": "# x"},
    "structured_grade": {"recall": 0.5, "precision": "0.25", "notes_md": "", "more": [1]},
}


def passes(model: type[BaseModel], value: object) -> bool:
    try:
        model.model_validate(value)
    except ValidationError:
        return False
    return True


def test_contracts_and_what_core_says_of_the_same(fuzz: Fuzz, ward: Ward) -> None:
    metas, spec = real_documents(), json.loads(ward.files["spec"].read_bytes())
    entry = json.loads(ward.files["journal"].read_bytes().splitlines()[0])
    desk = ward.fresh()

    def contracts(chance: random.Random) -> None:
        # As it comes out of a file: beyond doubles there is nothing there.
        fuzz.input = value = codec.load(codec.line(changed_often(chance, chance.choice(metas))))
        # Pydantic reads no text with half a character, which core lets through as the server does.
        if _is_whole(value):
            assert document_fits(value) == passes(MetaDocument, value)
        fuzz.input = value = changed_often(chance, spec)
        passes(RunSpec, value)
        fuzz.input = value = changed_often(chance, entry)
        passes(JournalEntry, value)
        fuzz.input = value = changed_often(chance, chance.choice(OUTCOMES))
        with suppress(ValidationError):
            outcome(value)

    def requests(chance: random.Random) -> None:
        for own, read in ((TASKS, _tasks), (DISPATCHES, dispatches.requests_from)):
            fuzz.input = value = changed_often(chance, own)
            try:
                read(value)
            except SubagentError as error:
                output.harmless(error.message)
        schema = chance.choice(list(CONTENTS))
        fuzz.input = text = spelled(chance, changed_often(chance, CONTENTS[schema])).decode("utf-8", "surrogateescape")
        with suppress(SubagentError):
            messages.write(desk, schema, text)

    fuzz.go(7, lambda chance: (contracts if chance.random() < 0.7 else requests)(chance))
    fuzz.done()


def _tasks(value: object) -> object:
    return spawns.requests_from(value, Request("x", agent="claude"))


def _is_whole(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def test_archives(fuzz: Fuzz, ward: Ward, tmp_path: Path) -> None:
    whole = io.BytesIO()
    archives.export(ward.desk, [], whole, everything=True)
    with zipfile.ZipFile(whole) as packed:
        members = {entry.filename: packed.read(entry) for entry in packed.infolist()}

    def attempt(chance: random.Random) -> None:
        data = broken(chance, whole.getvalue()) if chance.random() < 0.5 else _packed(chance, members)
        fuzz.input = data
        desk = open_context({"runs_dir": str(tmp_path / "foreign" / f"in-{fuzz.count}" / "runs")}, ward.clock)
        try:
            taken = archives.take_in(desk, io.BytesIO(data), renew=chance.random() < 0.5)
        except SubagentError:
            return
        for run in taken["imported"]:
            runs.status(desk, run["runId"], peek=True)

    fuzz.go(4, attempt)
    fuzz.done()


def _packed(chance: random.Random, members: dict[str, bytes]) -> bytes:
    """An archive that is in order as such, and of which one member is not."""
    file, hurt = io.BytesIO(), chance.choice(list(members))
    with zipfile.ZipFile(file, "w") as packed:
        for name, data in members.items():
            if name == hurt and name.endswith("journal.jsonl"):
                lines = [json.loads(line) for line in data.splitlines()]
                place = chance.randrange(len(lines))
                value = changed_often(chance, lines[place])
                lines[place] = value if isinstance(value, dict) else {}
                try:
                    data = b"".join(map(sealed, lines))
                except ValueError:
                    data = b""
            elif name == hurt and name.endswith(".json"):
                data = spelled(chance, changed_often(chance, json.loads(data)))
            elif name == hurt:
                name = chance.choice([f"../{name}", f"/{name}", name.upper(), f"{name}/x", f"{name[:40]}.ring/x"])
            packed.writestr(name, data)
    return file.getvalue()


AGENTS = """[agents.mine]
command = ["x", "--go", "{args}", "{prompt}"]
prompt = "arg"
resume = ["x", "--resume", "{session}", "{prompt}"]
session = "own"
model = ["--model", "{model}"]
output = "text"
mcp = ["--mcp", "{mcp_config}"]
[agents.mine.env]
A = "{run_id}"
"""
SETTINGS = """runs_dir = "runs"
max_depth = 2
lock_timeout = "5s"
question_ttl = "1d"
env_deny = "A_*,B"
attach_mcp = true
max_text = "1000"
"""


def test_settings_agents_and_words(fuzz: Fuzz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agents_file, settings_file = tmp_path / "mine.toml", tmp_path / "subagent.toml"
    lengths = [
        "90",
        "90s",
        "5m",
        "1d",
        "250ms",
        "1.5h",
        "0",
        "-1",
        "1e3",
        "9" * 400,
        "9" * 5000,
        "∞",
        "٣",
        "1_0",
        ".",
        "1 s",
    ]
    lengths += ["0" * 20 + "7", "1".zfill(9) + "9" * 5000]
    stamps = ["2026-01-02T03:04:05.678Z", "2026-W01-1", "20260102T030405Z", "0001-01-01T00:00:00+23:59", "24:00"]

    def words(chance: random.Random) -> None:
        text = chance.choice([*lengths, *stamps, *TEXTS, *SPELLED])
        text = broken(chance, text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogateescape")
        fuzz.input = text = chance.choice([text, text * chance.choice([2, 40]), text + chance.choice(lengths)])
        moment.milliseconds(text)
        moment.moment(text, text)
        for test in (is_label, is_uuid, digits):
            test(text)
        for parse in (moment.duration, *(setting.parse for setting in settings.SETTINGS)):
            try:
                found = parse(text)
            except InvalidInput:
                continue
            assert parse is not moment.duration or (found > 0 and moment.duration(moment.spelled(found)) == found)

    def files(chance: random.Random) -> None:
        for path, own, read in (
            (agents_file, AGENTS, lambda: agents.load([str(agents_file)])),
            (settings_file, SETTINGS, lambda: settings.load({})),
        ):
            fuzz.input = data = _toml(chance, own)
            path.write_bytes(data)
            try:
                read()
            except InvalidInput as error:
                harmless(output.harmless(error.message))
        settings_file.unlink()

    monkeypatch.chdir(tmp_path)
    fuzz.go(6, lambda chance: (words if chance.random() < 0.6 else files)(chance))
    fuzz.done()


def _toml(chance: random.Random, own: str) -> bytes:
    """Mostly still TOML, with a value of another kind at one of the places."""
    lines = own.splitlines()
    place = chance.randrange(len(lines))
    value = chance.choice(["5", "-1", "1e400", "nan", "true", "[]", "{}", "[[1]]", '["{prompt}"]', '""', "1979-05-27"])
    value = chance.choice([value, json.dumps(chance.choice(TEXTS)), json.dumps("9" * chance.choice([20, 5000]))])
    lines[place] = f"{lines[place].partition('=')[0].strip()} = {value}"
    data = "\n".join(lines).encode("utf-8", "replace")
    return broken(chance, data) if chance.random() < 0.3 else data


def test_what_is_printed(fuzz: Fuzz) -> None:
    def attempt(chance: random.Random) -> None:
        fuzz.input = text = "".join(
            chance.choice([*TEXTS, *ESCAPES, chr(chance.randrange(0x110000))]) for _ in range(chance.randrange(1, 6))
        )
        for shown in (text, output.one_line(text, chance.choice([1, 5, 60])), output.indented(text)):
            harmless(output.harmless(shown))
        assert output.harmless(output.harmless(text)) == output.harmless(text)

    fuzz.go(2, attempt)
    fuzz.done()


def rewritten(data: bytes) -> bytes | None:
    try:
        return codec.document(codec.load(data))
    except ValueError:
        return None


def deep(data: bytes) -> bool:
    return data.count(b"[") + data.count(b"{") > DEEP // 4


SCRIPT = """
const lines = require("fs").readFileSync(0, "latin1").split("\\n");
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
for (const line of lines) {
  let told = null;
  try {
    told = JSON.stringify(JSON.parse(utf8.decode(Buffer.from(line, "base64"))), null, 2);
  } catch {}
  process.stdout.write(JSON.stringify(told) + "\\n");
}
"""


def test_json_as_node_reads_and_writes_it(fuzz: Fuzz, node: Callable[[str], list[str]]) -> None:
    from base64 import b64encode

    known, program = real_documents(), node("")[0]
    batch: list[bytes] = []

    def compared() -> None:
        told = subprocess.run(
            [program, "-e", SCRIPT],
            input=b"\n".join(map(b64encode, batch)),
            capture_output=True,
            timeout=60,
            check=True,
        ).stdout.splitlines()
        for data, line in zip(batch, told, strict=True):
            fuzz.input, wanted = data, json.loads(line)
            found = rewritten(data)
            # What is nested deeper than Python goes is refused here, and read there.
            assert found == (None if wanted is None else wanted.encode("utf-8", "surrogatepass")) or deep(data)

    def attempt(chance: random.Random) -> None:
        batch.clear()
        for _ in range(_BATCH):
            value = changed_often(chance, chance.choice(known)) if chance.random() < 0.8 else odd(chance)
            data = spelled(chance, value)
            batch.append(broken(chance, data) if chance.random() < 0.6 else data)
        compared()

    fuzz.go(4, attempt)
    fuzz.count *= _BATCH
    fuzz.done()

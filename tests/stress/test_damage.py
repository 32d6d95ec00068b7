"""Damaged files: cut off at any byte, with one wrong byte, or holding something else altogether.

Promise: whoever looks is told what is so or gets one error of ours; what was acknowledged and stands in an undamaged
file is not lost; the doctor mends what can be mended; and the next change goes through, or is refused until then.
"""

import os
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from subagent_cli.core.errors import NotFound, SubagentError
from subagent_cli.core.question import ANSWERED, EXPIRED, PENDING, RETRIEVED
from subagent_cli.core.run import Run
from subagent_cli.services import doctor, questions, runs
from subagent_cli.services.settings import Caller
from tests.services.test_doctor import hasty as hasty
from tests.services.test_doctor import powered as powered
from tests.services.test_doctor import same_conversation
from tests.stress.conftest import Told
from tests.stress.seed import new_seed
from tests.stress.ward import KEY, READING, Ward

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures("hasty", "powered")]

JOURNALS = ("journal", "journal of two attempts")
# Written once and sealed by their hashes, so nobody could know what they said.
LOST = ("message", "reply")
# A wrong byte in these may be the work of another program, whose word counts.
FOREIGN = ("picture", "ring")
# What says the same as another file, or can be told from what was written: here nobody may be told anything else.
_FREE = {"log": {"logs"}}
_ALL_EVERY = 17
_SHOWN = 20
_MENDED = 40


class Tally:
    """What was tried, and what was wrong with it."""

    def __init__(self) -> None:
        self.tried = 0
        self.wrong: dict[str, list[str]] = {"faults": [], "wrong answers": [], "lost": [], "unmended": [], "stuck": []}

    def add(self, what: str, text: str) -> None:
        self.wrong[what].append(text)

    @property
    def summary(self) -> str:
        return ", ".join(f"{len(found)} {what}" for what, found in self.wrong.items())

    @property
    def first(self) -> str:
        return "\n".join(f"{what}: {text}" for what, found in self.wrong.items() for text in found[:_SHOWN])


class Trial:
    """One damage to one file, and all that has to hold then."""

    def __init__(self, ward: Ward, tally: Tally, kind: str, how: str, exact: bool) -> None:
        self._ward, self._tally, self._exact = ward, tally, exact
        self._kind, self._what = kind, f"{kind}, {how}"
        tally.tried += 1

    def looked_at(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                said = READING[name](self._ward)
            except Exception as fault:
                self._tally.add("faults", f"{self._what}: {name}: {fault!r}")
                continue
            free = not self._exact or name in _FREE.get(self._kind, ()) or self._kind in JOURNALS
            if not free and not isinstance(said, SubagentError) and said != self._ward.seen[name]:
                self._tally.add("wrong answers", f"{self._what}: {name}: {said!r:.300}")

    def changed(self) -> bool:
        """Whether an answer was taken; else it was refused in our words."""
        desk, names = self._ward.fresh(), self._ward.names
        try:
            questions.reply(desk, names.child, "yes", message=names.waiting)
        except SubagentError:
            return False
        except Exception as fault:
            self._tally.add("faults", f"{self._what}: reply: {fault!r}")
            return False
        return True

    def seen_by_the_doctor(self) -> None:
        """Whatever is in the way of one file, the doctor gets to the others."""
        try:
            doctor.check(self._ward.fresh(), fix=True)
        except Exception as fault:
            self._tally.add("faults", f"{self._what}: doctor: {fault!r}")

    def mended(self) -> None:
        try:
            found = doctor.check(self._ward.fresh(), fix=True)["findings"]
            left = doctor.check(self._ward.fresh())["findings"]
        except Exception as fault:
            self._tally.add("faults", f"{self._what}: doctor: {fault!r}")
            return
        # What others on this machine use up is no damage either.
        known = {"no_inotify", *(["tampered_messages"] if self._kind in LOST else [])}
        found, left = ([each for each in findings if each["code"] not in known] for findings in (found, left))
        if left or not all(finding["fixed"] for finding in found):
            self._tally.add("unmended", f"{self._what}: {found} {left}"[:600])
        if self._kind not in (*LOST, "log", "spawns entry"):
            for name, said in ((name, READING[name](self._ward)) for name in READING):
                # A group whose record is gone altogether is not there.
                if isinstance(said, SubagentError) and not (self._kind == "group" and isinstance(said, NotFound)):
                    self._tally.add("unmended", f"{self._what}: then {name}: {said!r}"[:600])

    def kept(self, answered: bool) -> None:
        """What was acknowledged before, and what was acknowledged meanwhile."""
        ward = self._ward
        try:
            child, kept = ward.now(ward.names.child), ward.now(ward.names.kept)
            closing = child.questions[ward.names.waiting].closing
            if answered and closing != "yes":
                self._tally.add("lost", f"{self._what}: the answer that was just given is {closing!r}")
            if self._exact or self._kind not in FOREIGN:
                whole = self._kind != "journal" and self._exact
                _same(child, ward.well[child.id], whole=whole, answered=ward.names.waiting if answered else "")
            else:
                _not_undone(child, ward.well[child.id])
            if self._kind == JOURNALS[1]:
                # Where the line that began the second attempt is lost, the outcome of the first one stands.
                assert kept.finished
            else:
                _same(kept, ward.well[kept.id], whole=True)
        except (AssertionError, SubagentError, KeyError) as fault:
            self._tally.add("lost", f"{self._what}: {fault!r}"[:600])

    def goes_on(self, answered: bool) -> None:
        """A change works now; where the file was mended, it must."""
        desk, names = self._ward.fresh(), self._ward.names
        try:
            if not answered:
                questions.reply(desk, names.child, "yes", message=names.waiting)
            questions.ask(desk, "D?", run=names.child)
            runs.update(desk, names.child, "completed", "Done.")
        except Exception as fault:
            self._tally.add("stuck", f"{self._what}: {fault!r}")

    def whole(self, names: Iterable[str], change_first: bool) -> None:
        self.looked_at(names)
        answered = self.changed() if change_first else False
        self.mended()
        self.kept(answered)
        self.goes_on(answered)


def _same(found: Run, well: Run, *, whole: bool, answered: str = "") -> None:
    if answered:
        well = well._replace(questions={**well.questions, answered: found.questions[answered]})
    same_conversation(found, well)
    if whole:
        facts = [(run.notes, run.grants, run.inbox, run.attempts) for run in (found, well)]
        assert facts[0] == facts[1]


def _not_undone(found: Run, well: Run) -> None:
    """Every question is there as it was asked, with the answer that it had, and in no earlier state."""
    order = (PENDING, EXPIRED, ANSWERED, RETRIEVED)
    for question in well.questions.values():
        now = found.questions[question.id]
        assert now.content == question.content
        assert question.closing in (None, now.closing)
        assert order.index(now.state) >= order.index(question.state)


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    return Ward(tmp_path)


def some(number: int) -> list[str]:
    """All verbs now and then, and otherwise some of them in turn."""
    names = list(READING)
    if number % _ALL_EVERY == 0:
        return names
    return ["status", *(names[(number * 3 + step) % len(names)] for step in range(2))]


def finished(tally: Tally, told: Told, row: str, tried: str) -> None:
    told(row, tried, tally.summary)
    assert not tally.first, tally.first


def test_a_file_of_any_kind_cut_off_at_any_byte_costs_nothing_that_stands_elsewhere(ward: Ward, told: Told) -> None:
    tally = Tally()
    for kind, path in ward.files.items():
        whole = path.read_bytes()
        # Looked at at every byte; mended at so many of them, since mending takes ten times as long.
        stride = max(1, len(whole) // _MENDED)
        for size in range(len(whole)):
            _write(path, whole[:size])
            trial = Trial(ward, tally, kind, f"{size} of {len(whole)} bytes", exact=True)
            if size % stride == 0:
                trial.whole(some(size), change_first=size // stride % 2 == 0)
            else:
                trial.looked_at(some(size))
                ward.put_back(path)
                continue
            ward.again()
    finished(tally, told, "files cut off at every byte", f"{tally.tried:,} cuts of {len(ward.files)} kinds")


def test_one_wrong_byte_anywhere_is_no_fault_and_undoes_no_answer(ward: Ward, told: Told) -> None:
    tally, seed = Tally(), new_seed()
    chance = random.Random(seed)
    for kind, path in ward.files.items():
        whole = path.read_bytes()
        for number, place in enumerate(sorted(chance.sample(range(len(whole)), min(len(whole), 90)))):
            letter = chance.choice([0, 0x0A, 0x22, 0x7F, 0xFF, whole[place] ^ 0x04, whole[place] ^ 0x20])
            if letter == whole[place]:
                continue
            _write(path, whole[:place] + bytes([letter]) + whole[place + 1 :])
            trial = Trial(ward, tally, kind, f"byte {place} is {letter:#x} (seed {seed})", exact=False)
            if number % 4 == 0:
                trial.whole(some(number), change_first=number % 8 == 0)
            else:
                trial.looked_at(some(number))
                ward.put_back(path)
                continue
            ward.again()
    finished(tally, told, "files with one wrong byte", f"{tally.tried:,} bytes of {len(ward.files)} kinds")


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


def _write(path: Path, data: bytes) -> None:
    """As somebody does who may: a message of ours may be written by nobody."""
    mode = path.stat().st_mode & 0o777
    path.chmod(0o600)
    path.write_bytes(data)
    path.chmod(mode)


def _changed(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: _write(path, change(path.read_bytes()))


DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "empty": _changed(lambda _: b""),
    "NULs as a power cut leaves them": _changed(lambda data: b"\0" * len(data)),
    "NULs in the second half": _changed(lambda data: data[: len(data) // 2] + b"\0" * (len(data) - len(data) // 2)),
    "NULs in the first half": _changed(lambda data: b"\0" * (len(data) // 2) + data[len(data) // 2 :]),
    "NULs behind it": _changed(lambda data: data + b"\0" * 4096),
    "garbage behind it": _changed(lambda data: data + b"\xff\xfe#}\n]"),
    "half of it behind it": _changed(lambda data: data + data[len(data) // 2 :]),
    "garbage before it": _changed(lambda data: b"\x80\x81" + data),
    "a BOM": _changed(lambda data: b"\xef\xbb\xbf" + data),
    "UTF-16": _changed(lambda data: data.decode().encode("utf-16")),
    "CRLF": _changed(lambda data: data.replace(b"\n", b"\r\n")),
    "a list": _changed(lambda _: b"[]"),
    "null": _changed(lambda _: b"null"),
    "a number": _changed(lambda _: b"5"),
    "a text": _changed(lambda _: b'"text"'),
    "an empty object": _changed(lambda _: b"{}"),
    "too deep": _changed(lambda _: b'{"x":' * 50_000 + b"}" * 50_000),
    "not JSON": _changed(lambda _: b'{"exitCode": NaN}'),
    "gone": lambda path: path.unlink(),
}
# What stands there then is no file. It is said, and put right once somebody has taken it away.
OBSTACLES: Mapping[str, Callable[[Path], object]] = {
    "a folder": _folder,
    "a link to nothing": lambda path: _link(path, "nothing"),
    "a link to itself": lambda path: _link(path, path.name),
    "a link out": lambda path: _link(path, "/dev/null"),
}


def test_a_file_of_any_kind_that_holds_something_else_is_no_fault_and_undoes_no_answer(ward: Ward, told: Told) -> None:
    tally = Tally()
    for kind, path in ward.files.items():
        for how, damage in DAMAGES.items():
            damage(path)
            Trial(ward, tally, kind, how, exact=False).whole(READING, change_first=tally.tried % 2 == 0)
            ward.again()
    finished(tally, told, "files that hold something else", f"{len(DAMAGES)} damages to {len(ward.files)} kinds")


def test_what_is_no_file_is_said_and_all_is_well_once_it_is_taken_away(ward: Ward, told: Told) -> None:
    tally = Tally()
    for kind, path in ward.files.items():
        for how, damage in OBSTACLES.items():
            damage(path)
            trial = Trial(ward, tally, kind, how, exact=False)
            trial.looked_at(READING)
            answered = trial.changed()
            trial.seen_by_the_doctor()
            if os.path.lexists(path):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            trial.mended()
            trial.kept(answered)
            trial.goes_on(answered)
            ward.again()
    finished(tally, told, "folders and links for files", f"{len(OBSTACLES)} obstacles for {len(ward.files)} kinds")


def test_a_retry_finds_what_was_made_under_its_key_though_the_index_was_damaged(ward: Ward, told: Told) -> None:
    tally, path = Tally(), ward.files["keys entry"]
    parent = ward.desk._replace(caller=Caller(ward.names.parent, ward.names.token))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        tally.tried += 1
        with suppress(SubagentError):
            doctor.check(ward.fresh(), fix=True)
        again = parent._replace(runs=ward.fresh().runs)
        made = runs.create(again, "helper", "Do it: ä", name="tidy", key=KEY, labels={"team": "a"})["runId"]
        if made != ward.names.child:
            tally.add("lost", f"{size} bytes: another run was made")
        ward.again()
    finished(tally, told, "retries over a damaged index", f"{tally.tried} cuts of a key's entry")

"""The store of typed messages: what was written is read byte for byte or refused, whatever is done to its file,
whatever the system refuses, and wherever the writer is killed."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.errors import Damaged, Failed, OutcomeUnknown, SubagentError
from subagent_cli.store import codec
from subagent_cli.store.layout import Layout
from subagent_cli.store.messages import Message, Messages, sealed
from tests.contracts.test_messages import same
from tests.store.test_failures import CALLS, ERRORS, MOST_CALLS, Fault, injected
from tests.store.world import PATIENCE, FakeClock, everything

REPOSITORY = Path(__file__).parents[2]
ORIGINAL, REPLY, OTHER, AGENT = (f"0199c7d4-4c00-7000-8000-00000000000{letter}" for letter in "abcd")
KEY = "0" * 32
TEXT = 'Ä "quoted" line\nof 🙂 and \\ and \u0000'


@pytest.fixture
def store(tmp_path: Path) -> Messages:
    return Messages(Layout(str(tmp_path)))


def message(message_id: str = ORIGINAL, content: object = None, in_reply_to: str | None = None) -> Message:
    return sealed(
        {
            "id": message_id,
            "schema_type": "plaintext",
            "content": {"text": TEXT} if content is None else content,
            "created_by_agent_id": AGENT,
            "in_reply_to": in_reply_to,
            "created_at": "2026-01-02T03:04:05.678Z",
        }
    )


def path(root: Path, message_id: str = ORIGINAL) -> Path:
    return root / ".messages" / f"{message_id}.json"


def put_there(file: Path, data: bytes) -> None:
    """Other bytes under the name, as somebody may who owns the folder."""
    file.unlink(missing_ok=True)
    file.write_bytes(data)


def believed(store: Messages, message_id: str = ORIGINAL) -> bool:
    try:
        return store.read(message_id) is not None
    except Damaged as damaged:
        return damaged.code != "tampered"


@pytest.mark.case("C3-21", "C3-25")
def test_a_message_is_read_as_it_was_written_and_only_its_owner_may_read_it(tmp_path: Path, store: Messages) -> None:
    before = os.umask(0)
    try:
        store.create(message())
    finally:
        os.umask(before)
    assert store.read(ORIGINAL) == message()
    assert path(tmp_path).read_bytes() == codec.document(message())
    assert stat.S_IMODE(path(tmp_path).stat().st_mode) == 0o400
    assert stat.S_IMODE(path(tmp_path).parent.stat().st_mode) == 0o700
    assert list(everything(tmp_path)) == [f".messages/{ORIGINAL}.json"]


def test_where_nothing_was_written_there_is_no_message(tmp_path: Path, store: Messages) -> None:
    assert (store.all(), store.matching("0199"), store.replies(ORIGINAL)) == ([], [], [])
    assert store.read(ORIGINAL) is None
    assert store.unentered(ORIGINAL) is None
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../etc/passwd", "x", ORIGINAL[:-1], ORIGINAL + "0", "\0", "\ud800"]
)
def test_what_is_no_id_is_no_message(store: Messages, name: str) -> None:
    store.create(message())
    assert store.read(name) is None
    assert store.replies(name) == []


def test_messages_stand_in_the_order_in_which_they_were_made_and_are_found_by_a_part(store: Messages) -> None:
    clock = FakeClock()
    ids = []
    for _ in range(5):
        clock.advance(10)
        ids.append(clock.new_id())
    for message_id in reversed(ids):
        store.create(message(message_id))
    assert store.all() == ids
    assert store.matching(ids[0].replace("-", "")[:8]) == ids
    assert store.matching(ids[3][-6:]) == [ids[3]]
    assert store.matching("ffffffff") == []


def test_what_others_put_beside_the_messages_is_passed_over(tmp_path: Path, store: Messages) -> None:
    store.create(message())
    for name in ("README.md", ".hidden", f"{ORIGINAL}.json.tmp", f"{OTHER}.json.tmp", "x.json", f"{OTHER}.txt"):
        (tmp_path / ".messages" / name).write_text("{}")
    assert store.all() == [ORIGINAL]
    assert store.read(OTHER) is None


@pytest.mark.case("C3-28")
def test_any_number_of_replies_stand_in_the_order_in_which_they_were_made(store: Messages) -> None:
    clock = FakeClock()
    store.create(message())
    ids = [clock.new_id() for _ in range(20)]
    for message_id in ids[::2] + ids[::-1][::2]:
        store.create(message(message_id, in_reply_to=ORIGINAL))
    store.create(message(OTHER, in_reply_to=ids[3]))
    assert store.replies(ORIGINAL) == ids
    assert store.replies(ids[3]) == [OTHER]
    assert store.replies(OTHER) == []
    assert all(store.unentered(message_id) is None for message_id in store.all())


def test_a_reply_that_the_index_does_not_know_is_told(tmp_path: Path, store: Messages) -> None:
    store.create(message(REPLY, in_reply_to=ORIGINAL))
    mark = tmp_path / ".index" / "replies" / ORIGINAL / REPLY
    mark.unlink()
    assert store.unentered(REPLY) == str(mark)
    assert store.replies(ORIGINAL) == []


@pytest.mark.case("C3-25")
def test_a_file_with_any_byte_changed_lost_or_added_is_not_believed(tmp_path: Path, store: Messages) -> None:
    store.create(message())
    whole = path(tmp_path).read_bytes()
    forged = [whole + more for more in (b"\n", b" ", b"\0", b"{}", whole)]
    for place in range(len(whole)):
        before, byte, behind = whole[:place], whole[place], whole[place + 1 :]
        forged += [before, whole[place + 1 :], before + behind, before + b" " + whole[place:]]
        forged += [before + bytes([other]) + behind for other in {byte ^ 1, byte ^ 0x20, 0, 0xFF, 0x30} - {byte}]
    for data in forged:
        put_there(path(tmp_path), data)
        assert not believed(store), data
    put_there(path(tmp_path), whole)
    assert store.read(ORIGINAL) == message()


REWRITES: dict[str, Callable[[Message], bytes]] = {
    "another content": lambda found: codec.document({**found, "content": {"text": "forged"}}),
    "another author": lambda found: codec.document({**found, "created_by_agent_id": OTHER}),
    "another id": lambda found: codec.document({**found, "id": OTHER}),
    "a key more": lambda found: codec.document({**found, "more": 1}),
    "no hash": lambda found: codec.document({key: found[key] for key in found if key != "sha256"}),
    "another spelling": lambda found: json.dumps(found).encode(),
    "another order": lambda found: codec.document(dict(sorted(found.items(), reverse=True))),
    "a byte order mark": lambda found: b"\xef\xbb\xbf" + codec.document(found),
    "a key twice": lambda found: codec.document(found).replace(b"{\n", b'{\n  "id": 1,\n', 1),
    "a message of its own, sealed anew": lambda _: codec.document(message(OTHER)),
    "a reply in place of it": lambda _: codec.document(message(REPLY, in_reply_to=ORIGINAL)),
    "a list": lambda found: codec.document([found]),
    "nothing": lambda _: b"",
    "null": lambda _: b"null",
    "a number": lambda _: b"7",
    "no text": lambda _: b"\xff\xfe" * 99,
    "nesting": lambda _: b"[" * 200_000,
    "objects in objects": lambda _: b'{"a":' * 9000 + b"1" + b"}" * 9000,
}


@pytest.mark.case("C3-25")
@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_file_that_says_anything_else_is_not_believed(tmp_path: Path, store: Messages, rewrite: str) -> None:
    store.create(message())
    put_there(path(tmp_path), REWRITES[rewrite](message()))
    with pytest.raises(Damaged) as caught:
        store.read(ORIGINAL)
    assert caught.value.code == "tampered"
    with pytest.raises(Damaged):
        store.unentered(ORIGINAL)
    assert store.all() == [ORIGINAL]


@pytest.mark.case("C3-25")
def test_the_files_of_two_messages_cannot_be_swapped(tmp_path: Path, store: Messages) -> None:
    store.create(message())
    store.create(message(OTHER))
    for one, other in ((ORIGINAL, "x"), (OTHER, ORIGINAL), ("x", OTHER)):
        os.rename(path(tmp_path, one), path(tmp_path, other))
    assert not believed(store, ORIGINAL)
    assert not believed(store, OTHER)


def link(file: Path) -> None:
    """To the very bytes, elsewhere."""
    file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(file.parent.parent / "elsewhere")


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def next_descriptor() -> int:
    """Grows where something is left open."""
    os.close(number := os.open(os.devnull, os.O_RDONLY))
    return number


@pytest.mark.case("C3-25")
@pytest.mark.limit(5)
@pytest.mark.parametrize("other", [link, dangling, folder, pipe])
def test_what_is_no_file_is_no_message_and_nobody_waits_for_it(
    tmp_path: Path, store: Messages, other: Callable[[Path], None]
) -> None:
    store.create(message())
    other(path(tmp_path))
    before = next_descriptor()
    for _ in range(3):
        assert not believed(store)
    assert next_descriptor() == before


def test_a_file_in_the_place_of_the_folder_is_a_failure_that_leaves_nothing(tmp_path: Path, store: Messages) -> None:
    (tmp_path / ".messages").write_text("in the way")
    with pytest.raises(Failed):
        store.create(message())
    assert (store.all(), store.read(ORIGINAL)) == ([], None)
    assert everything(tmp_path) == {".messages": b"in the way"}


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_whatever_json_can_say_is_read_as_it_was_written(content: Any) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = Messages(Layout(root))
        made = message(content={"it": content})
        store.create(made)
        assert store.read(ORIGINAL) == made
        assert path(Path(root)).read_bytes() == codec.document(made)
        assert same(made["content"], {"it": content})


def test_a_key_is_one_message_and_another_key_another(tmp_path: Path, store: Messages) -> None:
    assert store.keyed(KEY, message) == message()
    assert store.keyed(KEY, lambda: pytest.fail("it is there already")) == message()
    assert store.keyed("1" * 32, lambda: message(OTHER)) == message(OTHER)
    assert store.all() == [ORIGINAL, OTHER]


@pytest.mark.parametrize("entry", ["", REPLY, "\0", "../../x", "x" * 200, ORIGINAL[:-1]])
def test_a_key_whose_message_never_appeared_is_free(tmp_path: Path, store: Messages, entry: str) -> None:
    (tmp_path / ".index" / "sends").mkdir(parents=True)
    (tmp_path / ".index" / "sends" / KEY).write_text(entry)
    assert store.keyed(KEY, message) == message()
    assert store.keyed(KEY, lambda: message(OTHER)) == message()
    assert store.all() == [ORIGINAL]


@pytest.mark.case("C3-25")
def test_a_keyed_message_that_was_changed_is_not_written_anew(tmp_path: Path, store: Messages) -> None:
    store.keyed(KEY, message)
    put_there(path(tmp_path), b"{}")
    with pytest.raises(Damaged):
        store.keyed(KEY, lambda: message(OTHER))
    assert store.all() == [ORIGINAL]


def whole_or_nothing(found: Messages) -> list[str]:
    """What is there, all of it readable and known to the index."""
    for message_id in found.all():
        assert found.read(message_id) is not None
        assert found.unentered(message_id) is None
    return found.all()


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
def test_whatever_call_fails_a_message_is_there_or_not(tmp_path: Path, code: int, lasting: bool) -> None:
    number, hit = 1, True
    while hit:
        root = tmp_path / str(number)
        store = Messages(Layout(str(root)))
        store.create(message())
        fault = Fault(number, code, lasting=lasting)
        outcome: SubagentError | None = None
        try:
            with injected(fault, root):
                store.create(message(REPLY, in_reply_to=ORIGINAL))
        except SubagentError as error:
            outcome = error
        there = whole_or_nothing(store)
        where = (number, fault.hit, outcome)
        if outcome is None:
            assert there == [ORIGINAL, REPLY], where
        elif not isinstance(outcome, OutcomeUnknown):
            assert there == [ORIGINAL], where
            assert {file.name for file in (root / ".messages").iterdir()} == {f"{ORIGINAL}.json"}, where
        store.create(message(OTHER, in_reply_to=ORIGINAL))
        assert store.read(OTHER) == message(OTHER, in_reply_to=ORIGINAL)
        hit = fault.hit is not None
        number += 1
        assert number < MOST_CALLS
    assert number > 6


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_whatever_call_fails_a_key_is_one_message(tmp_path: Path, code: int) -> None:
    number, hit = 1, True
    while hit:
        root = tmp_path / str(number)
        store = Messages(Layout(str(root)))
        fault = Fault(number, code)
        with suppress(SubagentError), injected(fault, root):
            store.keyed(KEY, message)
        made = store.keyed(KEY, lambda: message(OTHER))
        assert whole_or_nothing(store) == [made["id"]], (number, fault.hit)
        hit = fault.hit is not None
        number += 1
        assert number < MOST_CALLS
    assert number > 10


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("look", ["read", "all", "replies", "unentered"])
def test_whoever_only_reads_meets_no_other_error_than_ours(tmp_path: Path, code: int, look: str) -> None:
    store = Messages(Layout(str(tmp_path)))
    store.create(message())
    store.create(message(REPLY, in_reply_to=ORIGINAL))
    there = everything(tmp_path)
    number, hit = 1, True
    while hit:
        fault = Fault(number, code)
        with suppress(Failed), injected(fault, tmp_path):
            getattr(store, look)(*([] if look == "all" else [REPLY]))
        hit = fault.hit is not None
        number += 1
    assert number > 2
    assert everything(tmp_path) == there


def nursery(job: str, root: Path) -> list[str]:
    """Has a process of its own do one of the jobs below; what it says, line by line."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, job, str(root)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("job", ["create", "keyed"])
def test_wherever_its_writer_is_killed_a_message_is_there_whole_or_not_at_all(tmp_path: Path, job: str) -> None:
    [count] = nursery(job, tmp_path)
    assert int(count) > {"create": 6, "keyed": 10}[job]
    outcomes = set()
    for number in range(1, int(count) + 1):
        root = tmp_path / str(number)
        store = Messages(Layout(str(root)))
        there = [message_id for message_id in whole_or_nothing(store) if message_id != ORIGINAL]
        assert there in ([], [REPLY]), number
        outcomes.add(bool(there))
        if job == "keyed":
            made = store.keyed(KEY, lambda: message(OTHER, in_reply_to=ORIGINAL))
            assert made["id"] == (REPLY if there else OTHER)
            assert whole_or_nothing(store) == [ORIGINAL, made["id"]] if there else [ORIGINAL, OTHER]
    assert outcomes == {True, False}


def test_eight_processes_with_one_key_at_once_make_one_message(tmp_path: Path) -> None:
    said = nursery("crowd", tmp_path)
    assert len(said) == 8 * 5
    for key in range(5):
        found = {line.split()[1] for line in said if line.startswith(f"{key} ")}
        assert len(found) == 1
    store = Messages(Layout(str(tmp_path)))
    assert sorted(line.split()[1] for line in set(said)) == whole_or_nothing(store)


def _die_at(number: int) -> None:
    """Has this process killed at its n-th call, in the middle of it where it writes."""
    left = number

    def deadly(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, deadly(name, getattr(os, name)))


def _killed(job: str, root: str) -> None:
    """One writer after the other, each killed one call later, until one survives."""
    number, status, reply = 0, 1, message(REPLY, in_reply_to=ORIGINAL)
    while status:
        number += 1
        store = Messages(Layout(os.path.join(root, str(number))))
        store.create(message())
        pid = os.fork()
        if pid == 0:
            _die_at(number)
            store.create(reply) if job == "create" else store.keyed(KEY, lambda: reply)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert status in (0, signal.SIGKILL)
    print(number)


def _crowd(root: str) -> None:
    """Eight at once, under five keys one after the other; each says what it was given."""
    waiting, start = os.pipe()
    children = []
    clock = FakeClock()
    for child in range(8):
        pid = os.fork()
        if pid == 0:
            os.close(start)
            os.read(waiting, 1)
            clock.made = child << 16
            for key in range(5):
                made = Messages(Layout(root)).keyed(str(key) * 32, lambda: message(clock.new_id()))
                os.write(1, f"{key} {made['id']}\n".encode())
            os._exit(0)
        children.append(pid)
    os.close(start)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 8


if __name__ == "__main__":
    _crowd(sys.argv[2]) if sys.argv[1] == "crowd" else _killed(sys.argv[1], sys.argv[2])

"""Documents have the bytes that JavaScript writes, and what JavaScript refuses to read is refused here too."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.errors import SubagentError
from subagent_cli.services import questions
from subagent_cli.store import codec
from tests.store.world import STAMP, document, journal_of, meta, new_run, open_at, truth

# What node prints for JSON.stringify(JSON.parse(text), null, 2).
SPELLINGS = [
    ("{}", "{}"),
    ("[]", "[]"),
    ('""', '""'),
    ('{"a":{},"b":[],"c":[[]]}', '{\n  "a": {},\n  "b": [],\n  "c": [\n    []\n  ]\n}'),
    ('{"a":[1,{"b":null}]}', '{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ]\n}'),
    ("[true,false,null]", "[\n  true,\n  false,\n  null\n]"),
    (r'"\u00fc\u4e2d\ud83d\ude00"', '"ü中😀"'),
    (r'"\"\\\/\b\f\n\r\t"', r'"\"\\/\b\f\n\r\t"'),
    (r'"\u0000\u001f\u007f\u2028\u2029\ufeff"', '"\\u0000\\u001f\x7f\u2028\u2029\ufeff"'),
    ("1.0", "1"),
    ("-0", "0"),
    ("-0.0", "0"),
    ("1e-07", "1e-7"),
    ("0.000001", "0.000001"),
    ("0.00000123", "0.00000123"),
    ("0.000000123", "1.23e-7"),
    ("-1.5E-10", "-1.5e-10"),
    ("1e20", "100000000000000000000"),
    ("123456789012345678901", "123456789012345680000"),
    ("1e21", "1e+21"),
    ("1.7976931348623157e308", "1.7976931348623157e+308"),
    ("5e-324", "5e-324"),
    ("0.1", "0.1"),
    ("100.25", "100.25"),
    ("9007199254740991", "9007199254740991"),
    ("9007199254740992", "9007199254740992"),
    ("9007199254740993", "9007199254740992"),
    ("-9007199254740993", "-9007199254740992"),
    ("18446744073709551615", "18446744073709552000"),
    ("1e400", "null"),
    ("-1e400", "null"),
    ("1" + "0" * 400, "null"),
    ('{"b":1,"10":2,"a":3,"9":4}', '{\n  "9": 4,\n  "10": 2,\n  "b": 1,\n  "a": 3\n}'),
    ('{"01":1,"-1":2,"1.0":3,"0":4}', '{\n  "0": 4,\n  "01": 1,\n  "-1": 2,\n  "1.0": 3\n}'),
    ('{"4294967295":1,"4294967294":2}', '{\n  "4294967294": 2,\n  "4294967295": 1\n}'),
    ('{"٣":1,"3":2,"²":3}', '{\n  "3": 2,\n  "٣": 1,\n  "²": 3\n}'),
    ('{"a":1,"b":2,"a":3}', '{\n  "a": 3,\n  "b": 2\n}'),
    ('{"__proto__":1,"":2}', '{\n  "__proto__": 1,\n  "": 2\n}'),
]
SURROGATES = [
    (r'"\ud800"', r'"\ud800"'),
    (r'"a\uDFFFb"', r'"a\udfffb"'),
    (r'"\ude00\ud83d"', r'"\ude00\ud83d"'),
    (r'"\ud83d\ud83d\ude00"', '"\\ud83d😀"'),
    (r'{"\udc80":"ü\ud800"}', '{\n  "\\udc80": "ü\\ud800"\n}'),
]
NOT_JSON = [
    b"",
    b" ",
    b"\xef\xbb\xbf{}",
    b"NaN",
    b"[Infinity]",
    b'{"a": -Infinity}',
    b"{",
    b'{"a":1,}',
    b"[1,]",
    b"{'a':1}",
    b"{a:1}",
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"1e",
    b"0x10",
    b"undefined",
    b"True",
    b'"\n"',
    b'"\x00"',
    rb'"\x41"',
    rb'"\u12"',
    b"{}{}",
    b"[] x",
    b"// no\n{}",
    b"\xc2\xa0{}",
    b"{}\x00",
]


def reads(load: Callable[[bytes], Any], data: bytes) -> bool:
    try:
        load(data)
    except ValueError:
        return False
    return True


@pytest.mark.case("C1-03")
@pytest.mark.parametrize(("text", "spelled"), SPELLINGS)
def test_a_value_is_spelled_as_javascript_spells_it(text: str, spelled: str) -> None:
    assert codec.document(codec.load(text.encode())).decode() == spelled


@pytest.mark.case("T-81")
@pytest.mark.parametrize(("text", "spelled"), SURROGATES)
def test_a_lone_surrogate_is_written_as_its_escape(text: str, spelled: str) -> None:
    value = codec.load(text.encode())
    assert codec.document(value).decode() == spelled
    assert codec.load(codec.document(value)) == value
    assert codec.load(codec.line(value)) == value


@pytest.mark.case("T-81")
def test_a_question_with_a_lone_surrogate_goes_through_journal_and_document_unharmed(tmp_path: Path) -> None:
    root = tmp_path / "foreign" / "runs"
    context = open_at(root)
    run_id = new_run(context)
    text = "half \ud83d of a pair"
    entry = {
        "messageId": "0190a000-0000-7000-8000-000000000001",
        "questionContent": text,
        "questionTimestamp": STAMP.replace("2026", "2999"),
        "messageStatus": "pending_parent_reply",
    }
    meta(root, run_id).write_text(json.dumps({**document(root, run_id), "messages": [entry]}, indent=2))
    questions.ask(context, "And another?", run=run_id)
    assert rb'"half \ud83d of a pair"' in meta(root, run_id).read_bytes()
    assert rb'"half \ud83d of a pair"' in journal_of(root, run_id).read_bytes()
    assert truth(root, run_id).questions[entry["messageId"]].text == text


def test_a_document_ends_without_a_newline() -> None:
    assert codec.document({"a": 1}) == b'{\n  "a": 1\n}'


@pytest.mark.case("C1-03", "T-25")
@pytest.mark.parametrize("data", NOT_JSON)
def test_what_javascript_refuses_is_refused(data: bytes) -> None:
    assert not reads(codec.load, data)


@pytest.mark.case("T-25")
@pytest.mark.parametrize("data", [b"{}\n", b"\r\n\t {} \n\n\n"])
def test_white_space_around_a_document_is_fine(data: bytes) -> None:
    assert codec.load(data) == {}


@pytest.mark.case("T-62")
@pytest.mark.parametrize("tail", [b"", b"}", b'"old": 1\n}', b"\xff\xfe", b"\xe4\xb8", b'{"a": 2}', b"\x00" * 9])
def test_the_value_at_the_beginning_is_read_whatever_stands_behind_it(tail: bytes) -> None:
    assert codec.load_prefix(b'\n {"a": "\xc3\xbc"}' + tail) == {"a": "ü"}


@pytest.mark.parametrize("data", [b"", b" \n", b'{"a": 1', b'\xef\xbb\xbf{"a": 1}', b"nothing", b"NaN"])
def test_without_a_whole_value_at_the_beginning_there_is_no_prefix(data: bytes) -> None:
    assert not reads(codec.load_prefix, data)


@pytest.mark.case("T-62")
def test_no_cut_of_a_document_passes_for_the_whole_of_it() -> None:
    whole = codec.document({"a": "ü", "b": [1, {"c": "😀"}]})
    for cut in range(len(whole)):
        assert not reads(codec.load, whole[:cut])
        assert not reads(codec.load_prefix, whole[:cut])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_a_line_gives_back_the_exact_value_and_is_one_line(value: object) -> None:
    data = codec.line(value)
    assert b"\n" not in data
    found = codec.load(data)
    assert found == value
    assert repr(found) == repr(value)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "[1e400, 1]"])
def test_a_number_beyond_all_doubles_can_be_read_again_from_its_line(text: str) -> None:
    seen = codec.load(text.encode())
    assert codec.load(codec.line({"seen": seen})) == {"seen": seen}


def test_a_key_of_many_digits_is_a_key_like_any_other() -> None:
    key = "9" * 5000
    assert codec.document({key: 1, "1": 2}).decode() == f'{{\n  "1": 2,\n  "{key}": 1\n}}'


@pytest.mark.parametrize("depth", [100, 500, 2_000, 100_000])
def test_nesting_of_any_depth_is_written_or_refused_with_a_sentence(tmp_path: Path, depth: int) -> None:
    root = tmp_path / "foreign" / "runs"
    context = open_at(root)
    run_id = new_run(context)
    nested = b"[" * depth + b"]" * depth
    meta(root, run_id).write_bytes(b'{"extra": ' + nested + b"}")
    try:
        questions.ask(context, "Which?", run=run_id)
    except SubagentError:
        assert meta(root, run_id).read_bytes() == b'{"extra": ' + nested + b"}"
    else:
        assert meta(root, run_id).read_bytes().count(b"[") == depth + 1


LETTERS = '"\\/\b\f\n\r\t\0\x1f\x7f üß中😀\u2028\ufeff\ud800\udfffazA09-_.{}[]:,'


def text_of(chance: random.Random) -> str:
    return "".join(chance.choice(LETTERS) for _ in range(chance.randrange(8)))


def number_of(chance: random.Random) -> str:
    kind = chance.randrange(4)
    if kind == 0:
        return str(chance.randrange(-(10**3), 10**3))
    if kind == 1:
        return str(chance.randrange(-(10 ** chance.randrange(1, 40)), 10 ** chance.randrange(1, 40)))
    if kind == 2:
        return repr(chance.uniform(-1, 1) * 10 ** chance.randrange(-30, 30))
    return f"{chance.randrange(-99, 99)}.{chance.randrange(10**6)}e{chance.randrange(-330, 330)}"


def key_of(chance: random.Random) -> str:
    return chance.choice([text_of(chance), str(chance.randrange(30)), str(2**32 - chance.randrange(-2, 4)), "007"])


def json_of(chance: random.Random, depth: int = 0) -> str:
    kind = chance.randrange(7 if depth < 4 else 5)
    if kind < 2:
        return json.dumps(text_of(chance), ensure_ascii=bool(kind)) if kind else json.dumps(text_of(chance))
    if kind < 4:
        return number_of(chance)
    if kind == 4:
        return chance.choice(["null", "true", "false"])
    space = chance.choice(["", " ", "\n"])
    if kind == 5:
        return "[" + ",".join(space + json_of(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    pairs = [
        f"{space}{json.dumps(key_of(chance))}:{json_of(chance, depth + 1)}{space}" for _ in range(chance.randrange(6))
    ]
    return "{" + ",".join(pairs) + "}"


def damaged(chance: random.Random, text: str) -> str:
    place = chance.randrange(len(text) + 1)
    kind = chance.randrange(3)
    if kind == 0:
        return text[:place]
    if kind == 1:
        return text[:place] + text[place + 1 :]
    return text[:place] + chance.choice('"\\,:[]{}0-.eE+ \nNaNtu\ufeff\0') + text[place:]


IN_NODE = """
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
const written = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return null; } };
process.stdout.write(JSON.stringify(texts.map(written)));
"""


@pytest.mark.case("C1-03", "T-81")
def test_node_writes_the_same_bytes_and_refuses_the_same_texts() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node: no node")
    chance = random.Random()
    texts = [text for text, _ in SPELLINGS + SURROGATES]
    texts += [json_of(chance) for _ in range(4000)]
    texts += [damaged(chance, chance.choice(texts)) for _ in range(4000)]
    # A lone surrogate has no bytes of its own: only as an escape can it stand in a file.
    texts = [text.encode("utf-8", "backslashreplace").decode() for text in texts]
    done = subprocess.run(
        [node, "-e", IN_NODE], input=json.dumps(texts).encode(), capture_output=True, timeout=60, check=True
    )
    wanted: list[str | None] = json.loads(done.stdout)
    wrong = [(text, want, got) for text, want in zip(texts, wanted, strict=True) if (got := ours(text)) != want]
    assert wrong == []
    assert sum(want is None for want in wanted) > 1000


def ours(text: str) -> str | None:
    try:
        value: Any = codec.load(text.encode())
    except ValueError:
        return None
    return codec.document(value).decode()

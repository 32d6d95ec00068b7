"""The generated TypeScript says what the models say, and the TypeScript compiler believes it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from subagent_cli.contracts.schema import NAMES, json_schema, typescript
from subagent_cli.contracts.typescript import declarations

TSC = Path(__file__).parents[1] / "compat" / "node" / "node_modules" / "typescript" / "bin" / "tsc"

TSCONFIG = {
    "files": ["consumer.ts"],
    "compilerOptions": {
        "noEmit": True,
        "strict": True,
        "exactOptionalPropertyTypes": True,
        "noUncheckedIndexedAccess": True,
        "target": "es2022",
        "module": "es2022",
        "moduleResolution": "bundler",
        # Otherwise type packages that happen to lie in a folder above are compiled too.
        "types": [],
    },
}

# Each @ts-expect-error is an error of its own where the line below it would compile.
CONSUMER = """\
import type { JournalEntry, MessageStatus, MetaDocument, MetaMessage, RunSpec, RunStatus } from "./subagent";

export const empty: MetaDocument = {};
export const made: MetaDocument = { status: "running", exitCode: null, endTime: null, error: "x" };
export const word: RunStatus | undefined = made.status;
export const states: MessageStatus[] = (made.messages ?? []).map((message) => message.messageStatus);
export const argv = (run: RunSpec): string[] => run.argv ?? [];
export const label = (run: RunSpec): string | undefined => run.labels["team"];
export const question = (entry: JournalEntry): unknown => entry["question"];

// @ts-expect-error an unknown status
export const cancelled: MetaDocument = { status: "cancelled" };
// @ts-expect-error null where a key may only be left out
export const unnamed: MetaDocument = { agentName: null };
// @ts-expect-error a text as exit code
export const texted: MetaDocument = { exitCode: "0" };
// @ts-expect-error a message without its status
export const short: MetaMessage = { messageId: "1", questionContent: "?", questionTimestamp: "" };
// @ts-expect-error a null answer
export const answer: MetaMessage["answerContent"] = null;
// @ts-expect-error a version that does not exist yet
export const version: RunSpec["version"] = 2;
// @ts-expect-error a key of a run that may be null but not left out
export const nameless: { name?: string | null } extends Pick<RunSpec, "name"> ? true : false = true;
"""


def body(text: str, name: str) -> str:
    found = re.search(rf"^export interface {name} {{\n(.*?)^}}$", text, re.MULTILINE | re.DOTALL)
    assert found, f"no interface {name}"
    return found[1]


def keys(text: str, name: str) -> list[tuple[str, str]]:
    return re.findall(r"^  (\w+\??): (.*);$", body(text, name), re.MULTILINE)


@pytest.mark.case("C1-07")
def test_the_document_has_exactly_the_ten_keys_all_optional_three_nullable() -> None:
    assert keys(typescript("meta"), "MetaDocument") == [
        ("runId?", "string"),
        ("agentName?", "string"),
        ("command?", "string"),
        ("startTime?", "string"),
        ("status?", "RunStatus"),
        ("exitCode?", "number | null"),
        ("endTime?", "string | null"),
        ("summary?", "string | null"),
        ("messages?", "MetaMessage[]"),
        ("lastUpdated?", "string"),
    ]


@pytest.mark.case("C1-04")
@pytest.mark.case("C1-05")
def test_a_message_has_four_keys_for_certain_and_an_answer_that_is_never_null() -> None:
    assert keys(typescript("meta"), "MetaMessage") == [
        ("messageId", "string"),
        ("questionContent", "string"),
        ("questionTimestamp", "string"),
        ("answerContent?", "string"),
        ("answerTimestamp?", "string"),
        ("messageStatus", "MessageStatus"),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_interface_of_a_file_admits_further_keys(name: str) -> None:
    """A payload that somebody hands in is another matter: what is not known there is refused."""
    text = typescript(name)
    open_ends = text.count("  [key: string]: unknown;\n}")
    assert open_ends == (0 if name == "dispatch" else text.count("export interface "))
    assert "export interface " in text


def test_one_name_gives_one_format_and_no_name_gives_all() -> None:
    def exported(text: str) -> list[str]:
        return re.findall(r"^export (?:interface|type) (\w+)", text, re.MULTILINE)

    assert exported(typescript("run")) == ["RunSpec"]
    assert exported(typescript("journal")) == ["JournalEntry"]
    assert exported(typescript(None)) == [each for name in NAMES for each in exported(typescript(name))]


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        typescript("metadata")


def test_descriptions_become_comments_and_long_ones_are_wrapped() -> None:
    text = typescript(None)
    assert "  /** What the worker asks. */\n  questionContent: string;\n" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.endswith("}\n")
    assert not re.search(r"[ \t]$|\n\n\n", text, re.MULTILINE)


def test_a_comment_cannot_be_ended_by_its_own_text() -> None:
    schema = {"title": "A", "description": "a */ b", "type": "string"}
    assert declarations(schema) == {"A": "/** a *\\/ b */\nexport type A = string;\n"}


def test_odd_keys_are_quoted_and_alternatives_in_lists_bracketed() -> None:
    schema = {
        "title": "A",
        "properties": {
            "a-b": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "c": {"type": "object", "additionalProperties": {"enum": ["x", 1]}},
        },
        "required": ["c"],
        "additionalProperties": False,
    }
    assert declarations(schema) == {
        "A": 'export interface A {\n  "a-b"?: (string | null)[];\n  c: Record<string, "x" | 1>;\n}\n'
    }


@pytest.mark.parametrize("part", [{}, {"type": "object"}, {"allOf": [{"type": "string"}]}, {"not": {}}])
def test_what_the_generator_cannot_say_is_an_error_and_not_a_guess(part: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no TypeScript"):
        declarations({"title": "A", "properties": {"a": part}})


def test_every_reference_in_a_schema_is_declared() -> None:
    for name in NAMES:
        used = set(re.findall(r"#/\$defs/(\w+)", str(json_schema(name))))
        assert used <= set(declarations(json_schema(name)))


@pytest.mark.case("C1-04")
@pytest.mark.case("C1-05")
@pytest.mark.case("C1-06")
@pytest.mark.case("C1-07")
def test_the_compiler_accepts_the_types_and_refuses_documents_that_break_them(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not TSC.exists():
        pytest.skip("needs node and the packages of tests/compat/node (npm ci)")
    (tmp_path / "subagent.ts").write_text(typescript(None), encoding="utf-8")
    (tmp_path / "consumer.ts").write_text(CONSUMER, encoding="utf-8")
    (tmp_path / "tsconfig.json").write_text(json.dumps(TSCONFIG), encoding="utf-8")
    done = subprocess.run(
        [node, str(TSC), "--project", "tsconfig.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

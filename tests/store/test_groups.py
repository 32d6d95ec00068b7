"""The records of groups: written once and whole, found by a part of their ids, and gone without a trace."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagent_cli.core.errors import Damaged, Failed
from subagent_cli.store.groups import Groups
from subagent_cli.store.layout import Layout
from tests.store.world import FakeClock, everything

RUN = "0199c7d4-4c00-7000-8000-00000000abcd"


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(Layout(str(tmp_path)))


def group(group_id: str, **more: Any) -> dict[str, Any]:
    children = [{"runId": RUN, "agentName": "helper", "task": "Do it"}]
    made = {"version": 1, "groupId": group_id, "parentId": None, "deadlineSeconds": None, "keyDigest": None}
    return {**made, "children": children, "createdAt": "2026-01-02T03:04:05.678Z", **more}


def path(root: Path, group_id: str) -> Path:
    return root / ".groups" / f"{group_id}.json"


def test_a_group_is_read_as_it_was_written(groups: Groups) -> None:
    made = group(FakeClock().new_id(), deadlineSeconds=1.5, parentId=RUN)
    groups.create(made)
    assert groups.read(made["groupId"]) == made
    assert groups.all() == [made["groupId"]]


def test_only_its_owner_may_read_it(groups: Groups, tmp_path: Path) -> None:
    made = group(FakeClock().new_id())
    groups.create(made)
    assert path(tmp_path, made["groupId"]).stat().st_mode & 0o077 == 0


def test_groups_stand_in_the_order_in_which_they_were_made(groups: Groups) -> None:
    clock = FakeClock()
    ids = []
    for _ in range(5):
        clock.advance(10)
        ids.append(clock.new_id())
    for group_id in reversed(ids):
        groups.create(group(group_id))
    assert groups.all() == ids


def test_a_group_is_found_by_the_beginning_or_the_end_of_its_id(groups: Groups) -> None:
    first, second = (FakeClock(ms).new_id() for ms in (1_800_000_000_000, 1_900_000_000_000))
    groups.create(group(first))
    groups.create(group(second))
    assert groups.matching(first[:8]) == [first]
    assert groups.matching(second.replace("-", "")[:11]) == [second]
    assert groups.matching(first[-6:]) == [first, second]
    assert groups.matching("ffffffff") == []


def test_where_nothing_was_spawned_there_is_no_group(groups: Groups, tmp_path: Path) -> None:
    assert groups.all() == []
    assert groups.matching("0000") == []
    assert groups.read(RUN) is None
    assert groups.keyed("0" * 32) is None
    assert everything(tmp_path) == {}


@pytest.mark.parametrize("name", ["", ".", "..", "../../etc/passwd", "x", RUN[:-1], RUN + "0", "\0"])
def test_what_is_no_id_is_no_group(groups: Groups, tmp_path: Path, name: str) -> None:
    groups.create(group(RUN))
    assert groups.read(name) is None


def test_what_others_put_beside_the_groups_is_passed_over(groups: Groups, tmp_path: Path) -> None:
    groups.create(group(RUN))
    for name in ("README.md", ".hidden", f"{RUN}.json.tmp", "x.json", f"{RUN[:-1]}e.txt"):
        (tmp_path / ".groups" / name).write_text("{}")
    assert groups.all() == [RUN]


@given(st.binary(max_size=80))
def test_bytes_that_are_no_group_are_damaged(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("groups")
    found = Groups(Layout(str(root)))
    (root / ".groups").mkdir()
    path(root, RUN).write_bytes(content)
    with pytest.raises(Damaged) as caught:
        found.read(RUN)
    assert RUN in caught.value.message


def test_every_beginning_of_a_record_is_damaged_and_never_half_a_group(groups: Groups, tmp_path: Path) -> None:
    groups.create(group(RUN))
    content = path(tmp_path, RUN).read_bytes()
    for length in range(len(content.rstrip())):
        path(tmp_path, RUN).write_bytes(content[:length])
        with pytest.raises(Damaged):
            groups.read(RUN)


@pytest.mark.parametrize("children", [None, 7, "x", {}, [7], ["x"], [None], [{}], [{"runId": 7}], [{"task": "x"}]])
def test_a_record_that_does_not_say_which_runs_it_has_is_damaged(
    groups: Groups, tmp_path: Path, children: object
) -> None:
    groups.create(group(RUN, children=children))
    with pytest.raises(Damaged):
        groups.read(RUN)


def test_a_file_in_the_way_is_a_failure_that_leaves_nothing(groups: Groups, tmp_path: Path) -> None:
    (tmp_path / ".groups").write_text("in the way")
    before = everything(tmp_path)
    with pytest.raises(Failed):
        groups.create(group(RUN))
    assert everything(tmp_path) == before
    assert groups.all() == []
    assert groups.read(RUN) is None


def test_a_record_that_could_not_appear_leaves_nothing(groups: Groups, tmp_path: Path) -> None:
    path(tmp_path, RUN).mkdir(parents=True)
    (path(tmp_path, RUN) / "inside").touch()
    with pytest.raises(Failed):
        groups.create(group(RUN))
    assert sorted(os.listdir(tmp_path / ".groups")) == [f"{RUN}.json"]


def test_a_group_that_is_removed_is_gone_and_removing_it_twice_does_no_harm(groups: Groups, tmp_path: Path) -> None:
    made = group(RUN, keyDigest="0" * 32)
    groups.create(made)
    assert groups.keyed("0" * 32) == made
    for _ in range(2):
        groups.remove(made)
        assert groups.all() == []
        assert groups.read(RUN) is None
        assert groups.keyed("0" * 32) is None
    assert everything(tmp_path) == {}


def test_a_reader_beside_a_writer_sees_a_whole_group_or_none(groups: Groups, tmp_path: Path) -> None:
    ids = [FakeClock(1_800_000_000_000 + number).new_id() for number in range(200)]

    def write() -> None:
        for group_id in ids:
            groups.create(group(group_id))

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while writer.is_alive() or seen < len(ids):
        found = groups.all()
        assert len(found) >= seen
        seen = len(found)
        assert all(groups.read(group_id) == group(group_id) for group_id in found[-3:])
    writer.join()

"""What `make bench` says of its figures: verdicts, tables, drawings, and documents that hold nothing else."""

import json
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts import bench_report
from scripts.bench_plot import LABEL_GAP, apart
from scripts.bench_report import BEGIN, END, Report
from scripts.bench_table import Curve, Line, Part, Row

TIME = Row("status", 30.0, 10.0, "python", "ms", goal=4.5, stretch=2.0)
RATE = Row("cycles", 50.0, 100.0, "SQLite", "/s", goal=0.4)
FASTER = Row("status", 30.0, 90.0, "double", "ms", goal=2.3, faster=True, imitation=True)
CURVE = Curve("runs", "Cost & runs", "cold", "runs", [Line("ls", [(100, 1.5), (1000, 14)], ours=False)])


def report() -> Report:
    machine: dict[str, str | int] = {
        "date": "2026-01-02",
        "cores": 2,
        "cpu": "some",
        "memory": "8 GB",
        "fileSystem": "ext4",
        "system": "Linux",
        "python": "3.11",
        "node": "",
    }
    parts = [Part("all of it", [TIME, RATE, FASTER], ["what needs rg: it is not on PATH"], CURVE)]
    return Report(machine, parts, quick=True, seconds=60.0)


def test_times_are_bounded_from_above_and_rates_from_below() -> None:
    assert (TIME.ratio, TIME.sign, TIME.verdict, TIME.stretch_verdict) == (3.0, "≤", "met", "missed")
    assert (RATE.ratio, RATE.sign, RATE.verdict, RATE.stretch_verdict) == (0.5, "≥", "met", "")
    assert (FASTER.ratio, FASTER.sign, FASTER.verdict) == (3.0, "≥", "met")


@pytest.mark.parametrize(
    "row",
    [
        TIME._replace(ours=46.0),
        RATE._replace(ours=39.0),
        FASTER._replace(ours=40.0),
        TIME._replace(goal=None, stretch=None),
    ],
)
def test_a_goal_that_is_not_reached_is_never_called_met(row: Row) -> None:
    assert row.verdict == ("missed" if row.goal else "")


def test_imitations_stand_in_a_table_of_their_own_and_what_is_left_out_is_said() -> None:
    before, told, after = bench_report.text(report()).partition(bench_report.IMITATIONS)

    assert told
    assert "python" in before
    assert "double" not in before
    assert "double" in after
    assert "left out: what needs rg" in after


def test_saving_changes_nothing_outside_the_markers(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"above\n{BEGIN}\nold figures\n{END}\nbelow\n")

    bench_report.save(report(), str(tmp_path))
    once = document.read_text()
    bench_report.save(report(), str(tmp_path))

    assert once.startswith(f"above\n{BEGIN}\n")
    assert once.endswith(f"{END}\nbelow\n")
    assert "old figures" not in once
    assert "| status | 30.0 ms | 10.0 ms | python | 3.00 | ≤ 4.5 | met | ≤ 2 missed |" in once
    assert document.read_text() == once
    assert json.loads((tmp_path / "performance.json").read_text())["rows"][0]["verdict"] == "met"


def test_a_drawing_is_well_formed_and_names_every_line(tmp_path: Path) -> None:
    (tmp_path / "performance.md").write_text(f"{BEGIN}{END}")

    bench_report.save(report(), str(tmp_path))

    drawn = ElementTree.parse(tmp_path / "performance-runs.svg").getroot()
    assert {"Cost & runs", "ls", "1,000"} <= {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}


def test_names_of_lines_that_end_together_are_movedapart_within_the_drawing() -> None:
    places = apart([100.0, 101.0, 102.0, 399.0], 80, 400)

    assert all(later - earlier >= LABEL_GAP for earlier, later in pairwise(places))
    assert places[0] >= 80
    assert places[-1] <= 400

"""The table for people and the one for programs hold the numbers of the JSON."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from hierring.benchmarks.result import load
from hierring.benchmarks.table import CSV_COLUMNS, closing, header, rows, write_csv

SAMPLE = load(Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json")


def test_csv_holds_the_same_numbers(tmp_path):
    write_csv(SAMPLE, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == len(SAMPLE.cases)
    for row, case in zip(found, SAMPLE.cases, strict=True):
        assert tuple(row) == CSV_COLUMNS
        assert row["schema"] == SAMPLE.schema
        assert float(row["median_s"]) == case.times.median
        assert float(row["p99_s"]) == case.times.p99
        assert float(row["algbw_gbs"]) == case.algbw
        assert float(row["busbw_gbs"]) == case.busbw
        assert (int(row["nbytes"]), int(row["count"])) == (case.nbytes, case.count)
        assert (row["library"], row["algorithm"]) == (case.library, case.algorithm)
        assert int(row["wrong"]) == case.wrong
        assert row["ratio"] == ("" if case.ratio is None else repr(case.ratio.median))


def test_a_line_has_both_sides():
    out, inside = (
        next(case for case in SAMPLE.cases if case.in_place is side) for side in (False, True)
    )
    (line,) = rows([out, inside])
    left, right, _ = line.split("|")
    assert left.split()[:4] == [str(out.nbytes), str(out.count), out.dtype, out.op]
    assert f"{out.times.median * 1e6:.2f}" in left
    assert f"{inside.times.median * 1e6:.2f}" in right
    times, wrong = (out.times.median, out.times.p99), str(out.wrong)
    assert left.split()[-5:] == [
        *(f"{seconds * 1e6:.2f}" for seconds in times),
        f"{out.algbw:.3f}", f"{out.busbw:.3f}", wrong,
    ]  # fmt: skip
    assert len(line) == len(header("allreduce").splitlines()[2].rstrip("|")) + len("|  12.3")


def test_a_side_that_was_not_measured_is_empty():
    case = next(case for case in SAMPLE.cases if case.in_place)
    (line,) = rows([dataclasses.replace(case, wrong=None)])
    assert line.split("|")[0].split()[-1] == case.algorithm
    assert "N/A" in line


@pytest.mark.parametrize(("wrong", "text"), [(None, "not checked"), (0, "0"), (3, "3")])
def test_the_last_lines_count_errors(wrong, text):
    last = closing(dataclasses.replace(SAMPLE, wrong=wrong))
    assert last.splitlines()[0] == f"# wrong elements: {text}"


def test_the_last_lines_say_what_is_missing():
    assert "cut short" not in closing(SAMPLE)
    assert "cut short" in closing(dataclasses.replace(SAMPLE, complete=False))
    for one in SAMPLE.skipped:
        assert f"not measured: {one.what}: {one.why}" in closing(SAMPLE)

"""The model against clusters that it never saw, as they were measured at two times.

tests/data/model holds what `python -m hierring.benchmarks.model.rehearse --layouts
2x1,3x1,4x1,2x2,3x2,4x2 --keep` wrote: three rounds on virtual nodes of one machine with two cores
that others used as well, MPICH, links of 1 Gbit/s and without a limit. The form of the model was
chosen by looking at the first series; the second came after, and has one rank a node where it was
asked. A line is a run, without its cases out of place and the figures of single ranks.
"""

from __future__ import annotations

import dataclasses
import gzip
from functools import cache
from pathlib import Path

import pytest

from hierring.benchmarks.model.calibrate import calibrate
from hierring.benchmarks.model.forecast import Check, check
from hierring.benchmarks.model.measured import points_of, shape_of
from hierring.benchmarks.model.parameters import Model
from hierring.benchmarks.model.rehearse import Round, rehearsal, rows
from hierring.benchmarks.result import loads

DATA = Path(__file__).resolve().parents[1] / "data" / "model"
SERIES = ("first-1gbit", "first-none", "second-1gbit", "second-none")
LIMIT = 0.25


@cache
def recorded(series: str) -> Round:
    """All runs of one rate: those with all algorithms were made to learn from."""
    file = DATA / f"{series}.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        runs = [loads(line, f"{file.name}:{number}") for number, line in enumerate(lines, 1)]
    learnt = [run for run in runs if len({case.algorithm for case in run.cases}) > 1]
    asked = [run for run in runs if run not in learnt]
    return Round(tuple(learnt), tuple(asked), 0.2)


@cache
def calibrated(series: str) -> Model:
    return calibrate(recorded(series).learnt)


@cache
def checks(series: str) -> tuple[Check, ...]:
    return tuple(rehearsal([recorded(series)]))


@pytest.mark.parametrize("series", SERIES)
def test_only_two_nodes_were_learnt_from(series: str) -> None:
    runs = recorded(series)
    assert {shape_of(run).nodes for run in runs.learnt} == {2}
    assert {shape_of(run).nodes for run in runs.asked} == {2, 3, 4}
    assert all(shape_of(run).one_machine for run in runs.learnt + runs.asked)
    assert all(run.wrong == 0 and run.complete for run in runs.learnt + runs.asked)
    fastest = max(link.both for run in runs.asked for link in run.links)
    assert (fastest < 0.13) == series.endswith("1gbit")


@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("nbytes", [2**16, 2**24])
@pytest.mark.parametrize(("series", "ranks"), [
    *((series, 1) for series in SERIES), ("first-1gbit", 2), ("first-none", 2),
])  # fmt: skip
def test_prediction_is_within_a_quarter(series: str, ranks: int, nbytes: int, nodes: int) -> None:
    (found,) = (
        one for one in checks(series)
        if (one.nbytes, one.nodes, one.ranks) == (nbytes, nodes, ranks)
    )  # fmt: skip
    assert found.algorithm == "hierarchical"
    assert found.beyond == ()
    assert found.runs == 3
    assert abs(found.predicted / found.measured - 1) <= LIMIT, "\n".join(rows(checks(series)))


@pytest.mark.parametrize("series", SERIES)
def test_the_cores_are_part_of_it(series: str) -> None:
    """With a core for every rank, the same calibration foretells something else."""
    points = [
        dataclasses.replace(point, shape=dataclasses.replace(point.shape, cores=64))
        for run in recorded(series).asked
        for point in points_of(run)
    ]
    found = check(calibrated(series), points)
    small = [one for one in found if one.nbytes == 2**16 and one.nodes == 4]
    assert small
    assert all(one.ratio < 1 - LIMIT and "cores" in one.beyond for one in small)


@pytest.mark.parametrize("series", SERIES)
def test_the_fit_itself_is_as_close(series: str) -> None:
    fit = calibrated(series).fit
    assert fit.cases == 2 * 32
    assert fit.typical < 0.15


def test_other_sizes_are_extrapolated() -> None:
    points = points_of(recorded("first-1gbit").asked[0])
    small = [dataclasses.replace(point, nbytes=8) for point in points]
    assert [one.beyond for one in check(calibrated("first-1gbit"), small)] == [("size",)]

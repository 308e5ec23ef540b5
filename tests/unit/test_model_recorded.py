"""The model against clusters that it never saw, as they were measured once.

tests/data/model holds what `python -m hierring.benchmarks.model.rehearse --layouts
2x1,3x1,4x1,2x2,3x2,4x2 --keep` wrote: three rounds on virtual nodes of one machine with two cores,
MPICH, links of 1 Gbit/s and without a limit, during which others used at most 15 % of the cores. A
line is a run, without its cases out of place and the figures of single ranks.
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
from hierring.benchmarks.result import Result, loads

DATA = Path(__file__).resolve().parents[1] / "data" / "model"
RATES = ("1gbit", "none")
LIMIT = 0.25


@cache
def recorded(rate: str) -> Round:
    """All runs of one rate: those with all algorithms were made to learn from."""
    file = DATA / f"rehearsal-{rate}.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        runs = [loads(line, f"{file.name}:{number}") for number, line in enumerate(lines, 1)]
    learnt = [run for run in runs if len({case.algorithm for case in run.cases}) > 1]
    asked = [run for run in runs if run not in learnt]
    return Round(tuple(learnt), tuple(asked), 0.15)


@cache
def calibrated(rate: str) -> Model:
    return calibrate(recorded(rate).learnt)


@cache
def checks(rate: str) -> tuple[Check, ...]:
    return tuple(rehearsal([recorded(rate)]))


@pytest.mark.parametrize("rate", RATES)
def test_only_two_nodes_were_learnt_from(rate: str) -> None:
    runs = recorded(rate)
    assert {shape_of(run).nodes for run in runs.learnt} == {2}
    assert {(shape_of(run).nodes, shape_of(run).ranks) for run in runs.asked} == {
        (nodes, ranks) for nodes in (2, 3, 4) for ranks in (1, 2)
    }
    assert all(shape_of(run).one_machine for run in runs.learnt + runs.asked)
    limited = [link.both < 0.13 for run in runs.asked for link in run.links]
    assert set(limited) == {rate == "1gbit"}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("nbytes", [2**16, 2**24])
@pytest.mark.parametrize("rate", RATES)
def test_prediction_is_within_a_quarter(rate: str, nbytes: int, nodes: int, ranks: int) -> None:
    (found,) = (
        one for one in checks(rate)
        if (one.nbytes, one.nodes, one.ranks) == (nbytes, nodes, ranks)
    )  # fmt: skip
    assert found.algorithm == "hierarchical"
    assert found.beyond == ()
    assert found.runs == 3
    assert abs(found.predicted / found.measured - 1) <= LIMIT, "\n".join(rows(checks(rate)))


@pytest.mark.parametrize("rate", RATES)
def test_the_cores_are_part_of_it(rate: str) -> None:
    """With a core for every rank, the same calibration foretells something else."""
    runs, model = recorded(rate), calibrated(rate)
    points = [
        dataclasses.replace(point, shape=dataclasses.replace(point.shape, cores=64))
        for run in runs.asked
        for point in points_of(run)
    ]
    small = [one for one in check(model, points) if one.nbytes == 2**16 and one.nodes == 4]
    assert all(one.ratio < 1 - LIMIT for one in small)
    assert all("cores" in one.beyond for one in small)


@pytest.mark.parametrize("rate", RATES)
def test_the_fit_itself_is_as_close(rate: str) -> None:
    fit = calibrated(rate).fit
    assert fit.cases == 6 * 32
    assert fit.typical < 0.15


def test_other_sizes_are_extrapolated() -> None:
    model = calibrated("1gbit")
    (run,) = (run for run in recorded("1gbit").asked[:1])
    small = [dataclasses.replace(point, nbytes=8) for point in points_of(run)]
    assert all(one.beyond == ("size",) for one in check(model, small))


def test_runs_are_whole_results() -> None:
    for rate in RATES:
        for run in recorded(rate).learnt:
            assert isinstance(run, Result)
            assert run.wrong == 0
            assert run.complete

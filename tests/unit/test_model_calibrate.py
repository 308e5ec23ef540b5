"""Calibration: costs that are found again, runs that are refused, and errors on recorded runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from hierring._testing.machines import fake_facts
from hierring.benchmarks.model.calibrate import calibrate, error_of, fit, predict_point
from hierring.benchmarks.model.measured import Point, points_of, shape_of
from hierring.benchmarks.model.parameters import Engine, Parameters
from hierring.benchmarks.model.predict import ALGORITHMS
from hierring.benchmarks.model.shape import Shape
from hierring.benchmarks.result import load
from hierring.errors import HierringError
from hierring.topology import Topology

DATA = Path(__file__).resolve().parents[1] / "data"
SAMPLE = load(DATA / "bench-2x2.json")
ENGINE = Engine()
SIZES = [4**power for power in range(5, 13)]
TRUE = Parameters(
    call=150e-6, arrive=8e-6, turn=900e-6, alpha=20e-6, beta=8e-9, step=50e-6, touch=2e-10,
    local_step=30e-6, local_touch=4e-10, copy=2e-10, gamma=2e-10, burst=100e3,
)  # fmt: skip


def points(nodes: int, ranks: int, costs: Parameters = TRUE) -> list[Point]:
    """What a cluster with such costs would measure."""
    shape = Shape(nodes, ranks, 2, one_machine=True)
    bare = [Point(name, size, shape, 1.0, 1.0, 1.0, 0.0) for name in ALGORITHMS for size in SIZES]
    return [
        dataclasses.replace(point, seconds=predict_point(point, costs, ENGINE)) for point in bare
    ]


def worst(found: Parameters, cases: list[Point]) -> float:
    return max(error_of(predict_point(one, found, ENGINE), one.seconds) for one in cases)


def test_a_cluster_of_the_models_own_kind_is_foretold() -> None:
    found = fit(points(2, 1) + points(2, 2), ENGINE)
    assert worst(found, points(2, 1) + points(2, 2)) < 0.05
    assert worst(found, points(3, 1) + points(4, 1)) < 0.10


@pytest.mark.parametrize("beta", [8e-9, 1e-10])
def test_noise_does_not_add_up(rng: np.random.Generator, beta: float) -> None:
    true = dataclasses.replace(TRUE, beta=beta)
    noisy = [
        dataclasses.replace(point, seconds=point.seconds * float(np.exp(rng.normal(0, 0.05))))
        for point in points(2, 1, true) + points(2, 2, true)
    ]
    assert worst(fit(noisy, ENGINE), points(3, 1, true) + points(4, 1, true)) < 0.20


def test_costs_that_nothing_measured_stay_what_they_were_guessed() -> None:
    """Without ranks beyond cores nobody loses a turn."""
    shape = Shape(2, 1, 2)
    cases = [dataclasses.replace(point, shape=shape) for point in points(2, 1)]
    assert fit(cases, ENGINE).turn == pytest.approx(500e-6)
    assert fit(cases, ENGINE).local_step == pytest.approx(10e-6)


def test_what_a_run_says_of_its_cluster() -> None:
    assert shape_of(SAMPLE) == Shape(2, 2, 2, one_machine=True)
    model = calibrate([SAMPLE])
    assert (model.reach.nodes, model.reach.ranks) == ((2, 2), (2, 2))
    assert (model.reach.one_machine, model.reach.cores) == (True, 2)
    assert model.fit.cases == len(points_of(SAMPLE))
    assert "2x2 on node0, one machine of 2 cores, links of 0.11" in model.sources[0]


def topology_of(nodes: list[list[int]], hosts: str, cpus: list[tuple[int, ...]]) -> Topology:
    facts = [
        fake_facts(rank, hosts[rank], cpus=cpus[rank], usable_cpus=len(cpus[rank]))
        for rank in range(len(hosts))
    ]
    return Topology.build(0, facts, nodes)


@pytest.mark.parametrize(("topology", "expected"), [
    # Two nodes under one kernel, with two CPUs for both.
    (topology_of([[0], [1]], "aa", [(0, 1), (0, 1)]), Shape(2, 1, 4, one_machine=True)),
    (topology_of([[0, 1], [2, 3]], "aaaa", [(0, 1)] * 4), Shape(2, 2, 2, one_machine=True)),
    # A CPU for each rank: there are as many as the machine has.
    (topology_of([[0, 1], [2]], "aab", [(0,), (1,), (0,)]), Shape(2, 2, 4)),
    # Crowded on one node of two.
    (topology_of([[0, 1, 2], [3]], "aaab", [(0, 1)] * 3 + [(0,)]), Shape(2, 3, 2)),
    (topology_of([[0, 2], [1, 3]], "abab", [(0,)] * 2 + [(1,)] * 2), Shape(2, 2, 4, cyclic=True)),
])  # fmt: skip
def test_cores_and_machines_of_a_topology(topology: Topology, expected: Shape) -> None:
    result = dataclasses.replace(SAMPLE, topology=json.loads(json.dumps(topology.to_dict())))
    assert shape_of(result) == expected


def test_only_what_the_model_knows_counts() -> None:
    ours = points_of(SAMPLE)
    assert {point.algorithm for point in ours} == {"hierarchical", "ring", "tree"}
    assert all(point.low <= point.seconds <= point.high for point in ours)
    others = [
        dataclasses.replace(case, **changes)
        for case in SAMPLE.cases
        if case.library == "hierring" and case.in_place
        for changes in (
            {"library": "mpi", "algorithm": ""}, {"in_place": False}, {"op": "avg"},
            {"dtype": "float16"}, {"collective": "broadcast"}, {"leaders": 2},
        )
    ]  # fmt: skip
    with pytest.raises(HierringError, match="measure with `hierring bench`"):
        points_of(dataclasses.replace(SAMPLE, cases=tuple(others)))


def test_runs_of_two_clusters_are_refused() -> None:
    config = {**SAMPLE.settings.config, "cell_bytes": 65536}
    settings = dataclasses.replace(SAMPLE.settings, config=config)
    with pytest.raises(HierringError, match="differ in settings"):
        calibrate([SAMPLE, dataclasses.replace(SAMPLE, settings=settings)])
    tree = json.loads(json.dumps(SAMPLE.topology))
    tree["warnings"] = []
    with pytest.raises(HierringError, match="differ in cores"):
        calibrate([SAMPLE, dataclasses.replace(SAMPLE, topology=tree)])


def test_a_run_without_a_probe_will_do() -> None:
    bare = dataclasses.replace(SAMPLE, links=(), ring=())
    model = calibrate([bare])
    assert model.reach.rates is None
    assert model.fit.typical < 1

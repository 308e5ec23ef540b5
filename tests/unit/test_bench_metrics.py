"""Formulas of the report, each in one place."""

from __future__ import annotations

import pytest

from hierring._testing.machines import fake_facts
from hierring.benchmarks import metrics
from hierring.benchmarks.bounds import bounds_of, ring_bandwidth
from hierring.topology import Link, Topology

MIB = 2**20


def test_algbw_is_in_units_of_a_thousand_million_bytes():
    assert metrics.algbw(2_000_000_000, 0.5) == 4.0


@pytest.mark.parametrize(
    ("collective", "members", "factor"),
    [
        ("allreduce", 4, 1.5),
        ("allreduce", 2, 1.0),
        ("allreduce", 1, 0.0),
        ("reduce_scatter", 4, 0.75),
        ("allgather", 4, 0.75),
        ("broadcast", 4, 1.0),
    ],
)
def test_busbw(collective, members, factor):
    assert metrics.busbw(collective, members, 8.0) == 8 * factor


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(100, 0.99, 99), (101, 0.99, 100), (20, 0.99, 20), (1, 0.99, 1), (4, 0.25, 1), (5, 0.5, 3)],
)
def test_quantiles_are_times_that_occurred(count, share, expected):
    values = [float(value) for value in range(count, 0, -1)]
    assert metrics.quantile(values, share) == expected


def test_times():
    times = metrics.times_of([3.0, 1.0, 2.0, 100.0])
    assert (times.median, times.min, times.max, times.p99, times.mean) == (2.5, 1, 100, 100, 26.5)


@pytest.mark.parametrize(
    ("nodes", "chosen", "factor"),
    [
        (1, "staged", 0),
        (2, "staged, exchange", 2),
        (3, "staged, ring", 4),
        (5, "staged, ring", 8),
        (2, "small", 2),  # both send to each other
        (4, "staged, doubling", 8),  # 4 nodes x 2 steps
        (8, "small", 24),
        (3, "small", 4),  # 2 nodes x 1 step, and one that folds in and out
        (6, "staged, doubling", 12),  # 4 x 2, and two that fold
    ],
)
def test_bytes_between_nodes(nodes, chosen, factor):
    theory = metrics.theory("allreduce", chosen, MIB, MIB, [2] * nodes)
    assert theory.between_nodes == factor * MIB
    assert theory.mpi == factor * MIB


def test_the_wire_type_counts_between_nodes_and_the_own_type_inside():
    theory = metrics.theory("allreduce", "staged, exchange", MIB, MIB // 2, [2, 2])
    assert theory.between_nodes == MIB
    assert theory.shared_memory == 4 * MIB
    unequal = metrics.theory(
        "allreduce", "staged, exchange", MIB, MIB // 2, [2, 2], equal_types=False
    )
    assert unequal.shared_memory is None


@pytest.mark.parametrize(("name", "factor"), [("ring", 6), ("tree", 6), ("naive", 12)])
def test_flat_algorithms(name, factor):
    one_node = metrics.theory("allreduce", f"flat {name}", MIB, MIB, [4])
    assert (one_node.between_nodes, one_node.mpi) == (0, factor * MIB)
    two = metrics.theory("allreduce", f"flat {name}", MIB, MIB, [2, 2])
    assert (two.between_nodes, two.mpi) == (None, factor * MIB)


def test_one_way_collectives_move_each_byte_to_each_other_node():
    for collective in ("reduce_scatter", "allgather", "broadcast"):
        theory = metrics.theory(collective, "staged, chain", MIB, MIB, [2, 2, 2])
        assert theory.between_nodes == 2 * MIB


def test_the_wire_bound_is_what_a_node_must_send():
    limits = bounds_of("allreduce", 3 * 10**9, 0.5, 2.0, 10.0, 3)
    assert limits.wire == pytest.approx(2 * 2 / 3 * 3 / 2)  # 2(M-1)/M S = 4 GB at 2 GB/s
    assert limits.bound == limits.wire
    assert limits.percent == pytest.approx(20.0)


def test_memory_is_the_bound_on_one_node_or_without_a_probe():
    assert bounds_of("allreduce", 10**9, 0.5, 2.0, 1.0, 1).wire is None
    without = bounds_of("allreduce", 10**9, 0.5, None, 1.0, 2)
    assert (without.wire, without.bound, without.percent) == (None, 0.5, 50.0)


def test_the_slowest_link_of_the_ring_counts():
    topology = Topology.build(0, [fake_facts(rank) for rank in range(3)], [[0], [1], [2]])
    links = [Link(pair, 1e-6, 9.0, 9.0, speed) for pair, speed in
             (((0, 1), 3.0), ((1, 2), 2.0), ((0, 2), 4.0))]  # fmt: skip
    assert ring_bandwidth(tuple(links), topology) == 2.0
    assert ring_bandwidth(tuple(links[:2]), topology) is None, "one of them is unknown"
    alone = Topology.build(0, [fake_facts(0)], [[0]])
    assert ring_bandwidth((), alone) is None

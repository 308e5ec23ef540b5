"""Statistics as rows of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hierring._testing.machines import fake_facts
from hierring.benchmarks import counted as counters
from hierring.benchmarks.figures import Phases
from hierring.communicator import PhaseTimes, Statistics
from hierring.topology import Topology

NODES = [[0, 2], [1, 3, 4]]
PARTS = tuple(float(number) for number in range(1, 9))


def topology_of(rank: int) -> Topology:
    facts = [fake_facts(number) for number in range(5)]
    return Topology.build(rank, facts, NODES)


def statistics(waited_for: dict[int, float]) -> Statistics:
    return Statistics(
        operations=7, bytes_between_nodes=100, bytes_inside_nodes_mpi=200, bytes_shared_memory=300,
        header_bytes=400, phases=PhaseTimes(*PARTS, total=sum(PARTS)), waited_for=waited_for,
    )  # fmt: skip


def test_a_row_holds_bytes_and_phases_by_name():
    row = counters.counted(statistics({}), topology_of(0))
    assert list(row[: len(counters.BYTES)]) == [100, 200, 300, 400]
    assert counters.phases_of(row, 1) == Phases(*PARTS, total=sum(PARTS))
    assert counters.phases_of(row, 2).inter_node == PARTS[2] / 2
    # In `PARTS`, in the order of the fields: what ends when all ranks have entered.
    assert list(row[counters.ENTERING]) == [5.0, 6.0]


def test_those_who_count_nothing_have_zeros():
    assert not counters.counted(None, topology_of(0)).any()


def test_each_rank_is_waited_for_by_the_others_of_its_node():
    waits = {0: {2: 5.0}, 1: {3: 1.0, 4: 3.0}, 2: {}, 3: {4: 5.0}, 4: {1: 8.0}}
    rows = np.array(
        [counters.counted(statistics(waits[rank]), topology_of(rank)) for rank in range(5)]
    )
    assert counters.awaited(rows, NODES) == [0.0, 4.0, 5.0, 0.5, 4.0]


def test_nobody_waits_for_a_rank_alone_on_its_node():
    rows = np.array([counters.counted(statistics({}), topology_of(0))] * 2)
    assert counters.awaited(rows, [[0], [1]]) == [None, None]


def test_the_phases_are_those_of_the_library():
    """A new one must not be lost."""
    assert set(PhaseTimes.__dataclass_fields__) == set(Phases.__dataclass_fields__)


@pytest.mark.parametrize("name", counters.BYTES)
def test_the_counters_are_those_of_the_library(name):
    assert name in Statistics.__dataclass_fields__

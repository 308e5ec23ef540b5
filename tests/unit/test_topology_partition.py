"""The partition of ranks into nodes: examples, then properties over any table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierring.errors import TopologyError
from hierring.topology import partition


def table_of(*groups):
    """What ranks read when memory is shared exactly within these groups."""
    size = sum(len(group) for group in groups)
    members = {rank: frozenset(group) for group in groups for rank in group}
    return [members[rank] for rank in range(size)]


@pytest.mark.parametrize(
    "nodes",
    [
        [[0]],
        [[0, 1, 2, 3]],
        [[0, 1], [2, 3]],
        [[0, 2], [1, 3]],
        [[0, 3, 4], [1], [2]],
        [[0, 1, 2], [3]],
        [[0], [1, 2, 3]],
        [[0], [1], [2], [3], [4]],
    ],
    ids=["alone", "one", "block", "cyclic", "odd", "3-1", "1-3", "singles"],
)
def test_nodes_are_what_shares_memory(nodes):
    assert partition(table_of(*nodes)) == nodes


def test_reading_one_way_is_not_sharing():
    assert partition([{0, 1}, {1}]) == [[0], [1]]


def test_readability_that_is_not_transitive_gives_cliques():
    # 0-1 and 1-2 share, 0-2 do not: the lowest rank chooses first.
    assert partition([{0, 1}, {0, 1, 2}, {1, 2}]) == [[0, 1], [2]]


def test_those_left_over_regroup_before_they_stand_alone():
    # A chain 0-1-2-3: 2 cannot join 0 and 1, but finds 3.
    assert partition([{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3}]) == [[0, 1], [2, 3]]


def test_own_entry_is_not_needed():
    assert partition([set(), {0}, set()]) == [[0], [1], [2]]


def test_ranks_out_of_range_are_ignored():
    assert partition([{0, 7, -1}, {1}]) == [[0], [1]]


def test_shared_memory_off_makes_each_rank_a_node():
    assert partition(table_of([0, 1, 2]), shared_memory=False) == [[0], [1], [2]]
    assert partition(table_of([0, 1]), [0, 0], shared_memory=False) == [[0], [1]]


@pytest.mark.parametrize(
    ("simulated", "nodes"),
    [
        ([0, 0, 1, 1], [[0, 1], [2, 3]]),
        ([0, 1, 0, 1], [[0, 2], [1, 3]]),
        ([0, 0, 0, 0], [[0, 1, 2, 3]]),
        ([5, 2, 2, 5], [[0, 3], [1, 2]]),
        ([3, 2, 1, 0], [[0], [1], [2], [3]]),
    ],
)
def test_simulated_nodes_are_numbered_by_their_lowest_rank(simulated, nodes):
    assert partition(table_of([0, 1, 2, 3]), simulated) == nodes


def test_simulated_node_that_shares_no_memory_names_both_ranks():
    with pytest.raises(TopologyError, match=r"ranks 0 and 2 .*HIERRING_SIMULATE_NODES"):
        partition(table_of([0, 1], [2, 3]), [0, 1, 0, 1])


def test_simulated_nodes_may_split_real_ones():
    assert partition(table_of([0, 1, 2], [3, 4, 5]), [0, 0, 1, 2, 2, 2]) == [[0, 1], [2], [3, 4, 5]]


def test_simulated_list_of_the_wrong_length():
    with pytest.raises(TopologyError, match="for 3 ranks, but there are 2"):
        partition(table_of([0, 1]), [0, 0, 1])


def test_large_worlds_are_quick():
    """4096 ranks; quadratic work in Python would take many seconds."""
    size = 4096
    assert len(partition(table_of(*([rank] for rank in range(size))))) == size
    nodes = [list(range(first, first + 64)) for first in range(0, size, 64)]
    assert partition(table_of(*nodes)) == nodes


@st.composite
def tables(draw):
    size = draw(st.integers(1, 12))
    ranks = st.integers(0, size - 1)
    return [draw(st.frozensets(ranks)) | {rank} for rank in range(size)]


@given(tables())
def test_any_table_gives_a_partition_into_cliques(table):
    nodes = partition(table)
    assert sorted(rank for node in nodes for rank in node) == list(range(len(table)))
    assert [node[0] for node in nodes] == sorted(node[0] for node in nodes)
    for node in nodes:
        assert node == sorted(node)
        assert all(other in table[rank] for rank in node for other in node)
    # Greedy: no rank could have joined an earlier node.
    for number, node in enumerate(nodes):
        for later in nodes[number + 1 :]:
            joinable = [
                rank
                for rank in later
                if all(rank in table[member] and member in table[rank] for member in node)
            ]
            assert not joinable


@given(tables())
def test_equal_tables_give_equal_nodes_however_they_are_held(table):
    assert partition(table) == partition([sorted(row, reverse=True) for row in table])


@given(tables(), st.data())
def test_simulated_nodes_are_honoured_or_refused(table, data):
    size = len(table)
    labels = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    try:
        nodes = partition(table, labels)
    except TopologyError:
        assert any(
            labels[a] == labels[b] and (b not in table[a] or a not in table[b])
            for a in range(size)
            for b in range(a)
        )
    else:
        assert {frozenset(node) for node in nodes} == {
            frozenset(rank for rank in range(size) if labels[rank] == label)
            for label in set(labels)
        }
        assert all(other in table[rank] for node in nodes for rank in node for other in node)

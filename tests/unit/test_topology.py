"""The agreed topology: places of ranks, leader order, warnings and what people read."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierring._testing.machines import fake_facts
from hierring.topology import Cache, Gpu, Nic, NumaNode, Topology
from hierring.topology.switches import ring_order


def build(nodes, rank=0, facts=None, **options):
    """A topology of these nodes, each on a machine of its own."""
    if facts is None:
        host = {member: f"host{number}" for number, ranks in enumerate(nodes) for member in ranks}
        facts = [fake_facts(member, host[member]) for member in sorted(host)]
    return Topology.build(rank, facts, nodes, **options)


def test_places_of_ranks():
    topology = build([[0, 3, 4], [1], [2, 5]], rank=4)
    assert (topology.rank, topology.size, topology.num_nodes) == (4, 6, 3)
    assert (topology.node_rank, topology.local_rank, topology.local_size) == (0, 2, 3)
    assert topology.leaders == (0, 1, 2)
    assert topology.node is topology.nodes[0]
    assert [topology.node_of(r) for r in range(6)] == [0, 1, 2, 0, 0, 2]
    assert [topology.local_rank_of(r) for r in range(6)] == [0, 0, 0, 1, 2, 1]
    assert [node.hostname for node in topology.nodes] == ["host0", "host1", "host2"]
    assert [node.local_size for node in topology.nodes] == [3, 1, 2]
    assert topology.warnings == ()
    assert not topology.oversubscribed


def test_ranks_hold_equal_topologies_but_for_their_rank():
    nodes = [[0, 2], [1, 3]]
    held = [build(nodes, rank=rank) for rank in range(4)]
    assert all(dataclasses.replace(topology, rank=0) == held[0] for topology in held)
    assert pickle.loads(pickle.dumps(held[3])) == held[3]


@pytest.mark.parametrize(
    ("nodes", "placement"),
    [
        ([[0]], "one node"),
        ([[0, 1, 2]], "one node"),
        ([[0], [1], [2]], "one rank per node"),
        ([[0, 1], [2, 3]], "block"),
        ([[0, 1, 2], [3]], "block"),
        ([[0, 2], [1, 3]], "cyclic"),
        ([[0, 2, 4], [1, 3]], "cyclic"),
        ([[0, 2, 3], [1]], "cyclic"),
        ([[0, 3], [1, 2]], "mixed"),
        ([[0, 1, 3], [2]], "mixed"),
    ],
)
def test_placement(nodes, placement):
    assert build(nodes).placement == placement


# --- the leader ring -----------------------------------------------------------------------------


def crossings(order, paths):
    """How often the closed ring changes the switch, summed over the levels."""
    depth = max(map(len, paths))
    return sum(
        paths[a][: level + 1] != paths[b][: level + 1]
        for a, b in zip(order, (*order[1:], order[0]), strict=True)
        for level in range(depth)
    )


@pytest.mark.parametrize(
    ("paths", "order"),
    [
        ([()], (0,)),
        ([(), (), ()], (0, 1, 2)),
        ([("a",), ("b",), ("a",), ("b",)], (0, 2, 1, 3)),
        ([("b",), ("a",), ("b",)], (0, 2, 1)),
        ([("s", "a"), ("s", "b"), ("t", "c"), ("s", "a")], (0, 3, 1, 2)),
        ([("a",), (), ("a",), ()], (0, 2, 1, 3)),
        ([("a",), ("b",), ()], (0, 1, 2)),
    ],
)
def test_leader_ring_finishes_a_switch_before_the_next(paths, order):
    assert ring_order(paths) == order


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("cd")), min_size=1, max_size=6))
def test_no_order_crosses_fewer_switches(paths):
    order = ring_order(paths)
    assert sorted(order) == list(range(len(paths)))
    best = min(
        crossings((0, *rest), paths) for rest in itertools.permutations(range(1, len(paths)))
    )
    assert crossings(order, paths) == best


def test_leader_order_comes_from_the_facts():
    switches = ["a", "b", "a"]
    facts = [fake_facts(r, f"h{r}", switch_path=(switches[r],)) for r in range(3)]
    assert build([[0], [1], [2]], facts=facts).leader_order == (0, 2, 1)


# --- what people and programs read ---------------------------------------------------------------

RICH = {
    "cpus": (0, 1),
    "usable_cpus": 2,
    "cpu_quota": 2.5,
    "memory_limit_nbytes": 1 << 30,
    "numa_nodes": (NumaNode(0, "0-1", 1 << 33, (10, 21)), NumaNode(1, "2-3", 1 << 33, (21, 10))),
    "caches": (Cache(1, "data", 32768, 64, ("0", "1")), Cache(3, "unified", 3 << 23, 64, ("0-3",))),
    "nics": (
        Nic("eth0", "ethernet", True, 25_000_000_000, 1500, 1, ("10.0.0.1",)),
        Nic("eth1", "ethernet", False, None, 1500, None),
        Nic("eth2", "ethernet", True, None, 1500, None),
        Nic("eth3", "ethernet", True, 100_000_000, 1500, None),
        Nic("lo", "loopback", True, None, 65536, None, ("127.0.0.1",)),
        Nic("veth1", "virtual", True, 10_000_000_000, 1500, None),
    ),
    "gpus": (Gpu("0000:17:00.0", "NVIDIA", "NVIDIA H200", 0),),
    "switch_path": ("s0", "s1"),
}


def rich_topology():
    facts = [fake_facts(r, host, **RICH) for r, host in enumerate("abab")]
    return build([[0, 2], [1, 3]], rank=1, facts=facts)


def test_description():
    assert rich_topology().describe().splitlines() == [
        "hierring: 4 ranks on 2 nodes [2, 2], placement: cyclic",
        "|-- node 0: a, ranks 0,2, leader 0",
        "|   |-- CPUs 0-3: 4 cores in 1 socket, cgroup grants 2.5",
        "|   |-- memory 16 GiB, cgroup grants 1 GiB",
        "|   |-- NUMA 0: CPUs 0-1, 8 GiB",
        "|   |-- NUMA 1: CPUs 2-3, 8 GiB",
        "|   |-- L1d: 2 x 32 KiB, CPUs 0 | 1",
        "|   |-- L3: 1 x 24 MiB, CPUs 0-3",
        "|   |-- GPU 0000:17:00.0: NVIDIA NVIDIA H200, NUMA 0",
        "|   |-- /dev/shm 8 GiB, 4 GiB free",
        "|   |-- switches: s0 > s1",
        "|   |-- NIC eth0: ethernet, 25 Gbit/s, 10.0.0.1, NUMA 1",
        "|   |-- NIC eth2: ethernet, speed unknown",
        "|   |-- NIC eth3: ethernet, 100 Mbit/s",
        "|   |-- rank 0: pid 1000, CPUs 0-1 (2 usable), NUMA 0",
        "|   |-- rank 2: pid 1002, CPUs 0-1 (2 usable), NUMA 0",
        "|-- node 1: b, ranks 1,3, leader 1",
        "|   |-- CPUs, memory, caches and GPUs as node 0",
        "|   |-- /dev/shm 8 GiB, 4 GiB free",
        "|   |-- switches: s0 > s1",
        "|   |-- NIC eth0: ethernet, 25 Gbit/s, 10.0.0.1, NUMA 1",
        "|   |-- NIC eth2: ethernet, speed unknown",
        "|   |-- NIC eth3: ethernet, 100 Mbit/s",
        "|   |-- rank 1: pid 1001, CPUs 0-1 (2 usable), NUMA 0 <- this rank",
        "|   |-- rank 3: pid 1003, CPUs 0-1 (2 usable), NUMA 0",
        "`-- leader ring: node 0 -> node 1 -> node 0",
    ]


def test_description_of_one_rank_that_sees_little():
    bare = {"cpus": (0,), "num_cores": 0, "memory_nbytes": 0, "shm_device": -1}
    text = build([[0]], facts=[fake_facts(0, **bare)]).describe()
    assert text.splitlines()[0] == "hierring: 1 rank on 1 node [1], placement: one node"
    assert "|   |-- no /dev/shm" in text
    assert text.splitlines()[-1] == "`-- leader ring: none, there is one node"


def test_description_says_what_is_not_real_and_what_is_wrong():
    facts = [fake_facts(r, cpus=(0,)) for r in range(2)]
    text = build([[0], [1]], facts=facts, simulated=True).describe()
    assert "placement: one rank per node, simulated nodes" in text
    assert "node 1: a, rank 1, leader 1, oversubscribed" in text
    assert text.splitlines()[-1].startswith("warning: oversubscribed: ranks 0-1")
    off = build([[0], [1]], facts=facts, shared_memory=False).describe()
    assert off.splitlines()[0].endswith(", shared memory off")


def test_description_is_ascii():
    assert rich_topology().describe().isascii()


def test_dictionary_is_strict_json():
    topology = rich_topology()
    held = topology.to_dict()
    assert json.loads(json.dumps(held, allow_nan=False)) == held
    assert held["nodes"][1]["ranks"][0] == {
        "rank": 1,
        "pid": 1001,
        "uid": 1,
        "cpus": "0-1",
        "usable_cpus": 2,
    }
    assert held["nodes"][0]["hardware"]["nics"][0]["speed_bits_per_s"] == 25_000_000_000
    assert held["nodes"][0]["hardware"]["cpu_quota"] == 2.5
    assert (held["leaders"], held["leader_order"], held["placement"]) == ([0, 1], [0, 1], "cyclic")
    assert (held["rank"], held["node_rank"], held["local_rank"]) == (1, 1, 0)

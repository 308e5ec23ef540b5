"""Warnings about a launch: crowded CPUs, and signs that disagree with the probe."""

from __future__ import annotations

import dataclasses

import pytest

from hierring._testing.machines import fake_facts
from hierring.topology import Topology


def build(nodes, facts, **options):
    return Topology.build(0, facts, nodes, **options)


def warned(facts, nodes, **options):
    return build(nodes, facts, **options).warnings


def test_ranks_on_one_cpu_are_one_warning():
    facts = [fake_facts(r, cpus=(0,)) for r in range(4)]
    (warning,) = warned(facts, [[0, 1, 2, 3]])
    assert warning.startswith("oversubscribed: ranks 0-3 on a share CPU 0;")
    assert build([[0, 1, 2, 3]], facts).oversubscribed


def test_more_ranks_than_cpus():
    facts = [fake_facts(r, cpus=(0, 1)) for r in range(3)]
    (warning,) = warned(facts, [[0, 1, 2]])
    assert "ranks 0-2 on a share CPUs 0-1" in warning


def test_crowd_inside_a_wide_machine_names_only_the_crowd():
    bound = [fake_facts(r, cpus=(3,)) for r in range(2)]
    free = [fake_facts(r, cpus=(0, 1, 2, 3)) for r in (2, 3)]
    (warning,) = warned([*bound, *free], [[0, 1, 2, 3]])
    assert "ranks 0-1 on a share CPU 3" in warning


def test_overlapping_sets_that_are_too_small_together():
    sets = [(0, 1), (1, 2), (0, 2), (0, 1)]
    facts = [fake_facts(r, cpus=cpus) for r, cpus in enumerate(sets)]
    (warning,) = warned(facts, [[0, 1, 2, 3]])
    assert "ranks 0-3 on a share CPUs 0-2" in warning


def test_nodes_on_one_machine_share_its_cpus():
    """Simulated nodes crowd one another."""
    facts = [fake_facts(r, cpus=(0, 1)) for r in range(4)]
    topology = build([[0, 1], [2, 3]], facts, simulated=True)
    assert len(topology.warnings) == 1
    assert all(node.oversubscribed for node in topology.nodes)


def test_other_machines_are_not_oversubscribed():
    facts = [fake_facts(r, host, cpus=(0,)) for r, host in enumerate("aab")]
    topology = build([[0, 1], [2]], facts)
    assert [node.oversubscribed for node in topology.nodes] == [True, False]


def test_cpu_quota_below_the_number_of_ranks():
    facts = [fake_facts(r, cpu_quota=1.5) for r in range(2)]
    (warning,) = warned(facts, [[0, 1]])
    assert "cgroup of ranks 0-1 on a grants the time of 1.5 CPUs" in warning
    assert warned([fake_facts(r, cpu_quota=2.0) for r in range(2)], [[0, 1]]) == ()


def test_one_hostname_for_two_machines():
    facts = [fake_facts(0, "a"), dataclasses.replace(fake_facts(1, "b"), hostname="a")]
    (warning,) = warned(facts, [[0], [1]])
    assert warning.startswith("nodes 0-1 have one hostname, a;")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shm_device": 99}, "different /dev/shm"),
        ({"uid": 99}, "different users"),
        ({"pid_namespace": 99}, "refuses"),
    ],
)
def test_one_machine_that_is_two_nodes_is_explained(changes, reason):
    facts = [fake_facts(0), fake_facts(1, **changes)]
    (warning,) = warned(facts, [[0], [1]])
    assert warning.startswith("nodes 0-1 are one machine (a) but share no memory:")
    assert reason in warning


def test_rank_without_shared_memory_is_named_with_the_reason():
    facts = [fake_facts(r, host) for r, host in enumerate("ab")]
    (warning,) = warned(facts, [[0], [1]], errors=["", "/dev/shm: No space left on device"])
    assert warning == "rank 1 on b cannot share memory (/dev/shm: No space left on device)"


@pytest.mark.parametrize(
    ("mpi_nodes", "nodes", "text"),
    [
        ([0, 0, 0], [[0, 1, 2]], None),
        ([0, 1, 0], [[0, 2], [1]], None),
        ([0, 1, 2], [[0, 1, 2]], "split: 3, by the probe: 1. MPI has ranks 0-1 apart"),
        ([0, 0, 0], [[0, 1], [2]], "split: 1, by the probe: 2. MPI has ranks 0,2 on one node"),
        ([0, 1, 1], [[0, 1], [2]], "split: 2, by the probe: 2. MPI has ranks 0-1 apart"),
        ([0, None, 0], [[0, 1], [2]], None),
    ],
)
def test_mpi_split_against_the_probe(mpi_nodes, nodes, text):
    host = {rank: f"h{number}" for number, ranks in enumerate(nodes) for rank in ranks}
    facts = [fake_facts(r, host[r], mpi_node=mpi_nodes[r]) for r in range(3)]
    found = warned(facts, nodes)
    assert len(found) == (text is not None)
    assert all(text in warning for warning in found)


def test_simulated_and_switched_off_sharing_contradict_nothing():
    facts = [fake_facts(r, mpi_node=0) for r in range(2)]
    assert warned(facts, [[0], [1]], simulated=True) == ()
    assert warned(facts, [[0], [1]], shared_memory=False) == ()
    assert len(warned(facts, [[0], [1]])) == 2

"""How long a message between nodes may be."""

from __future__ import annotations

import pytest

from hierring._testing.machines import fake_facts
from hierring.internode.link import largest_message
from hierring.topology import Nic, Topology

OPENMPI, MPICH = "Open MPI v5.0.11, package: x", "MPICH Version:      5.0.2"
ETH = Nic("eth0", "ethernet", True, 10**10, 1500, 0)
PORT = Nic("mlx5_0/1", "infiniband", True, 10**11, 0, 0)
DOWN = Nic("mlx5_0/1", "infiniband", False, 10**11, 0, 0)


@pytest.mark.parametrize(
    ("configured", "vendor", "tcp", "nbytes"),
    [
        (0, OPENMPI, True, 60 * 1024),
        (0, OPENMPI, False, 2**30),
        (0, MPICH, True, 2**30),
        (4096, OPENMPI, True, 4096),
        (2**29, OPENMPI, True, 2**29),
    ],
)
def test_the_largest_message(configured, vendor, tcp, nbytes):
    assert largest_message(configured, vendor, tcp) == nbytes


@pytest.mark.parametrize(
    ("nics", "rdma"), [((ETH,), False), ((ETH, PORT), True), ((ETH, DOWN), False)]
)
def test_one_node_with_a_live_port_is_enough(nics, rdma):
    facts = [fake_facts(0, "a", nics=(ETH,)), fake_facts(1, "b", nics=nics)]
    assert Topology.build(0, facts, [[0], [1]]).has_rdma is rdma

"""Who is on which node, as the ranks found it, against the layout that was asked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks, expected_nodes
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
NODES = expected_nodes(SIZE)
NODE_RANK = next(i for i, ranks in enumerate(NODES) if RANK in ranks)
HOSTNAMES = MPI.COMM_WORLD.allgather(socket.gethostname())
SIMULATED = bool(os.environ.get("HIERRING_SIMULATE_NODES"))


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    with hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(timeout_s=60)) as handle:
        yield handle


def test_the_partition(comm: hr.Communicator) -> None:
    topology = comm.get_topology()
    with Checks() as check:
        found = [list(node.ranks) for node in topology.nodes]
        check.true(found == NODES, f"nodes {found}, expected {NODES}")
        check.true(topology.num_nodes == len(NODES), f"num_nodes {topology.num_nodes}")
        check.true(topology.node_rank == NODE_RANK, f"node_rank {topology.node_rank}")
        local_rank = NODES[NODE_RANK].index(RANK)
        check.true(topology.local_rank == local_rank, f"local_rank {topology.local_rank}")
        check.true(topology.local_size == len(NODES[NODE_RANK]), f"size {topology.local_size}")
        for node in topology.nodes:
            check.true(node.hostname == HOSTNAMES[node.ranks[0]], f"hostname {node.hostname}")


def test_methods_agree_with_the_topology(comm: hr.Communicator) -> None:
    topology = comm.get_topology()
    with Checks() as check:
        check.true(comm.rank() == RANK and comm.size() == SIZE, "rank and size")
        check.true(comm.node_rank() == topology.node_rank, "node_rank")
        check.true(comm.num_nodes() == topology.num_nodes, "num_nodes")
        check.true(comm.local_rank() == topology.local_rank, "local_rank")
        check.true(comm.local_size() == topology.local_size, "local_size")


def test_all_ranks_see_one_table(comm: hr.Communicator) -> None:
    rows = MPI.COMM_WORLD.allgather([tuple(node.ranks) for node in comm.get_topology().nodes])
    with Checks() as check:
        check.true(all(row == rows[0] for row in rows), f"tables {rows}")


def test_the_description(comm: hr.Communicator) -> None:
    """Names the host and each rank; pretended nodes are called so."""
    text = comm.get_topology().describe()
    with Checks() as check:
        check.true(all(name in text for name in HOSTNAMES), f"the hostnames: {text}")
        check.true(("simulated" in text.lower()) == SIMULATED, f"whether simulated: {text}")
        for rank in range(SIZE):
            check.true(str(rank) in text, f"rank {rank}: {text}")


def test_a_group_of_one() -> None:
    with Checks() as check, hr.Communicator(MPI.COMM_SELF) as alone:
        topology = alone.get_topology()
        check.true(topology.num_nodes == 1 and topology.local_size == 1, "one node of one rank")
        for algorithm in ("auto", "hierarchical", "ring", "tree", "naive"):
            for count in (0, 1, 50_000):
                x = np.arange(count, dtype="float32") + RANK
                alone.allreduce(x, "avg", algorithm=algorithm)
                check.equal(x, np.arange(count, dtype="float32") + np.float32(RANK), algorithm)
                out = np.zeros(count, "float32")
                alone.allreduce(x, algorithm=algorithm, scale=2.0, out=out)
                check.equal(out, 2 * x, f"{algorithm} scaled")
        check.equal(alone.allgather(np.arange(3)), np.arange(3), "all-gather")
        check.equal(alone.reduce_scatter(np.arange(3)), np.arange(3), "reduce-scatter")
        alone.barrier()


def test_other_communicators_inherit_the_pretended_nodes() -> None:
    """Through the rank in the world: the layout names exactly the world's ranks."""
    reverse = MPI.COMM_WORLD.Split(0, key=SIZE - RANK)
    with Checks() as check, hr.Communicator(reverse) as handle:
        world_ranks = list(range(SIZE - 1, -1, -1))
        wanted = sorted(sorted(world_ranks.index(rank) for rank in ranks) for ranks in NODES)
        found = [list(node.ranks) for node in handle.get_topology().nodes]
        check.true(found == wanted, f"nodes {found}, expected {wanted}")
        x = np.full(1000, RANK)
        handle.allreduce(x)
        check.equal(x, np.full(1000, SIZE * (SIZE - 1) // 2), "sum")
    reverse.Free()


@pytest.mark.world(*range(2, 65))
def test_an_override_that_one_rank_lacks() -> None:
    """A layout given to one rank only is an error on all of them."""
    wanted = f"{SIZE}" if len(NODES) > 1 else f"cyclic:{SIZE}"
    config = Config.from_env(simulate_nodes=wanted) if RANK == SIZE - 1 else Config.from_env()
    with Checks() as check:
        error = check.raises(
            hr.ConfigurationError, lambda: hr.Communicator(MPI.COMM_WORLD, config=config), "differs"
        )
        check.true("simulate_nodes" in str(error), f"names the setting: {error}")


def test_a_layout_that_does_not_name_the_ranks() -> None:
    with Checks() as check:
        config = Config.from_env(simulate_nodes=f"{SIZE},1")
        error = check.raises(
            hr.ConfigurationError,
            lambda: hr.Communicator(MPI.COMM_WORLD, config=config),
            "too many",
        )
        check.true(str(SIZE + 1) in str(error), f"says how many it names: {error}")

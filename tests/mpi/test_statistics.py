"""Bytes that were moved, against the formulas: N ranks, M nodes, S bytes of tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks, expected_nodes
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
NODES = expected_nodes(SIZE)
NUM_NODES = len(NODES)
LOCAL_SIZE = next(len(ranks) for ranks in NODES if RANK in ranks)
COUNT = 120_120  # divisible by every world size in use and by their squares' factors
NBYTES = COUNT * 4
FIELDS = ("bytes_between_nodes", "bytes_inside_nodes_mpi", "bytes_shared_memory", "header_bytes")


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    with hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(timeout_s=60)) as handle:
        yield handle


@pytest.fixture(scope="module")
def control() -> Iterator[MPI.Comm]:
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


class Moved:
    """What one call moved: this rank's numbers and the sums over all ranks."""

    def __init__(
        self, comm: hr.Communicator, control: MPI.Comm, call: Callable[[], object]
    ) -> None:
        before = comm.statistics()
        call()
        after = comm.statistics()
        self.mine = {name: getattr(after, name) - getattr(before, name) for name in FIELDS}
        self.operations = after.operations - before.operations
        table = control.allgather(self.mine)
        self.total = {name: sum(row[name] for row in table) for name in FIELDS}
        self.payload = self.total["bytes_between_nodes"] + self.total["bytes_inside_nodes_mpi"]


def ones(dtype: str = "float32") -> np.ndarray:
    return np.ones(COUNT, dtype)


def test_flat_ring(comm: hr.Communicator, control: MPI.Comm) -> None:
    """2(N-1)S in all, and the same from every rank but for one chunk."""
    moved = Moved(comm, control, lambda: comm.allreduce(ones(), algorithm="ring"))
    share = 2 * (SIZE - 1) * NBYTES / SIZE
    mine = moved.mine["bytes_between_nodes"] + moved.mine["bytes_inside_nodes_mpi"]
    with Checks() as check:
        check.true(moved.payload == 2 * (SIZE - 1) * NBYTES, f"payload {moved.total}")
        check.true(abs(mine - share) <= NBYTES / SIZE, f"this rank {mine}, its share {share}")
        if NUM_NODES == 1:
            check.true(moved.total["bytes_between_nodes"] == 0, f"one node: {moved.total}")
        # The ring crosses every border between neighbours on different nodes once a step.
        crossing = [
            next(i for i, ranks in enumerate(NODES) if rank in ranks)
            != next(i for i, ranks in enumerate(NODES) if (rank + 1) % SIZE in ranks)
            for rank in range(SIZE)
        ]
        theory = sum(crossing) * share
        off = abs(moved.total["bytes_between_nodes"] - theory)
        check.true(off <= NBYTES, f"crossing {moved.total}, theory {theory}")


def test_naive(comm: hr.Communicator, control: MPI.Comm) -> None:
    moved = Moved(comm, control, lambda: comm.allreduce(ones(), algorithm="naive"))
    between = NBYTES * sum(SIZE - len(ranks) for ranks in NODES for _ in ranks)
    with Checks() as check:
        check.true(moved.payload == SIZE * (SIZE - 1) * NBYTES, f"payload {moved.total}")
        check.true(moved.total["bytes_between_nodes"] == between, f"{moved.total}, not {between}")


def test_tree(comm: hr.Communicator, control: MPI.Comm) -> None:
    """Between a reduction plus a broadcast, 2(N-1)S, and full vectors at each of log2 N steps."""
    moved = Moved(comm, control, lambda: comm.allreduce(ones(), algorithm="tree"))
    most = 2 * SIZE * math.ceil(math.log2(SIZE)) * NBYTES if SIZE > 1 else 0
    with Checks() as check:
        check.true(2 * (SIZE - 1) * NBYTES <= moved.payload <= most, f"payload {moved.total}")


def test_hierarchical(comm: hr.Communicator, control: MPI.Comm) -> None:
    """2(M-1)S between the nodes, and no MPI inside them."""
    moved = Moved(comm, control, lambda: comm.allreduce(ones(), algorithm="hierarchical"))
    theory = 2 * (NUM_NODES - 1) * NBYTES
    with Checks() as check:
        check.true(moved.total["bytes_between_nodes"] == theory, f"{moved.total}, theory {theory}")
        check.true(moved.total["bytes_inside_nodes_mpi"] == 0, f"{moved.total}")
        if LOCAL_SIZE > 1:
            # Each rank stages all chunks but its own for its peers.
            least = NBYTES * (LOCAL_SIZE - 1) // LOCAL_SIZE - 64 * 64
            check.true(moved.mine["bytes_shared_memory"] >= least, f"{moved.mine}, least {least}")


@pytest.mark.parametrize(
    ("dtype", "op", "wire", "itemsize"),
    [
        ("float64", "sum", None, 8),
        ("float32", "sum", "bfloat16", 2),
        ("float32", "avg", "float16", 2),
        ("float16", "sum", None, 2),
        ("float16", "avg", None, 4),
        ("float16", "avg", "float16", 2),
        ("float16", "sum", "float32", 4),
        ("uint8", "max", None, 1),
    ],
)
def test_bytes_follow_the_wire_type(
    comm: hr.Communicator, control: MPI.Comm, dtype: str, op: str, wire: str | None, itemsize: int
) -> None:
    x = ones(dtype)
    moved = Moved(
        comm,
        control,
        lambda: comm.allreduce(x, op, wire_dtype=wire, algorithm="hierarchical"),
    )
    theory = 2 * (NUM_NODES - 1) * COUNT * itemsize
    with Checks() as check:
        check.true(moved.total["bytes_between_nodes"] == theory, f"{moved.total}, theory {theory}")


def test_one_to_many_and_gathers(comm: hr.Communicator, control: MPI.Comm) -> None:
    """Each byte enters each node that lacks it once: (M-1)S."""
    block = np.ones(COUNT // SIZE, "float32")
    nbytes = block.nbytes * SIZE
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "broadcast": (lambda: comm.broadcast(ones(), root=SIZE - 1), NBYTES),
        "allgather": (lambda: comm.allgather(block), nbytes),
        "reduce_scatter": (lambda: comm.reduce_scatter(ones()), NBYTES),
    }
    with Checks() as check:
        for name, (call, size) in calls.items():
            moved = Moved(comm, control, call)
            # A reduce-scatter may be an all-reduce whose result is kept in part.
            most = (NUM_NODES - 1) * size * (2 if name == "reduce_scatter" else 1)
            between = moved.total["bytes_between_nodes"]
            check.true(
                (NUM_NODES - 1) * size <= between <= most, f"{name}: {between}, theory {most}"
            )


def test_headers_are_counted_apart(comm: hr.Communicator, control: MPI.Comm) -> None:
    moved = Moved(comm, control, comm.barrier)
    with Checks() as check:
        check.true(moved.payload == 0, f"a barrier has no payload: {moved.total}")
        check.true(moved.operations == 1, f"operations {moved.operations}")
        if NUM_NODES > 1:
            # A round among leaders: a fold and log2 M exchanges of a few hundred bytes.
            steps = NUM_NODES * (math.ceil(math.log2(NUM_NODES)) + 2)
            headers = moved.total["header_bytes"]
            check.true(0 < headers <= 1024 * steps, f"headers {headers}")
        else:
            check.true(moved.total["header_bytes"] == 0, "one node needs no message")


def test_operations_are_counted(comm: hr.Communicator, control: MPI.Comm) -> None:
    def calls() -> None:
        comm.allreduce(1)
        comm.allreduce(np.zeros(0))
        comm.allreduce(ones(), algorithm="ring")
        comm.broadcast(ones())
        comm.allreduce_coalesced([ones(), np.ones(2)])

    moved = Moved(comm, control, calls)
    with Checks() as check:
        # A coalesced call is one, however many dtypes its tensors have.
        check.true(moved.operations == 5, f"operations {moved.operations}")
        check.true(len(set(control.allgather(moved.operations))) == 1, "alike on all ranks")


def test_a_rank_costs_a_mebibyte_of_shared_memory_at_most(comm: hr.Communicator) -> None:
    """Whatever the tensor."""
    with Checks() as check:
        before = comm.statistics().segment_nbytes_per_rank
        comm.allreduce(np.ones(3_000_000, "float32"))
        after = comm.statistics().segment_nbytes_per_rank
        check.true(0 < after <= 2**20, f"{after} bytes a rank")
        check.true(before == after, f"grew from {before} to {after}")


def test_the_snapshot_is_immutable(comm: hr.Communicator) -> None:
    with Checks() as check:
        snapshot = comm.statistics()
        comm.allreduce(1)
        check.true(
            comm.statistics().operations == snapshot.operations + 1, "a later one has moved on"
        )
        check.raises(AttributeError, lambda: setattr(snapshot, "operations", 0), "frozen")

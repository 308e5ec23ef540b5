"""All-reduce: every dtype, operation and algorithm, at every kind of size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import (
    ALGORITHMS,
    DTYPES,
    Checks,
    exact_input,
    expected,
    ops_for,
)
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
SMALL_COUNT, PIECES_COUNT = 7, 1531
PRIMES = (37, 61, 127, 257, 509, 1021, 2039, 4093, 8191, 16381, 65537)


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    with hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(timeout_s=60)) as handle:
        yield handle


@pytest.fixture(scope="module")
def pieces() -> Iterator[hr.Communicator]:
    """A communicator whose cells and messages are so small that most tensors need many."""
    config = Config.from_env(timeout_s=60, cell_bytes=4096, max_message_bytes=4096, small_bytes=256)
    with hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        yield handle


@pytest.fixture(scope="module")
def control() -> Iterator[MPI.Comm]:
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_operation(
    comm: hr.Communicator, pieces: hr.Communicator, control: MPI.Comm, algorithm: str, dtype: str
) -> None:
    results = []
    with Checks() as check:
        for op in ops_for(dtype):
            for handle, count in ((comm, SMALL_COUNT), (pieces, PIECES_COUNT)):
                x = exact_input(dtype, op, RANK, SIZE, count)
                result = handle.allreduce(x, op, algorithm=algorithm)
                label = f"{dtype} {op} {algorithm} count {count}"
                check.true(result is x, f"{label}: in place returns its argument")
                check.equal(x, expected(dtype, op, SIZE, count), label)
                results.append(x)
        check.same_on_all_ranks(control, f"{dtype} {algorithm}", *results)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_small_count(comm: hr.Communicator, pieces: hr.Communicator, algorithm: str) -> None:
    with Checks() as check:
        for count in range(34):
            for handle, dtype in ((comm, "int32"), (pieces, "float64"), (pieces, "complex128")):
                x = exact_input(dtype, "sum", RANK, SIZE, count, salt=count)
                handle.allreduce(x, algorithm=algorithm)
                wanted = expected(dtype, "sum", SIZE, count, salt=count)
                check.equal(x, wanted, f"{dtype} count {count}")


@pytest.fixture(scope="module")
def mebi() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Input and result of 2^20 + 1 elements; shorter ones are their beginnings."""
    count = 2**20 + 1
    return {
        dtype: (exact_input(dtype, "sum", RANK, SIZE, count), expected(dtype, "sum", SIZE, count))
        for dtype in ("float32", "uint8")
    }


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_prime_counts(comm: hr.Communicator, pieces: hr.Communicator, algorithm: str) -> None:
    with Checks() as check:
        for count in PRIMES:
            x = exact_input("int16", "sum", RANK, SIZE, count)
            y = x.copy()
            wanted = expected("int16", "sum", SIZE, count)
            comm.allreduce(x, algorithm=algorithm)
            check.equal(x, wanted, f"count {count}")
            pieces.allreduce(y, algorithm=algorithm)
            check.equal(y, wanted, f"count {count} in small cells")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_around_a_mebi(
    comm: hr.Communicator,
    pieces: hr.Communicator,
    mebi: dict[str, tuple[np.ndarray, np.ndarray]],
    algorithm: str,
) -> None:
    with Checks() as check:
        for count in (2**20 - 1, 2**20, 2**20 + 1):
            given, wanted = mebi["float32"]
            x = given[:count].copy()
            comm.allreduce(x, algorithm=algorithm)
            check.equal(x, wanted[:count], f"count {count}")
        given, wanted = mebi["uint8"]
        x = given.copy()
        pieces.allreduce(x, algorithm=algorithm)
        check.equal(x, wanted, "in small cells")


def test_sizes_around_the_cell_and_message_borders(pieces: hr.Communicator) -> None:
    """One element less, equal, one more than small_bytes, a cell, n cells, a message."""
    with Checks() as check:
        for border in (256, 4096, 4096 * SIZE, 8192, 2 * 4096 * SIZE):
            for count in (border // 8 - 1, border // 8, border // 8 + 1):
                for algorithm in ("hierarchical", "ring"):
                    x = exact_input("float64", "sum", RANK, SIZE, count)
                    pieces.allreduce(x, algorithm=algorithm)
                    wanted = expected("float64", "sum", SIZE, count)
                    check.equal(x, wanted, f"{algorithm} count {count}")


def test_algorithms_mix_freely(comm: hr.Communicator) -> None:
    """Small and large calls of all algorithms in turn: no state of one leaks into the next."""
    rng = np.random.default_rng(7)
    with Checks() as check:
        for call in range(60):
            count = int(rng.choice([0, 1, 3, 40, 600, 3000, 20000]))
            algorithm = ALGORITHMS[int(rng.integers(len(ALGORITHMS)))]
            x = exact_input("int64", "sum", RANK, SIZE, count, salt=call)
            comm.allreduce(x, algorithm=algorithm)
            wanted = expected("int64", "sum", SIZE, count, salt=call)
            check.equal(x, wanted, f"call {call}: {algorithm} count {count}")


def test_algorithm_ranges() -> None:
    config = Config.from_env(algorithm="tree:0-4K;ring:4K-64K;hierarchical:64K-max", timeout_s=60)
    with Checks() as check, hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        for count in (3, 511, 512, 513, 8191, 8192, 20000):
            x = exact_input("float64", "sum", RANK, SIZE, count)
            handle.allreduce(x)
            check.equal(x, expected("float64", "sum", SIZE, count), f"count {count}")


def test_textbook_ring_inside_the_node() -> None:
    config = Config.from_env(intra_schedule="ring", cell_bytes=8192, timeout_s=60)
    with Checks() as check, hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        for dtype in ("float64", "float32", "float16", "uint8", "bool", "complex64"):
            for op in ops_for(dtype):
                for count in (5, 700, 30011):
                    x = exact_input(dtype, op, RANK, SIZE, count)
                    handle.allreduce(x, op, algorithm="hierarchical")
                    label = f"{dtype} {op} count {count}"
                    check.equal(x, expected(dtype, op, SIZE, count), label)


def test_every_rank_a_node() -> None:
    with Checks() as check:
        config = Config.from_env(shared_memory=False, timeout_s=60)
        with hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
            check.true(handle.get_topology().num_nodes == SIZE, "one node for each rank")
            for count in (0, 1, 1000, 50021):
                x = exact_input("float32", "sum", RANK, SIZE, count)
                handle.allreduce(x, algorithm="hierarchical")
                check.equal(x, expected("float32", "sum", SIZE, count), f"count {count}")


@pytest.mark.parametrize("leaders", [1, 2, 3])
def test_any_number_of_leaders(leaders: int) -> None:
    config = Config.from_env(leaders=leaders, cell_bytes=8192, slice_bytes=4096, timeout_s=60)
    with Checks() as check, hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        for count in (1, 33, 2000, 30011):
            x = exact_input("float32", "avg", RANK, SIZE, count)
            handle.allreduce(x, "avg", algorithm="hierarchical")
            check.equal(x, expected("float32", "avg", SIZE, count), f"count {count}")


def test_default_operation_is_the_sum(comm: hr.Communicator) -> None:
    with Checks() as check:
        check.equal(comm.allreduce(np.ones(3)), np.full(3, float(SIZE)), "no op given")


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("sum", MPI.SUM),
        ("prod", MPI.PROD),
        ("min", MPI.MIN),
        ("max", MPI.MAX),
        ("band", MPI.BAND),
        ("bor", MPI.BOR),
        ("bxor", MPI.BXOR),
    ],
)
def test_constants_of_mpi4py(comm: hr.Communicator, name: str, constant: MPI.Op) -> None:
    with Checks() as check:
        x = exact_input("int32", name, RANK, SIZE, 11)
        check.equal(comm.allreduce(x, constant), expected("int32", name, SIZE, 11), name)


def test_module_functions() -> None:
    """The functions of the package work on COMM_WORLD and initialise it themselves."""
    with Checks() as check:
        check.equal(hr.allreduce(np.full(4, RANK + 1)), np.full(4, SIZE * (SIZE + 1) // 2), "sum")
        check.true(hr.rank() == RANK, "rank")
        check.true(hr.size() == SIZE, "size")
        check.true(hr.init() is hr.init(), "init is idempotent")
        topology = hr.get_topology()
        check.true(hr.local_rank() == topology.local_rank, "local_rank")
        check.true(hr.local_size() == topology.local_size, "local_size")
        check.true(hr.node_rank() == topology.node_rank, "node_rank")
        check.true(hr.num_nodes() == topology.num_nodes, "num_nodes")
        hr.barrier()

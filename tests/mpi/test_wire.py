"""What travels between nodes: rounding of 16-bit types, means that don't overflow, compression."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import (
    ALGORITHMS,
    UNIT,
    Checks,
    exact_sum,
    expected_nodes,
    general_input,
    sum_bound,
)
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
NODES = expected_nodes(SIZE)
FLAT = ("ring", "tree", "naive")
COUNTS = (5, 1200)


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    config = Config.from_env(timeout_s=60, cell_bytes=4096, small_bytes=256)
    with hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        yield handle


@pytest.fixture(scope="module")
def control() -> Iterator[MPI.Comm]:
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


def roundings(algorithm: str) -> int:
    """How often a 16-bit sum may be rounded: once for each node and once for each network step."""
    return SIZE if algorithm in FLAT or algorithm == "auto" else len(NODES)


def general_inputs(dtype: str, count: int) -> list[np.ndarray]:
    return [general_input(dtype, rank, count) for rank in range(SIZE)]


def test_float16_rounds_once_with_a_float32_wire(comm: hr.Communicator) -> None:
    """The sums here are exact in float32, so the result is the exact sum rounded once."""
    rng = np.random.default_rng(11)
    with Checks() as check:
        for count in COUNTS:
            words = rng.integers(1024, 2048, (SIZE, count))
            inputs = (words / 1024.0 * 2.0 ** rng.integers(-3, 3, (SIZE, count))).astype(np.float16)
            exact = inputs.astype(np.float64).sum(axis=0).astype(np.float16)
            for algorithm in ALGORITHMS:
                x = inputs[RANK].copy()
                comm.allreduce(x, wire_dtype="float32", algorithm=algorithm)
                check.equal(x, exact, f"{algorithm} count {count}")
            if len(NODES) == 1:
                x = inputs[RANK].copy()
                comm.allreduce(x, algorithm="hierarchical")
                check.equal(x, exact, f"inside one node, count {count}")


@pytest.mark.parametrize("wire", [None, "float16", "float32"])
def test_mean_of_float16_neither_overflows_nor_underflows(
    comm: hr.Communicator, wire: str | None
) -> None:
    with Checks() as check:
        for algorithm in ("hierarchical", "ring", "tree", "naive"):
            for count in (5, 600):
                for value in (60000.0, 65504.0, -65504.0, 2.0**-14):
                    x = np.full(count, value, np.float16)
                    comm.allreduce(x, "avg", algorithm=algorithm, wire_dtype=wire)
                    wanted, bound = np.full(count, value), np.full(count, abs(value) * 2.0**-10)
                    label = f"{algorithm} count {count} of {value}"
                    check.within(x, wanted, bound, label)
                    check.true(np.isfinite(x).all(), f"{label}: finite")


def test_mean_of_float16_over_its_own_wire(comm: hr.Communicator, control: MPI.Comm) -> None:
    with Checks() as check:
        for count in COUNTS:
            inputs = general_inputs("float16", count)
            exact = exact_sum(inputs) / SIZE
            for algorithm in ("hierarchical", "ring"):
                x = comm.allreduce(
                    inputs[RANK].copy(), "avg", wire_dtype="float16", algorithm=algorithm
                )
                steps = roundings(algorithm) + 1
                bound = sum_bound(inputs, UNIT["float32"] * 4, UNIT["float16"], steps) / SIZE
                bound += 2.0**-25 * steps
                check.within(x, exact, bound, f"{algorithm} count {count}")
                check.same_on_all_ranks(control, f"{algorithm} count {count}", x)


@pytest.mark.parametrize("wire", ["bfloat16", "float16"])
def test_compressed_float32(comm: hr.Communicator, control: MPI.Comm, wire: str) -> None:
    with Checks() as check:
        for count in COUNTS:
            inputs = general_inputs("float32", count)
            exact = exact_sum(inputs)
            for algorithm in ("hierarchical", "ring"):
                x = comm.allreduce(inputs[RANK].copy(), wire_dtype=wire, algorithm=algorithm)
                bound = sum_bound(inputs, UNIT["float32"], UNIT[wire], roundings(algorithm) + 1)
                check.within(x, exact, bound, f"{algorithm} count {count}")
                check.same_on_all_ranks(control, f"{algorithm} count {count}", x)
            if len(NODES) == 1 and SIZE > 1:
                x = comm.allreduce(inputs[RANK].copy(), wire_dtype=wire, algorithm="hierarchical")
                bound = sum_bound(inputs, UNIT["float32"], 0.0, 0)
                check.within(x, exact, bound, f"count {count}: nothing is compressed inside a node")

"""Arithmetic a user can trust: bounds, identical bits, NaN, wrap-around, scale."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import (
    ALGORITHMS,
    FLOATS,
    UNIT,
    Checks,
    exact_input,
    exact_sum,
    expected,
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


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sum_of_general_floats(
    comm: hr.Communicator, control: MPI.Comm, algorithm: str, dtype: str
) -> None:
    """The error bound holds, all ranks have the same bits, and so do two runs."""
    sum_unit = UNIT["float64" if dtype == "float64" else "float32"]
    wire_unit = UNIT[dtype] if dtype == "float16" else 0.0
    with Checks() as check:
        for count in COUNTS:
            inputs = general_inputs(dtype, count)
            exact = exact_sum(inputs)
            first = comm.allreduce(inputs[RANK].copy(), algorithm=algorithm)
            again = comm.allreduce(inputs[RANK].copy(), algorithm=algorithm)
            bound = sum_bound(inputs, sum_unit, wire_unit, roundings(algorithm))
            bound += np.abs(exact) * UNIT["float64"]  # the reference itself is rounded
            check.within(first, exact, bound, f"count {count}")
            check.equal(again, first, f"count {count}, second run")
            check.same_on_all_ranks(control, f"count {count}", first)

            mean = comm.allreduce(inputs[RANK].copy(), "avg", algorithm=algorithm)
            # One more rounding for the division.
            check.within(
                mean,
                exact / SIZE,
                (bound + np.abs(exact) * (sum_unit + wire_unit) * 1.01) / SIZE
                + np.float64(2.0**-25 if dtype == "float16" else 0.0),
                f"count {count}, avg",
            )
            check.same_on_all_ranks(control, f"avg of {count}", mean)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex128"])
def test_same_bits_on_every_rank_for_products(
    comm: hr.Communicator, control: MPI.Comm, dtype: str
) -> None:
    with Checks() as check:
        for algorithm in ALGORITHMS:
            results = []
            for count in COUNTS:
                x = general_input(dtype, RANK, count, seed=3)
                results.append(comm.allreduce(x, "prod", algorithm=algorithm))
            check.same_on_all_ranks(control, algorithm, *results)


def test_another_communicator_gives_the_same_bits(comm: hr.Communicator) -> None:
    config = Config.from_env(timeout_s=60, cell_bytes=4096, small_bytes=256)
    with Checks() as check, hr.Communicator(MPI.COMM_WORLD, config=config) as other:
        for algorithm in ALGORITHMS:
            for count in COUNTS:
                x = general_input("float32", RANK, count, seed=5)
                wanted = comm.allreduce(x.copy(), algorithm=algorithm)
                label = f"{algorithm} count {count}"
                check.equal(other.allreduce(x.copy(), algorithm=algorithm), wanted, label)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_complex_sum(comm: hr.Communicator, algorithm: str) -> None:
    with Checks() as check:
        inputs = general_inputs("complex64", 300)
        result = comm.allreduce(inputs[RANK].copy(), algorithm=algorithm)
        for name in ("real", "imag"):
            parts = [getattr(x, name) for x in inputs]
            bound = sum_bound(parts, UNIT["float32"], 0.0, 0)
            check.within(getattr(result, name), exact_sum(parts), bound, name)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nan_propagates(comm: hr.Communicator, algorithm: str) -> None:
    """A NaN of any rank, in any element, reaches every rank; other elements are not harmed."""
    with Checks() as check:
        for dtype in FLOATS:
            for op in ("min", "max", "sum", "avg", "prod"):
                count = 40
                x = np.full(count, RANK + 1.0, dtype)
                where = np.arange(count) % (SIZE + 1)  # SIZE: no rank has a NaN there
                x[where == RANK] = np.nan
                comm.allreduce(x, op, algorithm=algorithm)
                wrong = np.flatnonzero(np.isnan(x) != (where < SIZE))
                check.true(not wrong.size, f"{dtype} {op}: wrong at {wrong}")


@pytest.mark.parametrize("op", ["min", "max"])
def test_infinities_and_signed_zeros(comm: hr.Communicator, control: MPI.Comm, op: str) -> None:
    with Checks() as check:
        for dtype in FLOATS:
            x = np.array([np.inf, -np.inf, 0.0, -0.0, RANK, -0.0 if RANK % 2 else 0.0], dtype)
            if RANK == 0:
                x[:2] = [1.0, -1.0]
            inputs = [[np.inf, -np.inf]] * (SIZE - 1) + [[1.0, -1.0]]
            comm.allreduce(x, op)
            pick = np.min if op == "min" else np.max
            check.equal(x[:2], pick(np.array(inputs, dtype), axis=0), f"{dtype} infinities")
            check.equal(x[4], np.asarray(0 if op == "min" else SIZE - 1, dtype), f"{dtype} rank")
            check.true(np.signbit(x[3]) and not np.signbit(x[2]), f"{dtype}: equal zeros keep sign")
            check.same_on_all_ranks(control, f"{dtype} zeros", x)


def test_subnormals_are_kept(comm: hr.Communicator) -> None:
    with Checks() as check:
        for dtype, tiny in (("float32", 2.0**-149), ("float64", 2.0**-1074), ("float16", 2.0**-24)):
            for count in (3, 1000):
                x = np.full(count, tiny, dtype)
                comm.allreduce(x)
                check.equal(x, np.full(count, tiny * SIZE, dtype), f"{dtype} count {count}")


def test_integers_wrap(comm: hr.Communicator) -> None:
    """One rule on every path: modulo 2^n."""
    with Checks() as check:
        for algorithm in ALGORITHMS:
            for dtype, value in (
                ("int8", 120),
                ("uint8", 200),
                ("int32", 2**31 - 1),
                ("int64", 2**62),
            ):
                for op in ("sum", "prod"):
                    for count in (2, 900):
                        x = np.full(count, value, dtype)
                        comm.allreduce(x, op, algorithm=algorithm)
                        exact = value * SIZE if op == "sum" else value**SIZE
                        bits = np.iinfo(dtype).bits
                        wanted = np.full(count, exact % 2**bits, f"u{bits // 8}").view(dtype)
                        check.equal(x, wanted, f"{algorithm} {dtype} {op} count {count}")


def test_bool_is_any_and_all(comm: hr.Communicator) -> None:
    with Checks() as check:
        for op in ("sum", "max", "prod", "min"):
            for count in (3, 5000):
                for holder in range(SIZE):
                    x = np.full(count, holder == RANK)
                    comm.allreduce(x, op)
                    wanted = np.full(count, op in ("sum", "max") or SIZE == 1)
                    check.equal(x, wanted, f"{op} count {count}, true on rank {holder}")
        raw = np.array([0, 1, 2, 255], np.uint8).view(bool)  # any non-zero byte is true
        comm.allreduce(raw)
        if SIZE > 1:  # a world of one has nothing to reduce
            check.equal(raw.view(np.uint8), np.array([0, 1, 1, 1], np.uint8), "results are 0 or 1")


def test_mean_of_tiny_tensors(comm: hr.Communicator) -> None:
    with Checks() as check:
        for count in (1, 2, 3, 5, 8):
            for dtype in FLOATS:
                x = np.full(count, RANK + 1.0, dtype)
                comm.allreduce(x, "avg")
                check.equal(x, np.full(count, (SIZE + 1) / 2, dtype), f"{dtype} count {count}")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scale(comm: hr.Communicator, algorithm: str) -> None:
    """Each rank's own factor on its own contribution, in the same pass."""
    with Checks() as check:
        for dtype in ("float64", "float32", "float16", "complex64"):
            for count in COUNTS:
                base = exact_input(dtype, "sum", 0, 16 * SIZE, count)
                factor = 2.0 ** (RANK % 3 - 1)
                x = base.copy()
                comm.allreduce(x, scale=factor, algorithm=algorithm)
                total = sum(2.0 ** (rank % 3 - 1) for rank in range(SIZE))
                check.equal(x, (base * total).astype(dtype), f"{dtype} sum count {count}")
                out = np.zeros_like(base)
                comm.allreduce(base, "avg", scale=SIZE * factor, out=out, algorithm=algorithm)
                check.equal(out, (base * total).astype(dtype), f"{dtype} avg count {count}")


def test_weighted_mean_of_uneven_batches(comm: hr.Communicator) -> None:
    """Weights batch/total give the mean over all samples, also with an empty batch."""
    batches = [rank * 3 for rank in range(SIZE)]
    batches[-1] += 1
    total = sum(batches)
    with Checks() as check:
        inputs = [general_input("float64", rank, 500) * bool(batches[rank]) for rank in range(SIZE)]
        x = inputs[RANK].copy()
        comm.allreduce(x, scale=batches[RANK] / total)
        parts = [value * (n / total) for value, n in zip(inputs, batches, strict=True)]
        bound = sum_bound(parts, 4 * UNIT["float64"], 0.0, 0)
        check.within(x, exact_sum(parts), bound, "weighted mean")
        check.within(
            comm.allreduce(1.0, scale=batches[RANK] / total), np.ones(1), np.array([1e-15]), "1"
        )


def test_scratch_never_reaches_the_result(comm: hr.Communicator) -> None:
    """Cells full of NaN from an earlier call leave no trace in the next ones."""
    with Checks() as check:
        comm.allreduce(np.full(30000, np.nan))
        for count in (*range(1, 34), 700):
            x = exact_input("float64", "sum", RANK, SIZE, count)
            comm.allreduce(x)
            check.equal(x, expected("float64", "sum", SIZE, count), f"count {count}")

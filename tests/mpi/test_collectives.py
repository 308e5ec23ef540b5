"""Reduce-scatter, all-gather, broadcast, barrier and coalesced all-reduce."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import (
    ALGORITHMS,
    COMPLEX,
    DTYPES,
    Checks,
    canaries_intact,
    exact_input,
    expected,
    layouts,
    ops_for,
)
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
LAYOUTS = dict(layouts())


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


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "bool", "complex64"])
def test_reduce_scatter(comm: hr.Communicator, pieces: hr.Communicator, dtype: str) -> None:
    with Checks() as check:
        for handle in (comm, pieces):
            for op in ops_for(dtype):
                for rows, columns in ((1, 1), (1, 7), (3, 5), (400, 3)):
                    shape = (SIZE * rows, columns)
                    count = SIZE * rows * columns
                    x = exact_input(dtype, op, RANK, SIZE, count).reshape(shape)
                    before = x.copy()
                    wanted = expected(dtype, op, SIZE, count).reshape(shape)
                    block = wanted[RANK * rows : (RANK + 1) * rows]
                    label = f"{dtype} {op} rows {rows} columns {columns}"
                    check.equal(handle.reduce_scatter(x, op), block, label)
                    check.equal(x, before, f"{label}: x untouched")
                    if rows != 3:
                        continue
                    out = np.zeros((columns, rows), dtype).T
                    check.true(
                        handle.reduce_scatter(x, op, out=out) is out, f"{label}: returns out"
                    )
                    check.equal(out, block, f"{label}: out")


def test_reduce_scatter_of_strided_arrays(pieces: hr.Communicator) -> None:
    with Checks() as check:
        for rows in (1, 50):
            base = np.full((3, SIZE * rows, 8), 7, "float32")
            x = base[1, ::-1, 1::2]
            x[...] = exact_input("float32", "sum", RANK, SIZE, x.size).reshape(x.shape)
            before = base.copy()
            wanted = expected("float32", "sum", SIZE, x.size).reshape(x.shape)
            block = wanted[RANK * rows : (RANK + 1) * rows]
            check.equal(pieces.reduce_scatter(x), block, f"rows {rows}")
            check.equal(base, before, f"rows {rows}: base untouched")


def test_reduce_scatter_edges(comm: hr.Communicator) -> None:
    with Checks() as check:
        check.equal(comm.reduce_scatter(np.zeros((0, 3))), np.zeros((0, 3)), "no rows")
        check.equal(comm.reduce_scatter(np.zeros((SIZE, 0))), np.zeros((1, 0)), "no columns")
        x = np.ones(SIZE * 2, "float32")
        check.equal(comm.reduce_scatter(x, "avg"), np.ones(2, "float32"), "avg")
        if SIZE > 1:
            error = check.raises(
                (hr.HierringError, ValueError),
                lambda: comm.reduce_scatter(np.ones(SIZE + 1)),
                "not divisible",
            )
            check.true(str(SIZE) in str(error), f"the message names the divisor: {error}")
        check.raises(
            (hr.HierringError, ValueError), lambda: comm.reduce_scatter(np.array(1.0)), "0-d"
        )
        check.equal(comm.allreduce(np.ones(2)), np.full(2, float(SIZE)), "the next call is right")


def rows_of(rank: int, case: int) -> int:
    """Uneven first dimensions, zero among them."""
    return [rank + 1, (rank * 3) % 4, 0 if rank else 5, 0, 70 * rank + 3][case]


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint32", "bool", "complex128"])
def test_allgather(comm: hr.Communicator, pieces: hr.Communicator, dtype: str) -> None:
    """Blocks lie in rank order whatever the placement; first dimensions may differ."""
    with Checks() as check:
        for handle in (comm, pieces):
            for case in range(5):
                columns = 1 + case % 2 * 5
                blocks = [
                    exact_input(dtype, "max", rank, SIZE, rows_of(rank, case) * columns).reshape(
                        rows_of(rank, case), columns
                    )
                    for rank in range(SIZE)
                ]
                wanted = np.concatenate(blocks)
                x = blocks[RANK].copy()
                label = f"{dtype} case {case} columns {columns}"
                check.equal(handle.allgather(x), wanted, label)
                check.equal(x, blocks[RANK], f"{label}: x untouched")
                out = np.zeros(wanted.shape[::-1], dtype).T
                check.true(handle.allgather(x, out=out) is out, f"{label}: returns out")
                check.equal(out, wanted, f"{label}: out")


def test_allgather_keeps_every_bit(comm: hr.Communicator) -> None:
    """Copies are copies: payloads of NaN, signs of zero and raw bools arrive as they were."""
    with Checks() as check:
        words = np.array([0x7FC00000 + RANK, 0xFFC12345, 0x80000000, 1, 0x7F800001], np.uint32)
        gathered = comm.allgather(words.view(np.float32)).view(np.uint32)
        wanted = np.concatenate(
            [np.array([0x7FC00000 + r, *words[1:].tolist()], np.uint32) for r in range(SIZE)]
        )
        check.equal(gathered, wanted, "float32 bits")


def test_allgather_by_explicit_permutation(comm: hr.Communicator) -> None:
    """The blocks of a cyclic placement come from nodes in another order than the ranks."""
    with Checks() as check:
        x = np.arange(1003) + 1000 * RANK
        wanted = np.concatenate([np.arange(1003) + 1000 * rank for rank in range(SIZE)])
        check.equal(comm.allgather(x), wanted, "all-gather")
        base = 1000 * SIZE * (SIZE - 1) // 2
        check.equal(comm.allreduce(x), SIZE * np.arange(1003) + base, "all-reduce")


def test_allgather_of_strided_and_large_blocks(pieces: hr.Communicator) -> None:
    with Checks() as check:
        base = np.arange(40_000, dtype="int32").reshape(200, 200) + 100_000 * RANK
        wanted = np.concatenate(
            [
                (np.arange(40_000, dtype="int32").reshape(200, 200) + 100_000 * r)[::-2, 3::7]
                for r in range(SIZE)
            ]
        )
        check.equal(pieces.allgather(base[::-2, 3::7]), wanted, "strided")
        large = np.arange(50_001, dtype="uint16") + np.uint16(RANK)
        wanted = np.concatenate(
            [np.arange(50_001, dtype="uint16") + np.uint16(r) for r in range(SIZE)]
        )
        check.equal(pieces.allgather(large), wanted, "large")


@pytest.mark.parametrize("root", range(SIZE))
def test_broadcast(comm: hr.Communicator, pieces: hr.Communicator, root: int) -> None:
    with Checks() as check:
        for dtype in DTYPES[root::SIZE]:  # all of them over all roots
            for handle, count in ((comm, 1), (comm, 700), (pieces, 33), (pieces, 2601)):
                x = exact_input(dtype, "max", RANK, SIZE, count, salt=root)
                result = handle.broadcast(x, root=root)
                check.true(result is x, f"{dtype} count {count}: returns its argument")
                wanted = exact_input(dtype, "max", root, SIZE, count, salt=root)
                check.equal(x, wanted, f"{dtype} count {count}")
        check.true(
            np.array_equal(comm.broadcast(np.zeros((0, 2)), root=root), np.zeros((0, 2))), "0"
        )


def test_broadcast_into_every_layout(comm: hr.Communicator, pieces: hr.Communicator) -> None:
    with Checks() as check:
        for name, make in LAYOUTS.items():
            for handle, count in ((comm, 20), (pieces, 2000)):
                base, view = make("float32", count)
                wanted = exact_input("float32", "max", SIZE - 1, SIZE, view.size).reshape(
                    view.shape
                )
                if RANK == SIZE - 1:
                    view[...] = wanted
                handle.broadcast(view, root=SIZE - 1)
                check.equal(view, wanted, f"{name} count {count}")
                check.true(canaries_intact(base, name), f"{name} count {count}: canaries")


def test_broadcast_large(comm: hr.Communicator) -> None:
    with Checks() as check:
        for root in {0, SIZE - 1}:
            x = exact_input("float64", "max", RANK, SIZE, 300_007)
            comm.broadcast(x, root=root)
            check.equal(x, exact_input("float64", "max", root, SIZE, 300_007), f"root {root}")


def test_broadcast_refuses_a_root_that_is_no_rank(comm: hr.Communicator) -> None:
    with Checks() as check:
        x = np.full(3, RANK)
        for root in (SIZE, -1, "zero"):
            check.raises(
                (hr.HierringError, ValueError, TypeError),
                lambda root=root: comm.broadcast(x, root=root),
                f"root {root}",
            )
        check.equal(x, np.full(3, RANK), "untouched")


def test_barrier(comm: hr.Communicator, control: MPI.Comm) -> None:
    """Nobody leaves before the last has come, whoever is last."""
    with Checks() as check:
        for late in range(SIZE):
            control.Barrier()
            if late == RANK:
                time.sleep(0.05)  # only makes a wrong barrier show; the check holds at any speed
            came = time.monotonic()  # one machine, one clock
            comm.barrier()
            left = time.monotonic()
            check.true(left >= max(control.allgather(came)), f"rank {late} late")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_coalesced(comm: hr.Communicator, pieces: hr.Communicator, algorithm: str) -> None:
    """Many tensors of one dtype, one operation; each is reduced in its own place."""
    counts = (3, 0, 1, 500, 17, 64, 2, 2049)
    with Checks() as check:
        for handle in (comm, pieces):
            for dtype, op in (("float32", "sum"), ("float64", "avg"), ("int16", "max")):
                tensors = [
                    exact_input(dtype, op, RANK, SIZE, n, salt=i) for i, n in enumerate(counts)
                ]
                results = handle.allreduce_coalesced(tensors, op, algorithm=algorithm)
                for i, (tensor, result) in enumerate(zip(tensors, results, strict=True)):
                    wanted = expected(dtype, op, SIZE, counts[i], salt=i)
                    check.equal(tensor, wanted, f"{dtype} {op} tensor {i}")
                    check.true(result is tensor, f"{dtype} {op} tensor {i} is returned")


def test_coalesced_of_mixed_dtypes_and_layouts(comm: hr.Communicator) -> None:
    with Checks() as check:
        kinds = ["float32", "int64", "float32", "uint8", "float16", "float64", "int64"]
        tensors, bases = [], []
        for i, kind in enumerate(kinds):
            base = np.full((9, 2 * i + 4), 5, kind)
            view = base[1:-1, ::2].T if i % 2 else base[::-1, 1:-1]
            view[...] = exact_input(kind, "sum", RANK, SIZE, view.size, salt=i).reshape(view.shape)
            tensors.append(view)
            bases.append(base)
        comm.allreduce_coalesced(tensors)
        for i, (kind, view) in enumerate(zip(kinds, tensors, strict=True)):
            wanted = expected(kind, "sum", SIZE, view.size, salt=i).reshape(view.shape)
            check.equal(view, wanted, f"tensor {i}, {kind}")
            view[...] = 5
            check.true((bases[i] == 5).all(), f"tensor {i}: surroundings")
        check.true(list(comm.allreduce_coalesced([])) == [], "an empty list")
        check.equal(comm.allreduce(np.ones(2)), np.full(2, float(SIZE)), "the next call is right")


def test_complex_is_gathered_too(comm: hr.Communicator) -> None:
    with Checks() as check:
        for dtype in COMPLEX:
            x = np.full(2, RANK + 1j, dtype)
            wanted = np.repeat(np.arange(SIZE) + 1j, 2).astype(dtype)
            check.equal(comm.allgather(x), wanted, dtype)

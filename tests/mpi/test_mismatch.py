"""Clean failures: calls that do not fit and arguments refused on one rank.

Every rank raises for the same call, no tensor is written anywhere, and the next call is right.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
SMALL, LARGE = 5, 4000  # below and above small_bytes
several_ranks = pytest.mark.world(*range(2, 65))  # someone must differ


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    config = Config.from_env(timeout_s=30, cell_bytes=4096, small_bytes=256)
    with hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        yield handle


def next_call_is_right(check: Checks, comm: hr.Communicator, label: str) -> None:
    """A small or a large one, which go different ways; the label picks the same on all ranks."""
    count = (SMALL, LARGE)[zlib.crc32(label.encode()) % 2]
    x = np.full(count, RANK + 1, "int64")
    comm.allreduce(x)
    check.equal(x, np.full(count, SIZE * (SIZE + 1) // 2), f"{label}: next call of {count}")


Call = Callable[[hr.Communicator, np.ndarray], Any]
#: What the odd rank does instead of `allreduce(float32[count], "sum")`, and the words that name it.
DIFFERENT: dict[str, tuple[Call, list[str]]] = {
    "dtype": (lambda c, x: c.allreduce(x.view("int32")), ["float32", "int32"]),
    "count": (lambda c, x: c.allreduce(x[:-2]), []),
    "op": (lambda c, x: c.allreduce(x, "max"), ["sum", "max"]),
    "average": (lambda c, x: c.allreduce(x, "avg"), ["sum", "avg"]),
    "algorithm": (lambda c, x: c.allreduce(x, algorithm="naive"), ["naive"]),
    "wire dtype": (lambda c, x: c.allreduce(x, wire_dtype="float16"), ["float16"]),
    "barrier": (lambda c, _: c.barrier(), ["allreduce", "barrier"]),
    "broadcast": (lambda c, x: c.broadcast(x, root=0), ["allreduce", "broadcast"]),
    "allgather": (lambda c, x: c.allgather(x), ["allreduce", "allgather"]),
    "reduce_scatter": (
        lambda c, x: c.reduce_scatter(np.repeat(x, SIZE)),
        ["allreduce", "reduce_scatter"],
    ),
    "empty": (lambda c, x: c.allreduce(x[:0]), []),
}


@several_ranks
@pytest.mark.parametrize("name", DIFFERENT)
def test_one_rank_differs(comm: hr.Communicator, name: str) -> None:
    other, words = DIFFERENT[name]
    with Checks() as check:
        for odd in range(SIZE):
            for count in (SMALL, LARGE):
                x = np.full(count, RANK + 1, "float32")
                call: Call = other if odd == RANK else lambda c, x: c.allreduce(x)
                label = f"{name}, odd rank {odd}, count {count}"
                error = check.raises(
                    hr.CollectiveMismatchError, lambda call=call, x=x: call(comm, x), label
                )
                check.equal(x, np.full(count, RANK + 1, "float32"), f"{label}: untouched")
                text = str(error)
                check.true(f"rank {odd}" in text, f"{label}: names the odd rank: {text}")
                for word in words:
                    check.true(word in text, f"{label}: says {word}: {text}")
                if name == "count":
                    both = str(count) in text and str(count - 2) in text
                    check.true(both, f"{label}: shows both counts: {text}")
            next_call_is_right(check, comm, f"{name}, odd rank {odd}")


@several_ranks
def test_different_roots(comm: hr.Communicator) -> None:
    with Checks() as check:
        for count in (SMALL, LARGE):
            x = np.full(count, RANK)
            root = 0 if RANK else 1
            error = check.raises(
                hr.CollectiveMismatchError, lambda x=x, r=root: comm.broadcast(x, root=r), "root"
            )
            check.true("root" in str(error), f"says root: {error}")
            check.equal(x, np.full(count, RANK), "untouched")
        next_call_is_right(check, comm, "root")


@several_ranks
def test_all_ranks_differ(comm: hr.Communicator) -> None:
    with Checks() as check:
        for first in (1, LARGE):
            x = np.full(first + RANK, RANK)
            check.raises(hr.CollectiveMismatchError, lambda x=x: comm.allreduce(x), "all differ")
            check.equal(x, np.full(first + RANK, RANK), "untouched")
        next_call_is_right(check, comm, "all differ")


@several_ranks
def test_two_different_collectives_with_their_numbers(comm: hr.Communicator) -> None:
    """float32[25] in gradient sync against int64[1] at a checkpoint: the message shows both."""
    with Checks() as check:
        x = np.ones(25, "float32") if RANK == 0 else np.ones(1, "int64")
        error = check.raises(hr.CollectiveMismatchError, lambda: comm.allreduce(x), "both")
        for word in ("float32", "25", "int64", "rank 0", "rank 1"):
            check.true(word in str(error), f"says {word}: {error}")


@several_ranks
def test_other_collectives_compare_too(comm: hr.Communicator) -> None:
    with Checks() as check:
        for kind in ("allgather", "reduce_scatter", "broadcast"):
            for count in (SMALL * SIZE, LARGE * SIZE):
                x = np.full(count, RANK, "int32" if RANK else "float32")
                call = getattr(comm, kind)
                check.raises(hr.CollectiveMismatchError, lambda call=call, x=x: call(x), kind)
        x = np.zeros((2, 3 if RANK else 4))
        check.raises(hr.CollectiveMismatchError, lambda: comm.allgather(x), "trailing shape")
        tensors = [np.ones(3), np.ones(4 if RANK else 5)]
        check.raises(
            hr.CollectiveMismatchError, lambda: comm.allreduce_coalesced(tensors), "coalesced"
        )
        check.equal(tensors[0], np.ones(3), "coalesced: untouched")
        shifted = [np.ones(2 + bool(RANK)), np.ones(3 - bool(RANK))]
        check.raises(
            hr.CollectiveMismatchError, lambda: comm.allreduce_coalesced(shifted), "equal total"
        )
        next_call_is_right(check, comm, "other collectives")


class Failing:
    """A DLPack producer that cannot produce."""

    def __dlpack__(self, **_: object) -> object:
        raise RuntimeError("no capsule today")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def read_only() -> np.ndarray:
    x = np.ones(SMALL, "float32")
    x.flags.writeable = False
    return x


def overlapping(c: hr.Communicator) -> Any:
    base = np.ones(SMALL + 1, "float32")
    return c.allreduce(base[:-1], out=base[1:])


ONES = np.ones(SMALL, "float32")
#: What one rank passes and must be refused there, and a word of the quotation.
REFUSED: dict[str, tuple[Callable[[hr.Communicator], Any], str]] = {
    "read-only": (lambda c: c.allreduce(read_only()), "read-only"),
    "unknown op": (lambda c: c.allreduce(ONES.copy(), "median"), "median"),
    "op of no type": (lambda c: c.allreduce(ONES.copy(), 42), "42"),
    "unknown algorithm": (lambda c: c.allreduce(ONES.copy(), algorithm="magic"), "magic"),
    "unknown wire": (lambda c: c.allreduce(ONES.copy(), wire_dtype="int4"), "int4"),
    "object dtype": (lambda c: c.allreduce(np.array([None, 1])), "object"),
    "text": (lambda c: c.allreduce(np.array(["a", "b"])), "U1"),
    "byte-swapped": (lambda c: c.allreduce(np.ones(3, ">f8")), ">f8"),
    "long double": (lambda c: c.allreduce(np.ones(3, np.longdouble)), "128"),
    "structured": (lambda c: c.allreduce(np.zeros(2, "i4,f4")), "dtype"),
    "avg of integers": (lambda c: c.allreduce(np.ones(3, "int32"), "avg"), "avg"),
    "max of complex": (lambda c: c.allreduce(np.ones(3, "complex64"), "max"), "complex64"),
    "bits of floats": (lambda c: c.allreduce(ONES.copy(), "band"), "band"),
    "scale of integers": (lambda c: c.allreduce(np.ones(3, "int32"), scale=2.0), "scale"),
    "scale of a maximum": (lambda c: c.allreduce(ONES.copy(), "max", scale=2.0), "scale"),
    "failing producer": (lambda c: c.allreduce(Failing()), "no capsule today"),
    "a list": (lambda c: c.allreduce([1.0, 2.0]), "list"),
    "None": (lambda c: c.allreduce(None), "None"),
    "overlap": (overlapping, "overlap"),
    "stride 0": (
        lambda c: c.allreduce(np.lib.stride_tricks.as_strided(ONES.copy(), (3,), (0,))),
        "",
    ),
    "bad timeout": (lambda c: c.allreduce(ONES.copy(), timeout=-1), "timeout"),
    "bad root": (lambda c: c.broadcast(ONES.copy(), root=SIZE), "root"),
    "one of many": (lambda c: c.allreduce_coalesced([ONES.copy(), read_only()]), "read-only"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_rank_refuses(comm: hr.Communicator, name: str) -> None:
    """The refusing rank raises its own error; the others one that names it and quotes the text."""
    bad, word = REFUSED[name]
    with Checks() as check:
        for refusing in range(SIZE):
            for count in (SMALL, LARGE):
                x = np.full(count, RANK + 1, "float32")
                label = f"{name} on rank {refusing}, count {count}"
                if refusing == RANK:
                    error = check.raises(Exception, lambda: bad(comm), label)
                    own = not isinstance(error, hr.CollectiveMismatchError)
                    check.true(own, f"{label}: the refusing rank raises its own error: {error!r}")
                    known = isinstance(error, hr.HierringError) or "capsule" in str(error)
                    check.true(known, f"{label}: one of ours or the producer's: {error!r}")
                else:
                    error = check.raises(
                        hr.CollectiveMismatchError, lambda x=x: comm.allreduce(x), label
                    )
                    check.true(f"rank {refusing}" in str(error), f"{label}: names it: {error}")
                check.true(word in str(error), f"{label}: says {word!r}: {error}")
                check.equal(x, np.full(count, RANK + 1, "float32"), f"{label}: untouched")
            next_call_is_right(check, comm, f"{name} on rank {refusing}")


def test_user_defined_operation_names_the_way_out(comm: hr.Communicator) -> None:
    op = MPI.Op.Create(lambda a, b, _: None)
    with Checks() as check:
        error = check.raises(hr.HierringError, lambda: comm.allreduce(np.ones(2), op), "user op")
        check.true("Allreduce" in str(error), f"names comm.Allreduce: {error}")
        next_call_is_right(check, comm, "user op")
    op.Free()


def test_a_refusal_on_all_ranks(comm: hr.Communicator) -> None:
    with Checks() as check:
        for name, (bad, word) in REFUSED.items():
            error = check.raises(Exception, lambda bad=bad: bad(comm), name)
            own = not isinstance(error, hr.CollectiveMismatchError)
            check.true(own and word in str(error), f"{name}: own error: {error!r}")
        next_call_is_right(check, comm, "all refuse")


@several_ranks
def test_one_refuses_another_differs(comm: hr.Communicator) -> None:
    """Two mistakes at once still give every rank an error for the same call."""
    with Checks() as check:
        for turn in range(SIZE):
            x = np.full(SMALL, 1.0)
            if turn == RANK:
                check.raises(hr.HierringError, lambda: comm.allreduce(read_only()), "refuses")
            elif (turn + 1) % SIZE == RANK:
                check.raises(hr.CollectiveMismatchError, lambda: comm.barrier(), "differs")
            else:
                check.raises(hr.CollectiveMismatchError, lambda x=x: comm.allreduce(x), "plain")
            check.equal(x, np.full(SMALL, 1.0), "untouched")
        next_call_is_right(check, comm, "two mistakes")


@several_ranks
def test_out_is_untouched(comm: hr.Communicator) -> None:
    with Checks() as check:
        for count in (SMALL, LARGE):
            x, out = np.full(count + (RANK == 0), 2.0), np.full(count + (RANK == 0), 9.0)
            check.raises(
                hr.CollectiveMismatchError, lambda x=x, out=out: comm.allreduce(x, out=out), "count"
            )
            check.true((x == 2).all() and (out == 9).all(), f"count {count}: untouched")


def test_many_failures_in_a_row(comm: hr.Communicator) -> None:
    """Neither sequence numbers nor cells drift apart."""
    with Checks() as check:
        for i in range(50):
            count = SMALL if i % 3 else LARGE
            x = np.full(count, 1.0, "float32" if i % SIZE == RANK or SIZE == 1 else "float64")
            if SIZE > 1:
                check.raises(hr.CollectiveMismatchError, lambda x=x: comm.allreduce(x), f"{i}")
            if i % 7 == 0:
                next_call_is_right(check, comm, f"after {i}")
        next_call_is_right(check, comm, "after all")

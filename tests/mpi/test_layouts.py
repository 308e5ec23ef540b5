"""What may be passed: strided, Fortran-ordered, zero-size and 0-d arrays, numbers, `out=`."""

from __future__ import annotations

import array
from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks, canaries_intact, exact_input, expected, layouts
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
LAYOUTS = dict(layouts())
ALGORITHMS = ("hierarchical", "ring")


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    with hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(timeout_s=60)) as handle:
        yield handle


@pytest.fixture(scope="module")
def pieces() -> Iterator[hr.Communicator]:
    """A communicator whose cells are so small that most tensors need many."""
    config = Config.from_env(timeout_s=60, cell_bytes=4096, max_message_bytes=4096, small_bytes=256)
    with hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        yield handle


@pytest.mark.parametrize("name", LAYOUTS)
def test_in_place(comm: hr.Communicator, pieces: hr.Communicator, name: str) -> None:
    """The result lies in the view, in logical order, and nothing outside it has changed."""
    with Checks() as check:
        for dtype in ("float64", "float16", "uint8", "complex64"):
            for handle, count in ((comm, 30), (pieces, 1700)):
                for algorithm in ALGORITHMS:
                    base, view = LAYOUTS[name](dtype, count)
                    flat = exact_input(dtype, "sum", RANK, SIZE, view.size)
                    view[...] = flat.reshape(view.shape)
                    result = handle.allreduce(view, algorithm=algorithm)
                    label = f"{name} {dtype} {algorithm} count {view.size}"
                    wanted = expected(dtype, "sum", SIZE, view.size).reshape(view.shape)
                    check.equal(view, wanted, label)
                    check.true(result is view, f"{label}: returns its argument")
                    check.true(canaries_intact(base, name), f"{label}: canaries")


@pytest.mark.parametrize("name", LAYOUTS)
def test_into_out(comm: hr.Communicator, pieces: hr.Communicator, name: str) -> None:
    """`out` may have another layout than x, which stays as it was."""
    with Checks() as check:
        for handle, count in ((comm, 30), (pieces, 1700)):
            base, view = LAYOUTS[name]("float32", count)
            flat = exact_input("float32", "avg", RANK, SIZE, view.size)
            wanted = expected("float32", "avg", SIZE, view.size)
            before = flat.copy()
            result = handle.allreduce(flat, "avg", out=view)
            check.true(result is view, f"{name}: returns out")
            check.equal(view, wanted.reshape(view.shape), f"{name} as out")
            check.true(canaries_intact(base, name), f"{name} as out: canaries")
            check.equal(flat, before, f"{name} as out: x untouched")

            view[...] = flat.reshape(view.shape)
            out = np.zeros(view.shape, dtype="float32", order="F")
            handle.allreduce(view, "avg", out=out)
            check.equal(out, wanted.reshape(view.shape), f"{name} as x")
            check.equal(view, flat.reshape(view.shape), f"{name} as x: untouched")


def test_ranks_may_use_different_layouts(comm: hr.Communicator, pieces: hr.Communicator) -> None:
    """Elements pair by logical index, whatever the strides; count is compared, shape is not."""
    names = ["contiguous", "columns", "transposed", "reversed", "permuted"]
    with Checks() as check:
        for handle, count in ((comm, 24), (pieces, 2520)):
            flat = exact_input("int32", "sum", RANK, SIZE, count)
            choice = names[RANK % len(names)]
            if choice == "columns":
                x = np.zeros((count // 6, 12), "int32")[:, ::2]
            elif choice == "transposed":
                x = np.zeros((4, count // 4), "int32", order="F").T
            elif choice == "permuted":
                x = np.zeros((2, count // 6, 3), "int32").transpose(1, 2, 0)
            else:
                x = np.zeros(count, "int32")[:: -1 if choice == "reversed" else 1]
            x[...] = flat.reshape(x.shape)
            handle.allreduce(x)
            check.equal(x.reshape(-1), expected("int32", "sum", SIZE, count), f"{choice} {count}")


def test_canaries_around_every_small_slice(comm: hr.Communicator) -> None:
    """Uneven and empty chunks stay inside the slice."""
    with Checks() as check:
        for count in range(18):
            for dtype in ("int8", "float32"):
                base = np.full(count + 20, 99, dtype)
                view = base[11 : 11 + count]
                view[:] = exact_input(dtype, "sum", RANK, SIZE, count)
                comm.allreduce(view, algorithm="hierarchical")
                check.equal(view, expected(dtype, "sum", SIZE, count), f"{dtype} count {count}")
                edges = np.concatenate([base[:11], base[11 + count :]])
                check.true((edges == 99).all(), f"{dtype} count {count}: canaries")


def test_out_is_x(comm: hr.Communicator) -> None:
    with Checks() as check:
        for count in (5, 40001):
            x = exact_input("float64", "sum", RANK, SIZE, count)
            result = comm.allreduce(x, out=x)
            check.true(result is x, "returns x")
            check.equal(x, expected("float64", "sum", SIZE, count), f"count {count}")


def test_overlapping_out_is_refused(comm: hr.Communicator) -> None:
    with Checks() as check:
        base = exact_input("float64", "sum", RANK, SIZE, 101)
        before = base.copy()
        for x, out, label in (
            (base[:-1], base[1:], "shifted"),
            (base[:50], base[49::-1], "reversed"),
            (base[:50], base[:100:2], "strided"),
        ):
            error = check.raises(
                (hr.HierringError, ValueError),
                lambda x=x, out=out: comm.allreduce(x, out=out),
                label,
            )
            check.true("overlap" in str(error), f"{label}: the message says so: {error}")
        check.equal(base, before, "untouched")
        # Interleaved halves share a range of addresses but no element.
        base = np.zeros(20)
        base[::2] = RANK + 1.0
        comm.allreduce(base[::2], out=base[1::2])
        check.equal(base[1::2], np.full(10, SIZE * (SIZE + 1) / 2), "interleaved, not overlapping")
        check.equal(base[::2], np.full(10, RANK + 1.0), "interleaved: x untouched")


def test_out_must_fit(comm: hr.Communicator) -> None:
    with Checks() as check:
        x = exact_input("float32", "sum", RANK, SIZE, 12)
        before = x.copy()
        for out in (np.zeros(11, "float32"), np.zeros(12, "float64"), np.zeros((3, 5), "float32")):
            check.raises(
                (hr.HierringError, ValueError, TypeError),
                lambda out=out: comm.allreduce(x, out=out),
                f"out {out.dtype}{out.shape}",
            )
            check.true(not out.any(), "out untouched")
        check.equal(x, before, "x untouched")
        comm.allreduce(x)
        check.equal(x, expected("float32", "sum", SIZE, 12), "the next call is right")


def test_zero_size_keeps_shape_and_dtype(comm: hr.Communicator) -> None:
    with Checks() as check:
        for shape in ((0,), (3, 0, 2), (0, 5)):
            for dtype in ("float32", "int8", "bool"):
                x = np.zeros(shape, dtype)
                check.true(comm.allreduce(x) is x, f"{shape} {dtype}")
                out = np.zeros(shape, dtype)
                check.true(comm.allreduce(x, "max", out=out) is out, f"{shape} {dtype} out")
        check.equal(comm.allreduce(np.ones(2)), np.full(2, float(SIZE)), "the next call is right")


def test_zero_dimensional(comm: hr.Communicator) -> None:
    with Checks() as check:
        x = np.array(RANK + 1.0)
        comm.allreduce(x, "avg")
        check.equal(x, np.array((SIZE + 1) / 2), "0-d avg")


def test_numbers(comm: hr.Communicator) -> None:
    """Python numbers are int64, float64, bool and complex128; the reduced number is returned."""
    total = SIZE * (SIZE + 1) // 2
    with Checks() as check:
        for given, op, wanted in (
            (RANK + 1, "sum", total),
            (2**40 + RANK, "max", 2**40 + SIZE - 1),
            (RANK + 1.5, "sum", total + 0.5 * SIZE),
            (RANK + 1.0, "avg", total / SIZE),
            (RANK == SIZE - 1, "max", True),
            (RANK == SIZE - 1, "min", SIZE == 1),
            (complex(RANK, 1), "sum", complex(total - SIZE, SIZE)),
        ):
            result = comm.allreduce(given, op)
            check.true(type(result) is type(given), f"{given} {op}: {type(result).__name__}")
            check.true(result == wanted, f"{given} {op}: {result}, expected {wanted}")


def test_a_temporary_returns_its_result(comm: hr.Communicator) -> None:
    with Checks() as check:
        x = np.ones(5)
        check.equal(comm.allreduce(x * 1), np.full(5, float(SIZE)), "result")
        check.equal(x, np.ones(5), "the original")


def test_buffer_protocol(comm: hr.Communicator) -> None:
    with Checks() as check:
        numbers = array.array("d", [RANK, 1.0, 2.0])
        comm.allreduce(numbers)
        check.equal(np.array(numbers), np.array([SIZE * (SIZE - 1) / 2, SIZE, 2 * SIZE]), "array")
        raw = bytearray([RANK + 1, 100])
        comm.allreduce(raw)
        check.true(list(raw) == [SIZE * (SIZE + 1) // 2, 100 * SIZE % 256], f"bytearray {raw!r}")
        view = memoryview(bytearray(8)).cast("i")
        view[0], view[1] = RANK, 5
        comm.allreduce(view)
        check.true(view.tolist() == [SIZE * (SIZE - 1) // 2, 5 * SIZE], f"view {view.tolist()}")


def test_dlpack_producer(comm: hr.Communicator) -> None:
    class Producer:
        """Anything with the two methods of the protocol and nothing else."""

        def __init__(self, data: np.ndarray) -> None:
            self.data = data

        def __dlpack__(self, **arguments: object) -> object:
            return self.data.__dlpack__(**arguments)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.data.__dlpack_device__()

    with Checks() as check:
        x = exact_input("float32", "sum", RANK, SIZE, 20).reshape(4, 5)
        producer = Producer(x)
        check.true(comm.allreduce(producer) is producer, "returns its argument")
        check.equal(x, expected("float32", "sum", SIZE, 20).reshape(4, 5), "in place")


def test_read_only_and_stride_zero_inputs_with_out(comm: hr.Communicator) -> None:
    with Checks() as check:
        x = exact_input("float64", "sum", RANK, SIZE, 9)
        x.flags.writeable = False
        out = np.zeros(9)
        comm.allreduce(x, out=out)
        check.equal(out, expected("float64", "sum", SIZE, 9), "read-only x")
        spread = np.broadcast_to(np.array([RANK + 1.0]), (6,))
        comm.allreduce(spread, out=out[:6])
        check.equal(out[:6], np.full(6, SIZE * (SIZE + 1) / 2), "stride 0")


def test_explicit_native_byte_order(comm: hr.Communicator) -> None:
    with Checks() as check:
        x = np.array([1, 2], np.dtype("f8").newbyteorder("="))
        check.equal(comm.allreduce(x), np.array([1.0, 2.0]) * SIZE, "native")

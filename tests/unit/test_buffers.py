"""What may take part: every layout, dtype and kind, read and written where it lies."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from hierring import buffers
from hierring._testing.memory import content, fill
from hierring.dtypes import DType, itemsize, to_torch
from hierring.errors import UnsupportedTypeError

torch = pytest.importorskip("torch")


# --- layouts -------------------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda base: base,
    "column": lambda base: base[:, 1],
    "every second column": lambda base: base[:, ::2],
    "block": lambda base: base[1:3, 2:5],
    "transposed": lambda base: base.T,
    "one row": lambda base: base[2],
    "no elements": lambda base: base[:, 3:3],
    "no dimensions": lambda base: base[1:2, 1:2].reshape(()),
}
NUMPY_LAYOUTS = LAYOUTS | {
    "backwards": lambda base: base[::-1, ::-2],
    "diagonal": lambda base: as_strided(base, (4,), (base.strides[0] + base.strides[1],)),
}
TORCH_LAYOUTS = LAYOUTS | {"diagonal": lambda base: base.diagonal()}


def _numbers() -> np.ndarray:
    return np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize("layout", list(NUMPY_LAYOUTS))
def test_numpy_layouts_are_read_and_written_where_they_lie(layout: str) -> None:
    base, expected = _numbers(), _numbers()
    x, mirror = NUMPY_LAYOUTS[layout](base), NUMPY_LAYOUTS[layout](expected)
    buffer = buffers.inplace(x)
    assert (buffer.shape, buffer.count, buffer.nbytes) == (x.shape, x.size, x.nbytes)
    assert (buffer.dtype, buffer.kind, buffer.writable) == (DType.FLOAT32, "numpy", True)
    assert (buffer.view.count, buffer.view.nbytes) == (x.size, x.nbytes)
    assert buffer.view.contiguous is x.flags.c_contiguous
    assert content(buffer) == x.tobytes()
    new = np.arange(100, 100 + x.size, dtype=np.float32)
    fill(buffer, new.tobytes())
    mirror[...] = new.reshape(mirror.shape)
    np.testing.assert_array_equal(base, expected)
    assert buffer.value() is x


@pytest.mark.parametrize("layout", list(TORCH_LAYOUTS))
def test_torch_layouts_are_read_and_written_where_they_lie(layout: str) -> None:
    base, expected = torch.from_numpy(_numbers()), torch.from_numpy(_numbers())
    x, mirror = TORCH_LAYOUTS[layout](base), TORCH_LAYOUTS[layout](expected)
    buffer = buffers.inplace(x)
    assert (buffer.shape, buffer.count) == (tuple(x.shape), x.numel())
    assert (buffer.dtype, buffer.kind, buffer.writable) == (DType.FLOAT32, "torch", True)
    assert buffer.view.contiguous is x.is_contiguous()
    assert content(buffer) == x.contiguous().numpy().tobytes()
    new = torch.arange(100, 100 + x.numel(), dtype=torch.float32)
    fill(buffer, new.numpy().tobytes())
    mirror.copy_(new.reshape(mirror.shape))
    assert torch.equal(base, expected)
    assert buffer.value() is x


def test_fortran_order_is_read_in_logical_order() -> None:
    x = np.asfortranarray(_numbers())
    assert content(buffers.read(x)) == _numbers().tobytes()


def test_a_field_of_a_packed_record_is_written_in_place() -> None:
    records = np.zeros(3, np.dtype([("tag", "u1"), ("value", "f4")]))
    records["tag"] = 7
    fill(buffers.inplace(records["value"]), np.float32([1, 2, 3]).tobytes())
    assert records["value"].tolist() == [1, 2, 3]
    assert records["tag"].tolist() == [7, 7, 7]


def test_unaligned_memory() -> None:
    memory = bytearray(13)
    x = np.frombuffer(memory, np.float32, offset=1)
    fill(buffers.inplace(x), np.float32([1, 2, 3]).tobytes())
    assert x.tolist() == [1, 2, 3]


@hypothesis.given(st.data())
def test_slices_of_any_shape(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), max_size=4))
    x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    x = x[tuple(data.draw(st.slices(extent)) for extent in shape)]
    x = x.transpose(data.draw(st.permutations(range(x.ndim))))
    buffer = buffers.inplace(x)
    assert content(buffer) == x.tobytes()
    fill(buffer, (-x).tobytes())
    assert (x <= 0).all()


# --- dtypes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BFLOAT16])
def test_every_numpy_dtype(dtype: DType) -> None:
    x = np.ones(3, str(dtype))
    assert buffers.inplace(x).dtype is dtype
    assert content(buffers.inplace(x)) == x.tobytes()


@pytest.mark.parametrize("dtype", list(DType))
def test_every_torch_dtype(dtype: DType) -> None:
    x = torch.ones(3, dtype=to_torch(dtype))
    assert buffers.inplace(x).dtype is dtype
    assert content(buffers.inplace(x)) == bytes(x.view(torch.uint8).numpy())


def test_bfloat16_arrays_of_ml_dtypes() -> None:
    x = np.arange(6).astype(pytest.importorskip("ml_dtypes").bfloat16)
    for part in (x, x[::2], x[:0]):
        buffer = buffers.inplace(part)
        assert buffer.dtype is DType.BFLOAT16
        assert content(buffer) == part.tobytes()
    assert buffers.empty(buffers.read(x), (2, 3)).dtype == x.dtype


def test_bfloat16_views_of_torch() -> None:
    base = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    x = base[:, 1::2]
    assert content(buffers.read(x)) == bytes(x.contiguous().view(torch.uint8).numpy())


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "dtype", "new", "kind"),
    [
        (3, DType.INT64, np.int64(-5), int),
        (True, DType.BOOL, np.bool_(False), bool),
        (0.5, DType.FLOAT64, np.float64(2.5), float),
        (1j, DType.COMPLEX128, np.complex128(3 - 2j), complex),
        (np.float32(7), DType.FLOAT32, np.float32(2), np.float32),
        (np.float64(7), DType.FLOAT64, np.float64(2), np.float64),
        (np.bool_(True), DType.BOOL, np.bool_(False), np.bool_),
        (signal.SIGINT, DType.INT64, np.int64(9), int),
    ],
)
def test_numbers_come_back_as_numbers(number: Any, dtype: DType, new: Any, kind: type) -> None:
    buffer = buffers.inplace(number)
    assert (buffer.dtype, buffer.count, buffer.shape, buffer.kind) == (dtype, 1, (), "scalar")
    assert content(buffer) == np.asarray(number, str(dtype)).tobytes()
    assert buffer.value() == number
    fill(buffer, new.tobytes())
    assert buffer.value() == new
    assert type(buffer.value()) is kind


def test_ints_at_the_border_of_int64() -> None:
    assert buffers.inplace(-(2**63)).value() == -(2**63)
    with pytest.raises(
        UnsupportedTypeError, match="9223372036854775808 does not fit int64: give i"
    ):
        buffers.inplace(2**63)


# --- derived classes, results, imports --------------------------------------------------------


def test_a_subclass_of_tensor_with_memory_is_taken() -> None:
    class Named(torch.Tensor):
        pass

    x = torch.arange(3.0).as_subclass(Named)
    assert content(buffers.inplace(x)) == np.arange(3, dtype=np.float32).tobytes()


def test_a_memmap_is_taken(tmp_path: Any) -> None:
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3,))
    fill(buffers.inplace(x), np.float32([1, 2, 3]).tobytes())
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", list(DType))
def test_empty_like_a_tensor(dtype: DType) -> None:
    like = buffers.read(torch.zeros(2, dtype=to_torch(dtype)))
    result = buffers.empty(like, (3, 2))
    assert isinstance(result, torch.Tensor)
    assert (result.dtype, tuple(result.shape)) == (to_torch(dtype), (3, 2))


@pytest.mark.parametrize(
    ("x", "dtype"), [(np.zeros(2, np.int16), "i2"), (bytearray(2), "u1"), (2, "i8"), (1j, "c16")]
)
def test_empty_like_anything_else_is_an_array(x: Any, dtype: str) -> None:
    result = buffers.empty(buffers.read(x), (3, 0, 2))
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.shape) == (np.dtype(dtype), (3, 0, 2))


def test_itemsize_and_repr() -> None:
    buffer = buffers.read(np.zeros((2, 3), np.complex128))
    assert buffer.nbytes == 6 * itemsize(DType.COMPLEX128) == 96
    assert repr(buffer) == "Buffer(numpy, complex128, shape (2, 3))"


def test_arrays_and_numbers_load_neither_torch_nor_mpi() -> None:
    program = (
        "import sys, numpy; from hierring import buffers, dtypes; buffers.inplace(numpy.zeros(3));"
        "buffers.inplace(1.0); dtypes.parse_op('sum');"
        "assert not {'torch', 'mpi4py.MPI', 'ml_dtypes'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

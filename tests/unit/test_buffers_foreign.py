"""Objects with DLPack or the buffer protocol: written where their memory is, or refused."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np
import pytest

from hierring import buffers
from hierring._testing.memory import content, fill
from hierring.dtypes import DType
from hierring.errors import UnsupportedTypeError

torch = pytest.importorskip("torch")


class Producer:
    """An object that has nothing but DLPack."""

    def __init__(self, inner: Any, device: tuple[int, int] | None = None) -> None:
        self.inner = inner
        self.device = device

    def __dlpack__(self, **options: Any) -> object:
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device or self.inner.__dlpack_device__()


class OldProducer(Producer):
    """A producer from before DLPack 1.0: it cannot say whether it may be written to."""

    def __dlpack__(self, stream: None = None) -> object:
        return self.inner.__dlpack__()


class CopyingProducer(Producer):
    """A producer that can only give a copy."""

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> object:
        if copy is False:
            raise BufferError("only copies")
        return self.inner.copy().__dlpack__(**options)


@pytest.mark.parametrize("inner", [np.zeros((2, 6), np.float32)[:, ::2], torch.zeros(2, 3)])
def test_dlpack_producers_are_written_in_place(inner: Any) -> None:
    x = Producer(inner)
    buffer = buffers.inplace(x)
    assert (buffer.dtype, buffer.shape, buffer.kind) == (DType.FLOAT32, (2, 3), "numpy")
    fill(buffer, np.arange(6, dtype=np.float32).tobytes())
    assert inner.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert buffer.value() is x


@pytest.mark.parametrize("producer", [OldProducer, CopyingProducer])
def test_dlpack_memory_that_may_not_be_the_producers_is_only_read(producer: type) -> None:
    x = producer(np.float64([1, 2, 3]))
    assert content(buffers.read(x)) == np.float64([1, 2, 3]).tobytes()
    with pytest.raises(UnsupportedTypeError, match=r"is read-only: give out=|only copies"):
        buffers.inplace(x)


def test_read_only_dlpack() -> None:
    inner = np.zeros(3)
    inner.flags.writeable = False
    assert buffers.read(Producer(inner)).writable is False
    with pytest.raises(
        UnsupportedTypeError, match=r"object of type Producer .* is read-only: give"
    ):
        buffers.write(Producer(inner))


def test_dlpack_refusals_name_the_way_round() -> None:
    with pytest.raises(
        UnsupportedTypeError, match=r"on DLPack device 2:1 is not in.*copy it to th"
    ):
        buffers.read(Producer(np.zeros(3), device=(2, 1)))
    with pytest.raises(
        UnsupportedTypeError, match=r"refused by numpy.from_dlpack.*torch.from_dlpa"
    ):
        buffers.read(Producer(torch.zeros(3, dtype=torch.bfloat16)))


@pytest.mark.parametrize(
    "x",
    [
        bytearray(16),
        array.array("f", [0, 0, 0, 0]),
        memoryview(array.array("d", [0, 0])),
        (ctypes.c_int32 * 4)(),
    ],
)
def test_buffer_protocol_is_written_in_place(x: Any) -> None:
    buffer = buffers.inplace(x)
    fill(buffer, bytes(range(16)))
    assert memoryview(x).tobytes() == bytes(range(16))
    assert buffer.value() is x
    assert buffer.kind == "numpy"


def test_memory_stays_while_its_buffer_lives() -> None:
    x = bytearray(8)
    buffer = buffers.inplace(x)
    with pytest.raises(BufferError):
        x.append(1)
    assert buffer.keep is not None
    del buffer
    x.append(1)
    plain = np.zeros(8, np.uint8)
    buffers.inplace(plain)
    plain.resize(16, refcheck=False)  # the short export of the fast way has ended

"""A caller's memory as the compiled core sees it, for tests of what describes it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hierring import _core
from hierring.buffers import Buffer


def content(buffer: Buffer) -> bytes:
    """Return the elements of a buffer in logical order."""
    raw = np.zeros(buffer.nbytes, np.uint8)
    _core.pack(buffer.view, 0, buffer.count, raw.ctypes.data)
    return raw.tobytes()


def fill(buffer: Buffer, data: bytes) -> None:
    """Put elements, given in logical order, into a buffer."""
    raw = np.frombuffer(data, np.uint8)
    assert raw.nbytes == buffer.nbytes
    _core.unpack(buffer.view, 0, buffer.count, raw.ctypes.data)


def addresses(
    pieces: Iterable[tuple[int, tuple[int, ...], tuple[int, ...]]], size: int
) -> list[int]:
    """Return each byte of strided pieces, as often as elements of `size` bytes hold it."""
    found: list[int] = []
    for address, shape, strides in pieces:
        for index in np.ndindex(*shape):
            start = address + sum(i * s for i, s in zip(index, strides, strict=True))
            found.extend(range(start, start + size))
    return found

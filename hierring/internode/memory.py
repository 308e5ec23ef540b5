"""Memory that MPI may send from and receive into: a writable buffer that knows its address."""

from __future__ import annotations

import numpy as np

__all__ = ["Memory", "allocate"]


class Memory:
    """`nbytes` bytes as MPI sees them (`view`) and as the kernels see them (`address`)."""

    __slots__ = ("address", "view")

    def __init__(self, view: memoryview, address: int) -> None:
        self.view = view
        self.address = address

    @property
    def nbytes(self) -> int:
        return len(self.view)

    def part(self, first: int, nbytes: int) -> Memory:
        """Bytes [first, first + nbytes) of this memory."""
        return Memory(self.view[first : first + nbytes], self.address + first)


def allocate(nbytes: int) -> Memory:
    """Private memory of this process, not cleared, kept alive by its view."""
    array = np.empty(max(nbytes, 1), np.uint8)
    return Memory(memoryview(array.data)[:nbytes], int(array.ctypes.data))

"""What a rank does to its channel, call by call, without an engine around it."""

from __future__ import annotations

import time
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from hierring import _core

FLOAT64: Final = _core.dtype_names().index("float64")
SUM: Final = _core.op_names().index("sum")


def view(array: npt.NDArray[Any]) -> _core.View:
    """Describe an array to the core."""
    return _core.View([(array.ctypes.data, array.shape, array.strides)], array.itemsize)


@final
class Rank:
    """A rank with its segment and channel; operations are float64 and sums.

    Args:
        path: of the segment.
        sizes: cell_bytes, window_cells and small_bytes.
        start: numbers of the first operation and piece.
    """

    def __init__(
        self,
        path: str,
        nbytes: int,
        local_rank: int,
        local_size: int,
        sizes: tuple[int, int, int],
        ring: bool,
        start: tuple[int, int],
    ) -> None:
        self.segment = _core.Segment.attach(path, nbytes)
        self.segment.lock(local_rank)
        self.channel = _core.Channel(self.segment, local_rank, local_size, *sizes, ring)
        self.channel.reserve()
        self.channel.start_at(*start)
        self.cell_elems = sizes[0] // 8
        self.seq = start[0] - 1
        self.arrays: tuple[npt.NDArray[np.float64], ...] = ()

    def data(self, count: int) -> npt.NDArray[np.float64]:
        """Return numbers that differ by element, rank and operation, exact in any sum."""
        return (
            np.arange(count, dtype=np.float64) * 3.0 + self.channel.local_rank * 1000.0 + self.seq
        )

    def enter(self, digest: int = 1, small: npt.NDArray[Any] | None = None) -> None:
        """Arrive at the next operation."""
        self.seq += 1
        payload = None if small is None else view(small)
        self.channel.arrive(self.seq, digest, b"call %d" % self.seq, 1.0, payload)

    def wait(self, seconds: float = 60.0) -> tuple[int, int, float]:
        """Wait for all arrivals: the status, whom for, and how long it took."""
        begin = time.monotonic()
        status = self.channel.arrivals(begin + seconds)
        return status, self.channel.blocker, time.monotonic() - begin

    def right_sum(self, count: int) -> npt.NDArray[np.float64]:
        """Return the sum of all ranks' ``data`` in the current operation."""
        size = self.channel.local_size
        own = self.channel.local_rank * 1000.0
        return (self.data(count) - own) * size + 1000.0 * size * (size - 1) / 2

    def small_sum(self, count: int) -> bool:
        """Sum a small array, and tell whether the result is right."""
        self.seq += 1
        x = self.data(count)
        self.seq -= 1
        self.enter(digest=count, small=x)
        out = np.zeros(count)
        good = self.wait()[0] == _core.DONE and self.channel.local_difference() < 0
        self.channel.reduce_small_to(view(out), FLOAT64, count, SUM, 1.0)
        return good and np.array_equal(out, self.right_sum(count))

    def begin(self, count: int, digest: int = 2) -> None:
        """Enter the sum of a large array, which is kept in ``arrays``."""
        self.enter(digest)
        x, out = self.data(count), np.zeros((count, 2))[:, 1]
        self.arrays = (x, out)
        self.channel.begin(
            "reduce", view(x), view(out), FLOAT64, FLOAT64, SUM, 1.0, 1.0, 0, True, count,
            self.cell_elems, None,
        )  # fmt: skip

    def large_sum(self, count: int) -> bool:
        """Sum a large array into a strided one, and tell whether the result is right."""
        self.begin(count)
        status = self.channel.run(time.monotonic() + 60)
        return status == _core.DONE and np.array_equal(self.arrays[1], self.right_sum(count))

    def disagree(self, digest: int) -> bool:
        """Enter a large operation with this digest; tell whether it failed and wrote nothing."""
        self.begin(1000, digest)
        status = self.channel.run(time.monotonic() + 60)
        self.channel.fail()
        x, out = self.arrays
        return bool(
            status == _core.MISMATCH and not out.any() and np.array_equal(x, self.data(1000))
        )

    def gather(self, counts: list[int]) -> bool:
        """Gather as many numbers of each rank, and tell whether the result is right."""
        self.enter(digest=3)
        own, at = self.channel.local_rank, 0
        rows = []
        for rank, count in enumerate(counts):
            for first in range(0, count, self.cell_elems):
                rows.append(
                    (
                        first if rank == own else -1,
                        min(self.cell_elems, count - first),
                        at + first,
                    )
                )
            at += count
        x, out = self.data(counts[own]), np.zeros(at)
        self.channel.begin(
            "copy", view(x), view(out), FLOAT64, FLOAT64, SUM, 1.0, 1.0, 0, True, at,
            self.cell_elems, np.array(rows, dtype=np.int64).reshape(-1, 3),
        )  # fmt: skip
        status = self.channel.run(time.monotonic() + 60)
        want = [self.data(count) + 1000.0 * (rank - own) for rank, count in enumerate(counts)]
        return status == _core.DONE and np.array_equal(out, np.concatenate(want))

"""The memory of one rank's node: segment, channel and window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hierring import _core

__all__ = ["Layout", "NodeMemory", "plan_layout", "private_memory"]

SHM_DIRECTORY = "/dev/shm"

#: Pause instructions and sched_yield rounds before a wait sleeps: on cores of its own a rank may
#: spin for a peer that is about to come; on a shared core the spinning keeps that peer away.
PATIENT = (2000, 50)
OVERSUBSCRIBED = (30, 100)


@dataclass(frozen=True)
class Layout:
    """Sizes that all nodes of a communicator share, because slice borders follow from them.

    Attributes:
        cell_bytes: one staging cell of a rank and one window cell of a node; a piece fits in it.
        window_cells: cells of the window; pieces in flight inside the node.
        slots: slices in flight between nodes. A slice is window_cells // slots adjacent cells.
        small_bytes: longest payload that rides in the arrival.
    """

    cell_bytes: int
    window_cells: int
    slots: int
    small_bytes: int

    @property
    def cells_per_slice(self) -> int:
        return self.window_cells // self.slots


def plan_layout(
    smallest_node: int, num_nodes: int, cell_bytes: int, slice_bytes: int, small_bytes: int
) -> Layout:
    """Sizes that keep a rank below 1 MiB at the default cell of 128 KiB.

    A rank holds two staging cells, its share of the window and, with several nodes, as much scratch
    for arriving data. A rank alone on its node holds the whole window, hence the few cells there.
    """
    if num_nodes == 1:
        return Layout(cell_bytes, 4, 4, small_bytes)
    if smallest_node == 1:
        window_cells, slots = 3, 3
    elif smallest_node < 4:
        window_cells, slots = 4, 4
    else:
        window_cells, slots = 8, 4
    if slice_bytes:
        cells = max(1, min(slice_bytes // cell_bytes, window_cells))
        slots = next(
            n
            for n in range(1, window_cells + 1)
            if window_cells % n == 0 and window_cells // n <= cells
        )
    return Layout(cell_bytes, window_cells, slots, small_bytes)


class NodeMemory:
    """Segment and channel of one rank, made in steps between which the ranks agree.

    1. `create` on the node's first rank, 2. `attach` on the others, 3. `claim` on all.
    After an error in any step: `close`, on all.
    """

    def __init__(
        self, layout: Layout, local_rank: int, local_size: int, ring_schedule: bool
    ) -> None:
        self.layout = layout
        self.local_rank = local_rank
        self.local_size = local_size
        self._ring_schedule = ring_schedule
        self._segment: Any = None
        self._channel: Any = None
        self._view: memoryview | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the node's segment."""
        sizes = self.layout
        return int(
            _core.Channel.layout_nbytes(
                self.local_size, sizes.cell_bytes, sizes.window_cells, sizes.small_bytes
            )
        )

    def create(self, named: bool) -> str:
        """Create the segment; returns the path that the node's other ranks attach to.

        A rank alone on its node needs no shared memory, and takes none of /dev/shm.
        """
        if self.local_size == 1:
            self._segment = _core.Segment.private(self.nbytes)
        else:
            self._segment = _core.Segment.create(self.nbytes, SHM_DIRECTORY, named)
        return str(self._segment.path)

    def attach(self, path: str) -> None:
        """Map the segment that this node's first rank created."""
        self._segment = _core.Segment.attach(path, self.nbytes)

    def claim(self, oversubscribed: bool) -> None:
        """Reserve and touch this rank's part, and lock its byte as a sign of life.

        Raises OSError (ENOSPC) where /dev/shm has no room left.
        """
        sizes = self.layout
        channel = _core.Channel(
            self._segment,
            self.local_rank,
            self.local_size,
            sizes.cell_bytes,
            sizes.window_cells,
            sizes.small_bytes,
            self._ring_schedule,
        )
        channel.reserve()
        self._segment.lock(self.local_rank)
        channel.set_wait(*(OVERSUBSCRIBED if oversubscribed else PATIENT))
        self._channel = channel
        self._view = memoryview(self._segment.buffer()).cast("B")

    def unlink(self) -> None:
        """Take the segment's name away, if it has one; all have mapped it."""
        self._segment.unlink()

    def close(self) -> None:
        """Let go of the memory; it vanishes with its last user, its name (if any) at once."""
        self._view = self._channel = None
        if self._segment is not None:
            self._segment.unlink()
            self._segment.close()
            self._segment = None

    @property
    def channel(self) -> Any:
        return self._channel

    def alive(self, local_rank: int) -> bool:
        """Whether a local rank still holds its lock; false once its process has ended."""
        return bool(self._segment.alive(local_rank))

    @property
    def segment_nbytes_per_rank(self) -> int:
        return self.nbytes // self.local_size

    def window(self, piece: int, nbytes: int) -> tuple[memoryview, int]:
        """The window from `piece` on, as a buffer and as an address."""
        assert self._view is not None
        address = int(self._channel.window(piece))
        first = address - int(self._segment.address)
        return self._view[first : first + nbytes], address


def private_memory(layout: Layout) -> NodeMemory:
    """The same for a rank that plays a node of its own in a flat algorithm; nothing is shared."""
    memory = NodeMemory(layout, 0, 1, ring_schedule=False)
    memory.create(named=False)
    memory.claim(oversubscribed=False)
    return memory

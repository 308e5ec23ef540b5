"""How a transfer is numbered and cut on its way between nodes: types, weights, slices, order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hierring.communicator.contact import MAX_SLOTS
from hierring.dtypes import DType, itemsize
from hierring.internode.algorithms import Combine
from hierring.internode.memory import Memory

if TYPE_CHECKING:
    from hierring import _core
    from hierring.communicator.transfer import Transfer
    from hierring.intranode import NodeMemory
    from hierring.topology import Topology

__all__ = ["Flow", "InOrder", "Slicing"]


class Flow:
    """How one transfer's numbers change on their way: types, divisors, weights.

    Attributes:
        work: dtype in the window and between nodes.
        node_divisor: what a node's sum is divided by; combine: how nodes' results become one.
    """

    __slots__ = ("combine", "node_divisor", "work", "work_size")

    def __init__(
        self, transfer: Transfer, topology: Topology, flat: bool, clock: _core.PhaseClock
    ) -> None:
        size = topology.size
        average = transfer.op.average
        weights = [1] * size if flat else [node.local_size for node in topology.ring_nodes]
        alone = len(weights) == 1
        mean = transfer.mean and not alone
        self.work: DType = transfer.dtype if alone else transfer.wire
        self.work_size = itemsize(self.work)
        self.node_divisor = 1.0
        if average and alone:
            self.node_divisor = float(size)
        elif mean and not flat:
            self.node_divisor = float(topology.local_size)
        self.combine = Combine(
            int(self.work), int(transfer.op.op), self.work_size,
            float(size) if average and not mean else 1.0, tuple(weights), mean,
            clock if flat else None,
        )  # fmt: skip


class Slicing:
    """Which pieces of a transfer form the slices that travel between nodes.

    Cells are adjacent in the window, but their content is only if it fills them; where the type in
    memory is wider than on the wire it does not, and each slice is a single cell.
    """

    def __init__(self, memory: NodeMemory, transfer: Transfer, flow: Flow, cell_elems: int) -> None:
        layout = memory.layout
        self._memory = memory
        self._size = flow.work_size
        self._table = None if transfer.pieces is None else transfer.pieces.table
        self._count = transfer.count
        self._cell_elems = cell_elems
        self.pieces = -(-transfer.count // cell_elems) if self._table is None else len(self._table)
        full = self._table is None and cell_elems * flow.work_size == layout.cell_bytes
        self._per_slice = layout.cells_per_slice if full else 1
        self.slots = layout.slots if full else min(layout.window_cells, MAX_SLOTS)
        self.slices = -(-self.pieces // self._per_slice)

    def pieces_before(self, index: int) -> int:
        """How many pieces the slices before `index` hold."""
        return min(index * self._per_slice, self.pieces)

    def elements(self, index: int) -> int:
        if self._table is not None:
            return int(self._table[index][1])
        first = self.pieces_before(index) * self._cell_elems
        return min(self.pieces_before(index + 1) * self._cell_elems, self._count) - first

    def memory(self, index: int) -> Memory:
        """The slice's place in the window."""
        return Memory(
            *self._memory.window(self.pieces_before(index), self.elements(index) * self._size)
        )


class InOrder:
    """Publishes slices as gathered once they and all before them are done on this rank's rails."""

    def __init__(self, slicing: Slicing, rails: int, publish: Callable[[int], Any]) -> None:
        self._slicing = slicing
        self._left = [rails] * slicing.slices
        self._next = 0
        self._publish = publish

    def add(self, index: int) -> None:
        """One rail has finished slice `index`."""
        self._left[index] -= 1
        before = self._next
        while self._next < len(self._left) and not self._left[self._next]:
            self._next += 1
        if self._next > before:
            self._publish(self._slicing.pieces_before(self._next))

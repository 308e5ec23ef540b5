"""What one operation moves: the contributions, the results, and the pieces in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hierring.dtypes import DType, Op, ReduceOp, itemsize, mean_so_far

__all__ = ["PAYLOAD_SUM", "Pieces", "Transfer", "block_pieces", "gather_pieces", "scatter_pieces"]

#: Adds zero-padded byte vectors into one: how small all-gathers and broadcasts ride in the opening.
PAYLOAD_SUM = ReduceOp(Op.BOR, False, "bor")


@dataclass(frozen=True)
class Pieces:
    """Irregular pieces, each a run of one rank's block.

    Attributes:
        table: int64 rows (first element in x or -1, count, first element in out or -1) for this
            rank. owners: node whose rank contributes (copy) or receives (reduce) each piece.
    """

    table: Any
    owners: list[int]


@dataclass(frozen=True)
class Transfer:
    """The data phases of one operation, as the engine runs them.

    Attributes:
        contribute: "reduce" (all ranks add) or "copy" (one rank contributes each piece).
        x, out: `_core.View` or None.
        dtype: of the elements in memory; wire: between nodes.
        count: elements, of all pieces together.
        scale: factor of this rank's contribution.
        algorithm: "hierarchical", "ring", "tree" or "naive".
        pieces: None for the regular pieces of an all-reduce.
        administrative: the ranks agree on sizes; its bytes count as headers, not as payload.
        keeps: objects that own the memory of x and out.
    """

    contribute: str
    x: Any
    out: Any
    dtype: DType
    wire: DType
    op: ReduceOp
    count: int
    scale: float = 1.0
    algorithm: str = "hierarchical"
    pieces: Pieces | None = None
    administrative: bool = False
    keeps: tuple[object, ...] = ()

    @property
    def nbytes(self) -> int:
        return self.count * itemsize(self.dtype)

    @property
    def mean(self) -> bool:
        return mean_so_far(self.dtype, self.op, self.wire)

    def rides(self, small_bytes: int) -> bool:
        """Whether it fits into the arrival and the opening round."""
        return (
            self.pieces is None and self.algorithm == "hierarchical" and self.nbytes <= small_bytes
        )

    def cell_elems(self, cell_bytes: int, work: DType, ring_schedule: bool) -> int:
        """Elements of a piece: as many as fit into a cell in every type they take on the way."""
        widest = max(itemsize(self.dtype), itemsize(work))
        if ring_schedule and self.dtype in (DType.FLOAT16, DType.BFLOAT16):
            widest = max(widest, itemsize(DType.FLOAT32))
        return max(cell_bytes // widest, 1)


def block_pieces(
    counts: Sequence[int], node_of: Sequence[int], cell_elems: int
) -> list[tuple[int, int, int]]:
    """Cut each rank's block into pieces (rank, first element in its block, count).

    Nodes take turns, and within a node its ranks: so in each stretch of pieces all nodes send and
    all receive, and both directions of every link are busy.
    """
    per_node: dict[int, list[tuple[int, int, int, int]]] = {}
    for rank, count in enumerate(counts):
        node = per_node.setdefault(node_of[rank], [])
        node.extend(
            (turn, rank, first, min(cell_elems, count - first))
            for turn, first in enumerate(range(0, count, cell_elems))
        )
    queue: list[tuple[int, int, int, int, int]] = []
    for number, pieces in per_node.items():
        pieces.sort()
        queue.extend((turn, number, *piece[1:]) for turn, piece in enumerate(pieces))
    queue.sort()
    return [(rank, first, count) for _, _, rank, first, count in queue]


def gather_pieces(
    counts: Sequence[int],
    places: Sequence[int],
    node_of: Sequence[int],
    me: int,
    cell_elems: int,
    deliver_own: bool = True,
) -> Pieces:
    """Each rank's block goes to `places[rank]` of everybody's out."""
    rows = []
    owners = []
    for rank, first, count in block_pieces(counts, node_of, cell_elems):
        mine = rank == me
        deliver = deliver_own or not mine
        rows.append((first if mine else -1, count, places[rank] + first if deliver else -1))
        owners.append(node_of[rank])
    return Pieces(np.array(rows, np.int64).reshape(-1, 3), owners)


def scatter_pieces(
    block: int, size: int, node_of: Sequence[int], me: int, cell_elems: int
) -> Pieces:
    """Block r of the reduced vector goes to rank r alone."""
    rows = []
    owners = []
    for rank, first, count in block_pieces([block] * size, node_of, cell_elems):
        rows.append((rank * block + first, count, first if rank == me else -1))
        owners.append(node_of[rank])
    return Pieces(np.array(rows, np.int64).reshape(-1, 3), owners)

"""What a communicator has done so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hierring.communicator.engine import Engine

__all__ = ["Statistics", "collect"]


@dataclass(frozen=True)
class Statistics:
    """An immutable snapshot of one rank's counters; bytes are of this rank alone.

    Attributes:
        operations: public collectives completed.
        bytes_between_nodes: payload this rank sent to other nodes.
        bytes_inside_nodes_mpi: payload it sent over MPI to ranks of its own node (flat algorithms).
        bytes_shared_memory: payload it wrote into the node's segment since the last rebuild.
        header_bytes: what the agreement between nodes took: opening rounds and control messages.
        segment_nbytes_per_rank: shared memory of the node, divided by its ranks.
        scratch_nbytes: private memory held for arriving data.
    """

    operations: int = 0
    bytes_between_nodes: int = 0
    bytes_inside_nodes_mpi: int = 0
    bytes_shared_memory: int = 0
    header_bytes: int = 0
    segment_nbytes_per_rank: int = 0
    scratch_nbytes: int = 0


def collect(engine: Engine, operations: int) -> Statistics:
    """A snapshot; touches nothing."""
    counters = engine.contact.counters
    moved = engine.channel.stats()
    return Statistics(
        operations=operations,
        bytes_between_nodes=counters.between_nodes,
        bytes_inside_nodes_mpi=counters.inside_nodes,
        bytes_shared_memory=int(moved["staged_bytes"]) + int(moved["window_bytes"]),
        header_bytes=counters.headers,
        segment_nbytes_per_rank=engine.memory.segment_nbytes_per_rank,
        scratch_nbytes=engine.scratch_nbytes,
    )

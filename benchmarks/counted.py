"""A communicator's statistics as a row of numbers, which can be subtracted, added and exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hierring.benchmarks.figures import Phases

if TYPE_CHECKING:
    from hierring.communicator import Statistics
    from hierring.topology import Topology

__all__ = ["BYTES", "ENTERING", "awaited", "counted", "phases_of"]

Floats = npt.NDArray[np.float64]

BYTES = ("bytes_between_nodes", "bytes_inside_nodes_mpi", "bytes_shared_memory", "header_bytes")
PHASES = tuple(field.name for field in fields(Phases))
#: Where in a row the waits for other ranks to enter the call stand.
ENTERING = [len(BYTES) + PHASES.index(name) for name in ("wait_arrival", "wait_verdict")]
_FIXED = len(BYTES) + len(PHASES)


def counted(statistics: Statistics | None, topology: Topology) -> Floats:
    """BYTES, then PHASES in seconds, then seconds waited for each local rank; zeros for None."""
    row = np.zeros(_FIXED + max(node.local_size for node in topology.nodes))
    if statistics is None:
        return row
    row[: len(BYTES)] = [getattr(statistics, name) for name in BYTES]
    row[len(BYTES) : _FIXED] = [getattr(statistics.phases, name) for name in PHASES]
    for rank, seconds in statistics.waited_for.items():
        row[_FIXED + topology.local_rank_of(rank)] = seconds
    return row


def phases_of(row: Floats, calls: int) -> Phases:
    """Seconds per call."""
    return Phases(*(float(value) / calls for value in row[len(BYTES) : _FIXED]))


def awaited(rows: Floats, nodes: Sequence[Sequence[int]]) -> list[float | None]:
    """Seconds that the other ranks of its node waited for each rank, the mean of them.

    Args:
        rows: of all ranks.
        nodes: ranks of each node, by local rank.
    """
    result: list[float | None] = [None] * len(rows)
    for ranks in nodes:
        for local_rank, rank in enumerate(ranks):
            others = [rows[other][_FIXED + local_rank] for other in ranks if other != rank]
            if others:
                result[rank] = float(np.mean(others))
    return result

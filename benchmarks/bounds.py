"""What no all-reduce can beat, measured in the same run: copying the tensor, and the wire."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from hierring.benchmarks.figures import Bounds
from hierring.benchmarks.metrics import wire_nbytes

if TYPE_CHECKING:
    from hierring.communicator import Communicator
    from hierring.topology import Link, Topology

__all__ = ["MemoryBound", "bounds_of", "ring_bandwidth"]

_COPIES = 5


class MemoryBound:
    """Times copies of so many bytes, all ranks at once; each size once."""

    def __init__(self, control: Communicator) -> None:
        self._control = control
        self._known: dict[int, float] = {}

    def seconds(self, nbytes: int) -> float:
        """How long the slowest rank takes; collective over all ranks."""
        if nbytes not in self._known:
            self._known[nbytes] = max(self._by_rank(nbytes))
        return self._known[nbytes]

    def _by_rank(self, nbytes: int) -> list[float]:
        """Median over some copies of each rank's time."""
        source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
        taken = []
        for _ in range(_COPIES):
            self._control.barrier()
            started = time.perf_counter()
            np.copyto(target, source)
            taken.append(time.perf_counter() - started)
        own = np.array([statistics.median(taken)])
        return [float(value) for value in self._control.allgather(own)]


def ring_bandwidth(links: tuple[Link, ...], topology: Topology) -> float | None:
    """GB/s of the slowest link of the node ring with traffic both ways; None if not all are known.

    Two neighbours exchange both ways at once, in whatever algorithm.
    """
    known = {link.nodes: link.both for link in links}
    order = topology.leader_order
    pairs = {
        (min(a, b), max(a, b)) for a, b in zip(order, (*order[1:], order[0]), strict=True) if a != b
    }
    return min(known[pair] for pair in pairs) if pairs and pairs <= known.keys() else None


def bounds_of(
    collective: str, on_wire: int, memory: float, ring: float | None, time_s: float,
    num_nodes: int,
) -> Bounds:  # fmt: skip
    """Bounds of one row and what share of them a time reaches.

    Args:
        on_wire: bytes of the tensor in the type that travels between nodes.
        memory: seconds to copy it.
        ring: GB/s of the slowest link, None if unknown.
        time_s: what was measured.
    """
    wire = None
    if num_nodes > 1 and ring is not None:
        wire = wire_nbytes(collective, on_wire, num_nodes) / ring / 1e9
    bound = max(memory, wire or 0.0)
    return Bounds(memory, wire, bound, 100 * bound / time_s)

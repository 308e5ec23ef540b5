"""The formulas of the report: bandwidths, quantiles, and what each algorithm must move."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hierring.benchmarks.figures import Times

__all__ = [
    "DEFINITIONS", "Theory", "algbw", "between_nodes", "busbw", "busbw_factor", "quantile",
    "theory", "times_of", "wire_nbytes",
]  # fmt: skip

#: Of the figures, as printed in each report. N ranks, M nodes, n ranks a node, S bytes of tensor.
DEFINITIONS = {
    "size": "S, bytes of the whole tensor; of a reduce-scatter its input, of an all-gather its "
    "output",
    "time": "median over the timed calls of the longest time of any rank, in seconds",
    "algbw": "S / time, in GB/s = 1e9 bytes/s",
    "busbw": "algbw x 2(N-1)/N (all-reduce), x (N-1)/N (reduce-scatter, all-gather), x 1 "
    "(broadcast): what each rank's link would carry if all ranks stood in one flat ring",
    "intra_busbw": "algbw x 2(n-1)/n (all-reduce), n the ranks of the largest node",
    "inter_busbw": "algbw x 2(M-1)/M (all-reduce): what each node must send, by time",
    "p99": "the smallest time that 99 % of the calls do not exceed; with fewer than 100 calls it is"
    " the longest",
    "memory bound": "time to copy S bytes, all ranks at once",
    "wire bound": "2(M-1)/M S (all-reduce) over the bandwidth of the slowest link of the node ring",
    "lateness": "how much less than the others a rank waited until all had entered the call: how "
    "much later than the first it came (of peers: how much shorter its call was than the longest)",
}  # fmt: skip


def algbw(nbytes: int, seconds: float) -> float:
    """GB/s of tensor."""
    return nbytes / seconds / 1e9


def busbw_factor(collective: str, members: int) -> float:
    """What algbw is multiplied by: bytes that a ring member sends for each byte of tensor."""
    share = (members - 1) / members
    return {
        "allreduce": 2 * share,
        "reduce_scatter": share,
        "allgather": share,
        "broadcast": 1.0,
    }[collective]


def busbw(collective: str, members: int, bandwidth: float) -> float:
    """GB/s that a link of a flat ring would carry; independent of the algorithm."""
    return bandwidth * busbw_factor(collective, members)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest observed value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def times_of(seconds: Sequence[float]) -> Times:
    """Figures of the calls' times."""
    return Times(
        median=statistics.median(seconds),
        min=min(seconds),
        max=max(seconds),
        p99=quantile(seconds, 0.99),
        mean=statistics.fmean(seconds),
    )


@dataclass(frozen=True)
class Theory:
    """Bytes that all ranks together send or write in one call; None: not stated."""

    between_nodes: float | None
    mpi: float | None
    shared_memory: float | None
    formula: str


def theory(
    collective: str,
    chosen: str,
    nbytes: int,
    wire_nbytes: int,
    node_sizes: Sequence[int],
    *,
    equal_types: bool = True,
) -> Theory:
    """What an algorithm must move.

    Args:
        collective: its name.
        chosen: what ran, as `plan.chosen` words it.
        nbytes: of the tensor; wire_nbytes: of it in the type that travels between nodes.
        node_sizes: ranks of each node.
        equal_types: whether elements keep their type in shared memory.
    """
    size, nodes = sum(node_sizes), len(node_sizes)
    if chosen.startswith("flat"):
        return _flat(chosen, wire_nbytes, size, nodes)
    if collective != "allreduce":
        return _one_way(collective, chosen, wire_nbytes, nodes)
    sent, formula = between_nodes(chosen, wire_nbytes, nodes)
    # Each rank stages what its peers will add and writes its chunk of the sum: S in all.
    written = None if chosen.startswith("small") or not equal_types else float(size * nbytes)
    return Theory(sent, sent, written, formula)


def between_nodes(chosen: str, wire_nbytes: int, nodes: int) -> tuple[float, str]:
    """Bytes that the nodes send in a hierarchical all-reduce, and the formula."""
    if nodes == 1:
        return 0.0, "nothing leaves the node"
    if chosen.startswith("small") or chosen.endswith("doubling"):
        # The nodes beyond a power of two hand theirs to a neighbour and get the result back.
        steps = nodes.bit_length() - 1
        power = 1 << steps
        return (
            float(wire_nbytes * (power * steps + 2 * (nodes - power))),
            "recursive doubling: M log2 M S between nodes, for M a power of two",
        )
    return float(2 * (nodes - 1) * wire_nbytes), "2(M-1) S between nodes, 2(M-1)/M S a node"


def _flat(chosen: str, nbytes: int, size: int, nodes: int) -> Theory:
    name = chosen.removeprefix("flat ")
    if name == "naive":
        total, formula = size * (size - 1) * nbytes, "N(N-1) S over MPI"
    elif name == "tree":
        total, formula = 2 * (size - 1) * nbytes, "2(N-1) S over MPI: up and down a tree"
    else:
        total, formula = 2 * (size - 1) * nbytes, "2(N-1) S over MPI, 2(N-1)/N S a rank"
    # How many of them leave a node is a matter of where ranks lie.
    return Theory(0.0 if nodes == 1 else None, float(total), None, formula)


def _one_way(collective: str, chosen: str, nbytes: int, nodes: int) -> Theory:
    if nodes == 1:
        return Theory(0.0, 0.0, None, "nothing leaves the node")
    if chosen.startswith("small"):
        sent, formula = between_nodes(chosen, nbytes, nodes)
        return Theory(sent, sent, None, formula)
    sent = float((nodes - 1) * nbytes)
    return Theory(sent, sent, None, f"(M-1) S between nodes: {collective} moves each byte once")


def wire_nbytes(collective: str, nbytes: int, nodes: int) -> float:
    """Bytes that the busiest link of a node must carry one way, whatever the algorithm."""
    return 0.0 if nodes == 1 else nbytes * busbw_factor(collective, nodes)

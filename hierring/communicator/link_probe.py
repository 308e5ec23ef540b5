"""Measures the links between nodes, and the memory inside them, as hierring uses them.

The leaders of two nodes exchange messages, while all others wait for the next round:

1. *latency*: 8 bytes there and back, many times.
2. *forth*, *back*: messages of 1 MiB, a few in flight, one way.
3. *both*: the same in both directions at once.

One pair at a time if there are few nodes, else disjoint pairs side by side in the rounds of a
tournament. Then all links of the leader ring carry data at once, as in a large all-reduce, and at
last each node looks at its memory. How much is sent follows from the first megabyte, so that each
part takes about `PART_S`, whatever the speed of the link.

Every round is an operation of its own: it begins when all ranks are there, and a rank that dies, or
a link that carries nothing for `stall_s`, ends it on all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np

from hierring.communicator.link_prober import MOST_STALLS, Prober
from hierring.communicator.requests import plain
from hierring.topology import Link, LinkReport, NodeMemory, RingLink
from hierring.topology.links import neighbour_rounds, tournament

if TYPE_CHECKING:
    from hierring.communicator.communicator import Communicator

__all__ = ["probe_links"]

#: With more nodes, pairs that have no node in common are measured at the same time.
ONE_BY_ONE = 8
#: With more, only neighbours in the leader ring: all-reduce uses no other links.
ALL_PAIRS = 128
#: A pair of which no message arrives for so long is given up; less if the timeout is.
STALL_S = 10.0
#: Larger than most last-level caches.
COPY_BYTES = 32 * 2**20
SHARED_BYTES = 8 * 2**20
REPEATS = 3

# Rows of the table that all ranks exchange: a kind, two numbers, four figures.
_LINK, _RING, _MEMORY = 0.0, 1.0, 2.0
_WIDTH = 7
_NONE = -1.0


def probe_links(comm: Communicator, *, stall_s: float | None = None) -> LinkReport:
    """Measure all links and memories; collective over all ranks, with nothing else under way.

    Args:
        stall_s: how long a link may carry nothing; default 10 s, or the communicator's timeout if
            that is shorter.

    Returns:
        The same on all ranks.

    Raises:
        CollectiveTimeoutError: a link carried nothing: names the two nodes. Or a rank did not come
            within four times `stall_s`. Broken, as after any collective that timed out.
    """
    limit = min(STALL_S, comm.config.timeout_s) if stall_s is None else stall_s
    rows = _between_nodes(comm, limit) + _inside_node(comm)
    own = np.array(rows, np.float64).reshape(-1, _WIDTH)
    return _report(comm, comm.allgather(own))


# --- between nodes -------------------------------------------------------------------------------


def _between_nodes(comm: Communicator, stall_s: float) -> list[list[float]]:
    """All rounds; this rank's rows of the table."""
    topology = comm.get_topology()
    nodes, me, order = topology.num_nodes, topology.node_rank, topology.leader_order
    if nodes == 1:
        return []
    rounds = tournament(nodes) if nodes <= ALL_PAIRS else neighbour_rounds(order)
    if nodes <= ONE_BY_ONE:
        rounds = [[pair] for meetings in rounds for pair in meetings]
    leads = topology.local_rank == 0
    known: dict[int, Link] = {}
    for meetings in rounds:
        mine = next((pair for pair in meetings if leads and me in pair), None)
        if mine is None:
            _round(comm, stall_s, None)
        else:
            peer = mine[1] if mine[0] == me else mine[0]
            known[peer] = _round(comm, stall_s, methodcaller("pair", peer))
    rows = [
        [_LINK, me, peer, link.latency, link.forth, link.back, link.both]
        for peer, link in known.items()
        if me < peer
    ]
    place = topology.ring_position(me)
    prev, next_ = order[place - 1], order[(place + 1) % nodes]
    if not leads:
        _round(comm, stall_s, None)
        return rows
    rate = _round(comm, stall_s, lambda prober: prober.ring(prev, next_, known[next_].both))
    return [*rows, [_RING, prev, me, rate, 0.0, 0.0, 0.0]]


def _round(comm: Communicator, stall_s: float, work: Callable[[Prober], Any] | None) -> Any:
    """One operation of all ranks, in which this one does `work`, if any; what that returns."""
    answer: list[Any] = []
    # The others wait for the slowest pair of the round before.
    seconds = (MOST_STALLS + 1) * stall_s
    with comm._entered("probe_links", seconds) as (engine, call, _):
        act = None
        if work is not None:
            act = lambda guard: answer.append(work(Prober(engine, guard, stall_s)))  # noqa: E731
        engine.run(call, plain("probe_links").descriptor, None, act)
    return answer[0] if answer else None


# --- inside a node -------------------------------------------------------------------------------


def _inside_node(comm: Communicator) -> list[list[float]]:
    """Copies by all ranks at once, and broadcasts through the segment; the leader's row."""
    topology = comm.get_topology()
    node = comm.split(topology.node_rank)
    assert node is not None, "every rank is on some node"
    with node:
        source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
        copying = _seconds(node, lambda: np.copyto(target, source))
        part = source[:SHARED_BYTES]
        sharing = _seconds(node, lambda: node.broadcast(part))
    if topology.local_rank != 0:
        return []
    memcpy, shared = COPY_BYTES / copying / 1e9, SHARED_BYTES / sharing / 1e9
    if topology.local_size == 1:
        shared = _NONE
    return [[_MEMORY, topology.node_rank, 0, memcpy, shared, 0.0, 0.0]]


def _seconds(node: Communicator, act: Callable[[], object]) -> float:
    """Median over some tries of the slowest rank's time, after one that doesn't count."""
    taken = []
    for _ in range(1 + REPEATS):
        node.barrier()
        began = time.perf_counter()
        act()
        taken.append(float(node.allreduce(time.perf_counter() - began, "max")))
    return max(statistics.median(taken[1:]), 1e-9)


# --- the table -----------------------------------------------------------------------------------


def _report(comm: Communicator, table: Any) -> LinkReport:
    topology = comm.get_topology()
    links, ring, memory = [], {}, []
    for kind, a, b, *figures in table.tolist():
        if kind == _LINK:
            links.append(Link((int(a), int(b)), *figures))
        elif kind == _RING:
            ring[int(a)] = RingLink((int(a), int(b)), figures[0])
        else:
            shared = None if figures[1] == _NONE else figures[1]
            memory.append(NodeMemory(int(a), figures[0], shared))
    return LinkReport(
        num_nodes=topology.num_nodes,
        links=tuple(sorted(links, key=lambda link: link.nodes)),
        ring=tuple(ring[node] for node in topology.leader_order) if ring else (),
        memory=tuple(sorted(memory, key=lambda row: row.node)),
    )

"""How fast the nodes reach each other and their own memory: what a probe found, and who is slow.

Nothing here communicates; `hierring.communicator.probe_links` measures and fills these. All rates
are GB/s (1e9 bytes), all times seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

__all__ = ["Link", "LinkReport", "NodeMemory", "RingLink", "neighbour_rounds", "tournament"]

Pair = tuple[int, int]
T = TypeVar("T")
#: A rate below this part of the median of its kind is named as slow.
SLOW = 0.5
#: A matrix of more columns fits on no terminal.
MOST_COLUMNS = 16


@dataclass(frozen=True)
class Link:
    """What messages between the leaders of two nodes take, with nothing else on their way.

    Attributes:
        nodes: (lower, higher) node number.
        latency: half a round trip of 8 bytes, the median.
        forth: rate from the lower to the higher node. back: the other way.
        both: rate each way, with both ways at once.
    """

    nodes: Pair
    latency: float
    forth: float
    back: float
    both: float

    @property
    def bandwidth(self) -> float:
        """Of the slower direction."""
        return min(self.forth, self.back)


@dataclass(frozen=True)
class RingLink:
    """A link of the leader ring while all of them carry data at once.

    Attributes:
        nodes: (sender, receiver).
    """

    nodes: Pair
    bandwidth: float


@dataclass(frozen=True)
class NodeMemory:
    """How fast a node moves data in memory.

    Attributes:
        memcpy: bytes that one rank copies in a second, all ranks of the node at once; the slowest.
        shared: bytes a second from one rank to all others of the node, through its segment; None
            for a rank alone.
    """

    node: int
    memcpy: float
    shared: float | None


@dataclass(frozen=True)
class LinkReport:
    """All that was measured; the same on all ranks.

    Attributes:
        num_nodes: of the communicator.
        links: every pair, or only the ring's neighbours where there are too many nodes.
        ring: in the order of the leader ring; empty with one node.
        memory: of every node.
    """

    num_nodes: int
    links: tuple[Link, ...]
    ring: tuple[RingLink, ...]
    memory: tuple[NodeMemory, ...]

    def slow(self) -> tuple[str, ...]:
        """A sentence for each node, link or memory below half of the median of its kind.

        A slow node makes all its links slow, in a small cluster most of the links there are. So
        nodes are compared by their fastest link, and the links of a slow node are not named again.
        """
        ways = [
            *((link.nodes, link.forth) for link in self.links),
            *((link.nodes[::-1], link.back) for link in self.links),
        ]
        out, into = self._fastest(ways, end=0), self._fastest(ways, end=1)
        slow_nodes = {node for rates in (out, into) for node, _, _ in _below(rates)}
        both = [(link.nodes, link.both) for link in self.links]
        ring = [(link.nodes, link.bandwidth) for link in self.ring]
        shared = [(row.node, row.shared) for row in self.memory if row.shared is not None]
        texts = [
            f"the fastest link {way} node {node} carries {_of_median(rate, median)}"
            for way, rates in (("out of", out), ("into", into))
            for node, rate, median in _below(rates)
        ]
        texts += [
            f"the link {kind.format(*pair)} carries {_of_median(rate, median)}"
            for kind, rates in (
                ("from node {} to node {}", ways),
                ("between nodes {} and {}, both ways at once,", both),
                ("from node {} to node {}, with the whole ring at work,", ring),
            )
            for pair, rate, median in _below(rates)
            if slow_nodes.isdisjoint(pair)
        ]
        texts += [
            f"{kind} of node {node} moves {_of_median(rate, median)}"
            for kind, rates in (
                ("a copy in the memory", [(row.node, row.memcpy) for row in self.memory]),
                ("the shared memory", shared),
            )
            for node, rate, median in _below(rates)
        ]
        return tuple(texts)

    def _fastest(self, ways: Sequence[tuple[Pair, float]], end: int) -> list[tuple[int, float]]:
        """Each node's fastest way out (0) or in (1); nothing for two nodes, which have but one."""
        best: dict[int, float] = {}
        for pair, rate in ways:
            best[pair[end]] = max(rate, best.get(pair[end], 0.0))
        return sorted(best.items()) if self.num_nodes > 2 else []

    def to_dict(self) -> dict[str, Any]:
        """The same as strict JSON holds it: str keys, lists, no NaN."""
        tables = {name: getattr(self, name) for name in ("links", "ring", "memory")}
        listed = {
            name: [
                {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(row).items()}
                for row in rows
            ]
            for name, rows in tables.items()
        }
        return {"num_nodes": self.num_nodes, **listed, "slow": list(self.slow())}

    def describe(self) -> str:
        """Matrices for people, without a newline at the end."""
        lines = []
        if self.links and self.num_nodes <= MOST_COLUMNS:
            ways: dict[Pair, float] = {}
            latencies: dict[Pair, float] = {}
            both: dict[Pair, float] = {}
            for link in self.links:
                ways[link.nodes], ways[link.nodes[::-1]] = link.forth, link.back
                latencies[link.nodes] = latencies[link.nodes[::-1]] = link.latency * 1e6
                both[link.nodes] = both[link.nodes[::-1]] = link.both
            lines += self._matrix("latency between nodes, microseconds", latencies)
            lines += self._matrix("bandwidth from node (row) to node, GB/s", ways)
            lines += self._matrix("bandwidth each way, both ways at once, GB/s", both)
        elif self.links:
            rates = [link.bandwidth for link in self.links]
            lines.append(
                f"{len(rates)} links: {min(rates):.3g} to {max(rates):.3g} GB/s, the median "
                f"{statistics.median(rates):.3g} GB/s; latency "
                f"{statistics.median(link.latency for link in self.links) * 1e6:.3g} us"
            )
        if 0 < len(self.ring) <= MOST_COLUMNS:
            steps = (f"{a}>{b} {rate:.3g}" for (a, b), rate in map(_pair_and_rate, self.ring))
            lines.append(f"leader ring, all links at once, GB/s: {', '.join(steps)}")
        for row in self.memory[:MOST_COLUMNS]:
            shared = "" if row.shared is None else f", shared memory {row.shared:.3g} GB/s"
            lines.append(f"node {row.node}: memcpy {row.memcpy:.3g} GB/s a rank{shared}")
        lines += [f"slow: {text}" for text in self.slow()]
        return "\n".join(lines)

    def _matrix(self, title: str, values: dict[Pair, float]) -> list[str]:
        nodes = range(self.num_nodes)
        rows = [title, "      " + "".join(f"{node:>8}" for node in nodes)]
        for row in nodes:
            cells = (
                f"{values[row, column]:>8.3g}" if (row, column) in values else f"{'-':>8}"
                for column in nodes
            )
            rows.append(f"{row:>6}{''.join(cells)}")
        return rows


def _below(rates: Sequence[tuple[T, float]]) -> list[tuple[T, float, float]]:
    """Those that are slow among their kind, with their rate and the median."""
    if not rates:
        return []
    median = statistics.median(rate for _, rate in rates)
    return [(who, rate, median) for who, rate in rates if rate < SLOW * median]


def _of_median(rate: float, median: float) -> str:
    return f"{rate:.3g} GB/s, where the median is {median:.3g} GB/s"


def _pair_and_rate(link: RingLink) -> tuple[Pair, float]:
    return link.nodes, link.bandwidth


def tournament(nodes: int) -> list[list[Pair]]:
    """Rounds in which each node meets at most one other, and over which it meets all of them.

    The circle method: node 0 (or a ghost, if their number is odd) stays, the others move on by one
    place a round, and opposite places meet. That takes nodes - 1 rounds, or nodes if odd.
    """
    places: list[int | None] = list(range(nodes))
    if nodes % 2:
        places.insert(0, None)
    rounds = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        meetings = zip(places[:half], reversed(places[half:]), strict=True)
        rounds.append(
            [(min(a, b), max(a, b)) for a, b in meetings if a is not None and b is not None]
        )
        places = [places[0], places[-1], *places[1:-1]]
    return [meetings for meetings in rounds if meetings]


def neighbour_rounds(order: Sequence[int]) -> list[list[Pair]]:
    """The same for the neighbours of a ring alone: two rounds, three if their number is odd.

    Args:
        order: node numbers as the ring visits them.
    """
    size = len(order)
    links = [(order[i], order[(i + 1) % size]) for i in range(size if size > 2 else size - 1)]
    pairs = [(min(link), max(link)) for link in links]
    even = size - size % 2
    rounds = [pairs[0:even:2], pairs[1:even:2], pairs[even:]]
    return [meetings for meetings in rounds if meetings]

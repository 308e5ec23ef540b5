"""Who keeps the others waiting; pure.

An all-reduce takes about as long on all ranks, so its time accuses nobody. Three things do: a rank
that waits less than the others until all have entered came late; a rank that its node waits for in
the midst of a call is slow there; and a link or a node's memory is slow if the probe says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from hierring.benchmarks.figures import Case
from hierring.benchmarks.result import Straggler
from hierring.topology import Link, NodeMemory

__all__ = ["find_stragglers"]

#: A rank stands out if the others lose this share of their time by it, and so many times what the
#: median rank costs them.
_SHARE, _TIMES = 0.2, 3.0
#: A link or a memory stands out below this share of the median.
_SLOW = 0.5


def find_stragglers(
    cases: Sequence[Case], links: Sequence[Link], memory: Sequence[NodeMemory]
) -> tuple[Straggler, ...]:
    """The slowest rank and node, whether or not they stand out, then what does.

    Args:
        cases: of one run; those of hierring count, at all sizes, by the time they took.
    """
    found = [*_ranks([case for case in cases if case.library == "hierring"])]
    found += _slow_links(links) + _slow_memory(memory)
    return tuple(found)


def _ranks(cases: Sequence[Case]) -> list[Straggler]:
    if not cases or len(cases[0].ranks) == 1:
        return []
    calls = sum(case.iterations for case in cases)
    per_call = sum(case.times.mean * case.iterations for case in cases) / calls
    figures: dict[str, dict[int, float]] = {}
    for evidence in ("lateness", "awaited"):
        for index, rank in enumerate(cases[0].ranks):
            values = [getattr(case.ranks[index], evidence) for case in cases]
            if None in values:
                continue
            lost = sum(value * case.iterations for value, case in zip(values, cases, strict=True))
            figures.setdefault(evidence, {})[rank.rank] = lost / calls
    places = {rank.rank: rank.node for rank in cases[0].ranks}
    accused = [
        _slowest(evidence, by_rank, places, per_call)
        for evidence, by_rank in figures.items()
        if len(by_rank) > 1
    ]
    # One rank, by the evidence that weighs most.
    accused.sort(key=lambda one: (one.stands_out, one.value - one.median), reverse=True)
    return accused[:1] + _slowest_node(figures["lateness"], places, per_call)


def _slowest(
    evidence: str, by_rank: dict[int, float], places: dict[int, int], per_call: float
) -> Straggler:
    rank = max(by_rank, key=lambda one: by_rank[one])
    value, median = by_rank[rank], statistics.median(by_rank.values())
    how = {
        "lateness": f"comes {_time(value)} a call after the first",
        "awaited": f"is waited for {_time(value)} a call by its node",
    }[evidence]
    return Straggler(
        "rank", (rank,), evidence, value, median, _stands_out(value, median, per_call),
        f"rank {rank} (node {places[rank]}) {how}; the median rank {_time(median)}",
    )  # fmt: skip


def _slowest_node(
    lateness: dict[int, float], places: dict[int, int], per_call: float
) -> list[Straggler]:
    """A node comes as late as the earliest of its ranks: all of them do."""
    by_node: dict[int, float] = {}
    for rank, value in lateness.items():
        by_node[places[rank]] = min(value, by_node.get(places[rank], value))
    if len(by_node) < 2:
        return []
    node = max(by_node, key=lambda one: by_node[one])
    value, median = by_node[node], statistics.median(by_node.values())
    text = (
        f"node {node}: all of its ranks come at least {_time(value)} a call after the first; on "
        f"the median node {_time(median)}"
    )
    out = _stands_out(value, min(by_node.values()) if len(by_node) == 2 else median, per_call)
    return [Straggler("node", (node,), "lateness", value, median, out, text)]


def _stands_out(value: float, usual: float, per_call: float) -> bool:
    return value > _SHARE * per_call and value > _TIMES * usual


def _slow_links(links: Sequence[Link]) -> list[Straggler]:
    """Nodes that send or receive slowly whoever is at the other end, and directions of one link.

    A direction is slow if both of its ends do better with others; with two nodes, if the other
    direction is better.
    """
    rates = {link.nodes: link.forth for link in links}
    rates |= {link.nodes[::-1]: link.back for link in links}
    sends, receives = _best(rates, 0), _best(rates, 1)
    two = len(sends) == 2
    found = [] if two else _slow_nodes("sends", sends) + _slow_nodes("receives", receives)
    for (a, b), rate in rates.items():
        usual = rates[b, a] if two else min(sends[a], receives[b])
        if rate < _SLOW * usual:
            why = "the other direction" if two else "both nodes have better ones, of at least"
            text = f"the link from node {a} to node {b} carries {rate:.3g} GB/s; {why} {usual:.3g}"
            found.append(Straggler("link", (a, b), "bandwidth", rate, usual, True, text))
    return found


def _best(rates: dict[tuple[int, int], float], end: int) -> dict[int, float]:
    """The best rate of each node, as sender (end 0) or receiver (end 1)."""
    best: dict[int, float] = {}
    for nodes, rate in rates.items():
        best[nodes[end]] = max(best.get(nodes[end], 0.0), rate)
    return best


def _slow_nodes(does: str, best: dict[int, float]) -> list[Straggler]:
    if not best:
        return []
    median = statistics.median(best.values())
    return [
        Straggler(
            "node", (node,), "bandwidth", rate, median, True,
            f"node {node} {does} {rate:.3g} GB/s at best, the median node {median:.3g}",
        )
        for node, rate in best.items()
        if rate < _SLOW * median
    ]  # fmt: skip


def _slow_memory(memory: Sequence[NodeMemory]) -> list[Straggler]:
    if len(memory) < 3:
        return []
    median = statistics.median(node.memcpy for node in memory)
    return [
        Straggler(
            "node", (node.node,), "memcpy", node.memcpy, median, True,
            f"node {node.node} copies {node.memcpy:.3g} GB/s, the median node {median:.3g}",
        )
        for node in memory
        if node.memcpy < _SLOW * median
    ]  # fmt: skip


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"

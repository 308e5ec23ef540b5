"""The section on nodes, ranks and the links between them."""

from __future__ import annotations

from hierring.benchmarks.report.document import (
    Block,
    Paragraph,
    Section,
    Table,
    counted,
    duration,
    nbytes_text,
    rate,
)
from hierring.benchmarks.report.places import nodes_of, ring_order, ring_rates
from hierring.benchmarks.result import Result

__all__ = ["cluster_section"]

#: Up to so many nodes the links are a matrix; beyond, the slowest are listed.
_MATRIX = 16
_LISTED = 20


def cluster_section(result: Result) -> Section:
    """Nodes, ranks, ring order, and what the probe measured."""
    topology = result.topology
    text = (
        f"{counted(topology['size'], 'rank')} on {counted(topology['num_nodes'], 'node')}, "
        f"placement {topology.get('placement', '?')}, "
        f"{'shared memory' if topology.get('shared_memory') else 'no shared memory'} inside nodes. "
        f"Ring of nodes: {_ring_text(ring_order(result))}."
    )
    blocks: list[Block] = [Paragraph(text), _nodes(result)]
    if result.links:
        blocks += _links(result)
    elif topology["num_nodes"] > 1:
        blocks.append(Paragraph("Links were not probed."))
    if result.memory:
        blocks.append(_memory(result))
    return Section("cluster", "The cluster", tuple(blocks))


def _ring_text(order: list[int]) -> str:
    if len(order) < 2:
        return "one node, no ring"
    names = [str(number) for number in order]
    if len(names) > _MATRIX and order == sorted(order):
        names = [names[0], names[1], "…", names[-1]]
    return " → ".join([*names, names[0]])


def _nodes(result: Result) -> Table:
    rows = tuple(
        (
            f"{node.number}", node.hostname, _ranks([rank.rank for rank in node.ranks]),
            "; ".join(dict.fromkeys(rank.cpus for rank in node.ranks)),
            str(max(len(node.numa), 1)), node.nics or "–", str(node.leader),
            str(node.cores if node.cores is not None else "–"),
            nbytes_text(node.memory_nbytes) if node.memory_nbytes else "–",
            "yes" if node.oversubscribed else "no",
        )
        for node in nodes_of(result)
    )  # fmt: skip
    columns = (
        "node", "host", "ranks", "bound to CPUs", "NUMA nodes", "network", "leader", "cores",
        "memory", "oversubscribed",
    )  # fmt: skip
    return Table("Nodes", columns, rows, left=6)


def _ranks(ranks: list[int]) -> str:
    """Ranks in the fewest words: "0-3", "0, 4, 8"."""
    from hierring.topology.sysfs import format_ranges

    return format_ranges(ranks)


def _links(result: Result) -> list[Block]:
    numbers = [node.number for node in nodes_of(result)]
    rates = {link.nodes: link.forth for link in result.links}
    rates |= {link.nodes[::-1]: link.back for link in result.links}
    blocks: list[Block] = []
    if len(numbers) <= _MATRIX and len(rates) > 2:
        best = max(rates.values())
        rows = tuple(
            (f"from {a}", *(rate(rates.get((a, b))) if a != b else "" for b in numbers))
            for a in numbers
        )
        heat = tuple(
            (None, *(1 - rates[a, b] / best if (a, b) in rates else None for b in numbers))
            for a in numbers
        )
        columns = ("GB/s", *(f"to {b}" for b in numbers))
        caption = "Bandwidth between nodes, one pair at a time; the slower, the stronger the colour"
        blocks.append(Table(caption, columns, rows, heat=heat))
    listed = sorted(result.links, key=lambda link: link.bandwidth)[:_LISTED]
    note = "" if len(listed) == len(result.links) else f", the slowest {len(listed)}"
    at_once, how = ring_rates(result)
    ring = {pair: f"{rate(value)}" for pair, value in at_once.items()} if result.ring else {}
    blocks.append(
        Table(
            f"Links between nodes{note}: GB/s; in the ring: {how}",
            ("link", "latency", "there", "back", "each way at once", "in the ring, there",
             "in the ring, back"),
            tuple(
                (f"{link.nodes[0]} – {link.nodes[1]}", duration(link.latency), rate(link.forth),
                 rate(link.back), rate(link.both), ring.get(link.nodes, "–"),
                 ring.get(link.nodes[::-1], "–"))
                for link in listed
            ),
        )
    )  # fmt: skip
    return blocks


def _memory(result: Result) -> Table:
    listed = sorted(result.memory, key=lambda node: node.memcpy)[:_LISTED]
    rest = "" if len(listed) == len(result.memory) else f", the slowest {len(listed)} nodes"
    return Table(
        f"Memory inside the nodes, GB/s{rest}",
        ("node", "copied by one rank, all at once", "from one rank to all others"),
        tuple((str(one.node), rate(one.memcpy), rate(one.shared)) for one in listed),
    )

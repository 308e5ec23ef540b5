"""The cluster as a picture: nodes, NUMA nodes, ranks, and the ring with what its links carry.

Nodes stand on a closed path through a grid, so that neighbours in the ring are neighbours in the
picture and the links between them cross nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from hierring.benchmarks.report.document import rate
from hierring.benchmarks.report.places import NodePlace, RankPlace, nodes_of, ring_order, ring_rates
from hierring.benchmarks.result import Result

__all__ = ["CLASSES", "MOST_NODES", "cluster_picture", "colour_class", "path"]

#: More nodes than this are not drawn.
MOST_NODES = 64
#: Up to so many nodes, and ranks a node, each rank is drawn.
_DETAILED, _DETAILED_RANKS = 12, 32
CLASSES = 5
_PER_ROW = 8
_RANK, _PAD, _HEAD = 26, 8, 40
#: What stands out, by its kind and members, and why.
_Accused = dict[tuple[object, ...], str]


def cluster_picture(result: Result) -> str:
    """An SVG element; its colours are variables of the page."""
    nodes = {node.number: node for node in nodes_of(result)}
    order = [number for number in ring_order(result) if number in nodes][:MOST_NODES]
    ranks = max((len(node.ranks) for node in nodes.values()), default=0)
    detailed = len(order) <= _DETAILED and ranks <= _DETAILED_RANKS
    boxes = {number: _box(nodes[number], detailed) for number in order}
    width = max((w for w, _ in boxes.values()), default=0)
    height = max((h for _, h in boxes.values()), default=0)
    gap_x, gap_y = (96, 64) if detailed else (34, 30)
    cells = path(len(order), (width + gap_x) / (height + gap_y))
    spots = {
        number: (12 + column * (width + gap_x), 12 + row * (height + gap_y))
        for number, (row, column) in zip(order, cells, strict=True)
    }
    slow = {(s.kind, *s.members): s.text for s in result.stragglers if s.stands_out}
    parts = [*_ring(result, order, spots, (width, height), slow, detailed)]
    for number, (x, y) in spots.items():
        body = "".join(_node(nodes[number], width, height, detailed, slow))
        parts.append(f'<g transform="translate({x:.0f} {y:.0f})">{body}</g>')
    right = max((x for x, _ in spots.values()), default=0) + width + 12
    bottom = max((y for _, y in spots.values()), default=0) + height + 12
    label = f"{len(order)} nodes in ring order"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {right:.0f} {bottom:.0f}" '
        f'width="{right:.0f}" height="{bottom:.0f}" font-size="13">'
        f"<title>{label}</title>{_ARROWS}{''.join(parts)}</svg>"
    )


_ARROWS = (
    "<defs>"
    + "".join(
        f'<marker id="tip-{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="11" '
        'markerHeight="11" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" style="fill:var(--{name})"/></marker>'
        for name in (*(f"q{index}" for index in range(CLASSES)), "qn")
    )
    + "</defs>"
)


def path(count: int, aspect: float) -> list[tuple[int, int]]:
    """(row, column) of each node: down in snakes beside column 0, and up in column 0.

    With an even number of rows the path closes. Places that are not needed are left out of the
    last row, where the link passes over them.

    Args:
        aspect: width of a place over its height.
    """
    if count <= 1:
        return [(0, 0)] * count
    options = []
    for rows in range(2, 17, 2):
        columns = -(-count // rows)
        blank = rows * columns - count
        if blank <= max(columns - 2, 0) or (rows == 2 and blank <= columns - 1):
            # A page is about 1.6 times as wide as its pictures should be high.
            options.append((abs(math.log(columns * aspect / rows / 1.6)), rows, columns, blank))
    _, rows, columns, blank = min(options)
    if rows == 2:
        top = [(0, column) for column in range(columns)]
        return top + [(1, column) for column in reversed(range(blank, columns))]
    cells = []
    for row in range(rows):
        inner = range(1, columns) if row % 2 == 0 else range(columns - 1, 0, -1)
        cells += [(row, column) for column in inner]
    cells = cells[: len(cells) - blank] if blank else cells
    return cells + [(row, 0) for row in reversed(range(rows))]


def _box(node: NodePlace, detailed: bool) -> tuple[float, float]:
    if not detailed:
        return 74.0, 46.0
    groups = _groups(node)
    across = max((min(len(ranks), _PER_ROW) for _, ranks in groups), default=1)
    width = max(across * _RANK + 4 * _PAD, 168)
    height = _HEAD + sum(_group_height(ranks) + _PAD for _, ranks in groups)
    return float(width), float(height)


def _groups(node: NodePlace) -> list[tuple[str, list[RankPlace]]]:
    """Ranks by NUMA node, and those that are bound to none."""
    found = [
        (f"NUMA {numa}", [rank for rank in node.ranks if rank.numa == numa]) for numa in node.numa
    ]
    rest = [rank for rank in node.ranks if rank.numa is None]
    return found + ([("on several NUMA nodes", rest)] if rest else [])


def _group_height(ranks: list[RankPlace]) -> int:
    return 22 + max(-(-len(ranks) // _PER_ROW), 1) * _RANK + _PAD // 2


def _node(
    node: NodePlace, width: float, height: float, detailed: bool, accused: _Accused
) -> Iterator[str]:
    slow = accused.get(("node", node.number), "")
    colour = "q0" if slow else "line"
    tip = f"node {node.number}: {node.hostname}, {len(node.ranks)} ranks, CPUs {node.cpus}"
    yield f"<title>{escape(f'{tip}; {slow}' if slow else tip)}</title>"
    yield (
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" '
        f'style="fill:var(--card);stroke:var(--{colour});stroke-width:{3 if slow else 1.5}"/>'
    )
    late = {rank.rank for rank in node.ranks if ("rank", rank.rank) in accused}
    if not detailed:
        mark = ' style="fill:var(--q0)"' if late else ""
        yield f'<text x="37" y="20" text-anchor="middle" font-weight="600">{node.number}</text>'
        ranks = f"{len(node.ranks)} rank{'s' * (len(node.ranks) != 1)}"
        yield f'<text class="soft" x="37" y="37" text-anchor="middle"{mark}>{ranks}</text>'
        return
    name = node.hostname if len(node.hostname) <= 20 else node.hostname[:19] + "…"
    yield f'<text x="{_PAD + 2}" y="18" font-weight="600">node {node.number}</text>'
    yield f'<text class="soft" x="{_PAD + 2}" y="33" font-size="12">{escape(name)}</text>'
    y = _HEAD
    for label, ranks_of in _groups(node):
        inner = _group_height(ranks_of)
        yield (
            f'<rect x="{_PAD}" y="{y}" width="{width - 2 * _PAD:.0f}" height="{inner}" rx="5" '
            'style="fill:var(--numa)"/>'
            f'<text class="soft" x="{2 * _PAD}" y="{y + 15}" font-size="12">{label}</text>'
        )
        for index, rank in enumerate(ranks_of):
            cx = 2 * _PAD + (index % _PER_ROW + 0.5) * _RANK
            cy = y + 22 + (index // _PER_ROW + 0.5) * _RANK
            yield _circle(rank, cx, cy, rank.rank == node.leader, rank.rank in late)
        y += inner + _PAD


def _circle(rank: RankPlace, x: float, y: float, leader: bool, late: bool) -> str:
    colour = "q0" if late else "accent" if leader else "soft"
    tip = f"rank {rank.rank}{', leader' * leader}{', keeps others waiting' * late}"
    size = 12 if rank.rank < 100 else 10 if rank.rank < 1000 else 8
    return (
        f"<g><title>{escape(f'{tip}; CPUs {rank.cpus}')}</title>"
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="11" style="fill:var(--rank);'
        f'stroke:var(--{colour});stroke-width:{3 if leader or late else 1.2}"/>'
        f'<text x="{x:.1f}" y="{y + 4.5:.1f}" font-size="{size}" text-anchor="middle">'
        f"{rank.rank}</text></g>"
    )


def colour_class(value: float | None, best: float) -> str:
    """Fastest is q4, below a fifth of it q0; "qn" for what was not measured."""
    if value is None or best <= 0:
        return "qn"
    return f"q{min(int(value / best * CLASSES), CLASSES - 1)}"


def _ring(
    result: Result, order: list[int], spots: dict[int, tuple[float, float]],
    box: tuple[float, float], slow: _Accused, detailed: bool,
) -> Iterator[str]:  # fmt: skip
    """A link for each step of the ring; with two nodes there and back, side by side."""
    if len(order) < 2:
        return
    rates, _ = ring_rates(result)
    known = [rates[p] for p in zip(order, [*order[1:], order[0]], strict=True) if p in rates]
    best = max(known, default=0.0)
    cut = result.topology["num_nodes"] > len(order)
    ends = list(zip(order, [*order[1:], order[0]], strict=True))
    for a, b in ends[:-1] if cut else ends:
        value = rates.get((a, b))
        colour = "q0" if ("link", a, b) in slow else colour_class(value, best)
        side = 14 if len(order) == 2 else 0
        x1, y1, x2, y2 = _edge(spots[a], spots[b], box, side)
        tip = slow.get(("link", a, b)) or f"node {a} to node {b}: {rate(value)} GB/s"
        yield (
            f"<g><title>{escape(tip)}</title>"
            f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" marker-end="url(#tip-{colour})" '
            f'style="fill:none;stroke:var(--{colour});stroke-width:3.5"/>'
        )
        if detailed:
            yield _label(rate(value), (x1, y1, x2, y2), side)
        yield "</g>"


def _label(text: str, ends: tuple[float, float, float, float], side: float) -> str:
    """GB/s beside the middle of a link; on its outer side where two run together."""
    x1, y1, x2, y2 = ends
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    anchor = "middle"
    if abs(x1 - x2) < 8:  # upright
        outward = -1 if side and y1 > y2 else 1
        anchor = "end" if outward < 0 else "start"
        x, y = x + outward * 9, y + 4
    elif abs(y1 - y2) < 8:
        y -= 8
    else:  # the link that closes a ring of odd length runs from the lower right to the upper left
        anchor = "start"
        x, y = x + 10, y - 4
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _edge(
    start: tuple[float, float], end: tuple[float, float], box: tuple[float, float], side: float
) -> tuple[float, float, float, float]:
    """From border to border on the line between the middles, shifted to its left by `side`."""
    width, height = box
    ax, ay = start[0] + width / 2, start[1] + height / 2
    bx, by = end[0] + width / 2, end[1] + height / 2
    dx, dy = bx - ax, by - ay
    length = math.hypot(dx, dy)
    # How much of the line lies inside a box, from its middle.
    inside = min(width / 2 / abs(dx) if dx else math.inf, height / 2 / abs(dy) if dy else math.inf)
    sx, sy = dy / length * side, -dx / length * side
    gap = 4 / length
    first, last = inside + gap, 1 - inside - gap
    return ax + dx * first + sx, ay + dy * first + sy, ax + dx * last + sx, ay + dy * last + sy

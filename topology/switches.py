"""The order of the leader ring, which crosses switches as seldom as a ring can."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ring_order"]


def ring_order(paths: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Nodes in an order that enters and leaves each switch once.

    The links form a tree, and a ring over its leaves uses a switch's uplink at least once each way
    unless all nodes are below it. A walk that finishes each subtree before it starts the next, does
    it exactly once. Subtrees come in order of their lowest node, so that without switches, or with
    node numbers that follow them, the order is 0, 1, 2...

    Args:
        paths: for each node the switches above it, top first; empty where they are not known.
    """
    return tuple(_walk(list(range(len(paths))), 0, paths))


def _walk(nodes: list[int], depth: int, paths: Sequence[tuple[str, ...]]) -> list[int]:
    """The `nodes` (ascending, with equal paths above `depth`), subtree by subtree."""
    subtrees: dict[str, list[int]] = {}
    here = []
    for node in nodes:
        if len(paths[node]) > depth:
            subtrees.setdefault(paths[node][depth], []).append(node)
        else:
            here.append([node])
    branches = [_walk(below, depth + 1, paths) for below in subtrees.values()]
    # Nodes directly under this switch are branches of one; a walk's first node is its lowest.
    return [node for branch in sorted([*here, *branches]) for node in branch]

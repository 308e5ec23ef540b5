"""Which ranks form a node: pure arithmetic on a table that all ranks hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hierring.errors import TopologyError

__all__ = ["partition"]


def partition(
    readable: Sequence[Collection[int]],
    simulated: Sequence[int] | None = None,
    shared_memory: bool = True,
) -> list[list[int]]:
    """Groups the ranks into nodes whose members can all map each other's memory.

    Greedy in rank order: the lowest rank left takes every later one that shares memory, both ways,
    with all whom it has already taken; the rest regroup among themselves in the same manner. So
    each rank stands in exactly one node, nodes come numbered by their lowest rank, members ascend,
    and equal tables give equal nodes.

    Args:
        readable: for each rank the ranks whose memory it could map.
        simulated: for each rank the node it pretends to be on, or None.
        shared_memory: False makes every rank a node of its own, whatever else is asked.

    Raises:
        TopologyError: two ranks of one simulated node cannot share memory. Equal on all ranks.
    """
    size = len(readable)
    if not shared_memory:
        return [[rank] for rank in range(size)]
    mutual = [
        {peer for peer in readable[rank] if 0 <= peer < size and rank in readable[peer]}
        for rank in range(size)
    ]
    if simulated is not None:
        return _simulated_nodes(mutual, simulated)
    nodes = []
    left = set(range(size))
    for seed in range(size):
        if seed not in left:
            continue
        node = [seed]
        for rank in sorted(mutual[seed] & left - {seed}):
            if mutual[rank].issuperset(node):
                node.append(rank)
        left.difference_update(node)
        nodes.append(node)
    return nodes


def _simulated_nodes(mutual: Sequence[set[int]], simulated: Sequence[int]) -> list[list[int]]:
    """The pretended nodes, once each of them is found to really share memory."""
    if len(simulated) != len(mutual):
        raise TopologyError(
            f"simulated nodes are given for {len(simulated)} ranks, but there are {len(mutual)}"
        )
    nodes: dict[int, list[int]] = {}
    for rank, label in enumerate(simulated):
        node = nodes.setdefault(label, [])
        for member in node:
            if member not in mutual[rank]:
                raise TopologyError(
                    f"ranks {member} and {rank} are put on one simulated node but cannot share "
                    "memory: change HIERRING_SIMULATE_NODES, which only splits ranks that run on "
                    "one machine"
                )
        node.append(rank)
    return list(nodes.values())  # in order of first appearance, which is that of the lowest rank

"""Index arithmetic of the collective algorithms: who exchanges which part with whom, at which step.

Pure functions of sizes and ranks, without memory or messages, so that every rank computes the same
schedule from the same facts. "Member" is an index into the list of processes that take part: nodes
on a rail, ranks in a flat algorithm.

Sources: ring all-reduce, P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", JPDC 2009. Recursive doubling with a fold, and binomial trees:
R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in
MPICH", IJHPCA 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "Covers",
    "Doubling",
    "allgather_steps",
    "binomial_children",
    "binomial_parent",
    "doubling",
    "reduce_scatter_steps",
    "spans",
    "weights_before",
]


def spans(count: int, parts: int, align: int = 1) -> list[tuple[int, int]]:
    """Cut `count` elements into `parts` runs (first, count) with borders at multiples of `align`.

    The first runs have equal length; later ones are shorter or empty, so any count works.
    """
    size = -(-count // parts)
    size = -(-size // align) * align
    result = []
    for part in range(parts):
        first = min(part * size, count)
        result.append((first, min(first + size, count) - first))
    return result


def reduce_scatter_steps(members: int, me: int) -> list[tuple[int, int]]:
    """(chunk to send to next, chunk to receive from prev) for each of the members-1 steps.

    Chunk c starts at member c+1 and travels up the ring; after the last step member c owns it.
    """
    return [((me - step - 1) % members, (me - step - 2) % members) for step in range(members - 1)]


def allgather_steps(members: int, me: int) -> list[tuple[int, int]]:
    """(chunk to send to next, chunk to receive from prev) when member c starts out with chunk c."""
    return [((me - step) % members, (me - step - 1) % members) for step in range(members - 1)]


def weights_before(weights: list[int], me: int, step: int) -> int:
    """How many ranks a partial sum covers that arrives at `me` in reduce-scatter step `step`."""
    members = len(weights)
    return sum(weights[(me - 1 - back) % members] for back in range(step + 1))


class Doubling(NamedTuple):
    """One member's part in recursive doubling over any number of members.

    Members beyond the largest power of two fold: each hands its data to `folds_to` and gets the
    result back; the receiver is that member's `folded`.
    """

    folds_to: int | None
    folded: int | None
    partners: list[int]


def doubling(members: int, me: int) -> Doubling:
    """The partners of member `me`, in order; both sides combine lower member first."""
    core = 1 << (members.bit_length() - 1)
    if me >= core:
        return Doubling(me - core, None, [])
    partners = []
    mask = 1
    while mask < core:
        partners.append(me ^ mask)
        mask <<= 1
    return Doubling(None, me + core if me + core < members else None, partners)


class Covers:
    """How many ranks stand behind each core member's partial sum as recursive doubling goes on."""

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = list(weights)
        self._core = 1 << (len(weights).bit_length() - 1)

    def fold(self, me: int, extra: int) -> tuple[int, int]:
        """Of `me` and of the member that folds into it, before the fold."""
        return self._weights[me], self._weights[extra]

    def all_folded(self) -> None:
        """Every member beyond the core has handed over."""
        for extra in range(self._core, len(self._weights)):
            self._weights[extra - self._core] += self._weights[extra]

    def pair(self, me: int, partner: int) -> tuple[int, int]:
        """Of the lower and of the higher of two partners, before they exchange."""
        return self._weights[min(me, partner)], self._weights[max(me, partner)]

    def doubled(self, mask: int) -> None:
        """All pairs that differ in bit `mask` have exchanged."""
        before = list(self._weights)
        for member in range(self._core):
            self._weights[member] = before[member] + before[member ^ mask]


def binomial_parent(members: int, me: int, root: int = 0) -> int | None:
    """The member above `me` in the binomial tree below `root`; None at the root."""
    relative = (me - root) % members
    if relative == 0:
        return None
    return ((relative & (relative - 1)) + root) % members


def binomial_children(members: int, me: int, root: int = 0) -> list[int]:
    """The members below `me`, nearest first; a reduction takes them in this order."""
    relative = (me - root) % members
    children = []
    mask = 1
    while relative & mask == 0 and mask < members:
        if relative + mask < members:
            children.append((relative + mask + root) % members)
        mask <<= 1
    return children

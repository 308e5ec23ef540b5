"""Collective algorithms among the members of a link, one piece of the tensor at a time.

Each works in place on `region`, which holds this member's contribution and, at the end, the result.
Received data lands in `scratch` or in `region`, both ours: a receive that has begun can't be called
back, so it must never point into a caller's tensor. M is the number of members, S the bytes of the
region.

| algorithm          | steps            | bytes sent per member     |
|--------------------|------------------|---------------------------|
| exchange (M = 2)   | 1                | S                         |
| ring               | 2 (M-1)          | 2 (M-1)/M S               |
| doubling           | log2 M (+2)      | log2 M S                  |
| tree               | 2 log2 M         | S, the root log2 M S      |
| naive              | 1                | (M-1) S                   |
| reduce_to          | M-1              | S, the owner none         |
| broadcast_from     | M-1 or log2 M    | S, the last none          |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hierring import _core, ring
from hierring.internode.link import Link
from hierring.internode.memory import Memory
from hierring.internode.progress import Task

__all__ = [
    "Combine",
    "broadcast_from",
    "doubling_allreduce",
    "exchange_allreduce",
    "naive_allreduce",
    "reduce_to",
    "ring_allreduce",
    "scratch_nbytes",
    "tree_allreduce",
    "tree_broadcast",
]


@dataclass(frozen=True)
class Combine:
    """How two partial results become one; the same on every member.

    Attributes:
        dtype: wire type code of both partial results and of their sum.
        op: reduction code.
        itemsize: bytes of one element.
        divisor: the finished sum is divided by it (1: not at all). In `mean` form unused.
        weights: ranks that each member's contribution stands for.
        mean: partial results are means of the ranks so far, combined by weight. Keeps an average
            that travels as float16 from overflowing.
        clock: books the additions as such, where they are not part of an exchange between nodes.
    """

    dtype: int
    op: int
    itemsize: int
    divisor: float
    weights: tuple[int, ...]
    mean: bool = False
    clock: _core.PhaseClock | None = None

    def __call__(
        self, dst: Memory, a: Memory, b: Memory, weight_a: int, weight_b: int, last: bool
    ) -> None:
        """dst = a op b, a being the side that comes first; dst may be a or b."""
        count = dst.nbytes // self.itemsize
        if not count:
            return
        if self.mean:
            self.timed(
                _core.reduce2, dst.address, self.dtype, a.address, b.address, count, self.op,
                float(weight_a), float(weight_b), float(weight_a + weight_b),
            )  # fmt: skip
        else:
            divisor = self.divisor if last else 1.0
            self.timed(
                _core.reduce2, dst.address, self.dtype, a.address, b.address, count, self.op,
                1.0, 1.0, divisor,
            )  # fmt: skip

    def timed(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Call a kernel of `_core`, on the clock if there is one."""
        if self.clock is None:
            kernel(*arguments)
            return
        before = self.clock.turn(_core.SPENT_REDUCE_SCATTER)
        kernel(*arguments)
        self.clock.turn(before)


def scratch_nbytes(algorithm: str, nbytes: int, members: int, itemsize: int) -> int:
    """Bytes of scratch an algorithm needs for a region of `nbytes`."""
    if algorithm == "ring":
        return ring.spans(nbytes // itemsize, members)[0][1] * itemsize
    if algorithm == "naive":
        return nbytes * (members - 1)
    return nbytes


def ring_allreduce(link: Link, region: Memory, scratch: Memory, combine: Combine) -> Task:
    """Reduce-scatter around the ring, then all-gather: 2 (M-1) steps of S/M bytes."""
    me, members = link.me, link.size
    prev, next_ = (me - 1) % members, (me + 1) % members
    size = combine.itemsize
    chunks = [
        region.part(first * size, count * size)
        for first, count in ring.spans(region.nbytes // size, members)
    ]
    weights = list(combine.weights)
    for step, (out, into) in enumerate(ring.reduce_scatter_steps(members, me)):
        arrived = scratch.part(0, chunks[into].nbytes)
        yield link.recv(prev, arrived) + link.send(next_, chunks[out])
        before = ring.weights_before(weights, me, step)
        combine(chunks[into], arrived, chunks[into], before, weights[me], step == members - 2)
    for out, into in ring.allgather_steps(members, me):
        yield link.recv(prev, chunks[into]) + link.send(next_, chunks[out])


def exchange_allreduce(link: Link, region: Memory, scratch: Memory, combine: Combine) -> Task:
    """Two members: swap everything, both add in member order, so both get the same bits."""
    arrived = scratch.part(0, region.nbytes)
    yield link.recv(1 - link.me, arrived) + link.send(1 - link.me, region)
    first, second = (region, arrived) if link.me == 0 else (arrived, region)
    combine(region, first, second, combine.weights[0], combine.weights[1], last=True)


def doubling_allreduce(link: Link, region: Memory, scratch: Memory, combine: Combine) -> Task:
    """Recursive doubling; both sides of an exchange add the same two, lower member first."""
    me, plan = link.me, ring.doubling(link.size, link.me)
    arrived = scratch.part(0, region.nbytes)
    if plan.folds_to is not None:
        yield link.send(plan.folds_to, region)
        yield link.recv(plan.folds_to, region)
        return
    covers = ring.Covers(combine.weights)
    if plan.folded is not None:
        yield link.recv(plan.folded, arrived)
        last = not plan.partners
        combine(region, region, arrived, *covers.fold(me, plan.folded), last)
    covers.all_folded()
    for partner in plan.partners:
        yield link.recv(partner, arrived) + link.send(partner, region)
        first, second = (region, arrived) if me < partner else (arrived, region)
        combine(region, first, second, *covers.pair(me, partner), partner == plan.partners[-1])
        covers.doubled(me ^ partner)
    if plan.folded is not None:
        yield link.send(plan.folded, region)


def tree_allreduce(link: Link, region: Memory, scratch: Memory, combine: Combine) -> Task:
    """Reduce up a binomial tree to member 0, then broadcast down it."""
    me, members = link.me, link.size
    arrived = scratch.part(0, region.nbytes)
    covers = _subtree_weights(combine.weights)
    mine = combine.weights[me]
    children = ring.binomial_children(members, me)
    for child in children:
        yield link.recv(child, arrived)
        last = me == 0 and child == children[-1]
        combine(region, region, arrived, mine, covers[child], last)
        mine += covers[child]
    parent = ring.binomial_parent(members, me)
    if parent is not None:
        yield link.send(parent, region)
    yield from tree_broadcast(link, region, root=0)


def _subtree_weights(weights: Sequence[int]) -> list[int]:
    """Ranks behind each member's whole binomial subtree below member 0."""
    covers = list(weights)
    for member in range(len(weights) - 1, 0, -1):
        parent = ring.binomial_parent(len(weights), member)
        assert parent is not None
        covers[parent] += covers[member]
    return covers


def tree_broadcast(link: Link, region: Memory, root: int) -> Task:
    """Down the binomial tree below `root`, the deepest subtree first."""
    parent = ring.binomial_parent(link.size, link.me, root)
    if parent is not None:
        yield link.recv(parent, region)
    children = ring.binomial_children(link.size, link.me, root)
    yield [request for child in reversed(children) for request in link.send(child, region)]


def naive_allreduce(link: Link, region: Memory, scratch: Memory, combine: Combine) -> Task:
    """Everyone sends everything to everyone; each adds all contributions in member order."""
    me, nbytes = link.me, region.nbytes
    others = [member for member in range(link.size) if member != me]
    slots = [scratch.part(at * nbytes, nbytes) for at in range(len(others))]
    requests = []
    for member, slot in zip(others, slots, strict=True):
        requests += link.recv(member, slot)
    for member in others:
        requests += link.send(member, region)
    yield requests
    sources = [(slot.address, combine.dtype) for slot in slots]
    sources.insert(me, (region.address, combine.dtype))
    count = nbytes // combine.itemsize
    if not count:
        return
    total = float(sum(combine.weights))
    scales = [float(weight) for weight in combine.weights] if combine.mean else None
    divisor = total if combine.mean else combine.divisor
    combine.timed(
        _core.reduce, region.address, combine.dtype, sources, count, combine.op, scales, divisor
    )


def reduce_to(link: Link, region: Memory, scratch: Memory, combine: Combine, owner: int) -> Task:
    """Along the chain that ends at `owner`, whose region then holds the result."""
    me, members = link.me, link.size
    position = (me - owner - 1) % members
    if position > 0:
        arrived = scratch.part(0, region.nbytes)
        yield link.recv((me - 1) % members, arrived)
        before = ring.weights_before(list(combine.weights), me, position - 1)
        last = position == members - 1
        combine(region, arrived, region, before, combine.weights[me], last)
    if position < members - 1:
        yield link.send((me + 1) % members, region)


def broadcast_from(link: Link, region: Memory, owner: int) -> Task:
    """Along the chain that begins at `owner`: every link carries the piece once, pieces overlap."""
    me, members = link.me, link.size
    position = (me - owner) % members
    if position > 0:
        yield link.recv((me - 1) % members, region)
    if position < members - 1:
        yield link.send((me + 1) % members, region)

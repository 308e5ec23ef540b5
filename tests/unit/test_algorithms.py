"""Algorithms between nodes, run by members of one process over a network of queues."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hierring.dtypes import DType, Op
from hierring.internode import algorithms, opening
from hierring.internode.algorithms import Combine
from hierring.internode.memory import Memory, allocate
from hierring.ring import spans

MEMBERS = [2, 3, 4, 5, 6, 8]
COUNTS = [1, 2, 3, 7, 64, 1000, 1013]


class Queues:
    """What is under way between two members, in order."""

    def __init__(self) -> None:
        self.under_way: dict[tuple[int, int], deque[bytes]] = defaultdict(deque)


class Link:
    """Stands in for internode.link.Link: a send is complete at once, a receive when it has data."""

    def __init__(self, queues: Queues, size: int, me: int) -> None:
        self.size = size
        self.me = me
        self.members = list(range(size))
        self.tag = 0
        self.sent = 0
        self.messages = 0
        self._queues = queues
        self.counters = type("Counters", (), {"headers": 0, "between_nodes": 0})()

    def send(self, member: int, memory: Memory) -> list[Any]:
        self._queues.under_way[self.me, member].append(bytes(memory.view))
        self.sent += memory.nbytes
        self.messages += 1
        return []

    def recv(self, member: int, memory: Memory) -> list[Any]:
        return [(self._queues.under_way[member, self.me], memory)]


def drive(tasks: list[Any]) -> None:
    """Run all tasks to their ends; fail if none can go on."""
    waiting: dict[int, list[Any]] = {index: [] for index in range(len(tasks))}
    while waiting:
        moved = False
        for index in list(waiting):
            while waiting[index] and waiting[index][0][0]:
                queue, memory = waiting[index].pop(0)
                data = queue.popleft()
                memory.view[: len(data)] = data
                moved = True
            if not waiting[index]:
                moved = True
                try:
                    waiting[index] = list(next(tasks[index]))
                except StopIteration:
                    del waiting[index]
        assert moved, "deadlock"


def run(
    make: Callable[..., Any], name: str, members: int, count: int, **how: Any
) -> tuple[list[np.ndarray], list[Link], np.ndarray]:
    """Every member's region afterwards, the links, and the exact result."""
    dtype, divisor = how.pop("dtype", np.float64), how.pop("divisor", 1.0)
    mean, weights = how.pop("mean", False), how.pop("weights", (1,) * members)
    rng = np.random.default_rng(members * 10007 + count)
    values = rng.integers(-50, 50, (members, count)).astype(dtype)
    code = {np.float64: DType.FLOAT64, np.float16: DType.FLOAT16, np.int32: DType.INT32}[dtype]
    queues = Queues()
    combine = Combine(code, Op.SUM, values.itemsize, divisor, tuple(weights), mean)
    links, tasks, regions = [], [], []
    for me in range(members):
        link = Link(queues, members, me)
        region = allocate(values[me].nbytes)
        region.view[:] = values[me].tobytes()
        need = algorithms.scratch_nbytes(name, region.nbytes, members, values.itemsize)
        tasks.append(make(link, region, allocate(need), combine, **how))
        links.append(link)
        regions.append(region)
    drive(tasks)
    results = [np.frombuffer(region.view, dtype) for region in regions]
    exact = np.einsum("mi,m->i", values.astype(np.float64), np.array(weights, float))
    return results, links, exact if mean else values.astype(np.float64).sum(0)


ALLREDUCES = [
    ("ring", algorithms.ring_allreduce),
    ("doubling", algorithms.doubling_allreduce),
    ("tree", algorithms.tree_allreduce),
    ("naive", algorithms.naive_allreduce),
]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize(("name", "make"), ALLREDUCES)
def test_allreduce_is_exact_and_sends_what_the_formula_says(
    name: str, make: Callable[..., Any], members: int, count: int
) -> None:
    results, links, exact = run(make, name, members, count, divisor=4.0)
    for result in results:
        np.testing.assert_array_equal(result, exact / 4.0)
    nbytes = count * 8
    total = sum(link.sent for link in links)
    if name == "ring":
        assert total == 2 * (members - 1) * nbytes
        chunk = spans(count, members)[0][1] * 8
        for link in links:
            assert abs(link.sent - 2 * (members - 1) / members * nbytes) <= 2 * chunk
    elif name == "tree":
        assert total == 2 * (members - 1) * nbytes
    elif name == "naive":
        assert total == members * (members - 1) * nbytes


@pytest.mark.parametrize("count", COUNTS)
def test_exchange_gives_both_the_same(count: int) -> None:
    results, links, exact = run(algorithms.exchange_allreduce, "exchange", 2, count, divisor=2.0)
    for result in results:
        np.testing.assert_array_equal(result, exact / 2.0)
    assert [link.sent for link in links] == [count * 8, count * 8]


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize(("name", "make"), ALLREDUCES)
def test_means_so_far_combine_by_weight_without_overflow(
    name: str, make: Callable[..., Any], members: int
) -> None:
    """Each member holds the float16 mean of `weight` ranks near the largest float16."""
    weights = tuple(1 + me % 3 for me in range(members))
    queues = Queues()
    combine = Combine(DType.FLOAT16, Op.SUM, 2, 1.0, weights, True)
    values = np.linspace(60000, 65504, members).astype(np.float16)
    regions, tasks = [], []
    for me in range(members):
        region = allocate(2 * members)
        region.view[:] = np.full(members, values[me]).tobytes()
        scratch = allocate(algorithms.scratch_nbytes(name, 2 * members, members, 2))
        tasks.append(make(Link(queues, members, me), region, scratch, combine))
        regions.append(region)
    drive(tasks)
    expected = np.average(values.astype(np.float64), weights=weights)
    for region in regions:
        got = np.frombuffer(region.view, np.float16).astype(np.float64)
        np.testing.assert_allclose(got, expected, rtol=members * 2**-11)
        assert bytes(region.view) == bytes(regions[0].view)


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("owner", [0, 1])
def test_chains_reduce_to_and_broadcast_from_an_owner(members: int, owner: int) -> None:
    results, links, exact = run(
        algorithms.reduce_to, "reduce_to", members, 100, dtype=np.int32, owner=owner
    )
    np.testing.assert_array_equal(results[owner], exact)
    assert sum(link.sent for link in links) == (members - 1) * 400

    queues = Queues()
    regions = [allocate(16) for _ in range(members)]
    for me, region in enumerate(regions):
        region.view[:] = bytes([me] * 16)
    drive(
        [
            algorithms.broadcast_from(Link(queues, members, me), regions[me], owner)
            for me in range(members)
        ]
    )
    assert all(bytes(region.view) == bytes([owner] * 16) for region in regions)


@pytest.mark.parametrize("members", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("differing", [(), (0,), (1,), (1, 3), (2, 4, 6)])
def test_opening_gives_every_node_the_lowest_pair_that_differs(
    members: int, differing: tuple[int, ...]
) -> None:
    """Leaders of nodes of one rank each; the ranks in `differing` call something else."""
    claims = [
        opening.Claim(me, 7 + (me in differing), b"other" if me in differing else b"same")
        for me in range(members)
    ]
    queues = Queues()
    combine = Combine(DType.FLOAT64, Op.SUM, 8, 1.0, (1,) * members)
    rounds, tasks = [], []
    for me in range(members):
        part = opening.Opening(Link(queues, members, me), 64)  # type: ignore[arg-type]
        part.payload.view[:16] = np.array([me + 1.0, 2.0 * me]).tobytes()
        tasks.append(part.run(opening.State(claims[me], None), 16, combine, tag=2))
        rounds.append(part)
    drive(tasks)
    others = [me for me in range(members) if claims[me].digest != claims[0].digest]
    for part in rounds:
        assert part.state is not None
        assert part.state.low == claims[0]
        assert part.state.other == (claims[others[0]] if others else None)
        if not others:
            sums = np.frombuffer(part.payload.view[:16], np.float64)
            expected = [members * (members + 1) / 2, members * (members - 1.0)]
            np.testing.assert_array_equal(sums, expected)

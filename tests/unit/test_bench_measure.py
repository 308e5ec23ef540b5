"""How a row is measured, with threads as ranks and a stand-in for the library."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from hierring._testing.machines import fake_facts
from hierring.benchmarks import cases
from hierring.benchmarks.bounds import bounds_of
from hierring.benchmarks.contenders import Contender, Hierring
from hierring.benchmarks.measure import Clock, measure
from hierring.benchmarks.plan import Point
from hierring.config import Config
from hierring.dtypes import DType
from hierring.topology import Topology

SIZE, COUNT = 3, 10_000
WAIT_S = 20.0


class World:
    """What the threads share: a meeting point and a table."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(SIZE)
        self.table: list[Any] = [None] * SIZE

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.table[rank] = value
        self.meeting.wait(WAIT_S)
        found = list(self.table)
        self.meeting.wait(WAIT_S)
        return found


class Control:
    """One thread's communicator, as far as the benchmark asks."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.me, self.config = world, rank, Config(timeout_s=60)

    def rank(self) -> int:
        return self.me

    def size(self) -> int:
        return SIZE

    def get_topology(self) -> Topology:
        facts = [fake_facts(rank) for rank in range(SIZE)]
        return Topology.build(self.me, facts, [range(SIZE)])

    def barrier(self) -> None:
        self.world.meeting.wait(WAIT_S)

    def allgather(self, x: Any) -> Any:
        return np.concatenate(self.world.exchange(self.me, x))

    def broadcast(self, x: Any) -> Any:
        return self.world.exchange(self.me, x)[0]


@dataclass
class Adding(Contender):
    """Adds in plain NumPy; `before` and `after` are called with the number of the call."""

    world: World | None = None
    rank: int = 0
    before: Callable[[int, int], None] = lambda rank, call: None
    after: Callable[[int, int, Any], None] = lambda rank, call, result: None
    calls: Any = field(default_factory=itertools.count)

    def refusal(self, point: Point, in_place: bool) -> str:
        return ""

    def call(self, point: Point, x: Any, out: Any) -> Callable[[], Any]:
        def run() -> None:
            number = next(self.calls)
            self.before(self.rank, number)
            parts = self.world.exchange(self.rank, x.copy())
            result = x if out is None else out
            result[:] = sum(parts)
            self.after(self.rank, number, result)

        return run


def on_all_ranks(
    *, before=None, after=None, in_place=False, warmup=1, iterations=5, check=True, limit=None
):
    """Measure one row with a thread for each rank; returns what each of them found."""
    world = World()

    def rank(me: int) -> Any:
        control: Any = Control(world, me)
        who = Adding("stand-in", world=world, rank=me)
        who.before, who.after = before or who.before, after or who.after
        point = Point("allreduce", DType.FLOAT32, "sum", COUNT)
        return measure(
            control, point, [(who, in_place)], warmup=warmup, iterations=iterations, check=check,
            clock=Clock(control, limit),
        )[0]  # fmt: skip

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(rank, range(SIZE)))


@pytest.mark.parametrize("in_place", [False, True])
def test_all_ranks_hold_the_same_figures(in_place):
    results = on_all_ranks(in_place=in_place)
    first = results[0]
    assert first.seconds.shape == (SIZE, 5)
    assert (first.seconds > 0).all()
    for other in results[1:]:
        assert (other.seconds == first.seconds).all()
    assert [one.wrong for one in results] == [0, 0, 0]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("call", [0, 3])
def test_one_wrong_element_on_one_rank_is_counted(in_place, call):
    """Also of a call before the timed ones."""

    def corrupt(rank, number, result):
        if (rank, number) == (1, call):
            result[COUNT // 2] += 1

    results = on_all_ranks(after=corrupt, in_place=in_place)
    assert [one.wrong for one in results] == [1, 1, 1]


def test_a_result_that_was_not_written_is_wrong():
    def lose(rank, number, result):
        if rank == 2:
            result[:100] = np.nan

    assert on_all_ranks(after=lose)[0].wrong == 100 * 6


def test_without_a_check_nothing_is_known():
    assert on_all_ranks(check=False)[0].wrong is None


def test_input_is_the_same_before_every_call():
    """In place it would grow with every call otherwise."""
    assert on_all_ranks(in_place=True, iterations=200, warmup=0)[0].wrong == 0


def test_a_call_takes_as_long_as_on_its_slowest_rank():
    def linger(rank, number, result):
        if rank == 2:
            time.sleep(0.05)

    measured = on_all_ranks(after=linger)[0]
    assert min(cases.longest(measured)) >= 0.05
    assert np.median(measured.seconds[0]) < 0.05


def test_of_a_peer_the_ranks_with_short_calls_count_as_late():
    def linger(rank, number, result):
        if rank == 2:
            time.sleep(0.05)

    late = np.median(on_all_ranks(after=linger)[0].late, axis=1)
    assert late[2] == 0
    assert late[0] > 0.03
    assert late[1] > 0.03


def test_one_slow_call_does_not_move_the_median():
    def stumble(rank, number):
        if (rank, number) == (0, 1):  # the first timed one
            time.sleep(1.0)

    times = cases.metrics.times_of(cases.longest(on_all_ranks(before=stumble, iterations=9)[0]))
    assert times.max >= 1.0
    assert times.median < 0.1


def test_time_that_is_up_ends_the_turns_on_all_ranks_alike():
    shapes = {one.seconds.shape for one in on_all_ranks(iterations=1000, limit=1e-9)}
    assert shapes == {(SIZE, 1)}, "one call each is made in any case"


def test_a_case_holds_what_was_measured():
    measured = on_all_ranks()[0]
    topology = Control(World(), 0).get_topology()
    median = cases.median_of(measured)
    limits = bounds_of("allreduce", 4 * COUNT, median / 4, None, median, 1)
    case = cases.make_case(measured, None, limits, topology, Config())
    assert case.algbw * 1e9 == pytest.approx(case.nbytes / case.times.median)
    assert case.busbw == pytest.approx(case.algbw * 4 / 3)
    assert case.intra_busbw == case.busbw
    assert case.inter_busbw is None
    assert case.bounds.percent == pytest.approx(25)
    assert (case.iterations, case.wrong, case.tolerance) == (5, 0, 0.0)
    assert [rank.rank for rank in case.ranks] == [0, 1, 2]
    assert all(rank.lateness >= 0 and rank.phases is None for rank in case.ranks)


@pytest.mark.parametrize(
    ("asked", "configured", "passed"),
    [("auto", "auto", None), ("ring", "auto", "ring"), ("auto", "ring", "auto")],
)
def test_an_algorithm_is_passed_on_only_where_it_is_not_the_default(asked, configured, passed):
    """A call with defaults takes a shorter way, which is the one that programs take."""
    heard = []

    class Communicator:
        config = Config(algorithm=configured)

        def allreduce(self, x: Any, op: str, **arguments: Any) -> None:
            heard.append((op, arguments["algorithm"]))

    point = Point("allreduce", DType.FLOAT64, "max", 3)
    who = Hierring("hierring", asked, comm=Communicator())  # type: ignore[arg-type]
    who.call(point, np.zeros(3), None)()
    assert heard == [("max", passed)]

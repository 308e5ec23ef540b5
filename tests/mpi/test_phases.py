"""Where the time inside collectives goes: it adds up, and lands on what the rank really did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks, expected_nodes
from hierring.communicator import PhaseTimes, Statistics
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
NODES = expected_nodes(SIZE)
NUM_NODES = len(NODES)
MINE = next(ranks for ranks in NODES if RANK in ranks)
COUNT = 65_536
#: Long against what a call of this size takes, however few cores there are.
LATE_S = 0.4
WAITS = {"wait_arrival", "wait_verdict", "wait_peer"}

CALLS: dict[str, Callable[[hr.Communicator], object]] = {
    "barrier": lambda comm: comm.barrier(),
    "small": lambda comm: comm.allreduce(np.ones(8, "float32")),
    "hierarchical": lambda comm: comm.allreduce(np.ones(COUNT, "float32")),
    "ring": lambda comm: comm.allreduce(np.ones(COUNT, "float32"), algorithm="ring"),
    "tree": lambda comm: comm.allreduce(np.ones(COUNT, "float32"), algorithm="tree"),
    "naive": lambda comm: comm.allreduce(np.ones(COUNT, "float32"), algorithm="naive"),
    "broadcast": lambda comm: comm.broadcast(np.ones(COUNT, "float32")),
    "allgather": lambda comm: comm.allgather(np.ones(COUNT, "float32")),
    "reduce_scatter": lambda comm: comm.reduce_scatter(np.ones(COUNT * SIZE, "float32")),
    "coalesced": lambda comm: comm.allreduce_coalesced([np.ones(COUNT), np.ones(COUNT, "int32")]),
}


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    config = Config.from_env(timeout_s=60, init_timeout_s=20)
    with hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        yield handle


@pytest.fixture(scope="module")
def control() -> Iterator[MPI.Comm]:
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


def spent(comm: hr.Communicator, call: Callable[[hr.Communicator], object]) -> Statistics:
    """What one call adds to the statistics."""
    before = comm.statistics()
    call(comm)
    return comm.statistics() - before


def nonzero(times: PhaseTimes) -> set[str]:
    return {name for name, seconds in asdict(times).items() if seconds} - {"total"}


def meet(control: MPI.Comm) -> None:
    """A barrier that sleeps while it waits, so that the ranks still at work have the cores."""
    request = control.Ibarrier()
    while not request.Test():
        time.sleep(0.002)


@pytest.mark.parametrize("name", CALLS)
def test_phases_add_up(comm: hr.Communicator, name: str) -> None:
    CALLS[name](comm)
    begin = time.monotonic()
    times = spent(comm, CALLS[name]).phases
    wall = time.monotonic() - begin
    parts = sum(seconds for phase, seconds in asdict(times).items() if phase != "total")
    with Checks() as check:
        check.true(abs(parts - times.total) <= 1e-9 * times.total, f"{parts} of {times}")
        check.true(0 < times.total <= wall, f"{times.total} inside {wall}")
        check.true(all(seconds >= 0 for seconds in asdict(times).values()), f"{times}")


def test_phases_are_what_the_algorithm_does(comm: hr.Communicator) -> None:
    """No phase that a call does not have, and none missing that it must have."""
    network = {"inter_node"} if NUM_NODES > 1 else set()
    staged = {"stage"} if len(MINE) > 1 else set()
    flat = {"inter_node", "reduce_scatter"} if SIZE > 1 else {"reduce_scatter"}
    node = {"stage", "reduce_scatter", "allgather"}
    must = {
        "barrier": set(),
        "small": set(),
        "hierarchical": staged | {"reduce_scatter"},
        "ring": flat,
        "tree": flat if RANK == 0 else set(),
        "naive": flat,
        "allgather": {"stage", "allgather"},
        "reduce_scatter": staged | {"reduce_scatter"},
    }
    may = {
        "hierarchical": node | network,
        "ring": flat | {"stage", "allgather"},
        "tree": flat | {"stage", "allgather"},
        "naive": flat | {"stage", "allgather"},
        "allgather": {"stage", "allgather"} | network,
        "reduce_scatter": node | network,
    }
    with Checks() as check:
        for name, needed in must.items():
            found = nonzero(spent(comm, CALLS[name]).phases) - WAITS - {"other"}
            allowed = needed | may.get(name, set())
            check.true(needed <= found <= allowed, f"{name}: {found}, {needed} to {allowed}")
        times = spent(comm, CALLS["hierarchical"]).phases
        if NUM_NODES == 1:
            check.true(times.wait_verdict == 0, f"one node needs no opening round: {times}")
        elif MINE[0] == RANK:
            check.true(times.inter_node > 0, f"a leader exchanges: {times}")


@pytest.mark.world(*range(2, 65))
@pytest.mark.parametrize(
    ("name", "late"),
    [("barrier", SIZE - 1), ("small", 0), ("hierarchical", SIZE - 1), ("ring", 0)],
    ids=["barrier-last", "small-first", "hierarchical-last", "ring-first"],  # whatever the size
)
def test_a_late_rank_is_waited_for(
    comm: hr.Communicator, control: MPI.Comm, name: str, late: int
) -> None:
    """The others find it in their waits for arrival, and in nothing else."""
    CALLS[name](comm)
    control.Barrier()
    if late == RANK:
        for rank in range(SIZE):
            if rank != late:
                control.recv(source=rank)  # it is about to enter
        until = time.monotonic() + LATE_S
        while time.monotonic() < until:
            time.sleep(0.01)
        mine = spent(comm, CALLS[name])
    else:
        request = control.isend(None, dest=late)
        mine = spent(comm, CALLS[name])
        request.wait()
    waited = mine.phases.wait_arrival + mine.phases.wait_verdict
    rest = mine.phases.total - waited
    with Checks() as check:
        check.true(rest < LATE_S / 2, f"no phase but the waits is longer: {mine.phases}")
        if late == RANK:
            check.true(waited < LATE_S / 2, f"the late one waits for nobody: {mine.phases}")
        else:
            check.true(waited > LATE_S / 2, f"{mine.phases}")
            if late in MINE and (NUM_NODES == 1 or MINE[0] == RANK):
                blamed = mine.waited_for.get(late, 0.0)
                check.true(blamed > LATE_S / 2, f"not blamed: {mine.waited_for}")
        others = {rank: seconds for rank, seconds in mine.waited_for.items() if rank != late}
        check.true(sum(others.values()) < LATE_S / 2, f"innocent ranks: {others}")


def test_algorithms_are_counted(comm: hr.Communicator) -> None:
    names = {
        "barrier": {},
        "small": {"small": 1},
        "hierarchical": {"hierarchical": 1},
        "tree": {"tree": 1},
        "allgather": {"hierarchical": 1},
        "coalesced": {"hierarchical": 2},
    }
    with Checks() as check:
        for name, wanted in names.items():
            found = spent(comm, CALLS[name]).algorithms
            check.true(found == wanted, f"{name}: {found}, expected {wanted}")


@pytest.mark.world(*range(2, 65))
def test_counting_goes_on_after_a_break(control: MPI.Comm) -> None:
    """A call that failed has taken its time; a new generation adds to the old one's numbers."""
    config = Config.from_env(timeout_s=0.3, init_timeout_s=20)
    comm = hr.Communicator(MPI.COMM_WORLD, config=config)
    CALLS["hierarchical"](comm)
    before = comm.statistics()
    with Checks() as check:
        if RANK != 0:
            check.raises(hr.CollectiveTimeoutError, comm.barrier, "rank 0 does not come")
            lost = (comm.statistics() - before).phases
            check.true(lost.wait > 0.25, f"a wait that ended badly: {lost}")
        meet(control)
        comm.rebuild()
        CALLS["hierarchical"](comm)
        between = comm.statistics() - before
        check.true(between.algorithms == {"hierarchical": 1}, f"{between}")
        check.true(between.bytes_shared_memory == before.bytes_shared_memory, f"{between}")
        parts = sum(asdict(between.phases).values()) - between.phases.total
        check.true(abs(parts - between.phases.total) <= 1e-9, f"{between.phases}")
        comm.close()

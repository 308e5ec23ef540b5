"""Broken communicators: timeouts and Ctrl-C, what every rank is told, and the way back.

The ranks coordinate over a duplicate of COMM_WORLD, so "late" means "not before the others have
raised" and never a length of sleep.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks, expected_nodes
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
TOTAL = SIZE * (SIZE + 1) // 2
DEADLINE_S = 0.3
HEARING_S = 1.0  # at the deadline a rank hears the others for so long at most
SLACK_S = 1.0  # of a machine with fewer cores than ranks

pytestmark = pytest.mark.world(*range(2, 65))  # someone must be waited for


@pytest.fixture
def comm() -> Iterator[hr.Communicator]:
    config = Config.from_env(timeout_s=20, init_timeout_s=20, cell_bytes=4096, small_bytes=256)
    handle = hr.Communicator(MPI.COMM_WORLD, config=config)
    yield handle
    handle.close()


@pytest.fixture(scope="module")
def control() -> Iterator[MPI.Comm]:
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


def meet(control: MPI.Comm) -> None:
    """A barrier that sleeps while it waits, so that the ranks still at work have the cores."""
    request = control.Ibarrier()
    while not request.Test():
        time.sleep(0.002)


def works(check: Checks, comm: hr.Communicator, label: str) -> None:
    for count in (3, 5000):
        x = np.full(count, RANK + 1, "int64")
        comm.allreduce(x)
        check.equal(x, np.full(count, TOTAL), f"{label}, count {count}")


def broken_until_rebuild(check: Checks, comm: hr.Communicator, kinds: type[BaseException]) -> None:
    """Every kind of call raises the first cause at once, and touches nothing."""
    calls: dict[str, Callable[[], object]] = {
        "allreduce": lambda: comm.allreduce(x),
        "barrier": comm.barrier,
        "broadcast": lambda: comm.broadcast(x),
        "split": lambda: comm.split(0),
    }
    for name, call in calls.items():
        x = np.full(4, RANK)
        began = time.monotonic()
        check.raises(kinds, call, f"{name} on a broken communicator")
        took = time.monotonic() - began
        check.true(took < DEADLINE_S, f"{name} raises at once, took {took:.2f} s")
        check.equal(x, np.full(4, RANK), f"{name}: untouched")


def let_one_be_late(
    check: Checks,
    comm: hr.Communicator,
    control: MPI.Comm,
    late: int,
    call: Callable[[], object],
) -> list[int]:
    """All but one rank call; when they have raised, the late rank comes and is told the same.

    Unless it is alone on its node and finds all it needs already sent: then its call may complete.
    Returns how many operations the call completed on each rank.
    """
    alone = [late] in expected_nodes(SIZE)
    completed = 0
    began = time.monotonic()
    if late != RANK:
        error = check.raises(hr.CollectiveTimeoutError, call, "a rank in time")
        took = time.monotonic() - began
        limit = DEADLINE_S + HEARING_S + SLACK_S
        # Not before the deadline of the first that came, nor long after this rank's own.
        check.true(DEADLINE_S / 2 < took < limit, f"raised after {took:.2f} s")
        check.true(isinstance(error, TimeoutError), "is a TimeoutError")
        missing = getattr(error, "missing_ranks", None)
        check.true(missing == (late,), f"missing_ranks {missing}, late is {late}: {error}")
        check.true(f"rank {late}" in str(error), f"names rank {late}: {error}")
    meet(control)
    if late == RANK:
        began = time.monotonic()
        try:
            call()
            completed = 1
        except hr.CollectiveTimeoutError:
            pass
        took = time.monotonic() - began
        check.true(took < DEADLINE_S + SLACK_S, f"the late rank took {took:.2f} s")
        check.true(alone or not completed, "the late rank is told")
    meet(control)
    return list(control.allgather(completed))


@pytest.mark.parametrize("late", [0, SIZE - 1], ids=["first", "last"])
def test_a_late_rank(comm: hr.Communicator, control: MPI.Comm, late: int) -> None:
    with Checks() as check:
        works(check, comm, "before")
        x = np.full(3, float(RANK))
        out = np.zeros(3)
        more = let_one_be_late(
            check, comm, control, late, lambda: comm.allreduce(x, out=out, timeout=DEADLINE_S)
        )
        if more[RANK]:
            check.equal(out, np.full(3, float(TOTAL - SIZE)), "a completed operation is right")
        check.equal(x, np.full(3, float(RANK)), "x is untouched where out= was given")
        broken_until_rebuild(check, comm, hr.CollectiveTimeoutError)
        counts = comm.rebuild(timeout=20)
        check.true(list(counts) == [2 + n for n in more], f"completed operations {counts}, {more}")
        works(check, comm, "after rebuild")


def test_a_late_rank_in_a_large_call(comm: hr.Communicator, control: MPI.Comm) -> None:
    """The deadline may also be a timedelta, and come from the settings of the communicator."""
    late = SIZE // 2
    with Checks() as check:
        x, out = np.full(70_000, float(RANK)), np.zeros(70_000)
        timeout = timedelta(seconds=DEADLINE_S)
        more = let_one_be_late(
            check, comm, control, late, lambda: comm.allreduce(x, out=out, timeout=timeout)
        )
        check.equal(x, np.full(70_000, float(RANK)), "x is untouched where out= was given")
        counts = comm.rebuild(timeout=20)
        check.true(list(counts) == more, f"completed operations {counts}, {more}")
        works(check, comm, "after rebuild")


def test_a_late_rank_in_a_flat_algorithm(comm: hr.Communicator, control: MPI.Comm) -> None:
    with Checks() as check:
        x = np.full(20_000, float(RANK))
        let_one_be_late(
            check,
            comm,
            control,
            SIZE - 1,
            lambda: comm.allreduce(x, algorithm="ring", timeout=DEADLINE_S),
        )
        comm.rebuild(timeout=20)
        works(check, comm, "after rebuild")


def test_ranks_that_differ_in_what_they_completed(comm: hr.Communicator, control: MPI.Comm) -> None:
    """`rebuild` tells how far each rank came, so that all can go on from the same call."""
    late = 0
    done = 0
    with Checks() as check:
        for _ in range(4):
            comm.allreduce(1)
            done += 1
        if late != RANK:
            check.raises(
                hr.CollectiveTimeoutError, lambda: comm.allreduce(1, timeout=DEADLINE_S), "late"
            )
        meet(control)
        counts = list(comm.rebuild(timeout=20))  # the late rank never made the call
        check.true(counts == [done] * SIZE, f"completed operations {counts}, expected {done} each")
        works(check, comm, "after rebuild")


def test_rebuild_of_a_sound_communicator(comm: hr.Communicator) -> None:
    with Checks() as check:
        works(check, comm, "before")
        check.true(list(comm.rebuild(timeout=20)) == [2] * SIZE, "counts")
        works(check, comm, "after")


def test_a_break_leaves_other_communicators_alone(comm: hr.Communicator, control: MPI.Comm) -> None:
    with Checks() as check, hr.Communicator(MPI.COMM_WORLD) as other:
        let_one_be_late(
            check, comm, control, 0, lambda: comm.allreduce(np.ones(2), timeout=DEADLINE_S)
        )
        works(check, other, "another communicator")
        comm.rebuild(timeout=20)


@pytest.mark.parametrize("victim", [0, SIZE - 1], ids=["first", "last"])
@pytest.mark.parametrize("count", [3, 20_000])
def test_ctrl_c_inside_a_call(
    comm: hr.Communicator, control: MPI.Comm, victim: int, count: int
) -> None:
    """KeyboardInterrupt where it was pressed; the others raise at once and know whose it was."""
    late = (victim + 1) % SIZE  # has not come yet: without the signal all would wait for it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Checks() as check:
            works(check, comm, "before")
            meet(control)
            x = np.full(count, float(RANK))
            out = np.zeros(count)
            if victim == RANK:
                timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                check.raises(KeyboardInterrupt, lambda: comm.allreduce(x, out=out), "the victim")
                timer.join()
                meet(control)
            else:
                if late == RANK:
                    meet(control)
                began = time.monotonic()
                error: BaseException | None = None
                try:
                    comm.allreduce(x, out=out)
                except hr.HierringError as caught:
                    error = caught
                took = time.monotonic() - began
                check.true(took < 5, f"raised after {took:.2f} s")
                if error is None:  # it came late, alone on its node, and found all it needs
                    check.true([RANK] in expected_nodes(SIZE) and late == RANK, "others are told")
                    check.equal(out, np.full(count, float(TOTAL - SIZE)), "then it is right")
                else:
                    check.true(f"rank {victim}" in str(error), f"names rank {victim}: {error}")
                if late != RANK:
                    meet(control)
            check.equal(x, np.full(count, float(RANK)), "x is untouched where out= was given")
            meet(control)
            error = check.raises(hr.HierringError, comm.barrier, "a later call")
            check.true(f"rank {victim}" in str(error), f"names rank {victim}: {error}")
            comm.rebuild(timeout=20)
            works(check, comm, "after rebuild")
    finally:
        signal.signal(signal.SIGINT, before)


def test_closing_a_broken_communicator(control: MPI.Comm) -> None:
    """`close` of a broken communicator waits for nobody."""
    with Checks() as check:
        handle = hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(timeout_s=DEADLINE_S))
        more = let_one_be_late(check, handle, control, SIZE - 1, handle.barrier)
        if more[RANK]:  # this rank learns of the break by closing
            with contextlib.suppress(hr.CollectiveTimeoutError):
                handle.close()
        for turn in range(2 * SIZE):  # one rank after the other, and each of them twice
            if turn // 2 == RANK:
                began = time.monotonic()
                handle.close()
                check.true(time.monotonic() - began < 1.0, "close returns at once")
            meet(control)
        check.raises(hr.HierringError, handle.barrier, "closed")


def test_a_warning_names_the_missing_rank(
    control: MPI.Comm, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    """After `warn_after_s` a waiting rank says whom it waits for, and goes on waiting."""
    late = SIZE - 1
    config = Config.from_env(timeout_s=20, warn_after_s=0.2)
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hierring").addHandler(handler)
    try:
        with Checks() as check, hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
            meet(control)
            if late == RANK:
                time.sleep(0.8)
            check.true(handle.allreduce(1) == SIZE, "the call completes")
            err = capfd.readouterr().err
            said = err + "".join(str(w.message) for w in recwarn.list) + "".join(records)
            told = control.gather(f"rank {late}" in said or f"ranks {late}" in said)
            if RANK == 0:
                check.true(told is not None and any(told), f"somebody names rank {late}: {said!r}")
    finally:
        logging.getLogger("hierring").removeHandler(handler)

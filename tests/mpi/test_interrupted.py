"""Exceptions out of the blue: wherever one rank leaves a call, no rank may go on unawares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks
from hierring.buffers import Buffer
from hierring.communicator.engine import Engine
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
TOTAL = SIZE * (SIZE + 1) // 2
AT_ONCE_S = 5.0  # far below the deadline

pytestmark = pytest.mark.world(*range(2, 65))  # someone must be left behind


@pytest.fixture
def comm() -> Iterator[hr.Communicator]:
    config = Config.from_env(timeout_s=30, init_timeout_s=20, cell_bytes=4096, small_bytes=256)
    handle = hr.Communicator(MPI.COMM_WORLD, config=config)
    yield handle
    handle.close()


def meet() -> None:
    """A barrier that sleeps while it waits, so that the ranks still at work have the cores."""
    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(0.002)


def works(check: Checks, comm: hr.Communicator, label: str) -> None:
    for count in (3, 5000):
        x = np.full(count, RANK + 1, "int64")
        comm.allreduce(x)
        check.equal(x, np.full(count, TOTAL), f"{label}, count {count}")


def interrupt(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool
) -> Callable[[], None]:
    """Make a method raise KeyboardInterrupt, before or after its work; returns how to undo it."""
    original = getattr(owner, name)

    def raising(*args: Any, **kwargs: Any) -> Any:
        if after:
            original(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, raising)
    return lambda: monkeypatch.setattr(owner, name, original)


class Whole:
    """Stands for the two ways in which a call can be made as a whole."""


@pytest.mark.parametrize("count", [3, 5000])
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (Engine, "enter", False),  # before the call has a number
        (Engine, "enter", True),  # it has one, and nobody knows of it yet
        (Buffer, "written", False),  # the data has arrived everywhere
        (Whole, "run", True),  # the same, in a call that was made as a whole
    ],
)
def test_an_interrupt_in_the_code_around_the_waits(
    comm: hr.Communicator,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    after: bool,
    count: int,
) -> None:
    if owner is Whole and comm.num_nodes() > 1:
        assert comm._run_whole is None  # there are none over several nodes
        return
    if owner is Whole:
        # A small tensor is reduced by `_run_whole` itself, a large one by what comes after it.
        owner, name = comm, "_run_whole" if count == 3 else "_under_lock"
    else:
        monkeypatch.setattr(comm, "_run_whole", None)
    victim = SIZE - 1
    with Checks() as check:
        works(check, comm, "before")
        x = np.full(count, RANK + 1, "int64")
        began = time.monotonic()
        if victim == RANK:
            undo = interrupt(monkeypatch, owner, name, after=after)
            check.raises(KeyboardInterrupt, lambda: comm.allreduce(x), "interrupted")
            undo()
        else:
            try:
                comm.allreduce(x)
                check.equal(x, np.full(count, TOTAL), "a completed operation is right")
            except hr.HierringError as error:
                named = getattr(error, "rank", None)
                check.true(named == victim, f"names rank {named}: {error!r}")
        took = time.monotonic() - began
        check.true(took < AT_ONCE_S, f"took {took:.1f} s")
        meet()
        y = np.full(count, RANK + 1, "int64")
        check.raises(hr.RankFailedError, lambda: comm.allreduce(y), "the call after it")
        check.equal(y, np.full(count, RANK + 1), "untouched")
        counts = comm.rebuild(timeout=20)
        check.true(counts[victim] == 2, f"{counts}: the interrupted call is not completed")
        works(check, comm, "after rebuild")


class Speechless(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [Speechless(), ValueError("name \udc80 of a file")])
def test_a_refusal_that_cannot_be_printed_is_clean(comm: hr.Communicator, error: Exception) -> None:
    class Producer:
        def __dlpack__(self, **_: object) -> object:
            raise error

        def __dlpack_device__(self) -> tuple[int, int]:
            raise error

    with Checks() as check:
        x = np.full(3, RANK)
        if RANK == SIZE - 1:
            check.raises(type(error), lambda: comm.allreduce(Producer()), "its own error")
        else:
            check.raises(hr.CollectiveMismatchError, lambda: comm.allreduce(x), "told")
            check.equal(x, np.full(3, RANK), "untouched")
        works(check, comm, "after")

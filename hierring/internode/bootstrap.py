"""First contact: a duplicate of the caller's communicator, and a small all-gather of objects.

Both are polled against a deadline. The all-gather uses point-to-point messages on a binomial tree,
so it works for any subset of a communicator's ranks and before any segment or node exists.
"""

from __future__ import annotations

import pickle
from collections.abc import Generator
from typing import Any

from hierring import ring
from hierring.internode.progress import AGAIN, Step

__all__ = ["allgather", "duplicate", "extract"]


def duplicate(comm: Any) -> Generator[Step, None, Any]:
    """A private duplicate that reports errors by exception. Collective over all ranks of `comm`."""
    from mpi4py import MPI

    twin, request = comm.Idup()
    yield [request]
    twin.Set_errhandler(MPI.ERRORS_RETURN)
    return twin


def extract(comm: Any, members: list[int]) -> Any:
    """A communicator of `members`, in this order; collective over them alone.

    It blocks, for MPI has no other form: only where all have just agreed to come.
    """
    from mpi4py import MPI

    part = comm.Create_group(comm.Get_group().Incl(members))
    part.Set_errhandler(MPI.ERRORS_RETURN)
    return part


def allgather(
    comm: Any, members: list[int], me: int, tag: int, value: Any, waiting: list[int]
) -> Generator[Step, None, list[Any]]:
    """Every member's `value`, in member order; all of `members` must call.

    Args:
        waiting: kept up to date with the ranks (in `comm`) that this rank waits for, for error
            messages.
    """
    size = len(members)
    gathered: dict[int, Any] = {me: value}
    for child in ring.binomial_children(size, me):
        gathered.update((yield from _receive(comm, members[child], tag, waiting)))
    parent = ring.binomial_parent(size, me)
    if parent is not None:
        yield _send(comm, members[parent], tag, gathered)
        gathered = yield from _receive(comm, members[parent], tag, waiting)
    for child in reversed(ring.binomial_children(size, me)):
        yield _send(comm, members[child], tag, gathered)
    return [gathered[member] for member in range(size)]


def _send(comm: Any, rank: int, tag: int, value: Any) -> list[Any]:
    from mpi4py import MPI

    return [comm.Isend([pickle.dumps(value), MPI.BYTE], rank, tag)]


def _receive(
    comm: Any, rank: int, tag: int, waiting: list[int]
) -> Generator[Step, None, dict[int, Any]]:
    from mpi4py import MPI

    waiting[:] = [rank]
    status = MPI.Status()
    while True:
        message = comm.Improbe(rank, tag, status)
        if message is not None:
            break
        yield AGAIN
    data = bytearray(status.Get_count(MPI.BYTE))
    yield [message.Irecv([data, MPI.BYTE])]
    waiting.clear()
    value: dict[int, Any] = pickle.loads(data)
    return value

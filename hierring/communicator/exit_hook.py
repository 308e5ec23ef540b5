"""The end of the process: nobody may be left waiting, and a failure must end the whole job.

The hook runs at interpreter exit, before mpi4py finalises MPI. MPI_Finalize waits for all ranks, so
after an uncaught exception, or with a broken communicator, it would hang the job: then the hook
aborts it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hierring import ring

if TYPE_CHECKING:
    from hierring.communicator.communicator import Communicator
    from hierring.communicator.generation import Generation

__all__ = ["install", "keep", "say_goodbye", "watch"]

#: Before MPI_Abort, which may cut off what mpiexec has not yet read of our stderr.
FLUSH_S = 0.1
FAREWELL_S = 1.0
#: How long a thread that is still inside a communicator may take to come out.
BUSY_S = 0.5

_alive: weakref.WeakSet[Communicator] = weakref.WeakSet()
#: Causes of broken communicators that nobody holds any more: MPI still waits for their messages.
_orphaned: list[str] = []
#: Broken generations whose memory MPI may still use.
_kept: list[Generation] = []
_installed = False
_uncaught = False
_in_fork = False


def watch(communicator: Communicator) -> None:
    """Let the hook care for this communicator, and for a break that outlives it."""
    _alive.add(communicator)
    # Its attributes change with a rebuild or a close, so the last ones count; they do not hold it.
    weakref.finalize(communicator, _collected, vars(communicator)).atexit = False


def _collected(attributes: dict[str, Any]) -> None:
    """Note that a communicator is gone; local, for this runs wherever the collector does."""
    engine: Generation = attributes["_engine"]
    cause = None if _in_fork or attributes["_closed"] else engine.cause()
    if cause is not None:
        _orphaned.append(cause.text)


def keep(engine: Generation) -> None:
    """Keep a broken engine's memory for as long as MPI may touch it."""
    _kept[:] = [old for old in _kept if old is not engine and old.must_stay()]
    if engine.must_stay():
        _kept.append(engine)


def install() -> None:
    """Put the hook in place; as early as hierring touches MPI, for a rank may fail before init."""
    global _installed
    if _installed:
        return
    _installed = True
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_in_child)
    previous = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> Any:
        global _uncaught
        _uncaught = True
        return previous(kind, error, traceback)

    sys.excepthook = hook


def _in_child() -> None:
    """A forked child shares the parent's memory and MPI state but may use neither."""
    global _in_fork
    _in_fork = True
    for communicator in _alive:
        communicator._forked = True


def _at_exit() -> None:
    from mpi4py import MPI

    if _in_fork or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    open_ones = [comm for comm in _alive if not comm._closed]
    why = _why_abort(open_ones)
    if why is not None and MPI.COMM_WORLD.Get_size() > 1:
        # A stream may be closed, gone, or a pipe nobody reads: the job must end all the same.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if why:
                print(f"hierring: ending the job, {why}", file=sys.stderr)
            sys.stderr.flush()
        time.sleep(FLUSH_S)
        MPI.COMM_WORLD.Abort(1)
    for communicator in open_ones:
        communicator._closed = True
    say_goodbye([communicator._engine for communicator in open_ones])


def _why_abort(open_ones: list[Communicator]) -> str | None:
    """Why MPI_Finalize must not be reached; "" if Python has said it already, None if it may."""
    if _uncaught:
        return ""
    if _orphaned:
        return f"a communicator is broken: {_orphaned[0]}"
    for communicator in open_ones:
        if not communicator._lock.acquire(timeout=BUSY_S):
            return "a thread is still inside a communicator"
        cause = communicator._engine.cause()
        if cause is not None:
            return f"a communicator is broken: {cause.text}"
    return None


def say_goodbye(engines: list[Generation]) -> None:
    """Mark this rank as left, so that nobody waits for it in vain.

    Its node's ranks see the mark. A leader tells the leaders that would wait for it in an opening;
    in a job that ends normally they all do so at about the same time, and each takes in what it is
    sent, for FAREWELL_S at most whatever the number of communicators.
    """
    missing = [(engine, _tell_leaders(engine)) for engine in engines]
    until = time.monotonic() + FAREWELL_S
    while any(partners for _, partners in missing) and time.monotonic() < until:
        for engine, partners in missing:
            if partners and engine.control is not None:
                for sender, message in engine.control.receive():
                    if message["kind"] == "left":
                        partners.discard(sender)
        time.sleep(0.001)


def _tell_leaders(engine: Generation) -> set[int]:
    """Leave; returns the leaders that were told and have not left themselves."""
    engine.channel.leave()
    topology = engine.topology
    if engine.control is None or topology.local_rank != 0:
        return set()
    plan = ring.doubling(topology.num_nodes, topology.ring_position(topology.node_rank))
    places = [*plan.partners, plan.folds_to, plan.folded]
    partners = [topology.ring_nodes[place].leader for place in places if place is not None]
    engine.control.send(partners, "left", seq=engine.seq)
    return set(partners) - engine.left_ranks.keys()

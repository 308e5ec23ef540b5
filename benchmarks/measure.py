"""Times one row: everybody in turn, call by call, the clock around nothing but the call.

Each turn, every contender makes one call: inputs are rewritten, the ranks meet in a barrier on
another communicator, the clock is read, the call made, the clock read again. The order differs
from turn to turn, so that nobody always comes after the same one. The ranks exchange their figures
when all turns are over, with hierring's own all-gather, which gives up after a while.
"""

from __future__ import annotations

import faulthandler
import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hierring.benchmarks.buffers import Buffers
from hierring.benchmarks.contenders import Contender
from hierring.benchmarks.counted import ENTERING, counted
from hierring.benchmarks.plan import Point

if TYPE_CHECKING:
    from hierring.communicator import Communicator

__all__ = ["Clock", "Measured", "measure"]

Floats = npt.NDArray[np.float64]


@dataclass
class Entry:
    """A contender in one row, on this rank; see `Measured`."""

    contender: Contender
    in_place: bool
    call: Callable[[], Any]
    seconds: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    wrong: int = 0
    counted: Floats | None = None


@dataclass(frozen=True)
class Measured:
    """A contender in one row, of all ranks.

    Attributes:
        seconds: of each rank (first index) in each timed call.
        late: how much later than the first each rank came to each call: how much less than the
            others it waited until all had entered. Peers don't say; of them it is how much shorter
            its call was than the longest, as if all left together.
        counted: of each rank over all timed calls, see `counted`; None for those who don't count.
        wrong: elements, over all ranks and all calls, untimed ones included; None if not checked.
    """

    contender: Contender
    point: Point
    in_place: bool
    seconds: Floats
    late: Floats
    counted: Floats | None
    wrong: int | None
    tolerance: float


class Clock:
    """Says when it is time to stop; all ranks hear the same.

    Args:
        control: a communicator that is not measured.
        seconds: from now on; None for never.
    """

    def __init__(self, control: Communicator, seconds: float | None) -> None:
        self._control = control
        self._until = None if seconds is None else time.monotonic() + seconds

    def over(self) -> bool:
        """Whether rank 0 says so; collective if there is a limit."""
        if self._until is None:
            return False
        return bool(self._control.broadcast(int(time.monotonic() >= self._until)))


def measure(
    control: Communicator,
    point: Point,
    contenders: Sequence[tuple[Contender, bool]],
    *,
    warmup: int,
    iterations: int,
    check: bool,
    clock: Clock,
) -> list[Measured]:
    """Measure one row; collective over all ranks.

    Args:
        contenders: who, and whether in place.
        clock: may end it, but not before each has one timed call.
    """
    buffers = Buffers(point, control.rank(), control.size(), control.config)
    entries = [
        Entry(who, in_place, who.call(point, buffers.x, None if in_place else buffers.out))
        for who, in_place in contenders
    ]
    gc.collect()
    collects = gc.isenabled()
    gc.disable()
    try:
        for turn in range(-warmup, iterations):
            if turn > 0 and clock.over():
                break
            order = random.Random(turn).sample(entries, len(entries))  # the same on all ranks
            _take_turns(control, buffers, order, turn >= 0, check)
    finally:
        faulthandler.cancel_dump_traceback_later()
        if collects:
            gc.enable()
    return [_gather(control, point, entry, check, buffers.tolerance) for entry in entries]


def _take_turns(
    control: Communicator, buffers: Buffers, entries: Sequence[Entry], timed: bool, check: bool
) -> None:
    topology = control.get_topology()
    for entry in entries:
        buffers.rewrite()
        if entry.contender.library != "hierring":
            # No peer knows a deadline: a hang ends here, with the stacks of this rank.
            faulthandler.dump_traceback_later(control.config.timeout_s, exit=True)
        before = counted(entry.contender.statistics(), topology)
        call = entry.call
        control.barrier()
        started = time.perf_counter()
        call()
        ended = time.perf_counter()
        if timed:
            moved = counted(entry.contender.statistics(), topology) - before
            entry.seconds.append(ended - started)
            ours = entry.contender.library == "hierring"
            entry.waited.append(float(moved[ENTERING].sum()) if ours else ended - started)
            entry.counted = moved if entry.counted is None else entry.counted + moved
        if entry.contender.library != "hierring":
            faulthandler.cancel_dump_traceback_later()
        if check:
            entry.wrong += buffers.wrong(entry.in_place)


def _gather(
    control: Communicator, point: Point, entry: Entry, check: bool, tolerance: float
) -> Measured:
    assert entry.counted is not None
    own = np.array([[*entry.seconds, *entry.waited, *entry.counted, float(entry.wrong)]])
    table = control.allgather(own)
    calls = len(entry.seconds)
    waited = table[:, calls : 2 * calls]
    counts = entry.contender.library == "hierring"
    return Measured(
        entry.contender, point, entry.in_place, table[:, :calls],
        waited.max(axis=0) - waited,
        table[:, 2 * calls : -1] if counts else None,
        int(table[:, -1].sum()) if check else None, tolerance,
    )  # fmt: skip

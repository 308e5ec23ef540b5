"""Runs a measurement while nobody else uses the machine, as far as that can be had.

What others do to a machine is in no model, and a median does not heal it: with as many ranks as
cores, a single other process at work makes all of them wait.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import psutil

__all__ = ["Undisturbed", "undisturbed"]

#: Share of all cores that others may use.
LIMIT = 0.05
_GLANCE_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True)
class Undisturbed(Generic[T]):
    """What was measured, and how quiet it was.

    Attributes:
        others: share of all cores that processes of others used meanwhile.
    """

    value: T
    others: float


def undisturbed(
    measure: Callable[[], T], tries: int = 3, patience_s: float = 60.0
) -> Undisturbed[T]:
    """Measure when it is quiet; again if it was not, and then keep the quietest.

    Args:
        measure: starts processes and waits for them.
        tries: how often at most. patience_s: how long at most to wait for quiet, in all.
    """
    found: list[Undisturbed[T]] = []
    deadline = time.monotonic() + patience_s
    while len(found) < tries:
        _await_quiet(deadline)
        before, started = _clock(), time.monotonic()
        value = measure()
        used, seconds = _clock() - before, time.monotonic() - started
        others = max(used, 0.0) / seconds / (os.cpu_count() or 1)
        found.append(Undisturbed(value, others))
        if others <= LIMIT:
            break
    return min(found, key=lambda one: one.others)


def _await_quiet(deadline: float) -> None:
    while time.monotonic() < deadline:
        if psutil.cpu_percent(_GLANCE_S) <= 100 * LIMIT:
            return


def _clock() -> float:
    """Core time of all but this process and the children it has waited for.

    Interrupts count: a process is charged those that come while it runs. So does what a hypervisor
    takes away.
    """
    times = psutil.cpu_times()
    passed = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    own = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        own += used.ru_utime + used.ru_stime
    return float(passed) - own

"""The ranks of a communicator and how they agree on something before any segment exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hierring.environment import INTERFACE_SETTINGS
from hierring.errors import CollectiveTimeoutError, HierringError
from hierring.internode import bootstrap
from hierring.internode.link import Counters
from hierring.internode.progress import Progress, Step, Ticker

__all__ = ["Contact", "Deadline", "Resumable", "Tags"]

T = TypeVar("T")

#: Rails and slices in flight that have tags of their own.
MAX_RAILS = 64
MAX_SLOTS = 8


@dataclass(frozen=True)
class Tags:
    """Message tags of one generation; a rebuild moves on, so that nothing stale matches."""

    generation: int = 0

    SPAN = 8 + MAX_RAILS * MAX_SLOTS

    def _at(self, offset: int) -> int:
        return self.generation * self.SPAN + offset

    @property
    def bootstrap(self) -> int:
        return self._at(0)

    @property
    def control(self) -> int:
        return self._at(1)

    def opening(self, seq: int) -> int:
        """Alternates, because a leader may be one call ahead of another."""
        return self._at(2 + seq % 2)

    @property
    def probe(self) -> int:
        return self._at(4)

    def data(self, rail: int, slot: int) -> int:
        return self._at(8 + rail * MAX_SLOTS + slot)

    def check(self) -> None:
        """Raise once MPI's range of tags is used up."""
        from mpi4py import MPI

        highest = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
        if highest is not None and self.all.stop > highest:
            raise HierringError(
                f"rebuilt {self.generation} times, and MPI has no more message tags: make a new "
                "Communicator"
            )

    @property
    def all(self) -> range:
        return range(self._at(0), self._at(self.SPAN))


class Deadline(Ticker):
    """Ends a wait of the set-up phase, naming whom it waited for."""

    def __init__(self, seconds: float, what: str, waiting: list[int]) -> None:
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self._what = what
        self._waiting = waiting

    def tick(self) -> None:
        if time.monotonic() < self._until:
            return
        ranks = sorted(self._waiting)
        whom = f"rank {', '.join(map(str, ranks))}" if ranks else "the other ranks"
        raise CollectiveTimeoutError(
            f"{self._what} waited {self._seconds:g} s for {whom}: every rank must call it. If all "
            "did, look for a rank that has ended, or a network interface that MPI can't use "
            f"between these hosts: name the right one by {INTERFACE_SETTINGS}. "
            "HIERRING_INIT_TIMEOUT_S sets the wait",
            missing_ranks=ranks,
        )


class Resumable:
    """A task with a value that survives a wait that timed out."""

    def __init__(self, steps: Generator[Step, None, Any]) -> None:
        self._steps = steps
        self._progress = Progress()
        self._result: list[Any] = []
        self._started = False

    def _task(self) -> Generator[Step, None, None]:
        self._result.append((yield from self._steps))

    def run(self, deadline: Ticker) -> Any:
        _given_up.add(self)
        if self._started:
            self._progress.resume(deadline)
        else:
            self._started = True
            self._progress.run([self._task()], deadline)
        _given_up.discard(self)
        return self._result[0]


#: Waits that ended by an exception: MPI may use what they refer to until the process ends.
_given_up: set[Resumable] = set()


@dataclass
class Contact:
    """A private MPI communicator and the part of its ranks that belongs to us.

    Attributes:
        comm: the duplicate; nobody else sends on it.
        members: rank in `comm` of each rank of ours; a split shares one duplicate among its parts.
        me: our own rank.
        world: rank in MPI.COMM_WORLD of each rank of ours.
    """

    comm: Any
    members: list[int]
    me: int
    world: list[int]
    tags: Tags = field(default_factory=Tags)
    counters: Counters = field(default_factory=Counters)
    _unfinished: tuple[Resumable, list[int]] | None = None

    @property
    def size(self) -> int:
        return len(self.members)

    def allgather(self, value: Any, seconds: float, what: str) -> list[Any]:
        """Every rank's value. An all-gather that timed out is gone on with by the next call.

        Going on matters: a second one would meet the first one's messages.
        """
        if self._unfinished is None:
            waiting: list[int] = []
            steps = bootstrap.allgather(
                self.comm, self.members, self.me, self.tags.bootstrap, value, waiting
            )
            self._unfinished = (Resumable(steps), waiting)
        resumable, waiting = self._unfinished
        ranks = _Translated(waiting, self.members)
        values: list[Any] = resumable.run(Deadline(seconds, what, ranks))
        self._unfinished = None
        return values

    def agree(self, make: Callable[[], T], seconds: float, what: str) -> list[T]:
        """Call `make` on every rank and exchange what it returns; if it fails anywhere, all raise.

        The rank whose `make` raised raises that error again; the others raise one of the same class
        (if it is one of ours) that quotes it.
        """
        value: Any = None
        own: Exception | None = None
        try:
            value = make()
        except Exception as error:
            own = error
        described = None if own is None else _describe(own)
        answers = self.allgather((value, described), seconds, what)
        if own is not None:
            raise own
        for rank, (_, failure) in enumerate(answers):
            if failure is not None:
                kind, text = failure
                raise kind(f"rank {rank} failed in {what}: {text}")
        return [value for value, _ in answers]


class _Translated(list[int]):
    """Ranks of the MPI communicator seen as ranks of ours, as they are when looked at."""

    def __init__(self, waiting: list[int], members: list[int]) -> None:
        super().__init__()
        self._waiting = waiting
        self._members = members

    def __iter__(self) -> Any:
        return iter([self._members.index(rank) for rank in self._waiting])

    def __len__(self) -> int:
        return len(self._waiting)


def _describe(error: Exception) -> tuple[type[HierringError], str]:
    kind = type(error) if isinstance(error, HierringError) else HierringError
    return kind, f"{type(error).__name__}: {error}"

"""Every error hierring raises, and what a caller does next.

Two kinds of failure matter to a caller. After a *clean* one (refusal, mismatch) every rank raised
for the same call, no tensor of the caller was written on any rank, and the communicator goes on.
After a *broken* one (timeout, a rank that died or left) every later collective of that communicator
raises the first cause, until all its ranks call `rebuild()`.

All classes pickle with their attributes, so that launchers and test harnesses can carry them
between processes.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "ConfigurationError",
    "HierringError",
    "RankFailedError",
    "SharedMemoryError",
    "TopologyError",
    "UnsupportedTypeError",
]


class HierringError(Exception):
    """Root of all errors of this package: catch it to catch them all."""


class ConfigurationError(HierringError, ValueError):
    """A setting or argument has a value hierring does not know, or that differs between ranks.

    State: nothing was communicated beyond the refusal; no tensor was written; the communicator, if
    there was one, is usable. Next: the message names the setting and the good values; correct it on
    all ranks.
    """


class TopologyError(HierringError):
    """The ranks could not agree which of them share a node.

    State: no communicator was made, no memory is left behind. Next: the message shows what each
    rank saw (`hierring topology` prints the same); mend the launch, or set
    HIERRING_SHARED_MEMORY=0.
    """


class SharedMemoryError(HierringError):
    """The node's shared memory could not be created, attached or filled.

    State: no communicator was made; whatever was created is unlinked again. Next: free memory in
    /dev/shm (or raise the container's limit), or lower the setting the message names.

    Attributes:
        needed_bytes: what was asked for, in bytes, or None where that is not the trouble.
        available_bytes: what there was, in bytes, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        needed_bytes: int | None = None,
        available_bytes: int | None = None,
    ) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class UnsupportedTypeError(HierringError, TypeError):
    """The object, its dtype or its layout cannot take part in this collective.

    State: clean; the other ranks raise CollectiveMismatchError quoting this one; nothing was
    written and the communicator is usable. Next: the message ends with the remedy.
    """


class CollectiveMismatchError(HierringError):
    """The ranks called different collectives, or the same one with arguments that do not fit.

    State: clean; every rank raises for the same call, nothing was written, the communicator is
    usable.
    Next: the message shows the call of two ranks that differ; make the ranks agree.
    """


class CollectiveTimeoutError(HierringError, TimeoutError):
    """A collective did not complete in time.

    State: broken; the result (or `x`, in place) is undefined where this was raised, and later
    collectives of this communicator raise the same cause. Next: look at the missing ranks (the
    message says where each was last seen); then all ranks call `rebuild()`, or the job ends.

    Attributes:
        missing_ranks: the ranks waited for, ascending.
    """

    def __init__(self, message: str = "", *, missing_ranks: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.missing_ranks: tuple[int, ...] = tuple(missing_ranks)


class RankFailedError(HierringError):
    """A rank of this communicator died, or left while others still waited for it.

    State: broken, as after CollectiveTimeoutError. Next: read that rank's own output; the survivors
    can save their work and end, for a communicator with a dead rank cannot be rebuilt.

    Attributes:
        rank: the rank that failed, or None where only its node is known.
    """

    def __init__(self, message: str = "", *, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank

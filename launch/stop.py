"""SIGTERM taken as a wish to stop, which SLURM sends before a time limit and at `scancel`.

Ranks get it at different steps. So each takes note, and they agree by a number that rides along in
their next all-reduce: all leave after the same step.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import final

__all__ = ["StopWish", "StoppedError"]


class StoppedError(Exception):
    """Raised on all ranks after the same step."""


@final
class StopWish:
    """Whether this process has got SIGTERM; true or false in an `if`, 1 or 0 in a vector."""

    def __init__(self) -> None:
        self._told = False
        signal.signal(signal.SIGTERM, self._take_note)

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        self._told = True

    def __float__(self) -> float:
        return float(self._told)

    def grant(self) -> None:
        """Ignore SIGTERM from now on: it comes again, and would end MPI_Finalize in the midst."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

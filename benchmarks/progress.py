"""A bar on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys

__all__ = ["Bar"]

_WIDTH = 30


class Bar:
    """Shows on stderr how many rows are done.

    Args:
        total: rows.
        mine: whether this rank is the one that prints.
    """

    def __init__(self, total: int, mine: bool) -> None:
        self._total = total
        self._shows = mine and total > 0 and sys.stderr.isatty() and sys.stdout.isatty()

    def show(self, done: int, what: str) -> None:
        """Draw it over itself."""
        if self._shows:
            filled = _WIDTH * done // self._total
            bar = "#" * filled + "." * (_WIDTH - filled)
            text = f"\r\x1b[K[{bar}] {done} of {self._total}: {what}"
            print(text, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Make room for a line of the table."""
        if self._shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

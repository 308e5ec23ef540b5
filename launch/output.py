"""What a program of many ranks shows: one voice, and a progress bar where somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable

__all__ = ["epochs", "printer"]


def printer(mine: bool) -> Callable[[str], None]:
    """Prints on one rank alone; flushed, because the launcher's pipe would hold lines back."""

    def say(text: str) -> None:
        if mine:
            print(text, flush=True)

    return say


def epochs(say: Callable[[str], None], mine: bool, count: int) -> Callable[[int, float], None]:
    """Reports the loss of each epoch, with a progress bar below it on a terminal only."""
    bar = mine and sys.stderr.isatty() and sys.stdout.isatty()

    def epoch(number: int, loss: float) -> None:
        if bar:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        say(f"epoch {number:2}: loss {loss:.4f}")
        if bar and number < count:
            done = 30 * number // count
            text = f"[{'#' * done}{'.' * (30 - done)}] {number} of {count}"
            print(text, end="", file=sys.stderr, flush=True)

    return epoch

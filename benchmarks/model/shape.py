"""Where an all-reduce runs, as far as its time depends on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Shape"]


@dataclass(frozen=True)
class Shape:
    """A cluster of equal nodes.

    Attributes:
        nodes: how many. ranks: on each.
        cores: usable on a machine.
        one_machine: whether all nodes are virtual ones of one machine, and share its cores.
        cyclic: whether ranks are dealt to nodes in turn; matters to flat algorithms only.
    """

    nodes: int
    ranks: int
    cores: int
    one_machine: bool = False
    cyclic: bool = False

    @property
    def size(self) -> int:
        """Ranks in all."""
        return self.nodes * self.ranks

    def crowding(self, active: float) -> float:
        """By what factor core time stretches while so many ranks of each node are at work.

        Ranks that outnumber the cores take turns. As each step waits for the slowest, three equal
        ones on two cores take as long as four: R. L. Graham's list scheduling, for equal tasks.
        """
        ranks = active * (self.nodes if self.one_machine else 1)
        return max(1.0, float(math.ceil(ranks / self.cores)))

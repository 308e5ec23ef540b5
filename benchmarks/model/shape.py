"""Where an all-reduce runs, as far as its time depends on it."""

from __future__ import annotations

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

        Ranks that outnumber the cores take turns: the total work is spread over all cores (which
        is what R. L. Graham's bound for list scheduling comes to when all have equally much).
        """
        return max(1.0, active * (self.nodes if self.one_machine else 1) / self.cores)

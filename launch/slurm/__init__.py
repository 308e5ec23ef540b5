"""SLURM: what its variables say of a job, which PMI fits an MPI, and batch scripts."""

from __future__ import annotations

from hierring.launch.slurm.allocation import (
    Allocation,
    expand_counts,
    expand_nodes,
    read_allocation,
)

__all__ = ["Allocation", "expand_counts", "expand_nodes", "read_allocation"]

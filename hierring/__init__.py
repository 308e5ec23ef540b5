"""Hierarchical all-reduce for training and HPC in Python.

`hierring.allreduce(tensor)` groups ranks by node, reduces inside each node through shared memory,
runs rings between nodes over MPI, and gathers the result back. Importing this package starts no MPI
and imports no torch.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from hierring._version import __version__
from hierring.config import Config
from hierring.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    ConfigurationError,
    HierringError,
    RankFailedError,
    SharedMemoryError,
    TopologyError,
    UnsupportedTypeError,
)
from hierring.world import (
    allgather,
    allreduce,
    allreduce_coalesced,
    barrier,
    broadcast,
    finalize,
    get_topology,
    init,
    local_rank,
    local_size,
    node_rank,
    num_nodes,
    rank,
    reduce_scatter,
    size,
    statistics,
)

if _TYPE_CHECKING:
    from hierring.communicator import Communicator, Statistics

__all__ = [
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "Communicator",
    "Config",
    "ConfigurationError",
    "HierringError",
    "RankFailedError",
    "SharedMemoryError",
    "Statistics",
    "TopologyError",
    "UnsupportedTypeError",
    "__version__",
    "allgather",
    "allreduce",
    "allreduce_coalesced",
    "barrier",
    "broadcast",
    "finalize",
    "get_topology",
    "init",
    "local_rank",
    "local_size",
    "node_rank",
    "num_nodes",
    "rank",
    "reduce_scatter",
    "size",
    "statistics",
]


def __getattr__(name: str) -> object:
    """Communicator and Statistics load with first use: they bring the whole engine."""
    if name in ("Communicator", "Statistics"):
        from hierring import communicator

        return getattr(communicator, name)
    raise AttributeError(f"module 'hierring' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is loaded, and what loads with first use: completion and help() shall show it too."""
    return sorted({*globals(), *__all__})

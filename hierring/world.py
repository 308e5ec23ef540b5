"""The default communicator over MPI.COMM_WORLD, and the module-level functions that use it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hierring.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import timedelta

    from hierring.communicator import Communicator, Statistics
    from hierring.config import Config
    from hierring.topology import Topology

    Timeout = float | timedelta | None

_lock = threading.RLock()
_default: Communicator | None = None
_launcher_checked = False


def init(comm: Any = None, *, config: Config | None = None) -> Communicator:
    """Make the default communicator, or return it if it is there already. Collective.

    All ranks call it (or their first collective, which does) within init_timeout_s.

    Args:
        comm: an mpi4py communicator; default MPI.COMM_WORLD.
        config: settings; default from the environment.

    Raises:
        ConfigurationError: settings differ between ranks; launcher and MPI disagree; or it was
            called before with another communicator or other settings.
        SharedMemoryError, TopologyError, CollectiveTimeoutError: no communicator was made.
    """
    global _default
    from hierring.communicator import Communicator

    with _lock:
        if _default is None or _default.closed:
            _default = Communicator(comm, config=config)
        elif comm is not None and comm != _default.made_from:
            raise ConfigurationError(
                "hierring is initialised with another communicator: call hierring.finalize() "
                "first, or make a hierring.Communicator"
            )
        elif config is not None and config != _default.config:
            raise ConfigurationError(
                "hierring is initialised with other settings: call hierring.finalize() first, "
                "or make a hierring.Communicator"
            )
        return _default


def finalize() -> None:
    """Close the default communicator; collective. Does nothing if there is none. MPI stays up."""
    global _default
    with _lock:
        if _default is not None:
            _default.close()
            _default = None


def rank() -> int:
    """This process's rank; never communicates (but starts MPI).

    Raises:
        ConfigurationError: the launcher's variables contradict MPI.
    """
    return _world_number("rank", "Get_rank")


def size() -> int:
    """Number of ranks; never communicates (but starts MPI).

    Raises:
        ConfigurationError: the launcher's variables contradict MPI.
    """
    return _world_number("size", "Get_size")


def _world_number(name: str, query: str) -> int:
    if _default is not None and not _default.closed:
        return int(getattr(_default, name)())
    from mpi4py import MPI

    from hierring.communicator import exit_hook
    from hierring.config import Config
    from hierring.environment import check_launcher, check_running

    global _launcher_checked
    check_running()
    exit_hook.install()
    if not _launcher_checked and Config.from_env().check_launcher:
        # Else N worlds of one would all act as rank 0 until the first collective refuses them.
        check_launcher(MPI.COMM_WORLD.Get_size())
    _launcher_checked = True
    return int(getattr(MPI.COMM_WORLD, query)())


def local_rank() -> int:
    """This rank's index on its node."""
    return init().local_rank()


def local_size() -> int:
    """Number of ranks on this node."""
    return init().local_size()


def node_rank() -> int:
    """Index of this node."""
    return init().node_rank()


def num_nodes() -> int:
    """Number of nodes."""
    return init().num_nodes()


def get_topology() -> Topology:
    """Which ranks share a node, and what the nodes are made of."""
    return init().get_topology()


def statistics() -> Statistics:
    """Bytes and operations of this rank so far."""
    return init().statistics()


def allreduce(
    x: Any,
    op: object = "sum",
    *,
    out: Any = None,
    algorithm: str | None = None,
    wire_dtype: str | None = None,
    scale: float | None = None,
    timeout: Timeout = None,
) -> Any:
    """Reduce `x` over all ranks, in place or into `out`. See Communicator.allreduce."""
    comm = _default
    if comm is None or comm._closed:
        comm = init()
    return comm._allreduce(x, op, out, algorithm, wire_dtype, scale, timeout)


def allreduce_coalesced(
    tensors: Sequence[Any],
    op: object = "sum",
    *,
    algorithm: str | None = None,
    wire_dtype: str | None = None,
    scale: float | None = None,
    timeout: Timeout = None,
) -> list[Any]:
    """Reduce many tensors in one operation. See Communicator.allreduce_coalesced."""
    return init().allreduce_coalesced(
        tensors, op, algorithm=algorithm, wire_dtype=wire_dtype, scale=scale, timeout=timeout
    )


def reduce_scatter(x: Any, op: object = "sum", *, out: Any = None, timeout: Timeout = None) -> Any:
    """Reduce `x` and return this rank's block. See Communicator.reduce_scatter."""
    return init().reduce_scatter(x, op, out=out, timeout=timeout)


def allgather(x: Any, *, out: Any = None, timeout: Timeout = None) -> Any:
    """Concatenate all ranks' `x` along the first dimension. See Communicator.allgather."""
    return init().allgather(x, out=out, timeout=timeout)


def broadcast(x: Any, root: int = 0, *, out: Any = None, timeout: Timeout = None) -> Any:
    """Copy rank `root`'s `x` to all ranks. See Communicator.broadcast."""
    return init().broadcast(x, root, out=out, timeout=timeout)


def barrier(*, timeout: Timeout = None) -> None:
    """Return once all ranks have called it."""
    init().barrier(timeout=timeout)

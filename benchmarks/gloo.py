"""The peer "gloo": torch.distributed's collectives over TCP, as many programs use them on CPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hierring.benchmarks.contenders import Array, Call, Contender, as_tensor
from hierring.benchmarks.plan import Point
from hierring.errors import HierringError

if TYPE_CHECKING:
    from hierring.communicator import Communicator

__all__ = ["Gloo", "start_gloo", "stop_gloo"]

_OPS = {
    "sum": "SUM", "min": "MIN", "max": "MAX", "prod": "PRODUCT",
    "band": "BAND", "bor": "BOR", "bxor": "BXOR",
}  # fmt: skip


@dataclass
class Gloo(Contender):
    """torch.distributed with the backend gloo; its default group must be up."""

    def refusal(self, point: Point, in_place: bool) -> str:
        """It works in place only, and its other collectives are all-reduces in disguise."""
        if point.collective not in ("allreduce", "broadcast"):
            return f"gloo's {point.collective} is not measured"
        if not in_place:
            return "gloo works in place only"
        if point.op not in (*_OPS, "none"):
            return f"gloo has no {point.op}"
        return ""

    def call(self, point: Point, x: Array, out: Array | None) -> Call:
        """See Contender."""
        import torch.distributed as dist

        tensor = as_tensor(x, point.dtype)
        if point.collective == "broadcast":
            return lambda: dist.broadcast(tensor, 0)
        op: Any = getattr(dist.ReduceOp, _OPS[point.op])
        return lambda: dist.all_reduce(tensor, op)


def start_gloo(control: Communicator) -> Gloo:
    """Bring up torch's default group over the ranks of `control`; collective over them.

    The ranks meet at rank 0 by TCP. On several nodes its hostname must be known on the others;
    GLOO_SOCKET_IFNAME chooses the interface.

    Raises:
        HierringError: torch is missing on some rank, or the ranks did not meet in time.
    """
    # A client without a name in the resolver is no news; read when torch is first imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    dist: Any = None  # torch's types do not show all it has
    try:
        import torch.distributed

        dist = torch.distributed
    except ImportError:
        found = False
    else:
        found = dist.is_available() and dist.is_gloo_available()
    if not control.allreduce(found, "min"):
        raise HierringError("--peers gloo needs torch on all ranks: pip install 'hierring[torch]'")
    topology = control.get_topology()
    one_machine = topology.num_nodes == 1 or topology.simulated
    host = "127.0.0.1" if one_machine else topology.nodes[topology.node_of(0)].hostname
    limit = timedelta(seconds=control.config.init_timeout_s)
    store = None
    if control.rank() == 0:
        store = dist.TCPStore(host, 0, None, True, limit, wait_for_workers=False)
    port = control.broadcast(store.port if store else 0)
    if store is None:
        store = dist.TCPStore(host, int(port), None, False, limit)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=control.rank(),
        world_size=control.size(),
        timeout=timedelta(seconds=control.config.timeout_s),
    )
    return Gloo("gloo")


def stop_gloo() -> None:
    """Take the group down."""
    import torch.distributed as dist

    dist.destroy_process_group()

"""Messages among the members of a rail or of a flat ring, counted and cut to a legal length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierring.internode.memory import Memory

__all__ = ["Counters", "Link", "largest_message"]

#: No MPI count overflows, and a message has few pieces.
MOST_BYTES = 2**30

#: Open MPI sends up to 64 KiB over TCP at once, its header included. What is longer waits for the
#: receiver's answer, which has to queue behind the data that go the same way: with both directions
#: of a link in use it stands still for a third of the time.
OPENMPI_TCP_BYTES = 60 * 1024


def largest_message(configured: int, vendor: str, tcp: bool) -> int:
    """Bytes of the largest message between nodes.

    Args:
        configured: `Config.max_message_bytes`; 0 leaves the choice to this function.
        vendor: first line of MPI's library version. tcp: there is nothing else between the nodes.
    """
    if configured:
        return configured
    return OPENMPI_TCP_BYTES if tcp and vendor.startswith("Open MPI") else MOST_BYTES


@dataclass
class Counters:
    """Bytes this rank handed to MPI since the communicator was made."""

    between_nodes: int = 0
    inside_nodes: int = 0
    headers: int = 0

    def payload(self) -> tuple[int, int]:
        """What `count_as_headers` takes: the payload bytes so far."""
        return self.between_nodes, self.inside_nodes

    def count_as_headers(self, between_nodes: int, inside_nodes: int) -> None:
        """Book the payload sent since then as overhead of the agreement."""
        since = self.between_nodes + self.inside_nodes - between_nodes - inside_nodes
        self.headers += since
        self.between_nodes, self.inside_nodes = between_nodes, inside_nodes


class Link:
    """Point-to-point messages of member `me` with the others of `members`, all on one tag.

    MPI keeps the order of messages with equal source, destination and tag, and both sides cut a
    message into the same pieces of at most `max_message` bytes, so a step's pieces meet pairwise.

    Args:
        comm: mpi4py communicator, the private duplicate.
        members: rank in `comm` of each member.
        local: for each member, whether it is on this rank's node (for the byte counters).
        max_message: bytes; longer messages travel in pieces.
    """

    __slots__ = ("_byte", "_comm", "_local", "counters", "max_message", "me", "members", "tag")

    def __init__(
        self,
        comm: Any,
        members: Sequence[int],
        me: int,
        tag: int,
        local: Sequence[bool],
        max_message: int,
        counters: Counters,
    ) -> None:
        from mpi4py import MPI  # started long since: the caller holds a communicator

        self._byte = MPI.BYTE
        self._comm = comm
        self.members = members
        self.me = me
        self.tag = tag
        self._local = local
        self.max_message = max_message
        self.counters = counters

    @property
    def size(self) -> int:
        return len(self.members)

    def send(self, member: int, memory: Memory) -> list[Any]:
        """Start sending; `memory` must stay untouched until the requests are complete."""
        if self._local[member]:
            self.counters.inside_nodes += memory.nbytes
        else:
            self.counters.between_nodes += memory.nbytes
        return self._start(self._comm.Isend, member, memory)

    def recv(self, member: int, memory: Memory) -> list[Any]:
        """Start receiving exactly memory.nbytes bytes; never into a caller's tensor."""
        return self._start(self._comm.Irecv, member, memory)

    def _start(self, start: Any, member: int, memory: Memory) -> list[Any]:
        rank, tag, limit, nbytes = self.members[member], self.tag, self.max_message, memory.nbytes
        if 0 < nbytes <= limit:
            return [start([memory.view, nbytes, self._byte], rank, tag)]
        return [
            start([memory.view[at : at + limit], min(limit, nbytes - at), self._byte], rank, tag)
            for at in range(0, nbytes, limit)
        ]

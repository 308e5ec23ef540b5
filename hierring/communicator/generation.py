"""One generation of a communicator: what its ranks share from connect or rebuild to a break.

Holds the state, and the ways in which it ends badly; `engine` adds the operations.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from hierring.communicator import exit_hook, stall, whole
from hierring.communicator.descriptor import quote
from hierring.communicator.failure import DEAD, INTERRUPTED, LEFT, MPI_ERROR, Broken, Cause
from hierring.communicator.rails import Rails
from hierring.communicator.statistics import Tally
from hierring.internode.control import Control
from hierring.internode.link import Link
from hierring.internode.opening import Opening
from hierring.internode.progress import Progress

if TYPE_CHECKING:
    from hierring.communicator.contact import Contact
    from hierring.communicator.transfer import Transfer
    from hierring.config import Config
    from hierring.errors import HierringError
    from hierring.intranode import NodeMemory
    from hierring.topology import Topology

__all__ = ["Call", "Generation"]

log = logging.getLogger("hierring")


@dataclass
class Call:
    """One operation on this rank.

    Attributes:
        seq: number of the operation on the channel; equal on all ranks.
        number: the same counted through all rebuilds, for people.
        deadline: CLOCK_MONOTONIC seconds.
    """

    name: str
    seq: int
    number: int
    started: float
    deadline: float


class Generation:
    """State of one generation on this rank, and its failures.

    Attributes:
        left_ranks: ranks of other nodes that have left, and the last operation each took part in.
    """

    def __init__(
        self,
        contact: Contact,
        topology: Topology,
        memory: NodeMemory,
        config: Config,
        operations_before: int = 0,
        tally: Tally | None = None,
    ) -> None:
        self.contact = contact
        self.topology = topology
        self.memory = memory
        self.config = config
        self.channel = memory.channel
        self.local_ranks = list(topology.nodes[topology.node_rank].ranks)
        self.remote_ranks = [
            rank for node in topology.nodes for rank in node.ranks if rank not in self.local_ranks
        ]
        self.left_ranks: dict[int, int] = {}
        self.inquiry = stall.Inquiry()
        self.control: Control | None = None
        self.tally = tally or Tally(topology.local_size)
        self.channel.set_clock(self.tally.clock)
        self.whole = whole.make(self.channel)
        self.progress = Progress(self.tally.clock)
        self._before = operations_before
        self._seq = 0
        self._settled = 0
        self._torn = False
        self._cause: Cause | None = None
        self.opening: Opening | None = None
        self._parked: list[Any] = []
        self.rails = Rails(contact, topology, memory, config, self.tally.clock)
        if topology.num_nodes > 1:
            self._connect_leaders()

    def _connect_leaders(self) -> None:
        contact, topology = self.contact, self.topology
        self.control = Control(
            contact.comm, contact.members, contact.tags.control, contact.counters
        )
        if topology.local_rank == 0:
            leaders = [contact.members[node.leader] for node in topology.ring_nodes]
            me = topology.ring_position(topology.node_rank)
            # The opening is one message whatever max_message_bytes says: its receive must match any
            # send.
            link = Link(
                contact.comm, leaders, me, 0, [False] * len(leaders),
                2**30, contact.counters,
            )  # fmt: skip
            self.opening = Opening(link, 2 * self.memory.layout.small_bytes)

    def number_of(self, seq: int) -> int:
        return self._before + seq

    @property
    def seq(self) -> int:
        """The last operation this rank has entered, by its number on the channel."""
        return max(self._seq, int(self.channel.seq))

    @property
    def entered(self) -> int:
        """Operations this rank has entered, through all rebuilds."""
        return self.number_of(self.seq)

    @property
    def settled(self) -> int:
        """The last operation that is over for the caller too, or will raise on every rank."""
        return max(self._settled, self.whole.settled)

    def cause(self) -> Cause | None:
        """Why this communicator is broken, if it is."""
        if self._cause is None:
            found = self.channel.abort_cause()
            if found is not None:
                kind, _, text = found
                self._cause = Cause.unpack(kind, bytes(text).decode(errors="replace"))
        return self._cause

    def break_for(self, cause: Cause) -> NoReturn:
        """Set the cause (the first one stays), tell all ranks, and end this wait."""
        packed = cause.pack()
        first = self.channel.set_abort(cause.kind, self.contact.me, packed.encode())
        if first and self.control is not None:
            self.control.send(self.remote_ranks, "cause", number=cause.kind, packed=packed)
        raise Broken(self.cause() or cause)

    def hear(self, call: Call) -> None:
        """Act on control messages of other nodes."""
        assert self.control is not None
        for sender, message in self.control.receive():
            kind = message["kind"]
            if kind == "cause":
                self.channel.set_abort(message["number"], sender, message["packed"].encode())
            elif kind == "ask":
                if self.inquiry.asking and sender < self.contact.me:
                    self.inquiry.yielded = True
                self.control.send([sender], "answer", **stall.answer(self, call))
            elif kind == "answer":
                self.inquiry.answers[sender] = message
            elif kind == "left":
                self.left_ranks[sender] = message["seq"]

    def investigate(self, call: Call) -> Cause:
        return stall.investigate(self, call)

    def lost(self, rank: int, call: Call, left: bool) -> Cause:
        """The cause for a rank that has left, or has died."""
        what = "has left (it ended, or closed the communicator)" if left else "died"
        where = f"rank {rank} on {self.host(rank)}"
        if rank in self.local_ranks:
            where += f" (pid {self.channel.peer(self.local_ranks.index(rank))[6]})"
        text = f"{stall.describe_call(self, call)}: {where} {what}; read that rank's own output"
        return Cause(LEFT if left else DEAD, (rank,), text)

    def waiting_for(self, call: Call) -> list[int]:
        """The ranks this rank waits for at the moment, as far as it can tell."""
        missing = [self.local_ranks[local_rank] for local_rank in self.channel.missing()]
        if missing:
            return missing
        if self.opening is not None and self.opening.waiting_for >= 0:
            return [self.contact.members.index(self.opening.waiting_for)]
        local = self.channel.peer(self.topology.local_rank)[3]
        return [self.local_ranks[local]] if local >= 0 else self.rails.waiting_for()

    def waiting_text(self, call: Call, now: float) -> str:
        ranks = ", ".join(f"{rank} on {self.host(rank)}" for rank in self.waiting_for(call)[:8])
        return (
            f"rank {self.contact.me}: {stall.describe_call(self, call)} has waited "
            f"{now - call.started:.0f} s for rank {ranks or '(not known)'}"
        )

    def host(self, rank: int) -> str:
        node = self.topology.node_of(rank)
        return f"{self.topology.nodes[node].hostname} (node {node})"

    def interrupted(
        self, call: Call, error: BaseException, transfer: Transfer | None
    ) -> BaseException:
        """Break the communicator because of an exception in the middle of an operation."""
        from mpi4py import MPI

        self._torn = True
        kind, me = INTERRUPTED, self.contact.me
        ranks = [me]
        text = f"{stall.describe_call(self, call)}: rank {me} on {self.host(me)} "
        if isinstance(error, MPI.Exception):
            # An MPI that tolerates failures tells of a dead peer so: blame that one, not this rank.
            kind = MPI_ERROR
            ranks = _failed_ranks(self.contact) or self.waiting_for(call) or ranks
            named = ", ".join(f"rank {rank} on {self.host(rank)}" for rank in ranks[:4])
            text += f"had an error in MPI while it waited for {named}: "
        else:
            text += "left it by "
        try:
            self.break_for(Cause(kind, tuple(ranks), text + quote(error)))
        except Broken as broken:
            self.park(transfer)
            if kind == MPI_ERROR:
                return self.failure(broken.cause)
        return error

    def failure(self, cause: Cause) -> HierringError:
        """The exception for a cause; with on_failure="abort" the job ends here instead."""
        error = cause.error()
        if self.config.on_failure == "abort":
            from mpi4py import MPI

            log.critical("%s; on_failure is abort", error)
            logging.shutdown()
            MPI.COMM_WORLD.Abort(1)
            os._exit(1)  # where Abort returns
        return error

    def park(self, transfer: Transfer | None) -> None:
        """Keep what MPI may still touch: open requests and all memory they may refer to."""
        requests = self.progress.open_requests()
        self._parked.append((requests, self.memory, self.rails, self.opening, transfer))
        exit_hook.keep(self)

    def open_requests(self) -> list[Any]:
        """Requests of broken operations that MPI has not completed."""
        requests = [request for parked in self._parked for request in parked[0]]
        if self.control is not None:
            requests += [request for request, _ in self.control.pending()]
        return [request for request in requests if not _complete(request)]

    def must_stay(self) -> bool:
        """Whether MPI may still use memory of this broken engine.

        After an exception out of the blue for ever: it may have come between the start of a message
        and the note of its request.
        """
        torn = self._torn and (self.control is not None or self.rails.used)
        return torn or bool(self.open_requests())

    def keep_receiving(self, receiving: list[Any]) -> None:
        """Keep receives (request, memory) of stale messages until MPI has completed them."""
        if receiving:
            self._parked.append(([request for request, _ in receiving], receiving))
            exit_hook.keep(self)

    @property
    def scratch_nbytes(self) -> int:
        return self.rails.scratch_nbytes


def _failed_ranks(contact: Contact) -> list[int]:
    """The ranks that MPI itself knows to be dead; empty where it does not keep track of them."""
    from mpi4py import MPI

    try:
        failed, all_ranks = contact.comm.Get_failed(), contact.comm.Get_group()
        numbers = MPI.Group.Translate_ranks(failed, list(range(failed.Get_size())), all_ranks)
    except (AttributeError, NotImplementedError, MPI.Exception):
        return []
    return [contact.members.index(rank) for rank in numbers if rank in contact.members]


def _complete(request: Any) -> bool:
    """Whether MPI is done with a request; one that failed is no longer used either."""
    from mpi4py import MPI

    try:
        return bool(request.Test())
    except MPI.Exception:
        return True

"""Runs operations: arrival, opening, data phases, and the common end when something breaks.

One operation on one rank, in order:

1. arrive: publish what is called; stage up to two pieces into own cells.
2. verdict: do all ranks call the same? Inside a node from the digests in the segment, between nodes
   by the
   opening round among leaders. Until then only own cells are written.
3. data: small payloads have already travelled; else the pieces flow through stage, reduce, the
   network
   (`rails`) and copy-out.

Each step waits with a `Guard`. A bad verdict is clean; whatever else goes wrong breaks the
communicator.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from hierring import _core
from hierring.communicator import exit_hook, stall
from hierring.communicator.descriptor import REFUSED, Descriptor, quote
from hierring.communicator.failure import (
    DEAD,
    INTERRUPTED,
    LEFT,
    MPI_ERROR,
    Broken,
    Cause,
    Guard,
)
from hierring.communicator.rails import Rails
from hierring.communicator.verdict import Verdict, mismatch_error, node_state
from hierring.errors import HierringError
from hierring.internode.control import Control
from hierring.internode.link import Link
from hierring.internode.opening import Opening, State
from hierring.internode.progress import Progress

if TYPE_CHECKING:
    from hierring.communicator.contact import Contact
    from hierring.communicator.transfer import Transfer
    from hierring.config import Config
    from hierring.intranode import NodeMemory
    from hierring.topology import Topology

__all__ = ["Call", "Engine"]

log = logging.getLogger("hierring")

OK, BAD = 0, 1


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


class Engine:
    """One generation of a communicator: from connect or rebuild to the first break or the end."""

    def __init__(
        self,
        contact: Contact,
        topology: Topology,
        memory: NodeMemory,
        config: Config,
        operations_before: int = 0,
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
        #: Ranks of other nodes that have left, and the last operation each took part in.
        self.left_ranks: dict[int, int] = {}
        self.inquiry = stall.Inquiry()
        self.control: Control | None = None
        self.progress = Progress()
        self._before = operations_before
        self._seq = 0
        self._settled = 0
        self._torn = False
        self._cause: Cause | None = None
        self._opening: Opening | None = None
        self._parked: list[Any] = []
        self._rails = Rails(contact, topology, memory, config)
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
            self._opening = Opening(link, 2 * self.memory.layout.small_bytes)

    # --- one operation -----------------------------------------------------------------------

    def enter(self, name: str, seconds: float) -> Call:
        """Take the next sequence number, unless the communicator is broken."""
        cause = self.cause()
        if cause is not None:
            raise cause.error()
        self._seq += 1
        now = time.monotonic()
        return Call(name, self._seq, self.number_of(self._seq), now, now + seconds)

    def settle(self) -> None:
        """The call is over for the caller too, or will raise on every rank."""
        self._settled = self._seq

    def abandon(self, name: str, error: BaseException, entered: bool) -> None:
        """A call ends by `error` on this rank: break the communicator, unless all ranks know.

        Also where the data had already arrived, or the call not begun: whoever catches the error
        and makes the call again would meet ranks that are one call before or behind.
        """
        known = self._settled == self._seq if entered else isinstance(error, HierringError)
        if known or self.cause() is not None:
            return
        seq = self._seq if entered else self._seq + 1
        call = Call(name, seq, self.number_of(seq), 0.0, 0.0)
        self._interrupted(call, error, None)

    def number_of(self, seq: int) -> int:
        return self._before + seq

    @property
    def seq(self) -> int:
        """The last operation this rank has entered, by its number on the channel."""
        return self._seq

    @property
    def entered(self) -> int:
        """Operations this rank has entered, through all rebuilds."""
        return self.number_of(self._seq)

    def run(self, call: Call, descriptor: Descriptor, transfer: Transfer | None) -> None:
        """Carry out one operation; every rank must come here for each sequence number.

        Raises:
            CollectiveMismatchError: clean; also if another rank refused. A rank whose own
                descriptor is
                REFUSED gets it too and raises its own error instead.
            CollectiveTimeoutError, RankFailedError: broken.
        """
        guard = Guard(self, call)
        before = self.contact.counters.payload()
        try:
            verdict = self._open(call, guard, descriptor, transfer)
            if verdict.bad:
                self.channel.fail()
                self.settle()
            elif transfer is not None and transfer.count:
                self._move(guard, transfer)
        except Broken as broken:
            self._park(transfer)
            raise self._failure(broken.cause) from None
        except BaseException as error:
            replacement = self._interrupted(call, error, transfer)
            if replacement is error:
                raise
            raise replacement from error
        self.channel.note(_core.IDLE, 0, -1)
        if transfer is not None and transfer.administrative:
            self.contact.counters.count_as_headers(*before)
        if verdict.bad:
            raise mismatch_error(self, call, verdict)

    def _open(
        self, call: Call, guard: Guard, descriptor: Descriptor, transfer: Transfer | None
    ) -> Verdict:
        channel = self.channel
        digest, packed = descriptor.pack()
        if transfer is None:
            channel.arrive(call.seq, digest, packed)
        elif transfer.rides(self.memory.layout.small_bytes):
            channel.arrive(call.seq, digest, packed, transfer.scale, transfer.x)
        else:
            channel.arrive(call.seq, digest, packed, transfer.scale)
            if transfer.algorithm == "hierarchical" and transfer.count:
                self._rails.begin(transfer)
                channel.advance()
        channel.note(_core.OPENING, 0, -1)
        if self.topology.num_nodes == 1:
            guard.wait(channel.arrivals)
            state = node_state(self) if channel.local_difference() >= 0 else None
        elif self._opening is not None:
            state = self._lead(call, guard, transfer)
        else:
            state = self._follow(call, guard)
        return Verdict(state, refused=descriptor.kind == REFUSED)

    def _lead(self, call: Call, guard: Guard, transfer: Transfer | None) -> State | None:
        """The leader's opening: hear the node, agree with the other leaders, tell the node."""
        opening, channel = self._opening, self.channel
        assert opening is not None
        guard.wait(channel.arrivals)
        state = node_state(self)
        nbytes, combine = 0, None
        small = transfer is not None and transfer.rides(self.memory.layout.small_bytes)
        if small and transfer is not None and transfer.count and state.other is None:
            flow = self._rails.flow(transfer)
            nbytes, combine = transfer.count * flow.work_size, flow.combine
            channel.reduce_small(
                opening.payload.address, flow.work, transfer.dtype, transfer.count,
                transfer.op.op, flow.node_divisor,
            )  # fmt: skip
        tag = self.contact.tags.opening(call.seq)
        self.progress.run([opening.run(state, nbytes, combine, tag)], guard, quiet=True)
        verdict = Verdict(opening.state, refused=False)
        detail = opening.state.pack() if verdict.bad and opening.state else b""
        channel.publish_verdict(
            call.seq, BAD if verdict.bad else OK, detail, opening.payload.address, nbytes
        )
        channel.verdict(call.seq, 0.0)
        return opening.state if verdict.bad else None

    def _follow(self, call: Call, guard: Guard) -> State | None:
        """The others' opening: wait for the leader's verdict."""
        channel = self.channel
        guard.wait(lambda until: int(channel.verdict(call.seq, until)))
        if channel.verdict_code == OK:
            return None
        return State.unpack(memoryview(channel.verdict_detail()))

    def _move(self, guard: Guard, transfer: Transfer) -> None:
        """The data phases, after a good verdict."""
        channel = self.channel
        if transfer.rides(self.memory.layout.small_bytes):
            self._deliver_small(transfer)
        elif transfer.algorithm != "hierarchical":
            self._rails.run_flat(transfer, self.progress, guard)
        elif self.topology.num_nodes == 1:
            channel.open()
            guard.wait(channel.run)
        else:
            channel.open()
            self._rails.run(transfer, self.progress, guard)

    def _deliver_small(self, transfer: Transfer) -> None:
        flow = self._rails.flow(transfer)
        if self.topology.num_nodes == 1:
            self.channel.reduce_small_to(
                transfer.out, transfer.dtype, transfer.count, transfer.op.op, flow.node_divisor
            )
        else:
            self.channel.finish_small(
                transfer.out, transfer.dtype, flow.work, 0, transfer.count, 1.0
            )

    # --- failures ------------------------------------------------------------------------------

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
        if self._opening is not None and self._opening.waiting_for >= 0:
            return [self.contact.members.index(self._opening.waiting_for)]
        local = self.channel.peer(self.topology.local_rank)[3]
        return [self.local_ranks[local]] if local >= 0 else self._rails.waiting_for()

    def waiting_text(self, call: Call, now: float) -> str:
        ranks = ", ".join(f"{rank} on {self.host(rank)}" for rank in self.waiting_for(call)[:8])
        return (
            f"rank {self.contact.me}: {stall.describe_call(self, call)} has waited "
            f"{now - call.started:.0f} s for rank {ranks or '(not known)'}"
        )

    def host(self, rank: int) -> str:
        node = self.topology.node_of(rank)
        return f"{self.topology.nodes[node].hostname} (node {node})"

    def _interrupted(
        self, call: Call, error: BaseException, transfer: Transfer | None
    ) -> BaseException:
        """Break the communicator because of an exception in the middle of an operation."""
        from mpi4py import MPI

        self._torn = True
        kind = MPI_ERROR if isinstance(error, MPI.Exception) else INTERRUPTED
        text = (
            f"{stall.describe_call(self, call)}: rank {self.contact.me} on "
            f"{self.host(self.contact.me)} left it by {quote(error)}"
        )
        try:
            self.break_for(Cause(kind, (self.contact.me,), text))
        except Broken as broken:
            self._park(transfer)
            if kind == MPI_ERROR:
                return self._failure(broken.cause)
        return error

    def _failure(self, cause: Cause) -> HierringError:
        """The exception for a cause; with on_failure="abort" the job ends here instead."""
        error = cause.error()
        if self.config.on_failure == "abort":
            from mpi4py import MPI

            log.critical("%s; on_failure is abort", error)
            logging.shutdown()
            MPI.COMM_WORLD.Abort(1)
            os._exit(1)  # where Abort returns
        return error

    def _park(self, transfer: Transfer | None) -> None:
        """Keep what MPI may still touch: open requests and all memory they may refer to."""
        requests = self.progress.open_requests()
        self._parked.append((requests, self.memory, self._rails, self._opening, transfer))
        exit_hook.keep(self)

    def open_requests(self) -> list[Any]:
        """Requests of broken operations that MPI has not completed."""
        requests = [request for parked in self._parked for request in parked[0]]
        if self.control is not None:
            requests += [request for request, _ in self.control.pending()]
        return [request for request in requests if request]

    def must_stay(self) -> bool:
        """Whether MPI may still use memory of this broken engine.

        After an exception out of the blue for ever: it may have come between the start of a message
        and the note of its request.
        """
        torn = self._torn and (self.control is not None or self._rails.used)
        return torn or bool(self.open_requests())

    def keep_receiving(self, receiving: list[Any]) -> None:
        """Keep receives (request, memory) of stale messages until MPI has completed them."""
        if receiving:
            self._parked.append(([request for request, _ in receiving], receiving))
            exit_hook.keep(self)

    @property
    def scratch_nbytes(self) -> int:
        return self._rails.scratch_nbytes

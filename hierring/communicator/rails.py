"""The data phases that cross nodes: rails over the node's window, or one flat ring of all ranks.

A rail carries one shard of every slice between the nodes; rail r is run on each node by local rank
r mod local_size, so that uneven nodes keep all rails and a lone rank runs them all. A slice is one
or more adjacent cells of the window; `slots` slices are in flight, each by a task of its own.
Borders, order and tags follow from the operation, the topology and the layout alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hierring.communicator.contact import MAX_RAILS
from hierring.communicator.slicing import Flow, InOrder, Slicing
from hierring.internode import algorithms
from hierring.internode.link import Link, largest_message
from hierring.internode.memory import Memory, allocate
from hierring.intranode import Layout, private_memory
from hierring.ring import spans

if TYPE_CHECKING:
    from hierring import _core
    from hierring.communicator.contact import Contact
    from hierring.communicator.transfer import Transfer
    from hierring.config import Config
    from hierring.internode.progress import Progress, Task, Ticker
    from hierring.intranode import NodeMemory
    from hierring.topology import Topology

__all__ = ["Rails"]

#: Up to this many bytes in all, log2 M messages of everything beat 2 (M-1) messages of a part.
DOUBLING_BYTES = 32 * 1024
#: A rail is worth its messages only if its shard of the tensor has this many bytes.
SHARD_BYTES = 32 * 1024
CACHE_LINE = 64


class Rails:
    """Runs the data phases of transfers for one engine; keeps links and scratch between calls."""

    def __init__(
        self,
        contact: Contact,
        topology: Topology,
        memory: NodeMemory,
        config: Config,
        clock: _core.PhaseClock,
    ) -> None:
        self._contact = contact
        self._topology = topology
        self._memory = memory
        self._config = config
        self._clock = clock
        self._flat_memory: NodeMemory | None = None
        self._flat_seq = 0
        self._links: dict[tuple[bool, int, int], Link] = {}
        self._scratch: dict[tuple[bool, int, int], Memory] = {}
        self._waiting: list[int] = []
        self._flows: dict[tuple[object, ...], Flow] = {}
        self.max_message = _max_message(config, topology)

    @property
    def scratch_nbytes(self) -> int:
        """Private bytes held for arriving data."""
        return sum(memory.nbytes for memory in self._scratch.values())

    @property
    def used(self) -> bool:
        """Whether any message was ever sent."""
        return bool(self._links)

    def waiting_for(self) -> list[int]:
        """The ranks whose messages an exchange between nodes waits for: its neighbours."""
        return list(self._waiting)

    def flow(self, transfer: Transfer, flat: bool = False) -> Flow:
        """The numbers of a transfer; made once for each kind of transfer."""
        key = (transfer.dtype, transfer.wire, transfer.op, flat)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow(transfer, self._topology, flat, self._clock)
        return flow

    # --- hierarchical ------------------------------------------------------------------------

    def begin(self, transfer: Transfer) -> None:
        """Hand the transfer to the node's channel; nothing but own cells is written yet."""
        topology, flow = self._topology, self.flow(transfer)
        runners = 0
        if topology.num_nodes > 1:
            runners = min(topology.local_size, self._rail_count(transfer, flow))
        self._memory.channel.begin(
            transfer.contribute, transfer.x, transfer.out, transfer.dtype, flow.work,
            transfer.op.op, flow.node_divisor, 1.0, runners, False, transfer.count,
            self.cell_elems(transfer),
            None if transfer.pieces is None else transfer.pieces.table,
        )  # fmt: skip

    def run(self, transfer: Transfer, progress: Progress, ticker: Ticker) -> None:
        """The phases of a begun and opened transfer over several nodes."""
        topology, flow = self._topology, self.flow(transfer)
        rails = self._rail_count(transfer, flow)
        mine = [rail for rail in range(rails) if rail % topology.local_size == topology.local_rank]
        slicing = Slicing(self._memory, transfer, flow, self.cell_elems(transfer))
        done = InOrder(slicing, len(mine), self._memory.channel.gathered)
        tasks = [
            self._shard(slicing, transfer, flow, rail, rails, slot, done)
            for slot in range(min(slicing.slots, slicing.slices))
            for rail in mine
        ]
        place = topology.ring_position(topology.node_rank)
        self._waiting = [topology.ring_nodes[place - 1].leader]
        channel = self._memory.channel
        progress.run(tasks, ticker, channel.advance, channel.block)
        self._waiting = []

    def _rail_count(self, transfer: Transfer, flow: Flow) -> int:
        """How many shards; a function of what all ranks agree on."""
        most = self._config.leaders or max(node.local_size for node in self._topology.nodes)
        worth = transfer.count * flow.work_size // SHARD_BYTES
        return max(1, min(most, worth, MAX_RAILS))

    def _shard(
        self,
        slicing: Slicing,
        transfer: Transfer,
        flow: Flow,
        rail: int,
        rails: int,
        slot: int,
        done: InOrder,
    ) -> Task:
        """Carry shard `rail` of every slots-th slice between the nodes."""
        channel = self._memory.channel
        link = self._link(False, rail, slot)
        for index in range(slot, slicing.slices, slicing.slots):
            upto = slicing.pieces_before(index + 1)
            yield _reduced(channel, upto)
            elements = slicing.elements(index)
            align = CACHE_LINE // flow.work_size
            first, count = spans(elements, rails, max(align, 1))[rail]
            part = slicing.memory(index).part(first * flow.work_size, count * flow.work_size)
            if count:
                yield from self._exchange(link, part, transfer, flow, index, (False, rail, slot))
            done.add(index)

    def _exchange(
        self,
        link: Link,
        part: Memory,
        transfer: Transfer,
        flow: Flow,
        index: int,
        key: tuple[bool, int, int],
    ) -> Task:
        """The algorithm between nodes for one shard of one slice."""
        if transfer.pieces is not None:
            owner = self._topology.ring_position(transfer.pieces.owners[index])
            if transfer.contribute == "copy":
                return algorithms.broadcast_from(link, part, owner)
            scratch = self._scratch_for(key, part.nbytes)
            return algorithms.reduce_to(link, part, scratch, flow.combine, owner)
        if link.size == 2:
            name, run = "exchange", algorithms.exchange_allreduce
        elif transfer.count * flow.work_size <= DOUBLING_BYTES:
            name, run = "doubling", algorithms.doubling_allreduce
        else:
            name, run = "ring", algorithms.ring_allreduce
        need = algorithms.scratch_nbytes(name, part.nbytes, link.size, flow.work_size)
        return run(link, part, self._scratch_for(key, need), flow.combine)

    def cell_elems(self, transfer: Transfer) -> int:
        """Elements of a piece of this transfer."""
        ring_schedule = self._config.intra_schedule == "ring"
        cell_bytes = self._memory.layout.cell_bytes
        return transfer.cell_elems(cell_bytes, self.flow(transfer).work, ring_schedule)

    # --- flat ----------------------------------------------------------------------------------

    def run_flat(self, transfer: Transfer, progress: Progress, ticker: Ticker) -> None:
        """A flat algorithm over all ranks, each playing a node of its own."""
        topology = self._topology
        if self._flat_memory is None:
            # Three slots: one in the network, one arriving, one being copied.
            cells = Layout(self._memory.layout.cell_bytes, 3, 3, CACHE_LINE)
            self._flat_memory = private_memory(cells)
            self._flat_memory.channel.set_clock(self._clock)
        memory = self._flat_memory
        flow = self.flow(transfer, flat=True)
        cell_bytes = memory.layout.cell_bytes
        if transfer.algorithm == "naive":
            cell_bytes //= max(topology.size - 1, 1)  # so that all contributions fit into scratch
        cell_elems = transfer.cell_elems(cell_bytes, flow.work, ring_schedule=False)
        self._flat_seq += 1
        channel = memory.channel
        channel.arrive(self._flat_seq, 0, b"", transfer.scale)
        channel.begin(
            transfer.contribute, transfer.x, transfer.out, transfer.dtype, flow.work,
            transfer.op.op, 1.0, 1.0, 1 if topology.size > 1 else 0, False, transfer.count,
            cell_elems, None,
        )  # fmt: skip
        channel.open()
        slicing = Slicing(memory, transfer, flow, cell_elems)
        done = InOrder(slicing, 1, channel.gathered)
        tasks: list[Task] = []
        if topology.size > 1:
            tasks = [
                self._flat_task(slicing, transfer, flow, slot, done)
                for slot in range(min(slicing.slots, slicing.slices))
            ]
        self._waiting = [(self._contact.me - 1) % topology.size]
        progress.run(tasks, ticker, channel.advance)
        self._waiting = []

    def _flat_task(
        self, slicing: Slicing, transfer: Transfer, flow: Flow, slot: int, done: InOrder
    ) -> Task:
        run = {
            "ring": algorithms.ring_allreduce,
            "tree": algorithms.tree_allreduce,
            "naive": algorithms.naive_allreduce,
        }[transfer.algorithm]
        assert self._flat_memory is not None
        channel = self._flat_memory.channel
        link = self._link(True, 0, slot)
        for index in range(slot, slicing.slices, slicing.slots):
            upto = slicing.pieces_before(index + 1)
            yield _reduced(channel, upto)
            part = slicing.memory(index)
            need = algorithms.scratch_nbytes(
                transfer.algorithm, part.nbytes, link.size, flow.work_size
            )
            yield from run(link, part, self._scratch_for((True, 0, slot), need), flow.combine)
            done.add(index)

    # --- links and scratch ---------------------------------------------------------------------

    def _link(self, flat: bool, rail: int, slot: int) -> Link:
        link = self._links.get((flat, rail, slot))
        if link is None:
            contact, topology = self._contact, self._topology
            if flat:
                ranks, me = list(range(topology.size)), contact.me
            else:
                ranks = [node.ranks[rail % node.local_size] for node in topology.ring_nodes]
                me = topology.ring_position(topology.node_rank)
            local = [topology.node_of(rank) == topology.node_rank for rank in ranks]
            link = Link(
                contact.comm, [contact.members[rank] for rank in ranks], me,
                contact.tags.data(rail, slot), local, self.max_message, contact.counters,
            )  # fmt: skip
            self._links[flat, rail, slot] = link
        return link

    def _scratch_for(self, key: tuple[bool, int, int], nbytes: int) -> Memory:
        """Scratch of one task; a task runs one exchange at a time, so growing it is safe."""
        scratch = self._scratch.get(key)
        if scratch is None or scratch.nbytes < nbytes:
            scratch = self._scratch[key] = allocate(nbytes)
        return scratch


def _max_message(config: Config, topology: Topology) -> int:
    """Bytes of one message; the same on all ranks, for it follows from what they agreed on."""
    from mpi4py import MPI  # started long since: the caller holds a communicator

    tcp = topology.num_nodes > 1 and not topology.has_rdma
    return largest_message(config.max_message_bytes, MPI.Get_library_version(), tcp)


def _reduced(channel: Any, pieces: int) -> Callable[[], bool]:
    """Whether all ranks of the node have reduced the operation's first `pieces` pieces."""
    return lambda: bool(channel.reduced() >= pieces)

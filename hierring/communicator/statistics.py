"""What a communicator has done so far, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from hierring import _core

if TYPE_CHECKING:
    from hierring.communicator.engine import Engine

__all__ = ["PhaseTimes", "Statistics", "Tally", "collect"]


@dataclass(frozen=True)
class PhaseTimes:
    """Where one rank's time inside collectives went, in seconds.

    Exclusive: each instant counts once, for what the rank did or waited for just then. So all but
    `total` add up to it.

    Attributes:
        stage: packing data for others to read.
        reduce_scatter: adding up inside the node; the additions of the flat algorithms.
        inter_node: the exchange between nodes (flat: between ranks), with messages under way or
            being added up. Only while it had nothing to do inside its node.
        allgather: copying results out of the window.
        wait_arrival: for ranks of the own node that had not entered the call.
        wait_verdict: for the other nodes to enter it: the opening round or, on all but the leader,
            its outcome. Small tensors travel in this round.
        wait_peer: for ranks of the own node to stage, reduce or gather their part.
        other: Python, the arithmetic of small tensors, and all else.
        total: from entering to leaving the calls.
    """

    # The first eight in the order of the accounts of _core.PhaseClock.
    stage: float = 0.0
    reduce_scatter: float = 0.0
    inter_node: float = 0.0
    allgather: float = 0.0
    wait_arrival: float = 0.0
    wait_verdict: float = 0.0
    wait_peer: float = 0.0
    other: float = 0.0
    total: float = 0.0

    @property
    def wait(self) -> float:
        """For other ranks, of whatever node, but not for data between nodes."""
        return self.wait_arrival + self.wait_verdict + self.wait_peer

    def __sub__(self, earlier: PhaseTimes) -> PhaseTimes:
        """The time between two snapshots."""
        names = [item.name for item in fields(self)]
        return PhaseTimes(*(getattr(self, name) - getattr(earlier, name) for name in names))


@dataclass(frozen=True)
class Statistics:
    """An immutable snapshot of one rank's counters; bytes are of this rank alone.

    `later - earlier` is what happened between two snapshots of one communicator.

    Attributes:
        operations: public collectives completed.
        bytes_between_nodes: payload this rank sent to other nodes.
        bytes_inside_nodes_mpi: payload it sent over MPI to ranks of its own node (flat algorithms).
        bytes_shared_memory: payload it wrote into the node's segment.
        header_bytes: what the agreement between nodes took: opening rounds and control messages.
        segment_nbytes_per_rank: shared memory of the node, divided by its ranks, at present.
        scratch_nbytes: private memory held for arriving data, at present.
        phases: where its time inside collectives went.
        waited_for: seconds of `wait_arrival` and `wait_peer` by the rank that was waited for; ranks
            of the own node only, and none that never was.
        algorithms: how many times each algorithm has moved data: "small", "hierarchical", "ring",
            "tree", "naive". A coalesced call counts once for each dtype, an all-gather once.
    """

    operations: int = 0
    bytes_between_nodes: int = 0
    bytes_inside_nodes_mpi: int = 0
    bytes_shared_memory: int = 0
    header_bytes: int = 0
    segment_nbytes_per_rank: int = 0
    scratch_nbytes: int = 0
    phases: PhaseTimes = PhaseTimes()
    waited_for: dict[int, float] = field(default_factory=dict, hash=False)
    algorithms: dict[str, int] = field(default_factory=dict, hash=False)

    def __sub__(self, earlier: Statistics) -> Statistics:
        """What happened since `earlier`; sizes are those of the later snapshot."""
        return Statistics(
            operations=self.operations - earlier.operations,
            bytes_between_nodes=self.bytes_between_nodes - earlier.bytes_between_nodes,
            bytes_inside_nodes_mpi=self.bytes_inside_nodes_mpi - earlier.bytes_inside_nodes_mpi,
            bytes_shared_memory=self.bytes_shared_memory - earlier.bytes_shared_memory,
            header_bytes=self.header_bytes - earlier.header_bytes,
            segment_nbytes_per_rank=self.segment_nbytes_per_rank,
            scratch_nbytes=self.scratch_nbytes,
            phases=self.phases - earlier.phases,
            waited_for={
                rank: seconds - earlier.waited_for.get(rank, 0.0)
                for rank, seconds in self.waited_for.items()
                if seconds != earlier.waited_for.get(rank)
            },
            algorithms={
                name: count - earlier.algorithms.get(name, 0)
                for name, count in self.algorithms.items()
                if count != earlier.algorithms.get(name)
            },
        )


class Tally:
    """What a communicator counts through all its generations.

    Attributes:
        clock: books this rank's time inside collectives.
        algorithms: data movements by algorithm.
        shared_memory_before: bytes written into the segments of generations that have ended.
    """

    def __init__(self, local_size: int) -> None:
        self.clock = _core.PhaseClock(local_size)
        self.algorithms: Counter[str] = Counter()
        self.shared_memory_before = 0

    def end_generation(self, engine: Engine) -> None:
        """Keep what was counted in a segment that will be given up."""
        self.shared_memory_before += _written(engine)
        self.algorithms = self.moved(engine)

    def moved(self, engine: Engine) -> Counter[str]:
        """Data movements by algorithm, those of whole calls included."""
        small, large = engine.whole.completed
        return self.algorithms + Counter(small=small, hierarchical=large)

    def phases(self) -> PhaseTimes:
        accounts, total, _ = self.clock.read()
        return PhaseTimes(*(nanoseconds * 1e-9 for nanoseconds in (*accounts, total)))

    def waited_for(self, local_ranks: list[int]) -> dict[int, float]:
        waited = self.clock.read()[2]
        return {
            rank: nanoseconds * 1e-9
            for rank, nanoseconds in zip(local_ranks, waited, strict=True)
            if nanoseconds
        }


def collect(engine: Engine, operations: int) -> Statistics:
    """A snapshot; touches nothing."""
    counters, tally = engine.contact.counters, engine.tally
    return Statistics(
        operations=operations,
        bytes_between_nodes=counters.between_nodes,
        bytes_inside_nodes_mpi=counters.inside_nodes,
        bytes_shared_memory=tally.shared_memory_before + _written(engine),
        header_bytes=counters.headers,
        segment_nbytes_per_rank=engine.memory.segment_nbytes_per_rank,
        scratch_nbytes=engine.scratch_nbytes,
        phases=tally.phases(),
        waited_for=tally.waited_for(engine.local_ranks),
        algorithms=dict(tally.moved(engine)),
    )


def _written(engine: Engine) -> int:
    """Bytes this rank has written into its present segment."""
    moved = engine.channel.stats()
    return int(moved["staged_bytes"]) + int(moved["window_bytes"])

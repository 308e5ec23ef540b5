"""What one case of `hierring bench` found out: the dataclasses behind a row of its table.

Units, here and in the file: seconds; GB/s = 1e9 bytes/s for bandwidths; bytes. A field that says
"per call" is a mean over the timed calls. A value that could not be measured is null, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bounds", "Bytes", "Case", "Phases", "RankFigures", "Ratio", "Times", "contender_name"]


@dataclass(frozen=True)
class Times:
    """Seconds of a call, over the timed calls; that of one call is the maximum over ranks."""

    median: float
    min: float
    max: float
    p99: float
    mean: float


@dataclass(frozen=True)
class Phases:
    """Where one rank's time inside the calls went, in seconds per call; they add up to `total`.

    Attributes:
        stage: packing what others read. reduce_scatter: adding up inside the node.
        inter_node: MPI, doing or waiting for the network. allgather: copying the result out.
        wait_arrival: for ranks of the node to make the call. wait_verdict: for the opening round.
        wait_peer: for ranks of the node in the midst of the call. other: Python and the rest.
    """

    stage: float
    reduce_scatter: float
    inter_node: float
    allgather: float
    wait_arrival: float
    wait_verdict: float
    wait_peer: float
    other: float
    total: float


@dataclass(frozen=True)
class RankFigures:
    """One rank in one case.

    Attributes:
        rank, node: who.
        median: of its own time in a call.
        lateness: how much less than the others it waited until all had entered the call, that is,
            how much later than the first it came, per call. No clocks are compared. Peers do not
            say; of them it is how much shorter its call was than the longest.
        lateness_max: the same of the worst call.
        awaited: seconds per call that the other ranks of its node spent waiting for it, the mean of
            them; None where nobody counts that (peers, a rank alone on its node).
        phases: None for peers.
        bytes_between_nodes, bytes_inside_nodes_mpi, bytes_shared_memory, header_bytes: that it
            sent or wrote, per call; None for peers.
    """

    rank: int
    node: int
    median: float
    lateness: float
    lateness_max: float
    awaited: float | None
    phases: Phases | None
    bytes_between_nodes: float | None
    bytes_inside_nodes_mpi: float | None
    bytes_shared_memory: float | None
    header_bytes: float | None


@dataclass(frozen=True)
class Bytes:
    """Payload of all ranks together, per call, against theory (None where none is stated).

    Attributes:
        between_nodes: over MPI to other nodes. mpi: over MPI in all.
        shared_memory: written to segments.
        formula: what the theory is.
    """

    between_nodes: float
    between_nodes_theory: float | None
    mpi: float
    mpi_theory: float | None
    shared_memory: float
    shared_memory_theory: float | None
    headers: float
    formula: str


@dataclass(frozen=True)
class Bounds:
    """Times that no call can beat by this way of working, from rates measured in the same run.

    Attributes:
        memory: seconds to copy the tensor, all ranks at once.
        wire: seconds for 2(M-1)/M S bytes on a link between nodes (reduce-scatter, all-gather and
            broadcast: what a node must receive); None with one node, or links that weren't probed.
        bound: the larger one. percent: of it that the median time reaches.
    """

    memory: float
    wire: float | None
    bound: float
    percent: float


@dataclass(frozen=True)
class Ratio:
    """Time of this case over that of the reference, call by call, as both took turns.

    Attributes:
        to: the reference's name, "hierring auto".
        low, high: quartiles.
    """

    to: str
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Case:
    """One collective, algorithm, type, operation, size and placement of the result.

    Attributes:
        collective: "allreduce", "reduce_scatter", "allgather" or "broadcast".
        library: "hierring", "mpi" or "gloo".
        algorithm: asked for; "" for peers. chosen: what ran, such as "staged, ring"; "" for peers.
        leaders, cell_bytes: of hierring's communicator; None for peers and flat algorithms.
        nbytes: of the whole tensor; of a reduce-scatter its input, of an all-gather its output.
        iterations: timed calls.
        algbw, busbw, intra_busbw, inter_busbw: GB/s; see `Method.definitions`. The last two are
            None where they mean nothing: one rank a node, one node, other collectives.
        wrong: elements that were wrong, over all calls and ranks; None if not checked.
        tolerance: how far an element may be off before it counts as wrong; 0 is exact.
        ranks: all, in rank order.
        bytes: None for peers.
    """

    collective: str
    library: str
    algorithm: str
    chosen: str
    leaders: int | None
    cell_bytes: int | None
    dtype: str
    op: str
    nbytes: int
    count: int
    in_place: bool
    iterations: int
    times: Times
    algbw: float
    busbw: float
    intra_busbw: float | None
    inter_busbw: float | None
    wrong: int | None
    tolerance: float
    ratio: Ratio | None
    bounds: Bounds
    bytes: Bytes | None
    ranks: tuple[RankFigures, ...]

    @property
    def name(self) -> str:
        """The contender: "hierring auto", "hierring ring", "mpi"; with leaders and cells if set."""
        return contender_name(self.library, self.algorithm, self.leaders, self.cell_bytes)


def contender_name(
    library: str, algorithm: str, leaders: int | None = None, cell_bytes: int | None = None
) -> str:
    """Name who is measured; leaders and cell_bytes only where they were asked for."""
    words = [library, algorithm]
    if leaders is not None:
        words.append(f"leaders={leaders}")
    if cell_bytes is not None:
        words.append(f"cells={cell_bytes}")
    return " ".join(word for word in words if word)

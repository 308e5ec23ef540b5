"""The compiled core: SIMD kernels, the shared-memory segment of a node, and its channel.

Addresses are plain integers and nothing here keeps a tensor alive: the caller owns every buffer for
as long as an operation refers to it. A dtype is an index into ``dtype_names()``, an operator an
index into ``op_names()``. Times named ``until`` are seconds of CLOCK_MONOTONIC, as
``time.monotonic()`` gives them. What computes or waits does so without the GIL; waits take
it back for an instant, every 10 ms or so, to look for signals: Ctrl-C raises KeyboardInterrupt.

One file, because it declares one module.
"""

# Documented here, where editors and type checkers look, and not again in the bindings.
# ruff: noqa: PYI021

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, final

import numpy as np
import numpy.typing as npt

# --- kernels -----------------------------------------------------------------------------------

def dtype_names() -> list[str]:
    """Names of the dtypes in the order of their numbers: "float64", "float32", "float16", ..."""

def op_names() -> list[str]:
    """Names of the operators in the order of their numbers: "sum", "prod", "min", ..."""

def simd_levels() -> list[str]:
    """The instruction sets this machine can run, plainest first; "scalar" is always there."""

def simd_level() -> str:
    """The instruction set in use."""

def set_simd_level(name: str) -> bool:
    """Use another instruction set; False, and no change, where this machine cannot run it."""

@final
class View:
    """Strided memory read or written in logical (C) order, one or several pieces end to end.

    Args:
        pieces: (address, shape, strides in bytes) of each piece.
        itemsize: bytes of one element.
    """

    def __init__(
        self, pieces: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]], itemsize: int
    ) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def contiguous(self) -> bool: ...

def pack(view: View, first: int, count: int, dst_address: int) -> None:
    """Copy elements [first, first + count) of the view to contiguous memory."""

def unpack(view: View, first: int, count: int, src_address: int) -> None:
    """Copy contiguous memory over elements [first, first + count) of the view."""

def reduce(
    dst: int,
    dst_type: int,
    sources: Sequence[tuple[int, int]],
    count: int,
    op: int,
    scales: Sequence[float] | None = None,
    divisor: float = 1.0,
) -> None:
    """Write (scale_0*src_0 OP scale_1*src_1 ...) / divisor, in source order, to dst.

    Args:
        sources: (address, dtype) of each operand, contiguous, count elements each.
    """

def reduce2(
    dst: int,
    dtype: int,
    a: int,
    b: int,
    count: int,
    op: int,
    scale_a: float = 1.0,
    scale_b: float = 1.0,
    divisor: float = 1.0,
) -> None:
    """``reduce`` of two operands of one dtype, which is also the dtype of dst."""

# --- segment -----------------------------------------------------------------------------------

@final
class Segment:
    """A piece of memory mapped by the ranks of one node.

    The mapping, its file descriptor and its locks live until ``close`` was called (or the object
    collected) and the last channel and memoryview on it are gone. A process forked from the owner
    can neither unlink the file nor release the owner's locks. Failures of the system are OSError
    with its errno.
    """

    @staticmethod
    def create(nbytes: int, directory: str = "/dev/shm", named: bool = False) -> Segment:
        """A new segment, all zero, mode 0600, of which no page is reserved yet.

        Args:
            named: False: a file without a name (O_TMPFILE), which peers open through ``path``
                below /proc. True: a file ``hierring-<random>``, locked by this process, that
                stays until ``unlink``; ``sweep`` removes it once this process is gone.
        """

    @staticmethod
    def attach(path: str, nbytes: int) -> Segment:
        """Map a peer's segment. EINVAL if the file is not one of this user with this size."""

    @staticmethod
    def private(nbytes: int) -> Segment:
        """Memory of this process alone (and of its threads and forked children)."""

    @property
    def path(self) -> str:
        """What a peer passes to ``attach``; empty for a private segment."""

    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    def unlink(self) -> None:
        """Remove the name, if there is one and this process made it. May be called twice."""

    def reserve(self, offset: int, nbytes: int) -> None:
        """Take the memory of this range now, on the caller's NUMA node, content unchanged.

        Raises:
            OSError: ENOSPC where the file system is full. Nothing is mapped that cannot be touched.
        """

    def lock(self, local_rank: int) -> None:
        """Hold this rank's liveness lock until the process ends or the segment is dropped.

        Raises:
            OSError: EAGAIN or EACCES where another process holds it.
        """

    def alive(self, local_rank: int) -> bool:
        """Whether a process holds this rank's liveness lock; always true on a private segment."""

    def buffer(self) -> memoryview:
        """All bytes, writable. The view keeps the memory mapped, ``close`` or not."""

    def close(self) -> None:
        """Give up this object's hold on the mapping. May be called twice."""

def sweep(directory: str = "/dev/shm") -> int:
    """Unlink the named segments of this user that no process holds any more; how many went."""

# --- channel -----------------------------------------------------------------------------------

# What a wait came to.
DONE: Final = 0
PENDING: Final = 1  # ``until`` passed first; call again to go on
ABORTED: Final = 2  # the abort word is set, see ``abort_cause``
DEAD: Final = 3  # the rank waited for (``blocker``) holds its liveness lock no more
LEFT: Final = 4  # the rank waited for (``blocker``) has left
MISMATCH: Final = 5  # all local ranks have arrived, and their digests differ

# What a rank is doing, as ``note`` writes and ``peer`` reads it.
IDLE: Final = 0
ENTER: Final = 1
STAGE: Final = 2
OPENING: Final = 3
REDUCE: Final = 4
NET: Final = 5
COPY: Final = 6

# Bits of the answer of ``advance``.
PROGRESSED: Final = 1
FINISHED: Final = 2
DIFFERED: Final = 4  # only with self_verdict: the digests differ; call ``fail``

# What a PhaseClock books time on.
SPENT_STAGE: Final = 0  # packing data for others to read
SPENT_REDUCE_SCATTER: Final = 1  # adding up inside the node
SPENT_INTER_NODE: Final = 2  # the exchange between nodes: working at it or waiting for it
SPENT_ALLGATHER: Final = 3  # copying results out
SPENT_WAIT_ARRIVAL: Final = 4  # until all local ranks have entered the call
SPENT_WAIT_VERDICT: Final = 5  # until all nodes have
SPENT_WAIT_PEER: Final = 6  # until a local rank is through with its part
SPENT_OTHER: Final = 7

@final
class PhaseClock:
    """Books each instant between ``start`` and ``stop`` on exactly one account.

    One thread at a time uses it. It stands still before ``start`` and after ``stop``: then nothing
    that is told to it costs or changes anything.

    Args:
        local_size: for how many local ranks waits are counted apart.
    """

    def __init__(self, local_size: int = 0) -> None: ...
    def start(self) -> float:
        """A call, or its next part, begins: book on SPENT_OTHER. Returns the time in seconds."""

    def stop(self) -> None:
        """The call is over."""

    def turn(self, account: int) -> int:
        """Book on this account from now on; returns the one before."""

    def read(self) -> tuple[list[int], int, list[int]]:
        """Nanoseconds on each account, their sum, and those waited for each local rank."""

class ChannelStats(TypedDict):
    """Bytes this rank has moved since the channel was made."""

    staged_bytes: int  # packed into its own staging cells
    window_bytes: int  # written into the window
    copied_bytes: int  # delivered to its own outputs

@final
class Channel:
    """One rank's end of the shared memory of a node's communicator.

    One thread at a time may use a channel. In a forked child every method that would write to the
    shared memory raises RuntimeError, except ``leave``, which does nothing there.

    Args:
        segment: at least ``layout_nbytes(...)`` long, zero when new, mapped by all local ranks.
        cell_bytes: bytes of one staging or window cell, a multiple of 64.
        window_cells: cells of the window, at least 2.
        small_bytes: longest payload of ``arrive``, a multiple of 64.
        ring_schedule: reduce from neighbour to neighbour instead of all peers at once.
        All but ``local_rank`` must be the same on all local ranks.
    """

    def __init__(
        self,
        segment: Segment,
        local_rank: int,
        local_size: int,
        cell_bytes: int,
        window_cells: int,
        small_bytes: int,
        ring_schedule: bool = False,
    ) -> None: ...
    @staticmethod
    def layout_nbytes(
        local_size: int, cell_bytes: int, window_cells: int, small_bytes: int
    ) -> int: ...
    @property
    def seq(self) -> int:
        """The operation that was entered last."""

    @property
    def slot_nbytes(self) -> int:
        """Bytes of one rank's slot."""

    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    def reserve(self) -> None:
        """Reserve and first-touch this rank's part (Segment.reserve); before anything else.

        Raises:
            OSError: ENOSPC where the file system is full; nothing was touched that has no page.
            ValueError: another local rank gave other sizes.
        """

    def set_wait(self, pauses: int, yields: int) -> None:
        """How long a wait spins and yields before it sleeps."""

    def set_clock(self, clock: PhaseClock) -> None:
        """Book this channel's steps and waits on a clock; without one they are not."""

    def start_at(self, seq: int, base: int) -> None:
        """For tests of wrap-around: the next operation is ``seq``, the next piece ``base``.

        Every local rank calls it, before any operation, with a barrier of the test's own after it.
        """

    # Arrival -----------------------------------------------------------------------------------
    def arrive(
        self,
        seq: int,
        digest: int,
        descriptor: bytes,
        scale: float = 1.0,
        small: View | None = None,
    ) -> None:
        """Publish this rank's arrival at operation ``seq`` (its last one plus 1).

        Args:
            digest: 64 bits that are equal on all ranks exactly if their calls agree.
            descriptor: at most 512 bytes, for ``descriptor`` of the peers.
            scale: the factor of this rank's contribution.
            small: the payload of a small operation, at most ``small_bytes``.
        """

    def arrivals(self, until: float) -> int:
        """Wait until all local ranks have arrived: DONE, PENDING, ABORTED, DEAD or LEFT."""

    def missing(self) -> list[int]:
        """Local ranks that have not arrived at the current operation."""

    @property
    def blocker(self) -> int:
        """The local rank last waited for, -1 before any wait."""

    def local_difference(self) -> int:
        """After ``arrivals``: the lowest rank whose digest is not that of local rank 0, or -1."""

    def descriptor(self, local_rank: int) -> bytes:
        """What that rank passed to ``arrive``. From its arrival until our next ``arrive``."""

    # Verdict -----------------------------------------------------------------------------------
    def publish_verdict(
        self,
        seq: int,
        code: int,
        detail: bytes,
        payload_address: int = 0,
        payload_nbytes: int = 0,
    ) -> None:
        """Local rank 0 alone, after ``arrivals``: tell the node how the opening of ``seq`` ended.

        Args:
            detail: at most 1024 bytes.
            payload_nbytes: at most twice ``small_bytes``.
        """

    def verdict(self, seq: int, until: float) -> int:
        """Wait for the verdict: DONE, PENDING, ABORTED, DEAD or LEFT (of local rank 0)."""

    @property
    def verdict_code(self) -> int: ...
    def verdict_detail(self) -> bytes: ...

    # Small operations ---------------------------------------------------------------------------
    def reduce_small(
        self, dst_address: int, dst_type: int, dtype: int, count: int, op: int, divisor: float
    ) -> None:
        """After ``arrivals``: reduce the payloads of all local ranks, in their order."""

    def reduce_small_to(self, out: View, dtype: int, count: int, op: int, divisor: float) -> None:
        """``reduce_small`` into the first ``count`` elements of a view."""

    def finish_small(
        self, out: View, dtype: int, work_type: int, first: int, count: int, divisor: float
    ) -> None:
        """After ``verdict``: elements [first, first + count) of its payload, divided, to out."""

    # Large operations ---------------------------------------------------------------------------
    def begin(
        self,
        kind: Literal["reduce", "copy"],
        x: View | None,
        out: View | None,
        dtype: int,
        work_type: int,
        op: int,
        node_divisor: float,
        out_divisor: float,
        runners: int,
        self_verdict: bool,
        count: int,
        cell_elems: int,
        pieces: npt.NDArray[np.int64] | None,
    ) -> None:
        """Start the pipeline of the current operation.

        Args:
            x: this rank's contribution, or None where it has none.
            out: where results go, or None. It may be x itself, and must not overlap it otherwise.
            work_type: dtype of the window.
            runners: how many local ranks (0..runners-1) exchange the window with other nodes.
            self_verdict: the digests of the local ranks alone decide whether it may go on.
            count: elements in all; ``cell_elems`` of them make a piece, and fit into a cell in the
                dtype, the work type and, with the ring schedule, the type of its partial sums.
            pieces: None, or one row (first element in x or -1, count, first element in out or -1)
                for each piece. The middle column is the same on all ranks.

        A copy takes divisors of 1 and a work type equal to the dtype. The views' memory must live
        until the end. Nothing is written outside this rank's own cells before ``open``.
        """

    def open(self) -> None:
        """The verdict is good: peers may be read, ``out`` may be written."""

    def fail(self) -> None:
        """The verdict is bad: forget the operation. All local ranks call it, begun or not."""

    def advance(self) -> int:
        """Do what can be done without waiting: bits PROGRESSED, FINISHED, DIFFERED."""

    def block(self, until: float) -> int:
        """Sleep until some step can be done: DONE, PENDING, ABORTED, DEAD or LEFT.

        DONE at once on a runner, if ``reduced`` has more to tell than it last did.
        """

    def run(self, until: float) -> int:
        """Carry the operation to its end: DONE, PENDING, ABORTED, DEAD, LEFT or MISMATCH.

        After PENDING, or an exception out of a signal handler, another call goes on from there.
        Not for a runner, which exchanges between ``advance`` and ``block``.
        """

    @property
    def base(self) -> int:
        """First piece index of the current operation, or of the next one between operations."""

    @property
    def pieces(self) -> int:
        """Pieces of the current operation."""

    def reduced(self) -> int:
        """How many pieces of this operation all local ranks have reduced; never blocks."""

    def gathered(self, done: int) -> None:
        """A runner has exchanged its share of the first ``done`` pieces of this operation.

        By this it also promises that the network touches their window cells no more, in particular
        that its sends out of them are complete.
        """

    def window(self, piece: int) -> int:
        """Address of the window cell of a piece of this operation."""

    def finish(self) -> None:
        """End the operation; ``run`` and ``advance`` do so by themselves. May be called twice."""

    # Status and failure -------------------------------------------------------------------------
    def note(self, phase: int, step: int, waiting_for: int) -> None:
        """Write this rank's status line, without a new time stamp."""

    def peer(self, local_rank: int) -> tuple[int, int, int, int, float, bool, int]:
        """A rank's status: (seq, phase, step, waiting_for, age in seconds, left, pid).

        The age is that of its last ``arrive``; the fields are read one by one while it works.
        """

    def set_abort(self, kind: int, rank: int, text: bytes) -> bool:
        """Break the channel and wake everybody; True for the first caller, whose cause stays.

        Args:
            text: at most 900 bytes.
        """

    def abort_cause(self) -> tuple[int, int, bytes] | None:
        """(kind, rank, text) of the first ``set_abort``, None before it.

        A cause whose writer died while writing it is (0, -1, b"").
        """

    def claim_inquiry(self) -> bool:
        """True for one rank in the life of the channel: the one that composes a timeout's cause."""

    def leave(self) -> None:
        """Mark this rank as left, for good, and wake its peers."""

    def stats(self) -> ChannelStats: ...

# --- whole calls -------------------------------------------------------------------------------

@final
class WholeCall:
    """All-reduces inside one node, from the user's tensors to the result in a single call.

    Takes NumPy arrays and torch tensors in contiguous CPU memory, with dtypes, operators and counts
    it has a recipe for. The other ranks can't tell whether one makes an operation so or in steps.

    `run` needs no lock of its caller: it keeps the GIL, for 0.2 ms at most, and does nothing while
    a thread has the claim to be inside a collective. It answers 0 if this is not for it, and
    nothing has happened; 1: done; 2: entered, but not ended soon, or the ranks differ: this thread
    has the claim, and goes on after ``arrive`` and ``begin``; 3: large, and nothing has happened:
    `run_large`, under the communicator's lock, answers likewise and works without the GIL.
    """

    def __init__(self, channel: Channel) -> None: ...
    def know_numpy(
        self, array_type: object, dtypes: Mapping[Any, int], probe: object, address: int
    ) -> bool:
        """Learn to look at NumPy arrays; False, and nothing learned, if they look otherwise here.

        Args:
            probe: a float64 array of the shape (2, 3) at this address.
        """

    def know_torch(self, types: list[object], dtypes: Mapping[Any, int], increment: object) -> None:
        """The same for tensors of these types; `increment` is told of those written, in a tuple."""

    @property
    def knows_torch(self) -> bool: ...
    def learn(
        self,
        op: str,
        dtype: int,
        code: int,
        count: int,
        cell_elems: int,
        divisor: float,
        digest: int,
        descriptor: bytes,
    ) -> None:
        """Keep a recipe. `op` is what users say, `code` its number; else as in arrive, begin."""

    def run(self, x: object, op: object, out: object | None) -> int: ...
    def run_large(self, x: object, op: object, out: object | None) -> int: ...
    def claim(self) -> None: ...
    def release(self) -> None: ...
    @property
    def claimed(self) -> bool: ...
    @property
    def mine(self) -> bool: ...  # claimed by this thread
    @property
    def done_here(self) -> bool: ...  # the last `run` was this thread's, and is done
    @property
    def settled(self) -> int: ...  # the last operation that it has completed
    @property
    def completed(self) -> tuple[int, int]: ...  # operations: small, large

"""Who is measured: hierring by algorithm and settings, and the peers, all on the same buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hierring.benchmarks.figures import contender_name
from hierring.benchmarks.plan import Point
from hierring.dtypes import DType, to_numpy

if TYPE_CHECKING:
    from hierring.communicator import Communicator, Statistics

__all__ = ["Contender", "Hierring", "Mpi", "as_array", "as_tensor"]

Array = npt.NDArray[Any]
Call = Callable[[], Any]


@dataclass
class Contender(ABC):
    """One way to run a collective.

    Attributes:
        library: "hierring", "mpi" or "gloo".
        algorithm: asked for; "" for peers.
        leaders, cell_bytes: set for this one; None if they are the configured ones.
    """

    library: str
    algorithm: str = ""
    leaders: int | None = None
    cell_bytes: int | None = None

    @property
    def name(self) -> str:
        """As it is printed."""
        return contender_name(self.library, self.algorithm, self.leaders, self.cell_bytes)

    @abstractmethod
    def refusal(self, point: Point, in_place: bool) -> str:
        """Why it can't run this; empty if it can."""

    @abstractmethod
    def call(self, point: Point, x: Array, out: Array | None) -> Call:
        """A function that runs it once; made once for each case, outside the timed region.

        Args:
            x: this rank's input as stored, see `data.storage`.
            out: where the result goes; None for in place.
        """

    def statistics(self) -> Statistics | None:
        """Counters so far; None for those who don't count."""
        return None


def as_array(memory: Array, dtype: DType) -> Any:
    """Memory as an object that hierring takes: bfloat16 by ml_dtypes, or else by torch."""
    if dtype is not DType.BFLOAT16:
        return memory
    known = to_numpy(dtype)
    return as_tensor(memory, dtype) if known is None else memory.view(known)


def as_tensor(memory: Array, dtype: DType) -> Any:
    """Memory as a torch tensor, shared."""
    import torch

    if dtype is DType.BFLOAT16:
        return torch.from_numpy(memory.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(memory)


@dataclass
class Hierring(Contender):
    """Our own collectives on one communicator."""

    comm: Communicator | None = None

    def refusal(self, point: Point, in_place: bool) -> str:
        """Only all-reduce has algorithms, and only some results fit where the input was."""
        if in_place and point.collective in ("reduce_scatter", "allgather"):
            return "its result has another size than its input"
        if self.algorithm not in ("auto", "hierarchical") and point.collective != "allreduce":
            return "it has no choice of algorithms"
        return ""

    def call(self, point: Point, x: Array, out: Array | None) -> Call:
        """See Contender."""
        comm, source = self.comm, as_array(x, point.dtype)
        assert comm is not None
        target = None if out is None else as_array(out, point.dtype)
        op = point.op
        # Left out where it is the default, as programs do: such calls take a shorter way.
        algorithm = None if self.algorithm == comm.config.algorithm else self.algorithm
        if point.collective == "allreduce":
            return lambda: comm.allreduce(source, op, out=target, algorithm=algorithm)
        if point.collective == "reduce_scatter":
            return lambda: comm.reduce_scatter(source, op, out=target)
        if point.collective == "allgather":
            return lambda: comm.allgather(source, out=target)
        return lambda: comm.broadcast(source, 0, out=target)

    def statistics(self) -> Statistics:
        """The communicator's own; it does nothing but what is measured."""
        assert self.comm is not None
        return self.comm.statistics()


@dataclass
class Mpi(Contender):
    """The collectives of whatever MPI library runs the job."""

    comm: Any = None

    def refusal(self, point: Point, in_place: bool) -> str:
        """MPI has neither avg nor 16-bit floats."""
        if point.dtype in (DType.FLOAT16, DType.BFLOAT16) and point.op != "none":
            return f"MPI can't reduce {point.dtype}"
        if point.dtype is DType.BOOL and point.op != "none":
            return "MPI has other operations on truth values"
        if point.op == "avg":
            return "MPI has no avg"
        if point.collective == "broadcast" and not in_place:
            return "MPI broadcasts in place"
        if in_place and point.collective in ("reduce_scatter", "allgather"):
            return "its result has another size than its input"
        return ""

    def call(self, point: Point, x: Array, out: Array | None) -> Call:
        """See Contender."""
        from mpi4py import MPI

        comm = self.comm
        raw = x.view(np.uint8) if point.op == "none" else x
        target = None if out is None else out.view(raw.dtype)
        if point.collective == "broadcast":
            return lambda: comm.Bcast(raw, 0)
        if point.collective == "allgather":
            return lambda: comm.Allgather(raw, target)
        op = getattr(MPI, point.op.upper())
        if point.collective == "reduce_scatter":
            return lambda: comm.Reduce_scatter_block(raw, target, op)
        if target is None:
            return lambda: comm.Allreduce(MPI.IN_PLACE, raw, op)
        return lambda: comm.Allreduce(raw, target, op)

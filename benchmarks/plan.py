"""What is measured, as a list; pure."""

from __future__ import annotations

from dataclasses import dataclass

from hierring.benchmarks.options import Options
from hierring.config import Config, algorithm_for
from hierring.dtypes import DType, check_op, itemsize, parse_op, wire_type
from hierring.errors import UnsupportedTypeError

__all__ = ["Plan", "Point", "chosen", "plan"]


@dataclass(frozen=True)
class Point:
    """One row of the table, whoever is measured.

    Attributes:
        op: "none" where nothing is reduced.
        count: elements of the whole tensor, of which a rank may hold a block.
    """

    collective: str
    dtype: DType
    op: str
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.count * itemsize(self.dtype)

    def wire(self, config: Config) -> DType:
        """The type that partial results travel in between nodes."""
        if self.op == "none":
            return self.dtype
        return wire_type(self.dtype, parse_op(self.op), config.wire_dtype, explicit=False)


@dataclass(frozen=True)
class Plan:
    """The rows in the order they are measured, and pairs of type and operation that can't be."""

    points: tuple[Point, ...]
    refused: tuple[tuple[str, str], ...]


def plan(options: Options, size: int) -> Plan:
    """All rows for `size` ranks; a count that does not divide among them is rounded up."""
    points: dict[Point, None] = {}
    refused: dict[tuple[str, str], None] = {}
    for collective in options.collectives:
        reduces = collective in ("allreduce", "reduce_scatter")
        for dtype in options.dtypes:
            for op in options.ops if reduces else ("none",):
                why = _refusal(dtype, op)
                if why:
                    refused[f"{dtype} {op}", why] = None
                    continue
                for nbytes in options.sizes:
                    count = max(nbytes // itemsize(dtype), 1)
                    if collective in ("reduce_scatter", "allgather"):
                        count = -(-count // size) * size
                    points[Point(collective, dtype, op, count)] = None
    return Plan(tuple(points), tuple(refused))


def _refusal(dtype: DType, op: str) -> str:
    if op == "none":
        return ""
    try:
        check_op(parse_op(op), dtype)
    except UnsupportedTypeError as error:
        return str(error)
    return ""


def chosen(point: Point, algorithm: str, config: Config, num_nodes: int) -> str:
    """What runs if `algorithm` is asked for, in the words of docs/algorithms.md.

    The engine decides so from the same figures, on all ranks alike.
    """
    from hierring.communicator.rails import DOUBLING_BYTES

    name = algorithm_for(algorithm, point.nbytes) if point.collective == "allreduce" else "auto"
    if name not in ("auto", "hierarchical"):
        return f"flat {name}"
    if point.nbytes <= config.small_bytes:
        return "small"
    if num_nodes == 1:
        return "staged"
    if point.collective != "allreduce":
        return "staged, chain"
    if num_nodes == 2:
        return "staged, exchange"
    on_wire = point.count * itemsize(point.wire(config))
    return "staged, doubling" if on_wire <= DOUBLING_BYTES else "staged, ring"

"""From the arguments of a public call to what the engine runs.

Everything here happens before a rank has said what it calls, so any exception is a clean refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hierring import buffers
from hierring.communicator import whole
from hierring.communicator.descriptor import ALGORITHMS, KINDS, Descriptor, digest_of
from hierring.communicator.transfer import Transfer
from hierring.config import algorithm_for, parse_algorithm
from hierring.dtypes import (
    DType,
    ReduceOp,
    check_op,
    check_scale,
    parse_op,
    wire_type,
)
from hierring.errors import ConfigurationError, UnsupportedTypeError

if TYPE_CHECKING:
    from hierring.buffers import Buffer
    from hierring.communicator.engine import Engine

__all__ = ["Request", "allreduce", "allreduce_coalesced", "plain", "reduction"]


@dataclass
class Request:
    """An operation ready to run, and how its result is handed back once it has run."""

    descriptor: Descriptor
    transfer: Transfer | None
    finish: Callable[[], Any]


def plain(kind: str) -> Request:
    """An operation that moves no data."""
    return Request(Descriptor(KINDS.index(kind)), None, lambda: None)


@dataclass(frozen=True)
class Reduction:
    """The arguments that say how elements are reduced, checked against a dtype."""

    op: ReduceOp
    wire: DType
    scale: float
    algorithm: str

    def descriptor(self, kind: str, dtype: DType, count: int, extra: int = 0) -> Descriptor:
        return Descriptor(
            KINDS.index(kind), int(self.op.op), self.op.average, int(dtype), int(self.wire),
            ALGORITHMS.index(self.algorithm), -1, count, extra,
        )  # fmt: skip


def reduction(
    engine: Engine,
    dtype: DType,
    nbytes: int,
    op: object,
    algorithm: str | None = "hierarchical",
    wire_dtype: str | None = None,
    scale: float | None = None,
) -> Reduction:
    """Check the arguments that say how elements are reduced; None takes the configured value."""
    reduce_op = parse_op(op)
    check_op(reduce_op, dtype)
    factor = 1.0 if scale is None else check_scale(scale, reduce_op, dtype)
    explicit = wire_dtype is not None
    requested = wire_dtype if explicit else engine.config.wire_dtype
    wire = wire_type(dtype, reduce_op, requested, explicit)
    text = engine.config.algorithm if algorithm is None else algorithm
    if not isinstance(text, str):
        raise ConfigurationError(f"algorithm is a name or ranges, not {algorithm!r}")
    parse_algorithm(text)
    name = algorithm_for(text, nbytes)
    return Reduction(reduce_op, wire, factor, "hierarchical" if name == "auto" else name)


def allreduce(
    engine: Engine,
    x: Any,
    op: object,
    out: Any,
    algorithm: str | None = None,
    wire_dtype: str | None = None,
    scale: float | None = None,
) -> Request:
    """Communicator.allreduce."""
    if out is None:
        source = target = buffers.inplace(x)
    else:
        source, target = buffers.read(x), buffers.write(out)
        buffers.check_out(source, target)
    dtype = source.dtype
    how = reduction(engine, dtype, source.nbytes, op, algorithm, wire_dtype, scale)

    def finish() -> Any:
        target.written()
        return target.value()

    transfer = Transfer(
        "reduce", source.view, target.view, dtype, how.wire, how.op, source.count,
        how.scale, how.algorithm, keeps=(source, target),
    )  # fmt: skip
    descriptor = how.descriptor("allreduce", dtype, source.count)
    alone = engine.topology.num_nodes == 1
    if alone and algorithm is None and wire_dtype is None and scale is None:
        whole.learn(engine, op, source, target, transfer, descriptor)
    return Request(descriptor, transfer, finish)


def _item(index: int, tensor: Any) -> Buffer:
    """One tensor of a list; a refusal says which."""
    if tensor is None:
        raise UnsupportedTypeError(
            f"item {index} of the list is None, such as the gradient of a parameter that took no "
            "part in the loss: leave it out on all ranks, or give zeros"
        )
    try:
        return buffers.inplace(tensor)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"item {index} of the list: {error}") from None


def allreduce_coalesced(
    engine: Engine,
    tensors: Sequence[Any],
    op: object,
    algorithm: str | None,
    wire_dtype: str | None,
    scale: float | None,
) -> list[Request]:
    """One request for each dtype, in the order of first appearance.

    Each descriptor holds a digest of the whole list, so a rank whose list differs anywhere fails
    the first operation, before any tensor of any group is written.
    """
    items = [_item(index, tensor) for index, tensor in enumerate(tensors)]
    all_items = digest_of([(int(item.dtype), item.count) for item in items])
    groups: dict[DType, list[Buffer]] = {}
    for item in items:
        groups.setdefault(item.dtype, []).append(item)
    requests = []
    for dtype, members in groups.items():
        joined = buffers.many(members)
        how = reduction(engine, dtype, joined.nbytes, op, algorithm, wire_dtype, scale)
        transfer = Transfer(
            "reduce", joined.view, joined.view, dtype, how.wire, how.op, joined.count,
            how.scale, how.algorithm, keeps=(joined, *members),
        )  # fmt: skip
        descriptor = how.descriptor("allreduce_coalesced", dtype, joined.count, all_items)
        requests.append(Request(descriptor, transfer, joined.written))
    values = [item.value for item in items]
    if not requests:
        empty = Descriptor(KINDS.index("allreduce_coalesced"), extra=all_items)
        requests.append(Request(empty, None, lambda: None))
    last = requests[-1]

    def finish(written: Callable[[], Any] = last.finish) -> list[Any]:
        written()
        return [value() for value in values]

    last.finish = finish
    return requests

"""From the arguments of a public call to what the engine runs.

Everything here happens before a rank has said what it calls, so any exception is a clean refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierring import _core, buffers
from hierring.communicator.descriptor import ALGORITHMS, KINDS, Descriptor, digest_of
from hierring.communicator.transfer import (
    PAYLOAD_SUM,
    Pieces,
    Transfer,
    gather_pieces,
    scatter_pieces,
)
from hierring.config import algorithm_for, parse_algorithm
from hierring.dtypes import (
    DType,
    ReduceOp,
    check_op,
    check_scale,
    itemsize,
    parse_op,
    wire_type,
)
from hierring.errors import ConfigurationError

if TYPE_CHECKING:
    from hierring.buffers import Buffer
    from hierring.communicator.engine import Engine

__all__ = [
    "Request",
    "allgather_counts",
    "allgather_data",
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "plain",
    "reduce_scatter",
]


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


def _reduction(
    engine: Engine,
    dtype: DType,
    nbytes: int,
    op: object,
    algorithm: str | None = "hierarchical",
    wire_dtype: str | None = None,
    scale: float | None = None,
) -> Reduction:
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
    algorithm: str | None,
    wire_dtype: str | None,
    scale: float | None,
) -> Request:
    """Communicator.allreduce."""
    if out is None:
        source = target = buffers.inplace(x)
    else:
        source, target = buffers.read(x), buffers.write(out)
        buffers.check_out(source, target)
    dtype = source.dtype
    how = _reduction(engine, dtype, source.nbytes, op, algorithm, wire_dtype, scale)

    def finish() -> Any:
        target.written()
        return target.value()

    transfer = Transfer(
        "reduce", source.view, target.view, dtype, how.wire, how.op, source.count,
        how.scale, how.algorithm, keeps=(source, target),
    )  # fmt: skip
    return Request(how.descriptor("allreduce", dtype, source.count), transfer, finish)


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
    items = [buffers.inplace(tensor) for tensor in tensors]
    whole = digest_of([(int(item.dtype), item.count) for item in items])
    groups: dict[DType, list[Buffer]] = {}
    for item in items:
        groups.setdefault(item.dtype, []).append(item)
    requests = []
    for dtype, members in groups.items():
        joined = buffers.many(members)
        how = _reduction(engine, dtype, joined.nbytes, op, algorithm, wire_dtype, scale)
        transfer = Transfer(
            "reduce", joined.view, joined.view, dtype, how.wire, how.op, joined.count,
            how.scale, how.algorithm, keeps=(joined, *members),
        )  # fmt: skip
        descriptor = how.descriptor("allreduce_coalesced", dtype, joined.count, whole)
        requests.append(Request(descriptor, transfer, joined.written))
    values = [item.value for item in items]
    if not requests:
        empty = Descriptor(KINDS.index("allreduce_coalesced"), extra=whole)
        requests.append(Request(empty, None, lambda: None))
    last = requests[-1]

    def finish(written: Callable[[], Any] = last.finish) -> list[Any]:
        written()
        return [value() for value in values]

    last.finish = finish
    return requests


def reduce_scatter(engine: Engine, x: Any, op: object, out: Any) -> Request:
    """Communicator.reduce_scatter."""
    source = buffers.read(x)
    size, me = engine.topology.size, engine.contact.me
    if not source.shape or source.shape[0] % size:
        raise ConfigurationError(
            f"reduce_scatter needs a first dimension divisible by {size} ranks, not shape "
            f"{tuple(source.shape)}: pad it, or use allreduce"
        )
    shape = (source.shape[0] // size, *source.shape[1:])
    target = _result(source, shape, out)
    block = source.count // size
    how = _reduction(engine, source.dtype, source.nbytes, op)
    descriptor = how.descriptor("reduce_scatter", source.dtype, source.count)

    if source.nbytes <= engine.memory.layout.small_bytes:
        whole = np.empty(max(source.nbytes, 1), np.uint8)
        transfer = Transfer(
            "reduce", source.view, _flat_view(whole, source.count, itemsize(source.dtype)),
            source.dtype, how.wire, how.op, source.count, keeps=(source, whole),
        )  # fmt: skip

        def take() -> Any:
            at = whole.ctypes.data + me * block * itemsize(source.dtype)
            _core.unpack(target.view, 0, block, at)
            target.written()
            return target.value()

        return Request(descriptor, transfer, take)

    draft = Transfer(
        "reduce", source.view, target.view, source.dtype, how.wire, how.op, source.count
    )
    pieces = scatter_pieces(block, size, _node_of(engine), me, _cell_elems(engine, draft))
    return Request(descriptor, _with_pieces(draft, pieces, source, target), _finish(target))


def allgather_counts(engine: Engine, x: Any) -> tuple[Request, Buffer]:
    """First of two operations: everybody learns how many rows each rank brings."""
    source = buffers.read(x)
    size, me = engine.topology.size, engine.contact.me
    counts = np.zeros(size, np.int64)
    counts[me] = source.shape[0] if source.shape else 1
    descriptor = Descriptor(
        KINDS.index("allgather"), dtype=int(source.dtype), wire=int(source.dtype), count=size,
        extra=digest_of(tuple(int(extent) for extent in source.shape[1:]), len(source.shape) or 1),
    )  # fmt: skip
    view = _flat_view(counts, size, 8)
    transfer = Transfer(
        "reduce", view, view, DType.INT64, DType.INT64, PAYLOAD_SUM, size,
        administrative=True, keeps=(counts,),
    )  # fmt: skip
    return Request(descriptor, transfer, lambda: [int(count) for count in counts]), source


def allgather_data(engine: Engine, source: Buffer, rows: list[int], out: Any) -> Request:
    """Second: the blocks themselves. A bad `out` is refused here."""
    me = engine.contact.me
    rest = tuple(source.shape[1:])
    target = _result(source, (sum(rows), *rest), out)
    width = int(np.prod(rest, dtype=np.int64))
    counts = [count * width for count in rows]
    places = [sum(counts[:rank]) for rank in range(len(counts))]
    total = sum(counts)
    descriptor = Descriptor(
        KINDS.index("allgather (data)"), dtype=int(source.dtype), wire=int(source.dtype),
        count=total,
    )  # fmt: skip
    nbytes = total * itemsize(source.dtype)
    if nbytes <= engine.memory.layout.small_bytes:
        transfer, whole = _payload(nbytes, source, places[me] * itemsize(source.dtype))
        return Request(descriptor, transfer, _take_payload(target, whole, total))
    draft = _copying(source, target, total)
    cells = _cell_elems(engine, draft)
    pieces = gather_pieces(counts, places, _node_of(engine), me, cells)
    return Request(descriptor, _with_pieces(draft, pieces, source, target), _finish(target))


def broadcast(engine: Engine, x: Any, root: int, out: Any) -> Request:
    """Communicator.broadcast."""
    size, me = engine.topology.size, engine.contact.me
    if not _is_rank(root, size):
        raise ConfigurationError(f"root is a rank from 0 to {size - 1}, not {root!r}")
    mine = me == root
    if out is not None:
        source, target = buffers.read(x), buffers.write(out)
        buffers.check_out(source, target)
    elif mine:
        source = target = buffers.read(x)
    else:
        source = target = buffers.inplace(x)
    deliver = out is not None or not mine
    descriptor = Descriptor(
        KINDS.index("broadcast"), dtype=int(source.dtype), wire=int(source.dtype), root=int(root),
        count=source.count,
    )  # fmt: skip
    if source.nbytes <= engine.memory.layout.small_bytes:
        transfer, whole = _payload(source.nbytes, source if mine else None, 0)
        take = _take_payload(target, whole, source.count)
        return Request(descriptor, transfer, take if deliver else target.value)
    draft = _copying(source, target, source.count)
    counts = [source.count if rank == root else 0 for rank in range(size)]
    pieces = gather_pieces(
        counts, [0] * size, _node_of(engine), me, _cell_elems(engine, draft), deliver
    )
    finish = _finish(target) if deliver else target.value
    return Request(descriptor, _with_pieces(draft, pieces, source, target), finish)


# --- shared pieces of the above ------------------------------------------------------------------


def _result(source: Buffer, shape: tuple[int, ...], out: Any) -> Buffer:
    """The buffer of a result whose shape differs from its input's."""
    target = buffers.write(buffers.empty(source, shape) if out is None else out)
    count = int(np.prod(shape, dtype=np.int64))
    if out is not None:
        buffers.check_out(source, target, count)
    return target


def _is_rank(value: object, size: int) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and 0 <= int(value) < size  # type: ignore[call-overload]  # narrowed above


def _finish(target: Buffer) -> Callable[[], Any]:
    def finish() -> Any:
        target.written()
        return target.value()

    return finish


def _node_of(engine: Engine) -> list[int]:
    topology = engine.topology
    return [topology.node_of(rank) for rank in range(topology.size)]


def _cell_elems(engine: Engine, transfer: Transfer) -> int:
    ring_schedule = engine.config.intra_schedule == "ring"
    return transfer.cell_elems(engine.memory.layout.cell_bytes, transfer.wire, ring_schedule)


def _copying(source: Buffer, target: Buffer, count: int) -> Transfer:
    return Transfer(
        "copy", source.view, target.view, source.dtype, source.dtype, PAYLOAD_SUM, count
    )


def _with_pieces(draft: Transfer, pieces: Pieces, *keeps: object) -> Transfer:
    return Transfer(
        draft.contribute, draft.x, draft.out, draft.dtype, draft.wire, draft.op, draft.count,
        draft.scale, draft.algorithm, pieces, keeps=keeps,
    )  # fmt: skip


def _flat_view(array: Any, count: int, size: int) -> Any:
    """A view of a contiguous NumPy array's first `count` elements of `size` bytes."""
    return _core.View([(array.ctypes.data, (count,), (size,))], size)


def _payload(nbytes: int, source: Buffer | None, at: int) -> tuple[Transfer, Any]:
    """Zero-padded bytes whose bitwise or over all ranks is the gathered result."""
    whole = np.zeros(max(nbytes, 1), np.uint8)
    if source is not None:
        _core.pack(source.view, 0, source.count, whole.ctypes.data + at)
    view = _flat_view(whole, nbytes, 1)
    transfer = Transfer(
        "reduce", view, view, DType.UINT8, DType.UINT8, PAYLOAD_SUM, nbytes, keeps=(whole,)
    )
    return transfer, whole


def _take_payload(target: Buffer, whole: Any, count: int) -> Callable[[], Any]:
    def take() -> Any:
        _core.unpack(target.view, 0, count, whole.ctypes.data)
        target.written()
        return target.value()

    return take

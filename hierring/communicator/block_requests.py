"""Requests of the collectives that move blocks of ranks: reduce-scatter, all-gather, broadcast.

As in `requests`, a rank has not yet said what it calls: errors are refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hierring import _core, buffers
from hierring.communicator.descriptor import KINDS, Descriptor, digest_of
from hierring.communicator.requests import Request, reduction
from hierring.communicator.transfer import (
    PAYLOAD_SUM,
    Pieces,
    Transfer,
    gather_pieces,
    scatter_pieces,
)
from hierring.dtypes import DType, itemsize
from hierring.errors import ConfigurationError

if TYPE_CHECKING:
    from hierring.buffers import Buffer
    from hierring.communicator.engine import Engine

__all__ = ["allgather_counts", "allgather_data", "broadcast", "reduce_scatter"]


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
    how = reduction(engine, source.dtype, source.nbytes, op)
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

"""The `Buffer` record, and the questions asked of two or more of them: fit, overlap, joining."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from hierring._core import View
from hierring.dtypes import DType, itemsize, to_numpy, to_torch
from hierring.errors import UnsupportedTypeError

Piece = tuple[int, tuple[int, ...], tuple[int, ...]]  # address, shape, strides in bytes
Kind = Literal["numpy", "torch", "scalar", "list"]

# Steps that the exact answer to "do two strided arrays share an element" may take, well under a
# millisecond. What is harder than that no slicing or transposing makes; it counts as an overlap.
_OVERLAP_WORK: Any = 10_000  # Any: NumPy's stubs know only 0 and -1


class Buffer:
    """Memory of the caller as a collective sees it.

    Attributes:
        pieces: (address, shape, strides in bytes) of each array, in logical order.
        view: the same for the compiled core.
        dtype: of the elements.
        count: number of elements.
        nbytes: count times itemsize.
        shape: as the caller sees it; (count,) of several joined.
        owner: the caller's object; a list of Buffers where several are joined.
        keep: what holds the memory: the owner, or an array on it.
        kind: "numpy" (DLPack and buffer protocol included), "torch", "scalar" or "list".
        writable: whether a collective may write here.
    """

    __slots__ = (
        "count",
        "dtype",
        "keep",
        "kind",
        "nbytes",
        "owner",
        "pieces",
        "shape",
        "view",
        "writable",
    )

    def __init__(
        self,
        pieces: tuple[Piece, ...],
        dtype: DType,
        size: int,
        count: int,
        shape: tuple[int, ...],
        owner: Any,
        keep: Any,
        kind: Kind,
        writable: bool,
    ) -> None:
        # `size` is itemsize(dtype), which the caller has at hand.
        self.pieces = pieces
        self.view = View(pieces, size)
        self.dtype = dtype
        self.count = count
        self.nbytes = count * size
        self.shape = shape
        self.owner = owner
        self.keep = keep
        self.kind = kind
        self.writable = writable

    def __repr__(self) -> str:
        return f"Buffer({self.kind}, {self.dtype}, shape {self.shape})"

    def written(self) -> None:
        """Tell torch that its tensor has changed, so that autograd refuses a stale use of it."""
        if self.kind == "torch":
            sys.modules["torch"].autograd.graph.increment_version(self.owner)
        elif self.kind == "list":
            for part in self.owner:
                part.written()

    def value(self) -> Any:
        """Return what the public call returns: the caller's object, or the number now in it."""
        if self.kind == "scalar":
            # NumPy's scalars keep their type, Python's numbers stay Python's.
            return self.keep[()] if isinstance(self.owner, np.generic) else self.keep.item()
        if self.kind == "list":
            return [part.value() for part in self.owner]
        return self.owner


def refusal(what: str, why: str, remedy: str) -> UnsupportedTypeError:
    """Make the error for an object that cannot take part."""
    return UnsupportedTypeError(f"{what} {why}: {remedy}")


def empty(like: Buffer, shape: tuple[int, ...]) -> Any:
    """Make an uninitialised contiguous object of the same kind and dtype, for a result.

    A torch tensor for a torch tensor, else a NumPy array.
    """
    if like.kind == "torch":
        return sys.modules["torch"].empty(shape, dtype=to_torch(like.dtype))
    return np.empty(shape, to_numpy(like.dtype))


def many(buffers: Sequence[Buffer], *, written: bool = True) -> Buffer:
    """Join buffers of one dtype to one, element after element, for a coalesced call.

    Args:
        buffers: may be empty, which is a buffer of no elements.
        written: the call writes to them, so that they must not overlap.

    Raises:
        UnsupportedTypeError: dtypes differ; or two overlap and are written.
    """
    parts = list(buffers)
    dtype = parts[0].dtype if parts else DType.FLOAT32
    for index, part in enumerate(parts):
        if part.dtype is not dtype:
            raise refusal(
                f"item {index} of dtype {part.dtype}, shape {part.shape}",
                f"cannot be joined with item 0 of dtype {dtype}",
                "make one call for each dtype",
            )
    spans = [span for index, part in enumerate(parts) for span in _spans(part, index)]
    if written and (clash := _first_clash(spans)):
        raise refusal(
            f"items {clash[0]} and {clash[1]}", "overlap in memory", "pass each element once"
        )
    count = sum(part.count for part in parts)
    pieces = tuple(piece for part in parts for piece in part.pieces)
    writable = all(part.writable for part in parts)
    size = itemsize(dtype)
    return Buffer(pieces, dtype, size, count, (count,), parts, parts, "list", writable)


def check_out(x: Buffer, out: Buffer, count: int | None = None) -> None:
    """Refuse an `out` that does not fit `x`.

    Args:
        x: what the collective reads.
        out: where its result goes. It may be the memory of `x` itself, or share none of it.
        count: elements of the result, where it is not as long as `x`.

    Raises:
        UnsupportedTypeError: dtype or count differ, or they overlap in part.
    """
    expected = x.count if count is None else count
    if out.dtype is not x.dtype:
        raise refusal(
            f"out of dtype {out.dtype}, shape {out.shape}",
            f"does not fit x of dtype {x.dtype}",
            f"give an out of dtype {x.dtype}",
        )
    if out.count != expected:
        raise refusal(
            f"out of shape {out.shape} with {out.count} elements",
            f"does not fit x of dtype {x.dtype}, shape {x.shape}",
            f"give an out of {expected} elements",
        )
    if out.pieces == x.pieces:
        return
    # Joined buffers: an item may be its own result, as long as it stands at the same place.
    spans = _without_common(_spans(x, 0), _spans(out, 1))
    if _first_clash(spans):
        raise refusal(
            f"out of dtype {out.dtype}, shape {out.shape}",
            "overlaps x in part",
            "give x itself, or memory apart from it",
        )


# One piece and where it lies: first byte, byte after the last, group it belongs to, first element
# in its group, piece, itemsize.
_Span = tuple[int, int, int, int, Piece, int]


def self_overlaps(shape: Iterable[int], strides: Iterable[int], size: int) -> bool:
    """Whether two elements of one array may share a byte.

    Exact for whatever slicing, transposing and expanding make: there each axis steps over all that
    the finer ones cover. Layouts made by hand that only interleave count as overlapping.

    Args:
        size: bytes of one element; strides are in bytes too.
    """
    covered = size
    axes = [
        (abs(stride), extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1
    ]
    for stride, extent in sorted(axes):
        if stride < covered:
            return True
        covered += (extent - 1) * stride
    return False


def _spans(buffer: Buffer, group: int) -> list[_Span]:
    """The non-empty pieces of a buffer with the bytes they lie between."""
    size = itemsize(buffer.dtype)
    spans: list[_Span] = []
    element = 0
    for piece in buffer.pieces:
        address, shape, strides = piece
        count = 1
        low = high = address
        for extent, stride in zip(shape, strides, strict=True):
            count *= extent
            reach = (extent - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        if count:
            spans.append((low, high + size, group, element, piece, size))
        element += count
    return spans


def _without_common(x: list[_Span], out: list[_Span]) -> list[_Span]:
    """Both lists without the spans that stand in both at the same element."""
    common = {(span[3], span[4]) for span in x} & {(span[3], span[4]) for span in out}
    return [span for span in x + out if (span[3], span[4]) not in common]


def _first_clash(spans: list[_Span]) -> tuple[int, int] | None:
    """The groups of two spans that share a byte, or None; spans of one group are not compared."""
    open_spans: list[_Span] = []
    for span in sorted(spans):
        # Sorted by first byte, so whatever ends before this one begins is done with.
        open_spans = [other for other in open_spans if other[1] > span[0]]
        for other in open_spans:
            if other[2] != span[2] and _share_memory(other, span):
                first, second = sorted((other[2], span[2]))
                return first, second
        open_spans.append(span)
    return None


class _Memory:
    """A stand-in by which NumPy compares addresses without touching what lies there."""

    def __init__(self, piece: Piece, size: int) -> None:
        address, shape, strides = piece
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "data": (address, True),
            "shape": shape,
            "strides": strides,
        }


def _share_memory(a: _Span, b: _Span) -> bool:
    """Whether two pieces whose byte ranges intersect have a byte in common."""
    first, second = np.asarray(_Memory(a[4], a[5])), np.asarray(_Memory(b[4], b[5]))
    return np.may_share_memory(first, second, max_work=_OVERLAP_WORK)

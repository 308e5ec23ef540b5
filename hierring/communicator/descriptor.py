"""What a rank says it calls, in a form that others compare and that explains a mismatch."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hierring.dtypes import DType

__all__ = ["ALGORITHMS", "KINDS", "Descriptor"]

#: Kinds of operation, by code. The order is part of the protocol between ranks of one version.
KINDS = (
    "refused",
    "allreduce",
    "allreduce_coalesced",
    "reduce_scatter",
    "allgather",
    "allgather (data)",
    "broadcast",
    "barrier",
    "split",
    "close",
    "probe_links",
)
#: What `extra` stands for, in words.
_EXTRA = {
    "allreduce_coalesced": "the list of tensors: other dtypes or element counts, or another order",
    "allgather": "the dimensions after the first",
}
ALGORITHMS = ("none", "hierarchical", "ring", "tree", "naive")
REFUSED = 0

#: kind, op, average, dtype, wire dtype, algorithm, root, count, extra, length of the text
_FIXED = struct.Struct("<BBBBBBiQQH")
#: Longest quotation of a refusing rank's error.
TEXT_BYTES = 200


@dataclass(frozen=True)
class Descriptor:
    """One rank's view of one call. Everything but `text` must be equal on all ranks.

    Attributes:
        kind: index into KINDS; REFUSED says that this rank could not make the call, `text` why.
        op, average: reduction code and whether the sum is divided by the number of ranks.
        dtype, wire: element type in memory and between nodes.
        algorithm: index into ALGORITHMS.
        root: the root of a rooted collective, else -1.
        count: elements that must agree (each rank's, or the total where ranks may differ).
        extra: digest of what else must agree, such as trailing dimensions or the list of tensors.
    """

    kind: int
    op: int = 0
    average: bool = False
    dtype: int = 0
    wire: int = 0
    algorithm: int = 0
    root: int = -1
    count: int = 0
    extra: int = 0
    text: str = ""

    @classmethod
    def refused(cls, error: BaseException) -> Descriptor:
        return cls(REFUSED, text=quote(error))

    def pack(self) -> tuple[int, bytes]:
        """(64-bit digest of what must agree, the descriptor as bytes)."""
        return _pack(self)

    @classmethod
    def unpack(cls, data: bytes) -> Descriptor:
        kind, op, average, dtype, wire, algorithm, root, count, extra, length = _FIXED.unpack_from(
            data
        )
        text = bytes(data[_FIXED.size : _FIXED.size + length]).decode(errors="replace")
        return cls(kind, op, bool(average), dtype, wire, algorithm, root, count, extra, text)

    def describe(self, op_name: str = "") -> str:
        """For people: `allreduce(float32[1000], op=sum)`."""
        kind = KINDS[self.kind]
        if self.kind == REFUSED:
            return f"refused ({self.text})"
        if kind in ("barrier", "split", "close"):
            return f"{kind}()"
        parts = [f"{_name(self.dtype)}[{self.count}]"]
        if kind in ("allreduce", "allreduce_coalesced", "reduce_scatter"):
            parts.append(f"op={op_name or _op_name(self.op, self.average)}")
            parts.append(f"algorithm={ALGORITHMS[self.algorithm]}")
            if self.wire != self.dtype:
                parts.append(f"wire_dtype={_name(self.wire)}")
        if self.root >= 0:
            parts.append(f"root={self.root}")
        return f"{kind}({', '.join(parts)})"

    def differences(self, other: Descriptor) -> str:
        """The arguments in which two calls differ, in words."""
        if self.kind != other.kind:
            return "the collective called"
        fields = ("op", "average", "dtype", "wire", "algorithm", "root", "count")
        names = [name for name in fields if getattr(self, name) != getattr(other, name)]
        if "dtype" in names and "wire" in names:
            names.remove("wire")  # it follows from the dtype
        if not names and self.extra != other.extra:
            return _EXTRA.get(KINDS[self.kind], "more than the calls show")
        words = {"average": "op", "wire": "wire_dtype"}
        return ", ".join(dict.fromkeys(words.get(name, name) for name in names))


@lru_cache(maxsize=256)
def _pack(descriptor: Descriptor) -> tuple[int, bytes]:
    """Cached: a training loop makes the same few calls again and again."""
    d = descriptor
    text = d.text.encode(errors="replace")[:TEXT_BYTES]
    fixed = _FIXED.pack(
        d.kind, d.op, d.average, d.dtype, d.wire, d.algorithm, d.root, d.count, d.extra, len(text)
    )  # fmt: skip
    comparable = fixed[:-2]
    digest = int.from_bytes(hashlib.blake2b(comparable, digest_size=8).digest(), "little")
    return digest, fixed + text


def quote(error: BaseException) -> str:
    """An exception in one line, also one that can't say what it is."""
    try:
        text = str(error)
    except Exception:
        text = "(without a text)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def digest_of(*facts: Any) -> int:
    """64-bit digest of values with a stable repr, for Descriptor.extra."""
    data = repr(facts).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _name(dtype: int) -> str:
    return str(DType(dtype))


def _op_name(op: int, average: bool) -> str:
    from hierring.dtypes import Op

    return "avg" if average else Op(op).name.lower()

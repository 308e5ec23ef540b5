"""Element types: their numbers, sizes and names in NumPy and torch."""

from __future__ import annotations

import enum
import sys
from typing import Any

import numpy as np

from hierring.errors import UnsupportedTypeError


class DType(enum.IntEnum):
    """Element types, numbered as in the kernels; `str()` gives the name NumPy and torch use."""

    FLOAT64 = 0
    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    UINT8 = 8
    UINT16 = 9
    UINT32 = 10
    UINT64 = 11
    BOOL = 12
    COMPLEX64 = 13
    COMPLEX128 = 14

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


_ITEMSIZE = (8, 4, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1, 8, 16)

# bfloat16 is no NumPy dtype of its own; see `from_numpy`.
_FROM_NUMPY: dict[np.dtype[Any], DType] = {
    np.dtype(str(dtype)): dtype for dtype in DType if dtype is not DType.BFLOAT16
}
_TO_NUMPY = {dtype: numpy_dtype for numpy_dtype, dtype in _FROM_NUMPY.items()}
_FROM_TORCH: dict[object, DType] = {}  # filled once torch is seen, see `from_torch`

_SUPPORTED = "supported are " + ", ".join(str(dtype) for dtype in DType)


def itemsize(dtype: DType) -> int:
    """Bytes of one element."""
    return _ITEMSIZE[dtype]


def is_floating(dtype: DType) -> bool:
    """Whether the dtype is a real floating-point type."""
    return dtype <= DType.BFLOAT16


def is_integer(dtype: DType) -> bool:
    """Whether the dtype is a signed or unsigned integer; bool is none."""
    return DType.INT8 <= dtype <= DType.UINT64


def is_complex(dtype: DType) -> bool:
    """Whether the dtype is complex."""
    return dtype >= DType.COMPLEX64


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """Return the DType of a native NumPy dtype, or of the bfloat16 of ml_dtypes.

    Raises:
        UnsupportedTypeError: every other dtype, with the remedy.
    """
    known = _FROM_NUMPY.get(dtype)
    if known is not None:
        return known
    if not dtype.isnative:
        remedy = "convert it to native byte order with x.astype(x.dtype.newbyteorder('='))"
    elif dtype.name == "bfloat16":  # by name: importing ml_dtypes for this would cost everyone
        _FROM_NUMPY[dtype] = DType.BFLOAT16
        return DType.BFLOAT16
    elif dtype.kind == "O":
        remedy = "convert it to a numeric dtype with x.astype(...)"
    elif dtype.kind in "SUT":
        remedy = "text cannot be reduced; use comm.bcast or comm.gather of mpi4py for objects"
    elif dtype.kind in "mM":
        remedy = "reduce x.view(numpy.int64)"
    elif dtype.names is not None:
        remedy = "reduce its fields one by one, as x['name']"
    elif dtype.kind in "fc":
        remedy = "convert it with x.astype(numpy.float64), or numpy.complex128"
    else:
        remedy = "convert it with x.astype(...)"
    raise UnsupportedTypeError(f"dtype {dtype} is not supported: {remedy}; {_SUPPORTED}")


def from_torch(dtype: object) -> DType:
    """Return the DType of a torch.dtype.

    Raises:
        UnsupportedTypeError: float8, quantised, sub-byte and other dtypes, with the remedy.
    """
    known = _FROM_TORCH.get(dtype)
    if known is not None:
        return known
    if not _FROM_TORCH:
        torch: Any = sys.modules["torch"]  # it made the dtype that was passed
        # Older releases lack the wider unsigned types.
        _FROM_TORCH.update((getattr(torch, str(d)), d) for d in DType if hasattr(torch, str(d)))
        return from_torch(dtype)
    name = str(dtype)
    if "float8" in name or "float4" in name:
        remedy = "reduce x.to(torch.bfloat16) or x.float()"
    elif "qint" in name or "quint" in name:
        remedy = "reduce x.dequantize(), or its x.int_repr()"
    elif name == "torch.complex32":
        remedy = "reduce x.to(torch.complex64)"
    else:
        remedy = "convert it with x.to(...)"
    raise UnsupportedTypeError(f"dtype {name} is not supported: {remedy}; {_SUPPORTED}")


def to_numpy(dtype: DType) -> np.dtype[Any] | None:
    """Return the NumPy dtype; for bfloat16 that of ml_dtypes, or None without it."""
    if dtype is not DType.BFLOAT16:
        return _TO_NUMPY[dtype]
    try:
        import ml_dtypes
    except ImportError:
        return None
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def to_torch(dtype: DType) -> Any:
    """Return the torch.dtype; torch must be loaded.

    Raises:
        UnsupportedTypeError: this release of torch lacks it.
    """
    found = getattr(sys.modules["torch"], str(dtype), None)
    if found is None:
        raise UnsupportedTypeError(f"this release of torch has no dtype {dtype}: use a newer one")
    return found

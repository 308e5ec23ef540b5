"""Buffers of NumPy arrays, of whatever NumPy can look at without copying, and of numbers."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hierring.buffers.buffer import Buffer, Kind, Piece, refusal, self_overlaps
from hierring.dtypes import DType, from_numpy, itemsize
from hierring.errors import UnsupportedTypeError

_Array = np.ndarray[Any, np.dtype[Any]]

_addressof = ctypes.addressof
_from_buffer: Any = ctypes.c_char.from_buffer  # Any: older NumPy stubs lack __buffer__

_NUMBER_DTYPES = ((bool, np.bool_), (int, np.int64), (float, np.float64), (complex, np.complex128))

# Devices of the DLPack standard whose memory the processor reads and writes: kDLCPU, kDLCUDAHost.
_HOST_DEVICES = (1, 3)


def describe(x: _Array, write: bool) -> Buffer:
    """Describe a NumPy array.

    Raises:
        UnsupportedTypeError: its dtype, or with `write` its layout, is not supported.
    """
    return _described(x, write, x, "numpy")


def describe_subclass(x: _Array, write: bool) -> Buffer:
    """Describe an array of a class derived from NumPy's, such as memmap.

    Raises:
        UnsupportedTypeError: as `describe`; or it is masked, for masks would be passed over.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise refusal(_text(x, x), "is masked", "give x.filled(value), or x.data")
    return _described(x, write, x, "numpy")


def describe_number(x: Any, write: bool) -> Buffer:
    """Describe a Python number or NumPy scalar, in memory of its own.

    Raises:
        UnsupportedTypeError: an int beyond int64, a scalar that is no number.
    """
    if isinstance(x, np.generic):
        return _described(np.array(x), write, x, "scalar")
    # bool comes first, for it is an int.
    dtype = next(dtype for kind, dtype in _NUMBER_DTYPES if isinstance(x, kind))
    try:
        array = np.array(x, dtype)
    except OverflowError:
        raise refusal(f"the int {x}", "does not fit int64", "give it as a float") from None
    return _described(array, write, x, "scalar")


def describe_foreign(x: Any, write: bool) -> Buffer:
    """Describe an object with DLPack or the buffer protocol.

    Raises:
        UnsupportedTypeError: it has neither, lies on a device, or is not supported as an array.
    """
    name = f"an object of type {type(x).__module__}.{type(x).__qualname__}"
    if isinstance(x, (list, tuple)):
        remedy = "give numpy.asarray(x), or a list of tensors to allreduce_coalesced"
        raise refusal(f"a {type(x).__name__}", "has no elements in one piece of memory", remedy)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _described(_from_dlpack(x, name, write), write, x, "numpy")
    try:
        array = np.asarray(memoryview(x))
    except TypeError:
        remedy = (
            "give a NumPy array, a torch tensor or a number, for example numpy.asarray(x); for "
            "other objects there are comm.bcast and comm.gather of mpi4py"
        )
        raise refusal(name, "has neither DLPack nor the buffer protocol", remedy) from None
    except (ValueError, NotImplementedError) as error:
        raise refusal(name, f"is no array for NumPy ({error})", "give a NumPy array") from None
    return _described(array, write, x, "numpy")


def _from_dlpack(x: Any, name: str, write: bool) -> _Array:
    """Look at a DLPack producer's memory through NumPy."""
    device = x.__dlpack_device__()
    if device[0] not in _HOST_DEVICES:
        what = f"{name} on DLPack device {int(device[0])}:{device[1]}"
        raise refusal(what, "is not in the memory of the CPU", "copy it to the CPU first")
    try:
        if write:
            try:
                return np.from_dlpack(x, copy=False)
            except TypeError:
                # A producer or a NumPy from before `copy`: then the array says it is read-only,
                # since nothing tells whether writes would reach the producer's memory.
                pass
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        remedy = "give it as a NumPy array or a torch tensor, for example torch.from_dlpack(x)"
        raise refusal(name, f"is refused by numpy.from_dlpack ({error})", remedy) from error


def _described(x: _Array, write: bool, owner: Any, kind: Kind) -> Buffer:
    try:
        dtype = from_numpy(x.dtype)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{_name(x, owner)} of shape {x.shape}: {error}") from None
    flags = x.flags
    writable = flags.writeable
    if write and not writable:
        remedy = "give out=, or a copy"
        if kind == "numpy" and owner is not x:
            remedy += ", or a writable NumPy array on its memory"
        raise refusal(_text(x, owner), "is read-only", remedy)
    count, size = x.size, itemsize(dtype)
    if flags.c_contiguous:
        # No letter of the buffer protocol stands for bfloat16.
        plain = writable and dtype is not DType.BFLOAT16
        pieces: tuple[Piece, ...] = ((_address(x, plain), (count,), (size,)),)
    else:
        if write and self_overlaps(x.shape, x.strides, size):
            what = f"{_text(x, owner)}, strides {x.strides}"
            raise refusal(what, "holds several elements at one address", "give out=, or a copy")
        pieces = ((_address(x, False), x.shape, x.strides),)
    return Buffer(pieces, dtype, size, count, x.shape, owner, x, kind, writable)


def _address(x: _Array, plain: bool) -> int:
    """Return the address of the first element; `plain`: contiguous and writable."""
    if plain:
        try:
            # Half the time of the general way. The export ends with this line.
            return _addressof(_from_buffer(x))
        except (TypeError, ValueError):
            pass  # an empty array has no first byte
    address: int = x.__array_interface__["data"][0]
    return address


def _name(x: _Array, owner: Any) -> str:
    return "NumPy array" if owner is x else f"object of type {type(owner).__qualname__}"


def _text(x: _Array, owner: Any) -> str:
    return f"{_name(x, owner)} of dtype {x.dtype}, shape {x.shape}"

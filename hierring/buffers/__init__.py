"""What users pass to a collective, described for the engine: memory, dtype, and what to return.

`read`, `write` and `inplace` take a NumPy array, a torch CPU tensor, an object with DLPack or the
buffer protocol, or a Python number, and make a `Buffer` of it without copying. What cannot take
part is refused with UnsupportedTypeError, saying what it is and what to do instead. A tensor that
requires grad is refused in all three outside no_grad, because the result would silently leave the
graph. torch is never imported here: a tensor can only arrive when it is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hierring.buffers import arrays, tensors
from hierring.buffers.buffer import Buffer, check_out, empty, many, refusal

__all__ = ["Buffer", "check_out", "empty", "inplace", "many", "read", "write"]

_Describe = Callable[[Any, bool], Buffer]

# By exact type, which is what nearly every call meets; `_describer` knows the rest.
_DESCRIBERS: dict[type, _Describe] = {
    np.ndarray: arrays.describe,
    bool: arrays.describe_number,
    int: arrays.describe_number,
    float: arrays.describe_number,
    complex: arrays.describe_number,
}


def inplace(x: object) -> Buffer:
    """Describe `x` for a collective that replaces its content; a number gets memory of its own.

    Raises:
        UnsupportedTypeError: `x` cannot take part, or cannot be written; nothing was changed.
    """
    describe = _DESCRIBERS.get(type(x)) or _describer(x)
    return describe(x, True)


def read(x: object) -> Buffer:
    """Describe `x` for a collective that only reads it.

    Raises:
        UnsupportedTypeError: `x` cannot take part.
    """
    describe = _DESCRIBERS.get(type(x)) or _describer(x)
    return describe(x, False)


def write(out: object) -> Buffer:
    """Describe the `out` argument of a collective.

    Raises:
        UnsupportedTypeError: `out` cannot take part, or cannot be written; nothing was changed.
    """
    describe = _DESCRIBERS.get(type(out)) or _describer(out)
    if describe is arrays.describe_number:
        raise refusal(f"out={out!r}", "has no memory to write to", "give an array or a tensor")
    return describe(out, True)


def _describer(x: object) -> _Describe:
    """Find what describes objects of this type, remembering the types torch users pass."""
    kind = type(x)
    torch: Any = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        if kind in (torch.Tensor, torch.nn.Parameter):
            _DESCRIBERS[kind] = tensors.describe
            return tensors.describe
        return tensors.describe_subclass
    if issubclass(kind, np.ndarray):
        return arrays.describe_subclass
    # numpy.float64 is a float too, so NumPy's own scalars come first in describe_number.
    if issubclass(kind, (np.generic, bool, int, float, complex)):
        return arrays.describe_number
    return arrays.describe_foreign

"""Buffers of torch CPU tensors. Only called with tensors, so torch is loaded."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from hierring.buffers.buffer import Buffer, Piece, refusal, self_overlaps
from hierring.dtypes import from_torch, itemsize
from hierring.errors import UnsupportedTypeError


def describe(x: Any, write: bool) -> Buffer:
    """Describe a torch tensor.

    Raises:
        UnsupportedTypeError: its device, layout, dtype or place in an autograd graph is not
            supported.
    """
    # Every line costs 0.1 us or so; what is rare is told apart only once something failed.
    if not x.is_cpu or x.is_conj() or x.is_neg():
        raise _refused(x)
    if x.requires_grad and sys.modules["torch"].is_grad_enabled():
        why = "requires grad, and a collective takes no part in its graph"
        raise refusal(_text(x), why, "call under torch.no_grad(), or give x.detach()")
    try:
        dtype = from_torch(x.dtype)
        address, shape, plain = x.data_ptr(), tuple(x.shape), x.is_contiguous()
        strides = () if plain else x.stride()
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"torch tensor of shape {tuple(x.shape)}: {error}") from None
    except RuntimeError:  # no address, or no shape: no plain memory in whatever guise
        raise _refused(x) from None
    count, size = x.numel(), itemsize(dtype)
    if count and not address:
        raise _refused(x)
    if plain:
        pieces: tuple[Piece, ...] = ((address, (count,), (size,)),)
    else:
        strides = tuple(stride * size for stride in strides)
        if write and self_overlaps(shape, strides, size):
            what, why = f"{_text(x)}, strides {strides}", "holds several elements at one address"
            raise refusal(what, why, "give out=, or x.contiguous()")
        pieces = ((address, shape, strides),)
    return Buffer(pieces, dtype, size, count, shape, x, x, "torch", True)


def describe_subclass(x: Any, write: bool) -> Buffer:
    """Describe a tensor of a derived class, which may have no memory at all behind it.

    Raises:
        UnsupportedTypeError: as `describe`.
    """
    with warnings.catch_warnings():
        # Fake tensors warn before they give the address 0, by which they are refused.
        warnings.simplefilter("ignore")
        return describe(x, write)


def _refused(x: Any) -> UnsupportedTypeError:
    """Say why a tensor without plain CPU memory is refused."""
    torch: Any = sys.modules["torch"]
    if x.is_meta:
        why, remedy = "has no data", "give a tensor that has been materialised"
    elif x.is_nested:
        why, remedy = "is nested", "give x.values(), or each of x.unbind()"
    elif x.layout is not torch.strided:
        why, remedy = f"has layout {x.layout}", "give x.to_dense(), or its x.values()"
    elif not x.is_cpu:
        why, remedy = f"is on device {x.device}", "give x.cpu(), for tensors must be on the CPU"
    elif x.is_conj() or x.is_neg():
        why = f"is a lazy {'conjugate' if x.is_conj() else 'negative'} of its memory"
        remedy = f"give x.{'resolve_conj' if x.is_conj() else 'resolve_neg'}()"
    else:
        why = "has no memory of its own"
        remedy = "give the plain tensor inside, for example x.to_local(), outside of transforms"
    return refusal(_text(x), why, remedy)


def _text(x: Any) -> str:
    # A nested tensor has no shape.
    shape = "" if x.is_nested else f", shape {tuple(x.shape)}"
    return f"torch tensor of dtype {str(x.dtype).removeprefix('torch.')}{shape}"

"""Reduction operations, the dtypes they go with, and the type that travels between nodes."""

from __future__ import annotations

import dataclasses
import enum
import sys
from typing import Any

from hierring.config import WIRE_DTYPES
from hierring.dtypes.types import DType, is_complex, is_floating
from hierring.errors import ConfigurationError, UnsupportedTypeError


class Op(enum.IntEnum):
    """What the kernels do to two elements, numbered as there."""

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    BAND = 4
    BOR = 5
    BXOR = 6


@dataclasses.dataclass(frozen=True)
class ReduceOp:
    """One entry of the public `op` argument.

    Attributes:
        op: what the kernels do.
        average: divide by the number of ranks (op is then SUM).
        name: the public name, as in "avg".
    """

    op: Op
    average: bool
    name: str

    def __str__(self) -> str:
        return self.name


_OPS = {op.name.lower(): ReduceOp(op, False, op.name.lower()) for op in Op}
_OPS["avg"] = ReduceOp(Op.SUM, True, "avg")
# torch and mpi4py name the same operations so; what is absent here is refused.
_FOREIGN_OPS = {name.upper(): op for name, op in _OPS.items()} | {"PRODUCT": _OPS["prod"]}
_OP_NAMES = ("sum", "avg", "min", "max", "prod", "band", "bor", "bxor")

_FLOATING_OPS = ("sum", "avg", "min", "max", "prod")
_COMPLEX_OPS = ("sum", "avg", "prod")
_INTEGER_OPS = ("sum", "min", "max", "prod", "band", "bor", "bxor")

_WIRES = {
    DType.FLOAT32: ("float32", "bfloat16", "float16"),
    DType.FLOAT16: ("float32", "float16"),
    DType.BFLOAT16: ("float32", "bfloat16"),
}


def parse_op(op: object) -> ReduceOp:
    """Return the operation a user means by a name, a torch ReduceOp or a predefined mpi4py Op.

    Raises:
        ConfigurationError: an unknown operation, with the known ones; a user-defined MPI.Op.
    """
    known: ReduceOp | None = None
    if isinstance(op, str):
        known = _OPS.get(op) or _OPS.get(op.lower())
    elif isinstance(op, ReduceOp):
        return op
    else:
        known = _parse_torch_op(op) or _parse_mpi_op(op)
    if known is None:
        raise ConfigurationError(f"op={op!r} is not known: give one of {', '.join(_OP_NAMES)}")
    return known


def _parse_torch_op(op: object) -> ReduceOp | None:
    """Return the operation of a torch.distributed.ReduceOp, a value of its enum, or None."""
    distributed: Any = sys.modules.get("torch.distributed")
    torch_op: Any = getattr(distributed, "ReduceOp", None)
    if torch_op is None:
        return None
    # ReduceOp.SUM is a plain enum value, ReduceOp(ReduceOp.SUM) an object around one; to isinstance
    # both are a ReduceOp.
    if not isinstance(op, torch_op):
        return None
    value: Any = getattr(op, "op", op)
    known = _FOREIGN_OPS.get(value.name)
    if known is None:
        raise ConfigurationError(
            f"op=ReduceOp.{value.name} is not supported: give op='sum' with scale=..., or one of "
            f"{', '.join(_OP_NAMES)}"
        )
    return known


def _parse_mpi_op(op: object) -> ReduceOp | None:
    """Return the operation of an mpi4py.MPI.Op, or None where `op` is none."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(op, mpi.Op):
        return None
    for name, known in _FOREIGN_OPS.items():
        if getattr(mpi, name, None) == op:
            return known
    what = "a predefined MPI.Op without a hierring counterpart"
    if op != mpi.OP_NULL and not op.is_predefined:
        what = "a user-defined MPI.Op, which only MPI can run"
    raise ConfigurationError(
        f"op is {what}: call comm.Allreduce of mpi4py for it, or give one of {', '.join(_OP_NAMES)}"
    )


def check_op(reduce_op: ReduceOp, dtype: DType) -> None:
    """Refuse a pair of operation and dtype that has no meaning, or a doubtful one.

    Raises:
        UnsupportedTypeError: avg of integers or bool, min/max of complex, bitwise operations on
            floats or complex numbers; the message lists what is allowed.
    """
    allowed: tuple[str, ...]
    if is_floating(dtype):
        allowed, remedy = _FLOATING_OPS, "view the elements as integers for bitwise operations"
    elif is_complex(dtype):
        allowed, remedy = (
            _COMPLEX_OPS,
            "reduce the real and imaginary parts, or magnitudes, instead",
        )
    else:
        allowed, remedy = _INTEGER_OPS, "convert to a floating dtype, or sum and divide yourself"
    if reduce_op.name not in allowed:
        raise UnsupportedTypeError(
            f"op={reduce_op.name!r} is not supported for {dtype}, which allows "
            f"{', '.join(allowed)}: {remedy}"
        )


def check_scale(scale: object, reduce_op: ReduceOp, dtype: DType) -> float:
    """Return the factor on this rank's contribution, 1.0 where none is given.

    Any float is fine, infinities and NaN included.

    Raises:
        ConfigurationError: not a real number, or given with another operation than sum or avg, or
            with integers or bool.
    """
    if scale is None:
        return 1.0
    try:
        if isinstance(scale, str):  # which float() would parse
            raise TypeError
        factor = float(scale)  # type: ignore[arg-type]  # anything with __float__
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"scale={scale!r} is not valid: give a real number") from None
    if reduce_op.op is not Op.SUM:
        raise ConfigurationError(
            f"scale={scale!r} does not go with op={reduce_op.name!r}: it is for sum and avg"
        )
    if not (is_floating(dtype) or is_complex(dtype)):
        raise ConfigurationError(
            f"scale={scale!r} does not go with {dtype}: it is for floating and complex dtypes; "
            "convert the tensor, or leave scale out"
        )
    return factor


def wire_type(
    dtype: DType, reduce_op: ReduceOp, requested: str | None = None, explicit: bool = True
) -> DType:
    """Return the type partial results travel in between nodes.

    Args:
        dtype: of the tensor.
        reduce_op: of the call.
        requested: "float32", "bfloat16", "float16", or None for the default: the tensor's own type,
            save that avg of float16 travels as float32, where its sum cannot overflow.
        explicit: the call asked for it. A setting made for all calls (False) is passed over for
            dtypes it does not apply to.

    Raises:
        ConfigurationError: an unknown name, or an explicit request that does not fit the dtype.
    """
    if requested is not None:
        if requested not in WIRE_DTYPES:
            raise ConfigurationError(
                f"wire_dtype={requested!r} is not known: give one of {', '.join(WIRE_DTYPES)}"
            )
        fitting = _WIRES.get(dtype, ())
        if requested in fitting:
            return DType[requested.upper()]
        if explicit:
            good = " or ".join(fitting) or "none: leave wire_dtype out"
            raise ConfigurationError(
                f"wire_dtype={requested!r} does not fit {dtype}: it takes {good}"
            )
    if dtype is DType.FLOAT16 and reduce_op.average:
        return DType.FLOAT32
    return dtype


def mean_so_far(dtype: DType, reduce_op: ReduceOp, wire: DType) -> bool:
    """Whether partial results travel as the mean of the ranks summed so far, not as their sum.

    So an average that travels as float16 neither overflows nor underflows where it is
    representable.
    """
    return reduce_op.average and is_floating(dtype) and wire is DType.FLOAT16

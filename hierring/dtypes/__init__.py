"""Element types and reduction operations: what they are called, which go together, what travels.

`DType` and `Op` have the numbers of the compiled kernels. Neither torch nor mpi4py.MPI is imported
here: an object of theirs can only arrive when its module is already loaded.
"""

from __future__ import annotations

from hierring.dtypes.ops import (
    Op,
    ReduceOp,
    check_op,
    check_scale,
    mean_so_far,
    parse_op,
    wire_type,
)
from hierring.dtypes.types import (
    DType,
    from_numpy,
    from_torch,
    is_complex,
    is_floating,
    is_integer,
    itemsize,
    to_numpy,
    to_torch,
)

__all__ = [
    "DType",
    "Op",
    "ReduceOp",
    "check_op",
    "check_scale",
    "from_numpy",
    "from_torch",
    "is_complex",
    "is_floating",
    "is_integer",
    "itemsize",
    "mean_so_far",
    "parse_op",
    "to_numpy",
    "to_torch",
    "wire_type",
]

"""All-reduces inside one node that run in a single call of the compiled part.

The engine takes a dozen steps in Python for each operation, which is most of the time of a small
one. `_core.WholeCall` takes the same steps for the plainest calls, by a recipe for each dtype,
operator and count that the first such call leaves here. What it cannot finish soon, the engine
takes over, in the middle of the operation.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from hierring import _core
from hierring.dtypes import DType, to_numpy

if TYPE_CHECKING:
    from hierring.buffers import Buffer
    from hierring.communicator.descriptor import Descriptor
    from hierring.communicator.engine import Engine
    from hierring.communicator.transfer import Transfer

__all__ = ["DONE", "ENTERED", "LARGE", "UNFIT", "learn", "make"]

#: Answers of WholeCall.run: not for it, and nothing has happened; done; entered, and not done soon
#: enough; to be asked again under the lock.
UNFIT, DONE, ENTERED, LARGE = range(4)


def make(channel: Any) -> _core.WholeCall:
    """One for a channel; it looks at NumPy arrays, and at torch tensors once one was seen."""
    whole = _core.WholeCall(channel)
    dtypes = {to_numpy(dtype): int(dtype) for dtype in DType if dtype is not DType.BFLOAT16}
    probe = np.zeros((2, 3))
    whole.know_numpy(np.ndarray, dtypes, probe, probe.ctypes.data)
    return whole


def learn(
    engine: Engine, op: object, source: Buffer, target: Buffer, transfer: Transfer,
    descriptor: Descriptor,
) -> None:  # fmt: skip
    """Leave a recipe for calls like this one, if a single call can do them.

    There is one node, and the arguments of the public call are all defaults but `op` and `out`.
    """
    plain = transfer.algorithm == "hierarchical" and transfer.count > 0
    if not isinstance(op, str) or not (plain and source.view.contiguous and target.view.contiguous):
        return
    if "torch" in (source.kind, target.kind) and not engine.whole.knows_torch:
        _learn_torch(engine.whole)
    digest, packed = descriptor.pack()
    engine.whole.learn(
        op, int(transfer.dtype), int(transfer.op.op), transfer.count,
        engine.rails.cell_elems(transfer), engine.rails.flow(transfer).node_divisor, digest,
        packed,
    )  # fmt: skip


def _learn_torch(whole: _core.WholeCall) -> None:
    torch: Any = sys.modules["torch"]
    # Older releases lack the wider unsigned types.
    names = {str(dtype): int(dtype) for dtype in DType}
    dtypes = {getattr(torch, name): n for name, n in names.items() if hasattr(torch, name)}
    whole.know_torch([torch.Tensor, torch.nn.Parameter], dtypes, _increment(torch))


def _increment(torch: Any) -> Any:
    """What raises the version counters of a tuple of tensors; the short way where there is one."""
    inner: Any = getattr(torch._C, "_increment_version", None)
    try:
        inner((torch.zeros(1),))
    except (TypeError, RuntimeError):  # an older release takes the tensor itself, or has another
        return lambda tensors: torch.autograd.graph.increment_version(tensors[0])
    return inner

"""Inside a node: the shared segment of a communicator, and who may use its cells when.

The protocol itself is compiled (`hierring._core.Channel`, docs/memory-model.md); this package sizes
the memory, creates it step by step under the caller's agreement, and hands out the window to MPI.
"""

from hierring.intranode.node import Layout, NodeMemory, plan_layout, private_memory

__all__ = ["Layout", "NodeMemory", "plan_layout", "private_memory"]

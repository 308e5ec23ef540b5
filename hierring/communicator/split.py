"""Communicators of a part of the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierring import _core
from hierring.communicator.contact import Contact, Deadline, Resumable
from hierring.communicator.descriptor import KINDS, Descriptor
from hierring.communicator.requests import Request
from hierring.communicator.transfer import PAYLOAD_SUM, Transfer
from hierring.dtypes import DType
from hierring.errors import ConfigurationError
from hierring.internode import bootstrap

if TYPE_CHECKING:
    from hierring.communicator.engine import Engine

__all__ = ["child_contact", "exchange_colors"]


def exchange_colors(engine: Engine, color: Any, key: Any) -> Request:
    """An operation that gives every rank all ranks' (color or None, key)."""
    for name, value in (("color", 0 if color is None else color), ("key", key)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise ConfigurationError(f"{name} is an integer, not {value!r}")
        if not -(2**63) <= value < 2**63:
            raise ConfigurationError(f"{name} must fit into 64 bits, {value} does not")
    size = engine.topology.size
    table = np.zeros((size, 3), np.int64)
    table[engine.contact.me] = (color is not None, 0 if color is None else color, key)
    view = _core.View([(table.ctypes.data, (table.size,), (8,))], 8)
    transfer = Transfer(
        "reduce", view, view, DType.INT64, DType.INT64, PAYLOAD_SUM, table.size,
        administrative=True, keeps=(table,),
    )  # fmt: skip

    def finish() -> list[tuple[int | None, int]]:
        return [(int(color) if has else None, int(key)) for has, color, key in table]

    return Request(Descriptor(KINDS.index("split"), count=size), transfer, finish)


def child_contact(
    parent: Contact, pairs: list[tuple[int | None, int]], seconds: float
) -> Contact | None:
    """The child's contact; collective over all ranks of the parent, None for color None.

    One duplicate of the parent's communicator serves the children of all colors: their ranks are
    disjoint, so their messages can't meet. Unlike MPI_Comm_split it can be waited for with a
    deadline. A parent that is such a child itself has no MPI communicator of its own to duplicate:
    its sisters' ranks, which take no part, are in it too.
    """
    members = parent.members
    if len(members) == parent.comm.Get_size():
        deadline = Deadline(seconds, "split", [])
        twin = Resumable(bootstrap.duplicate(parent.comm)).run(deadline)
    else:
        twin = bootstrap.extract(parent.comm, members)
        members = list(range(len(members)))
    color = pairs[parent.me][0]
    if color is None:
        twin.Free()
        return None
    ranks = sorted(
        (rank for rank, (other, _) in enumerate(pairs) if other == color),
        key=lambda rank: (pairs[rank][1], rank),
    )
    return Contact(
        twin,
        [members[rank] for rank in ranks],
        ranks.index(parent.me),
        [parent.world[rank] for rank in ranks],
    )

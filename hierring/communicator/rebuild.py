"""What a broken generation leaves in MPI's hands, and how it is cleared away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierring.communicator.contact import Contact
    from hierring.communicator.engine import Engine

__all__ = ["drain"]

#: How long to listen for messages of the old generation.
DRAIN_S = 0.2


def drain(old: Engine, contact: Contact) -> None:
    """Receive what was sent with the old generation's tags, into memory that is thrown away.

    All ranks have stopped sending with them. This lets the senders' requests complete: a large send
    that nobody receives could be neither cancelled nor freed. What still arrives later is harmless:
    no receive of the new generation matches it.
    """
    from mpi4py import MPI

    receiving: list[tuple[Any, bytearray]] = []
    status = MPI.Status()
    until = time.monotonic() + DRAIN_S
    while True:
        found = False
        for tag in old.contact.tags.all:
            message = contact.comm.Improbe(MPI.ANY_SOURCE, tag, status)
            if message is not None:
                found = True
                trash = bytearray(status.Get_count(MPI.BYTE))
                receiving.append((message.Irecv([trash, MPI.BYTE]), trash))
        receiving = [(request, trash) for request, trash in receiving if not request.Test()]
        late = time.monotonic() > until
        if late or not (found or receiving or old.open_requests()):
            break
        time.sleep(0.001)
    old.keep_receiving(receiving)

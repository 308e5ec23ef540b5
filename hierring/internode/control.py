"""Control messages: the cause of a break, questions about a stall, and farewells.

They travel on a tag of their own and are looked for only by a rank that is already waiting, so they
cost nothing while all goes well. Each is a short JSON text. A message nobody receives any more (its
addressee has ended) is harmless; its memory is kept until MPI is done with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hierring.internode.link import Counters

__all__ = ["CONTROL_BYTES", "Control"]

#: Longest control message; short enough to be sent eagerly by every MPI.
CONTROL_BYTES = 2048


class Control:
    """Sends and receives control messages of one communicator generation."""

    def __init__(self, comm: Any, members: list[int], tag: int, counters: Counters) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = comm
        self._members = members
        self._member_of = {rank: member for member, rank in enumerate(members)}
        self._tag = tag
        self._counters = counters
        self._sent: list[tuple[Any, bytes]] = []

    def send(self, to: Iterable[int], kind: str, **facts: Any) -> None:
        """Start sending to each member of `to`; never waits."""
        text = json.dumps({"kind": kind, **facts}, ensure_ascii=False).encode()
        assert len(text) <= CONTROL_BYTES, "control messages are short by construction"
        self._sent = [(request, kept) for request, kept in self._sent if not request.Test()]
        for member in to:
            request = self._comm.Isend([text, self._mpi.BYTE], self._members[member], self._tag)
            self._sent.append((request, text))
            self._counters.headers += len(text)

    def receive(self) -> list[tuple[int, dict[str, Any]]]:
        """All messages that have arrived, as (sending member, facts); never waits for one."""
        messages: list[tuple[int, dict[str, Any]]] = []
        status = self._mpi.Status()
        while True:
            message = self._comm.Improbe(self._mpi.ANY_SOURCE, self._tag, status)
            if message is None:
                return messages
            text = bytearray(status.Get_count(self._mpi.BYTE))
            # The message is here already (matched, and eager by its length), so this returns at
            # once.
            message.Recv([text, self._mpi.BYTE])
            messages.append((self._member_of[status.Get_source()], json.loads(text)))

    def pending(self) -> list[tuple[Any, bytes]]:
        """Sends that MPI has not finished, with the memory they need."""
        return [(request, kept) for request, kept in self._sent if not request.Test()]

"""The opening round: do all ranks make the same call? Recursive doubling among the node leaders.

Before it, each leader knows its node's descriptors. The round combines "the lowest rank's
descriptor, and the lowest rank that differs from it", which is associative and gives every node the
same verdict. All calls use the same pattern, tag and receive size whatever their arguments: a
mismatched call must not mismatch here. A small operation's payload rides in the same messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hierring import ring
from hierring.internode.memory import allocate
from hierring.internode.progress import Task

if TYPE_CHECKING:
    from hierring.internode.algorithms import Combine
    from hierring.internode.link import Link

__all__ = ["HEADER_BYTES", "Claim", "Opening", "State", "merge"]

#: struct of one claim: rank, digest, length of the descriptor, descriptor.
_CLAIM = struct.Struct("<iQH290s")
DESCRIPTOR_BYTES = 290
#: A message is two claims (the second has rank -1 if all agree), then the payload.
HEADER_BYTES = 2 * _CLAIM.size


@dataclass(frozen=True)
class Claim:
    """What one rank says it calls: the digest decides, the descriptor explains."""

    rank: int
    digest: int
    descriptor: bytes

    def pack(self) -> bytes:
        text = self.descriptor[:DESCRIPTOR_BYTES]
        return _CLAIM.pack(self.rank, self.digest, len(text), text)


@dataclass(frozen=True)
class State:
    """Of the ranks heard of so far: the lowest one's claim, and the lowest that differs."""

    low: Claim
    other: Claim | None

    def pack(self) -> bytes:
        return self.low.pack() + (self.other or Claim(-1, 0, b"")).pack()

    @classmethod
    def unpack(cls, data: memoryview) -> State:
        claims = [_unpack(data, 0), _unpack(data, _CLAIM.size)]
        return cls(claims[0], None if claims[1].rank < 0 else claims[1])


def _unpack(data: memoryview, at: int) -> Claim:
    rank, digest, length, text = _CLAIM.unpack_from(data, at)
    return Claim(rank, digest, text[:length])


def merge(a: State, b: State) -> State:
    """The state of both groups together; symmetric, so both sides of an exchange agree."""
    if b.low.rank < a.low.rank:
        a, b = b, a
    candidates = [] if a.other is None else [a.other]
    if b.low.digest != a.low.digest:
        candidates.append(b.low)
    elif b.other is not None:
        candidates.append(b.other)
    return State(a.low, min(candidates, key=lambda claim: claim.rank, default=None))


class Opening:
    """Buffers of the opening round, reused by every call of a communicator.

    Args:
        payload_limit: bytes of payload a message has room for (as it travels, in the wire type).
    """

    def __init__(self, link: Link, payload_limit: int) -> None:
        self._link = link
        self._limit = payload_limit
        self._send = allocate(HEADER_BYTES + payload_limit)
        self._recv = allocate(HEADER_BYTES + payload_limit)
        #: The node's payload before the round, everybody's after it.
        self.payload = allocate(payload_limit)
        self.state: State | None = None
        self.waiting_for: int = -1

    def run(self, state: State, nbytes: int, combine: Combine | None, tag: int) -> Task:
        """Exchange with the other leaders; leaves the verdict in `self.state`.

        Args:
            state: of this rank's node.
            nbytes: payload bytes in `self.payload`, 0 for none.
            combine: how payloads add up; None with no payload.
            tag: alternates from call to call, so that a leader one call ahead isn't misread.
        """
        link = self._link
        link.tag = tag
        self.state = state
        me, plan = link.me, ring.doubling(link.size, link.me)
        if plan.folds_to is not None:
            yield from self._swap(plan.folds_to, nbytes, None)
            yield from self._swap(plan.folds_to, nbytes, self._adopt, sends=False)
            self.waiting_for = -1
            return
        covers = ring.Covers(combine.weights if combine else [1] * link.size)
        if plan.folded is not None:
            last = not plan.partners
            add = self._adder(combine, nbytes, True, *covers.fold(me, plan.folded), last)
            yield from self._swap(plan.folded, nbytes, add, sends=False)
        covers.all_folded()
        for partner in plan.partners:
            last = partner == plan.partners[-1]
            add = self._adder(combine, nbytes, me < partner, *covers.pair(me, partner), last)
            yield from self._swap(partner, nbytes, add)
            covers.doubled(me ^ partner)
        if plan.folded is not None:
            yield from self._swap(plan.folded, nbytes, None)
        self.waiting_for = -1

    def _swap(
        self, member: int, nbytes: int, take: Callable[[State], None] | None, sends: bool = True
    ) -> Task:
        """Send state and payload to `member` (if `sends`) and, if `take` is given, hear its own."""
        assert self.state is not None
        requests = []
        if take is not None:
            self.waiting_for = self._link.members[member]
            requests += self._link.recv(member, self._recv)
        if sends:
            self._send.view[:HEADER_BYTES] = self.state.pack()
            self._send.view[HEADER_BYTES : HEADER_BYTES + nbytes] = self.payload.view[:nbytes]
            message = self._send.part(0, HEADER_BYTES + nbytes)
            requests += self._link.send(member, message)
            self._link.counters.headers += HEADER_BYTES
            self._link.counters.between_nodes -= HEADER_BYTES
        yield requests
        if take is not None:
            take(State.unpack(self._recv.view))

    def _adopt(self, theirs: State) -> None:
        """The folded member takes over the finished result."""
        self.state = theirs
        self.payload.view[:] = self._recv.view[HEADER_BYTES:]

    def _adder(
        self,
        combine: Combine | None,
        nbytes: int,
        mine_first: bool,
        low: int,
        high: int,
        last: bool,
    ) -> Callable[[State], None]:
        """A function that merges what arrived into state and payload; lower member first."""

        def take(theirs: State) -> None:
            assert self.state is not None
            self.state = merge(self.state, theirs)
            # Payloads are added only while all calls agree: else their lengths may differ.
            if combine is None or not nbytes or self.state.other is not None:
                return
            mine = self.payload.part(0, nbytes)
            arrived = self._recv.part(HEADER_BYTES, nbytes)
            a, b = (mine, arrived) if mine_first else (arrived, mine)
            combine(mine, a, b, low, high, last)

        return take

"""Whether all ranks made the same call, and the error if they did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hierring.communicator.descriptor import REFUSED, Descriptor
from hierring.errors import CollectiveMismatchError
from hierring.internode.opening import Claim, State

if TYPE_CHECKING:
    from hierring.communicator.generation import Call, Generation

__all__ = ["Verdict", "mismatch_error", "node_state"]


@dataclass(frozen=True)
class Verdict:
    """How an opening ended.

    Attributes:
        state: the lowest rank's claim and the lowest that differs; None if all is well.
        refused: this rank itself could not take part.
    """

    state: State | None
    refused: bool

    @property
    def bad(self) -> bool:
        if self.refused:
            return True
        state = self.state
        return state is not None and (
            state.other is not None or Descriptor.unpack(state.low.descriptor).kind == REFUSED
        )


def node_state(engine: Generation) -> State:
    """This node's claims, once all its ranks have arrived."""
    differing = engine.channel.local_difference()
    other = _claim(engine, differing) if differing >= 0 else None
    return State(_claim(engine, 0), other)


def _claim(engine: Generation, local_rank: int) -> Claim:
    packed = bytes(engine.channel.descriptor(local_rank))
    digest, _ = Descriptor.unpack(packed).pack()
    return Claim(engine.local_ranks[local_rank], digest, packed)


def mismatch_error(engine: Generation, call: Call, verdict: Verdict) -> CollectiveMismatchError:
    """The error of a bad verdict, equal on all ranks."""
    state = verdict.state
    where = f"{call.name} (operation {call.number})"
    tail = "; no tensor was changed on any rank and the next call works"
    if state is None:  # every rank of this node refused alike; each raises its own error
        return CollectiveMismatchError(f"{where}: all ranks refused{tail}")
    claims = [state.low] + ([state.other] if state.other is not None else [])
    described = [(claim, Descriptor.unpack(claim.descriptor)) for claim in claims]
    for claim, descriptor in described:
        if descriptor.kind == REFUSED:
            host = engine.host(claim.rank)
            return CollectiveMismatchError(
                f"{where}: rank {claim.rank} on {host} could not take part: {descriptor.text}{tail}"
            )
    calls = " but ".join(
        f"rank {claim.rank} on {engine.host(claim.rank)} calls {descriptor.describe()}"
        for claim, descriptor in described
    )
    differ = described[0][1].differences(described[1][1])
    return CollectiveMismatchError(f"{where}: {calls}; they differ in {differ}{tail}")

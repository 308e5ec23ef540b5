"""Whom a waiting rank gives up: those that are gone without having finished the call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hierring import _core
from hierring.communicator.failure import Broken, Cause, Guard
from hierring.communicator.generation import Call

SEQ = 7


class Engine:
    """Ranks 0 (the waiting one) and 1 on this node, 2 the leader of another; nothing is real."""

    def __init__(self, looks: list[tuple[int, int, bool]], alive: bool) -> None:
        #: What rank 1's status line says at each look: operation, phase, left.
        self.looks = looks
        self.config = SimpleNamespace(warn_after_s=1e9)
        self.contact = SimpleNamespace(me=0)
        self.local_ranks = [0, 1]
        self.left_ranks: dict[int, int] = {}
        self.memory = SimpleNamespace(alive=lambda local_rank: alive)
        self.channel = SimpleNamespace(peer=self.peer)
        self.control = None

    def peer(self, local_rank: int) -> tuple[Any, ...]:
        if local_rank == 0:
            return SEQ, _core.REDUCE, 0, -1, 0.0, False, 1
        seq, phase, left = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return seq, phase, 0, -1, 0.0, left, 1

    def waiting_for(self, call: Call) -> list[int]:
        return [2]

    def lost(self, rank: int, call: Call, left: bool) -> Cause:
        return Cause(int(left), (rank,), "gone")

    def break_for(self, cause: Cause) -> None:
        raise Broken(cause)

    def cause(self) -> None:
        return None


def tick(engine: Any) -> None:
    Guard(engine, Call("allreduce", SEQ, SEQ, 0.0, 1e18)).tick()


@pytest.mark.parametrize(
    ("last", "left", "alive"),
    [
        ((SEQ - 1, _core.IDLE), True, True),
        ((SEQ - 1, _core.IDLE), False, False),
        ((SEQ, _core.REDUCE), False, False),
        ((SEQ, _core.OPENING), True, False),
    ],
)
def test_a_rank_that_is_gone_without_finishing_the_call_breaks_it(
    last: tuple[int, int], left: bool, alive: bool
) -> None:
    with pytest.raises(Broken) as caught:
        tick(Engine([(*last, left)], alive))
    assert caught.value.cause.ranks == (1,)
    assert caught.value.cause.kind == int(left)


@pytest.mark.parametrize(("left", "alive"), [(True, True), (True, False), (False, False)])
def test_a_rank_that_finished_the_call_before_it_went_is_not_missed(
    left: bool, alive: bool
) -> None:
    tick(Engine([(SEQ, _core.IDLE, left)], alive))


def test_a_rank_that_finishes_and_leaves_between_two_looks_is_not_missed() -> None:
    tick(Engine([(SEQ - 1, _core.IDLE, True), (SEQ, _core.IDLE, True)], alive=True))


@pytest.mark.parametrize(("seq", "missed"), [(SEQ - 1, True), (SEQ, False)])
def test_a_leader_s_farewell_counts_only_for_later_calls(seq: int, missed: bool) -> None:
    """It may overtake, in this rank's eyes, a message sent before it."""
    engine = Engine([(SEQ, _core.REDUCE, False)], alive=True)
    engine.left_ranks[2] = seq
    if not missed:
        tick(engine)
        return
    with pytest.raises(Broken) as caught:
        tick(engine)
    assert caught.value.cause.ranks == (2,)

"""Snapshots: their difference, and the order in which a clock's accounts become phases."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import pytest

from hierring import _core
from hierring.communicator import PhaseTimes, Statistics
from hierring.communicator.statistics import Tally

ACCOUNTS = [name for name in vars(_core) if name.startswith("SPENT_")]


def test_every_account_has_its_phase() -> None:
    """Phases are filled by position, so names must stand in the order of the accounts."""
    names = [item.name for item in fields(PhaseTimes)]
    assert {names[getattr(_core, account)] for account in ACCOUNTS} == set(names) - {"total"}
    for account in ACCOUNTS:
        name = account.removeprefix("SPENT_").lower()
        assert names[getattr(_core, account)] == name


def test_a_clock_books_on_the_account_it_was_turned_to() -> None:
    tally = Tally(1)
    tally.clock.turn(_core.SPENT_STAGE)
    assert tally.phases() == PhaseTimes(), "it stands still before the start"
    tally.clock.start()
    assert tally.clock.turn(_core.SPENT_ALLGATHER) == _core.SPENT_OTHER
    assert tally.clock.turn(_core.SPENT_OTHER) == _core.SPENT_ALLGATHER
    tally.clock.stop()
    times = tally.phases()
    assert times.allgather > 0
    assert times.other > 0
    assert times.total == pytest.approx(times.allgather + times.other, rel=1e-12)
    with pytest.raises(ValueError, match="account"):
        tally.clock.turn(len(ACCOUNTS))


def test_difference() -> None:
    earlier = Statistics(
        operations=2,
        bytes_between_nodes=10,
        segment_nbytes_per_rank=5,
        scratch_nbytes=7,
        phases=PhaseTimes(stage=1.0, wait_peer=0.5, total=1.5),
        waited_for={0: 0.5},
        algorithms={"small": 2},
    )
    later = Statistics(
        operations=5,
        bytes_between_nodes=40,
        segment_nbytes_per_rank=6,
        scratch_nbytes=8,
        phases=PhaseTimes(stage=1.25, wait_arrival=0.5, wait_peer=0.75, total=2.5),
        waited_for={0: 0.5, 2: 0.75},
        algorithms={"small": 2, "ring": 3},
    )
    between = later - earlier
    assert between == Statistics(
        operations=3,
        bytes_between_nodes=30,
        segment_nbytes_per_rank=6,
        scratch_nbytes=8,
        phases=PhaseTimes(stage=0.25, wait_arrival=0.5, wait_peer=0.25, total=1.0),
        waited_for={2: 0.75},
        algorithms={"ring": 3},
    )
    assert between.phases.wait == 0.75
    counters = [item.name for item in fields(Statistics) if item.type == "int"]
    gauges = {"segment_nbytes_per_rank", "scratch_nbytes"}
    ones: dict[str, Any] = dict.fromkeys(counters, 1)
    twos: dict[str, Any] = dict.fromkeys(counters, 2)
    left = Statistics(**twos) - Statistics(**ones)
    assert [getattr(left, name) for name in counters] == [1 + (n in gauges) for n in counters]


def test_snapshots_travel() -> None:
    """Ranks send them to each other; and they can be kept in sets."""
    snapshot = Statistics(waited_for={1: 0.5}, algorithms={"small": 1})
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
    assert len({snapshot, Statistics(waited_for={1: 0.5}, algorithms={"small": 1})}) == 1

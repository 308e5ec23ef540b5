"""Whom a timeout blames, and what the cause looks like on its way to the other ranks."""

from __future__ import annotations

import pytest

from hierring.communicator.failure import DEAD, MOST_RANKS, TEXT_BYTES, TIMEOUT, Cause
from hierring.communicator.stall import culprits
from hierring.errors import CollectiveTimeoutError, RankFailedError


@pytest.mark.parametrize(
    ("waits", "blamed"),
    [
        ({0: {3}}, [3]),
        ({0: {2}, 2: {3}}, [3]),  # the leader of node 1 waits itself
        ({0: {2}, 1: {0}, 2: {3}}, [3]),
        ({0: {1, 5}, 1: {0}}, [5]),
        ({0: {1}, 1: {0}}, [0, 1]),  # nobody is missing: both are named
        ({0: set()}, []),
        ({}, []),
    ],
)
def test_whoever_is_waited_for_and_waits_for_nobody_is_blamed(
    waits: dict[int, set[int]], blamed: list[int]
) -> None:
    assert culprits(waits) == blamed


def test_a_cause_survives_its_journey_and_fits_into_the_abort_record() -> None:
    cause = Cause(TIMEOUT, tuple(range(100)), "ü" * 1000)
    packed = cause.pack()
    assert len(packed.encode()) <= 900
    back = Cause.unpack(TIMEOUT, packed)
    assert back.ranks == tuple(range(MOST_RANKS))
    assert len(back.text.encode()) <= TEXT_BYTES


def test_the_error_names_ranks_and_says_what_to_do() -> None:
    error = Cause(TIMEOUT, (3,), "late").error()
    assert isinstance(error, CollectiveTimeoutError)
    assert error.missing_ranks == (3,)
    assert "rebuild()" in str(error)
    failed = Cause(DEAD, (2,), "died").error()
    assert isinstance(failed, RankFailedError)
    assert failed.rank == 2


def test_a_record_cut_short_by_its_writer_s_death_still_gives_an_error() -> None:
    assert "died" in Cause.unpack(DEAD, '{"ranks": [1').text

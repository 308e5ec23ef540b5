"""Channels from Python: right results between processes, waits, arguments.

The protocol itself is tested natively, with threads as ranks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from hierring import _core
from hierring._testing.node import FLOAT64, SUM, view
from hierring._testing.processes import (
    CELL_BYTES,
    SMALL_BYTES,
    WINDOW_CELLS,
    Process,
    node,
    together,
)


@pytest.fixture
def pair() -> Iterator[list[Process]]:
    with ExitStack() as stack:
        yield node(stack, 2)


def alone(size: int = 1) -> _core.Channel:
    """A channel on memory of this process; its peers, if any, never come."""
    sizes = (size, CELL_BYTES, WINDOW_CELLS, SMALL_BYTES)
    segment = _core.Segment.private(_core.Channel.layout_nbytes(*sizes))
    channel = _core.Channel(segment, 0, *sizes)
    channel.reserve()
    return channel


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("ring", [False, True])
def test_results_are_right(size: int, ring: bool) -> None:
    """Sums and gathers in a row, from just before the 32-bit numbers wrap."""
    counts = [(rank * 397) % 1000 for rank in range(size)]
    calls = [
        *(f"rank.small_sum({count})" for count in (1, 6, 7, 32)),
        *(f"rank.large_sum({count})" for count in (0, 1, 128, 129, 5000)),
        f"rank.gather({counts})",
    ]
    with ExitStack() as stack:
        ranks = node(stack, size, ring=ring, start=(2**32 - 7, 2**32 - 20))
        everything = f"[{', '.join(calls * 5)}]"
        assert together(ranks, everything) == [[True] * 5 * len(calls)] * size
        assert len(set(together(ranks, "rank.channel.base"))) == 1


def test_a_failed_opening_writes_nothing_and_is_forgotten() -> None:
    with ExitStack() as stack:
        ranks = node(stack, 3)
        assert together(ranks, [f"rank.disagree({digest})" for digest in (5, 5, 6)]) == [True] * 3
        assert together(ranks, "rank.channel.local_difference()") == [2] * 3
        assert together(ranks, "rank.channel.descriptor(2)") == [b"call 1"] * 3
        assert together(ranks, "(rank.large_sum(2000), rank.small_sum(4))") == [(True, True)] * 3


def test_a_verdict_reaches_all(pair: list[Process]) -> None:
    together(pair, "rank.enter()")
    pair[1].start("rank.channel.verdict(1, time.monotonic() + 60)")
    assert pair[0].ask("rank.channel.publish_verdict(1, -3, b'because')") is None
    assert pair[1].answer() == _core.DONE
    facts = "(rank.channel.verdict_code, rank.channel.verdict_detail())"
    assert together(pair, facts) == [(-3, b"because")] * 2


@pytest.mark.slow
def test_waiting_burns_no_cpu() -> None:
    """Three seconds of waiting take less than 2 % of a core."""
    channel = alone(2)
    channel.arrive(1, 1, b"")
    before = time.process_time()
    assert channel.arrivals(time.monotonic() + 3) == _core.PENDING
    assert time.process_time() - before < 0.06


def test_a_wait_leaves_the_gil_to_others() -> None:
    channel = alone(2)
    channel.arrive(1, 1, b"")
    steps = 0
    waiting = threading.Thread(target=lambda: channel.arrivals(time.monotonic() + 0.2))
    waiting.start()
    while waiting.is_alive():
        steps += 1
    assert steps > 1000


def test_looking_does_not_wait() -> None:
    channel = alone(2)
    channel.arrive(1, 1, b"")
    begin = time.monotonic()
    for _ in range(1000):
        assert channel.arrivals(0) == _core.PENDING
    assert time.monotonic() - begin < 5
    assert channel.missing() == [1]


def test_a_status_line_tells_what_a_rank_does(pair: list[Process]) -> None:
    assert pair[1].ask("rank.channel.peer(0)[0]") == 0
    pair[0].ask("rank.enter()")
    assert pair[0].ask("rank.channel.note(_core.NET, 12, 1)") is None
    seq, phase, step, waiting_for, age, left, pid = pair[1].ask("rank.channel.peer(0)")
    assert (seq, phase, step, waiting_for, left, pid) == (1, _core.NET, 12, 1, False, pair[0].pid)
    assert 0 <= age < 60


def test_bytes_are_counted() -> None:
    """Only what a peer will read is staged; alone there is no peer."""
    with ExitStack() as stack:
        ranks = node(stack, 2)
        together(ranks, "rank.large_sum(256)")
        assert (
            together(ranks, "rank.channel.stats()")
            == [{"staged_bytes": 1024, "window_bytes": 1024, "copied_bytes": 2048}] * 2
        )


def test_a_runner_brings_in_the_network() -> None:
    """Reduced pieces lie in the window until they are declared gathered."""
    channel = alone()
    x = np.arange(300.0)
    cell = CELL_BYTES // 8
    channel.arrive(1, 1, b"")
    channel.begin(
        "reduce", view(x), view(x), FLOAT64, FLOAT64, SUM, 1.0, 2.0, 1, True, 300, cell, None
    )  # fmt: skip
    done, answer = 0, 0
    while not answer & _core.FINISHED:
        answer = channel.advance()
        for piece in range(done, channel.reduced()):
            count = min(cell, 300 - piece * cell)
            ten = np.full(count, 10.0)
            window = channel.window(piece)
            _core.reduce2(window, FLOAT64, window, ten.ctypes.data, count, SUM)
            done = piece + 1
            channel.gathered(done)
    np.testing.assert_array_equal(x, (np.arange(300.0) + 10) / 2)
    with pytest.raises(ValueError, match="runners"):
        channel.gathered(1)


def test_a_runner_is_not_run() -> None:
    channel = alone()
    x = np.arange(3.0)
    channel.arrive(1, 1, b"")
    channel.begin(
        "reduce", view(x), view(x), FLOAT64, FLOAT64, SUM, 1.0, 1.0, 1, True, 3, 3, None
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="runner"):
        channel.run(0)


def test_wrong_arguments_change_nothing() -> None:
    channel = alone()
    x = np.arange(3.0)
    with pytest.raises(ValueError, match="too long"):
        channel.arrive(1, 0, bytes(513))
    with pytest.raises(ValueError, match="sequence"):
        channel.arrive(2, 0, b"")
    channel.arrive(1, 0, b"")
    good: tuple[Any, ...] = (
        "reduce",
        view(x),
        None,
        FLOAT64,
        FLOAT64,
        SUM,
        1.0,
        1.0,
        0,
        True,
        3,
        3,
        None,
    )
    for place, wrong in [(0, "scan"), (3, 99), (4, 4), (5, 99), (8, 2), (10, 4), (11, 1 << 20)]:
        arguments = list(good)
        arguments[place] = wrong
        with pytest.raises(ValueError, match=r"."):
            channel.begin(*arguments)
    channel.begin(*good)
    assert channel.run(time.monotonic() + 60) == _core.DONE
    with pytest.raises(ValueError, match="multiples of 64"):
        _core.Channel.layout_nbytes(1, 65, 2, 64)

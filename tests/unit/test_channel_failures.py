"""What a rank notices when a peer does not come: death, a farewell, a break, Ctrl-C, a fork."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hierring import _core
from hierring._testing.processes import Process, in_child, node, together

INTERRUPTED = {"error": "KeyboardInterrupt", "errno": None}


@pytest.fixture
def pair() -> Iterator[list[Process]]:
    with ExitStack() as stack:
        yield node(stack, 2)


def until(process: Process, expression: str, value: object) -> None:
    """Wait until another rank sees this."""
    deadline = time.monotonic() + 60
    while process.ask(expression) != value:
        assert time.monotonic() < deadline


def sleep_in_wait(pair: list[Process], call: str = "rank.wait()") -> None:
    """Let rank 0 enter a call that rank 1 does not, and wait until it waits."""
    assert pair[0].ask("rank.enter()") is None
    pair[0].start(call)
    until(pair[1], "rank.channel.peer(0)[3]", 1)


def test_a_killed_rank_is_dead(pair: list[Process]) -> None:
    sleep_in_wait(pair)
    pair[1].kill()
    status, blocker, seconds = pair[0].answer()
    assert (status, blocker) == (_core.DEAD, 1)
    assert seconds < 30


def test_a_rank_killed_after_arriving_has_arrived(pair: list[Process]) -> None:
    pair[1].ask("rank.enter()")
    pair[1].kill()
    pair[0].ask("rank.enter()")
    assert pair[0].ask("rank.wait()")[0] == _core.DONE
    assert pair[0].ask("rank.begin(100)") is None
    assert pair[0].ask("rank.channel.run(time.monotonic() + 60)") == _core.DEAD


def test_a_stopped_rank_is_not_dead(pair: list[Process]) -> None:
    pair[1].send(signal.SIGSTOP)
    pair[0].ask("rank.enter()")
    assert pair[0].ask("rank.wait(0.1)")[:2] == (_core.PENDING, 1)
    pair[1].send(signal.SIGCONT)
    assert pair[1].ask("rank.enter()") is None
    assert pair[0].ask("rank.wait()")[0] == _core.DONE


def test_a_leaver_is_known_to_have_left(pair: list[Process]) -> None:
    sleep_in_wait(pair)
    assert pair[1].ask("rank.channel.leave()") is None
    assert pair[0].answer()[:2] == (_core.LEFT, 1)
    assert pair[0].ask("rank.channel.peer(1)[5]") is True


def test_the_first_cause_reaches_all(pair: list[Process]) -> None:
    sleep_in_wait(pair)
    assert pair[1].ask("rank.channel.set_abort(2, 9, b'on fire')") is True
    assert pair[0].answer()[0] == _core.ABORTED
    assert pair[0].ask("rank.channel.set_abort(1, 8, b'me too')") is False
    assert together(pair, "rank.channel.abort_cause()") == [(2, 9, b"on fire")] * 2
    assert sorted(together(pair, "rank.channel.claim_inquiry()")) == [False, True]


def test_ctrl_c_ends_a_wait_and_nothing_else(pair: list[Process]) -> None:
    sleep_in_wait(pair)
    pair[0].send(signal.SIGINT)
    assert pair[0].answer() == INTERRUPTED
    pair[1].ask("rank.enter()")
    assert pair[0].ask("rank.wait()")[0] == _core.DONE
    assert together(pair, "rank.large_sum(3000)") == [True, True]


def test_ctrl_c_inside_a_large_operation(pair: list[Process]) -> None:
    """The interrupted rank goes on from there, and the sum is right on both."""
    pair[0].ask("rank.begin(3000)")
    pair[0].start("rank.channel.run(time.monotonic() + 60)")
    until(pair[1], "rank.channel.peer(0)[3]", 1)
    pair[0].send(signal.SIGINT)
    assert pair[0].answer() == INTERRUPTED
    pair[1].start("rank.large_sum(3000)")
    assert pair[0].ask("rank.channel.run(time.monotonic() + 60)") == _core.DONE
    assert pair[0].ask("bool((rank.arrays[1] == rank.right_sum(3000)).all())")
    assert pair[1].answer() is True


def test_a_signal_handler_that_returns_ends_no_wait(pair: list[Process]) -> None:
    pair[0].ask("globals().update(caught=[])")
    pair[0].ask("[signal.signal(signal.SIGUSR1, lambda *_: caught.append(1)), None][1]")
    sleep_in_wait(pair)
    pair[0].send(signal.SIGUSR1)
    until(pair[1], "rank.channel.peer(0)[3]", 1)
    pair[1].ask("rank.enter()")
    assert pair[0].answer()[0] == _core.DONE
    assert pair[0].ask("caught") == [1]


def test_nothing_stays_behind_a_killed_node() -> None:
    before = set(Path("/dev/shm").glob("hierring-*"))
    with ExitStack() as stack:
        ranks = node(stack, 3)
        assert together(ranks, "rank.large_sum(1000)") == [True] * 3
        for rank in ranks:
            rank.kill()
    assert set(Path("/dev/shm").glob("hierring-*")) <= before


def test_a_forked_child_has_no_seat(pair: list[Process]) -> None:
    """It can't write, and its farewell is not its parent's."""
    calls = [
        "rank.enter()",
        "rank.channel.set_abort(0, 0, b'')",
        "rank.channel.claim_inquiry()",
        "rank.channel.note(1, 0, 0)",
        "rank.channel.fail()",
        "rank.channel.begin('copy', None, None, 0, 0, 0, 1, 1, 0, True, 0, 1, None)",
        "rank.channel.run(0)",
        "rank.channel.leave()",
    ]
    child = f"[attempt(call) for call in {calls}]"
    assert pair[1].ask(in_child(child)) == ["RuntimeError"] * (len(calls) - 1) + [None]
    assert pair[0].ask("(rank.channel.peer(1)[5], rank.channel.abort_cause())") == (False, None)
    assert together(pair, "rank.large_sum(100)") == [True, True]

"""One wait for everything: MPI requests, flags of the node, the deadline; nothing blocks in MPI.

A task is a generator. It yields
* a list of MPI requests: go on when all are complete;
* a callable without arguments: go on when it returns true;
* None: ask again at the next round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

from hierring import _core

__all__ = ["AGAIN", "Progress", "Step", "Task", "Ticker"]

Step = list[Any] | Callable[[], Any] | None
Task = Generator[Step, None, None]
AGAIN: None = None

#: Naps grow with the time waited, so that a wait costs a fixed part of it. While data is under way
#: they stay short: a peer's rendezvous transfer moves only when this rank tests its requests.
SHORTEST_NAP_S = 50e-6
LONGEST_NAP_S = 1e-3
LONGEST_QUIET_NAP_S = 10e-3
NAP_PER_WAITED = 0.01
TICK_S = 5e-3
#: Rounds of giving the core away before the first sleep: on an oversubscribed node the peer that is
#: waited for often runs within them, and a sleep costs it tens of microseconds.
YIELDS = 100


class Ticker:
    """What a waiting rank looks at now and then: its deadline, and what else ends a wait."""

    def tick(self) -> None:
        """Raise if this wait must end; called every few milliseconds, and only when idle."""

    def sleep_on(self, block: Callable[[float], int], seconds: float) -> None:
        """Sleep in `block(until)` for at most so long, and act on the status it returns."""
        block(time.monotonic() + seconds)


class _Running:
    """A task and what it waits for."""

    __slots__ = ("step", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.step: Step = AGAIN

    def exchanges(self) -> bool:
        """Whether messages of it are under way."""
        return isinstance(self.step, list)

    def ready(self, testall: Callable[[list[Any]], bool]) -> bool:
        step = self.step
        if step is None:
            return True
        if isinstance(step, list):
            return not step or testall(step)
        return bool(step())


class _Rest:
    """The pauses of one wait: first give the core away, then sleep, longer and longer."""

    def __init__(self, ticker: Ticker, quiet: bool) -> None:
        self._ticker = ticker
        self._longest = LONGEST_QUIET_NAP_S if quiet else LONGEST_NAP_S
        self._rounds = 0
        self._since = self._ticked = 0.0

    def over(self) -> None:
        """Something moved: the next wait starts anew."""
        self._rounds = 0

    def take(self, block: Callable[[float], Any] | None) -> None:
        """Pause once, in `block` if given, and let the ticker look around now and then."""
        self._rounds += 1
        if self._rounds <= YIELDS:
            os.sched_yield()
            return
        now = time.monotonic()
        if self._rounds == YIELDS + 1:
            self._since = self._ticked = now
        waited = now - self._since
        if block is not None:
            self._ticker.sleep_on(block, min(max(waited * NAP_PER_WAITED, TICK_S), 10 * TICK_S))
        else:
            time.sleep(min(max(waited * NAP_PER_WAITED, SHORTEST_NAP_S), self._longest))
        if now - self._ticked >= TICK_S:
            self._ticked = now
            self._ticker.tick()


class Progress:
    """Drives tasks to their ends. One instance per communicator; used by one thread at a time.

    Args:
        clock: books the time as the exchange's (`account`) while a task is at work or a message of
            it under way, else as a wait for peers of the node. What `advance` does books itself.
    """

    def __init__(self, clock: _core.PhaseClock | None = None) -> None:
        self._running: list[_Running] = []
        self._clock = clock or _core.PhaseClock()

    def run(
        self,
        tasks: Iterable[Task],
        ticker: Ticker,
        advance: Callable[[], int] | None = None,
        block: Callable[[float], Any] | None = None,
        quiet: bool = False,
        account: int = _core.SPENT_INTER_NODE,
    ) -> None:
        """Run `tasks` and the node's own work to completion.

        Args:
            advance: does what node-local work it can; bit 1 "moved something", bit 2 "all done".
            block: sleeps on the node's flags for at most so many seconds; used when no task is left
                (a task waits for MPI, which no flag announces: then this loop takes short naps).
            quiet: only short messages are under way, so longer naps hold nobody up.
            account: of the clock, for the exchange.

        Raises whatever a task, `advance` or `ticker` raises; then `open_requests()` are still open.
        """
        self._running = [_Running(task) for task in tasks]
        self.resume(ticker, advance, block, quiet, account)

    def resume(
        self,
        ticker: Ticker,
        advance: Callable[[], int] | None = None,
        block: Callable[[float], Any] | None = None,
        quiet: bool = False,
        account: int = _core.SPENT_INTER_NODE,
    ) -> None:
        """Go on with a `run` that `ticker` ended."""
        from mpi4py import MPI

        testall = MPI.Request.Testall
        running = self._running
        rest = _Rest(ticker, quiet)
        turn, booked = self._clock.turn, _core.SPENT_OTHER
        while True:
            state = advance() if advance is not None else 2
            moved = bool(state & 1)
            for item in tuple(running):
                if item.ready(testall):
                    if booked != account:
                        booked = account
                        turn(account)
                    moved = self._resume(item) or moved
            done = not running and state & 2
            if booked != _core.SPENT_OTHER and (
                done or (moved and not any(item.exchanges() for item in running))
            ):
                booked = _core.SPENT_OTHER
                turn(booked)
            if done:
                return
            if moved:
                rest.over()
                continue
            if booked == _core.SPENT_OTHER:
                booked = _core.SPENT_WAIT_PEER
                turn(booked)
            # A task waits for MPI, which no flag of the node announces.
            rest.take(block if not running else None)

    def _resume(self, item: _Running) -> bool:
        """Let a ready task take its next step; says whether that is news."""
        polling = item.step is None
        try:
            item.step = next(item.task)
        except StopIteration:
            self._running.remove(item)
            return True
        return not (polling and item.step is None)

    def open_requests(self) -> list[Any]:
        """The requests still open after `run` raised."""
        return [
            request
            for item in self._running
            if isinstance(item.step, list)
            for request in item.step
            if request
        ]

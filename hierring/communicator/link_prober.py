"""Two leaders measure the link between them; see `link_probe`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from hierring.communicator.failure import TIMEOUT, Cause
from hierring.internode.link import Counters, Link
from hierring.internode.memory import Memory, allocate
from hierring.internode.progress import Ticker
from hierring.topology import Link as Rates

if TYPE_CHECKING:
    from hierring.communicator.engine import Engine
    from hierring.communicator.failure import Guard
    from hierring.internode.progress import Task

__all__ = ["MOST_STALLS", "PART_S", "Prober"]

MESSAGE_BYTES = 2**20
IN_FLIGHT = 4
MOST_MESSAGES = 256
MOST_ROUND_TRIPS = 1000
#: Seconds that each part of a measurement takes, if the link carries four messages in that time.
PART_S = 0.1
SLOW_S = 0.5
#: A round takes at most so many times as long as a link may carry nothing.
MOST_STALLS = 3


class _Watch(Ticker):
    """A guard that also gives a pair up: if nothing arrives for too long, or it takes for ever."""

    def __init__(self, engine: Engine, guard: Guard, stall_s: float) -> None:
        self._engine = engine
        self._guard = guard
        self._stall_s = stall_s
        self._began = time.monotonic()
        self.nodes: tuple[int, ...] = ()
        self.moved()

    def moved(self) -> None:
        """Something has arrived."""
        self._since = time.monotonic()

    def tick(self) -> None:
        self._guard.tick()
        now = time.monotonic()
        if now - self._since >= self._stall_s:
            self._give_up(f"has carried nothing for {self._stall_s:g} s")
        if now - self._began >= MOST_STALLS * self._stall_s:
            self._give_up(f"takes more than {now - self._began:.0f} s for a few megabytes")

    def _give_up(self, what: str) -> None:
        nodes = self._engine.topology.nodes
        me = self._engine.topology.node_rank
        peers = [nodes[node] for node in self.nodes]
        named = " and ".join(f"node {peer.number} ({peer.hostname})" for peer in peers)
        self._engine.break_for(
            Cause(
                TIMEOUT,
                tuple(peer.leader for peer in peers),
                f"probe_links: the link between node {me} ({nodes[me].hostname}) and {named} "
                f"{what}: look at the cable, the switch, a firewall, or at the process at the "
                "other end",
            )
        )


def _messages_for(seconds_each: float) -> int:
    """How many messages make up a part of the measurement: of a very slow link a single one."""
    if seconds_each > SLOW_S:
        return 1
    wanted = round(PART_S / max(seconds_each, 1e-9) / IN_FLIGHT) * IN_FLIGHT
    return min(max(wanted, IN_FLIGHT), MOST_MESSAGES)


def _gbps(messages: int, seconds: float) -> float:
    return messages * MESSAGE_BYTES / max(seconds, 1e-9) / 1e9


class Prober:
    """This leader's side of a round."""

    def __init__(self, engine: Engine, guard: Guard, stall_s: float) -> None:
        self._engine = engine
        self._watch = _Watch(engine, guard, stall_s)
        contact, topology = engine.contact, engine.topology
        leaders = [contact.members[leader] for leader in topology.leaders]
        self._me = topology.node_rank
        # Its bytes are no payload of anybody's: they are counted apart.
        self._link = Link(
            contact.comm, leaders, self._me, contact.tags.probe, [False] * len(leaders),
            engine.rails.max_message, Counters(),
        )  # fmt: skip
        self._word = allocate(8)
        self._numbers = np.frombuffer(self._word.view, np.float64)
        self._outgoing = [allocate(MESSAGE_BYTES) for _ in range(IN_FLIGHT)]
        self._incoming = [allocate(MESSAGE_BYTES) for _ in range(IN_FLIGHT)]

    def pair(self, peer: int) -> Rates:
        """Measure the link with a peer that does the same; both return the same figures."""
        self._watch.nodes = (peer,)
        first = self._me < peer
        latency = self._latency(peer, first)
        each = self._timed(peer, first, 1 if first else 0, 0 if first else 1)
        count = _messages_for(self._share(peer, first, each))
        there, back = (count, 0), (0, count)
        seconds = [
            self._timed(peer, first, *(way if first else way[::-1]))
            for way in (there, back, (count, count))
        ]
        rates = [_gbps(count, taken) for taken in seconds]
        figures = [self._share(peer, first, value) for value in (latency, *rates)]
        return Rates((min(self._me, peer), max(self._me, peer)), *figures)

    def ring(self, prev: int, next_: int, rate: float) -> float:
        """Send to the next and receive from the one before, with all others; what arrives a second.

        Args:
            rate: GB/s that the link to the next one is known to carry.
        """
        self._watch.nodes = tuple({prev, next_})
        count = _messages_for(MESSAGE_BYTES / rate / 1e9)
        told = allocate(8)
        self._numbers[0] = count
        started = time.monotonic()
        self._drive([self._both(self._link.recv(prev, told) + self._link.send(next_, self._word))])
        expected = int(np.frombuffer(told.view, np.float64)[0])
        ended: list[float] = []
        sending = self._sending(next_, count)
        receiving = self._receiving(prev, expected, lambda: ended.append(time.monotonic()))
        self._drive([*sending, *receiving])
        return _gbps(expected, max(ended) - started)

    # --- parts of it -----------------------------------------------------------------------------

    def _latency(self, peer: int, first: bool) -> float:
        """Half of the median round trip; of meaning on the first of the two only."""
        trips: list[float] = []

        def ask() -> Task:
            began = time.monotonic()
            last = False
            while not last:
                sent = time.monotonic()
                last = len(trips) >= MOST_ROUND_TRIPS or (sent - began > PART_S and len(trips) > 4)
                self._numbers[0] = last
                yield self._link.send(peer, self._word)
                yield self._link.recv(peer, self._word)
                trips.append(time.monotonic() - sent)
                self._watch.moved()

        def answer() -> Task:
            while True:
                yield self._link.recv(peer, self._word)
                self._watch.moved()
                last = bool(self._numbers[0])
                yield self._link.send(peer, self._word)
                if last:
                    return

        self._drive([ask() if first else answer()])
        # The first ones open the connection.
        return statistics.median(trips[1:]) / 2 if first else 0.0

    def _timed(self, peer: int, first: bool, outgoing: int, incoming: int) -> float:
        """Send and receive so many messages at once; seconds until the last has been confirmed."""
        self._meet(peer, first)
        began = time.monotonic()
        self._drive([*self._sending(peer, outgoing), *self._receiving(peer, incoming)])
        self._meet(peer, first)
        return time.monotonic() - began

    def _meet(self, peer: int, first: bool) -> None:
        """Both go on when the other is here: a word from the first, and one back."""

        def words() -> Task:
            steps = (self._link.send, self._link.recv)
            for step in steps if first else steps[::-1]:
                yield step(peer, self._word)
                self._watch.moved()

        self._drive([words()])

    def _share(self, peer: int, first: bool, value: float) -> float:
        """The first one's value, on both."""
        self._numbers[0] = value
        self._meet(peer, first)
        return float(self._numbers[0])

    def _sending(self, peer: int, count: int) -> list[Task]:
        return self._stream(self._link.send, peer, self._outgoing, count, self._watch.moved)

    def _receiving(
        self, peer: int, count: int, then: Callable[[], object] | None = None
    ) -> list[Task]:
        return self._stream(self._link.recv, peer, self._incoming, count, then or self._watch.moved)

    def _stream(
        self,
        start: Callable[[int, Memory], list[Any]],
        peer: int,
        cells: list[Memory],
        count: int,
        then: Callable[[], object],
    ) -> list[Task]:
        """Tasks that move `count` messages, as many at once as there are cells.

        They all look alike, so it does not matter which of them meets which at the other end.
        """

        def one(cell: Memory, times: int) -> Generator[list[Any], None, None]:
            for _ in range(times):
                yield start(peer, cell)
                then()
                self._watch.moved()

        shares = [len(range(at, count, len(cells))) for at in range(len(cells))]
        return [one(cell, times) for cell, times in zip(cells, shares, strict=True) if times]

    def _both(self, requests: list[Any]) -> Task:
        yield requests

    def _drive(self, tasks: list[Task]) -> None:
        self._engine.progress.run(tasks, self._watch)

"""How an operation ends badly: the cause all ranks share, and the watch that finds it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hierring import _core
from hierring.errors import CollectiveTimeoutError, HierringError, RankFailedError
from hierring.internode.progress import Ticker

if TYPE_CHECKING:
    from hierring.communicator.generation import Call, Generation

__all__ = ["Broken", "Cause", "Guard"]

log = logging.getLogger("hierring")

#: The segment's abort record, and the longest text of a cause in it.
RECORD_BYTES = 900
TEXT_BYTES = 640
MOST_RANKS = 16
#: Sleep between two looks at the control messages of other nodes, at first; it grows tenfold.
WAKE_S = 5e-3

TIMEOUT, DEAD, LEFT, INTERRUPTED, MPI_ERROR = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Cause:
    """Why a communicator is broken. The first cause wins, and every rank raises it.

    Attributes:
        kind: TIMEOUT, DEAD, LEFT, INTERRUPTED or MPI_ERROR.
        ranks: the ranks to blame, at most MOST_RANKS of them.
    """

    kind: int
    ranks: tuple[int, ...]
    text: str

    def error(self) -> HierringError:
        """A fresh exception for this cause."""
        advice = "; every call raises this until all ranks call rebuild()"
        if self.kind == TIMEOUT:
            return CollectiveTimeoutError(self.text + advice, missing_ranks=self.ranks)
        return RankFailedError(self.text + advice, rank=self.ranks[0] if self.ranks else None)

    def pack(self) -> str:
        """As JSON of at most RECORD_BYTES; a longer text is cut."""
        text = self.text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore")
        while True:
            facts = {"ranks": self.ranks[:MOST_RANKS], "text": text}
            packed = json.dumps(facts, ensure_ascii=False)
            if len(packed.encode()) <= RECORD_BYTES:
                return packed
            text = text[:-32]  # quotes and control characters take more room when written down

    @classmethod
    def unpack(cls, kind: int, packed: str) -> Cause:
        try:
            facts = json.loads(packed)
            return cls(kind, tuple(facts["ranks"]), facts["text"])
        except (ValueError, KeyError):  # the rank that broke it died while writing
            return cls(kind, (), "a rank broke the communicator and died before it could say why")


class Broken(Exception):
    """Inside the engine: this wait is over, the communicator is broken for `cause`."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.text)
        self.cause = cause


class Guard(Ticker):
    """Watches over one call on one rank. Every wait of the call comes by here at its timed wakes.

    It looks at: the abort word of the node, control messages of other nodes, the deadline, and
    whether a local rank has died or left. It also says once, after warn_after_s, whom it is waiting
    for.
    """

    def __init__(self, engine: Generation, call: Call) -> None:
        self._engine = engine
        self._call = call
        self._warn_at = call.started + engine.config.warn_after_s

    def wait(self, poll: Callable[[float], int]) -> None:
        """Wait on flags of the node: call `poll(until)`, a wait of `_core`, until it is DONE."""
        alone = self._engine.topology.num_nodes == 1
        while True:
            until = min(self._call.deadline, self._warn_at)
            if not alone:
                now = time.monotonic()
                until = min(
                    until, now + min(max((now - self._call.started) / 50, WAKE_S), 10 * WAKE_S)
                )
            status = poll(until)
            if status == _core.DONE:
                return
            self.check(status)

    def sleep_on(self, block: Callable[[float], int], seconds: float) -> None:
        status = block(time.monotonic() + seconds)
        if status != _core.DONE:
            self.check(status)

    def check(self, status: int) -> None:
        """Act on a status other than DONE."""
        engine = self._engine
        if status in (_core.DEAD, _core.LEFT):
            rank = engine.local_ranks[engine.channel.blocker]
            engine.break_for(engine.lost(rank, self._call, left=status == _core.LEFT))
        self.tick()

    def tick(self) -> None:
        engine, call = self._engine, self._call
        if engine.control is not None:
            engine.hear(call)
        cause = engine.cause()
        if cause is not None:
            raise Broken(cause)
        self._look_at_peers()
        now = time.monotonic()
        if now >= call.deadline:
            engine.break_for(engine.investigate(call))
        if now >= self._warn_at:
            self._warn_at = float("inf")
            log.warning("%s", engine.waiting_text(call, now))

    def _look_at_peers(self) -> None:
        """Find ranks that can't come any more.

        One that is gone is missed only by calls it did not finish: of a finished one all that this
        rank needs has been written or sent, though this rank may not have looked yet.
        """
        engine, call = self._engine, self._call
        for local_rank, rank in enumerate(engine.local_ranks):
            left = engine.channel.peer(local_rank)[5]
            if rank == engine.contact.me or (not left and engine.memory.alive(local_rank)):
                continue
            # What it says now is its last word; it may have gone on since the look above.
            seq, phase, _, _, _, left, _ = engine.channel.peer(local_rank)
            if seq < call.seq or (seq == call.seq and phase != _core.IDLE):
                engine.break_for(engine.lost(rank, call, left=left))
        for rank in engine.waiting_for(call):
            if engine.left_ranks.get(rank, call.seq) < call.seq:
                engine.break_for(engine.lost(rank, call, left=True))

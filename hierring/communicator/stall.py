"""Who holds an operation up: what a rank whose deadline has passed finds out before it raises.

It knows whom it waits for itself; a rank of another node may be waiting for somebody else in turn.
So it asks all ranks of the other nodes, which answer from inside their own waits, and blames
whoever is waited for and does not answer. One rank of a node asks (it claims the inquiry), the
others wait for its cause; of two that ask at once the lower rank goes on and the other waits for
it. So all name the same culprit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hierring import _core
from hierring.communicator.failure import TIMEOUT, Cause

if TYPE_CHECKING:
    from hierring.communicator.generation import Call, Generation

__all__ = ["Inquiry", "culprits", "describe_call", "investigate", "local_report"]

#: How long the asking rank listens, and how long the others wait for its cause: together below the
#: second that a rank may take beyond its deadline.
LISTEN_S = 0.4
YIELD_S = 0.8
MOST_SIGHTINGS = 4

PHASES = {
    _core.IDLE: "outside any operation",
    _core.ENTER: "entering",
    _core.STAGE: "staging",
    _core.OPENING: "opening",
    _core.REDUCE: "reducing",
    _core.NET: "exchanging between nodes",
    _core.COPY: "copying out",
}


@dataclass
class Inquiry:
    """What came in while this rank was asking."""

    asking: bool = False
    yielded: bool = False
    answers: dict[int, Mapping[str, Any]] = field(default_factory=dict)


def culprits(waits: Mapping[int, set[int]]) -> list[int]:
    """The ranks to blame, from what each rank that is in the call waits for.

    Whoever waits is a victim. If everybody waited for waits too, all of those are named.
    """
    waited_for = set().union(*waits.values()) if waits else set()
    return sorted(waited_for - set(waits)) or sorted(waited_for)


def local_report(engine: Generation, call: Call) -> tuple[dict[int, set[int]], dict[int, str]]:
    """(whom each rank of this node that is in the call waits for, sightings of those that are not).

    A rank that is stopped by a signal has entered but answers nobody: it counts as missing.
    """
    me = engine.contact.me
    waits: dict[int, set[int]] = {me: set(engine.waiting_for(call))}
    seen: dict[int, str] = {}
    for local_rank, rank in enumerate(engine.local_ranks):
        if rank == me:
            continue
        seq, phase, step, waiting, age, _, pid = engine.channel.peer(local_rank)
        stopped = _stopped(pid)
        if seq >= call.seq and not stopped:
            waits[rank] = {engine.local_ranks[waiting]} if waiting >= 0 else set()
            continue
        waits[me].add(rank)
        doing = f"in operation {engine.number_of(seq)}, {PHASES.get(phase, 'busy')} (step {step})"
        if seq < call.seq:
            doing = f"after {engine.number_of(seq)} operations"
        state = ", stopped by a signal" if stopped else ""
        seen[rank] = f"last seen {doing}, {age:.1f} s ago, pid {pid}{state}"
    return waits, seen


def _stopped(pid: int) -> bool:
    """Whether the process is stopped (SIGSTOP, a debugger); no where /proc can't tell."""
    import psutil

    try:
        return bool(
            psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        )
    except psutil.Error:
        return False


def answer(engine: Generation, call: Call) -> dict[str, Any]:
    """This rank's answer to another node's question."""
    waits, seen = local_report(engine, call)
    mine = sorted(waits[engine.contact.me])
    sightings = {str(rank): seen[rank] for rank in list(seen)[:MOST_SIGHTINGS]}
    return {"seq": call.seq, "waits": mine[:64], "seen": sightings}


def investigate(engine: Generation, call: Call) -> Cause:
    """The cause of this timeout; takes at most LISTEN_S + YIELD_S."""
    inquiry = engine.inquiry
    if not engine.channel.claim_inquiry():
        cause = _await_cause(engine, call)
        if cause is not None:
            return cause
    elif engine.control is not None:
        inquiry.asking = True
        engine.control.send(engine.remote_ranks, "ask", seq=call.seq)
        until = time.monotonic() + LISTEN_S
        while time.monotonic() < until and not inquiry.yielded and engine.cause() is None:
            time.sleep(0.005)
            engine.hear(call)
        inquiry.asking = False
        cause = _await_cause(engine, call) if inquiry.yielded else engine.cause()
        if cause is not None:
            return cause
    return _compose(engine, call, inquiry.answers)


def _await_cause(engine: Generation, call: Call) -> Cause | None:
    until = time.monotonic() + YIELD_S
    while time.monotonic() < until:
        if engine.control is not None:
            engine.hear(call)
        cause = engine.cause()
        if cause is not None:
            return cause
        time.sleep(0.005)
    return None


def _compose(engine: Generation, call: Call, answers: Mapping[int, Mapping[str, Any]]) -> Cause:
    waits, seen = local_report(engine, call)
    for rank, facts in answers.items():
        if facts["seq"] == call.seq:
            waits[rank] = set(facts["waits"])
            seen.update({int(who): what for who, what in facts["seen"].items()})
    for node in engine.topology.nodes:
        if not any(rank in waits for rank in node.ranks):
            # Nobody there is in the call: not only the leader we wait for, the whole node is
            # missing.
            waits[engine.contact.me].update(node.ranks)
    ranks = culprits(waits)
    named = [f"rank {rank} on {engine.host(rank)}" for rank in ranks[:MOST_SIGHTINGS]]
    named = [
        f"{name} ({seen[rank]})" if rank in seen else name
        for name, rank in zip(named, ranks, strict=False)
    ]
    if len(ranks) > MOST_SIGHTINGS:
        named.append(f"and {len(ranks) - MOST_SIGHTINGS} more")
    waited = time.monotonic() - call.started
    text = (
        f"{describe_call(engine, call)} timed out after {waited:.1f} s on rank "
        f"{engine.contact.me}: waiting for {', '.join(named) or 'unknown ranks'}"
    )
    return Cause(TIMEOUT, tuple(ranks), text)


def describe_call(engine: Generation, call: Call) -> str:
    """`allreduce (operation 12, phase opening)`."""
    phase = engine.channel.peer(engine.topology.local_rank)[1]
    return f"{call.name} (operation {call.number}, phase {PHASES.get(phase, 'entering')})"

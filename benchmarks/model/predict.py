"""How long an all-reduce takes: one pure function for each algorithm, in constant time.

Each says what one slice of the tensor costs on its way (`Work`); slices follow each other through
the network, so the time of a large tensor is that of one slice plus that of the narrowest place for
all others. Steps and bytes are those of docs/algorithms.md, and so are their sources. N ranks, M
nodes, n ranks on each. All numbers are floats: nothing overflows, however many nodes there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hierring.benchmarks.model.parameters import Engine, Parameters
from hierring.benchmarks.model.shape import Shape
from hierring.communicator.contact import MAX_RAILS
from hierring.communicator.rails import DOUBLING_BYTES, SHARD_BYTES
from hierring.internode.opening import HEADER_BYTES
from hierring.intranode import plan_layout

__all__ = ["ALGORITHMS", "Prediction", "Work", "opening_steps", "predict"]

#: Slices that a flat algorithm has in flight.
_FLAT_SLOTS = 3
#: A cell is never cut finer than an element.
_ELEMENT = 4.0


@dataclass(frozen=True)
class Prediction:
    """A time in seconds.

    Attributes:
        bound: what most of it goes to: "call" (work that no byte is to blame for), "steps"
            (messages that wait for each other), "cores" or "wire".
    """

    seconds: float
    bound: str


@dataclass(frozen=True)
class Work:
    """What one slice costs.

    Attributes:
        path: core time on the longest chain of ranks that wait for each other, on free cores.
        rank: core time of the busiest rank. mean: of all ranks, on average.
        steps: messages between nodes that wait for each other.
        path_nbytes: bytes of these messages. link_nbytes: that the busiest link carries one way.
    """

    path: float
    rank: float
    mean: float
    steps: float
    path_nbytes: float
    link_nbytes: float


def predict(
    algorithm: str, nbytes: float, shape: Shape, costs: Parameters, engine: Engine
) -> Prediction:
    """The time of one all-reduce in place.

    Args:
        algorithm: one of ALGORITHMS. nbytes: of the tensor, as it travels.
    """
    return ALGORITHMS[algorithm](float(nbytes), shape, costs, engine)


def opening_steps(nodes: int) -> float:
    """Messages in turn of recursive doubling: log2 M, and two more if M is no power of two."""
    power = nodes.bit_length() - 1
    return float(power if nodes == 1 << power else power + 2)


def _opening(payload: float, shape: Shape, costs: Parameters) -> tuple[float, float]:
    """(call, steps): the work of the call itself, and the opening round with its messages.

    The opening keeps one rank of each node busy; the others sleep until its verdict.
    """
    crowd = shape.crowding(shape.ranks)
    call = costs.call * crowd + costs.turn * (crowd - 1)
    if shape.ranks > 1:
        call += costs.arrive * crowd
    leads = shape.crowding(1)
    message = HEADER_BYTES + payload
    each = leads * (costs.alpha + costs.step + message * costs.touch)
    each += costs.beta * _unpaid(message, costs) * message
    return call, opening_steps(shape.nodes) * each


def _unpaid(nbytes: float, costs: Parameters) -> float:
    """The part of a call's bytes on a link that its bucket does not swallow."""
    return max(nbytes - costs.burst, 0.0) / nbytes if nbytes else 0.0


def _hierarchical(nbytes: float, shape: Shape, costs: Parameters, engine: Engine) -> Prediction:
    small = nbytes <= engine.small_bytes
    call, steps = _opening(nbytes if small else 0.0, shape, costs)
    if small:
        # Each step adds what came, and each leader what its node's ranks brought.
        adds = opening_steps(shape.nodes) + shape.ranks
        call += costs.gamma * nbytes * adds * shape.crowding(1)
        return _total({"call": call, "steps": steps})
    layout = plan_layout(
        shape.ranks, shape.nodes, engine.cell_bytes, engine.slice_bytes, engine.small_bytes
    )
    most = engine.leaders or shape.ranks
    rails = max(1.0, min(float(most), nbytes // SHARD_BYTES, float(MAX_RAILS)))
    whole = float(layout.cell_bytes * layout.cells_per_slice)
    work = _slice(min(nbytes, whole), nbytes, rails, shape, costs)
    return _pipeline(work, nbytes / whole, layout.slots, call, steps, shape, costs)


def _slice(part: float, nbytes: float, rails: float, shape: Shape, costs: Parameters) -> Work:
    """A slice inside the node and over the rails, each of which carries its share."""
    inside = _inside(part, shape.ranks, costs)
    steps, sent, added = _between(part, nbytes, shape.nodes)
    runs = math.ceil(rails / shape.ranks)  # rails of the busiest rank
    share = runs / rails
    net = runs * steps * costs.step + share * (sent * costs.touch + added * costs.gamma)
    active = min(rails, float(shape.ranks))
    return Work(
        path=inside + net,
        rank=inside + net,
        mean=inside + net * active / shape.ranks,
        steps=steps,
        path_nbytes=sent,
        link_nbytes=sent,
    )


def _inside(part: float, ranks: int, costs: Parameters) -> float:
    """Core time of a rank for stage, reduce and copy: docs/algorithms.md, "Staged"."""
    if ranks == 1:
        return 2 * part * costs.copy
    staged = (ranks - 1) / ranks * part
    return (staged + part) * costs.copy + staged * costs.gamma


def _between(part: float, nbytes: float, nodes: int) -> tuple[float, float, float]:
    """(steps, bytes that a node sends, bytes that it adds up) for a slice."""
    if nodes == 1:
        return 0.0, 0.0, 0.0
    if nodes == 2:
        return 1.0, part, part
    if nbytes <= DOUBLING_BYTES:
        steps = opening_steps(nodes)
        rounds = float((nodes - 1).bit_length())  # a folded member's partner sends once more
        return steps, steps * part, rounds * part
    return 2.0 * (nodes - 1), 2 * (nodes - 1) / nodes * part, (nodes - 1) / nodes * part


def _ring(nbytes: float, shape: Shape, costs: Parameters, engine: Engine) -> Prediction:
    """2 (N-1) steps of S/N; the slowest link sets the pace of all."""
    size, steps = shape.size, 2.0 * (shape.size - 1)
    whole = float(engine.cell_bytes)
    part = min(nbytes, whole)
    sent = steps / size * part
    remote = _crossing(shape)
    own = part * (2 * costs.copy + (size - 1) / size * costs.gamma)
    near = steps * costs.local_step + sent * costs.local_touch
    far = steps * costs.step + sent * costs.touch
    slowest = max(far if remote else 0.0, near if remote < 1 else 0.0)
    work = Work(
        path=own + slowest,
        rank=own + slowest,
        mean=own + remote * far + (1 - remote) * near,
        steps=steps if remote else 0.0,
        path_nbytes=sent if remote else 0.0,
        link_nbytes=shape.ranks * remote * sent,
    )
    return _flat(work, nbytes / whole, shape, costs)


def _crossing(shape: Shape) -> float:
    """The share of a flat ring's neighbours that are on different nodes."""
    if shape.nodes == 1:
        return 0.0
    return 1.0 if shape.cyclic else 1.0 / shape.ranks


def _tree(nbytes: float, shape: Shape, costs: Parameters, engine: Engine) -> Prediction:
    """Up a binomial tree and down; the root receives and sends at every level."""
    whole = float(engine.cell_bytes)
    part = min(nbytes, whole)
    far_levels = float((shape.nodes - 1).bit_length())
    levels = float((shape.size - 1).bit_length())
    near_levels = max(levels - far_levels, 0.0)
    far = costs.step + part * costs.touch
    near = costs.local_step + part * costs.local_touch
    chain = 2 * (far_levels * far + near_levels * near)
    own = 2 * part * costs.copy
    # Of the 2 (N-1) messages, all but 2 (M-1) stay inside nodes, if ranks lie in blocks.
    between = float(shape.size - 1 if shape.cyclic else shape.nodes - 1)
    inside = shape.size - 1 - between
    messages = 2 * (between * far + inside * near) / shape.size
    work = Work(
        path=own + chain + levels * part * costs.gamma,
        rank=own + chain / 2 + levels * part * costs.gamma,
        mean=own + messages + (shape.size - 1) / shape.size * part * costs.gamma,
        steps=2 * far_levels,
        path_nbytes=2 * far_levels * part,
        link_nbytes=far_levels * part,
    )
    return _flat(work, nbytes / whole, shape, costs)


def _naive(nbytes: float, shape: Shape, costs: Parameters, engine: Engine) -> Prediction:
    """Everything to everybody at once."""
    peers, near = shape.size - 1, shape.ranks - 1
    far = peers - near
    whole = max(float(engine.cell_bytes // max(peers, 1)), _ELEMENT)
    part = min(nbytes, whole)
    each = part * (2 * costs.copy + peers * costs.gamma)
    each += far * (costs.step + part * costs.touch)
    each += near * (costs.local_step + part * costs.local_touch)
    work = Work(
        path=each,
        rank=each,
        mean=each,
        steps=1.0 if far else 0.0,
        path_nbytes=shape.ranks * far * part,
        link_nbytes=shape.ranks * far * part,
    )
    return _flat(work, nbytes / whole, shape, costs)


def _flat(work: Work, slices: float, shape: Shape, costs: Parameters) -> Prediction:
    call, steps = _opening(0.0, shape, costs)
    return _pipeline(work, slices, _FLAT_SLOTS, call, steps, shape, costs)


def _pipeline(
    work: Work, slices: float, slots: int, call: float, opening: float, shape: Shape,
    costs: Parameters,
) -> Prediction:  # fmt: skip
    """One slice from end to end, and the narrowest place once for each other slice."""
    slices = max(slices, 1.0)
    crowding = shape.crowding(shape.ranks)
    crowd = crowding * work.mean
    alpha = crowding**2 * costs.alpha
    beta = costs.beta * _unpaid(slices * work.link_nbytes, costs)
    chain = max(work.path, crowd)
    first = {
        "call": call,
        "steps": opening + work.steps * alpha,
        "cores": chain,
        "wire": work.path_nbytes * beta,
    }
    latency = work.steps * alpha + chain + work.path_nbytes * beta
    each = {
        "cores": max(work.rank, crowd),
        "wire": work.link_nbytes * beta,
        "steps": latency / min(float(slots), slices),
    }
    narrowest = max(each, key=lambda name: each[name])
    first[narrowest] += (slices - 1) * each[narrowest]
    return _total(first)


def _total(parts: dict[str, float]) -> Prediction:
    return Prediction(sum(parts.values()), max(parts, key=lambda name: parts[name]))


ALGORITHMS: dict[str, Callable[[float, Shape, Parameters, Engine], Prediction]] = {
    "hierarchical": _hierarchical,
    "ring": _ring,
    "tree": _tree,
    "naive": _naive,
}

"""What a run of `hierring bench` says to the model: its shape, its settings, its times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hierring.benchmarks.figures import Case
from hierring.benchmarks.model.parameters import Engine
from hierring.benchmarks.model.predict import ALGORITHMS
from hierring.benchmarks.model.shape import Shape
from hierring.benchmarks.result import Result
from hierring.config import algorithm_for
from hierring.dtypes import DType, itemsize
from hierring.errors import HierringError
from hierring.topology.sysfs import parse_ranges

__all__ = [
    "Point", "engine_of", "latency_of", "points_of", "quietest", "rates_of", "shape_of",
    "source_of",
]  # fmt: skip

#: The model knows bytes and not types, so it goes by those that are added at the speed of memory
#: and travel as they are.
_TYPES = ("float32", "float64", "int32", "int64")


@dataclass(frozen=True)
class Point:
    """One measured time.

    Attributes:
        seconds: the median over the calls. low, high: the fastest call, and the p99.
        copy: seconds to copy the tensor, all ranks at once, as the run measured.
    """

    algorithm: str
    nbytes: int
    shape: Shape
    seconds: float
    low: float
    high: float
    copy: float


def shape_of(result: Result) -> Shape:
    """The cluster of a run; nodes of unequal size count as the largest."""
    topology = result.topology
    nodes = topology["nodes"]
    one_machine = len(nodes) > 1 and _one_machine(topology)
    machines = [nodes] if one_machine else [[node] for node in nodes]
    return Shape(
        nodes=len(nodes),
        ranks=max(int(node["local_size"]) for node in nodes),
        cores=min(map(_cores, machines)),
        one_machine=one_machine,
        cyclic=topology["placement"] == "cyclic",
    )


def _cores(nodes: Sequence[dict[str, Any]]) -> int:
    """CPUs of a machine, given the nodes that are on it.

    Where ranks share CPUs, those; where each has its own, more ranks would be given more.
    """
    ranks = [rank for node in nodes for rank in node["ranks"]]
    cpus = len({cpu for rank in ranks for cpu in parse_ranges(rank["cpus"])})
    hardware = nodes[0]["hardware"]
    if len(ranks) <= cpus:
        cpus = max(cpus, int(hardware["num_cores"]))
    quota = hardware["cpu_quota"]
    return max(1, cpus if quota is None else min(cpus, int(quota)))


def _one_machine(topology: dict[str, Any]) -> bool:
    """Whether the nodes are pretended, or virtual ones: the run then holds a warning."""
    warnings = topology["warnings"]
    return bool(topology["simulated"]) or any("are one machine" in text for text in warnings)


def engine_of(result: Result) -> Engine:
    """The settings that cut the tensor."""
    config = result.settings.config
    return Engine(
        cell_bytes=int(config["cell_bytes"]),
        slice_bytes=int(config["slice_bytes"]),
        small_bytes=int(config["small_bytes"]),
        leaders=int(config["leaders"]),
    )


def points_of(result: Result) -> list[Point]:
    """The times that the model can repeat: hierring's all-reduce in place, with its own settings.

    Raises:
        HierringError: there are none.
    """
    shape = shape_of(result)
    found = [_point(case, shape) for case in result.cases if _usable(case, result)]
    if not found:
        raise HierringError(
            f"the run of {result.environment.date} has no time of hierring's all-reduce with "
            f"op=sum and one of {', '.join(_TYPES)}: measure with `hierring bench`, which does so "
            "by default"
        )
    return found


def _usable(case: Case, result: Result) -> bool:
    plain = case.leaders is None and case.cell_bytes is None
    ours = case.library == "hierring" and case.collective == "allreduce"
    # On the wire a narrower type would halve the bytes there and nowhere else.
    travels = result.settings.config["wire_dtype"] in (None, case.dtype)
    return plain and ours and travels and case.in_place and case.op == "sum" and _known(case)


def _known(case: Case) -> bool:
    return case.dtype in _TYPES and _algorithm(case) in ALGORITHMS


def _algorithm(case: Case) -> str:
    name = algorithm_for(case.algorithm, case.nbytes)
    return "hierarchical" if name == "auto" else name


def _point(case: Case, shape: Shape) -> Point:
    assert case.nbytes == case.count * itemsize(DType[case.dtype.upper()])
    return Point(
        _algorithm(case), case.nbytes, shape, case.times.median, case.times.min, case.times.p99,
        case.bounds.memory,
    )  # fmt: skip


def quietest(points: Iterable[Point]) -> list[Point]:
    """Of equal cases of several runs the fastest: what disturbs a run never speeds it up."""
    best: dict[tuple[str, int, Shape], Point] = {}
    for point in points:
        key = (point.algorithm, point.nbytes, point.shape)
        if key not in best or point.seconds < best[key].seconds:
            best[key] = point
    return list(best.values())


def rates_of(results: Sequence[Result]) -> tuple[float, float] | None:
    """(least, most) GB/s of the links, with traffic both ways; None if none was probed."""
    rates = [link.both for result in results for link in result.links]
    return (min(rates), max(rates)) if rates else None


def latency_of(results: Sequence[Result]) -> float | None:
    """Seconds of a short message between nodes, the median link's; None without a probe."""
    found = [link.latency for result in results for link in result.links]
    return statistics.median(found) if found else None


def source_of(result: Result) -> str:
    """Name a run in a line."""
    shape, environment = shape_of(result), result.environment
    machine = f", one machine of {shape.cores} cores" if shape.one_machine else ""
    rates = rates_of([result])
    links = "" if rates is None else f", links of {rates[0]:.3g} GB/s"
    return (
        f"{environment.date[:16].replace('T', ' ')} UTC, {shape.nodes}x{shape.ranks} on "
        f"{environment.hostname}{machine}{links}, {environment.mpi}, load {environment.load:.1f}"
    )

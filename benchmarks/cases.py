"""From measured times to the figures of a case; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hierring.benchmarks import counted as counters
from hierring.benchmarks import metrics
from hierring.benchmarks.figures import Bounds, Bytes, Case, RankFigures, Ratio
from hierring.benchmarks.measure import Measured
from hierring.benchmarks.plan import chosen
from hierring.benchmarks.result import Faster
from hierring.config import Config
from hierring.dtypes import itemsize
from hierring.topology import Topology

__all__ = ["faster_of", "make_case", "median_of", "ratio_of"]

#: Closer than this to the reference, two times are the same.
_CLEARLY = 0.95


def make_case(
    measured: Measured, reference: Measured | None, bounds: Bounds, topology: Topology,
    config: Config,
) -> Case:  # fmt: skip
    """All figures of one contender in one row.

    Args:
        reference: whom its time is compared to; None if it is the reference itself.
        config: the measured communicator's.
    """
    who, point = measured.contender, measured.point
    times = metrics.times_of(longest(measured))
    algbw = metrics.algbw(point.nbytes, times.median)
    ours = who.library == "hierring"
    what = chosen(point, who.algorithm, config, topology.num_nodes) if ours else ""
    local = max(node.local_size for node in topology.nodes)
    levels = point.collective == "allreduce"
    return Case(
        collective=point.collective,
        library=who.library,
        algorithm=who.algorithm,
        chosen=what,
        leaders=who.leaders,
        cell_bytes=who.cell_bytes,
        dtype=str(point.dtype),
        op=point.op,
        nbytes=point.nbytes,
        count=point.count,
        in_place=measured.in_place,
        iterations=measured.seconds.shape[1],
        times=times,
        algbw=algbw,
        busbw=metrics.busbw(point.collective, topology.size, algbw),
        intra_busbw=_busbw(levels, local, algbw),
        inter_busbw=_busbw(levels, topology.num_nodes, algbw),
        wrong=measured.wrong,
        tolerance=measured.tolerance,
        ratio=None if reference is None else ratio_of(measured, reference),
        bounds=bounds,
        bytes=_bytes(measured, what, topology, config),
        ranks=_ranks(measured, topology),
    )


def longest(measured: Measured) -> list[float]:
    """The time of each call: that of the rank for which it took longest."""
    return [float(value) for value in measured.seconds.max(axis=0)]


def median_of(measured: Measured) -> float:
    """The time of the case."""
    return metrics.times_of(longest(measured)).median


def _busbw(stated: bool, members: int, algbw: float) -> float | None:
    return metrics.busbw("allreduce", members, algbw) if stated and members > 1 else None


def ratio_of(measured: Measured, reference: Measured) -> Ratio:
    """Compare call by call: those of one turn saw the same machine."""
    ratios = [a / b for a, b in zip(longest(measured), longest(reference), strict=True)]
    low, high = (metrics.quantile(ratios, share) for share in (0.25, 0.75))
    return Ratio(reference.contender.name, float(np.median(ratios)), low, high)


def _bytes(measured: Measured, what: str, topology: Topology, config: Config) -> Bytes | None:
    if measured.counted is None:
        return None
    point, calls = measured.point, measured.seconds.shape[1]
    total = dict(zip(counters.BYTES, measured.counted.sum(axis=0) / calls, strict=False))
    wire = point.wire(config)
    theory = metrics.theory(
        point.collective, what, point.nbytes, point.count * itemsize(wire),
        [node.local_size for node in topology.nodes], equal_types=wire is point.dtype,
    )  # fmt: skip
    between = float(total["bytes_between_nodes"])
    return Bytes(
        between_nodes=between,
        between_nodes_theory=theory.between_nodes,
        mpi=between + float(total["bytes_inside_nodes_mpi"]),
        mpi_theory=theory.mpi,
        shared_memory=float(total["bytes_shared_memory"]),
        shared_memory_theory=theory.shared_memory,
        headers=float(total["header_bytes"]),
        formula=theory.formula,
    )


def _ranks(measured: Measured, topology: Topology) -> tuple[RankFigures, ...]:
    seconds, rows = measured.seconds, measured.counted
    calls = seconds.shape[1]
    waits: list[float | None] = [None] * topology.size
    if rows is not None:
        waits = counters.awaited(rows, [node.ranks for node in topology.nodes])
    figures = []
    for rank in range(topology.size):
        waited, moved = waits[rank], None if rows is None else rows[rank] / calls
        figures.append(
            RankFigures(
                rank=rank,
                node=topology.node_of(rank),
                median=float(np.median(seconds[rank])),
                lateness=float(measured.late[rank].mean()),
                lateness_max=float(measured.late[rank].max()),
                awaited=None if waited is None else waited / calls,
                phases=None if rows is None else counters.phases_of(rows[rank], calls),
                **_moved(moved),
            )
        )
    return tuple(figures)


def _moved(row: Any) -> dict[str, float | None]:
    """The counters of bytes by name."""
    if row is None:
        return dict.fromkeys(counters.BYTES)
    return {name: float(row[index]) for index, name in enumerate(counters.BYTES)}


def faster_of(cases: Sequence[Case]) -> tuple[Faster, ...]:
    """Rows in which another algorithm of ours clearly beat the reference: the best one of each."""
    best: dict[tuple[Any, ...], Faster] = {}
    what = {_row(case): case.chosen for case in cases if _is_reference(case)}
    for case in cases:
        if case.ratio is None or case.library != "hierring" or _row(case) not in what:
            continue
        found = Faster(
            case.collective, case.dtype, case.op, case.nbytes, case.in_place, what[_row(case)],
            case.name, case.ratio.median,
        )  # fmt: skip
        clear = case.ratio.median < _CLEARLY and case.ratio.high < 1
        if clear and (_row(case) not in best or found.ratio < best[_row(case)].ratio):
            best[_row(case)] = found
    return tuple(best.values())


def _row(case: Case) -> tuple[Any, ...]:
    return (case.collective, case.dtype, case.op, case.nbytes, case.in_place)


def _is_reference(case: Case) -> bool:
    return case.library == "hierring" and case.ratio is None

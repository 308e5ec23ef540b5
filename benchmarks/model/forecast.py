"""Predictions for a grid of clusters and sizes, and for cases that were measured after all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hierring.benchmarks.model.measured import Point, quietest
from hierring.benchmarks.model.parameters import Model, Reach
from hierring.benchmarks.model.predict import ALGORITHMS, predict
from hierring.benchmarks.model.shape import Shape

__all__ = ["NODES_AHEAD", "Check", "Forecast", "beyond", "check", "forecast"]

#: Up to so many times the nodes of the calibration a prediction is one; the tests hold it to a
#: quarter there. Beyond, it is an extrapolation.
NODES_AHEAD = 2


@dataclass(frozen=True)
class Forecast:
    """One cluster and size.

    Attributes:
        seconds: by algorithm. bound: by algorithm, what most of the time goes to.
        best: the fastest algorithm's name. algbw: its GB/s.
        auto_seconds: of what hierring chooses by itself.
        beyond: in what this lies beyond the calibration: of "nodes", "ranks", "size", "machines",
            "cores"; empty if in nothing.
    """

    nodes: int
    ranks: int
    nbytes: int
    seconds: dict[str, float]
    bound: dict[str, str]
    best: str
    algbw: float
    auto_seconds: float
    beyond: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """One measured case beside its prediction.

    Attributes:
        predicted, measured: seconds; measured is the median of a run's calls, of several runs the
            fastest one's, as what disturbs a run never speeds it up.
        low, high: the lowest and the highest run's; the fastest call and the p99 of a single run.
        runs: how many.
        ratio: predicted / measured. beyond: as in `Forecast`.
    """

    algorithm: str
    nodes: int
    ranks: int
    nbytes: int
    predicted: float
    measured: float
    low: float
    high: float
    runs: int
    ratio: float
    beyond: tuple[str, ...]


def forecast(model: Model, shape: Shape, nbytes: int) -> Forecast:
    """Predict all algorithms for one cluster and size."""
    found = {
        name: predict(name, nbytes, shape, model.parameters, model.engine) for name in ALGORITHMS
    }
    best = min(found, key=lambda name: found[name].seconds)
    return Forecast(
        nodes=shape.nodes,
        ranks=shape.ranks,
        nbytes=nbytes,
        seconds={name: one.seconds for name, one in found.items()},
        bound={name: one.bound for name, one in found.items()},
        best=best,
        algbw=nbytes / found[best].seconds / 1e9,
        auto_seconds=found["hierarchical"].seconds,
        beyond=beyond(model.reach, shape, nbytes),
    )


def beyond(reach: Reach, shape: Shape, nbytes: int) -> tuple[str, ...]:
    """In what a case lies outside of the calibration."""
    inside = {
        "nodes": reach.nodes[0] <= shape.nodes <= NODES_AHEAD * reach.nodes[1],
        "ranks": reach.ranks[0] <= shape.ranks <= reach.ranks[1],
        "size": reach.nbytes[0] <= nbytes <= reach.nbytes[1],
        "machines": shape.nodes == 1 or shape.one_machine == reach.one_machine,
        "cores": shape.cores == reach.cores,
    }
    return tuple(name for name, holds in inside.items() if not holds)


def check(model: Model, points: Iterable[Point]) -> list[Check]:
    """Set measured cases beside their predictions; equal cases of several runs become one."""
    groups: dict[tuple[str, int, Shape], list[Point]] = {}
    for point in points:
        groups.setdefault((point.algorithm, point.nbytes, point.shape), []).append(point)
    return [_checked(model, *key, found) for key, found in groups.items()]


def _checked(
    model: Model, algorithm: str, nbytes: int, shape: Shape, points: Sequence[Point]
) -> Check:
    predicted = predict(algorithm, nbytes, shape, model.parameters, model.engine).seconds
    medians = [point.seconds for point in points]
    (measured,) = (point.seconds for point in quietest(points))
    alone = len(points) == 1
    away = beyond(model.reach, shape, nbytes)
    if algorithm not in model.reach.algorithms:
        away = (*away, "algorithm")
    return Check(
        algorithm=algorithm,
        nodes=shape.nodes,
        ranks=shape.ranks,
        nbytes=nbytes,
        predicted=predicted,
        measured=measured,
        low=points[0].low if alone else min(medians),
        high=points[0].high if alone else max(medians),
        runs=len(points),
        ratio=predicted / measured,
        beyond=away,
    )

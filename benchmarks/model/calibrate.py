"""From measured times to the model's costs: least squares of relative error.

A time is no linear function of the costs (a pipeline goes at the pace of its narrowest place), so
this is a Levenberg-Marquardt iteration. It moves the logarithms of the costs, which keeps them from
becoming negative, and makes the logarithm of predicted over measured small, so that an error counts
alike at 8 bytes and at 1 GiB, upwards and downwards. What the cases leave open stays near a first
guess, most of which is measured too, by the link probe and the memory bound of the same runs. A
case that fits no costs at all must not bend those that fit the others, so large errors count by
their size and not by its square.

Sources: P. J. Huber, Annals of Mathematical Statistics 35(1), 1964;
K. Levenberg, Quarterly of Applied Mathematics 2(2), 1944; D. Marquardt, SIAM Journal on
Applied Mathematics 11(2), 1963.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hierring.benchmarks.model.measured import (
    Point,
    engine_of,
    latency_of,
    points_of,
    quietest,
    rates_of,
    shape_of,
    source_of,
)
from hierring.benchmarks.model.parameters import SCHEMA, Engine, Fit, Model, Parameters, Reach
from hierring.benchmarks.model.predict import predict
from hierring.benchmarks.result import Result
from hierring.errors import HierringError

__all__ = ["calibrate", "error_of", "fit"]

#: Relative error that a measured time is trusted to; the guesses' doubts are set against it.
_NOISE = 0.1
#: An error so many times as large is no longer noise, but something that the model does not know.
_LARGE = 1.5
_ROUNDS = 60
_NAMES = tuple(field.name for field in dataclasses.fields(Parameters))

#: What costs are about if nothing says otherwise, and by which factor that may be wrong (one
#: standard deviation, as a logarithm).
_GUESS: dict[str, tuple[float, float]] = {
    "call": (60e-6, 1.0),
    "arrive": (5e-6, 1.0),
    "turn": (500e-6, 1.0),
    "alpha": (10e-6, 1.0),
    "beta": (1e-10, 2.0),
    "step": (20e-6, 1.0),
    "touch": (5e-10, 1.0),
    "local_step": (10e-6, 1.0),
    "local_touch": (3e-10, 1.0),
    "copy": (1e-10, 1.0),
    "gamma": (1e-10, 1.0),
    "burst": (64e3, 1.5),
}


def calibrate(results: Sequence[Result]) -> Model:
    """Fit the costs to all usable cases of some runs, to the fastest where runs have the same.

    Raises:
        HierringError: no usable case, or runs that can't belong to one cluster.
    """
    points = quietest(point for result in results for point in points_of(result))
    engine = _agreed(results, engine_of, "settings (cells, slices, leaders)")
    shapes = [shape_of(result) for result in results]
    machine = _agreed(
        [shape for shape in shapes if shape.nodes > 1] or shapes,
        lambda shape: (shape.cores, shape.one_machine),
        "cores, or put nodes on one machine here and on several there",
    )
    costs = fit(points, engine, _guess(results, points))
    errors = [error_of(predict_point(point, costs, engine), point.seconds) for point in points]
    reach = Reach(
        nodes=_span(shape.nodes for shape in shapes),
        ranks=_span(shape.ranks for shape in shapes),
        nbytes=_span(point.nbytes for point in points),
        algorithms=tuple(sorted({point.algorithm for point in points})),
        cores=machine[0],
        one_machine=machine[1],
        rates=rates_of(results),
    )
    found = Fit(len(points), statistics.median(errors), max(errors))
    return Model(SCHEMA, costs, engine, reach, found, tuple(map(source_of, results)))


def _agreed(items: Sequence[Any], what: Callable[[Any], Any], name: str) -> Any:
    found = {what(item) for item in items}
    if len(found) != 1:
        raise HierringError(f"the runs differ in {name}: calibrate with those of one cluster")
    return found.pop()


def _span(numbers: Any) -> tuple[int, int]:
    ordered = sorted(numbers)
    return ordered[0], ordered[-1]


def _guess(results: Sequence[Result], points: Sequence[Point]) -> dict[str, tuple[float, float]]:
    """Replace what the runs measured apart from the cases."""
    guess = dict(_GUESS)
    largest = max(point.nbytes for point in points)
    copies = [
        point.copy / point.nbytes / point.shape.crowding(point.shape.ranks)
        for point in points
        if point.nbytes == largest and point.copy > 0
    ]
    if copies:
        guess["copy"] = (statistics.median(copies), 0.5)
        guess["gamma"] = (statistics.median(copies), 0.7)
    rates = [link.both for result in results for link in result.links if link.both > 0]
    if rates:
        # What the network and the cores take together; a limited link's is the network's alone.
        guess["beta"] = (1e-9 / statistics.median(rates), 0.1)
    latency = latency_of(results)
    if latency:
        guess["alpha"] = (latency / 2, 1.0)
    return guess


def predict_point(point: Point, costs: Parameters, engine: Engine) -> float:
    """What the model says to a measured case."""
    return predict(point.algorithm, point.nbytes, point.shape, costs, engine).seconds


def error_of(predicted: float, measured: float) -> float:
    """How far apart two times are: 0.25 if one is 1.25 times the other."""
    return max(predicted / measured, measured / predicted) - 1


def fit(
    points: Sequence[Point], engine: Engine, guess: dict[str, tuple[float, float]] | None = None
) -> Parameters:
    """The costs that repeat the points best."""
    priors = guess or _GUESS
    centre = np.log([priors[name][0] for name in _NAMES])
    doubt = np.array([priors[name][1] for name in _NAMES])
    measured = np.log([point.seconds for point in points])

    def residuals(logs: np.ndarray) -> np.ndarray:
        costs = _costs(logs)
        said = np.log([predict_point(point, costs, engine) for point in points])
        return np.concatenate([_bounded((said - measured) / _NOISE), (logs - centre) / doubt])

    found = [_least_squares(residuals, start) for start in _starts(centre, doubt)]
    return _costs(min(found, key=lambda logs: float(np.sum(residuals(logs) ** 2))))


def _starts(centre: np.ndarray, doubt: np.ndarray) -> Iterator[np.ndarray]:
    """Where to begin a search.

    Whether a message fits into a link's bucket is a matter of yes or no, and so is which of network
    and cores is the narrowest: a search that begins on the wrong side may stay there.
    """
    beta, burst = _NAMES.index("beta"), _NAMES.index("burst")
    rates = (1.0, 50.0) if doubt[beta] > 1 else (1.0,)
    for rate, bucket in itertools.product(rates, (1 / 8, 1.0, 2.0, 8.0)):
        start = centre.copy()
        start[beta] += np.log(rate)
        start[burst] += np.log(bucket)
        yield start


def _bounded(errors: np.ndarray) -> np.ndarray:
    """What has this sum of squares weighs large errors by their size, and not by its square."""
    size = np.abs(errors)
    large = np.sqrt(_LARGE * np.maximum(2 * size - _LARGE, 0.0))
    return np.where(size <= _LARGE, errors, np.sign(errors) * large)


def _costs(logs: np.ndarray) -> Parameters:
    return Parameters(*(float(value) for value in np.exp(logs)))


def _least_squares(residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    """Levenberg-Marquardt with differences for derivatives."""
    at, now, damping = start, residuals(start), 1.0
    for _ in range(_ROUNDS):
        slopes = _slopes(residuals, at, now)
        gradient, normal = slopes.T @ now, slopes.T @ slopes
        improved = False
        while damping < 1e8 and not improved:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            # A cost never changes by more than e^2 at once: the slopes know the neighbourhood only.
            there = at + np.clip(step, -2.0, 2.0)
            then = residuals(there)
            improved = bool(then @ then < now @ now)
            damping *= 0.3 if improved else 4.0
        if not improved:
            break
        gained = 1 - (then @ then) / (now @ now)
        at, now = there, then
        if gained < 1e-6:
            break
    return at


def _slopes(
    residuals: Callable[[np.ndarray], np.ndarray], at: np.ndarray, now: np.ndarray
) -> np.ndarray:
    step = 1e-4
    columns = [(residuals(at + step * unit) - now) / step for unit in np.eye(len(at))]
    return np.stack(columns, axis=1)
